/* Everything on a GPU besides large products: elementwise work, tables, sums of lines, moves, small products. Sums and
 * products of two fp16 numbers are exact in doubles, as in NumPy; nothing is contracted (--fmad=false). */
#define THREADS 256
#define BOUNDS __launch_bounds__(THREADS)
#include "common.cuh"

#define OWN ((long long)blockIdx.x * THREADS + threadIdx.x)
#define AXES 5
#define RUN 8 /* elements in a row that a thread does where they lie so: sixteen bytes */

/* Where the operands of an element lie; a step of zero spreads an operand, along a sample or over all samples. Axes
 * before `first` are not used, and along the last one a step is zero or one. A block does a part of one sample. */
struct Pair {
    const uint16_t *a, *b, *c;
    uint16_t *out;
    long long a_sample, b_sample, c_sample;
    int size, first, is_by_runs, operation; /* size: elements of one sample */
    int shape[AXES], a_step[AXES], b_step[AXES], c_step[AXES];
    double gain, bias, ceiling;
};

struct alignas(16) Run {
    uint16_t at[RUN];
};

/* So many elements in a row, or one number for each of them. */
template <int COUNT> static __device__ __forceinline__ Run run_of(const uint16_t *from, int step)
{
    Run run;
    if (COUNT == RUN && step) {
#ifdef EMULATED
        memcpy(&run, from, sizeof run);
#else
        *(uint4 *)&run = *(const uint4 *)from;
#endif
    } else {
#pragma unroll
        for (int place = 0; place < COUNT; place++)
            run.at[place] = *from;
    }
    return run;
}

template <int COUNT> static __device__ __forceinline__ void put_run(uint16_t *to, const Run &run)
{
    if (COUNT == RUN) {
#ifdef EMULATED
        memcpy(to, &run, sizeof run);
#else
        *(uint4 *)to = *(const uint4 *)&run;
#endif
    } else {
        *to = run.at[0];
    }
}

/* The runs of a thread's operands and its place in the result. */
struct Operands {
    Run a = {}, b = {}, c = {};
    uint16_t *out;
};

template <int COUNT> static __device__ __forceinline__ bool read_operands(const Pair &job, Operands &operands)
{
    const int own = (blockIdx.x * THREADS + threadIdx.x) * COUNT;
    if (own >= job.size)
        return false;
    const long long sample = blockIdx.y;
    long long a = sample * job.a_sample, b = sample * job.b_sample, c = sample * job.c_sample;
    int left = own;
    for (int axis = AXES - 1; axis >= job.first; axis--) {
        const int whole = axis > job.first ? left / job.shape[axis] : 0, at = left - whole * job.shape[axis];
        left = whole;
        a += (long long)at * job.a_step[axis];
        b += (long long)at * job.b_step[axis];
        c += (long long)at * job.c_step[axis];
    }
    operands.a = run_of<COUNT>(job.a + a, job.a_step[AXES - 1]);
    if (job.b)
        operands.b = run_of<COUNT>(job.b + b, job.b_step[AXES - 1]);
    if (job.c)
        operands.c = run_of<COUNT>(job.c + c, job.c_step[AXES - 1]);
    operands.out = job.out + sample * job.size + own;
    return true;
}

/* 16-bit integers in the order of the numbers; a NaN is +infinity. */
static __device__ __forceinline__ int key_of(uint16_t half)
{
    uint16_t bits = (half & 0x7FFFu) > 0x7C00u ? 0x7C00u : half;
    int key = (short)bits;
    return key ^ ((key >> 15) & 0x7FFF);
}

static __device__ __forceinline__ uint16_t of_key(int key) { return (uint16_t)(key ^ ((key >> 15) & 0x7FFF)); }

static __device__ __forceinline__ uint16_t paired(int operation, uint16_t left, uint16_t right)
{
    if (operation >= 4) {
        const int one = key_of(left), two = key_of(right);
        return of_key((operation == 4) == (one > two) ? one : two);
    }
    const double x = widened(left), y = widened(right);
    switch (operation) {
    case 0:
        return narrowed(x + y, true);
    case 1:
        return narrowed(x - y, true);
    case 2:
        return narrowed(x * y, true);
    default:
        return narrowed(x / (y == 0.0 ? 0.0 : y), true);
    }
}

/* One result for each element of a thread. */
template <int COUNT, typename Result>
static __device__ __forceinline__ void do_run(const Pair &job, const Result &result_of)
{
    Operands read;
    if (!read_operands<COUNT>(job, read))
        return;
    Run results;
#pragma unroll
    for (int place = 0; place < COUNT; place++)
        results.at[place] = result_of(read.a.at[place], read.b.at[place], read.c.at[place]);
    put_run<COUNT>(read.out, results);
}

template <typename Result>
static __device__ __forceinline__ void do_elements(const Pair &job, const Result &result_of)
{
    if (job.is_by_runs)
        do_run<RUN>(job, result_of);
    else
        do_run<1>(job, result_of);
}

KERNEL(pairs, Pair)
{
    do_elements(job, [&](uint16_t a, uint16_t b, uint16_t) { return paired(job.operation, a, b); });
}

/* gain * scale * x + bias + offset, with one rounding; b is the scale and c the offset where they are given. */
KERNEL(gained, Pair)
{
    do_elements(job, [&](uint16_t a, uint16_t b, uint16_t c) {
        double value = widened(a) * job.gain;
        if (job.b)
            value *= widened(b);
        value += job.bias;
        if (job.c)
            value += widened(c);
        return narrowed(fabs(value) >= job.ceiling ? copysign(1.0 / 0.0, value) : value, false);
    });
}

struct Table {
    const uint16_t *table, *in;
    uint16_t *out;
    long long count;
};

KERNEL(looked_up, Table)
{
    const long long first = OWN * RUN;
    if (first + RUN <= job.count) {
        Run run = run_of<RUN>(job.in + first, 1);
#pragma unroll
        for (int place = 0; place < RUN; place++)
            run.at[place] = job.table[run.at[place]];
        put_run<RUN>(job.out + first, run);
        return;
    }
    for (long long own = first; own < job.count; own++)
        job.out[own] = job.table[job.in[own]];
}

/* A move: for each element of the result its place in one operand, or -1 minus the operand's number for others. */
struct Move {
    const int *map;
    const uint16_t *in;
    uint16_t *out;
    long long sample; /* elements of one sample of the operand */
    int size;         /* of one of the result; a block does a part of one */
    int first, last;  /* places of the operand in the map; those outside are another's */
    int fills;        /* whether elements that nobody has are written here */
    const uint16_t *fill;
};

KERNEL(moved, Move)
{
    const int own = blockIdx.x * THREADS + threadIdx.x;
    if (own >= job.size)
        return;
    const long long sample = blockIdx.y;
    uint16_t *out = job.out + sample * job.size + own;
    const int at = job.map[own];
    if (at < 0) {
        if (job.fills)
            *out = job.fill[-1 - at];
    } else if (at >= job.first && at < job.last) {
        *out = job.in[sample * job.sample + at - job.first];
    }
}

/* Lines of a map: an element of a line lies at its start plus a place in the table. */
struct Lines {
    const uint16_t *in;
    const int *line, *element;
    uint16_t *out;
    long long count, sample; /* lines in all, elements of one sample */
    int lines, length, tree, run, kind;
    int step; /* from one element of a line to the next, where it is one number */
    double factor;
};

/* The sum of a group: trees of neighbours, one behind the other. Whoever calls it with numbers that the compiler knows
 * keeps the leaves in registers. */
template <typename Read>
static __device__ __forceinline__ double group_sum(const Read &leaf_at, int tree, int run)
{
    double group = 0.0, level[32];
#pragma unroll
    for (int part = 0; part < run; part++) {
#pragma unroll
        for (int leaf = 0; leaf < tree; leaf++)
            level[leaf] = leaf_at(part * tree + leaf);
#pragma unroll
        for (int size = tree; size > 1; size /= 2) {
#pragma unroll
            for (int leaf = 0; leaf < size / 2; leaf++)
                level[leaf] = stepped(level[2 * leaf] + level[2 * leaf + 1]);
        }
        group = part ? stepped(group + level[0]) : level[0];
    }
    return group;
}

KERNEL(reduced, Lines)
{
    long long own = OWN;
    if (own >= job.count)
        return;
    long long sample = own / job.lines;
    const uint16_t *in = job.in + sample * job.sample + job.line[own - sample * job.lines];
    if (job.kind >= 2) {
        int best = key_of(in[job.element[0]]);
        for (int place = 1; place < job.length; place++) {
            int key = key_of(in[job.element[place]]);
            best = (job.kind == 2 ? key > best : key < best) ? key : best;
        }
        job.out[own] = of_key(best);
        return;
    }
    double total = 0.0;
    for (int first = 0; first < job.length; first += job.tree * job.run) {
        auto leaf_at = [&](int leaf) {
            return first + leaf < job.length ? widened(in[job.element[first + leaf]]) : 0.0;
        };
        total += group_sum(leaf_at, job.tree, job.run);
    }
    job.out[own] = narrowed(job.kind ? total * job.factor : total, false);
}

/* The same of lines with one step that are whole groups of four trees of eight: a thread for each group, and one for
 * each line that adds its groups in order. Neighbours do the groups of one row, or one group of rows side by side. */
#define GROUP 32
KERNEL(reduced_groups, Lines)
{
    SHARED(room);
    double *sums = (double *)room;
    const int groups = job.length / GROUP, lines = THREADS / groups, own = threadIdx.x;
    const int line = job.step == 1 ? own / groups : own % lines, group = job.step == 1 ? own % groups : own / lines;
    const long long place = (long long)blockIdx.x * lines + line;
    const bool is_used = line < lines && group < groups && place < job.count;
    if (is_used) {
        const long long sample = place / job.lines;
        const uint16_t *in = job.in + sample * job.sample + job.line[place - sample * job.lines] +
                             (long long)group * GROUP * job.step;
        uint16_t terms[GROUP];
#pragma unroll
        for (int first = 0; first < GROUP; first += RUN) {
            Run run;
            if (job.step == 1) {
                run = run_of<RUN>(in + first, 1);
            } else {
#pragma unroll
                for (int term = 0; term < RUN; term++)
                    run.at[term] = in[(long long)(first + term) * job.step];
            }
#pragma unroll
            for (int term = 0; term < RUN; term++)
                terms[first + term] = run.at[term];
        }
        double sum;
        if (job.kind >= 2) {
            int best = key_of(terms[0]);
#pragma unroll
            for (int term = 1; term < GROUP; term++) {
                int key = key_of(terms[term]);
                best = (job.kind == 2 ? key > best : key < best) ? key : best;
            }
            sum = best;
        } else {
            sum = group_sum([&](int leaf) { return widened(terms[leaf]); }, 8, 4);
        }
        sums[line * groups + group] = sum;
    }
    __syncthreads();
    if (!is_used || group)
        return;
    double total = sums[line * groups];
    for (int next = 1; next < groups; next++) {
        const double other = sums[line * groups + next];
        total = job.kind < 2 ? total + other : (job.kind == 2 ? other > total : other < total) ? other : total;
    }
    job.out[place] = job.kind >= 2 ? of_key((int)total) : narrowed(job.kind ? total * job.factor : total, false);
}

struct Pool {
    const uint16_t *in;
    uint16_t *out;
    long long count;
    int rows, columns, in_rows, in_columns, size[2], stride[2], before[2];
};

KERNEL(max_pooled, Pool)
{
    long long own = OWN;
    if (own >= job.count)
        return;
    int column = (int)(own % job.columns), row = (int)(own / job.columns % job.rows);
    const uint16_t *map = job.in + own / job.columns / job.rows * job.in_rows * job.in_columns;
    int best = key_of(0xFC00u);
    for (int i = 0; i < job.size[0]; i++)
        for (int j = 0; j < job.size[1]; j++) {
            int y = row * job.stride[0] + i - job.before[0], x = column * job.stride[1] + j - job.before[1];
            if (y < 0 || x < 0 || y >= job.in_rows || x >= job.in_columns)
                continue;
            int key = key_of(map[(long long)y * job.in_columns + x]);
            best = key > best ? key : best;
        }
    job.out[own] = of_key(best);
}

/* The largest size of each class of elements [outer][count][inner], as fp16 bits. */
struct Largest {
    const uint16_t *in;
    unsigned *most;
    long long outer, count, inner;
    int is_by_runs;
};

KERNEL(largest, Largest)
{
    SHARED(room);
    unsigned *own = (unsigned *)room, best = 0;
    if (job.inner < 16) { /* a thread for each element of a sample: neighbours read neighbours */
        long long place = OWN, size = job.count * job.inner;
        if (place < size) {
            for (long long sample = blockIdx.y; sample < job.outer; sample += gridDim.y) {
                unsigned bits = job.in[sample * size + place] & 0x7FFFu;
                best = bits > best ? bits : best;
            }
            atomicMax(job.most + place / job.inner, best);
        }
        return;
    }
    /* A block goes through the samples of its class in strides: no division for each element. */
    const int each = job.is_by_runs ? RUN : 1;
    const long long inner = job.inner / each, stride = (long long)gridDim.y * THREADS;
    const long long samples_on = stride / inner, places_on = stride - samples_on * inner;
    long long sample = ((long long)blockIdx.y * THREADS + threadIdx.x) / inner;
    long long place = (long long)blockIdx.y * THREADS + threadIdx.x - sample * inner;
    while (sample < job.outer) {
        const uint16_t *in = job.in + (sample * job.count + blockIdx.x) * job.inner + place * each;
        if (job.is_by_runs) {
            const Run run = run_of<RUN>(in, 1);
#pragma unroll
            for (int at = 0; at < RUN; at++) {
                unsigned bits = run.at[at] & 0x7FFFu;
                best = bits > best ? bits : best;
            }
        } else {
            unsigned bits = *in & 0x7FFFu;
            best = bits > best ? bits : best;
        }
        sample += samples_on;
        place += places_on;
        if (place >= inner) {
            place -= inner;
            sample++;
        }
    }
    own[threadIdx.x] = best;
    __syncthreads();
    for (int half = THREADS / 2; half; half /= 2) {
        if ((int)threadIdx.x < half && own[threadIdx.x + half] > own[threadIdx.x])
            own[threadIdx.x] = own[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicMax(job.most + blockIdx.x, own[0]);
}

struct Bounds {
    const unsigned *most;
    const int *class_of;
    float *out;
    long long count;
};

/* The bound of each term, by the class of elements that it reads. */
KERNEL(bounded, Bounds)
{
    long long own = OWN;
    if (own < job.count)
        job.out[own] = as_float(magnitude_bits(job.most[job.class_of[own]], ~0u));
}

/* Whether a tile of four terms may reach the size from which a chip's adders lose digits, by the bounds of its terms. */
struct TermTiles {
    const float *a, *b; /* [groups][depth] */
    unsigned *flag;
    long long count; /* tiles in all */
    int depth, lanes;
    double limit;
};

KERNEL(lossy_tiles, TermTiles)
{
    long long own = OWN;
    if (own >= job.count)
        return;
    const int tiles = (job.depth + job.lanes - 1) / job.lanes;
    const int first = (int)(own % tiles) * job.lanes;
    const long long line = own / tiles * job.depth;
    double sum = 0.0;
    for (int term = first; term < first + job.lanes && term < job.depth; term++)
        sum += (double)job.a[line + term] * (double)job.b[line + term];
    if (sum >= job.limit)
        atomicMax(job.flag, 1u);
}

/* Products with few rows in a group: term by term, as the engine does them. */
struct Few {
    const uint16_t *a, *b, *bias;
    const int *b_term, *b_column, *c_column;
    uint16_t *out;
    long long count, b_group, b_sample, c_group, c_sample, c_row;
    int rows, depth, columns, groups, flush;
};

KERNEL(few_rows, Few)
{
    long long own = OWN;
    if (own >= job.count)
        return;
    int column = (int)(own % job.columns);
    long long rest = own / job.columns;
    int row = (int)(rest % job.rows), group = (int)(rest / job.rows % job.groups);
    long long sample = rest / job.rows / job.groups;
    const uint16_t *a = job.a + ((long long)group * job.rows + row) * job.depth;
    const uint16_t *b = job.b + group * job.b_group + sample * job.b_sample + job.b_column[column];
    double total = 0.0;
    if (job.bias) {
        uint16_t bits = job.bias[group * job.rows + row];
        double size = floor(fabs(decoded(bits)) * UNITS + 0.5);
        total = bits & 0x8000u ? -size : size;
    }
    int lost = fabs(total) >= CEILING_UNITS ? (total < 0 ? -1 : 1) : 0;
    for (int term = 0; term < job.depth; term++) {
        total += rounded_product(a[term], b[job.b_term[term]], job.flush);
        lost = lost ? lost : fabs(total) >= CEILING_UNITS ? (total < 0 ? -1 : 1) : 0;
    }
    job.out[sample * job.c_sample + group * job.c_group + row * job.c_row + job.c_column[column]] =
        settled(total, lost);
}

/* The width Winograd form: what enters its four products, and what leaves them. */
struct Tiles {
    const uint16_t *in;
    uint16_t *out;
    const int *units;
    const signed char *lost;
    long long count, position; /* elements in all, of one of the four parts */
    int width, tiles, columns;
};

KERNEL(winograd_in, Tiles)
{
    long long own = OWN;
    if (own >= job.count)
        return;
    int tile = (int)(own % job.tiles);
    const uint16_t *in = job.in + own / job.tiles * job.width + 2 * tile;
    double d[4];
    for (int i = 0; i < 4; i++)
        d[i] = decoded(in[i]);
    job.out[own] = narrowed(d[0] - d[2], false);
    job.out[job.position + own] = narrowed(d[1] + d[2], false);
    job.out[2 * job.position + own] = narrowed(d[2] - d[1], false);
    job.out[3 * job.position + own] = narrowed(d[1] - d[3], false);
}

KERNEL(winograd_out, Tiles)
{
    long long own = OWN;
    if (own >= job.count)
        return;
    int tile = (int)(own % job.tiles);
    long long line = own / job.tiles, part[4];
    int gone[4];
    for (int i = 0; i < 4; i++) {
        part[i] = job.units[i * job.position + own];
        gone[i] = job.lost[i * job.position + own];
    }
    int even = gone[0] ? gone[0] : gone[1] ? gone[1] : gone[2];
    int odd = gone[1] ? gone[1] : gone[2] ? -gone[2] : -gone[3];
    uint16_t *out = job.out + line * job.columns + 2 * tile;
    out[0] = settled((double)(part[0] + part[1] + part[2]), even);
    if (2 * tile + 1 < job.columns)
        out[1] = settled((double)(part[1] - part[2] - part[3]), odd);
}

/* Everything on a GPU besides large products: elementwise work, tables, sums of lines, moves, small products. Sums and
 * products of two fp16 numbers are exact in doubles, as in NumPy; nothing is contracted (--fmad=false). */
#define THREADS 256
#define BOUNDS __launch_bounds__(THREADS)
#include "common.cuh"

#define OWN ((long long)blockIdx.x * THREADS + threadIdx.x)
#define AXES 5

/* Where the operands of an element lie; a step of zero spreads an operand, along a sample or over all samples. */
struct Pair {
    const uint16_t *a, *b, *c;
    uint16_t *out;
    long long count, size; /* elements in all, of one sample */
    long long a_sample, b_sample, c_sample;
    int operation, is_dense;
    int shape[AXES], a_step[AXES], b_step[AXES], c_step[AXES];
    double gain, bias, ceiling;
};

static __device__ void places_of(const Pair &job, long long own, long long *place)
{
    long long sample = own / job.size;
    int left = (int)(own - sample * job.size);
    place[0] = sample * job.a_sample;
    place[1] = sample * job.b_sample;
    place[2] = sample * job.c_sample;
#pragma unroll
    for (int axis = AXES - 1; axis >= 0; axis--) {
        int at = left % job.shape[axis];
        left /= job.shape[axis];
        place[0] += (long long)at * job.a_step[axis];
        place[1] += (long long)at * job.b_step[axis];
        place[2] += (long long)at * job.c_step[axis];
    }
}

/* 16-bit integers in the order of the numbers; a NaN is +infinity. */
static __device__ __forceinline__ int key_of(uint16_t half)
{
    uint16_t bits = (half & 0x7FFFu) > 0x7C00u ? 0x7C00u : half;
    int key = (short)bits;
    return key ^ ((key >> 15) & 0x7FFF);
}

static __device__ __forceinline__ uint16_t of_key(int key) { return (uint16_t)(key ^ ((key >> 15) & 0x7FFF)); }

KERNEL(pairs, Pair)
{
    long long own = OWN, place[3] = {own, own, 0};
    if (own >= job.count)
        return;
    if (!job.is_dense)
        places_of(job, own, place);
    uint16_t left = job.a[place[0]], right = job.b[place[1]];
    double x = widened(left), y = widened(right);
    switch (job.operation) {
    case 0:
        job.out[own] = narrowed(x + y, true);
        break;
    case 1:
        job.out[own] = narrowed(x - y, true);
        break;
    case 2:
        job.out[own] = narrowed(x * y, true);
        break;
    case 3:
        job.out[own] = narrowed(x / (y == 0.0 ? 0.0 : y), true);
        break;
    case 4: {
        int one = key_of(left), two = key_of(right);
        job.out[own] = of_key(one > two ? one : two);
        break;
    }
    default: {
        int one = key_of(left), two = key_of(right);
        job.out[own] = of_key(one < two ? one : two);
    }
    }
}

/* gain * scale * x + bias + offset, with one rounding; b is the scale and c the offset where they are given. */
KERNEL(gained, Pair)
{
    long long own = OWN, place[3];
    if (own >= job.count)
        return;
    places_of(job, own, place);
    double value = widened(job.a[place[0]]) * job.gain;
    if (job.b)
        value *= widened(job.b[place[1]]);
    value += job.bias;
    if (job.c)
        value += widened(job.c[place[2]]);
    job.out[own] = narrowed(fabs(value) >= job.ceiling ? copysign(1.0 / 0.0, value) : value, false);
}

struct Table {
    const uint16_t *table, *in;
    uint16_t *out;
    long long count;
};

KERNEL(looked_up, Table)
{
    long long own = OWN;
    if (own < job.count)
        job.out[own] = job.table[job.in[own]];
}

/* A move: for each element of the result its place in one operand, or -1 minus the operand's number for others. */
struct Move {
    const int *map;
    const uint16_t *in;
    uint16_t *out;
    long long count, size, sample; /* elements in all, of one sample of the result, of one of the operand */
    int first, last;               /* places of the operand in the map; those outside are another's */
    int fills;                     /* whether elements that nobody has are written here */
    const uint16_t *fill;
};

KERNEL(moved, Move)
{
    long long own = OWN;
    if (own >= job.count)
        return;
    long long sample = own / job.size;
    int at = job.map[own - sample * job.size];
    if (at < 0) {
        if (job.fills)
            job.out[own] = job.fill[-1 - at];
    } else if (at >= job.first && at < job.last) {
        job.out[own] = job.in[sample * job.sample + at - job.first];
    }
}

/* Lines of a map: an element of a line lies at its start plus a place in the table. */
struct Lines {
    const uint16_t *in;
    const int *line, *element;
    uint16_t *out;
    long long count, sample; /* lines in all, elements of one sample */
    int lines, length, tree, run, kind;
    double factor;
};

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
    const int whole = job.tree * job.run;
    for (int first = 0; first < job.length; first += whole) {
        double group = 0.0;
        for (int part = 0; part < job.run; part++) {
            double level[32];
            for (int leaf = 0; leaf < job.tree; leaf++) {
                int place = first + part * job.tree + leaf;
                level[leaf] = place < job.length ? widened(in[job.element[place]]) : 0.0;
            }
            for (int size = job.tree; size > 1; size /= 2)
                for (int leaf = 0; leaf < size / 2; leaf++)
                    level[leaf] = stepped(level[2 * leaf] + level[2 * leaf + 1]);
            group = part ? stepped(group + level[0]) : level[0];
        }
        total += group;
    }
    job.out[own] = narrowed(job.kind ? total * job.factor : total, false);
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
    long long all = job.outer * job.inner;
    for (long long at = (long long)blockIdx.y * THREADS + threadIdx.x; at < all; at += (long long)gridDim.y * THREADS) {
        long long sample = at / job.inner;
        unsigned bits = job.in[(sample * job.count + blockIdx.x) * job.inner + at - sample * job.inner] & 0x7FFFu;
        best = bits > best ? bits : best;
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

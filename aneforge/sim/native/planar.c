/* Planar work, fast: fp16 numbers widened, combined and rounded as aneforge/sim/half.py says, to the bit; what
 * convolutions read, gathered; and the rounding of the fast mode's single-precision sums.
 *
 * Everything is integer arithmetic on bits and exact or correctly rounded doubles, so that paths agree.
 */
#include "bits.h"
#include "crew.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EACH(index, count) for (ptrdiff_t index = 0; index < (count); index++)
#define JOIN_(x, y) x##_##y
#define JOIN(x, y) JOIN_(x, y)
#define NAME(x) JOIN(x, PATH)
#define EXPORT __attribute__((visibility("default")))
#define SHARE 32768 /* elements: about the time that a thread takes to wake */
#define LINES 16
#define AXES 5

/* What planar work reads: infinities are infinite, and a NaN is +infinity. */
INLINE float read_half(uint32_t half)
{
    uint32_t size = half & 0x7FFFu, bits = as_bits(operand(half));
    bits = size == 0x7C00u ? 0x7F800000u | (half & 0x8000u) << 16 : bits;
    return as_float(size > 0x7C00u ? 0x7F800000u : bits);
}

/* As a host rounds: to the nearest, ties to even, a NaN with what fits of its bits. Adding 0.5 to a float below 2^-14
 * leaves its steps of 2^-24 in the last bits, rounded as the machine rounds. */
INLINE uint16_t stored_half(float value)
{
    uint32_t bits = as_bits(value), size = bits & 0x7FFFFFFFu, sign = bits >> 16 & 0x8000u, half, nan;
    uint32_t small = as_bits(as_float(size) + 0.5f) - 0x3F000000u;
    half = ((size + 0xFFFu + (size >> 13 & 1u)) >> 13) - (112u << 10);
    half = size < 113u << 23 ? small : half;
    half = size >= 0x477FF000u ? 0x7C00u : half;
    nan = 0x7C00u | (size >> 13 & 0x3FFu);
    nan += nan == 0x7C00u;
    half = size > 0x7F800000u ? nan : half;
    return (uint16_t)(half | sign);
}

/* The sign of a zero is lost before a reciprocal. */
INLINE double unsigned_zero(double value) { return value == 0.0 ? 0.0 : value; }

/* The nearest fp16 number, ties away from zero, as bits. Half a step added to the bits of a double rounds it, carries
 * and all; what is below 2^-14 then counts steps of 2^-24. */
INLINE uint16_t rounded_half(double value, int twice)
{
    double size = fabs(value), short_size;
    uint64_t bits, half, small, sign, eleven;
    memcpy(&bits, &value, sizeof bits);
    sign = bits >> 48 & 0x8000u;
    memcpy(&bits, &size, sizeof bits);
    eleven = (bits + (1ull << 41)) >> 42;
    half = eleven - (1008ull << 10);
    eleven <<= 42;
    memcpy(&short_size, &eleven, sizeof short_size);
    short_size = twice ? short_size : size;
    small = (uint64_t)(int32_t)((size < 0x1p-14 ? short_size : 0.0) * 0x1p24 + 0.5);
    half = size < 0x1p-14 ? small : half;
    half = size >= 65520.0 ? 0x7C00u : half;
    return (uint16_t)(size == size ? half | sign : 0u);
}

/* The same once, and infinite from a ceiling on. */
INLINE uint16_t capped_half(double value, double ceiling)
{
    uint16_t half = rounded_half(value, 0);
    return fabs(value) >= ceiling ? (uint16_t)((half & 0x8000u) | 0x7C00u) : half;
}

/* A sum of two numbers with the bits of fp16, rounded to such a number; an indeterminate one is +0. Below 2^-14 a sum
 * counts steps of 2^-24 as its terms do, and needs no rounding; there is no upper end but infinity itself. */
INLINE float sum_step(float value)
{
    float size = fabsf(value);
    uint32_t bits = as_bits(value), eleven = (bits + (1u << 12)) & ~0x1FFFu;
    eleven = size < 0x1p-14f || size == INFINITY ? bits : eleven;
    return size == size ? as_float(eleven) : 0.0f;
}

/* The ends of a clamp, as integers in the order of the numbers, and as numbers. */
typedef struct {
    int16_t low_key, high_key;
    uint16_t low, high;
} Ends;

/* Lines that are worked on one by one, by several threads. */
typedef struct Planar Planar;
typedef struct {
    const Planar *planar;
    const uint16_t *in, *table, *gamma, *beta;
    ptrdiff_t inner; /* lines that lie side by side; 1 where each lies by itself */
    ptrdiff_t lines, count, padded; /* numbers of a line, and with zeros up to whole groups of a sum */
    ptrdiff_t at_once; /* lines whose sums are one piece of work: their groups fill a vector */
    int tree, run;
    double share;
    uint16_t epsilon;
    int softmax;
    uint16_t *out;
    atomic_ptrdiff_t next, done;
} Lines;

#define PATH portable
#define TARGET
#include "planar_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define PATH avx2
#define TARGET __attribute__((target("avx2,fma,f16c")))
#include "planar_kernel.h"

#if defined(__clang__)
#define AVX512_PLANAR "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"
#else /* which would keep to half of them otherwise */
#define AVX512_PLANAR "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512"
#endif
#define PATH avx512
#define TARGET __attribute__((target(AVX512_PLANAR)))
#include "planar_kernel.h"
#endif

struct Planar {
    const char *name;
    void (*widen)(const uint16_t *, double *, ptrdiff_t);
    void (*narrow)(const double *, int, uint16_t *, ptrdiff_t);
    void (*pairs)(int, const uint16_t *, ptrdiff_t, const uint16_t *, ptrdiff_t, uint16_t *, ptrdiff_t);
    void (*gained)(const uint16_t *, const uint16_t *, ptrdiff_t, const uint16_t *, ptrdiff_t, double, double, double,
                   uint16_t *, ptrdiff_t);
    int (*special)(const uint16_t *, ptrdiff_t);
    void (*clamped)(const uint16_t *, uint16_t *, ptrdiff_t, Ends);
    void (*store)(const float *, uint16_t *, ptrdiff_t);
    void (*operands)(const uint16_t *, float *, ptrdiff_t);
    void (*settle_single)(const float *, const uint16_t *, ptrdiff_t, uint16_t *, ptrdiff_t);
    void (*line_sums)(const uint16_t *, ptrdiff_t, ptrdiff_t, int, int, float *, double *);
    void (*softmax_lines)(const Lines *, const uint16_t *, ptrdiff_t, float *, uint16_t *, uint16_t *);
    void (*norm_line)(const Lines *, const uint16_t *, float *, uint16_t *, uint16_t *);
};

#define ENTRY(path) {#path, widen_##path, narrow_##path, pairs_##path, gained_##path, special_##path, clamped_##path, store_##path, operands_##path, \
                     settle_single_##path, line_sums_##path, softmax_lines_##path, norm_line_##path}
static const Planar PORTABLE = ENTRY(portable);
#if defined(__x86_64__)
static const Planar AVX2 = ENTRY(avx2), AVX512 = ENTRY(avx512);
#endif

/* By the number of a path of mac.c; on other machines the portable form is vector code already. */
static const Planar *chosen(int path)
{
#if defined(__x86_64__)
    int wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    int narrow = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    int best = narrow ? wide ? 2 : 1 : 0;
    path = path < 0 || path > best ? best : path;
    return path == 2 ? &AVX512 : path == 1 ? &AVX2 : &PORTABLE;
#else
    (void)path;
    return &PORTABLE;
#endif
}

EXPORT void aneforge_widen(const uint16_t *in, double *out, ptrdiff_t count, int path);
EXPORT void aneforge_narrow(const double *in, int twice, uint16_t *out, ptrdiff_t count, int path);
EXPORT void aneforge_pairs(int operation, const uint16_t *a, const ptrdiff_t *a_steps, const uint16_t *b,
                           const ptrdiff_t *b_steps, uint16_t *out, const ptrdiff_t *shape, int threads, int path);
EXPORT void aneforge_gained(const uint16_t *in, const uint16_t *scale, const ptrdiff_t *scale_steps,
                            const uint16_t *offset, const ptrdiff_t *offset_steps, double gain, double bias,
                            double ceiling, uint16_t *out, const ptrdiff_t *shape, int path);
EXPORT void aneforge_clamped(const uint16_t *in, uint16_t *out, ptrdiff_t count, const int *ends, int threads, int path);
EXPORT int aneforge_special(const uint16_t *in, ptrdiff_t count, int path);
EXPORT void aneforge_operands(const uint16_t *in, ptrdiff_t step, float *out, ptrdiff_t rows, ptrdiff_t columns,
                              int path);
EXPORT void aneforge_patches(const char *map, const ptrdiff_t *geometry, char *out, ptrdiff_t size);
EXPORT void aneforge_store(const float *in, uint16_t *out, ptrdiff_t count, int path);
EXPORT void aneforge_look_up(const uint16_t *table, const uint16_t *in, uint16_t *out, ptrdiff_t count, int threads);
EXPORT int aneforge_line_sums(const uint16_t *in, ptrdiff_t lines, ptrdiff_t count, int tree, int run, double *out,
                              int path);
EXPORT int aneforge_softmax(const uint16_t *in, ptrdiff_t lines, ptrdiff_t count, ptrdiff_t inner, const uint16_t *powers, int tree,
                            int run, uint16_t *out, int threads, int path);
EXPORT int aneforge_layer_norm(const uint16_t *in, ptrdiff_t lines, ptrdiff_t count, ptrdiff_t inner, const uint16_t *roots,
                               const uint16_t *gamma, const uint16_t *beta, int epsilon, double share, int tree,
                               int run, uint16_t *out, int threads, int path);
EXPORT void aneforge_settle_single(const float *in, const uint16_t *bias, ptrdiff_t bias_row, ptrdiff_t bias_column,
                                   ptrdiff_t rows, ptrdiff_t columns, uint16_t *out, int path);

void aneforge_widen(const uint16_t *in, double *out, ptrdiff_t count, int path)
{
    chosen(path)->widen(in, out, count);
}

void aneforge_narrow(const double *in, int twice, uint16_t *out, ptrdiff_t count, int path)
{
    chosen(path)->narrow(in, twice, out, count);
}

/* Dense elementwise work in shares, which threads take one after the other. */
typedef struct Shares Shares;
struct Shares {
    void (*share)(const Shares *, ptrdiff_t first, ptrdiff_t count);
    const Planar *planar;
    const uint16_t *a, *b;
    uint16_t *out;
    ptrdiff_t count;
    int operation;
    Ends ends;
    atomic_ptrdiff_t next;
};

static void shares_work(void *argument)
{
    Shares *job = argument;
    for (;;) {
        ptrdiff_t first = atomic_fetch_add(&job->next, 1) * SHARE;
        if (first >= job->count)
            return;
        job->share(job, first, job->count - first < SHARE ? job->count - first : SHARE);
    }
}

static void share_out(Shares *job, int threads)
{
    ptrdiff_t most = job->count / SHARE;
    atomic_init(&job->next, 0);
    aneforge_crew(shares_work, job, threads < most ? threads : (int)most);
}

static void pairs_share(const Shares *job, ptrdiff_t first, ptrdiff_t count)
{
    job->planar->pairs(job->operation, job->a + first, 1, job->b + first, 1, job->out + first, count);
}

static void clamped_share(const Shares *job, ptrdiff_t first, ptrdiff_t count)
{
    job->planar->clamped(job->a + first, job->out + first, count, job->ends);
}

static void look_up_share(const Shares *job, ptrdiff_t first, ptrdiff_t count)
{
    EACH(i, count)
        job->out[first + i] = job->b[job->a[first + i]];
}

/* Walks a shape row by row for two operands: trailing axes are one row as long as the steps of both follow. */
typedef struct {
    const ptrdiff_t *a_steps, *b_steps, *shape;
    int axes;
    ptrdiff_t at[AXES], rows, count, a_place, b_place;
} Walk;

static Walk walked(const ptrdiff_t *a_steps, const ptrdiff_t *b_steps, const ptrdiff_t *shape)
{
    Walk walk = {.a_steps = a_steps, .b_steps = b_steps, .shape = shape, .axes = AXES - 1, .rows = 1};
    walk.count = shape[AXES - 1];
    for (; walk.axes > 0; walk.axes--) {
        int axis = walk.axes - 1;
        if (shape[axis] != 1 && (a_steps[axis] != a_steps[AXES - 1] * walk.count ||
                                 b_steps[axis] != b_steps[AXES - 1] * walk.count))
            break;
        walk.count *= shape[axis];
    }
    for (int axis = 0; axis < walk.axes; axis++)
        walk.rows *= shape[axis];
    walk.rows = walk.count ? walk.rows : 0;
    return walk;
}

static void next_row(Walk *walk)
{
    walk->rows--;
    for (int axis = walk->axes - 1; axis >= 0; axis--) {
        if (++walk->at[axis] < walk->shape[axis])
            break;
        walk->at[axis] = 0;
    }
    walk->a_place = walk->b_place = 0;
    for (int axis = 0; axis < walk->axes; axis++) {
        walk->a_place += walk->at[axis] * walk->a_steps[axis];
        walk->b_place += walk->at[axis] * walk->b_steps[axis];
    }
}

/* Operands spread over a shape of five axes by their steps, in elements; the result is dense. The last axis has steps
 * of zero or one. */
void aneforge_pairs(int operation, const uint16_t *a, const ptrdiff_t *a_steps, const uint16_t *b,
                    const ptrdiff_t *b_steps, uint16_t *out, const ptrdiff_t *shape, int threads, int path)
{
    const Planar *planar = chosen(path);
    Walk walk = walked(a_steps, b_steps, shape);
    if (walk.rows == 1 && a_steps[AXES - 1] && b_steps[AXES - 1]) {
        Shares job = {.share = pairs_share, .planar = planar, .a = a, .b = b, .out = out, .count = walk.count,
                      .operation = operation};
        share_out(&job, threads);
        return;
    }
    for (; walk.rows; next_row(&walk), out += walk.count)
        planar->pairs(operation, a + walk.a_place, a_steps[AXES - 1], b + walk.b_place, b_steps[AXES - 1], out,
                      walk.count);
}

/* gain * scale * in + bias + offset, for a dense array; scale and offset are spread over it. */
void aneforge_gained(const uint16_t *in, const uint16_t *scale, const ptrdiff_t *scale_steps, const uint16_t *offset,
                     const ptrdiff_t *offset_steps, double gain, double bias, double ceiling, uint16_t *out,
                     const ptrdiff_t *shape, int path)
{
    const Planar *planar = chosen(path);
    Walk walk = walked(scale_steps, offset_steps, shape);
    for (; walk.rows; next_row(&walk), in += walk.count, out += walk.count)
        planar->gained(in, scale + walk.a_place, scale_steps[AXES - 1], offset + walk.b_place, offset_steps[AXES - 1],
                       gain, bias, ceiling, out, walk.count);
}

/* Numbers between two keys, which are integers in the order of the numbers (aneforge/sim/rules/moves.py); the ends
 * behind them are fp16 bits. */
void aneforge_clamped(const uint16_t *in, uint16_t *out, ptrdiff_t count, const int *ends, int threads, int path)
{
    Shares job = {.share = clamped_share, .planar = chosen(path), .a = in, .out = out, .count = count,
                  .ends = {(int16_t)ends[0], (int16_t)ends[1], (uint16_t)ends[2], (uint16_t)ends[3]}};
    share_out(&job, threads);
}

int aneforge_special(const uint16_t *in, ptrdiff_t count, int path) { return chosen(path)->special(in, count); }

/* Rows of a matrix that lie `step` elements apart. */
void aneforge_operands(const uint16_t *in, ptrdiff_t step, float *out, ptrdiff_t rows, ptrdiff_t columns, int path)
{
    const Planar *planar = chosen(path);
    EACH(row, rows)
        planar->operands(in + row * step, out + row * columns, columns);
}

void aneforge_store(const float *in, uint16_t *out, ptrdiff_t count, int path) { chosen(path)->store(in, out, count); }

void aneforge_look_up(const uint16_t *table, const uint16_t *in, uint16_t *out, ptrdiff_t count, int threads)
{
    Shares job = {.share = look_up_share, .a = in, .b = table, .out = out, .count = count};
    share_out(&job, threads);
}

/* Every line has a multiple of tree * run elements. Returns -1 if there is no memory. */
int aneforge_line_sums(const uint16_t *in, ptrdiff_t lines, ptrdiff_t count, int tree, int run, double *out, int path)
{
    const Planar *planar = chosen(path);
    ptrdiff_t size = (ptrdiff_t)tree * run, most = count && count < LINES * size ? LINES * size / count : 1;
    float *room = malloc((size_t)(2 * most * count + 16 * size) * sizeof *room);
    if (!room)
        return -1;
    for (ptrdiff_t line = 0; line < lines; line += most) /* so many that their groups fill a vector */
        planar->line_sums(in + line * count, lines - line < most ? lines - line : most, count, tree, run, room, out + line);
    free(room);
    return 0;
}

/* Some lines that lie one behind the other. */
static void do_lines(const Lines *job, const uint16_t *in, ptrdiff_t lines, float *room, uint16_t *own, uint16_t *out)
{
    if (job->softmax)
        job->planar->softmax_lines(job, in, lines, room, own, out);
    else
        for (ptrdiff_t line = 0; line < lines; line++)
            job->planar->norm_line(job, in + line * job->count, room, own, out + line * job->count);
}

/* Lines side by side are turned first, some at a time, and turned back. */
static void do_columns(const Lines *job, ptrdiff_t first, ptrdiff_t lines, float *room, uint16_t *own, uint16_t *turned)
{
    ptrdiff_t count = job->count, inner = job->inner, place = first / inner * count * inner + first % inner;
    uint16_t *done = turned + LINES * count, *out = job->out + place;
    const uint16_t *in = job->in + place;
    EACH(i, count) EACH(line, lines)
        turned[line * count + i] = in[i * inner + line];
    for (ptrdiff_t line = 0; line < lines; line += job->at_once) {
        ptrdiff_t some = lines - line < job->at_once ? lines - line : job->at_once;
        do_lines(job, turned + line * count, some, room, own, done + line * count);
    }
    EACH(i, count) EACH(line, lines)
        out[i * inner + line] = done[line * count + i];
}

static void lines_work(void *argument)
{
    Lines *job = argument;
    size_t numbers = (size_t)(job->at_once * job->padded);
    size_t room_size = (2 * numbers + 16 * (size_t)(job->tree * job->run)) * sizeof(float);
    float *room = malloc(room_size + (3 * numbers + 2 * LINES * (size_t)job->count) * sizeof(uint16_t));
    uint16_t *own = room ? (uint16_t *)((char *)room + room_size) : NULL;
    if (!room)
        return;
    memset(own, 0, 3 * numbers * sizeof *own);
    for (;;) {
        ptrdiff_t piece = atomic_fetch_add(&job->next, 1), columns = (job->inner + LINES - 1) / LINES, first, some;
        if (job->inner == 1) {
            first = piece * job->at_once;
            some = job->lines - first < job->at_once ? job->lines - first : job->at_once;
        } else {
            first = piece / columns * job->inner + piece % columns * LINES;
            some = job->inner - piece % columns * LINES;
            some = some < LINES ? some : LINES;
        }
        if (first >= job->lines)
            break;
        if (job->inner == 1)
            do_lines(job, job->in + first * job->count, some, room, own, job->out + first * job->count);
        else
            do_columns(job, first, some, room, own, own + 3 * numbers);
        atomic_fetch_add(&job->done, some);
    }
    free(room);
}

static int lines_done(Lines *job, int threads)
{
    ptrdiff_t size = (ptrdiff_t)job->tree * job->run;
    job->padded = (job->count + size - 1) / size * size;
    job->at_once = job->softmax && 16 * size > job->padded ? 16 * size / job->padded : 1;
    atomic_init(&job->next, 0);
    atomic_init(&job->done, 0);
    aneforge_crew(lines_work, job, job->lines * job->count < 16384 ? 1 : threads);
    return atomic_load(&job->done) == job->lines ? 0 : -1;
}

/* The softmax of every line, with a table of powers: numbers lie [lines / inner, count, inner]; 0, or -1 if there is no memory. */
int aneforge_softmax(const uint16_t *in, ptrdiff_t lines, ptrdiff_t count, ptrdiff_t inner, const uint16_t *powers, int tree, int run,
                     uint16_t *out, int threads, int path)
{
    Lines job = {.planar = chosen(path), .in = in, .table = powers, .lines = lines, .count = count, .inner = inner,
                 .tree = tree, .run = run, .softmax = 1, .out = out};
    return lines_done(&job, threads);
}

/* The layer norm of every line, with a table of reciprocal roots and the reciprocal of the count; gamma and beta, or
 * NULL, are lines. */
int aneforge_layer_norm(const uint16_t *in, ptrdiff_t lines, ptrdiff_t count, ptrdiff_t inner, const uint16_t *roots,
                        const uint16_t *gamma, const uint16_t *beta, int epsilon, double share, int tree, int run,
                        uint16_t *out, int threads, int path)
{
    Lines job = {.planar = chosen(path), .in = in, .table = roots, .gamma = gamma, .beta = beta, .lines = lines,
                 .count = count, .inner = inner, .tree = tree, .run = run, .share = share, .epsilon = (uint16_t)epsilon, .out = out};
    return lines_done(&job, threads);
}

/* Some elements of a row, `stride` apart. */
static void copied(const char *in, ptrdiff_t stride, char *out, ptrdiff_t count, ptrdiff_t size)
{
    if (stride == 1)
        memcpy(out, in, (size_t)(count * size));
    else if (size == 4)
        EACH(i, count)
            memcpy(out + 4 * i, in + 4 * i * stride, 4);
    else
        EACH(i, count)
            memcpy(out + 2 * i, in + 2 * i * stride, 2);
}

/* What each output of some rows reads of a map [channels, height, width] with zeros around it:
 * [channels x kernel rows x kernel columns, outputs]. Elements are of 2 or 4 bytes. */
void aneforge_patches(const char *map, const ptrdiff_t *geometry, char *out, ptrdiff_t size)
{
    ptrdiff_t channels = geometry[0], height = geometry[1], width = geometry[2];
    ptrdiff_t kernel_rows = geometry[3], kernel_columns = geometry[4], row_stride = geometry[5];
    ptrdiff_t stride = geometry[6], row_dilation = geometry[7], dilation = geometry[8], top = geometry[9];
    ptrdiff_t left = geometry[10], first = geometry[11], rows = geometry[12], columns = geometry[13];
    EACH(channel, channels) EACH(i, kernel_rows) EACH(j, kernel_columns) {
        ptrdiff_t shift = j * dilation - left; /* of the first output's element */
        ptrdiff_t begin = shift < 0 ? (-shift + stride - 1) / stride : 0;
        ptrdiff_t end = width - shift <= 0 ? 0 : (width - shift - 1) / stride + 1;
        begin = begin < columns ? begin : columns;
        end = end < columns ? end : columns;
        end = end < begin ? begin : end;
        EACH(row, rows) {
            ptrdiff_t y = (first + row) * row_stride + i * row_dilation - top;
            if (y < 0 || y >= height) {
                memset(out, 0, (size_t)(columns * size));
            } else {
                const char *in = map + ((channel * height + y) * width + begin * stride + shift) * size;
                if (begin)
                    memset(out, 0, (size_t)(begin * size));
                copied(in, stride, out + begin * size, end - begin, size);
                if (end < columns)
                    memset(out + end * size, 0, (size_t)((columns - end) * size));
            }
            out += columns * size;
        }
    }
}

void aneforge_settle_single(const float *in, const uint16_t *bias, ptrdiff_t bias_row, ptrdiff_t bias_column,
                            ptrdiff_t rows, ptrdiff_t columns, uint16_t *out, int path)
{
    const Planar *planar = chosen(path);
    EACH(row, rows)
        planar->settle_single(in + row * columns, bias ? bias + row * bias_row : NULL, bias ? bias_column : 0,
                              out + row * columns, columns);
}

/* The exact multiply-accumulate of aneforge/sim/mac.py, fast.
 *
 * The result is that of `accumulate_plain`, to the bit: every product rounded half away from zero to a unit of 2^-16
 * or dropped by its exponents, exact sums, and an infinity that stays once a partial sum reaches 2^31 units.
 *
 * One product takes one fused multiply-add (mac_kernel.h), by three observations:
 *
 * 1. A float in 2^23 .. 2^24 has a unit of 1. An accumulator that starts at 1.5 * 2^23 therefore rounds each product
 *    to whole units as it adds it, and stays whole: acc + product rounds to acc + rounded product, exactly, while the
 *    sum is below 2^22 units (64) in magnitude. Stretches of terms are chosen so that a bound of the magnitudes says
 *    so; their sums are then added as integers, by their bits.
 * 2. The hardware rounds ties to even. `a` is therefore held one float step further from zero. With 11-bit operands of
 *    exponents ea and eb a product is a multiple of g = 2^(ea+eb-4) units, and the step adds less than
 *    2^(ea-23+16) * 2^(eb+1) = g/4 units. A tie thus leaves zero, and nothing else moves: if g <= 1/2, what is not a
 *    tie is at least g away from one; if g >= 1, the product is whole and g/4 <= 1/2, since below 64 ea+eb <= 5.
 *    A subnormal counts as ea = -14, and only gets a smaller step.
 * 3. Thirty-two bits hold the sum of a chunk of the depth, KC * 2^22 < 2^31. Between chunks the sums are doubles.
 *    Terms with larger products go the same way in doubles (the wide form): there the step is less than
 *    2^(ea+eb-35) units, and ea+eb <= 32. A chunk in which a sum might reach the ceiling is done by the watched form,
 *    which is the plain one, in its order.
 *
 * Whether a product is dropped is a comparison: eb >= -16 - ea is |b| >= threshold(a). Terms whose thresholds are all
 * at most the smallest |b| that is not zero need none, and sums are exact in any order, so a tile does those first.
 *
 * Every element of the result is computed by one thread in one order: the number of threads changes no bit.
 */
#include "bits.h"
#include "crew.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INTERFACE 12
#ifndef ANEFORGE_SOURCE
#define ANEFORGE_SOURCE "unknown"
#endif

#define KC 256               /* terms of a chunk: at most 511, so that 2^22 units a term stay inside 31 bits */
#define ROW_BLOCK 96         /* rows whose packed chunk stays in the second cache; a multiple of every MR */
#define PACKED_FLOATS 524288 /* of b: larger blocks pack rows of a less often, smaller ones stay in a nearer cache */
#define PACKED_COLUMNS 256   /* at most, so that the sums of a block stay there */
#define CEILING_UNITS 2147483648.0
#define EXACT_UNITS 0x1p50       /* sums below are exact in doubles and in those of the wide form */
#define WIDE_MAGIC 0x1.8p52
#define UNITS 65536.0
#define CEILING 32768.0
#define HALF_OVERFLOW 65520.0     /* half way from the largest fp16 number to the next, were there one */
#define STRETCH_UNITS 4194303.0 /* below 2^22 = 64 in units: what a float accumulator holds on either side */
#define MAGIC 12582912.0f    /* 1.5 * 2^23 */
#define MAGIC_BITS 0x4B400000
#define WORK_OF_A_THREAD 400000.0 /* multiply-adds below which starting one more thread costs more than it brings */

/* A product [rows, depth] x [depth, columns]. It starts at the bias, or at the sums that are given, and becomes fp16
 * numbers, or sums again. */
typedef struct {
    const uint16_t *a, *b, *bias;
    ptrdiff_t bias_row, bias_column; /* steps of the bias; zero where it is spread */
    ptrdiff_t rows, depth, columns, chunks;
    double *units, *lost;
    uint16_t *halves;
    uint32_t subnormals; /* all ones, or zero where subnormals are read as zero */
} Job;

/* What one thread works on: some panels of `b`, whole, and a block of rows and a chunk of terms of `a`. */
typedef struct {
    float *packed;        /* b: [panel][depth][NR] */
    float *least, *most;  /* of |b|, [panel][depth]: the smallest that is not zero, the largest */
    float *chunk_most;    /* the largest, [panel][chunk] */
    double *units, *lost; /* sums of the block: [ROW_BLOCK][stride] */
    ptrdiff_t stride;
    float value[ROW_BLOCK * KC]; /* a: [panel of MR rows][term][MR] */
    float threshold[ROW_BLOCK * KC];
    float term_threshold[ROW_BLOCK * KC], term_most[ROW_BLOCK * KC], panel_most[ROW_BLOCK];
    int32_t order[KC]; /* 0, 1, 2, ... */
    int32_t free_terms[KC + 8], masked_terms[KC + 8], wide_terms[KC + 8];
    uint8_t squeezed[256][8], ones[256]; /* of a mask of eight: the places of its ones, and how many there are */
    int32_t sums[1024];
} Scratch;

/* Terms of a chunk by what they need: nothing, a comparison, doubles. */
typedef struct {
    const int32_t *free_terms, *masked_terms, *wide_terms;
    ptrdiff_t free_count, masked_count, wide_count;
} Lists;

/* The sums of a tile of MR x NR; lanes beyond the last row and column hold what zeros give. */
typedef struct {
    double *units, *lost;
    ptrdiff_t stride;
} Tile;

/* The magnitude the multipliers read: the largest exponent is an ordinary one. No float subnormal arises, so that a
 * process that flushes them gets the same bits. */
static inline uint32_t magnitude_bits(uint32_t size, uint32_t subnormals)
{
    uint32_t small = as_bits((float)(int32_t)size * 0x1p-24f) & subnormals;
    uint32_t normal = (size << 13) + (112u << 23);
    return size < 0x400u ? small : normal;
}

/* The least |b| whose product with this operand is kept, as float bits: 2^(-16-ea), zero if that is any. */
static inline uint32_t threshold_bits(uint32_t size)
{
    uint32_t field = size >> 10;
    field = field ? field : 1u;
    return field <= 12u ? (126u - field) << 23 : 0u;
}

/* The operand itself, from the one a step further from zero. */
static inline float unmoved(float value)
{
    uint32_t bits = as_bits(value);
    return as_float(bits & 0x7FFFFFFFu ? bits - 1u : 0u);
}

/* One double step further from zero. */
static inline double moved_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits += value != 0.0;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

#define JOIN_(x, y) x##_##y
#define JOIN(x, y) JOIN_(x, y)
#define NAME(x) JOIN(x, PATH)

#define KERNEL "mac_kernel.h"

/* Plain C, doubles: any machine. */
#define PATH portable
#define TARGET
#define MR 4
#define NR 16
#define PLAIN 1
#if defined(__x86_64__) || defined(__i386__)
#define WHOLE(x) ((double)(int64_t)(x)) /* without SSE4.1 trunc is a call */
#else
#define WHOLE(x) trunc(x)
#endif
#include "mac_kernel.h"
#undef WHOLE
#undef PLAIN
#define PLAIN 0
#define WHOLE(x) trunc(x)

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2_TARGET __attribute__((target("avx2,fma,f16c")))
#define AVX512_TARGET __attribute__((target("avx512f,avx2,fma,f16c")))

#define PATH avx2
#define MR 4
#define VECTORS 2
#include "mac_avx2.h"

#define PATH avx512
#define MR 8
#define VECTORS 2
#include "mac_avx512.h"

#endif

#if defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>

#define PATH neon
#define MR 4
#define VECTORS 4
#include "mac_neon.h"
#endif

/* Paths, best last. */
typedef struct {
    const char *name;
    ptrdiff_t mr, nr;
    int (*runs_here)(void);
    void (*pack)(const Job *, Scratch *, ptrdiff_t panel, ptrdiff_t panels);
    void (*block)(const Job *, Scratch *, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t panels);
    void (*settle)(const double *units, const double *lost, double unit, double ceiling, uint16_t *halves,
                   ptrdiff_t count);
} Path;

static int anywhere(void) { return 1; }
#if defined(__x86_64__)
static int with_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
static int with_avx512(void) { return with_avx2() && __builtin_cpu_supports("avx512f"); }
#endif

static const Path PATHS[] = {
    {"portable", 4, 16, anywhere, pack_portable, block_portable, settle_portable},
#if defined(__x86_64__)
    {"avx2", 4, 16, with_avx2, pack_avx2, block_avx2, settle_avx2},
    {"avx512", 8, 32, with_avx512, pack_avx512, block_avx512, settle_avx512},
#endif
#if defined(__aarch64__) && defined(__ARM_NEON)
    {"neon", 4, 16, anywhere, pack_neon, block_neon, settle_neon},
#endif
};
#define PATH_COUNT ((int)(sizeof PATHS / sizeof PATHS[0]))

static const Path *chosen(int path)
{
    if (path >= 0)
        return path < PATH_COUNT && PATHS[path].runs_here() ? &PATHS[path] : NULL;
    for (path = PATH_COUNT - 1; !PATHS[path].runs_here(); path--)
        ;
    return &PATHS[path];
}

/* Work shared by threads: numbered pieces, taken one after the other by whoever is free. */
typedef struct Crew Crew;
struct Crew {
    void (*piece)(Crew *, ptrdiff_t number, Scratch *);
    const Path *path;
    const Job *job;
    ptrdiff_t pieces, row_group, row_groups, panels, panel_block;
    const double *units, *lost;
    uint16_t *halves;
    ptrdiff_t count, share;
    atomic_ptrdiff_t next, done;
};

/* Room for the pieces of a product. */
static Scratch *new_scratch(const Crew *crew)
{
    size_t columns = (size_t)(crew->panel_block * crew->path->nr), depth = (size_t)crew->job->depth;
    size_t bounds = (size_t)crew->panel_block * depth, chunks = (size_t)(crew->panel_block * crew->job->chunks);
    size_t floats = columns * depth + 2 * bounds + chunks, doubles = 2 * ROW_BLOCK * columns;
    Scratch *scratch = malloc(sizeof *scratch);
    void *room = malloc(doubles * sizeof(double) + floats * sizeof(float));
    if (!scratch || !room) {
        free(scratch);
        free(room);
        return NULL;
    }
    scratch->units = room;
    scratch->lost = scratch->units + ROW_BLOCK * columns;
    scratch->stride = (ptrdiff_t)columns;
    scratch->packed = (float *)(scratch->units + doubles);
    scratch->least = scratch->packed + columns * depth;
    scratch->most = scratch->least + bounds;
    scratch->chunk_most = scratch->most + bounds;
    for (int32_t term = 0; term < KC; term++)
        scratch->order[term] = term;
    for (int mask = 0; mask < 256; mask++) {
        uint8_t count = 0;
        memset(scratch->squeezed[mask], 0, sizeof scratch->squeezed[mask]);
        for (uint8_t bit = 0; bit < 8; bit++)
            if (mask >> bit & 1)
                scratch->squeezed[mask][count++] = bit;
        scratch->ones[mask] = count;
    }
    return scratch;
}

static void work(void *argument)
{
    Crew *crew = argument;
    Scratch *scratch = crew->job ? new_scratch(crew) : NULL;
    if (crew->job && !scratch)
        return; /* somebody else does the pieces; all failed if nobody could */
    for (;;) {
        ptrdiff_t number = atomic_fetch_add(&crew->next, 1);
        if (number >= crew->pieces)
            break;
        crew->piece(crew, number, scratch);
        atomic_fetch_add(&crew->done, 1);
    }
    if (scratch)
        free(scratch->units);
    free(scratch);
}

/* Whether every piece was done. */
static int shared_out(Crew *crew, int threads)
{
    atomic_init(&crew->next, 0);
    atomic_init(&crew->done, 0);
    aneforge_crew(work, crew, threads < crew->pieces ? threads : (int)crew->pieces);
    return atomic_load(&crew->done) == crew->pieces;
}

/* The bias as a start value: whole units, ties away from zero. */
static double start_units(uint16_t bias)
{
    double size = (double)as_float(magnitude_bits(bias & 0x7FFFu, ~0u)), whole = floor(size * UNITS + 0.5);
    return bias & 0x8000u ? -whole : whole;
}

static void start_sums(const Job *job, Scratch *scratch, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t column,
                       ptrdiff_t width)
{
    memset(scratch->units, 0, sizeof(double) * 2 * ROW_BLOCK * (size_t)scratch->stride);
    for (ptrdiff_t r = 0; r < rows; r++) {
        double *units = scratch->units + r * scratch->stride, *lost = scratch->lost + r * scratch->stride;
        if (job->units) {
            memcpy(units, job->units + (row + r) * job->columns + column, (size_t)width * sizeof *units);
            memcpy(lost, job->lost + (row + r) * job->columns + column, (size_t)width * sizeof *lost);
        } else if (job->bias) {
            const uint16_t *bias = job->bias + (row + r) * job->bias_row + column * job->bias_column;
            for (ptrdiff_t j = 0; j < width; j++) {
                units[j] = j && !job->bias_column ? units[0] : start_units(bias[j * job->bias_column]);
                lost[j] = fabs(units[j]) >= CEILING_UNITS ? copysign(INFINITY, units[j]) : 0.0;
            }
        }
    }
}

static void store_sums(const Crew *crew, const Scratch *scratch, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t column,
                       ptrdiff_t width)
{
    const Job *job = crew->job;
    for (ptrdiff_t r = 0; r < rows; r++) {
        const double *units = scratch->units + r * scratch->stride, *lost = scratch->lost + r * scratch->stride;
        ptrdiff_t place = (row + r) * job->columns + column;
        if (job->halves) {
            crew->path->settle(units, lost, 1.0 / UNITS, CEILING, job->halves + place, width);
        } else {
            memcpy(job->units + place, units, (size_t)width * sizeof *units);
            memcpy(job->lost + place, lost, (size_t)width * sizeof *lost);
        }
    }
}

/* Some panels and a group of rows, block by block. */
static void product_piece(Crew *crew, ptrdiff_t number, Scratch *scratch)
{
    const Job *job = crew->job;
    ptrdiff_t row = number % crew->row_groups * crew->row_group;
    ptrdiff_t panel = number / crew->row_groups * crew->panel_block;
    ptrdiff_t end = job->rows - row < crew->row_group ? job->rows : row + crew->row_group;
    ptrdiff_t panels = crew->panels - panel < crew->panel_block ? crew->panels - panel : crew->panel_block;
    ptrdiff_t column = panel * crew->path->nr, width = panels * crew->path->nr;
    width = job->columns - column < width ? job->columns - column : width;
    crew->path->pack(job, scratch, panel, panels);
    for (; row < end; row += ROW_BLOCK) {
        ptrdiff_t rows = end - row < ROW_BLOCK ? end - row : ROW_BLOCK;
        start_sums(job, scratch, row, rows, column, width);
        crew->path->block(job, scratch, row, rows, panels);
        store_sums(crew, scratch, row, rows, column, width);
    }
}

static void settle_piece(Crew *crew, ptrdiff_t number, Scratch *scratch)
{
    ptrdiff_t first = number * crew->share;
    ptrdiff_t count = crew->count - first < crew->share ? crew->count - first : crew->share;
    (void)scratch;
    if (crew->lost)
        crew->path->settle(crew->units + first, crew->lost + first, 1.0 / UNITS, CEILING, crew->halves + first, count);
    else
        crew->path->settle(crew->units + first, NULL, 1.0, HALF_OVERFLOW, crew->halves + first, count);
}

static int worthwhile(int threads, double work_units)
{
    double most = 1.0 + work_units / WORK_OF_A_THREAD;
    return threads < most ? threads : (int)most;
}

/* As many panels as the cache holds, and groups of rows where those make too few pieces for every thread to get
 * several: a group packs its panels again. */
static void cut(Crew *crew, int threads)
{
    const Job *job = crew->job;
    ptrdiff_t nr = crew->path->nr, enough = threads == 1 ? 1 : 4 * (ptrdiff_t)threads, most;
    crew->panels = (job->columns + nr - 1) / nr;
    most = PACKED_FLOATS / (job->depth * nr);
    most = most < PACKED_COLUMNS / nr ? most : PACKED_COLUMNS / nr;
    most = most < crew->panels ? most : crew->panels;
    crew->panel_block = most < 1 ? 1 : most;
    crew->row_group = job->rows;
    for (;;) {
        ptrdiff_t panel_blocks = (crew->panels + crew->panel_block - 1) / crew->panel_block;
        crew->row_groups = (job->rows + crew->row_group - 1) / crew->row_group;
        crew->pieces = crew->row_groups * panel_blocks;
        if (crew->pieces >= enough)
            return;
        if (crew->row_group > 2 * ROW_BLOCK)
            crew->row_group = (crew->row_group / 2 + ROW_BLOCK - 1) / ROW_BLOCK * ROW_BLOCK;
        else if (crew->panel_block > 1)
            crew->panel_block = (crew->panel_block + 1) / 2;
        else if (crew->row_group > 4 * crew->path->mr)
            crew->row_group = crew->row_group / 2 / crew->path->mr * crew->path->mr;
        else
            return;
    }
}

#define EXPORT __attribute__((visibility("default")))
EXPORT int aneforge_interface(void);
EXPORT const char *aneforge_source(void);
EXPORT const char *aneforge_path(int path);
EXPORT int aneforge_product(const uint16_t *a, const uint16_t *b, ptrdiff_t rows, ptrdiff_t depth, ptrdiff_t columns,
                            const uint16_t *bias, ptrdiff_t bias_row, ptrdiff_t bias_column, int flush_subnormals,
                            double *units, double *lost, uint16_t *halves, int threads, int path);
EXPORT int aneforge_products(const uint16_t *a, const uint16_t *b, ptrdiff_t count, ptrdiff_t rows, ptrdiff_t depth,
                             ptrdiff_t columns, int flush_subnormals, uint16_t *halves, int threads, int path);
EXPORT int aneforge_settle(const double *units, const double *lost, uint16_t *halves, ptrdiff_t count, int threads,
                           int path);

int aneforge_interface(void) { return INTERFACE; }

const char *aneforge_source(void) { return ANEFORGE_SOURCE; }

/* The name of a path, "" for one that this machine lacks, NULL after the last. */
const char *aneforge_path(int path)
{
    if (path < 0 || path >= PATH_COUNT)
        return NULL;
    return PATHS[path].runs_here() ? PATHS[path].name : "";
}

/* The product of `a` [rows, depth] and `b` [depth, columns], as fp16 numbers on top of the bias where `halves` is given,
 * else added to `units` and `lost`. A negative path means the best. Returns 0; -1 if there is no memory or no such
 * path. */
int aneforge_product(const uint16_t *a, const uint16_t *b, ptrdiff_t rows, ptrdiff_t depth, ptrdiff_t columns,
                     const uint16_t *bias, ptrdiff_t bias_row, ptrdiff_t bias_column, int flush_subnormals,
                     double *units, double *lost, uint16_t *halves, int threads, int path)
{
    Job job = {.a = a, .b = b, .bias = bias, .bias_row = bias_row, .bias_column = bias_column, .rows = rows,
               .depth = depth, .columns = columns, .units = units, .lost = lost, .halves = halves,
               .chunks = (depth + KC - 1) / KC, .subnormals = flush_subnormals ? 0u : ~0u};
    Crew crew = {.path = chosen(path), .job = &job, .piece = product_piece};
    if (!crew.path)
        return -1;
    if (rows == 0 || depth == 0 || columns == 0)
        return 0;
    threads = worthwhile(threads < 1 ? 1 : threads, (double)rows * (double)depth * (double)columns);
    cut(&crew, threads);
    return shared_out(&crew, threads) ? 0 : -1;
}

/* Several products of one shape, each behind the other. */
int aneforge_products(const uint16_t *a, const uint16_t *b, ptrdiff_t count, ptrdiff_t rows, ptrdiff_t depth,
                      ptrdiff_t columns, int flush_subnormals, uint16_t *halves, int threads, int path)
{
    for (ptrdiff_t each = 0; each < count; each++)
        if (aneforge_product(a + each * rows * depth, b + each * depth * columns, rows, depth, columns, NULL, 0, 0,
                             flush_subnormals, NULL, NULL, halves + each * rows * columns, threads, path))
            return -1;
    return 0;
}

/* The fp16 results of accumulators: one rounding, half away; infinity for those that left the range. Where `lost` is
 * NULL, the same rounding for finite numbers that are no accumulators. */
int aneforge_settle(const double *units, const double *lost, uint16_t *halves, ptrdiff_t count, int threads, int path)
{
    Crew crew = {.path = chosen(path), .piece = settle_piece, .units = units, .lost = lost, .halves = halves};
    if (!crew.path)
        return -1;
    crew.count = count;
    crew.share = 32768;
    crew.pieces = (count + crew.share - 1) / crew.share;
    shared_out(&crew, worthwhile(threads < 1 ? 1 : threads, 8.0 * (double)count));
    return 0;
}

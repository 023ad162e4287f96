/* Products and convolutions whose sums stay inside, with operands that are laid out beforehand.
 *
 * Exact sums are those of aneforge/sim/mac.py, to the bit, by the fused multiply-adds that mac.c explains. What is
 * decided there for every tile and chunk is decided here for a whole layer: the largest sum of magnitudes of a row
 * times the largest number of the other operand says that no sum reaches the ceiling, so that 32 bits hold every sum
 * and terms may be added in any order. Where it does not say so, the functions return 1 and mac.c does the work.
 *
 * A product that its exponents drop is small. So a tile adds all products without comparing them, and then takes out
 * those that are dropped: terms whose smallest exponents could drop one are found by their exponents, which are kept as
 * bytes.
 *
 * Fast sums are single-precision ones by the same loops. One operand, the rows, is read number by number: weights of a
 * convolution, or the lines that a linear layer reads. The other, the columns, is read by vectors: pixels of a map,
 * gathered from it panel by panel, or weights of a linear layer. */
#include "bits.h"
#include "crew.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KC 512                /* terms of a chunk */
#define GROUP 32              /* terms that share one bound; divides KC */
#define UNITS 65536.0f
#define MAGIC 12582912.0f     /* 1.5 * 2^23 */
#define MAGIC_BITS 0x4B400000
#define STRETCH 4190000.0f    /* units that a float accumulator holds, 2^22, less what rounding bounds may lose */
#define LARGEST_PRODUCT 63.0f /* in ones: one product fits a stretch */
#define CEILING 2147000000.0  /* units, less the same */
#define LAST_DROPPED 13       /* sum of two exponent fields (N11) */
#define NO_FIELD 100          /* of a term without any number but zero */
#define FEW 4                 /* rows for which columns are read as they are stored */
#define AHEAD 128              /* terms that are fetched before they are needed, where numbers are used but once */
#define WIDEST 64             /* columns of a panel on any path */
#define PACKED_FLOATS 131072  /* of a block of columns, for half of a second cache */
#define HELD_SUMS 131072
#define BLOCK_COLUMNS 256
#define POSITIONS 4
#define DEPTHWISE_TAPS 128
#define WORK_OF_A_THREAD 1000000.0 /* multiply-adds below which starting one more thread costs more than it brings */

/* Where the columns of a panel lie in a map: runs of neighbours. */
typedef struct {
    ptrdiff_t count, offset[WIDEST];
    int32_t start[WIDEST], length[WIDEST];
    int partial, copied; /* fewer columns than the panel has; which lie at the end of the memory */
} Segments;

/* What one tile reads for one chunk. */
typedef struct {
    const float *a, *b;
    const uint16_t *halves; /* the columns as they are stored, in place of `b` */
    const uint8_t *a_low, *b_low;
    const float *sums, *most; /* by groups: of a row of `a`, of `b` */
    float a_most;
    ptrdiff_t terms;
    int rows, narrow;
    float *thresholds, *room;
    int *has_thresholds; /* whether they are those of `a` */
} Chunk;

/* The exponent field of a number that is not zero, in fp16: subnormals have that of the smallest normal numbers. */
INLINE uint8_t field_of(uint32_t size)
{
    uint32_t field = size >> 23;
    return (uint8_t)(field > 113u ? field - 112u : 1u);
}

/* The least magnitude whose product with this row operand, in units, is kept. */
INLINE float threshold_of(float value)
{
    uint32_t size = as_bits(value) & 0x7FFFFFFFu, field = size >> 23;
    field = field > 129u ? field - 128u : 1u;
    return as_float(size && field <= 12u ? (126u - field) << 23 : 0u);
}

/* The ends of stretches of terms whose sums a float accumulator holds. */
static ptrdiff_t cut_stretches(const Chunk *chunk, int32_t *ends)
{
    ptrdiff_t count = 0;
    float held = 0.0f;
    for (ptrdiff_t first = 0; first < chunk->terms; first += GROUP) {
        ptrdiff_t terms = chunk->terms - first < GROUP ? chunk->terms - first : GROUP;
        float bound = chunk->sums[first / GROUP] * chunk->most[first / GROUP] * UNITS + 0.5f * (float)terms;
        if (held + bound > STRETCH && held > 0.0f) {
            ends[count++] = (int32_t)first;
            held = 0.0f;
        }
        if (bound > STRETCH) {
            float each = chunk->a_most * chunk->most[first / GROUP] * UNITS + 0.5f;
            ptrdiff_t span = (ptrdiff_t)(STRETCH / each), place = span;
            for (; place < terms; place += span)
                ends[count++] = (int32_t)(first + place);
            bound = each * (float)(terms - place + span);
        }
        held += bound;
    }
    ends[count++] = (int32_t)chunk->terms;
    return count;
}

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Rows of GROUP numbers one behind the other as [terms][rows]. */
INLINE void turn_rows(const uint16_t *lines, ptrdiff_t terms, ptrdiff_t rows, uint16_t *out)
{
#if defined(__SSE2__)
    if (rows == 8 && terms == GROUP) {
        for (ptrdiff_t first = 0; first < GROUP; first += 8) {
            __m128i x[8], y[8];
            for (int r = 0; r < 8; r++)
                x[r] = _mm_loadu_si128((const __m128i *)(lines + r * GROUP + first));
            for (int r = 0; r < 4; r++) {
                y[2 * r] = _mm_unpacklo_epi16(x[r], x[r + 4]);
                y[2 * r + 1] = _mm_unpackhi_epi16(x[r], x[r + 4]);
            }
            for (int r = 0; r < 4; r++) {
                x[2 * r] = _mm_unpacklo_epi16(y[r], y[r + 4]);
                x[2 * r + 1] = _mm_unpackhi_epi16(y[r], y[r + 4]);
            }
            for (int r = 0; r < 4; r++) {
                y[2 * r] = _mm_unpacklo_epi16(x[r], x[r + 4]);
                y[2 * r + 1] = _mm_unpackhi_epi16(x[r], x[r + 4]);
            }
            for (int term = 0; term < 8; term++)
                _mm_storeu_si128((__m128i *)(out + (first + term) * 8), y[term]);
        }
        return;
    }
#endif
    for (ptrdiff_t term = 0; term < terms; term++)
        for (ptrdiff_t r = 0; r < rows; r++)
            out[term * rows + r] = lines[r * GROUP + term];
}

#define JOIN_(x, y) x##_##y
#define JOIN(x, y) JOIN_(x, y)
#define NAME(x) JOIN(x, PATH)
#define KERNEL "packed_kernel.h"
#define APART __attribute__((noinline)) /* accumulators stay in registers where nothing else is in the function */

#define PATH portable
#define TARGET
#define MR 4
#define NR 16
#define PLAIN 1
#include KERNEL
#undef PLAIN
#define PLAIN 0

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2_TARGET __attribute__((target("avx2,fma,f16c")))
#if defined(__clang__)
#define AVX512_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#else /* which would keep to half of them otherwise */
#define AVX512_TARGET \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")))
#endif

/* A bit for each of 32 flags, which are zero or one. */
__attribute__((target("avx2"))) INLINE uint64_t mask_of_flags(const uint8_t *flags)
{
    __m256i some = _mm256_loadu_si256((const __m256i *)flags);
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(some, _mm256_setzero_si256()));
}

/* Stores the places, from `first` on, of those of eight numbers that are not zero and whose bits without the sign are
 * below a limit; gives how many. */
AVX512_TARGET INLINE ptrdiff_t squeezed_below(int32_t *out, const void *numbers, uint32_t limit, int32_t first)
{
    __m256i size = _mm256_and_si256(_mm256_loadu_si256(numbers), _mm256_set1_epi32(0x7FFFFFFF));
    __mmask8 mask = _mm256_cmplt_epu32_mask(_mm256_sub_epi32(size, _mm256_set1_epi32(1)), _mm256_set1_epi32((int32_t)limit));
    __m256i places = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
    _mm256_storeu_si256((__m256i *)out, _mm256_maskz_compress_epi32(mask, places));
    return __builtin_popcount(mask);
}

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

typedef struct {
    ptrdiff_t mr, nr, lanes;
    void (*read_rows)(const uint16_t *, ptrdiff_t, int, float *);
    void (*gather)(const uint16_t *, const ptrdiff_t *, ptrdiff_t, const Segments *, int, float *, float *, uint8_t *);
    void (*read_columns)(const uint16_t *, ptrdiff_t, float *);
    void (*tile)(const Chunk *, int32_t *);
    void (*fast_tile)(const Chunk *, float *);
    void (*settle_exact)(const int32_t *, const int32_t *, ptrdiff_t, uint16_t *);
    void (*settle_fast)(const float *, const float *, ptrdiff_t, uint16_t *);
    void (*settle_pairs)(const int32_t *, ptrdiff_t, int32_t, uint16_t *, uint16_t *);
    void (*turn_line)(const uint16_t *, const uint16_t *, ptrdiff_t, ptrdiff_t, uint16_t *);
    uint32_t (*peak)(const uint16_t *, ptrdiff_t);
    double (*store_rows)(const uint16_t *, ptrdiff_t, ptrdiff_t, uint16_t *, uint8_t *, float *, float *);
    void (*read_floats)(const uint16_t *, ptrdiff_t, float *);
    void (*depthwise_exact)(const float *, const ptrdiff_t *, const float *, ptrdiff_t, ptrdiff_t, ptrdiff_t, int32_t *);
    void (*depthwise_fast)(const float *, const ptrdiff_t *, const float *, ptrdiff_t, ptrdiff_t, float *);
    void (*settle_line)(const int32_t *, int, int32_t, ptrdiff_t, uint16_t *);
} Path;

#define ENTRY(path, mr, nr, lanes) \
    {mr, nr, lanes, read_rows_##path, gather_##path, read_columns_##path, tile_##path, fast_tile_##path, \
     settle_exact_##path, settle_fast_##path, settle_pairs_##path, turn_line_##path, peak_##path, \
     store_rows_##path, read_floats_##path, depthwise_exact_##path, depthwise_fast_##path, settle_line_##path}
static const Path PORTABLE = ENTRY(portable, 4, 16, 16);
#if defined(__x86_64__)
static const Path AVX2 = ENTRY(avx2, 4, 16, 8), AVX512 = ENTRY(avx512, 8, 32, 16);
#elif defined(__aarch64__) && defined(__ARM_NEON)
static const Path NEON = ENTRY(neon, 4, 16, 4);
#endif

/* By the number of a path of mac.c. */
static const Path *chosen(int path)
{
#if defined(__x86_64__)
    int wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    int narrow = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    int best = narrow ? wide ? 2 : 1 : 0;
    path = path < 0 || path > best ? best : path;
    return path == 2 ? &AVX512 : path == 1 ? &AVX2 : &PORTABLE;
#elif defined(__aarch64__) && defined(__ARM_NEON)
    return path == 0 ? &PORTABLE : &NEON;
#else
    (void)path;
    return &PORTABLE;
#endif
}

/* Memory that a thread keeps between calls, because fresh pages cost more than their use. */
enum { FOR_PIECES, FOR_CALLS, KINDS };
typedef struct {
    void *room[KINDS];
    size_t size[KINDS];
} Kept;
static pthread_key_t kept_key;
static pthread_once_t kept_once = PTHREAD_ONCE_INIT;
static int kept_works;

static void free_kept(void *argument)
{
    Kept *kept = argument;
    for (int kind = 0; kind < KINDS; kind++)
        free(kept->room[kind]);
    free(kept);
}

static void make_key(void) { kept_works = !pthread_key_create(&kept_key, free_kept); }

static void *room_of(int kind, size_t size)
{
    Kept *kept;
    pthread_once(&kept_once, make_key);
    if (!kept_works)
        return NULL;
    kept = pthread_getspecific(kept_key);
    if (!kept) {
        kept = calloc(1, sizeof *kept);
        if (!kept || pthread_setspecific(kept_key, kept)) {
            free(kept);
            return NULL;
        }
    }
    if (kept->size[kind] < size) {
        free(kept->room[kind]);
        kept->size[kind] = 0;
        kept->room[kind] = aligned_alloc(64, (size + 63) / 64 * 64);
        if (kept->room[kind])
            kept->size[kind] = size;
    }
    return kept->room[kind];
}

/* One operand as it is stored: panels of lines, [panel][term][width] in fp16, with their figures. */
typedef struct {
    double reach; /* the largest sum of magnitudes of a line */
    double most;  /* the largest magnitude; infinite where one is infinite or no number */
    ptrdiff_t panels, groups, depth, width;
    float *by_group;   /* [panel][group]: of rows the largest sum of magnitudes, of columns the largest magnitude */
    float *panel_most; /* [panel] */
    uint16_t *halves;
    uint8_t *low; /* [panel][term]: the smallest exponent field of what is not zero */
} Stored;

static size_t rounded_up(size_t size) { return (size + 63) / 64 * 64; }

/* Where the parts lie in memory: by_group, panel_most, halves, low, and the end. */
static void find_parts(ptrdiff_t lines, ptrdiff_t depth, ptrdiff_t width, size_t parts[5])
{
    size_t panels = (size_t)((lines + width - 1) / width), groups = (size_t)((depth + GROUP - 1) / GROUP);
    parts[0] = rounded_up(2 * sizeof(double));
    parts[1] = parts[0] + rounded_up(panels * groups * sizeof(float));
    parts[2] = parts[1] + rounded_up(panels * sizeof(float));
    parts[3] = parts[2] + rounded_up(panels * (size_t)(depth * width) * sizeof(uint16_t));
    parts[4] = parts[3] + rounded_up(panels * (size_t)depth);
}

static void place_stored(Stored *stored, char *memory, ptrdiff_t lines, ptrdiff_t depth, ptrdiff_t width)
{
    size_t parts[5];
    find_parts(lines, depth, width, parts);
    stored->panels = (lines + width - 1) / width;
    stored->groups = (depth + GROUP - 1) / GROUP;
    stored->depth = depth;
    stored->width = width;
    stored->by_group = (float *)(memory + parts[0]);
    stored->panel_most = (float *)(memory + parts[1]);
    stored->halves = (uint16_t *)(memory + parts[2]);
    stored->low = (uint8_t *)(memory + parts[3]);
}

static Stored stored_in(const char *memory, ptrdiff_t lines, ptrdiff_t depth, ptrdiff_t width)
{
    Stored stored;
    place_stored(&stored, (char *)(uintptr_t)memory, lines, depth, width);
    memcpy(&stored.reach, memory, sizeof(double));
    memcpy(&stored.most, memory + sizeof(double), sizeof(double));
    return stored;
}

/* Lays one panel out. Numbers lie `line_step` and `term_step` apart. Returns the largest sum of a line. */
static double store_panel(const Stored *stored, ptrdiff_t panel, const uint16_t *in, ptrdiff_t line_step,
                          ptrdiff_t term_step, ptrdiff_t lines, int rows)
{
    uint16_t *out = stored->halves + panel * stored->depth * stored->width;
    uint8_t *low = stored->low + panel * stored->depth;
    float *by_group = stored->by_group + panel * stored->groups;
    double reach[WIDEST] = {0}, most_reach = 0.0;
    uint16_t most = 0;
    for (ptrdiff_t group = 0; group < stored->groups; group++) {
        ptrdiff_t first = group * GROUP, end = first + GROUP < stored->depth ? first + GROUP : stored->depth;
        float sums[WIDEST] = {0}, largest = 0.0f;
        uint16_t group_most = 0;
        for (ptrdiff_t term = first; term < end; term++) {
            uint16_t least = 0xFFFF, here = 0;
            for (ptrdiff_t line = 0; line < lines; line++) {
                uint16_t half = in[line * line_step + term * term_step], size = half & 0x7FFFu;
                uint16_t before = (uint16_t)(size - 1u);
                out[term * stored->width + line] = half;
                least = before < least ? before : least;
                here = size > here ? size : here;
                sums[line] += operand(size);
            }
            for (ptrdiff_t line = lines; line < stored->width; line++)
                out[term * stored->width + line] = 0;
            least++;
            low[term] = least == 0 ? NO_FIELD : least >= 0x400u ? (uint8_t)(least >> 10) : 1;
            group_most = here > group_most ? here : group_most;
        }
        for (ptrdiff_t line = 0; line < lines; line++) {
            largest = sums[line] > largest ? sums[line] : largest;
            reach[line] += (double)sums[line];
        }
        by_group[group] = rows ? largest : operand(group_most);
        most = group_most > most ? group_most : most;
    }
    stored->panel_most[panel] = most < 0x7C00u ? operand(most) : INFINITY;
    for (ptrdiff_t line = 0; line < lines; line++)
        most_reach = reach[line] > most_reach ? reach[line] : most_reach;
    return most_reach;
}

/* The figures of the whole from those of its panels. */
static void close_stored(Stored *stored, char *memory, double reach)
{
    stored->reach = reach;
    stored->most = 0.0;
    for (ptrdiff_t panel = 0; panel < stored->panels; panel++)
        stored->most = fmax(stored->most, (double)stored->panel_most[panel]);
    memcpy(memory, &stored->reach, sizeof(double));
    memcpy(memory + sizeof(double), &stored->most, sizeof(double));
}

static void store_lines(Stored *stored, char *memory, const uint16_t *in, ptrdiff_t line_step, ptrdiff_t term_step,
                        ptrdiff_t lines, int rows)
{
    double reach = 0.0;
    for (ptrdiff_t panel = 0; panel < stored->panels; panel++) {
        ptrdiff_t first = panel * stored->width, here = lines - first < stored->width ? lines - first : stored->width;
        reach = fmax(reach, store_panel(stored, panel, in + first * line_step, line_step, term_step, here, rows));
    }
    close_stored(stored, memory, reach);
}

/* Rows of a call, dense and one behind the other. */
static void store_call(const Path *path, Stored *stored, char *memory, const uint16_t *in, ptrdiff_t rows)
{
    double reach = 0.0;
    for (ptrdiff_t panel = 0; panel < stored->panels; panel++) {
        ptrdiff_t first = panel * stored->width, here = rows - first < stored->width ? rows - first : stored->width;
        const uint16_t *own = in + first * stored->depth;
        double most = here < stored->width
                          ? store_panel(stored, panel, own, stored->depth, 1, here, 1)
                          : path->store_rows(own, stored->depth, stored->depth,
                                             stored->halves + panel * stored->depth * stored->width,
                                             stored->low + panel * stored->depth,
                                             stored->by_group + panel * stored->groups, stored->panel_most + panel);
        reach = fmax(reach, most);
    }
    close_stored(stored, memory, reach);
}

/* A product of every position: [rows, depth] x [depth, columns] to fp16 numbers. */
typedef struct {
    const Path *path;
    int exact;
    ptrdiff_t positions, rows, depth, columns;
    Stored row_parts[POSITIONS], column_parts; /* the latter where columns are stored */
    const uint16_t *map[POSITIONS];            /* else they are gathered */
    const ptrdiff_t *offsets;                  /* of every term in the map */
    ptrdiff_t width, pitch;                    /* of a line of columns, and from one line of the map to the next */
    int bare;                                  /* nothing may be read behind the map */
    const int32_t *starts;                     /* exact: units; fast: the bits of floats */
    ptrdiff_t row_start, column_start;         /* their steps */
    uint16_t *out;
    ptrdiff_t out_width; /* of positions: numbers of a line of the result */
    ptrdiff_t pieces, row_group, row_groups, panels, panel_block;
    atomic_ptrdiff_t next, done;
} Product;

/* What one thread works on. */
typedef struct {
    float *packed, *rows, *thresholds, *room;
    int32_t *sums;
    float *most;     /* of gathered columns: [position][panel][group] of a chunk */
    uint8_t *low;    /* [position][panel][term] of a chunk */
    Segments *segments;
} Room;

static ptrdiff_t least_of(ptrdiff_t x, ptrdiff_t y) { return x < y ? x : y; }

static Room room_for(const Product *product, int *failed)
{
    const Path *path = product->path;
    size_t panels = (size_t)(product->positions * product->panel_block), terms = (size_t)least_of(product->depth, KC);
    size_t row_panels = product->depth > KC ? (size_t)((product->row_group + path->mr - 1) / path->mr) : 1;
    size_t sizes[8] = {(panels * terms + 4) * (size_t)path->nr * sizeof(float), terms * (size_t)path->mr * sizeof(float),
                       terms * (size_t)path->mr * sizeof(float), terms * (size_t)path->nr * sizeof(float),
                       panels * row_panels * (size_t)(path->mr * path->nr) * sizeof(int32_t),
                       panels * (KC / GROUP) * sizeof(float), panels * terms,
                       (size_t)product->panel_block * sizeof(Segments)};
    char *parts[8], *memory;
    size_t whole = 0;
    for (int part = 0; part < 8; part++)
        whole += rounded_up(sizes[part]);
    memory = room_of(FOR_PIECES, whole);
    *failed = !memory;
    for (int part = 0; memory && part < 8; part++) {
        parts[part] = memory;
        memory += rounded_up(sizes[part]);
    }
    if (*failed)
        return (Room){0};
    return (Room){(float *)parts[0], (float *)parts[1], (float *)parts[2], (float *)parts[3],
                  (int32_t *)parts[4], (float *)parts[5], (uint8_t *)parts[6], (Segments *)parts[7]};
}

/* The runs of neighbours that some columns are. */
static void find_segments(const Product *product, ptrdiff_t first, ptrdiff_t count, Segments *segments)
{
    ptrdiff_t done = 0;
    segments->count = 0;
    segments->partial = count < product->path->nr;
    segments->copied = product->bare && segments->partial;
    while (done < count) {
        ptrdiff_t line = (first + done) / product->width, place = (first + done) % product->width;
        ptrdiff_t length = least_of(product->width - place, count - done), each = segments->count++;
        segments->offset[each] = line * product->pitch + place;
        segments->start[each] = (int32_t)done;
        segments->length[each] = (int32_t)length;
        done += length;
    }
}

/* The panels of a block for one chunk. */
static void read_columns(const Product *product, const Room *room, ptrdiff_t panel, ptrdiff_t panels, ptrdiff_t start,
                         ptrdiff_t terms)
{
    ptrdiff_t nr = product->path->nr;
    for (ptrdiff_t position = 0; position < product->positions; position++)
        for (ptrdiff_t each = 0; each < panels; each++) {
            ptrdiff_t own = position * product->panel_block + each;
            float *out = room->packed + own * terms * nr;
            if (product->offsets)
                product->path->gather(product->map[position], product->offsets + start, terms, room->segments + each,
                                      product->exact, out, room->most + own * (KC / GROUP), room->low + own * terms);
            else
                product->path->read_columns(
                    product->column_parts.halves + ((panel + each) * product->depth + start) * nr, terms, out);
        }
}

static void settle_tile(const Product *product, const Room *room, const int32_t *sums, ptrdiff_t apart, ptrdiff_t row,
                        ptrdiff_t rows, ptrdiff_t panel, const Segments *segments)
{
    const Path *path = product->path;
    ptrdiff_t column = panel * path->nr, columns = least_of(path->nr, product->columns - column);
    uint16_t line[WIDEST], other[WIDEST];
    (void)room;
    for (ptrdiff_t r = 0; r < rows; r++, sums += path->nr) {
        const int32_t *starts = product->starts + (row + r) * product->row_start + column * product->column_start;
        uint16_t *out = product->out + (row + r) * product->columns + column;
        if (product->positions == POSITIONS) {
            ptrdiff_t lines = product->columns / product->width;
            path->settle_pairs(sums, apart, *starts, line, other);
            for (ptrdiff_t each = 0; each < segments->count; each++) {
                ptrdiff_t first = segments->start[each], tile = (column + first) % product->width;
                ptrdiff_t y = (column + first) / product->width;
                out = product->out + ((row + r) * lines + y) * product->out_width + 2 * tile;
                ptrdiff_t left = product->out_width - 2 * tile;
                for (ptrdiff_t j = 0; j < segments->length[each]; j++, left -= 2) {
                    out[2 * j] = line[first + j];
                    if (left > 1)
                        out[2 * j + 1] = other[first + j];
                }
            }
            continue;
        }
        uint16_t *to = columns == path->nr ? out : line;
        if (product->exact)
            path->settle_exact(sums, starts, product->column_start, to);
        else
            path->settle_fast((const float *)sums, (const float *)starts, product->column_start, to);
        if (to == line)
            memcpy(out, line, (size_t)columns * sizeof *out);
    }
}

/* Some panels of columns and a group of rows. */
static void product_piece(const Product *product, ptrdiff_t number, const Room *room)
{
    const Path *path = product->path;
    ptrdiff_t row = number % product->row_groups * product->row_group;
    ptrdiff_t panel = number / product->row_groups * product->panel_block;
    ptrdiff_t row_end = least_of(product->rows, row + product->row_group);
    ptrdiff_t panels = least_of(product->panels - panel, product->panel_block);
    ptrdiff_t size = path->mr * path->nr, apart = product->panel_block * size;
    int few = !product->offsets && product->rows <= FEW && path != &PORTABLE, several = product->depth > KC;
    if (product->offsets)
        for (ptrdiff_t each = 0; each < panels; each++)
            find_segments(product, (panel + each) * path->nr,
                          least_of(path->nr, product->columns - (panel + each) * path->nr), room->segments + each);
    for (ptrdiff_t start = 0; start < product->depth; start += KC) {
        ptrdiff_t terms = least_of(product->depth - start, KC);
        int opens = start == 0, closes = start + terms == product->depth;
        if (!few)
            read_columns(product, room, panel, panels, start, terms);
        for (ptrdiff_t top = row; top < row_end; top += path->mr) {
            ptrdiff_t row_panel = top / path->mr, rows = least_of(path->mr, product->rows - top);
            int32_t *held = room->sums + (several ? (top - row) / path->mr * product->positions * apart : 0);
            for (ptrdiff_t position = 0; position < product->positions; position++) {
                const Stored *part = &product->row_parts[position];
                int has_thresholds = 0;
                path->read_rows(part->halves + (row_panel * product->depth + start) * path->mr, terms, product->exact,
                                room->rows);
                for (ptrdiff_t each = 0; each < panels; each++) {
                    ptrdiff_t own = position * product->panel_block + each, at = panel + each;
                    int32_t *sums = held + own * size;
                    Chunk chunk = {.a = room->rows, .b = room->packed + own * terms * path->nr, .terms = terms,
                                   .rows = (int)rows, .thresholds = room->thresholds, .room = room->room,
                                   .has_thresholds = &has_thresholds};
                    chunk.narrow = product->columns - at * path->nr <= path->nr / 2;
                    if (few)
                        chunk.halves = product->column_parts.halves + (at * product->depth + start) * path->nr;
                    if (opens)
                        memset(sums, 0, (size_t)size * sizeof *sums);
                    if (!product->exact) {
                        path->fast_tile(&chunk, (float *)sums);
                        continue;
                    }
                    chunk.a_low = part->low + row_panel * product->depth + start;
                    chunk.sums = part->by_group + row_panel * part->groups + start / GROUP;
                    chunk.a_most = part->panel_most[row_panel];
                    if (product->offsets) {
                        chunk.b_low = room->low + own * terms;
                        chunk.most = room->most + own * (KC / GROUP);
                    } else {
                        const Stored *columns = &product->column_parts;
                        chunk.b_low = columns->low + at * product->depth + start;
                        chunk.most = columns->by_group + at * columns->groups + start / GROUP;
                    }
                    path->tile(&chunk, sums);
                }
            }
            if (closes)
                for (ptrdiff_t each = 0; each < panels; each++)
                    settle_tile(product, room, held + each * size, apart, top, rows, panel + each,
                                room->segments + each);
        }
    }
}

static void product_work(void *argument)
{
    Product *product = argument;
    int failed;
    Room room = room_for(product, &failed);
    if (failed)
        return; /* somebody else does the pieces; all failed if nobody could */
    for (;;) {
        ptrdiff_t number = atomic_fetch_add(&product->next, 1);
        if (number >= product->pieces)
            return;
        product_piece(product, number, &room);
        atomic_fetch_add(&product->done, 1);
    }
}

/* As many panels as the cache holds, and groups of rows where those make too few pieces for every thread to get
 * several: a group gathers its panels again. */
static void cut(Product *product, int threads)
{
    ptrdiff_t nr = product->path->nr, mr = product->path->mr, enough = threads == 1 ? 1 : 3 * (ptrdiff_t)threads;
    ptrdiff_t terms = least_of(product->depth, KC), most = PACKED_FLOATS / (product->positions * terms * nr);
    most = least_of(least_of(most, BLOCK_COLUMNS / nr), (product->columns + nr - 1) / nr);
    product->panels = (product->columns + nr - 1) / nr;
    product->panel_block = most < 1 ? 1 : most;
    product->row_group = (product->rows + mr - 1) / mr * mr;
    if (product->depth > KC) {
        ptrdiff_t held = HELD_SUMS / (product->positions * product->panel_block * nr) / mr * mr;
        product->row_group = least_of(product->row_group, held < mr ? mr : held);
    }
    for (;;) {
        ptrdiff_t blocks = (product->panels + product->panel_block - 1) / product->panel_block;
        product->row_groups = (product->rows + product->row_group - 1) / product->row_group;
        product->pieces = product->row_groups * blocks;
        if (product->pieces >= enough)
            return;
        if (product->row_group > 16 * mr)
            product->row_group = (product->row_group / 2 + mr - 1) / mr * mr;
        else if (product->panel_block > 1)
            product->panel_block = (product->panel_block + 1) / 2;
        else if (product->row_group > 4 * mr)
            product->row_group = (product->row_group / 2 + mr - 1) / mr * mr;
        else
            return;
    }
}

static int worthwhile(int threads, double work_units)
{
    double most = 1.0 + work_units / WORK_OF_A_THREAD;
    threads = threads < 1 ? 1 : threads;
    return threads < most ? threads : (int)most;
}

static int multiplied(Product *product, int threads)
{
    threads = worthwhile(threads, (double)(product->positions * product->rows) * (double)product->depth *
                                      (double)product->columns);
    cut(product, threads);
    atomic_init(&product->next, 0);
    atomic_init(&product->done, 0);
    aneforge_crew(product_work, product, threads < product->pieces ? threads : (int)product->pieces);
    return atomic_load(&product->done) == product->pieces ? 0 : -1;
}

/* Whether no sum can reach the ceiling, and a float accumulator holds every product. */
static int stays_inside(double reach, double row_most, double column_most, ptrdiff_t depth, double start)
{
    return row_most * column_most < (double)LARGEST_PRODUCT &&
           reach * column_most * 65536.0 * 1.0001 + (double)depth + start < CEILING;
}

/* The bias as start values; returns the largest magnitude in units, or infinity. */
static double read_starts(const uint16_t *bias, ptrdiff_t count, int exact, int32_t *starts)
{
    double most = 0.0;
    for (ptrdiff_t i = 0; i < count; i++) {
        float value = bias ? operand(bias[i]) : 0.0f;
        double size = floor(fabs((double)value) * 65536.0 + 0.5);
        most = fmax(most, size);
        if (exact)
            starts[i] = size < CEILING ? (int32_t)(value < 0.0f ? -size : size) : 0;
        else
            memcpy(starts + i, &value, sizeof value);
    }
    return most;
}

#define EXPORT __attribute__((visibility("default")))
EXPORT ptrdiff_t aneforge_stored_size(ptrdiff_t lines, ptrdiff_t depth, int rows, int path);
EXPORT void aneforge_store_lines(const uint16_t *in, ptrdiff_t line_step, ptrdiff_t term_step, ptrdiff_t lines,
                                 ptrdiff_t depth, int rows, char *memory, int path);
EXPORT int aneforge_stored_rows_product(const char *stored, const uint16_t *map, const ptrdiff_t *geometry,
                                        const uint16_t *bias, int form, uint16_t *out, int threads, int path);
EXPORT int aneforge_stored_columns_product(const uint16_t *in, const char *stored, ptrdiff_t rows, ptrdiff_t depth,
                                           ptrdiff_t columns, const uint16_t *bias, ptrdiff_t bias_step, int exact,
                                           uint16_t *out, int threads, int path);
EXPORT int aneforge_product_inside(const uint16_t *a, const uint16_t *b, ptrdiff_t count, ptrdiff_t rows,
                                   ptrdiff_t depth, ptrdiff_t columns, int exact, uint16_t *out, int threads, int path);

EXPORT int aneforge_depthwise(const uint16_t *kernels, const uint16_t *map, const ptrdiff_t *geometry,
                              const uint16_t *bias, int form, uint16_t *out, int threads, int path);

/* Bytes of a matrix of `lines` of `depth` numbers as it is stored: as rows or as columns. */
ptrdiff_t aneforge_stored_size(ptrdiff_t lines, ptrdiff_t depth, int rows, int path)
{
    size_t parts[5];
    find_parts(lines, depth, rows ? chosen(path)->mr : chosen(path)->nr, parts);
    return (ptrdiff_t)parts[4];
}

void aneforge_store_lines(const uint16_t *in, ptrdiff_t line_step, ptrdiff_t term_step, ptrdiff_t lines,
                          ptrdiff_t depth, int rows, char *memory, int path)
{
    Stored stored;
    place_stored(&stored, memory, lines, depth, rows ? chosen(path)->mr : chosen(path)->nr);
    store_lines(&stored, memory, in, line_step, term_step, lines, rows);
}

/* A map laid out for a convolution: zeros around it, and a plane for each phase of the strides, so that neighbours of
 * a line of the result lie side by side. Of Winograd's form four planes of transformed lines. */
typedef struct {
    const Path *path;
    const uint16_t *in;
    ptrdiff_t channels, height, width, top, left, row_stride, stride;
    ptrdiff_t plane_rows, plane_width, apart; /* of one phase or position; numbers between positions */
    ptrdiff_t tiles;                          /* of a line; zero but for Winograd's form */
    uint16_t *out;
    atomic_ptrdiff_t next;
} Layout;

/* A line of the map with zeros around it: `count` numbers from column `first` on, `step` apart. */
static void copy_line(const uint16_t *restrict in, ptrdiff_t width, ptrdiff_t first, ptrdiff_t step, ptrdiff_t count,
                      uint16_t *restrict out)
{
    ptrdiff_t begin = first < 0 ? least_of((-first + step - 1) / step, count) : 0;
    ptrdiff_t end = first >= width ? 0 : least_of((width - first - 1) / step + 1, count);
    end = end < begin ? begin : end;
    memset(out, 0, (size_t)begin * sizeof *out);
    if (step == 1)
        memcpy(out + begin, in + first + begin, (size_t)(end - begin) * sizeof *out);
    else if (step == 2) /* a step that compilers know becomes vector code */
        for (ptrdiff_t j = begin; j < end; j++)
            out[j] = in[first + 2 * j];
    else
        for (ptrdiff_t j = begin; j < end; j++)
            out[j] = in[first + j * step];
    memset(out + end, 0, (size_t)(count - end) * sizeof *out);
}

/* Numbers of a line of one Winograd operand, with what whole blocks read and write behind it. */
static ptrdiff_t line_room(const Layout *layout) { return (layout->tiles + 63) / 32 * 32; }

static void lay_channel(const Layout *layout, ptrdiff_t channel, uint16_t *lines)
{
    const uint16_t *in = layout->in + channel * layout->height * layout->width;
    ptrdiff_t phases = layout->row_stride * layout->stride, count = layout->plane_width;
    if (layout->tiles) {
        ptrdiff_t room = line_room(layout);
        uint16_t *even = lines, *odd = lines + room, *made = odd + room;
        for (ptrdiff_t row = 0; row < layout->plane_rows; row++) {
            ptrdiff_t y = row - layout->top;
            uint16_t *out = layout->out + (channel * layout->plane_rows + row) * count;
            if (y < 0 || y >= layout->height) {
                for (ptrdiff_t position = 0; position < POSITIONS; position++)
                    memset(out + position * layout->apart, 0, (size_t)count * sizeof *out);
                continue;
            }
            copy_line(in + y * layout->width, layout->width, -layout->left, 2, layout->tiles + 1, even);
            copy_line(in + y * layout->width, layout->width, 1 - layout->left, 2, layout->tiles + 1, odd);
            layout->path->turn_line(even, odd, layout->tiles, room, made);
            for (ptrdiff_t position = 0; position < POSITIONS; position++)
                memcpy(out + position * layout->apart, made + position * room, (size_t)count * sizeof *out);
        }
        return;
    }
    for (ptrdiff_t phase = 0; phase < phases; phase++)
        for (ptrdiff_t row = 0; row < layout->plane_rows; row++) {
            ptrdiff_t y = row * layout->row_stride + phase / layout->stride - layout->top;
            uint16_t *out = layout->out + ((channel * phases + phase) * layout->plane_rows + row) * count;
            if (y < 0 || y >= layout->height)
                memset(out, 0, (size_t)count * sizeof *out);
            else
                copy_line(in + y * layout->width, layout->width, phase % layout->stride - layout->left, layout->stride,
                          count, out);
        }
}

static void layout_work(void *argument)
{
    Layout *layout = argument;
    uint16_t *lines = NULL;
    if (layout->tiles) {
        size_t size = (size_t)line_room(layout) * (2 + POSITIONS) * sizeof *lines;
        lines = room_of(FOR_PIECES, size);
        if (!lines)
            return;
        memset(lines, 0, size);
    }
    for (;;) {
        ptrdiff_t channel = atomic_fetch_add(&layout->next, 1);
        if (channel >= layout->channels)
            return;
        lay_channel(layout, channel, lines);
    }
}

/* A depthwise convolution: every output channel reads one channel of the map. */
typedef struct {
    const Path *path;
    int exact;
    const uint16_t *map, *kernels, *bias;
    const ptrdiff_t *geometry;
    ptrdiff_t each, taps, positions; /* output channels of a channel; numbers of a kernel, of each position */
    double peak;
    uint16_t *out;
    atomic_ptrdiff_t next, done;
} Depthwise;

/* What a thread works on: one channel of the map, laid out, and the sums of its result. Between the lines of the result
 * lie sums of what the map has around it: so all are one long line. */
typedef struct {
    uint16_t *halves, *lines, *line;
    float *map;
    int32_t *sums;
    ptrdiff_t offsets[DEPTHWISE_TAPS];
    ptrdiff_t size, whole; /* numbers of one position of the map; sums of one, in whole vectors */
} ChannelRoom;

/* The weights of one output, as the sums read them; returns whether every sum stays inside. */
static int depthwise_weights(const Depthwise *job, ptrdiff_t output, ptrdiff_t outputs, float *weights, ptrdiff_t *spans,
                             int32_t *first)
{
    double reach = 0.0, most = 0.0, start = read_starts(job->bias ? job->bias + output : NULL, 1, job->exact, first);
    for (ptrdiff_t position = 0; position < job->positions; position++) {
        double own_reach = 0.0, own_most = 0.0;
        for (ptrdiff_t tap = 0; tap < job->taps; tap++) {
            uint32_t half = job->kernels[(position * outputs + output) * job->taps + tap];
            float value = operand(half) * (job->exact ? UNITS : 1.0f);
            if ((half & 0x7FFFu) >= 0x7C00u)
                return 0;
            own_reach += fabs((double)operand(half));
            own_most = fmax(own_most, fabs((double)operand(half)));
            weights[position * job->taps + tap] =
                as_float(as_bits(value) + (job->exact && job->path != &PORTABLE && value != 0.0f));
        }
        spans[position] = (ptrdiff_t)fmin((double)STRETCH / (own_most * job->peak * (double)UNITS + 0.5), (double)job->taps);
        if (own_reach * job->peak * (double)UNITS + 0.5 * (double)job->taps < (double)STRETCH)
            spans[position] = job->taps;
        reach += own_reach;
        most = fmax(most, own_most);
    }
    return !job->exact || stays_inside(reach, most, job->peak, job->taps * job->positions, start);
}

/* The lines of the result lie `width` sums apart. */
static void settle_depthwise(const Depthwise *job, const ChannelRoom *room, ptrdiff_t width, int32_t start,
                             uint16_t *out)
{
    ptrdiff_t rows = job->geometry[12], columns = job->geometry[13];
    uint16_t *odd = room->line + room->whole;
    if (job->positions == 1)
        job->path->settle_line(room->sums, job->exact, start, room->whole, room->line);
    else
        for (ptrdiff_t j = 0; j < room->whole; j += job->path->nr)
            job->path->settle_pairs(room->sums + j, room->whole, start, room->line + j, odd + j);
    for (ptrdiff_t row = 0; row < rows; row++, out += columns) {
        const uint16_t *line = room->line + row * width, *other = odd + row * width;
        if (job->positions == 1) {
            memcpy(out, line, (size_t)columns * sizeof *out);
            continue;
        }
        for (ptrdiff_t j = 0; j < columns / 2; j++) {
            out[2 * j] = line[j];
            out[2 * j + 1] = other[j];
        }
        if (columns % 2)
            out[columns - 1] = line[columns / 2];
    }
}

/* Returns whether every sum stays inside. */
static int depthwise_channel(const Depthwise *job, const Layout *form, ptrdiff_t channel, const ChannelRoom *room)
{
    ptrdiff_t rows = job->geometry[12], columns = job->geometry[13], all = room->size * job->positions;
    Layout layout = {.path = job->path, .in = job->map + channel * form->height * form->width, .channels = 1,
                     .height = form->height, .width = form->width, .top = form->top, .left = form->left,
                     .row_stride = form->row_stride, .stride = form->stride, .plane_rows = form->plane_rows,
                     .plane_width = form->plane_width, .apart = room->size, .tiles = form->tiles, .out = room->halves};
    lay_channel(&layout, 0, room->lines);
    memset(room->halves + all, 0, 96 * sizeof *room->halves);
    job->path->read_floats(room->halves, (all + 95) / 16 * 16, room->map);
    for (ptrdiff_t output = channel * job->each; output < (channel + 1) * job->each; output++) {
        float weights[DEPTHWISE_TAPS];
        ptrdiff_t spans[POSITIONS];
        int32_t start;
        if (!depthwise_weights(job, output, job->geometry[11], weights, spans, &start))
            return 0;
        memset(room->sums, 0, (size_t)(room->whole * job->positions) * sizeof *room->sums);
        for (ptrdiff_t position = 0; position < job->positions; position++) {
            const float *map = room->map + position * room->size, *own = weights + position * job->taps;
            int32_t *sums = room->sums + position * room->whole;
            if (job->exact)
                job->path->depthwise_exact(map, room->offsets, own, job->taps, spans[position], room->whole, sums);
            else
                job->path->depthwise_fast(map, room->offsets, own, job->taps, room->whole, (float *)sums);
        }
        settle_depthwise(job, room, form->plane_width, start, job->out + output * rows * columns);
    }
    return 1;
}

static void depthwise_work(void *argument)
{
    Depthwise *job = argument;
    const ptrdiff_t *geometry = job->geometry;
    int turned = job->positions == POSITIONS;
    ptrdiff_t kernel_columns = turned ? 1 : geometry[4], tiles = turned ? (geometry[13] + 1) / 2 : 0;
    Layout form = {.height = geometry[1], .width = geometry[2], .top = geometry[9], .left = geometry[10],
                   .row_stride = geometry[5], .stride = geometry[6], .tiles = tiles};
    ChannelRoom room;
    form.plane_rows = geometry[12] + ((geometry[3] - 1) * geometry[7] + form.row_stride - 1) / form.row_stride;
    form.plane_width =
        turned ? tiles : geometry[13] + ((kernel_columns - 1) * geometry[8] + form.stride - 1) / form.stride;
    room.size = form.row_stride * form.stride * form.plane_rows * form.plane_width;
    room.whole = (geometry[12] * form.plane_width + WIDEST / 2 - 1) / (WIDEST / 2) * (WIDEST / 2);
    size_t numbers = rounded_up((size_t)(room.size * job->positions + 128)), width = (size_t)room.whole;
    size_t lines = (size_t)line_room(&form) * (2 + POSITIONS);
    char *memory = room_of(FOR_PIECES, numbers * (sizeof(uint16_t) + sizeof(float)) +
                                           width * POSITIONS * sizeof(int32_t) + (2 * width + lines) * sizeof(uint16_t));
    if (!memory)
        return;
    room.map = (float *)memory;
    room.sums = (int32_t *)(room.map + numbers);
    room.halves = (uint16_t *)(room.sums + width * POSITIONS);
    room.line = room.halves + numbers;
    room.lines = room.line + 2 * width;
    memset(room.lines, 0, lines * sizeof *room.lines);
    for (ptrdiff_t tap = 0; tap < job->taps; tap++) {
        ptrdiff_t y = tap / kernel_columns * geometry[7], x = tap % kernel_columns * geometry[8];
        room.offsets[tap] = ((y % form.row_stride * form.stride + x % form.stride) * form.plane_rows +
                             y / form.row_stride) * form.plane_width + x / form.stride;
    }
    for (;;) {
        ptrdiff_t channel = atomic_fetch_add(&job->next, 1);
        if (channel >= geometry[0])
            return;
        atomic_fetch_add(&job->done, depthwise_channel(job, &form, channel, &room));
    }
}

enum { EXACT, FAST, WINOGRAD };

/* The convolution of one group of a map [channels, height, width] with stored kernels: exact, fast, or exact in
 * Winograd's form, where the kernels are those of the four positions. Returns 0; 1 if a sum might not stay inside; -1
 * if there is no memory. */
int aneforge_stored_rows_product(const char *stored, const uint16_t *map, const ptrdiff_t *geometry,
                                 const uint16_t *bias, int form, uint16_t *out, int threads, int path)
{
    ptrdiff_t channels = geometry[0], height = geometry[1], width = geometry[2], kernel_rows = geometry[3];
    ptrdiff_t kernel_columns = geometry[4], row_stride = geometry[5], stride = geometry[6], row_dilation = geometry[7];
    ptrdiff_t dilation = geometry[8], top = geometry[9], left = geometry[10], outputs = geometry[11];
    ptrdiff_t rows = geometry[12], columns = geometry[13];
    int turned = form == WINOGRAD, points = kernel_rows == 1 && kernel_columns == 1 && row_stride == 1 &&
                                            stride == 1 && !top && !left && rows == height && columns == width;
    Product product = {.path = chosen(path), .exact = form != FAST, .positions = turned ? POSITIONS : 1,
                       .rows = outputs, .out = out, .out_width = columns, .row_start = 1};
    const Path *own = product.path;
    uint32_t peak = own->peak(map, channels * height * width);
    double most = (double)operand(peak) * (turned ? 2.01 : 1.0), reach = 0.0, row_most = 0.0, start;
    ptrdiff_t tiles = (columns + 1) / 2, apart = 0, plane_rows, plane_width, size;
    size_t bytes;
    if (peak >= 0x7C00u || most >= 65504.0)
        return 1;
    product.depth = channels * kernel_rows * (turned ? 1 : kernel_columns);
    product.width = points ? rows * columns : turned ? tiles : columns;
    product.columns = points ? rows * columns : rows * product.width;
    plane_rows = turned ? rows + kernel_rows - 1 : rows + ((kernel_rows - 1) * row_dilation + row_stride - 1) / row_stride;
    plane_width =
        turned ? tiles : columns + ((kernel_columns - 1) * dilation + stride - 1) / stride;
    size = points ? 0 : channels * (turned ? 1 : row_stride * stride) * plane_rows * plane_width;
    apart = (size + WIDEST + 31) / 32 * 32;
    bytes = rounded_up((size_t)product.depth * sizeof(ptrdiff_t)) + rounded_up((size_t)outputs * sizeof(int32_t)) +
            (size_t)(apart * product.positions) * sizeof(uint16_t);
    char *memory = room_of(FOR_CALLS, bytes);
    if (!memory)
        return -1;
    ptrdiff_t *offsets = (ptrdiff_t *)memory;
    int32_t *starts = (int32_t *)(memory + rounded_up((size_t)product.depth * sizeof(ptrdiff_t)));
    uint16_t *laid = (uint16_t *)((char *)starts + rounded_up((size_t)outputs * sizeof(int32_t)));
    start = read_starts(bias, outputs, product.exact, starts);
    for (ptrdiff_t position = 0; position < product.positions; position++) {
        ptrdiff_t each = aneforge_stored_size(outputs, product.depth, 1, path);
        product.row_parts[position] = stored_in(stored + position * each, outputs, product.depth, own->mr);
        reach += product.row_parts[position].reach;
        row_most = fmax(row_most, product.row_parts[position].most);
        product.map[position] = points ? map : laid + position * apart;
    }
    if (product.exact ? !stays_inside(reach, row_most, most, product.depth * product.positions, start)
                      : !(row_most < 65504.5))
        return 1;
    product.starts = starts;
    product.offsets = offsets;
    product.bare = points;
    product.pitch = points ? product.width : plane_width;
    for (ptrdiff_t channel = 0, term = 0; channel < channels; channel++)
        for (ptrdiff_t i = 0; i < kernel_rows; i++)
            for (ptrdiff_t j = 0; j < (turned ? 1 : kernel_columns); j++, term++) {
                ptrdiff_t y = i * row_dilation, x = j * dilation;
                ptrdiff_t phase = (channel * row_stride + y % row_stride) * stride + x % stride;
                offsets[term] = points ? channel * product.width
                                       : (phase * plane_rows + y / row_stride) * plane_width + x / stride;
            }
    if (!points) {
        Layout layout = {.path = own, .in = map, .channels = channels, .height = height, .width = width, .top = top,
                         .left = left, .row_stride = row_stride, .stride = stride, .plane_rows = plane_rows,
                         .plane_width = plane_width, .apart = apart, .tiles = turned ? tiles : 0, .out = laid};
        for (ptrdiff_t position = 0; position < product.positions; position++)
            memset(laid + position * apart + size, 0, (size_t)(apart - size) * sizeof *laid);
        atomic_init(&layout.next, 0);
        aneforge_crew(layout_work, &layout, worthwhile(threads, 4.0 * (double)size * (double)product.positions));
        if (atomic_load(&layout.next) < channels)
            return -1;
    }
    return multiplied(&product, threads);
}

/* The product of `in` [rows, depth] with stored columns: 0, 1 or -1 as above. */
int aneforge_stored_columns_product(const uint16_t *in, const char *stored, ptrdiff_t rows, ptrdiff_t depth,
                                    ptrdiff_t columns, const uint16_t *bias, ptrdiff_t bias_step, int exact,
                                    uint16_t *out, int threads, int path)
{
    Product product = {.path = chosen(path), .exact = exact, .positions = 1, .rows = rows, .depth = depth,
                       .columns = columns, .out = out, .column_start = 1};
    const Path *own = product.path;
    ptrdiff_t starts_count = (columns + own->nr - 1) / own->nr * own->nr;
    size_t stored_rows = (size_t)aneforge_stored_size(rows, depth, 1, path);
    char *memory = room_of(FOR_CALLS, stored_rows + rounded_up((size_t)starts_count * sizeof(int32_t)));
    Stored *parts = product.row_parts;
    double start = 0.0;
    if (!memory)
        return -1;
    int32_t *starts = (int32_t *)(memory + stored_rows);
    if (bias && !bias_step) {
        start = read_starts(bias, 1, exact, starts);
        for (ptrdiff_t i = 1; i < starts_count; i++)
            starts[i] = *starts;
    } else {
        start = read_starts(bias, columns, exact, starts);
        memset(starts + columns, 0, (size_t)(starts_count - columns) * sizeof *starts);
    }
    place_stored(parts, memory, rows, depth, own->mr);
    store_call(own, parts, memory, in, rows);
    product.column_parts = stored_in(stored, columns, depth, own->nr);
    product.starts = starts;
    if (!(parts->most < 65504.5 && product.column_parts.most < 65504.5) ||
        (exact && !stays_inside(parts->reach, parts->most, product.column_parts.most, depth, start)))
        return 1;
    return multiplied(&product, threads);
}

/* Several products of one shape, both operands as they come: 0, 1 or -1 as above. */
int aneforge_product_inside(const uint16_t *a, const uint16_t *b, ptrdiff_t count, ptrdiff_t rows, ptrdiff_t depth,
                            ptrdiff_t columns, int exact, uint16_t *out, int threads, int path)
{
    const Path *own = chosen(path);
    size_t stored_rows = (size_t)aneforge_stored_size(rows, depth, 1, path);
    char *memory = room_of(FOR_CALLS, stored_rows + rounded_up((size_t)depth * sizeof(ptrdiff_t)));
    uint32_t peak = own->peak(b, count * depth * columns);
    static const int32_t nothing = 0;
    if (!memory)
        return -1;
    if (peak >= 0x7C00u)
        return 1;
    ptrdiff_t *offsets = (ptrdiff_t *)(memory + stored_rows);
    for (ptrdiff_t term = 0; term < depth; term++)
        offsets[term] = term * columns;
    for (ptrdiff_t each = 0; each < count; each++) {
        Product product = {.path = own, .exact = exact, .positions = 1, .rows = rows, .depth = depth,
                           .columns = columns, .out = out + each * rows * columns, .starts = &nothing, .offsets = offsets,
                           .width = columns, .pitch = columns, .bare = 1, .map = {b + each * depth * columns}};
        Stored *parts = product.row_parts;
        int failed;
        place_stored(parts, memory, rows, depth, own->mr);
        store_call(own, parts, memory, a + each * rows * depth, rows);
        if (!(parts->most < 65504.5) || (exact && !stays_inside(parts->reach, parts->most, (double)operand(peak), depth, 0.0)))
            return 1;
        failed = multiplied(&product, threads);
        if (failed)
            return failed;
    }
    return 0;
}

/* A depthwise convolution of a map [channels, height, width] with kernels [outputs, taps], of the four positions one
 * behind the other for Winograd's form: 0, 1 or -1 as above. */
int aneforge_depthwise(const uint16_t *kernels, const uint16_t *map, const ptrdiff_t *geometry, const uint16_t *bias,
                       int form, uint16_t *out, int threads, int path)
{
    int turned = form == WINOGRAD;
    Depthwise job = {.path = chosen(path), .exact = form != FAST, .map = map, .kernels = kernels, .bias = bias,
                     .geometry = geometry, .each = geometry[11] / geometry[0], .out = out,
                     .taps = geometry[3] * (turned ? 1 : geometry[4]), .positions = turned ? POSITIONS : 1};
    uint32_t peak = job.path->peak(map, geometry[0] * geometry[1] * geometry[2]);
    job.peak = (double)operand(peak) * (turned ? 2.01 : 1.0);
    if (peak >= 0x7C00u || job.peak >= 65504.0 || job.taps * job.positions > DEPTHWISE_TAPS)
        return 1;
    atomic_init(&job.next, 0);
    atomic_init(&job.done, 0);
    threads = worthwhile(threads, 4.0 * (double)(geometry[11] * geometry[12] * geometry[13] * job.taps));
    aneforge_crew(depthwise_work, &job, threads);
    if (atomic_load(&job.next) < geometry[0])
        return -1;
    return atomic_load(&job.done) == geometry[0] ? 0 : 1;
}

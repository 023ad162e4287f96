/* What a tile reads, and the functions of every instruction set. Part of packed.c. */
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
    void (*turn_line)(const uint16_t *, ptrdiff_t, ptrdiff_t, uint16_t *);
    void (*turn_floats)(const uint16_t *, ptrdiff_t, ptrdiff_t, float *);
    uint32_t (*peak)(const uint16_t *, ptrdiff_t);
    double (*store_rows)(const uint16_t *, ptrdiff_t, ptrdiff_t, uint16_t *, uint8_t *, float *, float *);
    void (*read_floats)(const uint16_t *, ptrdiff_t, float *);
    void (*depthwise_exact)(const float *, const ptrdiff_t *, const float *, ptrdiff_t, ptrdiff_t, ptrdiff_t, int32_t *);
    void (*depthwise_fast)(const float *, const ptrdiff_t *, const float *, ptrdiff_t, ptrdiff_t, float *);
    void (*settle_line)(const int32_t *, int, int32_t, ptrdiff_t, uint16_t *);
    void (*split_floats)(const uint16_t *, ptrdiff_t, float *, float *);
    void (*join_line)(const uint16_t *, const uint16_t *, ptrdiff_t, uint16_t *);
} Path;

#define ENTRY(path, mr, nr, lanes) \
    {mr, nr, lanes, read_rows_##path, gather_##path, read_columns_##path, tile_##path, fast_tile_##path, \
     settle_exact_##path, settle_fast_##path, settle_pairs_##path, turn_line_##path, turn_floats_##path, peak_##path, \
     store_rows_##path, read_floats_##path, depthwise_exact_##path, depthwise_fast_##path, settle_line_##path, \
     split_floats_##path, join_line_##path}
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

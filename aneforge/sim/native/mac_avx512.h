/* The vector operations of a path: AVX-512, with PATH, MR and VECTORS and KERNEL defined. No include guard on purpose. */
#define TARGET AVX512_TARGET
#define LANES 16
#define VEC __m512
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define SPREAD(x) _mm512_set1_ps(x)
#define SIZE_OF(v) _mm512_abs_ps(v)
#define HALVES(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define AT_MOST_MASK(x, y) \
    ((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(y), _CMP_LE_OQ)))
#define ADD_BITS(p, v) \
    _mm512_storeu_si512(p, _mm512_add_epi32(_mm512_loadu_si512(p), _mm512_sub_epi32(_mm512_castps_si512(v), \
                                                                                   _mm512_set1_epi32(MAGIC_BITS))))
/* The least magnitude whose product with a row operand in units is kept: the reciprocal of its power of two, in ones. A
 * subnormal counts as 2^-14. */
#define THRESHOLD(v) \
    _mm512_min_ps(_mm512_set1_ps(0.25f), \
                  _mm512_castsi512_ps(_mm512_sub_epi32( \
                      _mm512_set1_epi32(254 << 23), \
                      _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7F800000)))))
/* Takes the whole numbers that accumulators hold out of sums, where sizes are below a threshold. */
#define TAKE_BITS(p, v, size, threshold) \
    _mm512_storeu_si512(p, _mm512_mask_sub_epi32(_mm512_loadu_si512(p), \
                                                 _mm512_cmp_ps_mask(size, threshold, _CMP_LT_OQ), _mm512_loadu_si512(p), \
                                                 _mm512_sub_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(MAGIC_BITS))))
/* For 64 flags, which are zero or one, a mask. */
#define FLAG_MASK(p) _mm512_test_epi8_mask(_mm512_loadu_si512(p), _mm512_loadu_si512(p))
#define SQUEEZE_BELOW(out, p, limit, first) squeezed_below(out, p, limit, first)
#define TERM(a, b, sum) _mm512_fmadd_ps(a, b, sum)
#define KEPT_TERM(a, b, size, threshold, sum) \
    _mm512_mask3_fmadd_ps(a, b, sum, _mm512_cmp_ps_mask(size, threshold, _CMP_GE_OQ))
#include KERNEL

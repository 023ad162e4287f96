/* The vector operations of a path: AVX2, with PATH, MR and VECTORS and KERNEL defined. No include guard on purpose. */
#define TARGET AVX2_TARGET
#define LANES 8
#define VEC __m256
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define SPREAD(x) _mm256_set1_ps(x)
#define SIZE_OF(v) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v)
#define HALVES(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define AT_MOST_MASK(x, y) \
    ((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(y), _CMP_LE_OQ)))
#define ADD_BITS(p, v) \
    _mm256_storeu_si256((__m256i *)(p), \
                        _mm256_add_epi32(_mm256_loadu_si256((__m256i *)(p)), \
                                         _mm256_sub_epi32(_mm256_castps_si256(v), _mm256_set1_epi32(MAGIC_BITS))))
/* The least magnitude whose product with a row operand in units is kept: the reciprocal of its power of two, in ones. A
 * subnormal counts as 2^-14. */
#define THRESHOLD(v) \
    _mm256_min_ps(_mm256_set1_ps(0.25f), \
                  _mm256_castsi256_ps(_mm256_sub_epi32( \
                      _mm256_set1_epi32(254 << 23), \
                      _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7F800000)))))
/* Takes the whole numbers that accumulators hold out of sums, where sizes are below a threshold. */
#define TAKE_BITS(p, v, size, threshold) \
    _mm256_storeu_si256( \
        (__m256i *)(p), \
        _mm256_sub_epi32(_mm256_loadu_si256((__m256i *)(p)), \
                         _mm256_and_si256(_mm256_castps_si256(_mm256_cmp_ps(size, threshold, _CMP_LT_OQ)), \
                                          _mm256_sub_epi32(_mm256_castps_si256(v), _mm256_set1_epi32(MAGIC_BITS)))))
/* For 64 flags, which are zero or one, a mask. */
#define FLAG_MASK(p) (mask_of_flags(p) | mask_of_flags((p) + 32) << 32)
#define TERM(a, b, sum) _mm256_fmadd_ps(a, b, sum)
#define KEPT_TERM(a, b, size, threshold, sum) \
    _mm256_fmadd_ps(a, _mm256_and_ps(b, _mm256_cmp_ps(size, threshold, _CMP_GE_OQ)), sum)
#include KERNEL

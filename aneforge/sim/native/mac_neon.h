/* The vector operations of a path: NEON, with PATH, MR, VECTORS and KERNEL defined. No include guard on purpose. */
#define TARGET
#define LANES 4
#define VEC float32x4_t
#define LOAD(p) vld1q_f32(p)
#define STORE(p, v) vst1q_f32(p, v)
#define SPREAD(x) vdupq_n_f32(x)
#define SIZE_OF(v) vabsq_f32(v)
#define HALVES(p) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))
#define ADD_BITS(p, v) \
    vst1q_s32(p, vaddq_s32(vld1q_s32(p), vsubq_s32(vreinterpretq_s32_f32(v), vdupq_n_s32(MAGIC_BITS))))
/* The least magnitude whose product with a row operand in units is kept: the reciprocal of its power of two, in ones. A
 * subnormal counts as 2^-14. */
#define THRESHOLD(v) \
    vminq_f32(vdupq_n_f32(0.25f), \
              vreinterpretq_f32_s32(vsubq_s32(vdupq_n_s32(254 << 23), \
                                              vandq_s32(vreinterpretq_s32_f32(v), vdupq_n_s32(0x7F800000)))))
/* Takes the whole numbers that accumulators hold out of sums, where sizes are below a threshold. */
#define TAKE_BITS(p, v, size, threshold) \
    vst1q_s32(p, vsubq_s32(vld1q_s32(p), \
                           vandq_s32(vreinterpretq_s32_u32(vcltq_f32(size, threshold)), \
                                     vsubq_s32(vreinterpretq_s32_f32(v), vdupq_n_s32(MAGIC_BITS)))))
#define TERM(a, b, sum) vfmaq_f32(sum, a, b)
#define KEPT_TERM(a, b, size, threshold, sum) \
    vfmaq_f32(sum, a, vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(b), vcgeq_f32(size, threshold))))
#include KERNEL

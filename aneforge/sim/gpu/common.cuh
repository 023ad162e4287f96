/* What all kernels share: fp16 as the engine reads and rounds it (aneforge/sim/half.py says the same in NumPy). */
#ifdef EMULATED
#include "emulation.h"
#else
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#define KERNEL(name, Arguments) extern "C" __global__ void BOUNDS name(const Arguments job)
#endif

#define UNITS 65536.0
#define CEILING_UNITS 2147483648.0
#define CEILING 32768.0
#define HALF_OVERFLOW 65520.0

static __device__ __forceinline__ float as_float(uint32_t bits)
{
#ifdef EMULATED
    float value;
    memcpy(&value, &bits, 4);
    return value;
#else
    return __uint_as_float(bits);
#endif
}

static __device__ __forceinline__ uint32_t as_bits(float value)
{
#ifdef EMULATED
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
#else
    return __float_as_uint(value);
#endif
}

static __device__ __forceinline__ uint64_t double_bits(double value)
{
#ifdef EMULATED
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
#else
    return (uint64_t)__double_as_longlong(value);
#endif
}

static __device__ __forceinline__ double as_double(uint64_t bits)
{
#ifdef EMULATED
    double value;
    memcpy(&value, &bits, 8);
    return value;
#else
    return __longlong_as_double((long long)bits);
#endif
}

/* The magnitude that the multipliers read, as the bits of a float: the largest exponent is an ordinary one. */
static __device__ __forceinline__ uint32_t magnitude_bits(uint32_t size, uint32_t subnormals)
{
    uint32_t small = as_bits((float)(int)size * 0x1p-24f) & subnormals;
    return size < 0x400u ? small : (size << 13) + (112u << 23);
}

/* What the multipliers read. */
static __device__ __forceinline__ double decoded(uint16_t half)
{
    double size = (double)as_float(magnitude_bits(half & 0x7FFFu, ~0u));
    return half & 0x8000u ? -size : size;
}

/* What planar work reads: a NaN is +infinity. */
static __device__ __forceinline__ double widened(uint16_t half)
{
    uint32_t size = half & 0x7FFFu;
    if (size >= 0x7C00u)
        return half & 0x8000u && size == 0x7C00u ? -1.0 / 0.0 : 1.0 / 0.0;
    double value = (double)as_float(magnitude_bits(size, ~0u));
    return half & 0x8000u ? -value : value;
}

/* fp16 bits of a size below infinity's, from a ceiling on infinite: adding half a step to the bits rounds half away. */
static __device__ __forceinline__ uint32_t half_bits(double size, double ceiling)
{
    uint64_t large = ((double_bits(size) + (1ull << 41)) >> 42) - (1008ull << 10);
    uint32_t small = (uint32_t)(int)((size < 0x1p-14 ? size : 0.0) * 0x1p24 + 0.5);
    uint32_t half = size < 0x1p-14 ? small : (uint32_t)large;
    return size >= ceiling ? 0x7C00u : half;
}

/* The nearest fp16 number, half away from zero; NaN is +0. `twice` rounds to eleven significant bits first. */
static __device__ __forceinline__ uint16_t narrowed(double value, bool twice)
{
    if (value != value)
        return 0;
    double size = fabs(value);
    if (twice && size < 0x1p-14 && size > 0)
        size = as_double((double_bits(size) + (1ull << 41)) & ~((1ull << 42) - 1));
    return (uint16_t)(half_bits(size, HALF_OVERFLOW) | (double_bits(value) >> 63 ? 0x8000u : 0u));
}

/* One rounding without the end of the range: a step inside a sum. */
static __device__ __forceinline__ double stepped(double value)
{
    double size = fabs(value);
    if (!(size < 1.0 / 0.0))
        return value != value ? 0.0 : value;
    if (size < 0x1p-14)
        size = floor(size * 0x1p24 + 0.5) * 0x1p-24;
    else
        size = as_double((double_bits(size) + (1ull << 41)) & ~((1ull << 42) - 1));
    return copysign(size, value);
}

/* The fp16 result of an accumulator; a sum of zero is +0. */
static __device__ __forceinline__ uint16_t settled(double units, int lost)
{
    if (lost || fabs(units) >= CEILING_UNITS)
        return (uint16_t)((lost ? lost < 0 : units < 0) ? 0xFC00u : 0x7C00u);
    uint32_t half = half_bits(fabs(units) / UNITS, CEILING);
    return (uint16_t)(half | (half && units < 0 ? 0x8000u : 0u));
}

/* One product in units, as the multipliers round it: half away, or dropped by its exponents. */
static __device__ __forceinline__ double rounded_product(uint16_t a, uint16_t b, bool flush)
{
    int ea = (a >> 10) & 31, eb = (b >> 10) & 31;
    if (flush && (!ea || !eb))
        return 0.0;
    ea = (ea ? ea : 1) - 15;
    eb = (eb ? eb : 1) - 15;
    if (ea + eb <= -17)
        return 0.0;
    double value = decoded(a) * decoded(b) * UNITS;
    return trunc(value + copysign(0.5, value));
}

/* Floats and fp16 numbers by their bits. */
#ifndef ANEFORGE_BITS_H
#define ANEFORGE_BITS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE float as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE uint32_t as_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* What the multipliers read: the largest exponent is an ordinary one. No float subnormal arises, so that a process
 * that flushes them gets the same bits. */
INLINE float operand(uint32_t half)
{
    uint32_t size = half & 0x7FFFu, small = as_bits((float)(int32_t)size * 0x1p-24f);
    uint32_t normal = (size << 13) + (112u << 23);
    return as_float((size < 0x400u ? small : normal) | (half & 0x8000u) << 16);
}

/* A single-precision sum as fp16: half away from zero, infinite from 2^15 on; a sum of zero is +0. */
INLINE uint16_t settled_half(float value)
{
    float size = fabsf(value);
    uint32_t bits = as_bits(size), sign = as_bits(value) >> 16 & 0x8000u;
    uint32_t half = ((bits + (1u << 12)) >> 13) - (112u << 10);
    uint32_t small = (uint32_t)(int32_t)((size < 0x1p-14f ? size : 0.0f) * 0x1p24f + 0.5f);
    half = size < 0x1p-14f ? small : half;
    half = size < 32768.0f ? half : 0x7C00u;
    return (uint16_t)(half ? half | sign : 0u);
}

/* The nearest fp16 number to a sum or product of two in single precision, ties away from zero; `twice` first to eleven
 * significant bits. The 24 bits hold a product, and a sum of numbers whose exponents are at most 13 apart; further
 * apart the smaller one is less than half of half a step of the larger, and no rounding of their sum reaches a tie. */
INLINE uint16_t rounded_single(float value, int twice)
{
    float size = fabsf(value), short_size;
    uint32_t bits = as_bits(size), sign = as_bits(value) >> 16 & 0x8000u, eleven = (bits + (1u << 12)) >> 13;
    uint32_t half = eleven - (112u << 10), small;
    short_size = twice ? as_float(eleven << 13) : size;
    small = (uint32_t)(int32_t)((size < 0x1p-14f ? short_size : 0.0f) * 0x1p24f + 0.5f);
    half = size < 0x1p-14f ? small : half;
    half = size >= 65520.0f ? 0x7C00u : half;
    return (uint16_t)(size == size ? half | sign : 0u);
}

/* A sum of two fp16 numbers that stays in their range, rounded to such a number half away from zero. It has steps of
 * 2^-24, so that below 2^-14 it has no more digits than are kept. */
INLINE float turned_sum(float sum) { return as_float((as_bits(sum) + 0x1000u) & 0xFFFFE000u); }

/* A finite number that fp16 holds, as fp16. */
INLINE uint16_t short_half(float value)
{
    uint32_t size = as_bits(value) & 0x7FFFFFFFu, sign = as_bits(value) >> 16 & 0x8000u;
    uint32_t small = (uint32_t)(int32_t)((size < 113u << 23 ? as_float(size) : 0.0f) * 0x1p24f);
    return (uint16_t)((size < 113u << 23 ? small : (size >> 13) - (112u << 10)) | sign);
}

#endif

/* One path of packed.c, the second part: results, lines of maps and depthwise sums. Included by packed_kernel.h. No
 * include guard on purpose. */

/* A line of exact sums on top of its start value as fp16: half away. What lies beyond the 24 highest bits of a sum is
 * beyond half a step of the result. */
TARGET INLINE uint16_t NAME(settled_units)(int32_t units)
{
    uint32_t size = (uint32_t)(units < 0 ? -units : units), high = size >= 1u << 24 ? size & ~0x7Fu : size;
    float value = (float)(int32_t)high * 0x1p-16f;
    return settled_half(units < 0 ? -value : value);
}

TARGET static void NAME(settle_exact)(const int32_t *restrict sums, const int32_t *restrict starts, ptrdiff_t step,
                                      uint16_t *restrict out)
{
    if (step)
        EACH(j, NR)
            out[j] = NAME(settled_units)(sums[j] + starts[j]);
    else {
        int32_t start = *starts;
        EACH(j, NR)
            out[j] = NAME(settled_units)(sums[j] + start);
    }
}

TARGET static void NAME(settle_fast)(const float *restrict sums, const float *restrict starts, ptrdiff_t step,
                                     uint16_t *restrict out)
{
    if (step)
        EACH(j, NR)
            out[j] = settled_half(sums[j] + starts[j]);
    else {
        float start = *starts;
        EACH(j, NR)
            out[j] = settled_half(sums[j] + start);
    }
}

#if !PLAIN
/* Taps from `first` on, as many as one float accumulator holds; a count that the compiler knows keeps the weights in
 * registers. */
TARGET INLINE void NAME(kept_taps)(const float *in, const ptrdiff_t *offsets, const float *weights,
                                   const float *thresholds, const ptrdiff_t taps, ptrdiff_t count, int32_t *sums)
{
    for (ptrdiff_t j = 0; j < count; j += LANES) {
        VEC total = SPREAD(MAGIC);
        UNROLLED(tap, taps) {
            VEC right = LOAD(in + offsets[tap] + j);
            total = KEPT_TERM(SPREAD(weights[tap]), right, SIZE_OF(right), SPREAD(thresholds[tap]), total);
        }
        ADD_BITS(sums + j, total);
    }
}

TARGET INLINE void NAME(all_taps)(const float *in, const ptrdiff_t *offsets, const float *weights, const ptrdiff_t taps,
                                  ptrdiff_t count, float *sums)
{
    for (ptrdiff_t j = 0; j < count; j += LANES) {
        VEC total = SPREAD(0.0f);
        UNROLLED(tap, taps)
            total = TERM(SPREAD(weights[tap]), LOAD(in + offsets[tap] + j), total);
        STORE(sums + j, total);
    }
}
#endif

/* Sums of one channel of a depthwise convolution, in whole vectors: element j of every tap lies at `in` + its offset + j.
 * At most `span` taps fit a float accumulator. */
TARGET static void NAME(depthwise_exact)(const float *in, const ptrdiff_t *offsets, const float *weights, ptrdiff_t taps,
                                         ptrdiff_t span, ptrdiff_t count, int32_t *sums)
{
#if PLAIN
    (void)span;
    EACH(tap, taps) {
        double left = (double)weights[tap];
        float threshold = threshold_of(weights[tap]);
        EACH(j, count) {
            float right = in[offsets[tap] + j];
            double value = left * (double)right;
            sums[j] += fabsf(right) >= threshold ? (int32_t)(value + copysign(0.5, value)) : 0;
        }
    }
#else
    float thresholds[DEPTHWISE_TAPS];
    EACH(tap, taps)
        thresholds[tap] = threshold_of(weights[tap]);
    for (ptrdiff_t first = 0; first < taps; first += span) {
        ptrdiff_t some = first + span < taps ? span : taps - first;
        const float *own = weights + first, *limits = thresholds + first;
        if (some == 9)
            NAME(kept_taps)(in, offsets + first, own, limits, 9, count, sums);
        else if (some == 3)
            NAME(kept_taps)(in, offsets + first, own, limits, 3, count, sums);
        else
            NAME(kept_taps)(in, offsets + first, own, limits, some, count, sums);
    }
#endif
}

TARGET static void NAME(depthwise_fast)(const float *in, const ptrdiff_t *offsets, const float *weights, ptrdiff_t taps,
                                        ptrdiff_t count, float *sums)
{
#if PLAIN
    EACH(tap, taps) EACH(j, count)
        sums[j] += weights[tap] * in[offsets[tap] + j];
#else
    if (taps == 9)
        NAME(all_taps)(in, offsets, weights, 9, count, sums);
    else
        NAME(all_taps)(in, offsets, weights, taps, count, sums);
#endif
}

/* Finite numbers with even and with odd places, a block of 16 of each: as 32-bit words, of which both are read. */
TARGET INLINE void NAME(split_block)(const uint16_t *in, float *even, float *odd)
{
    uint32_t pairs[16];
    memcpy(pairs, in, sizeof pairs);
    EACH(j, 16) {
        even[j] = operand(pairs[j] & 0xFFFFu);
        odd[j] = operand(pairs[j] >> 16);
    }
}

/* A line of them, in whole blocks. */
TARGET static void NAME(split_floats)(const uint16_t *in, ptrdiff_t count, float *even, float *odd)
{
    for (ptrdiff_t first = 0; first < count; first += 16)
        NAME(split_block)(in + 2 * first, even + first, odd + first);
}

/* Two lines as the numbers with even and with odd places of one, in whole blocks. */
TARGET static void NAME(join_line)(const uint16_t *restrict even, const uint16_t *restrict odd, ptrdiff_t count,
                                   uint16_t *restrict out)
{
    for (ptrdiff_t first = 0; first < count; first += 16)
        EACH(j, 16) {
            out[2 * (first + j)] = even[first + j];
            out[2 * (first + j) + 1] = odd[first + j];
        }
}

/* A line of sums on top of one start value, in whole panels. */
TARGET static void NAME(settle_line)(const int32_t *restrict sums, int exact, int32_t start, ptrdiff_t count,
                                     uint16_t *restrict out)
{
    for (ptrdiff_t first = 0; first < count; first += NR)
        if (exact)
            EACH(j, NR)
                out[first + j] = NAME(settled_units)(sums[first + j] + start);
        else
            EACH(j, NR)
                out[first + j] = settled_half(as_float((uint32_t)sums[first + j]) + as_float((uint32_t)start));
}

/* The two outputs of each Winograd tile from the sums of its four positions, `apart` numbers from each other. */
TARGET static void NAME(settle_pairs)(const int32_t *restrict sums, ptrdiff_t apart, int32_t start,
                                      uint16_t *restrict even, uint16_t *restrict odd)
{
    EACH(j, NR) {
        int32_t second = sums[apart + j] + start, third = sums[2 * apart + j];
        even[j] = NAME(settled_units)(sums[j] + second + third);
        odd[j] = NAME(settled_units)(second - third - sums[3 * apart + j]);
    }
}

/* The four transformed operands of sixteen tiles of a padded line, which overlap by two numbers (N56). */
TARGET INLINE void NAME(turn_block)(const uint16_t *in, float turned[4][16])
{
    float d[4][16];
    NAME(split_block)(in, d[0], d[1]);
    NAME(split_block)(in + 2, d[2], d[3]);
    EACH(j, 16) {
        turned[0][j] = turned_sum(d[0][j] - d[2][j]);
        turned[1][j] = turned_sum(d[1][j] + d[2][j]);
        turned[2][j] = turned_sum(d[2][j] - d[1][j]);
        turned[3][j] = turned_sum(d[1][j] - d[3][j]);
    }
}

/* The four transformed lines of a padded line, in whole blocks of 16: `room` is that far from one to the next. */
TARGET static void NAME(turn_floats)(const uint16_t *in, ptrdiff_t tiles, ptrdiff_t room, float *out)
{
    for (ptrdiff_t first = 0; first < tiles; first += 16) {
        float turned[4][16];
        NAME(turn_block)(in + 2 * first, turned);
        EACH(position, 4)
            memcpy(out + position * room + first, turned[position], sizeof turned[position]);
    }
}

/* The same as fp16. */
TARGET static void NAME(turn_line)(const uint16_t *in, ptrdiff_t tiles, ptrdiff_t room, uint16_t *out)
{
    for (ptrdiff_t first = 0; first < tiles; first += 16) {
        float turned[4][16];
        NAME(turn_block)(in + 2 * first, turned);
        EACH(position, 4)
            EACH(j, 16)
                out[position * room + first + j] = short_half(turned[position][j]);
    }
}

/* The largest magnitude among some fp16 numbers, as bits. */
TARGET static uint32_t NAME(peak)(const uint16_t *in, ptrdiff_t count)
{
    uint16_t most = 0;
    EACH(i, count) {
        uint16_t size = in[i] & 0x7FFFu;
        most = size > most ? size : most;
    }
    return most;
}

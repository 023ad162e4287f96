/* One path of packed.c: included once for each instruction set, with PATH, TARGET, MR, NR or LANES and VECTORS, and the
 * vector operations defined. No include guard on purpose. */

#if !PLAIN
#define NR (LANES * VECTORS)
#endif
#define EACH(index, count) for (ptrdiff_t index = 0; index < (count); index++)
#define UNROLLED(index, count) _Pragma("GCC unroll 16") for (int index = 0; index < (count); index++)

/* Finite fp16 numbers in single precision, `count` rounded up to whole vectors. */
TARGET INLINE void NAME(read_line)(const uint16_t *in, float *out, ptrdiff_t count)
{
#ifdef HALVES
    for (ptrdiff_t j = 0; j < count; j += LANES)
        STORE(out + j, HALVES(in + j));
#else
    EACH(j, count)
        out[j] = operand(in[j]);
#endif
}

/* Some finite numbers, in whole blocks of 16. */
TARGET static void NAME(read_floats)(const uint16_t *in, ptrdiff_t count, float *out)
{
    for (ptrdiff_t first = 0; first < count; first += 16)
        NAME(read_line)(in + first, out + first, 16);
}

/* Rows of a chunk from their stored panel: [terms][MR], in units and one step further from zero for exact sums. */
TARGET static void NAME(read_rows)(const uint16_t *in, ptrdiff_t terms, int exact, float *out)
{
    EACH(block, terms * MR / 16) {
        float *own = out + block * 16;
        NAME(read_line)(in + block * 16, own, 16);
        if (exact)
            EACH(j, 16) {
                uint32_t bits = as_bits(own[j] * UNITS);
                own[j] = as_float(bits + (PLAIN ? 0u : (bits & 0x7FFFFFFFu) != 0));
            }
    }
    for (ptrdiff_t j = terms * MR / 16 * 16; j < terms * MR; j++) {
        uint32_t bits = as_bits(operand(in[j]) * (exact ? UNITS : 1.0f));
        out[j] = as_float(bits + (exact && !PLAIN ? (bits & 0x7FFFFFFFu) != 0 : 0u));
    }
}

/* Lays one panel of MR rows out as store_panel does, from rows that lie `step` apart; `in` has all of them. The bounds
 * are sums over the largest of each place, which are no smaller. Returns a bound of the sums of magnitudes. */
TARGET static double NAME(store_rows)(const uint16_t *in, ptrdiff_t step, ptrdiff_t depth, uint16_t *out, uint8_t *low,
                                      float *by_group, float *panel_most)
{
    double reach = 0.0;
    uint16_t most[GROUP] = {0}, all = 0;
    for (ptrdiff_t first = 0; first < depth; first += GROUP, in += GROUP, out += GROUP * MR, low += GROUP) {
        ptrdiff_t terms = depth - first < GROUP ? depth - first : GROUP;
        uint16_t lines[MR][GROUP], least[GROUP];
        float parts[GROUP / 2] = {0}, sum = 0.0f;
        if (terms < GROUP)
            memset(lines, 0, sizeof lines);
        memset(least, 0xFF, sizeof least);
        EACH(r, MR) {
            memcpy(lines[r], in + r * step, (size_t)terms * sizeof **lines);
            EACH(j, GROUP) {
                uint16_t size = lines[r][j] & 0x7FFFu, before = (uint16_t)(size - 1u);
                least[j] = before < least[j] ? before : least[j];
                most[j] = size > most[j] ? size : most[j];
            }
            EACH(j, GROUP / 2) {
                float part = operand(lines[r][j] & 0x7FFFu) + operand(lines[r][j + GROUP / 2] & 0x7FFFu);
                parts[j] = part > parts[j] ? part : parts[j];
            }
        }
        turn_rows(lines[0], terms, MR, out);
        EACH(j, terms)
            low[j] = least[j] == 0xFFFFu ? NO_FIELD : least[j] + 1u >= 0x400u ? (uint8_t)((least[j] + 1u) >> 10) : 1;
        EACH(j, GROUP / 2)
            sum += parts[j];
        *by_group++ = sum;
        reach += (double)sum;
    }
    EACH(j, GROUP)
        all = most[j] > all ? most[j] : all;
    *panel_most = all < 0x7C00u ? operand(all) : INFINITY;
    return reach;
}

/* What a panel of columns reads of a map for some terms, gathered: [terms][NR]; and its figures for exact sums. */
TARGET static void NAME(gather)(const uint16_t *map, const ptrdiff_t *offsets, ptrdiff_t terms, const Segments *segments,
                                int exact, float *out, float *most, uint8_t *low)
{
    uint16_t edge[NR + 16] = {0};
    uint32_t largest[NR] = {0};
    EACH(term, terms) {
        const uint16_t *in = map + offsets[term];
        float *own = out + term * NR;
        if (segments->copied) {
            memcpy(edge, in + segments->offset[0], (size_t)segments->length[0] * sizeof *edge);
            NAME(read_line)(edge, own, NR);
        } else {
            if (segments->partial)
                memset(own, 0, NR * sizeof *own);
            EACH(part, segments->count)
                NAME(read_line)(in + segments->offset[part], own + segments->start[part], segments->length[part]);
        }
    }
    if (!exact)
        return;
    EACH(term, terms) {
        const float *own = out + term * NR;
        uint32_t least = ~0u;
        EACH(j, NR) {
            uint32_t size = as_bits(own[j]) & 0x7FFFFFFFu, before = size - 1u;
            largest[j] = size > largest[j] ? size : largest[j];
            least = before < least ? before : least;
        }
        low[term] = least == ~0u ? NO_FIELD : field_of(least + 1u);
        if (term % GROUP == GROUP - 1 || term == terms - 1) {
            uint32_t all = 0;
            EACH(j, NR)
                all = largest[j] > all ? largest[j] : all;
            most[term / GROUP] = as_float(all);
            memset(largest, 0, sizeof largest);
        }
    }
}

/* Some terms of a stored panel of columns: [terms][NR]. */
TARGET static void NAME(read_columns)(const uint16_t *in, ptrdiff_t terms, float *out)
{
    EACH(term, terms)
        NAME(read_line)(in + term * NR, out + term * NR, NR);
}

#if PLAIN

/* Exact sums of MR x NR, in doubles, every product held against the threshold of its row. */
TARGET static void NAME(sum_exact)(const float *a, const float *b, const int32_t *ends, ptrdiff_t stretches, int narrow,
                                   int32_t *sums)
{
    (void)narrow;
    EACH(r, MR) {
        int32_t *own = sums + r * NR;
        EACH(term, ends[stretches - 1]) {
            double left = (double)a[term * MR + r];
            float threshold = threshold_of(a[term * MR + r]);
            const float *right = b + term * NR;
            EACH(j, NR) {
                double value = left * (double)right[j];
                int32_t rounded = (int32_t)(value + copysign(0.5, value));
                own[j] += fabsf(right[j]) >= threshold ? rounded : 0;
            }
        }
    }
}

TARGET static void NAME(sum_fast)(const float *a, const float *b, ptrdiff_t terms, int narrow, float *sums)
{
    (void)narrow;
    EACH(term, terms) EACH(r, MR) {
        float left = a[term * MR + r];
        EACH(j, NR)
            sums[r * NR + j] += left * b[term * NR + j];
    }
}

#else

/* Exact sums of `rows` x `vectors` without comparisons; `b` lies in fp16 where `halves` is given. */
TARGET INLINE void NAME(free_sums)(const float *a, const float *b, const uint16_t *halves, const int32_t *ends,
                                   ptrdiff_t stretches, const int rows, const int vectors, int32_t *sums)
{
    ptrdiff_t term = 0;
    EACH(stretch, stretches) {
        VEC total[MR][VECTORS], right[VECTORS];
        UNROLLED(r, rows)
            UNROLLED(v, vectors)
                total[r][v] = SPREAD(MAGIC);
        for (; term < ends[stretch]; term++) {
            if (halves)
                __builtin_prefetch((const void *)((uintptr_t)halves + (uintptr_t)(term + AHEAD) * NR * sizeof *halves));
            UNROLLED(v, vectors)
                right[v] = halves ? HALVES(halves + term * NR + v * LANES) : LOAD(b + term * NR + v * LANES);
            UNROLLED(r, rows) {
                VEC left = SPREAD(a[term * MR + r]);
                UNROLLED(v, vectors)
                    total[r][v] = TERM(left, right[v], total[r][v]);
            }
        }
        UNROLLED(r, rows)
            UNROLLED(v, vectors)
                ADD_BITS(sums + r * NR + v * LANES, total[r][v]);
    }
}

TARGET APART static void NAME(sum_exact)(const float *a, const float *b, const int32_t *ends, ptrdiff_t stretches,
                                         int narrow, int32_t *sums)
{
    if (narrow)
        NAME(free_sums)(a, b, NULL, ends, stretches, MR, (VECTORS + 1) / 2, sums);
    else
        NAME(free_sums)(a, b, NULL, ends, stretches, MR, VECTORS, sums);
}

/* A few rows: numbers of b are used once or twice, as they are stored. */
TARGET APART static void NAME(sum_few)(const float *a, const uint16_t *b, const int32_t *ends, ptrdiff_t stretches, int rows,
                                 int32_t *sums)
{
    if (rows == 1)
        NAME(free_sums)(a, NULL, b, ends, stretches, 1, VECTORS, sums);
    else if (rows == 2)
        NAME(free_sums)(a, NULL, b, ends, stretches, 2, VECTORS, sums);
    else
        NAME(free_sums)(a, NULL, b, ends, stretches, FEW, VECTORS, sums);
}

/* The same with a comparison of every product. */
TARGET APART static void NAME(sum_compared)(const float *a, const float *b, const int32_t *ends, ptrdiff_t stretches,
                                      const float *thresholds, int32_t *sums)
{
    ptrdiff_t term = 0;
    EACH(stretch, stretches) {
        VEC total[MR][VECTORS], right[VECTORS], size[VECTORS];
        UNROLLED(r, MR)
            UNROLLED(v, VECTORS)
                total[r][v] = SPREAD(MAGIC);
        for (; term < ends[stretch]; term++) {
            UNROLLED(v, VECTORS) {
                right[v] = LOAD(b + term * NR + v * LANES);
                size[v] = SIZE_OF(right[v]);
            }
            UNROLLED(r, MR) {
                VEC left = SPREAD(a[term * MR + r]), threshold = SPREAD(thresholds[term * MR + r]);
                UNROLLED(v, VECTORS)
                    total[r][v] = KEPT_TERM(left, right[v], size[v], threshold, total[r][v]);
            }
        }
        UNROLLED(r, MR)
            UNROLLED(v, VECTORS)
                ADD_BITS(sums + r * NR + v * LANES, total[r][v]);
    }
}

/* Takes the dropped products of one number of a row and a line of columns out of sums that have them. */
TARGET INLINE void NAME(take_out)(const float *left, const float *b, int32_t *sums)
{
    VEC value = SPREAD(*left), threshold = THRESHOLD(value);
    UNROLLED(v, VECTORS) {
        VEC right = LOAD(b + v * LANES);
        TAKE_BITS(sums + v * LANES, TERM(value, right, SPREAD(MAGIC)), SIZE_OF(right), threshold);
    }
}

/* The terms of a chunk in which a product may be dropped, in order. */
TARGET static ptrdiff_t NAME(find_terms)(const uint8_t *a_low, const uint8_t *b_low, ptrdiff_t terms, int16_t *list)
{
    uint8_t flags[KC + 64];
    ptrdiff_t count = 0;
    EACH(term, terms)
        flags[term] = (uint8_t)(a_low[term] + b_low[term]) <= LAST_DROPPED;
    memset(flags + terms, 0, 64);
#ifdef FLAG_MASK
    for (ptrdiff_t term = 0; term < terms; term += 64)
        for (uint64_t mask = FLAG_MASK(flags + term); mask; mask &= mask - 1)
            list[count++] = (int16_t)(term + __builtin_ctzll(mask));
#else
    for (ptrdiff_t term = 0; term < terms; term += 8) {
        uint64_t word;
        memcpy(&word, flags + term, sizeof word);
        if (word)
            EACH(lane, 8) {
                list[count] = (int16_t)(term + lane);
                count += flags[term + lane];
            }
    }
#endif
    return count;
}

/* The numbers of rows, as places in a chunk, whose products in those terms may be dropped: in front of columns whose
 * smallest exponent fields are `low`. */
TARGET static ptrdiff_t NAME(find_numbers)(const float *a, const uint8_t *low, const int16_t *terms, ptrdiff_t count,
                                           int rows, int32_t *list)
{
    ptrdiff_t all = 0;
    EACH(each, count) {
        ptrdiff_t term = terms[each];
        uint32_t limit = ((uint32_t)(LAST_DROPPED + 1 + 128 - low[term]) << 23) - 1u;
#ifdef SQUEEZE_BELOW
        (void)rows;
        all += SQUEEZE_BELOW(list + all, (const void *)(a + term * MR), limit, (int32_t)(term * MR));
#else
        EACH(r, rows) {
            list[all] = (int32_t)(term * MR + r);
            all += (as_bits(a[term * MR + r]) & 0x7FFFFFFFu) - 1u < limit;
        }
#endif
    }
    return all;
}

TARGET INLINE void NAME(single_sums)(const float *a, const float *b, const uint16_t *halves, ptrdiff_t terms,
                                     const int rows, const int vectors, float *sums)
{
    VEC total[MR][VECTORS], right[VECTORS];
    UNROLLED(r, rows)
        UNROLLED(v, vectors)
            total[r][v] = LOAD(sums + r * NR + v * LANES);
    EACH(term, terms) {
        if (halves)
            __builtin_prefetch((const void *)((uintptr_t)halves + (uintptr_t)(term + AHEAD) * NR * sizeof *halves));
        UNROLLED(v, vectors)
            right[v] = halves ? HALVES(halves + term * NR + v * LANES) : LOAD(b + term * NR + v * LANES);
        UNROLLED(r, rows) {
            VEC left = SPREAD(a[term * MR + r]);
            UNROLLED(v, vectors)
                total[r][v] = TERM(left, right[v], total[r][v]);
        }
    }
    UNROLLED(r, rows)
        UNROLLED(v, vectors)
            STORE(sums + r * NR + v * LANES, total[r][v]);
}

TARGET APART static void NAME(sum_fast)(const float *a, const float *b, ptrdiff_t terms, int narrow, float *sums)
{
    if (narrow)
        NAME(single_sums)(a, b, NULL, terms, MR, (VECTORS + 1) / 2, sums);
    else
        NAME(single_sums)(a, b, NULL, terms, MR, VECTORS, sums);
}

TARGET APART static void NAME(sum_few_fast)(const float *a, const uint16_t *b, ptrdiff_t terms, int rows, float *sums)
{
    if (rows == 1)
        NAME(single_sums)(a, NULL, b, terms, 1, VECTORS, sums);
    else if (rows == 2)
        NAME(single_sums)(a, NULL, b, terms, 2, VECTORS, sums);
    else
        NAME(single_sums)(a, NULL, b, terms, FEW, VECTORS, sums);
}

#endif

#if !PLAIN

/* All products, and then without those that are dropped, which are among those of some numbers of the rows. */
TARGET static void NAME(sum_and_take_out)(const Chunk *chunk, const int32_t *ends, ptrdiff_t stretches,
                                          const int32_t *numbers, ptrdiff_t count, int32_t *sums)
{
    if (chunk->halves) {
        NAME(sum_few)(chunk->a, chunk->halves, ends, stretches, chunk->rows, sums);
        EACH(each, count) {
            size_t place = (size_t)numbers[each];
            NAME(read_line)(chunk->halves + place / MR * NR, chunk->room, NR);
            NAME(take_out)(chunk->a + place, chunk->room, sums + place % MR * NR);
        }
        return;
    }
    NAME(sum_exact)(chunk->a, chunk->b, ends, stretches, chunk->narrow, sums);
    EACH(each, count) {
        size_t place = (size_t)numbers[each];
        NAME(take_out)(chunk->a + place, chunk->b + place / MR * NR, sums + place % MR * NR);
    }
}

#endif

/* The exact sums of one tile and chunk. */
TARGET static void NAME(tile)(const Chunk *chunk, int32_t *sums)
{
    int32_t ends[KC + 1];
    ptrdiff_t stretches = cut_stretches(chunk, ends);
#if PLAIN
    NAME(sum_exact)(chunk->a, chunk->b, ends, stretches, chunk->narrow, sums);
#else
    int16_t terms[KC + 8];
    int32_t numbers[KC * MR + MR];
    ptrdiff_t count = NAME(find_terms)(chunk->a_low, chunk->b_low, chunk->terms, terms);
    if (count * 2 <= chunk->terms) {
        count = NAME(find_numbers)(chunk->a, chunk->b_low, terms, count, chunk->rows, numbers);
        if (count * 4 <= chunk->terms * 3) {
            NAME(sum_and_take_out)(chunk, ends, stretches, numbers, count, sums);
            return;
        }
    }
    /* Comparing every product takes less time than taking so many out again. */
    if (chunk->halves)
        NAME(read_columns)(chunk->halves, chunk->terms, chunk->room);
    if (!*chunk->has_thresholds)
        EACH(place, chunk->terms * MR)
            chunk->thresholds[place] = threshold_of(chunk->a[place]);
    *chunk->has_thresholds = 1;
    NAME(sum_compared)(chunk->a, chunk->halves ? chunk->room : chunk->b, ends, stretches, chunk->thresholds, sums);
#endif
}

/* The single-precision sums of one tile and chunk. */
TARGET static void NAME(fast_tile)(const Chunk *chunk, float *sums)
{
#if !PLAIN
    if (chunk->halves) {
        NAME(sum_few_fast)(chunk->a, chunk->halves, chunk->terms, chunk->rows, sums);
        return;
    }
#endif
    NAME(sum_fast)(chunk->a, chunk->b, chunk->terms, chunk->narrow, sums);
}

#include "packed_lines_kernel.h"
#include "vector_end.h"

/* One path of mac.c: included once for each instruction set, with PATH, TARGET, MR, NR or LANES and VECTORS, and the
 * vector operations defined. No include guard on purpose. */

#if !PLAIN
#define NR (LANES * VECTORS)
#endif
#define EACH(index, count) for (ptrdiff_t index = 0; index < (count); index++)
#define UNROLLED(index, count) _Pragma("GCC unroll 16") for (int index = 0; index < (count); index++)

/* One term of one panel of b: NR columns decoded, and the least (not zero) and the largest of their sizes. Sizes are
 * compared as integers, which compilers turn into vector code without reordering floats. */
TARGET static void NAME(pack_term)(const uint16_t *in, uint32_t subnormals, float *out, float *least, float *most)
{
    uint32_t least_bits = 0x7F800000u, most_bits = 0;
    EACH(j, NR) {
        uint32_t bits = in[j], size = magnitude_bits(bits & 0x7FFFu, subnormals);
        uint32_t nonzero = size ? size : 0x7F800000u;
        least_bits = nonzero < least_bits ? nonzero : least_bits;
        most_bits = size > most_bits ? size : most_bits;
        size |= (bits & 0x8000u) << 16;
        memcpy(out + j, &size, sizeof size);
    }
    *least = as_float(least_bits);
    *most = as_float(most_bits);
}

/* Where a term of a panel of b lies; the last panel is copied, with zeros beyond the last column. */
TARGET static const uint16_t *NAME(columns_of)(const Job *job, ptrdiff_t term, ptrdiff_t column, uint16_t *edge)
{
    const uint16_t *in = job->b + term * job->columns + column;
    if (job->columns - column >= NR)
        return in;
    memcpy(edge, in, (size_t)(job->columns - column) * sizeof *edge);
    return edge;
}

/* Some panels of NR columns of b, with zeros beyond the last column, and the bounds of their terms and chunks. Term by
 * term, because rows of b lie far apart and one panel of a row is less than a cache line. */
TARGET static void NAME(pack)(const Job *job, Scratch *scratch, ptrdiff_t first, ptrdiff_t panels)
{
    uint16_t edge[NR] = {0};
    EACH(term, job->depth) {
        EACH(panel, panels) {
            ptrdiff_t place = panel * job->depth + term;
            float *chunk_most = scratch->chunk_most + panel * job->chunks + term / KC, *most = scratch->most + place;
            const uint16_t *in = NAME(columns_of)(job, term, (first + panel) * NR, edge);
            NAME(pack_term)(in, job->subnormals, scratch->packed + place * NR, scratch->least + place, most);
            *chunk_most = term % KC == 0 || *most > *chunk_most ? *most : *chunk_most;
        }
    }
}

/* One row of a chunk of a: values in units, one step further from zero where a multiply-add rounds them, thresholds
 * and sizes. */
TARGET static void NAME(pack_row)(const uint16_t *in, ptrdiff_t terms, uint32_t subnormals, uint32_t *value,
                                  uint32_t *threshold, uint32_t *sizes)
{
    EACH(term, terms) {
        uint32_t bits = in[term], size = magnitude_bits(bits & 0x7FFFu, subnormals);
        uint32_t scaled = size + (16u << 23) + (PLAIN ? 0u : 1u);
        value[term] = (size ? scaled : 0u) | (bits & 0x8000u) << 16;
        threshold[term] = size ? threshold_bits(bits & 0x7FFFu) : 0u;
        sizes[term] = size;
    }
}

/* A block of rows of one chunk of a, as panels of MR rows with zeros beyond the last row, and their bounds. */
TARGET static void NAME(pack_rows)(const Job *job, Scratch *scratch, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t start,
                                   ptrdiff_t terms)
{
    uint32_t value[MR][KC], threshold[MR][KC], sizes[MR][KC];
    for (ptrdiff_t top = 0; top < rows; top += MR) {
        ptrdiff_t panel = top / MR, here = rows - top < MR ? rows - top : MR;
        float *values = scratch->value + top * KC, *thresholds = scratch->threshold + top * KC;
        uint32_t panel_most = 0;
        EACH(r, here)
            NAME(pack_row)(job->a + (row + top + r) * job->depth + start, terms, job->subnormals, value[r],
                           threshold[r], sizes[r]);
        for (ptrdiff_t r = here; r < MR; r++) {
            memset(value[r], 0, sizeof value[r]);
            memset(threshold[r], 0, sizeof threshold[r]);
            memset(sizes[r], 0, sizeof sizes[r]);
        }
        EACH(term, terms) {
            uint32_t most_threshold = 0, most = 0;
            EACH(r, MR) {
                values[term * MR + r] = as_float(value[r][term]);
                thresholds[term * MR + r] = as_float(threshold[r][term]);
                most_threshold = threshold[r][term] > most_threshold ? threshold[r][term] : most_threshold;
                most = sizes[r][term] > most ? sizes[r][term] : most;
            }
            scratch->term_threshold[panel * KC + term] = as_float(most_threshold);
            scratch->term_most[panel * KC + term] = as_float(most);
            panel_most = most > panel_most ? most : panel_most;
        }
        scratch->panel_most[panel] = as_float(panel_most);
    }
}

#if PLAIN

/* The sums of one tile and chunk, MR x NR, in doubles: products below 64 fit 32 bits once rounded. */
TARGET static void NAME(tile)(const float *a, const float *thresholds, const float *b, const Lists *lists,
                              ptrdiff_t span, int32_t *sums)
{
    (void)span;
    memset(sums, 0, MR * NR * sizeof *sums);
    EACH(r, MR) {
        int32_t *own = sums + r * NR;
        EACH(place, lists->free_count) {
            ptrdiff_t term = lists->free_terms[place];
            double left = (double)a[term * MR + r];
            const float *right = b + term * NR;
            EACH(j, NR) {
                double value = left * (double)right[j];
                own[j] += (int32_t)(value + copysign(0.5, value));
            }
        }
        EACH(place, lists->masked_count) {
            ptrdiff_t term = lists->masked_terms[place];
            double left = (double)a[term * MR + r];
            float threshold = thresholds[term * MR + r];
            const float *right = b + term * NR;
            EACH(j, NR) {
                double value = left * (double)right[j];
                int32_t rounded = (int32_t)(value + copysign(0.5, value));
                own[j] += fabsf(right[j]) >= threshold ? rounded : 0;
            }
        }
    }
}

#else

/* Stretches of at most `span` terms whose sums stay below 64: the accumulator is the constant of a multiply-add and
 * rounds every product by itself, since whole numbers are added to a float of unit 1. Terms in any order. */
TARGET static void NAME(tile)(const float *a, const float *thresholds, const float *b, const Lists *lists,
                              ptrdiff_t span, int32_t *sums)
{
    const int32_t *free_terms = lists->free_terms, *masked_terms = lists->masked_terms;
    ptrdiff_t free_count = lists->free_count, masked_count = lists->masked_count;
    memset(sums, 0, MR * NR * sizeof *sums);
    while (free_count + masked_count > 0) {
        ptrdiff_t frees = free_count < span ? free_count : span;
        ptrdiff_t masks = masked_count < span - frees ? masked_count : span - frees;
        VEC total[MR][VECTORS], right[VECTORS], size[VECTORS];
        UNROLLED(r, MR)
            UNROLLED(v, VECTORS)
                total[r][v] = SPREAD(MAGIC);
        EACH(place, frees) {
            ptrdiff_t term = free_terms[place];
            UNROLLED(v, VECTORS)
                right[v] = LOAD(b + term * NR + v * LANES);
            UNROLLED(r, MR) {
                VEC left = SPREAD(a[term * MR + r]);
                UNROLLED(v, VECTORS)
                    total[r][v] = TERM(left, right[v], total[r][v]);
            }
        }
        EACH(place, masks) {
            ptrdiff_t term = masked_terms[place];
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
        free_terms += frees;
        masked_terms += masks;
        free_count -= frees;
        masked_count -= masks;
    }
}

#endif

/* The plain form for some terms of a tile: doubles in the order of the list, every partial sum held against the
 * ceiling. */
TARGET static void NAME(watched)(Tile tile, const float *a, const float *thresholds, const float *b,
                                 const int32_t *terms, ptrdiff_t count)
{
    double total[NR], lost[NR];
    EACH(r, MR) {
        double *units = tile.units + r * tile.stride, *gone = tile.lost + r * tile.stride;
        memcpy(total, units, sizeof total);
        memcpy(lost, gone, sizeof lost);
        EACH(each, count) {
            ptrdiff_t term = terms[each];
            double left = (double)(PLAIN ? a[term * MR + r] : unmoved(a[term * MR + r]));
            double threshold = (double)thresholds[term * MR + r];
            const float *right = b + term * NR;
            EACH(j, NR) {
                double factor = (double)right[j], value = left * factor;
                double part = WHOLE(value + copysign(0.5, value));
                part = fabs(factor) >= threshold ? part : 0.0;
                total[j] += part;
                double fresh = fabs(total[j]) >= CEILING_UNITS ? copysign(INFINITY, total[j]) : 0.0;
                lost[j] = lost[j] != 0.0 ? lost[j] : fresh;
            }
        }
        memcpy(units, total, sizeof total);
        memcpy(gone, lost, sizeof lost);
    }
}

/* Terms with products too large for float accumulators, in a tile that stays inside: the same trick in doubles. */
TARGET static void NAME(wide)(Tile tile, const float *a, const float *thresholds, const float *b,
                              const int32_t *terms, ptrdiff_t count)
{
#if PLAIN
    NAME(watched)(tile, a, thresholds, b, terms, count);
#else
    EACH(r, MR) {
        double *units = tile.units + r * tile.stride;
        double total[NR];
        EACH(j, NR)
            total[j] = WIDE_MAGIC;
        EACH(each, count) {
            ptrdiff_t term = terms[each];
            double left = moved_double((double)unmoved(a[term * MR + r]));
            float threshold = thresholds[term * MR + r];
            const float *right = b + term * NR;
            EACH(j, NR) {
                float factor = fabsf(right[j]) >= threshold ? right[j] : 0.0f;
                total[j] = __builtin_fma(left, (double)factor, total[j]);
            }
        }
        EACH(j, NR)
            units[j] += total[j] - WIDE_MAGIC;
    }
#endif
}

/* Whether no sum of the tile can reach the ceiling when its magnitude grows by `growth`; those already lost may go on
 * while doubles hold them exactly. */
TARGET static int NAME(inside)(Tile tile, double growth)
{
    int outside = 0;
    EACH(r, MR) {
        const double *units = tile.units + r * tile.stride, *lost = tile.lost + r * tile.stride;
        EACH(j, NR) {
            double limit = lost[j] != 0.0 ? EXACT_UNITS : CEILING_UNITS;
            outside |= fabs(units[j]) + growth >= limit;
        }
    }
    return !outside;
}

/* A bound of the magnitudes of a chunk, term by term, in units. */
TARGET static double NAME(growth)(const float *a_most, const float *b_most, ptrdiff_t terms)
{
    double part[8] = {0}, sum = 0.5 * (double)terms;
    ptrdiff_t whole = terms / 8 * 8;
    for (ptrdiff_t term = 0; term < whole; term += 8)
        EACH(lane, 8)
            part[lane] += (double)a_most[term + lane] * (double)b_most[term + lane];
    for (ptrdiff_t term = whole; term < terms; term++)
        part[0] += (double)a_most[term] * (double)b_most[term];
    EACH(lane, 8)
        sum += part[lane] * UNITS;
    return sum;
}

/* How many terms need no comparison: all thresholds at most the least |b|. */
TARGET static ptrdiff_t NAME(count_free)(const float *thresholds, const float *least, ptrdiff_t terms)
{
    int32_t count = 0;
    EACH(term, terms)
        count += thresholds[term] <= least[term];
    return count;
}

/* Two lists, without doubles: the terms that need no comparison and the others. */
TARGET static void NAME(split)(Scratch *scratch, const float *thresholds, const float *least, ptrdiff_t terms,
                               Lists *lists)
{
    ptrdiff_t term = 0, free_count = 0, masked_count = 0;
#ifdef AT_MOST_MASK
    for (; term + 8 <= terms; term += 8) {
        unsigned mask = AT_MOST_MASK(thresholds + term, least + term);
        const uint8_t *in = scratch->squeezed[mask], *out = scratch->squeezed[255u - mask];
        ptrdiff_t some = scratch->ones[mask];
        EACH(lane, 8) {
            scratch->free_terms[free_count + lane] = (int32_t)term + in[lane];
            scratch->masked_terms[masked_count + lane] = (int32_t)term + out[lane];
        }
        free_count += some;
        masked_count += 8 - some;
    }
#endif
    for (; term < terms; term++) {
        int is_free = thresholds[term] <= least[term];
        scratch->free_terms[free_count] = scratch->masked_terms[masked_count] = (int32_t)term;
        free_count += is_free;
        masked_count += !is_free;
    }
    lists->free_terms = scratch->free_terms;
    lists->masked_terms = scratch->masked_terms;
    lists->free_count = free_count;
    lists->masked_count = masked_count;
}

/* Two lists: terms whose products are below 64, which are all compared, and the others. Returns the largest product of
 * the first, in units. */
TARGET static double NAME(split_wide)(Scratch *scratch, const float *a_most, const float *b_most, ptrdiff_t terms,
                                      Lists *lists)
{
    ptrdiff_t masked_count = 0, wide_count = 0;
    double largest = 0.5;
    EACH(term, terms) {
        double most = (double)a_most[term] * (double)b_most[term] * UNITS + 0.5;
        int is_wide = most >= STRETCH_UNITS;
        scratch->masked_terms[masked_count] = scratch->wide_terms[wide_count] = (int32_t)term;
        masked_count += !is_wide;
        wide_count += is_wide;
        largest = is_wide || most < largest ? largest : most;
    }
    *lists = (Lists){scratch->order, scratch->masked_terms, scratch->wide_terms, 0, masked_count, wide_count};
    return largest;
}

/* One tile and chunk, by the fastest form that is exact for it. */
TARGET static void NAME(chunk_of_tile)(const Job *job, Scratch *scratch, ptrdiff_t top, ptrdiff_t panel,
                                       ptrdiff_t chunk)
{
    ptrdiff_t own = top / MR, start = chunk * KC, place = panel * job->depth + start, span;
    ptrdiff_t terms = job->depth - start < KC ? job->depth - start : KC;
    const float *a = scratch->value + top * KC, *thresholds = scratch->threshold + top * KC;
    const float *b = scratch->packed + place * NR;
    const float *a_most = scratch->term_most + own * KC, *b_most = scratch->most + place;
    double largest = (double)scratch->panel_most[own] * (double)scratch->chunk_most[panel * job->chunks + chunk];
    double term_units = largest * UNITS + 0.5, growth = (double)terms * term_units;
    ptrdiff_t corner = top * scratch->stride + panel * NR;
    Tile tile = {scratch->units + corner, scratch->lost + corner, scratch->stride};
    Lists lists;
    if (growth >= STRETCH_UNITS)
        growth = NAME(growth)(a_most, b_most, terms);
    if (!NAME(inside)(tile, growth)) {
        NAME(watched)(tile, a, thresholds, b, scratch->order, terms);
        return;
    }
    lists = (Lists){scratch->order, scratch->order, scratch->order, 0, 0, 0};
    if (term_units >= STRETCH_UNITS) {
        term_units = NAME(split_wide)(scratch, a_most, b_most, terms, &lists);
        if (lists.wide_count)
            NAME(wide)(tile, a, thresholds, b, lists.wide_terms, lists.wide_count);
        if (lists.masked_count == 0)
            return;
    } else {
        const float *limits = scratch->term_threshold + own * KC, *least = scratch->least + place;
        ptrdiff_t count = NAME(count_free)(limits, least, terms);
        /* Lists are not worth their making where few terms would gain by them. */
        if (count == terms)
            lists.free_count = terms;
        else if (count * 4 < terms)
            lists.masked_count = terms;
        else
            NAME(split)(scratch, limits, least, terms, &lists);
    }
    span = growth < STRETCH_UNITS ? terms : (ptrdiff_t)(STRETCH_UNITS / term_units);
    NAME(tile)(a, thresholds, b, &lists, span, scratch->sums);
    EACH(r, MR) {
        double *units = tile.units + r * tile.stride;
        const int32_t *sums = scratch->sums + r * NR;
        EACH(j, NR)
            units[j] += (double)sums[j];
    }
}

/* The sums of a block of rows and the packed panels, chunk by chunk in the order of the depth. */
TARGET static void NAME(block)(const Job *job, Scratch *scratch, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t panels)
{
    EACH(chunk, job->chunks) {
        ptrdiff_t start = chunk * KC, terms = job->depth - start < KC ? job->depth - start : KC;
        NAME(pack_rows)(job, scratch, row, rows, start, terms);
        EACH(panel, panels)
            for (ptrdiff_t top = 0; top < rows; top += MR)
                NAME(chunk_of_tile)(job, scratch, top, panel, chunk);
    }
}

/* fp16 bits of accumulators, or of any finite numbers where `lost` is NULL, in units of 1 / `unit` and infinite from
 * `ceiling` on. Adding half a step to the bits of a double rounds half away, carries and all. */
TARGET static void NAME(settle)(const double *units, const double *lost, double unit, double ceiling,
                                uint16_t *halves, ptrdiff_t count)
{
    EACH(i, count) {
        double value = lost && lost[i] != 0.0 ? lost[i] : units[i], size = fabs(value) * unit;
        uint64_t bits, sign, half, small;
        memcpy(&bits, &value, sizeof bits);
        sign = bits >> 48 & 0x8000u;
        memcpy(&bits, &size, sizeof bits);
        half = ((bits + (1ull << 41)) >> 42) - (1008ull << 10);
        /* Below 2^-14 in steps of 2^-24, whose count is the bits. */
        small = (uint64_t)(int32_t)((size < 0x1p-14 ? size : 0.0) * 0x1p24 + 0.5);
        half = size < 0x1p-14 ? small : half;
        half = size >= ceiling ? 0x7C00u : half;
        halves[i] = (uint16_t)(half | (half || !lost ? sign : 0u)); /* a sum of zero is +0 (N33) */
    }
}

#include "vector_end.h"

/* Exact products on a GPU: the arithmetic of aneforge/sim/mac.py, by the observations of native/mac.c.
 *
 * A product takes one fused multiply-add into a float accumulator of unit 1, which rounds it, and half a comparison:
 * whether its exponents drop it is |b| >= threshold(a), which fp16 pairs decide two at a time. A bound of magnitudes
 * says how many terms an accumulator may take before it is added to a whole number; a tile of terms with products too
 * large for it is done in doubles, and a chunk in which a sum might reach the ceiling term by term, in order. */
#ifndef BM
#define BM 64
#endif
#define BN 128
#define BK 16
#define THREADS (2 * BM)
#define CHUNK 256
#include "common.cuh"

#define MAGIC 12582912.0f
#define MAGIC_BITS 0x4B400000
#define WIDE_MAGIC 0x1.8p52
#define STRETCH_UNITS 4194303.0f
#define LOADS_B (BK * BN / THREADS)
#define STAGE (BK * (8 * BM + 6 * BN))

struct Product {
    const uint16_t *a, *b, *bias;
    const int *b_term, *b_column, *c_column; /* where a term of b lies, a column of b, a column of the result */
    const float *a_most, *b_most;            /* the largest of a term: [group][row block][depth], [group][depth] */
    uint16_t *halves;
    int *units;
    signed char *lost;
    long long a_group, a_outer, b_group, b_outer, b_sample, c_group, c_outer, c_sample, c_row;
    long long a_row, a_term, a_most_group, a_most_block, b_most_group;
    int rows, depth, columns, samples, groups, bias_group, bias_row, bias_column, bias_outer, flush;
    int a_dense, b_dense; /* whether eight terms are sixteen bytes in a row */
};

struct Eight {
    uint16_t at[8];
};

static __device__ __forceinline__ Eight eight_of(const uint16_t *from)
{
    Eight read;
#ifdef EMULATED
    memcpy(&read, from, 16);
#else
    *(uint4 *)&read = *(const uint4 *)from;
#endif
    return read;
}

/* Two terms of one row: the products whose |b| is at least the threshold are added. */
static __device__ __forceinline__ void two_terms(float &first, float &second, uint32_t sizes, uint32_t threshold,
                                                 float a, float b_first, float b_second)
{
#ifdef EMULATED
    if ((sizes & 0xFFFFu) >= (threshold & 0xFFFFu))
        first = fmaf(a, b_first, first);
    if (sizes >> 16 >= threshold >> 16)
        second = fmaf(a, b_second, second);
#else
    asm("{.reg .pred p, q;\n setp.ge.f16x2 p|q, %2, %3;\n @p fma.rn.f32 %0, %4, %5, %0;\n"
        " @q fma.rn.f32 %1, %4, %6, %1;}"
        : "+f"(first), "+f"(second)
        : "r"(sizes), "r"(threshold), "f"(a), "f"(b_first), "f"(b_second));
#endif
}

static __device__ __forceinline__ float unmoved(float value)
{
    uint32_t bits = as_bits(value);
    return as_float(bits & 0x7FFFFFFFu ? bits - 1u : 0u);
}

KERNEL(product, Product)
{
    SHARED(room);
    float *bounds = (float *)(room + 2 * STAGE); /* of two chunks in turn: one is read while the next is written */
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int row_block = blockIdx.y, first_row = row_block * BM;
    const long long first_column = (long long)blockIdx.x * BN;
    const int group = blockIdx.z % job.groups, outer = blockIdx.z / job.groups;
    const long long width = (long long)job.samples * job.columns;
    const uint32_t subnormals = job.flush ? 0u : ~0u;
    const int tiles = (job.depth + BK - 1) / BK;

    /* What this thread brings into shared memory. */
    const int a_line = tid % BM, a_first = tid / BM * (BK * BM / THREADS);
    const int b_line = tid % BN, b_first = tid / BN * LOADS_B;
    const int own_row = first_row + a_line;
    const bool has_row = own_row < job.rows;
    const uint16_t *a = job.a + group * job.a_group + outer * job.a_outer + (has_row ? own_row : 0) * job.a_row;
    const long long own_column = first_column + b_line;
    const bool has_column = own_column < width;
    const long long sample_of = has_column ? own_column / job.columns : 0;
    const int column_of = has_column ? (int)(own_column - sample_of * job.columns) : 0;
    const uint16_t *b = job.b + group * job.b_group + outer * job.b_outer + sample_of * job.b_sample +
                        job.b_column[column_of];
    uint16_t next_a[8], next_b[LOADS_B];

    auto fetch = [&](int tile) {
        int term = tile * BK + a_first;
        if (has_row && job.a_dense && term + 8 <= job.depth) {
            Eight read = eight_of(a + term);
#pragma unroll
            for (int i = 0; i < 8; i++)
                next_a[i] = read.at[i];
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                next_a[i] = has_row && term + i < job.depth ? a[(term + i) * job.a_term] : 0;
        }
        term = tile * BK + b_first;
#pragma unroll
        for (int part = 0; part < LOADS_B; part += 8) {
            if (has_column && job.b_dense && term + part + 8 <= job.depth) {
                Eight read = eight_of(b + term + part);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    next_b[part + i] = read.at[i];
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    int own = term + part + i;
                    next_b[part + i] = has_column && own < job.depth ? b[job.b_term[own]] : 0;
                }
            }
        }
    };
    auto keep = [&](int stage) {
        float *values = (float *)(room + stage * STAGE), *right = values + 2 * BK * BM;
        uint32_t *thresholds = (uint32_t *)(values + BK * BM);
        uint16_t *sizes = (uint16_t *)(right + BK * BN);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t bits = next_a[i], size = magnitude_bits(bits & 0x7FFFu, subnormals);
            uint32_t field = (bits >> 10) & 31u;
            field = field ? field : 1u;
            uint32_t threshold = size && field <= 12u ? (14u - field) << 10 : 0u;
            values[(a_first + i) * BM + a_line] =
                as_float((size ? size + (16u << 23) + 1u : 0u) | (bits & 0x8000u) << 16);
            thresholds[(a_first + i) * BM + a_line] = threshold | threshold << 16;
        }
#pragma unroll
        for (int i = 0; i < LOADS_B; i++) {
            uint32_t bits = next_b[i], size = bits & 0x7FFFu;
            right[(b_first + i) * BN + b_line] =
                as_float(magnitude_bits(size, subnormals) | (bits & 0x8000u) << 16);
            sizes[(b_first + i) * BN + b_line] = (uint16_t)(size < 0x7BFFu ? size : 0x7BFFu);
        }
    };

    /* The sums of this thread: eight rows and eight columns, each in two runs of four. */
    const int row_at = warp / 2 * 32 + lane / 8 * 4, column_at = warp % 2 * 64 + lane % 8 * 4;
    float sum[8][8];
    int total[8][8];
    uint64_t lost_up = 0, lost_down = 0;
    bool is_far = false;
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            int row = first_row + row_at + i % 4 + i / 4 * 16;
            long long column = first_column + column_at + j % 4 + j / 4 * 32;
            double start = 0.0;
            if (job.bias && row < job.rows && column < width) {
                uint16_t bits = job.bias[group * job.bias_group + outer * job.bias_outer + row * job.bias_row +
                                         (int)(column % job.columns) * job.bias_column];
                double size = floor(fabs(decoded(bits)) * UNITS + 0.5);
                start = bits & 0x8000u ? -size : size;
            }
            if (fabs(start) >= CEILING_UNITS) {
                (start < 0 ? lost_down : lost_up) |= 1ull << (8 * i + j);
                start = 0.0;
            }
            is_far |= fabs(start) >= CEILING_UNITS / 2;
            total[i][j] = (int)start;
            sum[i][j] = MAGIC;
        }
    }
    auto flush = [&] {
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                total[i][j] += (int)as_bits(sum[i][j]) - MAGIC_BITS;
                sum[i][j] = MAGIC;
            }
        }
    };
    float reach = (float)(CEILING_UNITS / 2), stretch = 0.0f;
    if (__syncthreads_or(is_far))
        reach = (float)CEILING_UNITS;
    bool is_watched = false;

    fetch(0);
    for (int tile = 0; tile < tiles; tile++) {
        const int stage = tile % 2;
        float *bound = bounds + tile / (CHUNK / BK) % 2 * CHUNK;
        keep(stage);
        if (tile % (CHUNK / BK) == 0) { /* bounds of the next terms, a little above the truth */
            for (int place = tid; place < CHUNK; place += THREADS) {
                int term = tile * BK + place;
                bound[place] = term < job.depth
                                    ? (job.a_most[group * job.a_most_group + row_block * job.a_most_block + term] *
                                           job.b_most[group * job.b_most_group + term] * 65536.0f +
                                       0.5f) * 1.001f
                                    : 0.0f;
            }
        }
        __syncthreads();
        if (tile + 1 < tiles)
            fetch(tile + 1);
        if (tile % (CHUNK / BK) == 0) {
            float growth = 0.0f;
            for (int place = 0; place < CHUNK; place++)
                growth += bound[place];
            reach += growth;
            is_watched = false;
            if (reach >= (float)CEILING_UNITS * 0.999f) { /* the bound does not say so: look at the sums */
                flush();
                stretch = 0.0f;
                bool is_near = false;
#pragma unroll
                for (int i = 0; i < 8; i++)
#pragma unroll
                    for (int j = 0; j < 8; j++)
                        if (!((lost_up | lost_down) >> (8 * i + j) & 1))
                            is_near |= fabs((double)total[i][j]) + (double)growth * 1.001 >= CEILING_UNITS;
                is_watched = __syncthreads_or(is_near);
            }
        }
        float step = 0.0f;
#pragma unroll
        for (int k = 0; k < BK; k++)
            step += bound[tile % (CHUNK / BK) * BK + k];

        const float *left = (const float *)(room + stage * STAGE), *right = left + 2 * BK * BM;
        const uint32_t *thresholds = (const uint32_t *)(left + BK * BM);
        const uint16_t *sizes = (const uint16_t *)(right + BK * BN);
        if (is_watched || step >= STRETCH_UNITS) {
            flush();
            stretch = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) {
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    const int row = row_at + i % 4 + i / 4 * 16, column = column_at + j % 4 + j / 4 * 32;
                    double own = is_watched ? (double)total[i][j] : WIDE_MAGIC;
                    int gone = (int)(lost_up >> (8 * i + j) & 1) - (int)(lost_down >> (8 * i + j) & 1);
#pragma unroll 1
                    for (int k = 0; k < BK; k++) {
                        double value = (double)unmoved(left[k * BM + row]);
                        double factor =
                            sizes[k * BN + column] >= (thresholds[k * BM + row] & 0xFFFFu) ? right[k * BN + column] : 0.0f;
                        if (is_watched) {
                            double part = value * factor;
                            own += trunc(part + copysign(0.5, part));
                            gone = gone ? gone : fabs(own) >= CEILING_UNITS ? (own < 0 ? -1 : 1) : 0;
                        } else {
                            value = as_double(double_bits(value) + (value != 0.0));
                            own = fma(value, factor, own);
                        }
                    }
                    if (is_watched) {
                        if (gone)
                            (gone < 0 ? lost_down : lost_up) |= 1ull << (8 * i + j);
                        total[i][j] = gone ? 0 : (int)own;
                    } else {
                        total[i][j] += (int)(long long)(own - WIDE_MAGIC);
                    }
                }
            }
        } else {
            stretch += step;
            if (stretch >= STRETCH_UNITS) {
                flush();
                stretch = step;
            }
#pragma unroll 4
            for (int k = 0; k < BK; k++) {
                float value[8], factor[8];
                uint32_t threshold[8], size[4];
#pragma unroll
                for (int part = 0; part < 2; part++) {
#ifdef EMULATED
                    memcpy(value + 4 * part, left + k * BM + row_at + 16 * part, 16);
                    memcpy(threshold + 4 * part, thresholds + k * BM + row_at + 16 * part, 16);
                    memcpy(factor + 4 * part, right + k * BN + column_at + 32 * part, 16);
                    memcpy(size + 2 * part, sizes + k * BN + column_at + 32 * part, 8);
#else
                    *(float4 *)(value + 4 * part) = *(const float4 *)(left + k * BM + row_at + 16 * part);
                    *(uint4 *)(threshold + 4 * part) = *(const uint4 *)(thresholds + k * BM + row_at + 16 * part);
                    *(float4 *)(factor + 4 * part) = *(const float4 *)(right + k * BN + column_at + 32 * part);
                    *(uint2 *)(size + 2 * part) = *(const uint2 *)(sizes + k * BN + column_at + 32 * part);
#endif
                }
#pragma unroll
                for (int i = 0; i < 8; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        two_terms(sum[i][2 * j], sum[i][2 * j + 1], size[j], threshold[i], value[i], factor[2 * j],
                                  factor[2 * j + 1]);
            }
        }
        /* The next tile goes into the other stage, which everybody has left at the barrier of this one. */
    }
    flush();
#pragma unroll
    for (int j = 0; j < 8; j++) {
        long long column = first_column + column_at + j % 4 + j / 4 * 32;
        if (column >= width)
            continue;
        long long sample = column / job.columns;
        long long place = group * job.c_group + outer * job.c_outer + sample * job.c_sample +
                          job.c_column[column - sample * job.columns];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int row = first_row + row_at + i % 4 + i / 4 * 16;
            if (row >= job.rows)
                continue;
            int gone = (int)(lost_up >> (8 * i + j) & 1) - (int)(lost_down >> (8 * i + j) & 1);
            if (job.halves) {
                job.halves[place + row * job.c_row] = settled((double)total[i][j], gone);
            } else {
                job.units[place + row * job.c_row] = total[i][j];
                job.lost[place + row * job.c_row] = (signed char)gone;
            }
        }
    }
}

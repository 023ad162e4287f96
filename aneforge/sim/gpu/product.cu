/* Exact products on a GPU: the arithmetic of aneforge/sim/mac.py, by the observations of native/mac.c.
 *
 * A product takes one fused multiply-add into a float accumulator of unit 1, which rounds it, and half a comparison:
 * whether its exponents drop it is |b| >= threshold(a), which fp16 pairs decide two at a time. A bound of magnitudes
 * says how many terms an accumulator may take before it is added to a whole number; a tile of terms with products too
 * large for it is done in doubles, and a chunk in which a sum might reach the ceiling term by term, in order. */
#ifndef BM
#define BM 64
#endif
#ifndef BLOCKS_AT_A_TIME
#define BLOCKS_AT_A_TIME 3
#endif
#define BN 128
#define BK 16
#define THREADS (2 * BM)
#define BOUNDS __launch_bounds__(THREADS, BLOCKS_AT_A_TIME)
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
    int rows, depth, columns, samples, groups, bias_group, flush;
    int a_dense, b_dense; /* whether eight terms are sixteen bytes in a row */
};

/* Eight fp16 numbers, two in a word. */
struct Eight {
    uint32_t at[4];
};

static __device__ __forceinline__ Eight eight_of(const uint16_t *from)
{
    Eight read;
#ifdef EMULATED
    memcpy(&read, from, 16);
#else
    uint4 words = *(const uint4 *)from;
    read.at[0] = words.x;
    read.at[1] = words.y;
    read.at[2] = words.z;
    read.at[3] = words.w;
#endif
    return read;
}

static __device__ __forceinline__ uint32_t one_of(const Eight &eight, int place)
{
    return eight.at[place / 2] >> (place % 2 * 16) & 0xFFFFu;
}

/* One term of a row and four columns: the products whose |b| is at least the threshold are added. */
static __device__ __forceinline__ void four_products(float *sum, const uint32_t *sizes, uint32_t threshold, float a,
                                                     const float *b)
{
#ifdef EMULATED
    for (int j = 0; j < 4; j++)
        if ((sizes[j / 2] >> (j % 2 * 16) & 0xFFFFu) >= (threshold & 0xFFFFu))
            sum[j] = fmaf(a, b[j], sum[j]);
#else
    asm("{.reg .pred p, q, r, s;\n setp.ge.f16x2 p|q, %4, %6;\n setp.ge.f16x2 r|s, %5, %6;\n"
        " @p fma.rn.f32 %0, %7, %8, %0;\n @q fma.rn.f32 %1, %7, %9, %1;\n"
        " @r fma.rn.f32 %2, %7, %10, %2;\n @s fma.rn.f32 %3, %7, %11, %3;}"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(sizes[0]), "r"(sizes[1]), "r"(threshold), "f"(a), "f"(b[0]), "f"(b[1]), "f"(b[2]), "f"(b[3]));
#endif
}

/* The fp16 number nearest to whole units of 2^-16, half away from zero. */
static __device__ __forceinline__ uint16_t half_of_units(int units, int gone)
{
    uint32_t size = units < 0 ? (uint32_t)-units : (uint32_t)units, half = size << 8;
#ifdef EMULATED
    int top = size ? 31 - __builtin_clz(size) : 0, shift = top - 10;
#else
    int top = 31 - __clz((int)size), shift = top - 10;
#endif
    if (size >= 4u) {
        uint32_t digits = shift > 0 ? (size + (1u << (shift - 1))) >> shift : size << -shift;
        half = ((uint32_t)(top - 1) << 10) + digits - 1024u;
    }
    if (gone)
        return gone < 0 ? 0xFC00u : 0x7C00u;
    return (uint16_t)(half | (units < 0 ? 0x8000u : 0u));
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
    Eight next_a, next_b[LOADS_B / 8];

    auto fetch = [&](int tile) {
        int term = tile * BK + a_first;
        if (has_row && job.a_dense && term + 8 <= job.depth) {
            next_a = eight_of(a + term);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t low = has_row && term + 2 * i < job.depth ? a[(term + 2 * i) * job.a_term] : 0u;
                uint32_t high = has_row && term + 2 * i + 1 < job.depth ? a[(term + 2 * i + 1) * job.a_term] : 0u;
                next_a.at[i] = low | high << 16;
            }
        }
        term = tile * BK + b_first;
#pragma unroll
        for (int part = 0; part < LOADS_B / 8; part++, term += 8) {
            if (has_column && job.b_dense && term + 8 <= job.depth) {
                next_b[part] = eight_of(b + term);
            } else {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int own = term + 2 * i;
                    uint32_t low = has_column && own < job.depth ? b[job.b_term[own]] : 0u;
                    uint32_t high = has_column && own + 1 < job.depth ? b[job.b_term[own + 1]] : 0u;
                    next_b[part].at[i] = low | high << 16;
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
            uint32_t bits = one_of(next_a, i), size = magnitude_bits(bits & 0x7FFFu, subnormals);
            uint32_t field = (bits >> 10) & 31u;
            field = field ? field : 1u;
            uint32_t threshold = size && field <= 12u ? (14u - field) << 10 : 0u;
            values[(a_first + i) * BM + a_line] =
                as_float((size ? size + (16u << 23) + 1u : 0u) | (bits & 0x8000u) << 16);
            thresholds[(a_first + i) * BM + a_line] = threshold | threshold << 16;
        }
#pragma unroll
        for (int i = 0; i < LOADS_B; i++) {
            uint32_t bits = one_of(next_b[i / 8], i % 8), size = bits & 0x7FFFu;
            right[(b_first + i) * BN + b_line] =
                as_float(magnitude_bits(size, subnormals) | (bits & 0x8000u) << 16);
            sizes[(b_first + i) * BN + b_line] = (uint16_t)(size < 0x7BFFu ? size : 0x7BFFu);
        }
    };

    /* The sums of this thread: eight rows and eight columns, each in two runs of four. */
    const int row_at = warp / 2 * 32 + lane / 8 * 4, column_at = warp % 2 * 64 + lane % 8 * 4;
    float sum[8][8];
    int *total = (int *)(bounds + 2 * CHUNK) + threadIdx.x; /* what was added to them is rarely needed: not in registers */
    uint64_t lost_up = 0, lost_down = 0;
    bool is_far = false;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int row = first_row + row_at + i % 4 + i / 4 * 16;
        double start = 0.0;
        if (job.bias && row < job.rows) {
            uint16_t bits = job.bias[group * job.bias_group + row];
            double size = floor(fabs(decoded(bits)) * UNITS + 0.5);
            start = bits & 0x8000u ? -size : size;
        }
        if (fabs(start) >= CEILING_UNITS) {
            (start < 0 ? lost_down : lost_up) |= 0xFFull << (8 * i);
            start = 0.0;
        }
        is_far |= fabs(start) >= CEILING_UNITS / 2;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            total[(8 * i + j) * THREADS] = (int)start;
            sum[i][j] = MAGIC;
        }
    }
    auto flush = [&] {
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                total[(8 * i + j) * THREADS] += (int)as_bits(sum[i][j]) - MAGIC_BITS;
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
                for (int place = 0; place < 64; place++)
                    if (!((lost_up | lost_down) >> place & 1))
                        is_near |= fabs((double)total[place * THREADS]) + (double)growth * 1.001 >= CEILING_UNITS;
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
#pragma unroll 1
            for (int place = 0; place < 64; place++) {
                const int i = place / 8, j = place % 8;
                const int row = row_at + i % 4 + i / 4 * 16, column = column_at + j % 4 + j / 4 * 32;
                int whole = total[place * THREADS];
                double own = is_watched ? (double)whole : WIDE_MAGIC;
                int gone = (int)(lost_up >> place & 1) - (int)(lost_down >> place & 1);
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
                        (gone < 0 ? lost_down : lost_up) |= 1ull << place;
                    whole = gone ? 0 : (int)own;
                } else {
                    whole += (int)(long long)(own - WIDE_MAGIC);
                }
                total[place * THREADS] = whole;
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
                    for (int half = 0; half < 2; half++)
                        four_products(sum[i] + 4 * half, size + 2 * half, threshold[i], value[i], factor + 4 * half);
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
                job.halves[place + row * job.c_row] = half_of_units(total[(8 * i + j) * THREADS], gone);
            } else {
                job.units[place + row * job.c_row] = total[(8 * i + j) * THREADS];
                job.lost[place + row * job.c_row] = (signed char)gone;
            }
        }
    }
}

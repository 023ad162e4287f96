/* One path of planar.c: included once for each instruction set, with PATH and TARGET defined. Plain loops, which
 * compilers turn into vector code. No include guard on purpose. */

/* fp16 numbers in double: what planar work reads. A NaN is +infinity. */
TARGET static void NAME(widen)(const uint16_t *in, double *out, ptrdiff_t count)
{
    EACH(i, count)
        out[i] = (double)read_half(in[i]);
}

/* Numbers to fp16, half away from zero; `twice` first to eleven significant bits. A NaN becomes +0. */
TARGET static void NAME(narrow)(const double *in, int twice, uint16_t *out, ptrdiff_t count)
{
    if (twice)
        EACH(i, count)
            out[i] = rounded_half(in[i], 1);
    else
        EACH(i, count)
            out[i] = rounded_half(in[i], 0);
}

#define PAIRS(operation, type, rounding) \
    if (a_step && b_step) { \
        EACH(i, count) { \
            type x = (type)read_half(a[i]), y = (type)read_half(b[i]); \
            out[i] = rounding(operation, 1); \
        } \
    } else if (a_step) { \
        type y = (type)read_half(*b); \
        EACH(i, count) { \
            type x = (type)read_half(a[i]); \
            out[i] = rounding(operation, 1); \
        } \
    } else { \
        type x = (type)read_half(*a); \
        EACH(i, count) { \
            type y = (type)read_half(b[i * b_step]); \
            out[i] = rounding(operation, 1); \
        } \
    }

/* A row of an elementwise operation; an operand of step zero is one number. */
TARGET static void NAME(pairs)(int operation, const uint16_t *a, ptrdiff_t a_step, const uint16_t *b, ptrdiff_t b_step,
                               uint16_t *out, ptrdiff_t count)
{
    switch (operation) {
    case 0:
        PAIRS(x + y, float, rounded_single)
        break;
    case 1:
        PAIRS(x - y, float, rounded_single)
        break;
    case 2:
        PAIRS(x * y, float, rounded_single)
        break;
    default:
        PAIRS(x / unsigned_zero(y), double, rounded_half)
        break;
    }
}
#undef PAIRS

/* A row through the gain-offset unit: one rounding. */
TARGET static void NAME(gained)(const uint16_t *in, const uint16_t *scale, ptrdiff_t scale_step,
                                const uint16_t *offset, ptrdiff_t offset_step, double gain, double bias,
                                double ceiling, uint16_t *out, ptrdiff_t count)
{
    if (scale_step || offset_step) {
        EACH(i, count) {
            double value = (double)read_half(in[i]) * gain * (double)read_half(scale[i * scale_step]);
            out[i] = capped_half(value + bias + (double)read_half(offset[i * offset_step]), ceiling);
        }
    } else {
        double factor = (double)read_half(*scale), start = (double)read_half(*offset);
        EACH(i, count)
            out[i] = capped_half((double)read_half(in[i]) * gain * factor + bias + start, ceiling);
    }
}

/* Whether any of the numbers is infinite or no number. */
TARGET static int NAME(special)(const uint16_t *in, ptrdiff_t count)
{
    ptrdiff_t start = 0;
    for (; start < count; start += 4096) {
        ptrdiff_t end = count - start < 4096 ? count : start + 4096;
        uint16_t found = 0;
        for (ptrdiff_t i = start; i < end; i++)
            found |= (in[i] & 0x7FFFu) >= 0x7C00u;
        if (found)
            return 1;
    }
    return 0;
}

/* Numbers between two keys; others become the ends. A NaN is +infinity. */
TARGET static void NAME(clamped)(const uint16_t *restrict in, uint16_t *restrict out, ptrdiff_t count, Ends ends)
{
    EACH(i, count) {
        uint16_t bits = (in[i] & 0x7FFFu) > 0x7C00u ? 0x7C00u : in[i];
        int16_t key = (int16_t)(bits & 0x8000u ? bits ^ 0x7FFFu : bits);
        bits = key < ends.low_key ? ends.low : bits;
        out[i] = key > ends.high_key ? ends.high : bits;
    }
}

/* Numbers of a host as it stores them. */
TARGET static void NAME(store)(const float *in, uint16_t *out, ptrdiff_t count)
{
    EACH(i, count)
        out[i] = stored_half(in[i]);
}

/* fp16 operands of the multipliers in float, where the largest exponent is an ordinary one. */
TARGET static void NAME(operands)(const uint16_t *in, float *out, ptrdiff_t count)
{
    EACH(i, count)
        out[i] = operand(in[i]);
}

/* Single-precision sums on top of a bias to fp16, half away, infinite from 2^15 on. */
TARGET static void NAME(settle_single)(const float *in, const uint16_t *bias, ptrdiff_t bias_step, uint16_t *out,
                                       ptrdiff_t count)
{
    if (bias_step)
        EACH(i, count)
            out[i] = settled_half(in[i] + operand(bias[i]));
    else {
        float start = bias ? operand(*bias) : 0.0f;
        EACH(i, count)
            out[i] = settled_half(in[i] + start);
    }
}

/* Adds a row of sums to another, rounded. */
TARGET static void NAME(add_steps)(const float *restrict in, float *restrict sums, ptrdiff_t count)
{
    for (ptrdiff_t first = 0; first < count; first += 16)
        EACH(j, 16)
            sums[first + j] = sum_step(sums[first + j] + in[first + j]);
}

/* Sums of lines of fp16 numbers, of `count` each: neighbours in trees, `run` of those in sequence, rounded at every
 * step; then exactly. `room` holds the lines twice, with their groups side by side, in blocks of 16. */
TARGET static void NAME(line_sums)(const uint16_t *in, ptrdiff_t lines, ptrdiff_t count, int tree, int run, float *room,
                                   double *out)
{
    ptrdiff_t size = (ptrdiff_t)tree * run, groups = lines * count / size, width = (groups + 15) / 16 * 16;
    float *all = room + size * width;
    EACH(i, lines * count)
        all[i] = read_half(in[i]);
    EACH(place, size) {
        EACH(group, groups)
            room[place * width + group] = all[group * size + place];
        memset(room + place * width + groups, 0, (size_t)(width - groups) * sizeof *room);
    }
    for (int step = 1; step < tree; step *= 2)
        for (ptrdiff_t place = 0; place < size; place += 2 * step)
            NAME(add_steps)(room + (place + step) * width, room + place * width, width);
    for (int place = 1; place < run; place++)
        NAME(add_steps)(room + place * tree * width, room, width);
    EACH(line, lines) {
        double total = 0.0;
        EACH(group, count / size)
            total += (double)*room++;
        out[line] = total;
    }
}

/* The softmax of some lines, step by step as aneforge/sim/rules/planar.py says; `powers` holds them padded, and what is
 * behind each line is zero. */
TARGET static void NAME(softmax_lines)(const Lines *job, const uint16_t *in, ptrdiff_t lines, float *room,
                                       uint16_t *powers, uint16_t *out)
{
    ptrdiff_t count = job->count;
    double totals[LINES];
    EACH(line, lines) {
        const uint16_t *own = in + line * count;
        uint16_t most, *shifted = out + line * count;
        int16_t largest = INT16_MIN;
        EACH(i, count) {
            uint16_t bits = (own[i] & 0x7FFFu) > 0x7C00u ? 0x7C00u : own[i];
            int16_t key = (int16_t)(bits & 0x8000u ? bits ^ 0x7FFFu : bits);
            largest = key > largest ? key : largest;
        }
        most = (uint16_t)(largest < 0 ? largest ^ 0x7FFF : largest);
        NAME(pairs)(1, own, 1, &most, 0, shifted, count);
        EACH(i, count)
            powers[line * job->padded + i] = job->table[shifted[i]];
    }
    NAME(line_sums)(powers, lines, job->padded, job->tree, job->run, room, totals);
    EACH(line, lines) {
        uint16_t whole = rounded_half(totals[line], 0);
        NAME(pairs)(3, powers + line * job->padded, 1, &whole, 0, out + line * count, count);
    }
}

/* The layer norm of a line in the same way; `own` holds three padded lines, which end in zeros. */
TARGET static void NAME(norm_line)(const Lines *job, const uint16_t *in, float *room, uint16_t *own, uint16_t *out)
{
    uint16_t *centred = own + job->padded, *other = centred + job->padded, mean, spread, root;
    const uint16_t *result;
    double total;
    memcpy(own, in, (size_t)job->count * sizeof *own);
    NAME(line_sums)(own, 1, job->padded, job->tree, job->run, room, &total);
    mean = rounded_half(total * job->share, 0);
    NAME(pairs)(1, in, 1, &mean, 0, centred, job->count);
    NAME(pairs)(2, centred, 1, centred, 1, own, job->count);
    NAME(line_sums)(own, 1, job->padded, job->tree, job->run, room, &total);
    mean = rounded_half(total * job->share, 0);
    NAME(pairs)(0, &mean, 0, &job->epsilon, 0, &spread, 1);
    root = job->table[spread];
    result = job->gamma || job->beta ? own : out;
    NAME(pairs)(2, centred, 1, &root, 0, job->gamma || job->beta ? own : out, job->count);
    if (job->gamma) {
        NAME(pairs)(2, result, 1, job->gamma, 1, job->beta ? other : out, job->count);
        result = other;
    }
    if (job->beta)
        NAME(pairs)(0, result, 1, job->beta, 1, out, job->count);
    memset(own + job->count, 0, (size_t)(job->padded - job->count) * sizeof *own);
}

#undef PATH
#undef TARGET

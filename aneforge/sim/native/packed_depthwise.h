/* Convolutions channel by channel. Part of packed.c. */
/* A depthwise convolution: every output channel reads one channel of the map. */
typedef struct {
    const Path *path;
    int exact;
    const uint16_t *map, *kernels, *bias;
    const ptrdiff_t *geometry;
    ptrdiff_t each, taps, positions; /* output channels of a channel; numbers of a kernel, of each position */
    double peak;
    uint16_t *out;
    atomic_ptrdiff_t next, done;
} Depthwise;

/* What a thread works on: one channel of the map, laid out in planes, and the sums of its result. Between the lines of
 * the result lie sums of what the map has around it: so all are one long line. */
typedef struct {
    uint16_t *padded, *line, *joined;
    float *map;
    int32_t *sums;
    ptrdiff_t offsets[DEPTHWISE_TAPS];
    ptrdiff_t pitch, reads;                   /* numbers from one padded line to the next, and those that are read */
    ptrdiff_t plane_rows, plane_width, apart; /* of a phase of the strides, or of a position of Winograd's form */
    ptrdiff_t size, whole; /* numbers of what one position reads; sums of one, in whole vectors */
} ChannelRoom;

/* The weights of one output, as the sums read them; returns whether every sum stays inside. */
static int depthwise_weights(const Depthwise *job, ptrdiff_t output, ptrdiff_t outputs, float *weights, ptrdiff_t *spans,
                             int32_t *first)
{
    double reach = 0.0, most = 0.0, start = read_starts(job->bias ? job->bias + output : NULL, 1, job->exact, first);
    uint32_t further = job->exact && job->path != &PORTABLE;
    float unit = job->exact ? UNITS : 1.0f;
    for (ptrdiff_t position = 0; position < job->positions; position++) {
        const uint16_t *halves = job->kernels + (position * outputs + output) * job->taps;
        float *own = weights + position * job->taps;
        double own_reach = 0.0, own_most = 0.0;
        for (ptrdiff_t tap = 0; tap < job->taps; tap++) {
            float value = operand(halves[tap]);
            double size = fabs((double)value);
            if (size >= 65536.0) /* an infinity or a NaN */
                return 0;
            own_reach += size;
            own_most = size > own_most ? size : own_most;
            own[tap] = as_float(as_bits(value * unit) + (value != 0.0f ? further : 0u));
        }
        if (own_reach * job->peak * (double)UNITS + 0.5 * (double)job->taps < (double)STRETCH)
            spans[position] = job->taps;
        else
            spans[position] = (ptrdiff_t)fmin((double)STRETCH / (own_most * job->peak * (double)UNITS + 0.5), (double)job->taps);
        reach += own_reach;
        most = own_most > most ? own_most : most;
    }
    return !job->exact || stays_inside(reach, most, job->peak, job->taps * job->positions, start);
}

static void settle_depthwise(const Depthwise *job, const ChannelRoom *room, int32_t start, uint16_t *out)
{
    ptrdiff_t rows = job->geometry[12], columns = job->geometry[13], width = room->plane_width;
    const uint16_t *line = room->line;
    uint16_t *odd = room->line + room->whole;
    if (job->positions == 1)
        job->path->settle_line(room->sums, job->exact, start, room->whole, room->line);
    else {
        for (ptrdiff_t j = 0; j < room->whole; j += job->path->nr)
            job->path->settle_pairs(room->sums + j, room->whole, start, room->line + j, odd + j);
        job->path->join_line(room->line, odd, room->whole, room->joined);
        line = room->joined;
        width *= 2;
    }
    if (width == columns)
        memcpy(out, line, (size_t)(rows * columns) * sizeof *out);
    else
        for (ptrdiff_t row = 0; row < rows; row++)
            memcpy(out + row * columns, line + row * width, (size_t)columns * sizeof *out);
}

/* Lays one channel out: first its lines with zeros around them, which are written once since every channel leaves them,
 * then the planes. Their lines are written in whole blocks, in the order of the rows: what lies behind a line is written
 * again by the next one. */
static void lay_planes(const Depthwise *job, const uint16_t *in, const ChannelRoom *room)
{
    const ptrdiff_t *geometry = job->geometry;
    ptrdiff_t height = geometry[1], width = geometry[2], row_stride = geometry[5], stride = geometry[6];
    ptrdiff_t top = geometry[9], left = geometry[10], rows = room->plane_rows * row_stride, pitch = room->pitch;
    ptrdiff_t skipped = left < 0 ? -left : 0, place = left < 0 ? 0 : left, end = least_of(height, rows - top);
    ptrdiff_t count = least_of(width - skipped, room->reads - place), row = 0, phase = 0;
    for (ptrdiff_t y = top < 0 ? -top : 0; y < end && count > 0; y++)
        memcpy(room->padded + (y + top) * pitch + place, in + y * width + skipped, (size_t)count * sizeof *in);
    if (room->pitch == room->plane_width) {
        job->path->read_floats(room->padded, rows * pitch, room->map);
        return;
    }
    for (ptrdiff_t y = 0; y < rows; y++) {
        const uint16_t *line = room->padded + y * pitch;
        float *out = room->map + phase * stride * room->apart + row * room->plane_width;
        if (job->positions > 1)
            job->path->turn_floats(line, room->plane_width, room->apart, out);
        else if (stride == 2)
            job->path->split_floats(line, room->plane_width, out, out + room->apart);
        else
            for (ptrdiff_t column = 0; column < stride; column++)
                for (ptrdiff_t j = 0; j < room->plane_width; j++)
                    out[column * room->apart + j] = operand(line[j * stride + column]);
        if (++phase == row_stride) { /* a division takes as long as a line */
            phase = 0;
            row++;
        }
    }
}

/* Returns whether every sum stays inside. */
static int depthwise_channel(const Depthwise *job, ptrdiff_t channel, const ChannelRoom *room)
{
    ptrdiff_t plane = job->geometry[12] * job->geometry[13];
    lay_planes(job, job->map + channel * job->geometry[1] * job->geometry[2], room);
    for (ptrdiff_t output = channel * job->each; output < (channel + 1) * job->each; output++) {
        float weights[DEPTHWISE_TAPS];
        ptrdiff_t spans[POSITIONS];
        int32_t start;
        if (!depthwise_weights(job, output, job->geometry[11], weights, spans, &start))
            return 0;
        if (job->exact || job->path == &PORTABLE)
            memset(room->sums, 0, (size_t)(room->whole * job->positions) * sizeof *room->sums);
        for (ptrdiff_t position = 0; position < job->positions; position++) {
            const float *map = room->map + position * room->size, *own = weights + position * job->taps;
            int32_t *sums = room->sums + position * room->whole;
            if (job->exact)
                job->path->depthwise_exact(map, room->offsets, own, job->taps, spans[position], room->whole, sums);
            else
                job->path->depthwise_fast(map, room->offsets, own, job->taps, room->whole, (float *)sums);
        }
        settle_depthwise(job, room, start, job->out + output * plane);
    }
    return 1;
}

static void depthwise_work(void *argument)
{
    Depthwise *job = argument;
    const ptrdiff_t *geometry = job->geometry;
    ptrdiff_t row_stride = geometry[5], stride = geometry[6];
    int turned = job->positions == POSITIONS;
    ptrdiff_t kernel_columns = turned ? 1 : geometry[4], reach = (kernel_columns - 1) * geometry[8] + stride - 1;
    ChannelRoom room;
    room.plane_rows = geometry[12] + ((geometry[3] - 1) * geometry[7] + row_stride - 1) / row_stride;
    room.plane_width = turned ? (geometry[13] + 1) / 2 : geometry[13] + reach / stride;
    room.apart = (room.plane_rows * room.plane_width + 16 + 15) / 16 * 16;
    room.size = row_stride * stride * room.apart;
    room.whole = (geometry[12] * room.plane_width + WIDEST / 2 - 1) / (WIDEST / 2) * (WIDEST / 2);
    room.reads = turned ? 2 * room.plane_width + 2 : stride * room.plane_width;
    room.pitch = row_stride == 1 && stride == 1 && !turned ? room.plane_width : room.reads + 32;
    /* Whole vectors of sums read behind the last plane. */
    size_t numbers = rounded_up((size_t)(room.size * job->positions + WIDEST)), sums = (size_t)room.whole * POSITIONS;
    size_t padded = rounded_up((size_t)(room.plane_rows * row_stride * room.pitch + WIDEST));
    char *memory = room_of(FOR_PIECES, numbers * sizeof(float) + sums * sizeof(int32_t) +
                                           (padded + sums) * sizeof(uint16_t));
    if (!memory)
        return;
    room.map = (float *)memory;
    room.sums = (int32_t *)(room.map + numbers);
    room.padded = (uint16_t *)(room.sums + sums);
    room.line = room.padded + padded;
    room.joined = room.line + 2 * room.whole;
    memset(room.map, 0, numbers * sizeof *room.map);
    memset(room.padded, 0, padded * sizeof *room.padded);
    for (ptrdiff_t tap = 0; tap < job->taps; tap++) {
        ptrdiff_t y = tap / kernel_columns * geometry[7], x = tap % kernel_columns * geometry[8];
        room.offsets[tap] = (y % row_stride * stride + x % stride) * room.apart +
                            y / row_stride * room.plane_width + x / stride;
    }
    for (;;) {
        ptrdiff_t channel = atomic_fetch_add(&job->next, 1);
        if (channel >= geometry[0])
            return;
        atomic_fetch_add(&job->done, depthwise_channel(job, channel, &room));
    }
}

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

/* What a thread works on: one channel of the map, laid out, and the sums of its result. Between the lines of the result
 * lie sums of what the map has around it: so all are one long line. */
typedef struct {
    uint16_t *halves, *lines, *line;
    float *map;
    int32_t *sums;
    ptrdiff_t offsets[DEPTHWISE_TAPS];
    ptrdiff_t size, whole; /* numbers of one position of the map; sums of one, in whole vectors */
} ChannelRoom;

/* The weights of one output, as the sums read them; returns whether every sum stays inside. */
static int depthwise_weights(const Depthwise *job, ptrdiff_t output, ptrdiff_t outputs, float *weights, ptrdiff_t *spans,
                             int32_t *first)
{
    double reach = 0.0, most = 0.0, start = read_starts(job->bias ? job->bias + output : NULL, 1, job->exact, first);
    for (ptrdiff_t position = 0; position < job->positions; position++) {
        double own_reach = 0.0, own_most = 0.0;
        for (ptrdiff_t tap = 0; tap < job->taps; tap++) {
            uint32_t half = job->kernels[(position * outputs + output) * job->taps + tap];
            float value = operand(half) * (job->exact ? UNITS : 1.0f);
            if ((half & 0x7FFFu) >= 0x7C00u)
                return 0;
            own_reach += fabs((double)operand(half));
            own_most = fmax(own_most, fabs((double)operand(half)));
            weights[position * job->taps + tap] =
                as_float(as_bits(value) + (job->exact && job->path != &PORTABLE && value != 0.0f));
        }
        spans[position] = (ptrdiff_t)fmin((double)STRETCH / (own_most * job->peak * (double)UNITS + 0.5), (double)job->taps);
        if (own_reach * job->peak * (double)UNITS + 0.5 * (double)job->taps < (double)STRETCH)
            spans[position] = job->taps;
        reach += own_reach;
        most = fmax(most, own_most);
    }
    return !job->exact || stays_inside(reach, most, job->peak, job->taps * job->positions, start);
}

/* The lines of the result lie `width` sums apart. */
static void settle_depthwise(const Depthwise *job, const ChannelRoom *room, ptrdiff_t width, int32_t start,
                             uint16_t *out)
{
    ptrdiff_t rows = job->geometry[12], columns = job->geometry[13];
    uint16_t *odd = room->line + room->whole;
    if (job->positions == 1)
        job->path->settle_line(room->sums, job->exact, start, room->whole, room->line);
    else
        for (ptrdiff_t j = 0; j < room->whole; j += job->path->nr)
            job->path->settle_pairs(room->sums + j, room->whole, start, room->line + j, odd + j);
    for (ptrdiff_t row = 0; row < rows; row++, out += columns) {
        const uint16_t *line = room->line + row * width, *other = odd + row * width;
        if (job->positions == 1) {
            memcpy(out, line, (size_t)columns * sizeof *out);
            continue;
        }
        for (ptrdiff_t j = 0; j < columns / 2; j++) {
            out[2 * j] = line[j];
            out[2 * j + 1] = other[j];
        }
        if (columns % 2)
            out[columns - 1] = line[columns / 2];
    }
}

/* Returns whether every sum stays inside. */
static int depthwise_channel(const Depthwise *job, const Layout *form, ptrdiff_t channel, const ChannelRoom *room)
{
    ptrdiff_t rows = job->geometry[12], columns = job->geometry[13], all = room->size * job->positions;
    Layout layout = {.path = job->path, .in = job->map + channel * form->height * form->width, .channels = 1,
                     .height = form->height, .width = form->width, .top = form->top, .left = form->left,
                     .row_stride = form->row_stride, .stride = form->stride, .plane_rows = form->plane_rows,
                     .plane_width = form->plane_width, .apart = room->size, .tiles = form->tiles, .out = room->halves};
    lay_channel(&layout, 0, room->lines);
    memset(room->halves + all, 0, 96 * sizeof *room->halves);
    job->path->read_floats(room->halves, (all + 95) / 16 * 16, room->map);
    for (ptrdiff_t output = channel * job->each; output < (channel + 1) * job->each; output++) {
        float weights[DEPTHWISE_TAPS];
        ptrdiff_t spans[POSITIONS];
        int32_t start;
        if (!depthwise_weights(job, output, job->geometry[11], weights, spans, &start))
            return 0;
        memset(room->sums, 0, (size_t)(room->whole * job->positions) * sizeof *room->sums);
        for (ptrdiff_t position = 0; position < job->positions; position++) {
            const float *map = room->map + position * room->size, *own = weights + position * job->taps;
            int32_t *sums = room->sums + position * room->whole;
            if (job->exact)
                job->path->depthwise_exact(map, room->offsets, own, job->taps, spans[position], room->whole, sums);
            else
                job->path->depthwise_fast(map, room->offsets, own, job->taps, room->whole, (float *)sums);
        }
        settle_depthwise(job, room, form->plane_width, start, job->out + output * rows * columns);
    }
    return 1;
}

static void depthwise_work(void *argument)
{
    Depthwise *job = argument;
    const ptrdiff_t *geometry = job->geometry;
    int turned = job->positions == POSITIONS;
    ptrdiff_t kernel_columns = turned ? 1 : geometry[4], tiles = turned ? (geometry[13] + 1) / 2 : 0;
    Layout form = {.height = geometry[1], .width = geometry[2], .top = geometry[9], .left = geometry[10],
                   .row_stride = geometry[5], .stride = geometry[6], .tiles = tiles};
    ChannelRoom room;
    form.plane_rows = geometry[12] + ((geometry[3] - 1) * geometry[7] + form.row_stride - 1) / form.row_stride;
    form.plane_width =
        turned ? tiles : geometry[13] + ((kernel_columns - 1) * geometry[8] + form.stride - 1) / form.stride;
    room.size = form.row_stride * form.stride * form.plane_rows * form.plane_width;
    room.whole = (geometry[12] * form.plane_width + WIDEST / 2 - 1) / (WIDEST / 2) * (WIDEST / 2);
    size_t numbers = rounded_up((size_t)(room.size * job->positions + 128)), width = (size_t)room.whole;
    size_t lines = (size_t)line_room(&form) * (2 + POSITIONS);
    char *memory = room_of(FOR_PIECES, numbers * (sizeof(uint16_t) + sizeof(float)) +
                                           width * POSITIONS * sizeof(int32_t) + (2 * width + lines) * sizeof(uint16_t));
    if (!memory)
        return;
    room.map = (float *)memory;
    room.sums = (int32_t *)(room.map + numbers);
    room.halves = (uint16_t *)(room.sums + width * POSITIONS);
    room.line = room.halves + numbers;
    room.lines = room.line + 2 * width;
    memset(room.lines, 0, lines * sizeof *room.lines);
    for (ptrdiff_t tap = 0; tap < job->taps; tap++) {
        ptrdiff_t y = tap / kernel_columns * geometry[7], x = tap % kernel_columns * geometry[8];
        room.offsets[tap] = ((y % form.row_stride * form.stride + x % form.stride) * form.plane_rows +
                             y / form.row_stride) * form.plane_width + x / form.stride;
    }
    for (;;) {
        ptrdiff_t channel = atomic_fetch_add(&job->next, 1);
        if (channel >= geometry[0])
            return;
        atomic_fetch_add(&job->done, depthwise_channel(job, &form, channel, &room));
    }
}

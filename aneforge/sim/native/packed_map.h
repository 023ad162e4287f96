/* Maps, laid out for a convolution. Part of packed.c. */
/* A map laid out for a convolution: zeros around it, and a plane for each phase of the strides, so that neighbours of
 * a line of the result lie side by side. Of Winograd's form four planes of transformed lines. */
typedef struct {
    const Path *path;
    const uint16_t *in;
    ptrdiff_t channels, height, width, top, left, row_stride, stride;
    ptrdiff_t plane_rows, plane_width, apart; /* of one phase or position; numbers between positions */
    ptrdiff_t tiles;                          /* of a line; zero but for Winograd's form */
    uint16_t *out;
    atomic_ptrdiff_t next;
} Layout;

/* A line of the map with zeros around it: `count` numbers from column `first` on, `step` apart. */
static void copy_line(const uint16_t *restrict in, ptrdiff_t width, ptrdiff_t first, ptrdiff_t step, ptrdiff_t count,
                      uint16_t *restrict out)
{
    ptrdiff_t begin = first < 0 ? least_of((-first + step - 1) / step, count) : 0;
    ptrdiff_t end = first >= width ? 0 : least_of((width - first - 1) / step + 1, count);
    end = end < begin ? begin : end;
    memset(out, 0, (size_t)begin * sizeof *out);
    if (step == 1)
        memcpy(out + begin, in + first + begin, (size_t)(end - begin) * sizeof *out);
    else if (step == 2) /* a step that compilers know becomes vector code */
        for (ptrdiff_t j = begin; j < end; j++)
            out[j] = in[first + 2 * j];
    else
        for (ptrdiff_t j = begin; j < end; j++)
            out[j] = in[first + j * step];
    memset(out + end, 0, (size_t)(count - end) * sizeof *out);
}

/* Numbers of a line of one Winograd operand, with what whole blocks read and write behind it. */
static ptrdiff_t line_room(const Layout *layout) { return (layout->tiles + 63) / 32 * 32; }

static void lay_channel(const Layout *layout, ptrdiff_t channel, uint16_t *lines)
{
    const uint16_t *in = layout->in + channel * layout->height * layout->width;
    ptrdiff_t phases = layout->row_stride * layout->stride, count = layout->plane_width;
    if (layout->tiles) {
        ptrdiff_t room = line_room(layout);
        uint16_t *padded = lines, *made = lines + 2 * room;
        for (ptrdiff_t row = 0; row < layout->plane_rows; row++) {
            ptrdiff_t y = row - layout->top;
            uint16_t *out = layout->out + (channel * layout->plane_rows + row) * count;
            if (y < 0 || y >= layout->height) {
                for (ptrdiff_t position = 0; position < POSITIONS; position++)
                    memset(out + position * layout->apart, 0, (size_t)count * sizeof *out);
                continue;
            }
            copy_line(in + y * layout->width, layout->width, -layout->left, 1, 2 * layout->tiles + 2, padded);
            layout->path->turn_line(padded, layout->tiles, room, made);
            for (ptrdiff_t position = 0; position < POSITIONS; position++)
                memcpy(out + position * layout->apart, made + position * room, (size_t)count * sizeof *out);
        }
        return;
    }
    for (ptrdiff_t phase = 0; phase < phases; phase++)
        for (ptrdiff_t row = 0; row < layout->plane_rows; row++) {
            ptrdiff_t y = row * layout->row_stride + phase / layout->stride - layout->top;
            uint16_t *out = layout->out + ((channel * phases + phase) * layout->plane_rows + row) * count;
            if (y < 0 || y >= layout->height)
                memset(out, 0, (size_t)count * sizeof *out);
            else
                copy_line(in + y * layout->width, layout->width, phase % layout->stride - layout->left, layout->stride,
                          count, out);
        }
}

static void layout_work(void *argument)
{
    Layout *layout = argument;
    uint16_t *lines = NULL;
    if (layout->tiles) {
        size_t size = (size_t)line_room(layout) * (2 + POSITIONS) * sizeof *lines;
        lines = room_of(FOR_PIECES, size);
        if (!lines)
            return;
        memset(lines, 0, size);
    }
    for (;;) {
        ptrdiff_t channel = atomic_fetch_add(&layout->next, 1);
        if (channel >= layout->channels)
            return;
        lay_channel(layout, channel, lines);
    }
}

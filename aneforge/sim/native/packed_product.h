/* Products of rows and columns, piece by piece. Part of packed.c. */
/* A product of every position: [rows, depth] x [depth, columns] to fp16 numbers. */
typedef struct {
    const Path *path;
    int exact;
    ptrdiff_t positions, rows, depth, columns;
    Stored row_parts[POSITIONS], column_parts; /* the latter where columns are stored */
    const uint16_t *map[POSITIONS];            /* else they are gathered */
    const ptrdiff_t *offsets;                  /* of every term in the map */
    ptrdiff_t width, pitch;                    /* of a line of columns, and from one line of the map to the next */
    int bare;                                  /* nothing may be read behind the map */
    const int32_t *starts;                     /* exact: units; fast: the bits of floats */
    ptrdiff_t row_start, column_start;         /* their steps */
    uint16_t *out;
    ptrdiff_t out_plane; /* from the results of one row to those of the next */
    ptrdiff_t out_width; /* of positions: numbers of a line of the result */
    ptrdiff_t pieces, row_group, row_groups, panels, panel_block;
    atomic_ptrdiff_t next, done;
} Product;

/* What one thread works on. */
typedef struct {
    float *packed, *rows, *thresholds, *room;
    int32_t *sums;
    float *most;     /* of gathered columns: [position][panel][group] of a chunk */
    uint8_t *low;    /* [position][panel][term] of a chunk */
    Segments *segments;
} Room;

static ptrdiff_t least_of(ptrdiff_t x, ptrdiff_t y) { return x < y ? x : y; }

static Room room_for(const Product *product, int *failed)
{
    const Path *path = product->path;
    size_t panels = (size_t)(product->positions * product->panel_block), terms = (size_t)least_of(product->depth, KC);
    size_t row_panels = product->depth > KC ? (size_t)((product->row_group + path->mr - 1) / path->mr) : 1;
    size_t sizes[8] = {(panels * terms + 4) * (size_t)path->nr * sizeof(float), terms * (size_t)path->mr * sizeof(float),
                       terms * (size_t)path->mr * sizeof(float), terms * (size_t)path->nr * sizeof(float),
                       panels * row_panels * (size_t)(path->mr * path->nr) * sizeof(int32_t),
                       panels * (KC / GROUP) * sizeof(float), panels * terms,
                       (size_t)product->panel_block * sizeof(Segments)};
    char *parts[8], *memory;
    size_t whole = 0;
    for (int part = 0; part < 8; part++)
        whole += rounded_up(sizes[part]);
    memory = room_of(FOR_PIECES, whole);
    *failed = !memory;
    for (int part = 0; memory && part < 8; part++) {
        parts[part] = memory;
        memory += rounded_up(sizes[part]);
    }
    if (*failed)
        return (Room){0};
    return (Room){(float *)parts[0], (float *)parts[1], (float *)parts[2], (float *)parts[3],
                  (int32_t *)parts[4], (float *)parts[5], (uint8_t *)parts[6], (Segments *)parts[7]};
}

/* The runs of neighbours that some columns are. */
static void find_segments(const Product *product, ptrdiff_t first, ptrdiff_t count, Segments *segments)
{
    ptrdiff_t done = 0;
    segments->count = 0;
    segments->partial = count < product->path->nr;
    segments->copied = product->bare && segments->partial;
    while (done < count) {
        ptrdiff_t line = (first + done) / product->width, place = (first + done) % product->width;
        ptrdiff_t length = least_of(product->width - place, count - done), each = segments->count++;
        segments->offset[each] = line * product->pitch + place;
        segments->start[each] = (int32_t)done;
        segments->length[each] = (int32_t)length;
        done += length;
    }
}

/* The panels of a block for one chunk. */
static void read_columns(const Product *product, const Room *room, ptrdiff_t panel, ptrdiff_t panels, ptrdiff_t start,
                         ptrdiff_t terms)
{
    ptrdiff_t nr = product->path->nr;
    for (ptrdiff_t position = 0; position < product->positions; position++)
        for (ptrdiff_t each = 0; each < panels; each++) {
            ptrdiff_t own = position * product->panel_block + each;
            float *out = room->packed + own * terms * nr;
            if (product->offsets)
                product->path->gather(product->map[position], product->offsets + start, terms, room->segments + each,
                                      product->exact, out, room->most + own * (KC / GROUP), room->low + own * terms);
            else
                product->path->read_columns(
                    product->column_parts.halves + ((panel + each) * product->depth + start) * nr, terms, out);
        }
}

static void settle_tile(const Product *product, const int32_t *sums, ptrdiff_t apart, ptrdiff_t row, ptrdiff_t rows,
                        ptrdiff_t panel, const Segments *segments)
{
    const Path *path = product->path;
    ptrdiff_t column = panel * path->nr, columns = least_of(path->nr, product->columns - column);
    uint16_t line[WIDEST], other[WIDEST];
    for (ptrdiff_t r = 0; r < rows; r++, sums += path->nr) {
        const int32_t *starts = product->starts + (row + r) * product->row_start + column * product->column_start;
        uint16_t *out = product->out + (row + r) * product->out_plane + column;
        if (product->positions == POSITIONS) {
            path->settle_pairs(sums, apart, *starts, line, other);
            for (ptrdiff_t each = 0; each < segments->count; each++) {
                ptrdiff_t first = segments->start[each], tile = (column + first) % product->width;
                ptrdiff_t y = (column + first) / product->width;
                out = product->out + (row + r) * product->out_plane + y * product->out_width + 2 * tile;
                ptrdiff_t left = product->out_width - 2 * tile;
                for (ptrdiff_t j = 0; j < segments->length[each]; j++, left -= 2) {
                    out[2 * j] = line[first + j];
                    if (left > 1)
                        out[2 * j + 1] = other[first + j];
                }
            }
            continue;
        }
        uint16_t *to = columns == path->nr ? out : line;
        if (product->exact)
            path->settle_exact(sums, starts, product->column_start, to);
        else
            path->settle_fast((const float *)sums, (const float *)starts, product->column_start, to);
        if (to == line)
            memcpy(out, line, (size_t)columns * sizeof *out);
    }
}

/* Some panels of columns and a group of rows. */
static void product_piece(const Product *product, ptrdiff_t number, const Room *room)
{
    const Path *path = product->path;
    ptrdiff_t row = number % product->row_groups * product->row_group;
    ptrdiff_t panel = number / product->row_groups * product->panel_block;
    ptrdiff_t row_end = least_of(product->rows, row + product->row_group);
    ptrdiff_t panels = least_of(product->panels - panel, product->panel_block);
    ptrdiff_t size = path->mr * path->nr, apart = product->panel_block * size;
    int few = !product->offsets && product->rows <= FEW && path != &PORTABLE, several = product->depth > KC;
    if (product->offsets)
        for (ptrdiff_t each = 0; each < panels; each++)
            find_segments(product, (panel + each) * path->nr,
                          least_of(path->nr, product->columns - (panel + each) * path->nr), room->segments + each);
    for (ptrdiff_t start = 0; start < product->depth; start += KC) {
        ptrdiff_t terms = least_of(product->depth - start, KC);
        int opens = start == 0, closes = start + terms == product->depth;
        if (!few)
            read_columns(product, room, panel, panels, start, terms);
        for (ptrdiff_t top = row; top < row_end; top += path->mr) {
            ptrdiff_t row_panel = top / path->mr, rows = least_of(path->mr, product->rows - top);
            int32_t *held = room->sums + (several ? (top - row) / path->mr * product->positions * apart : 0);
            for (ptrdiff_t position = 0; position < product->positions; position++) {
                const Stored *part = &product->row_parts[position];
                int has_thresholds = 0;
                path->read_rows(part->halves + (row_panel * product->depth + start) * path->mr, terms, product->exact,
                                room->rows);
                for (ptrdiff_t each = 0; each < panels; each++) {
                    ptrdiff_t own = position * product->panel_block + each, at = panel + each;
                    int32_t *sums = held + own * size;
                    Chunk chunk = {.a = room->rows, .b = room->packed + own * terms * path->nr, .terms = terms,
                                   .rows = (int)rows, .thresholds = room->thresholds, .room = room->room,
                                   .has_thresholds = &has_thresholds};
                    chunk.narrow = product->columns - at * path->nr <= path->nr / 2;
                    if (few)
                        chunk.halves = product->column_parts.halves + (at * product->depth + start) * path->nr;
                    if (opens)
                        memset(sums, 0, (size_t)size * sizeof *sums);
                    if (!product->exact) {
                        path->fast_tile(&chunk, (float *)sums);
                        continue;
                    }
                    chunk.a_low = part->low + row_panel * product->depth + start;
                    chunk.sums = part->by_group + row_panel * part->groups + start / GROUP;
                    chunk.a_most = part->panel_most[row_panel];
                    if (product->offsets) {
                        chunk.b_low = room->low + own * terms;
                        chunk.most = room->most + own * (KC / GROUP);
                    } else {
                        const Stored *columns = &product->column_parts;
                        chunk.b_low = columns->low + at * product->depth + start;
                        chunk.most = columns->by_group + at * columns->groups + start / GROUP;
                    }
                    path->tile(&chunk, sums);
                }
            }
            if (closes)
                for (ptrdiff_t each = 0; each < panels; each++)
                    settle_tile(product, held + each * size, apart, top, rows, panel + each,
                                room->segments + each);
        }
    }
}

static void product_work(void *argument)
{
    Product *product = argument;
    int failed;
    Room room = room_for(product, &failed);
    if (failed)
        return; /* somebody else does the pieces; all failed if nobody could */
    for (;;) {
        ptrdiff_t number = atomic_fetch_add(&product->next, 1);
        if (number >= product->pieces)
            return;
        product_piece(product, number, &room);
        atomic_fetch_add(&product->done, 1);
    }
}

/* As many panels as the cache holds, and groups of rows where those make too few pieces for every thread to get
 * several: a group gathers its panels again. */
static void cut(Product *product, int threads)
{
    ptrdiff_t nr = product->path->nr, mr = product->path->mr, enough = threads == 1 ? 1 : 3 * (ptrdiff_t)threads;
    ptrdiff_t terms = least_of(product->depth, KC), most = PACKED_FLOATS / (product->positions * terms * nr);
    most = least_of(least_of(most, BLOCK_COLUMNS / nr), (product->columns + nr - 1) / nr);
    product->panels = (product->columns + nr - 1) / nr;
    product->panel_block = most < 1 ? 1 : most;
    product->row_group = (product->rows + mr - 1) / mr * mr;
    if (product->depth > KC) {
        ptrdiff_t held = HELD_SUMS / (product->positions * product->panel_block * nr) / mr * mr;
        product->row_group = least_of(product->row_group, held < mr ? mr : held);
    }
    for (;;) {
        ptrdiff_t blocks = (product->panels + product->panel_block - 1) / product->panel_block;
        product->row_groups = (product->rows + product->row_group - 1) / product->row_group;
        product->pieces = product->row_groups * blocks;
        if (product->pieces >= enough)
            return;
        if (product->row_group > 16 * mr)
            product->row_group = (product->row_group / 2 + mr - 1) / mr * mr;
        else if (product->panel_block > 1)
            product->panel_block = (product->panel_block + 1) / 2;
        else if (product->row_group > 4 * mr)
            product->row_group = (product->row_group / 2 + mr - 1) / mr * mr;
        else
            return;
    }
}

static int worthwhile(int threads, double work_units)
{
    double most = 1.0 + work_units / WORK_OF_A_THREAD;
    threads = threads < 1 ? 1 : threads;
    return threads < most ? threads : (int)most;
}

static int multiplied(Product *product, int threads)
{
    threads = worthwhile(threads, (double)(product->positions * product->rows) * (double)product->depth *
                                      (double)product->columns);
    cut(product, threads);
    atomic_init(&product->next, 0);
    atomic_init(&product->done, 0);
    aneforge_crew(product_work, product, threads < product->pieces ? threads : (int)product->pieces);
    return atomic_load(&product->done) == product->pieces ? 0 : -1;
}

/* Whether no sum can reach the ceiling, and a float accumulator holds every product. */
static int stays_inside(double reach, double row_most, double column_most, ptrdiff_t depth, double start)
{
    return row_most * column_most < (double)LARGEST_PRODUCT &&
           reach * column_most * 65536.0 * 1.0001 + (double)depth + start < CEILING;
}

/* The bias as start values; returns the largest magnitude in units, or infinity. */
static double read_starts(const uint16_t *bias, ptrdiff_t count, int exact, int32_t *starts)
{
    double most = 0.0;
    for (ptrdiff_t i = 0; i < count; i++) {
        float value = bias ? operand(bias[i]) : 0.0f;
        double size = floor(fabs((double)value) * 65536.0 + 0.5);
        most = size > most ? size : most;
        if (exact)
            starts[i] = size < CEILING ? (int32_t)(value < 0.0f ? -size : size) : 0;
        else
            memcpy(starts + i, &value, sizeof value);
    }
    return most;
}

/* Memory that is kept, and operands as they are stored. Part of packed.c. */
/* Memory that a thread keeps between calls, because fresh pages cost more than their use. */
enum { FOR_PIECES, FOR_CALLS, KINDS };
typedef struct {
    void *room[KINDS];
    size_t size[KINDS];
} Kept;
static pthread_key_t kept_key;
static pthread_once_t kept_once = PTHREAD_ONCE_INIT;
static int kept_works;

static void free_kept(void *argument)
{
    Kept *kept = argument;
    for (int kind = 0; kind < KINDS; kind++)
        free(kept->room[kind]);
    free(kept);
}

static void make_key(void) { kept_works = !pthread_key_create(&kept_key, free_kept); }

static void *room_of(int kind, size_t size)
{
    Kept *kept;
    pthread_once(&kept_once, make_key);
    if (!kept_works)
        return NULL;
    kept = pthread_getspecific(kept_key);
    if (!kept) {
        kept = calloc(1, sizeof *kept);
        if (!kept || pthread_setspecific(kept_key, kept)) {
            free(kept);
            return NULL;
        }
    }
    if (kept->size[kind] < size) {
        free(kept->room[kind]);
        kept->size[kind] = 0;
        kept->room[kind] = aligned_alloc(64, (size + 63) / 64 * 64);
        if (kept->room[kind])
            kept->size[kind] = size;
    }
    return kept->room[kind];
}

/* One operand as it is stored: panels of lines, [panel][term][width] in fp16, with their figures. */
typedef struct {
    double reach; /* the largest sum of magnitudes of a line */
    double most;  /* the largest magnitude; infinite where one is infinite or no number */
    ptrdiff_t panels, groups, depth, width;
    float *by_group;   /* [panel][group]: of rows the largest sum of magnitudes, of columns the largest magnitude */
    float *panel_most; /* [panel] */
    uint16_t *halves;
    uint8_t *low; /* [panel][term]: the smallest exponent field of what is not zero */
} Stored;

static size_t rounded_up(size_t size) { return (size + 63) / 64 * 64; }

/* Where the parts lie in memory: by_group, panel_most, halves, low, and the end. */
static void find_parts(ptrdiff_t lines, ptrdiff_t depth, ptrdiff_t width, size_t parts[5])
{
    size_t panels = (size_t)((lines + width - 1) / width), groups = (size_t)((depth + GROUP - 1) / GROUP);
    parts[0] = rounded_up(2 * sizeof(double));
    parts[1] = parts[0] + rounded_up(panels * groups * sizeof(float));
    parts[2] = parts[1] + rounded_up(panels * sizeof(float));
    parts[3] = parts[2] + rounded_up(panels * (size_t)(depth * width) * sizeof(uint16_t));
    parts[4] = parts[3] + rounded_up(panels * (size_t)depth);
}

static void place_stored(Stored *stored, char *memory, ptrdiff_t lines, ptrdiff_t depth, ptrdiff_t width)
{
    size_t parts[5];
    find_parts(lines, depth, width, parts);
    stored->panels = (lines + width - 1) / width;
    stored->groups = (depth + GROUP - 1) / GROUP;
    stored->depth = depth;
    stored->width = width;
    stored->by_group = (float *)(memory + parts[0]);
    stored->panel_most = (float *)(memory + parts[1]);
    stored->halves = (uint16_t *)(memory + parts[2]);
    stored->low = (uint8_t *)(memory + parts[3]);
}

static Stored stored_in(const char *memory, ptrdiff_t lines, ptrdiff_t depth, ptrdiff_t width)
{
    Stored stored;
    place_stored(&stored, (char *)(uintptr_t)memory, lines, depth, width);
    memcpy(&stored.reach, memory, sizeof(double));
    memcpy(&stored.most, memory + sizeof(double), sizeof(double));
    return stored;
}

/* Lays one panel out. Numbers lie `line_step` and `term_step` apart. Returns the largest sum of a line. */
static double store_panel(const Stored *stored, ptrdiff_t panel, const uint16_t *in, ptrdiff_t line_step,
                          ptrdiff_t term_step, ptrdiff_t lines, int rows)
{
    uint16_t *out = stored->halves + panel * stored->depth * stored->width;
    uint8_t *low = stored->low + panel * stored->depth;
    float *by_group = stored->by_group + panel * stored->groups;
    double reach[WIDEST] = {0}, most_reach = 0.0;
    uint16_t most = 0;
    for (ptrdiff_t group = 0; group < stored->groups; group++) {
        ptrdiff_t first = group * GROUP, end = first + GROUP < stored->depth ? first + GROUP : stored->depth;
        float sums[WIDEST] = {0}, largest = 0.0f;
        uint16_t group_most = 0;
        for (ptrdiff_t term = first; term < end; term++) {
            uint16_t least = 0xFFFF, here = 0;
            for (ptrdiff_t line = 0; line < lines; line++) {
                uint16_t half = in[line * line_step + term * term_step], size = half & 0x7FFFu;
                uint16_t before = (uint16_t)(size - 1u);
                out[term * stored->width + line] = half;
                least = before < least ? before : least;
                here = size > here ? size : here;
                sums[line] += operand(size);
            }
            for (ptrdiff_t line = lines; line < stored->width; line++)
                out[term * stored->width + line] = 0;
            least++;
            low[term] = least == 0 ? NO_FIELD : least >= 0x400u ? (uint8_t)(least >> 10) : 1;
            group_most = here > group_most ? here : group_most;
        }
        for (ptrdiff_t line = 0; line < lines; line++) {
            largest = sums[line] > largest ? sums[line] : largest;
            reach[line] += (double)sums[line];
        }
        by_group[group] = rows ? largest : operand(group_most);
        most = group_most > most ? group_most : most;
    }
    stored->panel_most[panel] = most < 0x7C00u ? operand(most) : INFINITY;
    for (ptrdiff_t line = 0; line < lines; line++)
        most_reach = reach[line] > most_reach ? reach[line] : most_reach;
    return most_reach;
}

/* The figures of the whole from those of its panels. */
static void close_stored(Stored *stored, char *memory, double reach)
{
    stored->reach = reach;
    stored->most = 0.0;
    for (ptrdiff_t panel = 0; panel < stored->panels; panel++)
        stored->most = fmax(stored->most, (double)stored->panel_most[panel]);
    memcpy(memory, &stored->reach, sizeof(double));
    memcpy(memory + sizeof(double), &stored->most, sizeof(double));
}

static void store_lines(Stored *stored, char *memory, const uint16_t *in, ptrdiff_t line_step, ptrdiff_t term_step,
                        ptrdiff_t lines, int rows)
{
    double reach = 0.0;
    for (ptrdiff_t panel = 0; panel < stored->panels; panel++) {
        ptrdiff_t first = panel * stored->width, here = lines - first < stored->width ? lines - first : stored->width;
        reach = fmax(reach, store_panel(stored, panel, in + first * line_step, line_step, term_step, here, rows));
    }
    close_stored(stored, memory, reach);
}

/* Rows of a call, dense and one behind the other. */
static void store_call(const Path *path, Stored *stored, char *memory, const uint16_t *in, ptrdiff_t rows)
{
    double reach = 0.0;
    for (ptrdiff_t panel = 0; panel < stored->panels; panel++) {
        ptrdiff_t first = panel * stored->width, here = rows - first < stored->width ? rows - first : stored->width;
        const uint16_t *own = in + first * stored->depth;
        double most = here < stored->width
                          ? store_panel(stored, panel, own, stored->depth, 1, here, 1)
                          : path->store_rows(own, stored->depth, stored->depth,
                                             stored->halves + panel * stored->depth * stored->width,
                                             stored->low + panel * stored->depth,
                                             stored->by_group + panel * stored->groups, stored->panel_most + panel);
        reach = fmax(reach, most);
    }
    close_stored(stored, memory, reach);
}

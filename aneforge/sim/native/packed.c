/* Products and convolutions whose sums stay inside, with operands that are laid out beforehand.
 *
 * Exact sums are those of aneforge/sim/mac.py, to the bit, by the fused multiply-adds that mac.c explains. What is
 * decided there for every tile and chunk is decided here for a whole layer: the largest sum of magnitudes of a row
 * times the largest number of the other operand says that no sum reaches the ceiling, so that 32 bits hold every sum
 * and terms may be added in any order. Where it does not say so, the functions return 1 and mac.c does the work.
 *
 * A product that its exponents drop is small. So a tile adds all products without comparing them, and then takes out
 * those that are dropped: terms whose smallest exponents could drop one are found by their exponents, which are kept as
 * bytes.
 *
 * Fast sums are single-precision ones by the same loops. One operand, the rows, is read number by number: weights of a
 * convolution, or the lines that a linear layer reads. The other, the columns, is read by vectors: pixels of a map,
 * gathered from it panel by panel, or weights of a linear layer. */
#include "bits.h"
#include "crew.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KC 512                /* terms of a chunk */
#define GROUP 32              /* terms that share one bound; divides KC */
#define UNITS 65536.0f
#define MAGIC 12582912.0f     /* 1.5 * 2^23 */
#define MAGIC_BITS 0x4B400000
#define STRETCH 4190000.0f    /* units that a float accumulator holds, 2^22, less what rounding bounds may lose */
#define LARGEST_PRODUCT 63.0f /* in ones: one product fits a stretch */
#define CEILING 2147000000.0  /* units, less the same */
#define LAST_DROPPED 13       /* sum of two exponent fields (N11) */
#define NO_FIELD 100          /* of a term without any number but zero */
#define FEW 4                 /* rows for which columns are read as they are stored */
#define AHEAD 128              /* terms that are fetched before they are needed, where numbers are used but once */
#define WIDEST 64             /* columns of a panel on any path */
#define PACKED_FLOATS 131072  /* of a block of columns, for half of a second cache */
#define HELD_SUMS 131072
#define LAID_NUMBERS 4194304  /* of a map that is laid out: larger ones are done in bands of rows */
#define BLOCK_COLUMNS 256
#define POSITIONS 4
#define DEPTHWISE_TAPS 128
#define WORK_OF_A_THREAD 1000000.0 /* multiply-adds below which starting one more thread costs more than it brings */

#include "packed_paths.h"
#include "packed_stored.h"
#include "packed_product.h"
#include "packed_map.h"
#include "packed_depthwise.h"

enum { EXACT, FAST, WINOGRAD };

#define EXPORT __attribute__((visibility("default")))
EXPORT ptrdiff_t aneforge_stored_size(ptrdiff_t lines, ptrdiff_t depth, int rows, int path);
EXPORT void aneforge_store_lines(const uint16_t *in, ptrdiff_t line_step, ptrdiff_t term_step, ptrdiff_t lines,
                                 ptrdiff_t depth, int rows, char *memory, int path);
EXPORT int aneforge_stored_rows_product(const char *stored, const uint16_t *map, const ptrdiff_t *geometry,
                                        const uint16_t *bias, int form, uint16_t *out, int threads, int path);
EXPORT int aneforge_stored_columns_product(const uint16_t *in, const char *stored, ptrdiff_t rows, ptrdiff_t depth,
                                           ptrdiff_t columns, const uint16_t *bias, ptrdiff_t bias_step, int exact,
                                           uint16_t *out, int threads, int path);
EXPORT int aneforge_product_inside(const uint16_t *a, const uint16_t *b, ptrdiff_t count, ptrdiff_t rows,
                                   ptrdiff_t depth, ptrdiff_t columns, int exact, uint16_t *out, int threads, int path);

EXPORT int aneforge_depthwise(const uint16_t *kernels, const uint16_t *map, const ptrdiff_t *geometry,
                              const uint16_t *bias, int form, uint16_t *out, int threads, int path);

/* Bytes of a matrix of `lines` of `depth` numbers as it is stored: as rows or as columns. */
ptrdiff_t aneforge_stored_size(ptrdiff_t lines, ptrdiff_t depth, int rows, int path)
{
    size_t parts[5];
    find_parts(lines, depth, rows ? chosen(path)->mr : chosen(path)->nr, parts);
    return (ptrdiff_t)parts[4];
}

void aneforge_store_lines(const uint16_t *in, ptrdiff_t line_step, ptrdiff_t term_step, ptrdiff_t lines,
                          ptrdiff_t depth, int rows, char *memory, int path)
{
    Stored stored;
    place_stored(&stored, memory, lines, depth, rows ? chosen(path)->mr : chosen(path)->nr);
    store_lines(&stored, memory, in, line_step, term_step, lines, rows);
}

/* The convolution of one group of a map [channels, height, width] with stored kernels: exact, fast, or exact in
 * Winograd's form, where the kernels are those of the four positions. Returns 0; 1 if a sum might not stay inside; -1
 * if there is no memory. */
int aneforge_stored_rows_product(const char *stored, const uint16_t *map, const ptrdiff_t *geometry,
                                 const uint16_t *bias, int form, uint16_t *out, int threads, int path)
{
    ptrdiff_t channels = geometry[0], height = geometry[1], width = geometry[2], kernel_rows = geometry[3];
    ptrdiff_t kernel_columns = geometry[4], row_stride = geometry[5], stride = geometry[6], row_dilation = geometry[7];
    ptrdiff_t dilation = geometry[8], top = geometry[9], left = geometry[10], outputs = geometry[11];
    ptrdiff_t rows = geometry[12], columns = geometry[13];
    int turned = form == WINOGRAD, points = kernel_rows == 1 && kernel_columns == 1 && row_stride == 1 &&
                                            stride == 1 && !top && !left && rows == height && columns == width;
    Product product = {.path = chosen(path), .exact = form != FAST, .positions = turned ? POSITIONS : 1,
                       .rows = outputs, .out = out, .out_width = columns, .row_start = 1};
    const Path *own = product.path;
    uint32_t peak = own->peak(map, channels * height * width);
    double most = (double)operand(peak) * (turned ? 2.01 : 1.0), reach = 0.0, row_most = 0.0, start;
    ptrdiff_t tiles = (columns + 1) / 2, apart, plane_width, around, line, band;
    int failed = 0;
    if (peak >= 0x7C00u || most >= 65504.0)
        return 1;
    product.depth = channels * kernel_rows * (turned ? 1 : kernel_columns);
    product.width = points ? rows * columns : turned ? tiles : columns;
    product.out_plane = rows * columns;
    plane_width = turned ? tiles : columns + ((kernel_columns - 1) * dilation + stride - 1) / stride;
    around = turned ? kernel_rows - 1 : ((kernel_rows - 1) * row_dilation + row_stride - 1) / row_stride;
    line = channels * (turned ? POSITIONS : row_stride * stride) * plane_width;
    band = points ? rows : least_of(rows, LAID_NUMBERS / line > around ? LAID_NUMBERS / line - around : 1);
    apart = points ? 0 : (line / product.positions * (band + around) + WIDEST + 31) / 32 * 32;
    char *memory = room_of(FOR_CALLS, rounded_up((size_t)product.depth * sizeof(ptrdiff_t)) +
                                          rounded_up((size_t)outputs * sizeof(int32_t)) +
                                          (size_t)(apart * product.positions) * sizeof(uint16_t));
    if (!memory)
        return -1;
    ptrdiff_t *offsets = (ptrdiff_t *)memory;
    int32_t *starts = (int32_t *)(memory + rounded_up((size_t)product.depth * sizeof(ptrdiff_t)));
    uint16_t *laid = (uint16_t *)((char *)starts + rounded_up((size_t)outputs * sizeof(int32_t)));
    start = read_starts(bias, outputs, product.exact, starts);
    for (ptrdiff_t position = 0; position < product.positions; position++) {
        ptrdiff_t each = aneforge_stored_size(outputs, product.depth, 1, path);
        product.row_parts[position] = stored_in(stored + position * each, outputs, product.depth, own->mr);
        reach += product.row_parts[position].reach;
        row_most = fmax(row_most, product.row_parts[position].most);
        product.map[position] = points ? map : laid + position * apart;
    }
    if (product.exact ? !stays_inside(reach, row_most, most, product.depth * product.positions, start)
                      : !(row_most < 65504.5))
        return 1;
    product.starts = starts;
    product.offsets = offsets;
    product.bare = points;
    product.pitch = points ? product.width : plane_width;
    for (ptrdiff_t first = 0; first < rows && !failed; first += band) {
        ptrdiff_t some = least_of(band, rows - first), plane_rows = some + around;
        ptrdiff_t size = line / product.positions * plane_rows;
        product.columns = points ? rows * columns : some * product.width;
        product.out = out + first * columns;
        for (ptrdiff_t channel = 0, term = 0; channel < channels; channel++)
            for (ptrdiff_t i = 0; i < kernel_rows; i++)
                for (ptrdiff_t j = 0; j < (turned ? 1 : kernel_columns); j++, term++) {
                    ptrdiff_t y = i * row_dilation, x = j * dilation;
                    ptrdiff_t phase = (channel * row_stride + y % row_stride) * stride + x % stride;
                    offsets[term] = points ? channel * product.width
                                           : (phase * plane_rows + y / row_stride) * plane_width + x / stride;
                }
        if (!points) {
            Layout layout = {.path = own, .in = map, .channels = channels, .height = height, .width = width,
                             .top = top - first * row_stride, .left = left, .row_stride = row_stride, .stride = stride,
                             .plane_rows = plane_rows, .plane_width = plane_width, .apart = apart,
                             .tiles = turned ? tiles : 0, .out = laid};
            for (ptrdiff_t position = 0; position < product.positions; position++)
                memset(laid + position * apart + size, 0, (size_t)(apart - size) * sizeof *laid);
            atomic_init(&layout.next, 0);
            aneforge_crew(layout_work, &layout, worthwhile(threads, 4.0 * (double)size * (double)product.positions));
            if (atomic_load(&layout.next) < channels)
                return -1;
        }
        failed = multiplied(&product, threads);
    }
    return failed;
}

/* The product of `in` [rows, depth] with stored columns: 0, 1 or -1 as above. */
int aneforge_stored_columns_product(const uint16_t *in, const char *stored, ptrdiff_t rows, ptrdiff_t depth,
                                    ptrdiff_t columns, const uint16_t *bias, ptrdiff_t bias_step, int exact,
                                    uint16_t *out, int threads, int path)
{
    Product product = {.path = chosen(path), .exact = exact, .positions = 1, .rows = rows, .depth = depth,
                       .columns = columns, .out = out, .out_plane = columns, .column_start = 1};
    const Path *own = product.path;
    ptrdiff_t starts_count = (columns + own->nr - 1) / own->nr * own->nr;
    size_t stored_rows = (size_t)aneforge_stored_size(rows, depth, 1, path);
    char *memory = room_of(FOR_CALLS, stored_rows + rounded_up((size_t)starts_count * sizeof(int32_t)));
    Stored *parts = product.row_parts;
    double start = 0.0;
    if (!memory)
        return -1;
    int32_t *starts = (int32_t *)(memory + stored_rows);
    if (bias && !bias_step) {
        start = read_starts(bias, 1, exact, starts);
        for (ptrdiff_t i = 1; i < starts_count; i++)
            starts[i] = *starts;
    } else {
        start = read_starts(bias, columns, exact, starts);
        memset(starts + columns, 0, (size_t)(starts_count - columns) * sizeof *starts);
    }
    place_stored(parts, memory, rows, depth, own->mr);
    store_call(own, parts, memory, in, rows);
    product.column_parts = stored_in(stored, columns, depth, own->nr);
    product.starts = starts;
    if (!(parts->most < 65504.5 && product.column_parts.most < 65504.5) ||
        (exact && !stays_inside(parts->reach, parts->most, product.column_parts.most, depth, start)))
        return 1;
    return multiplied(&product, threads);
}

/* Several products of one shape, both operands as they come: 0, 1 or -1 as above. */
int aneforge_product_inside(const uint16_t *a, const uint16_t *b, ptrdiff_t count, ptrdiff_t rows, ptrdiff_t depth,
                            ptrdiff_t columns, int exact, uint16_t *out, int threads, int path)
{
    const Path *own = chosen(path);
    size_t stored_rows = (size_t)aneforge_stored_size(rows, depth, 1, path);
    char *memory = room_of(FOR_CALLS, stored_rows + rounded_up((size_t)depth * sizeof(ptrdiff_t)));
    uint32_t peak = own->peak(b, count * depth * columns);
    static const int32_t nothing = 0;
    if (!memory)
        return -1;
    if (peak >= 0x7C00u)
        return 1;
    ptrdiff_t *offsets = (ptrdiff_t *)(memory + stored_rows);
    for (ptrdiff_t term = 0; term < depth; term++)
        offsets[term] = term * columns;
    for (ptrdiff_t each = 0; each < count; each++) {
        Product product = {.path = own, .exact = exact, .positions = 1, .rows = rows, .depth = depth,
                           .columns = columns, .out = out + each * rows * columns, .out_plane = columns, .starts = &nothing, .offsets = offsets,
                           .width = columns, .pitch = columns, .bare = 1, .map = {b + each * depth * columns}};
        Stored *parts = product.row_parts;
        int failed;
        place_stored(parts, memory, rows, depth, own->mr);
        store_call(own, parts, memory, a + each * rows * depth, rows);
        if (!(parts->most < 65504.5) || (exact && !stays_inside(parts->reach, parts->most, (double)operand(peak), depth, 0.0)))
            return 1;
        failed = multiplied(&product, threads);
        if (failed)
            return failed;
    }
    return 0;
}

/* A depthwise convolution of a map [channels, height, width] with kernels [outputs, taps], of the four positions one
 * behind the other for Winograd's form: 0, 1 or -1 as above. */
int aneforge_depthwise(const uint16_t *kernels, const uint16_t *map, const ptrdiff_t *geometry, const uint16_t *bias,
                       int form, uint16_t *out, int threads, int path)
{
    int turned = form == WINOGRAD;
    Depthwise job = {.path = chosen(path), .exact = form != FAST, .map = map, .kernels = kernels, .bias = bias,
                     .geometry = geometry, .each = geometry[11] / geometry[0], .out = out,
                     .taps = geometry[3] * (turned ? 1 : geometry[4]), .positions = turned ? POSITIONS : 1};
    uint32_t peak = job.path->peak(map, geometry[0] * geometry[1] * geometry[2]);
    job.peak = (double)operand(peak) * (turned ? 2.01 : 1.0);
    if (peak >= 0x7C00u || job.peak >= 65504.0 || job.taps * job.positions > DEPTHWISE_TAPS)
        return 1;
    atomic_init(&job.next, 0);
    atomic_init(&job.done, 0);
    threads = worthwhile(threads, 4.0 * (double)(geometry[11] * geometry[12] * geometry[13] * job.taps));
    aneforge_crew(depthwise_work, &job, threads);
    if (atomic_load(&job.next) < geometry[0])
        return -1;
    return atomic_load(&job.done) == geometry[0] ? 0 : 1;
}

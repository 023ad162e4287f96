/* Every path of the C library gives the bits of its portable one: compiled and run by test_sim_packed.py, for this
 * machine and, where a cross compiler and an emulator are installed, for others. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *aneforge_path(int path);
ptrdiff_t aneforge_stored_size(ptrdiff_t lines, ptrdiff_t depth, int rows, int path);
void aneforge_store_lines(const uint16_t *in, ptrdiff_t line_step, ptrdiff_t term_step, ptrdiff_t lines,
                          ptrdiff_t depth, int rows, char *memory, int path);
int aneforge_stored_rows_product(const char *stored, const uint16_t *map, const ptrdiff_t *geometry,
                                 const uint16_t *bias, int form, uint16_t *out, int threads, int path);
int aneforge_stored_columns_product(const uint16_t *in, const char *stored, ptrdiff_t rows, ptrdiff_t depth,
                                    ptrdiff_t columns, const uint16_t *bias, ptrdiff_t bias_step, int exact,
                                    uint16_t *out, int threads, int path);
int aneforge_depthwise(const uint16_t *kernels, const uint16_t *map, const ptrdiff_t *geometry, const uint16_t *bias,
                       int form, uint16_t *out, int threads, int path);
int aneforge_product(const uint16_t *a, const uint16_t *b, ptrdiff_t rows, ptrdiff_t depth, ptrdiff_t columns,
                     const uint16_t *bias, ptrdiff_t bias_row, ptrdiff_t bias_column, int flush_subnormals,
                     double *units, double *lost, uint16_t *halves, int threads, int path);

static uint64_t state = 88172645463325252ull;

static uint64_t drawn(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Any signs and significands, exponent fields below a limit, some zeros. */
static uint16_t *halves(ptrdiff_t count, unsigned least, unsigned most)
{
    uint16_t *all = malloc((size_t)count * sizeof *all);
    for (ptrdiff_t i = 0; i < count; i++) {
        uint64_t bits = drawn();
        unsigned field = least + (unsigned)(bits >> 20) % (most - least);
        all[i] = bits % 10 ? (uint16_t)((bits >> 4 & 0x83FFu) | field << 10) : (uint16_t)(bits >> 4 & 0x8000u);
    }
    return all;
}

static int wrong;

static void compare(const char *what, int path, int case_number, const uint16_t *found, const uint16_t *want,
                    ptrdiff_t count, int status, int wanted_status)
{
    if (status != wanted_status || (status == 0 && memcmp(found, want, (size_t)count * sizeof *found))) {
        printf("%s, case %d: path %s differs from the portable one\n", what, case_number, aneforge_path(path));
        wrong = 1;
    }
}

static void products(int path)
{
    static const ptrdiff_t sizes[][3] = {{1, 40, 70}, {3, 600, 33}, {4, 64, 16}, {9, 513, 17}, {40, 300, 65}};
    static const unsigned fields[][4] = {{0, 12, 0, 12}, {5, 12, 4, 14}, {8, 16, 8, 17}, {0, 15, 10, 18}, {14, 20, 14, 20}};
    for (int number = 0; number < 25; number++) {
        ptrdiff_t rows = sizes[number / 5][0], depth = sizes[number / 5][1], columns = sizes[number / 5][2];
        const unsigned *field = fields[number % 5];
        uint16_t *a = halves(rows * depth, field[0], field[1]), *b = halves(columns * depth, field[2], field[3]);
        uint16_t *bias = halves(columns, 0, 20), *turned = malloc((size_t)(columns * depth) * 2);
        uint16_t *out[2];
        int status[2], paths[2] = {0, path};
        for (ptrdiff_t i = 0; i < columns; i++)
            for (ptrdiff_t j = 0; j < depth; j++)
                turned[j * columns + i] = b[i * depth + j];
        for (int side = 0; side < 2; side++) {
            char *stored = malloc((size_t)aneforge_stored_size(columns, depth, 0, paths[side]));
            aneforge_store_lines(b, depth, 1, columns, depth, 0, stored, paths[side]);
            out[side] = calloc((size_t)(rows * columns), 2);
            status[side] = aneforge_stored_columns_product(a, stored, rows, depth, columns, bias, 1, 1, out[side], 2,
                                                           paths[side]);
            free(stored);
        }
        compare("stored columns", path, number, out[1], out[0], rows * columns, status[1], status[0]);
        if (status[0] == 0) {
            status[0] = aneforge_product(a, turned, rows, depth, columns, bias, 0, 1, 0, NULL, NULL, out[0], 1, 0);
            compare("the general form", path, number, out[1], out[0], rows * columns, 0, status[0]);
        }
        for (int side = 0; side < 2; side++)
            status[side] = aneforge_product(a, turned, rows, depth, columns, bias, 0, 1, 0, NULL, NULL, out[side], 2,
                                            paths[side]);
        compare("product", path, number, out[1], out[0], rows * columns, status[1], status[0]);
        free(a), free(b), free(bias), free(turned), free(out[0]), free(out[1]);
    }
}

static void convolutions(int path)
{
    /* channels, map, kernel, strides, dilations, zeros before, outputs, result */
    static const ptrdiff_t shapes[][14] = {
        {3, 9, 11, 3, 3, 1, 1, 1, 1, 1, 1, 12, 9, 11}, {16, 14, 14, 3, 3, 2, 2, 1, 1, 1, 1, 16, 7, 7},
        {70, 7, 7, 3, 3, 1, 1, 1, 1, 1, 1, 70, 7, 7}, {8, 6, 5, 1, 1, 1, 1, 1, 1, 0, 0, 16, 6, 5},
        {3, 20, 40, 3, 2, 1, 3, 2, 2, 2, 0, 9, 18, 13}};
    for (int number = 0; number < 30; number++) {
        const ptrdiff_t *g = shapes[number % 5];
        int form = number / 5 % 3 == 2 ? 2 : 0, narrow = number >= 15;
        ptrdiff_t taps = g[3] * (form ? 1 : g[4]), depth = (narrow ? 1 : g[0]) * taps, positions = form ? 4 : 1;
        ptrdiff_t count = g[11] * g[12] * g[13], size = 0;
        uint16_t *map = halves(g[0] * g[1] * g[2], number / 5 % 3 ? 0 : 10, 17);
        uint16_t *kernels = halves(positions * g[11] * depth, 2, 13), *bias = halves(g[11], 0, 18), *out[2];
        int status[2], paths[2] = {0, path};
        if (form && g[4] != 3)
            continue;
        if (form && g[5] != 1)
            continue;
        for (int side = 0; side < 2; side++) {
            out[side] = calloc((size_t)count, 2);
            if (narrow) {
                status[side] = aneforge_depthwise(kernels, map, g, bias, form, out[side], 2, paths[side]);
                continue;
            }
            size = aneforge_stored_size(g[11], depth, 1, paths[side]);
            char *stored = malloc((size_t)(size * positions));
            for (ptrdiff_t position = 0; position < positions; position++)
                aneforge_store_lines(kernels + position * g[11] * depth, depth, 1, g[11], depth, 1,
                                     stored + position * size, paths[side]);
            status[side] = aneforge_stored_rows_product(stored, map, g, bias, form, out[side], 2, paths[side]);
            free(stored);
        }
        compare(narrow ? "depthwise" : "stored rows", path, number, out[1], out[0], count, status[1], status[0]);
        if (status[0])
            printf("case %d is not inside\n", number), wrong = 1;
        free(map), free(kernels), free(bias), free(out[0]), free(out[1]);
    }
}

int main(void)
{
    for (int path = 1; aneforge_path(path); path++) {
        if (!*aneforge_path(path))
            continue;
        products(path);
        convolutions(path);
        printf("%s\n", aneforge_path(path));
    }
    return wrong;
}

/*
 * The CPU's tile registers (AMX): eight matrices, 0 ... 7, each of at most 16 rows of 64 bytes. All
 * sizes are set together. A file that defines TILES_OF_CPU, and is compiled for AMX, uses the CPU's
 * tiles; without the definition, a file gets tiles in plain C, with the same results, for the check
 * programs.
 *
 *   tiles_shape(shapes)          set the sizes of all tiles, and zero all tiles
 *   TILES_RELEASE()              return to the state at the start of a thread: the system saves a
 *                                larger state of a thread with tiles in use
 *   TILE_LOAD(t, from, apart)    read the rows of tile t from memory, `apart` bytes from each other
 *   TILE_STORE(t, to, apart)     write the rows of tile t
 *   TILE_ADD_PRODUCT(sum, x, w)  sum += x w: float, of bfloats in pairs along x's rows and w's
 *                                columns
 *
 * Tiles are numbers that the preprocessor knows.
 */
#ifndef RNL_KERNELS_TILE_REGISTERS_H
#define RNL_KERNELS_TILE_REGISTERS_H

#include <stdint.h>

enum { TILE_ROWS = 16, TILE_NBYTES = 64 /* of a row */, NUM_TILES = 8 };

/* The operand of LDTILECFG. A tile of no rows has no bytes in a row, and is not used. */
typedef struct tile_shapes {
    uint8_t palette, first_row, zeros[14]; /* the palette is 1 */
    uint16_t nbytes[2 * NUM_TILES];        /* of a row; zero for tiles 8 ... */
    uint8_t rows[2 * NUM_TILES];
} tile_shapes;

#ifdef TILES_OF_CPU
#include <immintrin.h>

/* gcc 12 does not know that _tile_loadconfig() reads memory: keep earlier writes earlier. */
static inline void tiles_shape(const tile_shapes *shapes)
{
    __asm__ volatile("" : : "r"(shapes) : "memory"); /* NOLINT(portability-no-assembler) */
    _tile_loadconfig(shapes);
}

#define TILES_RELEASE() _tile_release()
#define TILE_LOAD(t, from, apart) _tile_loadd(t, from, apart)
#define TILE_STORE(t, to, apart) _tile_stored(t, to, apart)
#define TILE_ADD_PRODUCT(sum, x, w) _tile_dpbf16ps(sum, x, w)

#else
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/convert.h"

typedef struct tile_registers {
    tile_shapes shapes;
    union {
        float sums[TILE_ROWS][TILE_NBYTES / 4];
        uint16_t bfloats[TILE_ROWS][TILE_NBYTES / 2];
    } tiles[NUM_TILES];
} tile_registers;

static _Thread_local tile_registers registers;

static void tiles_shape(const tile_shapes *shapes)
{
    memset(&registers, 0, sizeof registers);
    registers.shapes = *shapes;
    for (int t = 0; t < 2 * NUM_TILES; t++) /* else the CPU raises an exception, as below */
        if (shapes->rows[t] > TILE_ROWS || shapes->nbytes[t] > TILE_NBYTES ||
            (t >= NUM_TILES && shapes->rows[t]) || !shapes->rows[t] != !shapes->nbytes[t])
            abort();
}

/* The rows of a tile in use. */
static int rows_of_tile(int t)
{
    if (!registers.shapes.rows[t])
        abort();
    return registers.shapes.rows[t];
}

static void tile_load(int t, const void *from, int64_t apart)
{
    for (int row = 0; row < rows_of_tile(t); row++)
        memcpy(registers.tiles[t].sums[row], (const char *)from + row * apart,
               registers.shapes.nbytes[t]);
}

static void tile_store(int t, void *to, int64_t apart)
{
    for (int row = 0; row < rows_of_tile(t); row++)
        memcpy((char *)to + row * apart, registers.tiles[t].sums[row], registers.shapes.nbytes[t]);
}

static float without_subnormals(float x)
{
    return fabsf(x) < 0x1p-126F ? copysignf(0, x) : x;
}

/* a * b + sum, rounded once; subnormal operands and results are zero. */
static float add_bfloats(float sum, uint16_t a, uint16_t b)
{
    return without_subnormals(fmaf(without_subnormals(as_float((uint32_t)a << 16)),
                                   without_subnormals(as_float((uint32_t)b << 16)), sum));
}

/* TDPBF16PS (Intel's manual, volume 2): the products of the first bfloats of the pairs are added in
 * order, likewise the products of the second bfloats, and then the sum of both sums is added to the
 * tile. */
static void tile_add_product(int sum, int x, int w)
{
    const int pairs = registers.shapes.nbytes[x] / 4, units = registers.shapes.nbytes[sum] / 4;
    if (rows_of_tile(sum) != rows_of_tile(x) || rows_of_tile(w) != pairs ||
        registers.shapes.nbytes[w] != registers.shapes.nbytes[sum])
        abort();
    for (int row = 0; row < rows_of_tile(sum); row++)
        for (int unit = 0; unit < units; unit++) {
            float *const to = &registers.tiles[sum].sums[row][unit], halves[2] = {0, 0};
            for (int k = 0; k < 2 * pairs; k++)
                halves[k % 2] = add_bfloats(halves[k % 2], registers.tiles[x].bfloats[row][k],
                                            registers.tiles[w].bfloats[k / 2][2 * unit + k % 2]);
            *to = without_subnormals(without_subnormals(*to) +
                                     without_subnormals(halves[0] + halves[1]));
        }
}

#define TILES_RELEASE() tiles_shape(&(tile_shapes){.palette = 0})
#define TILE_LOAD(t, from, apart) tile_load(t, from, apart)
#define TILE_STORE(t, to, apart) tile_store(t, to, apart)
#define TILE_ADD_PRODUCT(sum, x, w) tile_add_product(sum, x, w)
#endif

#endif

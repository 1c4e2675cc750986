/* Operands of a kernel between two pages without access rights. */
#ifndef GUARD_H
#define GUARD_H

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "kernels/kernels.h"

typedef struct arena {
    char *start;
    int64_t nbytes;
} arena;

/* Allocate at least nbytes of random bits. They are never freed. */
static inline arena arena_new(int64_t nbytes)
{
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t inside = (nbytes + page - 1) / page * page;
    char *map = mmap(NULL, (size_t)(inside + 2 * page), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                     0);
    if (map == MAP_FAILED || mprotect(map + page, (size_t)inside, PROT_READ | PROT_WRITE))
        abort();
    for (int64_t k = 0; k < inside / 8; k++)
        ((uint64_t *)(void *)(map + page))[k] = random_bits();
    return (arena){map + page, inside};
}

/* Ways to lay out rows x cols elements. */
enum { NUM_WAYS = 7 };

static inline rnl_grid grid_of(int way, int64_t rows, int64_t cols)
{
    /* clang-format off */
    const rnl_grid ways[NUM_WAYS] = {
        {cols, 1},            /* contiguous                                */
        {1, rows},            /* transposed                                */
        {cols + 5, 1},        /* a window of longer rows                   */
        {1, 3 * rows},        /* one gate of three in a transposed matrix  */
        {2 * cols + 3, 2},    /* every second element                      */
        {-cols, -1},          /* backwards                                 */
        {cols, -1}};          /* rows forwards, columns backwards          */
    /* clang-format on */
    return ways[way];
}

/* rows x cols elements of a grid, at the start or at the end of an arena. */
typedef struct operand {
    char *start, *base; /* the first byte, element (0, 0) */
    int64_t nbytes;     /* including gaps                */
    rnl_grid grid;
} operand;

static inline operand place(const arena *in, rnl_grid grid, int64_t rows, int64_t cols,
                            int64_t elem_nbytes, int at_end)
{
    operand op = {in->start, in->start, 0, grid};
    if (rows > 0 && cols > 0) {
        const int64_t down = (rows - 1) * grid.row, along = (cols - 1) * grid.col;
        const int64_t lowest = (down < 0 ? down : 0) + (along < 0 ? along : 0);
        op.nbytes = (llabs(down) + llabs(along) + 1) * elem_nbytes;
        op.base -= lowest * elem_nbytes;
    }
    if (op.nbytes > in->nbytes)
        abort();
    const int64_t shift = at_end ? in->nbytes - op.nbytes : 0;
    op.start += shift;
    op.base += shift;
    return op;
}

#endif

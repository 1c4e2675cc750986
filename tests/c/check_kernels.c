/* Does the fast copy equal its reference bit for bit, and change nothing else? */
#include <string.h>

#include "guard.h"
#include "kernels/tier.h"
#include "values.h"

/* Sizes around a vector, a tile's rows and a tile's columns; more than three tiles each way. */
enum {
    LANES = 16,
    PRIME = 61,
    LARGE_ROWS = 3 * RNL_TILE_ROWS + 5,
    LARGE_COLS = 3 * RNL_TILE_COLS + 5
};

/* clang-format off */
static const int64_t sizes[] = {0, 1, LANES - 1, LANES, LANES + 1, PRIME,
                                RNL_TILE_ROWS - 1, RNL_TILE_ROWS, RNL_TILE_ROWS + 1,
                                RNL_TILE_COLS - 1, RNL_TILE_COLS, RNL_TILE_COLS + 1};
/* clang-format on */
enum { NUM_SIZES = sizeof sizes / sizeof sizes[0] };

static arena from, got, want;

/* Copy with both, and compare every byte of the targets and of their gaps. */
static void check_copy(const rnl_job *like, int src_way, int dst_way, int at_end)
{
    rnl_job job = *like;
    const int64_t rows = job.rows, cols = job.cols;
    const int64_t nbytes = rnl_dtypes[job.dst_dtype].nbytes;
    const operand src = place(&from, grid_of(src_way, rows, cols), rows, cols,
                              rnl_dtypes[job.src_dtype].nbytes, at_end);
    const operand dst = place(&got, grid_of(dst_way, rows, cols), rows, cols, nbytes, at_end);
    const operand ref = place(&want, dst.grid, rows, cols, nbytes, at_end);
    job.src = src.base;
    job.src_grid = src.grid;
    job.dst_grid = dst.grid;
    memset(dst.start, 0xa5, (size_t)dst.nbytes);
    memset(ref.start, 0xa5, (size_t)ref.nbytes);
    job.dst = dst.base;
    rnl_copy(&job);
    job.dst = ref.base;
    rnl_copy_ref(&job);
    CHECK(memcmp(dst.start, ref.start, (size_t)dst.nbytes) == 0,
          "%s to %s, %" PRId64 " x %" PRId64 ", ways %d and %d, negate %d, stream %d, at_end %d",
          rnl_name(RNL_NAMES_DTYPE, (int)job.src_dtype),
          rnl_name(RNL_NAMES_DTYPE, (int)job.dst_dtype), rows, cols, src_way, dst_way, job.negate,
          job.stream, at_end);
}

/* Each two ways and size with one of the kinds of copies; large ones with all kinds. */
static void check_shapes(const rnl_job *types)
{
    rnl_job job = *types;
    for (int src_way = 0; src_way < NUM_WAYS; src_way++)
        for (int dst_way = 0; dst_way < NUM_WAYS; dst_way++)
            for (int size = 0; size < 3 * NUM_SIZES; size++) { /* n x 17, 17 x n, n x n */
                const int64_t n = sizes[size / 3];
                job.rows = size % 3 == 1 ? LANES + 1 : n;
                job.cols = size % 3 == 0 ? LANES + 1 : n;
                job.negate = (int)random_below(2);
                job.stream = (int)random_below(2);
                if (check_is_drawn())
                    check_copy(&job, src_way, dst_way, (src_way + dst_way + size) % 2);
            }
    job.rows = LARGE_ROWS;
    job.cols = LARGE_COLS;
    for (int k = 0; k < 4 * NUM_WAYS; k++) {
        job.negate = k & 1;
        job.stream = k >> 1 & 1;
        check_copy(&job, k / 4, (k / 4 + 1) % NUM_WAYS, 1);
    }
}

/* Copy the values as one line, which the compiler may vectorize, and one by one. */
static void check_values(const rnl_job *types, const values *all)
{
    const int64_t nbytes = rnl_dtypes[types->src_dtype].nbytes;
    rnl_job job = *types;
    for (int64_t k = 0; k < all->n; k += LARGE_COLS * LARGE_ROWS) {
        const int64_t left = all->n - k, most = LARGE_COLS * LARGE_ROWS;
        job.rows = 1;
        job.cols = left < most ? left : most;
        for (int64_t c = 0; c < job.cols; c++)
            rnl_store_bits(job.src_dtype, from.start + c * nbytes, all->bits[k + c]);
        check_copy(&job, 0, 0, 0);
        check_copy(&job, 0, 4, 0);
    }
}

int main(void)
{
    printf("tier %s\n", rnl_cpu_tier());
    const int64_t most = 3 * 8 * (LARGE_ROWS + 1) * (LARGE_COLS + 1); /* in the widest grid */
    from = arena_new(most);
    got = arena_new(most);
    want = arena_new(most);
    memcpy(want.start, got.start, (size_t)got.nbytes);
    for (rnl_dtype src = 0; src <= RNL_FLOAT64; src++) {
        const values all = values_of(src);
        for (rnl_dtype dst = 0; dst <= RNL_FLOAT64; dst++) {
            rnl_job job = {.src_dtype = src, .dst_dtype = dst};
            check_shapes(&job);
            check_values(&job, &all);
            job.negate = true;
            check_values(&job, &all);
        }
        free(all.bits);
    }
    CHECK(memcmp(got.start, want.start, (size_t)got.nbytes) == 0, "bytes outside the operands");
    return check_end();
}

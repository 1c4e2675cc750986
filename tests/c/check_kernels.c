/* Do the kernels of a tier do what their header says: the fast copy, which equals its reference bit
 * for bit and changes nothing else, and the scan for what the target cannot hold? The other kernels
 * are the same on all tiers: convert/test_laws.py and convert/test_conversions.py. */
#include <math.h>
#include <string.h>

#include "guard.h"
#include "kernels/tier.h"

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
        if (check_is_drawn())
            check_copy(&job, k / 4, (k / 4 + 1) % NUM_WAYS, 1);
    }
}

/* Bit patterns of a dtype at which conversions may go wrong. */
typedef struct values {
    uint64_t *bits;
    int64_t n;
} values;

enum { NUM_RANDOM = 1 << 18 };

/* Return all patterns of a two-byte type. For other types: every exponent with every mantissa that
 * is at, below or above a power of two or a run of leading ones (ties and their neighbours,
 * carries, overflow borders, subnormals, all kinds of NaN), in both signs; then random bits. */
static values values_of(rnl_dtype dtype)
{
    const rnl_dtype_row *row = &rnl_dtypes[dtype];
    const uint64_t ones = (UINT64_C(1) << row->mantissa_bits) - 1;
    const int64_t most = (INT64_C(2) << row->exponent_bits) * 6 * row->mantissa_bits + NUM_RANDOM;
    values all = {malloc((size_t)most * sizeof *all.bits), 0};
    if (!all.bits)
        abort();
    if (row->nbytes == 2) {
        for (uint64_t bits = 0; bits < 65536; bits++)
            if (check_is_drawn())
                all.bits[all.n++] = bits;
        return all;
    }
    for (uint64_t top = 0; top < UINT64_C(2) << row->exponent_bits; top++)
        for (int k = 0; k < row->mantissa_bits; k++) {
            if (!check_is_drawn())
                continue;
            const uint64_t power = UINT64_C(1) << k, run = ones & ~(power - 1);
            const uint64_t mantissas[] = {power, power - 1, power + 1, run, run - 1, run + 1};
            for (int m = 0; m < 6; m++)
                all.bits[all.n++] = top << row->mantissa_bits | (mantissas[m] & ones);
        }
    for (int k = check_turns(NUM_RANDOM); k > 0; k--)
        all.bits[all.n++] = random_bits() >> (64 - 8 * row->nbytes);
    return all;
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

/* The scan of a tier finds the first element that is finite, but not in the target: among zeros,
 * some are near a border. */
static void check_overflow(rnl_dtype src, rnl_dtype dst)
{
    enum { ROWS = 7, COLS = 19 };
    const uint64_t border = rnl_overflow_bits(dst, src), infinity = rnl_infinity_bits(src);
    const uint64_t near[] = {1,        border - 1,  border, border + 1, infinity - 1,
                             infinity, infinity + 1};
    const int64_t nbytes = rnl_dtypes[src].nbytes;
    const operand op = place(&from, grid_of((int)random_below(NUM_WAYS), ROWS, COLS), ROWS, COLS,
                             nbytes, (int)random_below(2));
    const rnl_job job = {.src_dtype = src,
                         .dst_dtype = dst,
                         .src = op.base,
                         .rows = ROWS,
                         .cols = COLS,
                         .src_grid = op.grid};
    int64_t expected = -1;
    for (int64_t k = ROWS * COLS; k-- > 0;) {
        const uint64_t sign = random_below(2) ? rnl_sign_bit(src) : 0;
        const uint64_t bits = random_below(100) ? 0 : sign | near[random_below(7)];
        const int64_t at = k / COLS * op.grid.row + k % COLS * op.grid.col;
        const double value = rnl_to_double(src, bits);
        rnl_store_bits(src, op.base + at * nbytes, bits);
        if (isfinite(value) && !isfinite(rnl_to_double(dst, rnl_from_double(dst, value))))
            expected = k;
    }
    CHECK(rnl_find_overflow(&job) == expected, "%s to %s: not %" PRId64,
          rnl_name(RNL_NAMES_DTYPE, (int)src), rnl_name(RNL_NAMES_DTYPE, (int)dst), expected);
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
    for (int turn = check_turns(2000); turn > 0; turn--)
        for (int pair = 0; pair < RNL_NUM_DTYPES * RNL_NUM_DTYPES; pair++)
            check_overflow((rnl_dtype)(pair / RNL_NUM_DTYPES), (rnl_dtype)(pair % RNL_NUM_DTYPES));
    return check_end();
}

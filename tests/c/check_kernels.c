/* Does the fast copy equal its reference bit for bit, and change nothing else? Do sums, constants
 * and scans do what their header says, as simple loops do? */
#include <fenv.h>
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

static arena first, second, third;

/* -------------------------------------------------------------------------------- copies -- */

/* Copy with both, and compare every byte of the targets and of their gaps. */
static void check_copy(const rnl_job *like, int src_way, int dst_way, int at_end)
{
    rnl_job job = *like;
    const int64_t rows = job.rows, cols = job.cols;
    const int64_t nbytes = rnl_dtypes[job.dst_dtype].nbytes;
    const operand src = place(&first, grid_of(src_way, rows, cols), rows, cols,
                              rnl_dtypes[job.src_dtype].nbytes, at_end);
    const operand dst = place(&third, grid_of(dst_way, rows, cols), rows, cols, nbytes, at_end);
    const operand ref = place(&second, dst.grid, rows, cols, nbytes, at_end);
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
            all.bits[all.n++] = bits;
        return all;
    }
    for (uint64_t top = 0; top < UINT64_C(2) << row->exponent_bits; top++)
        for (int k = 0; k < row->mantissa_bits; k++) {
            const uint64_t power = UINT64_C(1) << k, run = ones & ~(power - 1);
            const uint64_t mantissas[] = {power, power - 1, power + 1, run, run - 1, run + 1};
            for (int m = 0; m < 6; m++)
                all.bits[all.n++] = top << row->mantissa_bits | (mantissas[m] & ones);
        }
    for (int k = 0; k < NUM_RANDOM; k++)
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
            rnl_store_bits(job.src_dtype, first.start + c * nbytes, all->bits[k + c]);
        check_copy(&job, 0, 0, 0);
        check_copy(&job, 0, 4, 0);
    }
}

/* ------------------------------------------------------- sums, constants and scans -- */

enum { ROWS = 7, COLS = 19, TURNS = 400 };

/* A number halfway between two neighbours of dtype `to`: any other number, added to it, decides how
 * their sum is rounded. */
static double halfway(rnl_dtype to)
{
    const int64_t halves = INT64_C(2) << rnl_dtypes[to].mantissa_bits;
    return ldexp((double)(halves + 2 * random_below(halves / 2) + 1), -(int)random_below(40));
}

/* Random bits: mostly a moderate number, often zero, sometimes anything. */
static uint64_t some_bits(rnl_dtype dtype)
{
    switch (random_below(10)) {
    case 0:
    case 1: return random_below(5) ? 0 : rnl_sign_bit(dtype);
    case 2: return rnl_from_double(dtype, halfway((rnl_dtype)random_below(dtype + 1)));
    case 3: return rnl_from_double(dtype, ldexp(random_below(2) ? 1 : -1, -(int)random_below(140)));
    case 4: return random_bits() >> (64 - 8 * rnl_dtypes[dtype].nbytes);
    default: return rnl_from_double(dtype, ldexp((double)random_below(2001) - 1000, -10));
    }
}

static void *element(void *base, rnl_grid grid, rnl_dtype dtype, int64_t k)
{
    return (char *)base + (k / COLS * grid.row + k % COLS * grid.col) * rnl_dtypes[dtype].nbytes;
}

static uint64_t bits_at(const void *base, rnl_grid grid, rnl_dtype dtype, int64_t k)
{
    return rnl_load_bits(dtype, element((void *)(uintptr_t)base, grid, dtype, k));
}

/* Fill both sources; the grids of the three operands are random. */
static rnl_job random_job(rnl_dtype src_dtype, rnl_dtype dst_dtype)
{
    rnl_job job = {.src_dtype = src_dtype,
                   .dst_dtype = dst_dtype,
                   .rows = ROWS,
                   .cols = COLS,
                   .negate = random_below(2)};
    const int at_end = (int)random_below(2);
    const rnl_grid a = grid_of((int)random_below(NUM_WAYS), ROWS, COLS);
    const rnl_grid b = grid_of((int)random_below(NUM_WAYS), ROWS, COLS);
    const rnl_grid d = grid_of((int)random_below(NUM_WAYS), ROWS, COLS);
    char *const src = place(&first, a, ROWS, COLS, rnl_dtypes[src_dtype].nbytes, at_end).base;
    char *const src2 = place(&second, b, ROWS, COLS, rnl_dtypes[src_dtype].nbytes, at_end).base;
    for (int64_t k = 0; k < ROWS * COLS; k++) {
        rnl_store_bits(src_dtype, element(src, a, src_dtype, k), some_bits(src_dtype));
        rnl_store_bits(src_dtype, element(src2, b, src_dtype, k), some_bits(src_dtype));
    }
    job.src = src;
    job.src2 = src2;
    job.dst = place(&third, d, ROWS, COLS, rnl_dtypes[dst_dtype].nbytes, at_end).base;
    job.src_grid = a;
    job.src2_grid = b;
    job.dst_grid = d;
    return job;
}

/* Element k; 0 if there is no source. */
static double value_at(const void *base, rnl_grid grid, rnl_dtype dtype, int64_t k)
{
    return base ? rnl_to_double(dtype, bits_at(base, grid, dtype, k)) : 0;
}

/* x + y, rounded once. The CPU cuts the sum off after the last bit of a double and says whether
 * anything was cut: then this bit is set, so that no sum lies halfway between two numbers of a
 * narrower dtype unless x + y does. */
static uint64_t rounded_sum(rnl_dtype to, double x, double y)
{
    volatile double a = x, b = y, sum = a + b;
    if (to == RNL_FLOAT64)
        return rnl_from_double(to, sum);
    feclearexcept(FE_INEXACT);
    fesetround(FE_TOWARDZERO);
    sum = a + b;
    const uint64_t cut = fetestexcept(FE_INEXACT) ? 1 : 0;
    fesetround(FE_TONEAREST);
    return rnl_from_double(to, rnl_to_double(RNL_FLOAT64, rnl_from_double(RNL_FLOAT64, sum) | cut));
}

static void check_add(const rnl_job *job)
{
    rnl_add(job);
    for (int64_t k = 0; k < ROWS * COLS; k++) {
        const uint64_t a = bits_at(job->src, job->src_grid, job->src_dtype, k);
        const uint64_t b = bits_at(job->src2, job->src2_grid, job->src_dtype, k);
        const uint64_t got = bits_at(job->dst, job->dst_grid, job->dst_dtype, k);
        const uint64_t flip = job->negate ? rnl_sign_bit(job->dst_dtype) : 0;
        const double x = rnl_to_double(job->src_dtype, a), y = rnl_to_double(job->src_dtype, b);
        const uint64_t same = y == 0 ? a : b; /* the operand that is copied, if one is zero */
        uint64_t want;
        if (x != 0 && y != 0)
            want = rounded_sum(job->dst_dtype, x, y);
        else if (job->src_dtype == job->dst_dtype)
            want = same;
        else
            want = rnl_from_double(job->dst_dtype, rnl_to_double(job->src_dtype, same));
        const double sum = rnl_to_double(job->dst_dtype, got);
        CHECK(isnan(x + y) ? isnan(sum) : got == (want ^ flip), "%a + %a", x, y);
    }
}

/* Without a source, with one, with two. */
static void check_shift(const rnl_job *random)
{
    rnl_job job = *random;
    static const double shifts[] = {1, -1, 0.1, 65504, 1e-30};
    job.shift = shifts[random_below(5)];
    const int missing = (int)random_below(3);
    job.src = missing == 2 ? NULL : job.src;
    job.src2 = missing >= 1 ? NULL : job.src2;
    int64_t rounded = 0;
    rnl_shift(&job);
    for (int64_t k = 0; k < ROWS * COLS; k++) {
        const double x = value_at(job.src, job.src_grid, job.src_dtype, k);
        const double y = value_at(job.src2, job.src2_grid, job.src_dtype, k);
        const uint64_t got = bits_at(job.dst, job.dst_grid, job.dst_dtype, k);
        const uint64_t want = rounded_sum(job.dst_dtype, x + y, job.shift);
        CHECK(isnan(x + y) ? isnan(rnl_to_double(job.dst_dtype, got)) : got == want, "%a + %a + %a",
              x, y, job.shift);
        volatile double a = x + y, b = job.shift, sum;
        feclearexcept(FE_INEXACT);
        sum = a + b;
        const bool cut = fetestexcept(FE_INEXACT) || rnl_to_double(job.dst_dtype, want) != sum;
        rounded += (x != 0 && y != 0) || (isfinite(a) && cut);
    }
    CHECK(rnl_count_shifts(&job) == rounded, "%" PRId64, rounded);
}

static bool overflows(rnl_dtype to, double value)
{
    return isfinite(value) && !isfinite(rnl_to_double(to, rnl_from_double(to, value)));
}

/* The result of each scan is the first element that its header describes. */
static void check_finds(const rnl_job *job)
{
    const double one = job->negate ? -1 : 1;
    int64_t nonzero = -1, overflow = -1, sum_overflow = -1, not_identity = -1, sums = 0;
    for (int64_t k = ROWS * COLS; k-- > 0;) {
        const double x = value_at(job->src, job->src_grid, job->src_dtype, k);
        const double y = value_at(job->src2, job->src2_grid, job->src_dtype, k);
        const bool finite = isfinite(x) && isfinite(y);
        if (x != 0)
            nonzero = k;
        if (overflows(job->dst_dtype, x))
            overflow = k;
        const uint64_t sum = rounded_sum(job->dst_dtype, x, y);
        if (finite && !isfinite(rnl_to_double(job->dst_dtype, sum)))
            sum_overflow = k;
        if (x != (k % COLS - k / COLS == job->diagonal ? one : 0))
            not_identity = k;
        sums += x != 0 && y != 0;
    }
    CHECK(rnl_find_nonzero(job) == nonzero, "%" PRId64, nonzero);
    CHECK(rnl_find_overflow(job) == overflow, "%" PRId64, overflow);
    CHECK(rnl_find_sum_overflow(job) == sum_overflow, "%" PRId64, sum_overflow);
    CHECK(rnl_find_not_identity(job) == not_identity, "%" PRId64, not_identity);
    CHECK(rnl_count_sums(job) == sums, "%" PRId64, sums);
}

/* One value near a border, among zeros. */
static void check_borders(const rnl_job *job)
{
    char *const src = (char *)(uintptr_t)job->src;
    const uint64_t sign = random_below(2) ? rnl_sign_bit(job->src_dtype) : 0;
    const uint64_t border = rnl_overflow_bits(job->dst_dtype, job->src_dtype);
    const uint64_t infinity = rnl_infinity_bits(job->src_dtype);
    const uint64_t near[] = {0,        1,           border - 1, border, border + 1, infinity - 1,
                             infinity, infinity + 1};
    for (int64_t k = 0; k < ROWS * COLS; k++)
        rnl_store_bits(job->src_dtype, element(src, job->src_grid, job->src_dtype, k), 0);
    for (int k = 0; k < 8; k++) {
        void *const one = element(src, job->src_grid, job->src_dtype, random_below(ROWS * COLS));
        rnl_store_bits(job->src_dtype, one, sign | near[k]);
        check_finds(job);
        rnl_store_bits(job->src_dtype, one, 0);
    }
}

/* The scan accepts the identity that the kernel writes, until one element changes. */
static void check_constants(rnl_job job)
{
    job.diagonal = random_below(ROWS + COLS) - ROWS;
    rnl_job look = job;
    look.src_dtype = job.dst_dtype;
    look.src = look.src2 = job.dst;
    look.src_grid = look.src2_grid = job.dst_grid;
    rnl_fill_identity(&job);
    CHECK(rnl_find_not_identity(&look) == -1, "identity from %" PRId64, job.diagonal);
    check_finds(&look);
    const uint64_t flip = job.negate ? rnl_sign_bit(job.dst_dtype) : 0;
    const uint64_t one = rnl_from_double(job.dst_dtype, 1.0);
    for (int64_t k = 0; k < ROWS * COLS; k++)
        CHECK(bits_at(job.dst, job.dst_grid, job.dst_dtype, k) ==
                  (flip ^ (k % COLS - k / COLS == job.diagonal ? one : 0)),
              "identity %" PRId64, k);
    rnl_store_bits(job.dst_dtype,
                   element(job.dst, job.dst_grid, job.dst_dtype, random_below(ROWS * COLS)),
                   rnl_from_double(job.dst_dtype, 0.5));
    check_finds(&look);
    rnl_fill_zero(&job);
    for (int64_t k = 0; k < ROWS * COLS; k++)
        CHECK(bits_at(job.dst, job.dst_grid, job.dst_dtype, k) == 0, "zero %" PRId64, k);
}

int main(void)
{
    printf("tier %s\n", rnl_cpu_tier());
    const int64_t most = 3 * 8 * (LARGE_ROWS + 1) * (LARGE_COLS + 1); /* in the widest grid */
    first = arena_new(most);
    third = arena_new(most);
    second = arena_new(most);
    memcpy(second.start, third.start, (size_t)third.nbytes);
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
    CHECK(memcmp(third.start, second.start, (size_t)third.nbytes) == 0,
          "bytes outside the operands");
    for (int turn = check_turns(TURNS); turn > 0; turn--)
        for (int pair = 0; pair < RNL_NUM_DTYPES * RNL_NUM_DTYPES; pair++) {
            const rnl_job job = random_job((rnl_dtype)(pair / RNL_NUM_DTYPES),
                                           (rnl_dtype)(pair % RNL_NUM_DTYPES));
            check_add(&job);
            check_shift(&job);
            check_finds(&job);
            check_borders(&job);
            check_constants(job);
        }
    return check_end();
}

/* Find values that the target cannot represent, before anything is written. */
#include <math.h>
#include <stdbool.h>

#include "kernels/element.h"

int64_t rnl_find_nonzero(const rnl_job *job)
{
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++)
            if (!(number_src(job, r, c) + job->shift == 0)) /* a NaN is not zero */
                return r * job->cols + c;
    return -1;
}

int64_t rnl_find_not_identity(const rnl_job *job)
{
    const uint64_t one_bits = rnl_from_double(job->src_dtype, job->negate ? -1.0 : 1.0);
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++) {
            const uint64_t bits = load_src(job, r, c);
            if (c - r == job->diagonal ? bits != one_bits : !is_zero(job->src_dtype, bits))
                return r * job->cols + c;
        }
    return -1;
}

int64_t rnl_find_sum_overflow(const rnl_job *job)
{
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++) {
            const double a = number_src(job, r, c), b = number_src2(job, r, c);
            if (isfinite(a) && isfinite(b) &&
                !isfinite(rnl_to_double(job->dst_dtype, total_bits(job, a, b))))
                return r * job->cols + c;
        }
    return -1;
}

int64_t rnl_find_negative(const rnl_job *job)
{
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++)
            if (number_src(job, r, c) < 0)
                return r * job->cols + c;
    return -1;
}

/* The largest finite magnitude in src and src2. */
static double largest_of(const rnl_job *job)
{
    double largest = 0;
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++) {
            const double a = fabs(number_src(job, r, c)), b = fabs(number_src2(job, r, c));
            largest = isfinite(a) && a > largest ? a : largest;
            largest = isfinite(b) && b > largest ? b : largest;
        }
    return largest;
}

static bool differs(double a, double b)
{
    return a != b && !(isnan(a) && isnan(b));
}

/* Two sums of the same n terms in different orders: with terms of random rounding errors and signs,
 * each sum is off by about u sqrt(n) of the size of the sum, u = 2^-(mantissa_bits + 1). n is steps
 * times sequences, and less than 1 / u unless the sum has lost all digits, so u sqrt(n) < sqrt(u).
 * Squares are off by twice as much: 2 sqrt(u) is accepted, relative to the largest element, because
 * terms may cancel in a single one. */
int64_t rnl_find_unequal(const rnl_job *job)
{
    const int bits = rnl_dtypes[job->src_dtype].mantissa_bits + 1;
    const double most = 2 * sqrt(ldexp(1, -bits)) * largest_of(job);
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++) {
            const double a = number_src(job, r, c), b = number_src2(job, r, c);
            if (differs(a, b) && !(fabs(a - b) <= most)) /* a NaN, or an infinity, is not near */
                return r * job->cols + c;
        }
    return -1;
}

int64_t rnl_count_unequal(const rnl_job *job)
{
    int64_t n = 0;
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++)
            n += differs(number_src(job, r, c), number_src2(job, r, c));
    return n;
}

int64_t rnl_count_sums(const rnl_job *job)
{
    int64_t n = 0;
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++)
            n += !is_zero(job->src_dtype, load_src(job, r, c)) &&
                 !is_zero(job->src_dtype, load_src2(job, r, c));
    return n;
}

/* Is a + b between two doubles? (Knuth's TwoSum) */
static bool is_between(double a, double b)
{
    const double sum = a + b, second = sum - a;
    return a - (sum - second) != 0 || b - second != 0;
}

int64_t rnl_count_shifts(const rnl_job *job)
{
    int64_t n = 0;
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++) {
            const double a = number_src(job, r, c), b = number_src2(job, r, c), sum = a + b;
            const double total = rnl_to_double(job->dst_dtype, total_bits(job, a, b));
            n += (a != 0 && b != 0) ||
                 (isfinite(sum) && (is_between(sum, job->shift) || total != sum + job->shift));
        }
    return n;
}

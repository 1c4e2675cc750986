/* Find values that the target cannot represent, before anything is written. */
#include <math.h>

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

/* Load, convert and store an element of a job, for kernels that need not be fast. */
#ifndef RNL_KERNELS_ELEMENT_H
#define RNL_KERNELS_ELEMENT_H

#include <math.h>

#include "kernels/convert.h"
#include "kernels/kernels.h"

static inline uint64_t load_at(rnl_dtype dtype, const void *base, rnl_grid grid, int64_t r,
                               int64_t c)
{
    const int64_t at = (r * grid.row + c * grid.col) * rnl_dtypes[dtype].nbytes;
    return rnl_load_bits(dtype, (const char *)base + at);
}

static inline uint64_t load_src(const rnl_job *job, int64_t r, int64_t c)
{
    return load_at(job->src_dtype, job->src, job->src_grid, r, c);
}

static inline uint64_t load_src2(const rnl_job *job, int64_t r, int64_t c)
{
    return load_at(job->src_dtype, job->src2, job->src2_grid, r, c);
}

static inline void store_dst(const rnl_job *job, int64_t r, int64_t c, uint64_t bits)
{
    const int64_t at = (r * job->dst_grid.row + c * job->dst_grid.col) *
                       rnl_dtypes[job->dst_dtype].nbytes;
    rnl_store_bits(job->dst_dtype, (char *)job->dst + at, bits);
}

static inline uint64_t convert_bits(const rnl_job *job, uint64_t bits)
{
    if (job->src_dtype == job->dst_dtype)
        return bits;
    return rnl_from_double(job->dst_dtype, rnl_to_double(job->src_dtype, bits));
}

/* a + b, rounded once. Rounding to double first may give a number halfway between two numbers of a
 * narrower dtype, although the exact sum is not halfway. Therefore a sum between two doubles
 * becomes the double with the last bit set, which is never halfway (rounding to odd). */
static inline uint64_t sum_bits(rnl_dtype dtype, double a, double b)
{
    const double sum = a + b;
    if (dtype == RNL_FLOAT64 || !isfinite(sum))
        return rnl_from_double(dtype, sum);
    const bool swap = fabs(a) < fabs(b);
    const double large = swap ? b : a, small = swap ? a : b;
    const double error = small - (sum - large); /* exact: Dekker's Fast2Sum */
    uint64_t bits = bits_of_double(sum);
    if (error != 0 && !(bits & 1))
        bits = (error > 0) == (sum > 0) ? bits + 1 : bits - 1;
    return rnl_from_double(dtype, as_double(bits));
}

/* a + b + job->shift. With a shift, a + b is rounded to double first. */
static inline uint64_t total_bits(const rnl_job *job, double a, double b)
{
    return job->shift == 0 ? sum_bits(job->dst_dtype, a, b)
                           : sum_bits(job->dst_dtype, a + b, job->shift);
}

/* The number src, or src2; 0 if the job has none. */
static inline double number_src(const rnl_job *job, int64_t r, int64_t c)
{
    return job->src ? rnl_to_double(job->src_dtype, load_src(job, r, c)) : 0;
}

static inline double number_src2(const rnl_job *job, int64_t r, int64_t c)
{
    return job->src2 ? rnl_to_double(job->src_dtype, load_src2(job, r, c)) : 0;
}

static inline bool is_zero(rnl_dtype dtype, uint64_t bits)
{
    return (bits & (rnl_sign_bit(dtype) - 1)) == 0;
}

#endif

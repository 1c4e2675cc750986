/* Write sums of biases, and constants. Biases are small, so the code is simple, not fast. */
#include "kernels/element.h"

void rnl_add(const rnl_job *job)
{
    const uint64_t flip = job->negate ? rnl_sign_bit(job->dst_dtype) : 0;
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++) {
            const uint64_t a = load_src(job, r, c), b = load_src2(job, r, c);
            uint64_t sum;
            if (is_zero(job->src_dtype, b))
                sum = convert_bits(job, a);
            else if (is_zero(job->src_dtype, a))
                sum = convert_bits(job, b);
            else
                sum = sum_bits(job->dst_dtype, rnl_to_double(job->src_dtype, a),
                               rnl_to_double(job->src_dtype, b));
            store_dst(job, r, c, sum ^ flip);
        }
}

void rnl_shift(const rnl_job *job)
{
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++)
            store_dst(job, r, c, total_bits(job, number_src(job, r, c), number_src2(job, r, c)));
}

void rnl_fill_zero(const rnl_job *job)
{
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++)
            store_dst(job, r, c, 0);
}

void rnl_fill_identity(const rnl_job *job)
{
    const uint64_t flip = job->negate ? rnl_sign_bit(job->dst_dtype) : 0;
    const uint64_t one_bits = rnl_from_double(job->dst_dtype, 1.0);
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++)
            store_dst(job, r, c, (c - r == job->diagonal ? one_bits : 0) ^ flip);
}

/* The simple version of rnl_copy: element by element, through double if the dtype changes. Every
 * faster version gives the same bits. */
#include "kernels/element.h"

void rnl_copy_ref(const rnl_job *job)
{
    const uint64_t flip = job->negate ? rnl_sign_bit(job->dst_dtype) : 0;
    for (int64_t r = 0; r < job->rows; r++)
        for (int64_t c = 0; c < job->cols; c++)
            store_dst(job, r, c, convert_bits(job, load_src(job, r, c)) ^ flip);
}

/* The product with AVX-512's instruction for pairs of 16-bit integers: Cascade Lake, Zen 4 and
 * later. */
#include "kernels/rnn_avx512.inc"

#include "kernels/rnn_vectors.inc"

#define REAL float
#define VEC vecf
#define LANES ((int64_t)LANES_F)
#define NAME(x) JOIN(x, _f)
#include "kernels/rnn_sums.inc"

#define PAIR ((int64_t)2)
#define WIDENS 1
#define P(x) JOIN(x, _i8)
#include "kernels/rnn_bytes.inc"

void rnl_product_avx512vnni(const rnl_product *job)
{
    product_bytes(job);
}

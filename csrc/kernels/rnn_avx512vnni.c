/* The product with AVX-512's instruction for pairs of 16-bit integers: Cascade Lake, Zen 4 and
 * later. */
#include "kernels/rnn_avx512.inc"

#include "kernels/rnn_vectors.inc"

#define REALS f
#include "kernels/rnn_sums.inc"

#define WEIGHTS i8
#include "kernels/rnn_bytes.inc"

void rnl_product_avx512vnni(const rnl_product *job)
{
    product_bytes(job);
}

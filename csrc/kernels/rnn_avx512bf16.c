/* The product with AVX-512's instruction for pairs of bfloats: Cooper Lake, Sapphire Rapids, Zen 4
 * and later. The instruction takes subnormal bfloats as zero. */
#include "kernels/rnn_avx512.inc"

#define DOT(sum, w, x) (vec_f) _mm512_dpbf16_ps((__m512)(sum), (__m512bh)(w), (__m512bh)(x))
#define ROUND_BFLOATS(to, from)                                                                    \
    _mm256_storeu_si256((void *)(to), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from)))
#include "kernels/rnn_vectors.inc"

static inline bits_f splat_word(const void *from)
{
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return word - (bits_f){0};
}

#define REALS f
#include "kernels/rnn_sums.inc"

#define WEIGHTS bf16
#include "kernels/rnn_product.inc"
#include "kernels/rnn_rounded.inc"

void rnl_product_avx512bf16(const rnl_product *job)
{
    product_rounded(job);
}

/* The product with AVX-512's instruction for pairs of bfloats: Cooper Lake, Sapphire Rapids, Zen 4
 * and later. The instruction takes subnormal bfloats as zero. */
#include "kernels/rnn_avx512.inc"

#include "kernels/rnn_vectors.inc"

static inline bits_f splat_word(const void *from)
{
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return word - (bits_f){0};
}

#define REAL float
#define VEC vecf
#define LANES ((int64_t)LANES_F)
#define NAME(x) JOIN(x, _f)
#define WORDS bits_f
#include "kernels/rnn_sums.inc"

#define WEIGHT uint16_t
#define PAIR ((int64_t)2)
#define WORDS_AT bits_at
#define DOT(sum, w, x) (vecf) _mm512_dpbf16_ps((__m512)(sum), (__m512bh)(w), (__m512bh)(x))
#define ROUND_BFLOATS(to, from)                                                                    \
    _mm256_storeu_si256((void *)(to), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from)))
#define P(x) JOIN(x, _bf16)
#include "kernels/rnn_product.inc"
#include "kernels/rnn_rounded.inc"

void rnl_product_avx512bf16(const rnl_product *job)
{
    product_rounded(job);
}

/* The forward pass with AVX-512 and its products of pairs of bfloats: Cooper Lake, Sapphire Rapids,
 * Zen 4 and later. Subnormal bfloats are zero to them. */
#define TIER avx512bf16
#define DOT_BFLOATS(sum, w, x) (vecf) _mm512_dpbf16_ps((__m512)(sum), (__m512bh)(w), (__m512bh)(x))

#define ROUND_BFLOATS(to, from)                                                                    \
    _mm256_storeu_si256((void *)(to), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from)))

#include "kernels/rnn_avx512.inc"

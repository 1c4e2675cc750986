/* The forward pass with AVX2 and FMA: 16 registers of 32 bytes. */
#include <immintrin.h>

#include "kernels/tier.h"

#define VECTOR_BYTES 32
#define REGISTERS 16
#define BLOCKS_OF_A_ROW(G) ((G) == 1 ? 4 : 9 / (G))
#define KEEP(vector) __asm__("" : "+x"(vector)) /* NOLINT(portability-no-assembler) */
#define LESSER_f(a, b) (vec_f)(_mm256_min_ps((__m256)(a), (__m256)(b)))
#define LESSER_d(a, b) (vec_d)(_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#define GREATER_f(a, b) (vec_f)(_mm256_max_ps((__m256)(a), (__m256)(b)))
#define GREATER_d(a, b) (vec_d)(_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define TIER avx2

#include "kernels/vectors.inc"

static inline vec_f fma_f(vec_f a, vec_f b, vec_f c)
{
    return (vec_f)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

static inline vec_d fma_d(vec_d a, vec_d b, vec_d c)
{
    return (vec_d)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}

static inline vec_f splat_f(float x)
{
    return (vec_f)_mm256_set1_ps(x);
}

static inline vec_d splat_d(double x)
{
    return (vec_d)_mm256_set1_pd(x);
}

static inline shorts_f widen_bytes(const int8_t *from)
{
    return (shorts_f)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)from));
}

static inline __m256i add_dot(ivec_f sum, shorts_f a, shorts_f b)
{
    return _mm256_add_epi32((__m256i)sum, _mm256_madd_epi16((__m256i)a, (__m256i)b));
}

static inline vec_f widen_halves(const uint16_t *from)
{
    return (vec_f)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

#include "kernels/rnn_body.inc"

#ifdef RNL_TILES_IN_C
DEFINE_OF_TILES(amx_in_c)
const rnl_rnn_kernels rnl_rnn_amx_in_c[RNL_NUM_RNN_KERNELS] = KERNELS(product_bytes,
                                                                      BY_TILES(amx_in_c));
#endif

/* The forward pass with AVX-512: 32 registers of 64 bytes. */
#include <immintrin.h>

#include "kernels/tier.h"

#define VECTOR_BYTES 64
#define ROWS_MAX 6
#define BLOCKS_MAX 4
#define ALL_TILES(F) F(1, 1) F(2, 1) F(3, 1) F(4, 1) F(5, 1) F(6, 1) F(1, 4) F(2, 2) F(3, 2)
#define BLOCKS_OF_ROWS 4, 2, 2, 1, 1, 1
#define TIER avx512

typedef float vecf __attribute__((vector_size(VECTOR_BYTES)));
typedef double vecd __attribute__((vector_size(VECTOR_BYTES)));

static inline vecf fma_f(vecf a, vecf b, vecf c)
{
    return (vecf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

static inline vecd fma_d(vecd a, vecd b, vecd c)
{
    return (vecd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}

static inline vecf splat_f(float x)
{
    return (vecf)_mm512_set1_ps(x);
}

static inline vecd splat_d(double x)
{
    return (vecd)_mm512_set1_pd(x);
}

static inline void widen_halves(vecf *to, const uint16_t *from)
{
    *to = (vecf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

#include "kernels/rnn_body.inc"

/* csrc/kernels/curves.inc, compiled once per tier with the options of the tier. */
#include "curves_tier.h"

#include <string.h>

#if defined(CURVES_PLAIN)
#define TIER plain
#define VECTOR_BYTES 16
#define FMA_F(a, b, c) ((a) * (b) + (c))
#define FMA_D(a, b, c) ((a) * (b) + (c))
#elif defined(__AVX512F__)
#include <immintrin.h>
#define TIER avx512
#define VECTOR_BYTES 64
#define FMA_F(a, b, c) _mm512_fmadd_ps(a, b, c)
#define FMA_D(a, b, c) _mm512_fmadd_pd(a, b, c)
#define LESSER_F _mm512_min_ps
#define LESSER_D _mm512_min_pd
#define GREATER_F _mm512_max_ps
#define GREATER_D _mm512_max_pd
#elif defined(__AVX2__)
#include <immintrin.h>
#define TIER avx2
#define VECTOR_BYTES 32
#define FMA_F(a, b, c) _mm256_fmadd_ps(a, b, c)
#define FMA_D(a, b, c) _mm256_fmadd_pd(a, b, c)
#define LESSER_F _mm256_min_ps
#define LESSER_D _mm256_min_pd
#define GREATER_F _mm256_max_ps
#define GREATER_D _mm256_max_pd
#else
#include <arm_neon.h>
#define TIER neon
#define VECTOR_BYTES 16
#define FMA_F(a, b, c) (vec_f) vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b))
#define FMA_D(a, b, c) (vec_d) vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b))
#endif

typedef float vec_f __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t ivec_f __attribute__((vector_size(VECTOR_BYTES)));
typedef double vec_d __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t ivec_d __attribute__((vector_size(VECTOR_BYTES)));

#ifndef LESSER_F
#define SELECT(VEC, IVEC, mask, a, b) ((VEC)(((mask) & (IVEC)(a)) | (~(mask) & (IVEC)(b))))
#define LESSER_F(a, b) SELECT(vec_f, ivec_f, (a) < (b), a, b)
#define LESSER_D(a, b) SELECT(vec_d, ivec_d, (a) < (b), a, b)
#define GREATER_F(a, b) SELECT(vec_f, ivec_f, (a) > (b), a, b)
#define GREATER_D(a, b) SELECT(vec_d, ivec_d, (a) > (b), a, b)
#endif

#define REAL float
#define IS_DOUBLE 0
#define VEC vec_f
#define IVEC ivec_f
#define NAME(x) vec_##x##_f
#define FMA FMA_F
#define LESSER LESSER_F
#define GREATER GREATER_F
#include "kernels/curves.inc"
#undef REAL
#undef IS_DOUBLE
#undef VEC
#undef IVEC
#undef NAME
#undef FMA
#undef LESSER
#undef GREATER

#define REAL double
#define IS_DOUBLE 1
#define VEC vec_d
#define IVEC ivec_d
#define NAME(x) vec_##x##_d
#define FMA FMA_D
#define LESSER LESSER_D
#define GREATER GREATER_D
#include "kernels/curves.inc"

/* n is a multiple of 64. */
#define DEFINE_LINE(NAME, T, VECTOR, CURVE)                                                        \
    static void NAME(void *to, const void *from, int64_t n)                                        \
    {                                                                                              \
        T *y = to;                                                                                 \
        const T *x = from;                                                                         \
        for (int64_t k = 0; k < n; k += (int64_t)(sizeof(VECTOR) / sizeof(T))) {                   \
            VECTOR v;                                                                              \
            memcpy(&v, x + k, sizeof v);                                                           \
            v = CURVE(v);                                                                          \
            memcpy(y + k, &v, sizeof v);                                                           \
        }                                                                                          \
    }

DEFINE_LINE(sigmoid_f, float, vec_f, vec_sigmoid_f)
DEFINE_LINE(tanh_f, float, vec_f, vec_tanh_f)
DEFINE_LINE(hard_f, float, vec_f, vec_hard_sigmoid_f)
DEFINE_LINE(hard2_f, float, vec_f, vec_hard_sigmoid_keras2_f)
DEFINE_LINE(sigmoid_d, double, vec_d, vec_sigmoid_d)
DEFINE_LINE(tanh_d, double, vec_d, vec_tanh_d)
DEFINE_LINE(hard_d, double, vec_d, vec_hard_sigmoid_d)
DEFINE_LINE(hard2_d, double, vec_d, vec_hard_sigmoid_keras2_d)

#define JOIN(a, b) a##b
#define NAME_OF(tier) #tier
#define TIER_STRUCT(tier) JOIN(curves_, tier)
#define TIER_NAME(tier) NAME_OF(tier)

const curves_tier TIER_STRUCT(TIER) = {
    TIER_NAME(TIER),
    {sigmoid_f, tanh_f, hard_f, hard2_f},
    {sigmoid_d, tanh_d, hard_d, hard2_d},
};

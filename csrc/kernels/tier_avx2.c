/* AVX2 with F16C: Haswell, Zen and later. */
#include <immintrin.h>

#include "core/dtype.h"

#define VECTOR_BYTES 32
#define HALVES 8
#define TIER avx2

static inline void stream_vector(void *to, const void *from)
{
    _mm256_stream_si256(to, _mm256_loadu_si256(from));
}

static inline void stream_fence(void)
{
    _mm_sfence();
}

static inline void floats_to_halves(uint16_t *dst, const uint32_t *src, uint16_t flip)
{
    const __m256 floats = _mm256_loadu_ps((const float *)src);
    const __m128i halves = _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((__m128i *)dst, _mm_xor_si128(halves, _mm_set1_epi16((short)flip)));
}

static inline void halves_to_floats(uint32_t *dst, const uint16_t *src, uint32_t flip)
{
    const __m256 floats = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)src));
    _mm256_storeu_si256((__m256i *)dst, _mm256_xor_si256(_mm256_castps_si256(floats),
                                                         _mm256_set1_epi32((int)flip)));
}

#include "kernels/tier_body.inc"

#ifdef RNL_TILES_IN_C
const rnl_tier rnl_tier_amx_in_c = {"amx_in_c", ENTRY(copy), ENTRY(find_overflow),
                                    rnl_rnn_amx_in_c};
#endif

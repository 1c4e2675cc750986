/* AVX-512 with BW and VL: Skylake-X, Zen 4 and later. */
#include <immintrin.h>

#include "core/dtype.h"

#define VECTOR_BYTES 64
#define HALVES 32
#define TIER avx512

static inline void stream_vector(void *to, const void *from)
{
    _mm512_stream_si512(to, _mm512_loadu_si512(from));
}

static inline void stream_fence(void)
{
    _mm_sfence();
}

static inline void floats_to_halves(uint16_t *dst, const uint32_t *src, uint16_t flip)
{
    enum { ROUNDING = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    const __m256i low = _mm512_cvtps_ph(_mm512_loadu_ps(src), ROUNDING);
    const __m256i high = _mm512_cvtps_ph(_mm512_loadu_ps(src + 16), ROUNDING);
    /* store a whole vector: put_line() reads a whole vector back when streaming */
    const __m512i halves = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    _mm512_storeu_si512(dst, _mm512_xor_si512(halves, _mm512_set1_epi16((short)flip)));
}

static inline void halves_to_floats(uint32_t *dst, const uint16_t *src, uint32_t flip)
{
    const __m512i flips = _mm512_set1_epi32((int)flip);
    for (int k = 0; k < HALVES; k += 16) {
        const __m512 floats = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(src + k)));
        _mm512_storeu_si512(dst + k, _mm512_xor_si512(_mm512_castps_si512(floats), flips));
    }
}

#include "kernels/tier_body.inc"

/* The same kernels of conversions; the forward pass has more instructions. */
const rnl_tier rnl_tier_avx512vnni = {"avx512vnni", ENTRY(copy), ENTRY(find_overflow),
                                      rnl_rnn_avx512vnni};
const rnl_tier rnl_tier_avx512bf16 = {"avx512bf16", ENTRY(copy), ENTRY(find_overflow),
                                      rnl_rnn_avx512bf16};
const rnl_tier rnl_tier_amx = {"amx", ENTRY(copy), ENTRY(find_overflow), rnl_rnn_amx};

/* NEON: every AArch64 CPU has NEON. Stores are ordinary, because the stores past the caches have no
 * intrinsic. */
#include <arm_neon.h>
#include <string.h>

#include "core/dtype.h"

#define VECTOR_BYTES 16
#define HALVES 4
#define TIER neon

static inline void stream_vector(void *to, const void *from)
{
    memcpy(to, from, VECTOR_BYTES);
}

static inline void stream_fence(void)
{
}

static inline void floats_to_halves(uint16_t *dst, const uint32_t *src, uint16_t flip)
{
    const float16x4_t halves = vcvt_f16_f32(vreinterpretq_f32_u32(vld1q_u32(src)));
    vst1_u16(dst, veor_u16(vreinterpret_u16_f16(halves), vdup_n_u16(flip)));
}

static inline void halves_to_floats(uint32_t *dst, const uint16_t *src, uint32_t flip)
{
    const float32x4_t floats = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(src)));
    vst1q_u32(dst, veorq_u32(vreinterpretq_u32_f32(floats), vdupq_n_u32(flip)));
}

#include "kernels/tier_body.inc"

#ifdef RNL_TILES_IN_C
const rnl_tier rnl_tier_amx_in_c = {"amx_in_c", ENTRY(copy), ENTRY(find_overflow),
                                    rnl_rnn_amx_in_c};
#endif

/* The forward pass with NEON: 32 registers of 16 bytes. */
#include <arm_neon.h>

#include "kernels/tier.h"

#define VECTOR_BYTES 16
#define REGISTERS 32
#define BLOCKS_OF_A_ROW(G) 4
#define KEEP(vector) (void)0
#define TIER neon

#include "kernels/vectors.inc"

static inline vec_f fma_f(vec_f a, vec_f b, vec_f c)
{
    return (vec_f)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

static inline vec_d fma_d(vec_d a, vec_d b, vec_d c)
{
    return (vec_d)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}

static inline shorts_f widen_bytes(const int8_t *from)
{
    return (shorts_f)vmovl_s8(vld1_s8(from));
}

static inline int32x4_t add_dot(ivec_f sum, shorts_f a, shorts_f b)
{
    const int16x8_t p = (int16x8_t)a, q = (int16x8_t)b;
    const int32x4_t low = vmull_s16(vget_low_s16(p), vget_low_s16(q));
    return vaddq_s32((int32x4_t)sum, vpaddq_s32(low, vmull_high_s16(p, q)));
}

static inline vec_f splat_f(float x)
{
    return (vec_f)vdupq_n_f32(x);
}

static inline vec_d splat_d(double x)
{
    return (vec_d)vdupq_n_f64(x);
}

static inline vec_f widen_halves(const uint16_t *from)
{
    return (vec_f)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}

#include "kernels/rnn_body.inc"

#ifdef RNL_TILES_IN_C
DEFINE_OF_TILES(amx_in_c)
const rnl_rnn_kernels rnl_rnn_amx_in_c[RNL_NUM_RNN_KERNELS] = KERNELS(product_bytes,
                                                                      BY_TILES(amx_in_c));
#endif

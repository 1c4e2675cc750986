/* The forward pass on any CPU: the compiler's vectors of 16 bytes for the baseline instruction set.
 * A multiply-add is a product and a sum, each rounded. */
#include <string.h>

#include "kernels/convert.h"
#include "kernels/tier.h"

#define VECTOR_BYTES 16
#define REGISTERS 16
#define BLOCKS_OF_A_ROW(G) ((G) == 1 ? 4 : 9 / (G))
#define KEEP(vector) (void)0
#define TIER plain

#include "kernels/vectors.inc"

static inline vec_f fma_f(vec_f a, vec_f b, vec_f c)
{
    return a * b + c;
}

static inline vec_d fma_d(vec_d a, vec_d b, vec_d c)
{
    return a * b + c;
}

static inline vec_f splat_f(float x)
{
    return (vec_f){x, x, x, x};
}

static inline vec_d splat_d(double x)
{
    return (vec_d){x, x};
}

static inline shorts_f widen_bytes(const int8_t *from)
{
    typedef int8_t bytes __attribute__((vector_size(VECTOR_BYTES / 2)));
    bytes some;
    memcpy(&some, from, sizeof some);
    return __builtin_convertvector(some, shorts_f);
}

static inline ivec_f add_dot(ivec_f sum, shorts_f a, shorts_f b)
{
    const ivec_f p = (ivec_f)a, q = (ivec_f)b;
    return sum + (p >> 16) * (q >> 16) + (p << 16 >> 16) * (q << 16 >> 16);
}

/* float_of_half() for a vector. Not inlined: inlined, the function would be a third of this file's
 * code. */
static __attribute__((noinline)) vec_f widen_halves(const uint16_t *from)
{
    narrow halves;
    memcpy(&halves, from, sizeof halves);
    const bits_f bits = __builtin_convertvector(halves, bits_f);
    const ivec_f size = (ivec_f)(bits & 0x7fff);
    const bits_f normal = ((bits_f)size << 13) + 0x38000000;
    const bits_f subnormal = (bits_f)(__builtin_convertvector(size, vec_f) * 0x1p-24f);
    const bits_f quiet = (bits_f)(size > 0x7c00) & FLOAT_QUIET;
    const bits_f special = 0x7f800000 | quiet | (bits & 0x3ff) << 13;
    const bits_f is_special = (bits_f)(size >= 0x7c00), is_subnormal = (bits_f)(size < 0x0400);
    const bits_f finite = (is_subnormal & subnormal) | (~is_subnormal & normal);
    return (vec_f)((bits & 0x8000) << 16 | (is_special & special) | (~is_special & finite));
}

#include "kernels/rnn_body.inc"

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

typedef float vecf __attribute__((vector_size(VECTOR_BYTES)));
typedef double vecd __attribute__((vector_size(VECTOR_BYTES)));
typedef int16_t shorts_f __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t ints_f __attribute__((vector_size(VECTOR_BYTES)));

static inline vecf fma_f(vecf a, vecf b, vecf c)
{
    return a * b + c;
}

static inline vecd fma_d(vecd a, vecd b, vecd c)
{
    return a * b + c;
}

static inline vecf splat_f(float x)
{
    return (vecf){x, x, x, x};
}

static inline vecd splat_d(double x)
{
    return (vecd){x, x};
}

static inline shorts_f widen_bytes(const int8_t *from)
{
    typedef int8_t bytes __attribute__((vector_size(VECTOR_BYTES / 2)));
    bytes some;
    memcpy(&some, from, sizeof some);
    return __builtin_convertvector(some, shorts_f);
}

static inline ints_f add_dot(ints_f sum, shorts_f a, shorts_f b)
{
    const ints_f p = (ints_f)a, q = (ints_f)b;
    return sum + (p >> 16) * (q >> 16) + (p << 16 >> 16) * (q << 16 >> 16);
}

/* float_of_half() for a vector. Not inlined: inlined, the function would be a third of this file's
 * code. */
static __attribute__((noinline)) vecf widen_halves(const uint16_t *from)
{
    typedef uint16_t halves __attribute__((vector_size(VECTOR_BYTES / 2)));
    typedef uint32_t words __attribute__((vector_size(VECTOR_BYTES)));
    typedef int32_t integers __attribute__((vector_size(VECTOR_BYTES)));
    halves narrow;
    memcpy(&narrow, from, sizeof narrow);
    const words bits = __builtin_convertvector(narrow, words);
    const integers size = (integers)(bits & 0x7fff);
    const words normal = ((words)size << 13) + 0x38000000;
    const words subnormal = (words)(__builtin_convertvector(size, vecf) * 0x1p-24f);
    const words quiet = (words)(size > 0x7c00) & FLOAT_QUIET;
    const words special = 0x7f800000 | quiet | (bits & 0x3ff) << 13;
    const words is_special = (words)(size >= 0x7c00), is_subnormal = (words)(size < 0x0400);
    const words finite = (is_subnormal & subnormal) | (~is_subnormal & normal);
    return (vecf)((bits & 0x8000) << 16 | (is_special & special) | (~is_special & finite));
}

#include "kernels/rnn_body.inc"

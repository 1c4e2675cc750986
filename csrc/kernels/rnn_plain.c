/* The forward pass on any CPU: vectors of 16 bytes as the compiler makes them for the baseline, a
 * product and a sum where others have one instruction. */
#include "kernels/convert.h"
#include "kernels/tier.h"

#define VECTOR_BYTES 16
#define REGISTERS 16
#define BLOCKS_OF_A_ROW(G) ((G) == 1 ? 4 : 9 / (G))
#define KEEP(vector) (void)0
#define STREAM(to, vector) memcpy(to, &(vector), sizeof(vector))
#define STREAM_FENCE() (void)0
#define TIER plain

typedef float vecf __attribute__((vector_size(VECTOR_BYTES)));
typedef double vecd __attribute__((vector_size(VECTOR_BYTES)));

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

static inline vecf widen_halves(const uint16_t *from)
{
    return (vecf){as_float(float_of_half(from[0])), as_float(float_of_half(from[1])),
                  as_float(float_of_half(from[2])), as_float(float_of_half(from[3]))};
}

#include "kernels/rnn_body.inc"

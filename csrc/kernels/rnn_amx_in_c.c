/* The product of rnn_amx.c with tile registers in C, for the check programs: this tier has the
 * vectors of another tier, and computes the results of the tier amx. */
#include "kernels/tier.h"

#if defined(__x86_64__)
#define VECTOR_BYTES 32 /* of avx2 */
#else
#define VECTOR_BYTES 16 /* of neon */
#endif
#define REGISTERS 16
#include "kernels/rnn_vectors.inc"

#define ROUND_BFLOATS(to, from)                                                                    \
    for (int lane = 0; lane < LANES_f; lane++)                                                     \
    (to)[lane] = rounded((from)[lane])
#define TILES(name) rnl_##name##_amx_in_c
#include "kernels/rnn_amx.inc"

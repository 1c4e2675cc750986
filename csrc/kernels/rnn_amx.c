/* The product of bfloats with tile registers: Sapphire Rapids and later. */
#include "kernels/rnn_avx512.inc"

#include "kernels/rnn_vectors.inc"

#define ROUND_BFLOATS(to, from)                                                                    \
    _mm256_storeu_si256((void *)(to), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from)))
#define TILES_OF_CPU
#define TILES(name) rnl_##name##_amx
#include "kernels/rnn_amx.inc"

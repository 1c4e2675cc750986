/* The forward pass with AVX-512. */
#define TIER avx512
#include "kernels/rnn_avx512.inc"

/* The forward pass with AVX-512. */
#include "kernels/rnn_avx512.inc"

#define TIER avx512
#include "kernels/rnn_body.inc"

/* The tier with two more instructions differs in two products. */
const rnl_rnn_kernels rnl_rnn_avx512bf16[RNL_NUM_RNN_KERNELS] = KERNELS(rnl_product_avx512bf16,
                                                                        rnl_product_avx512vnni);

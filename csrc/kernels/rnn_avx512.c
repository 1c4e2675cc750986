/* The forward pass with AVX-512. */
#include "kernels/rnn_avx512.inc"

#define TIER avx512
#include "kernels/rnn_body.inc"

DEFINE_JOB(rnl_product_avx512vnni, rnl_product)
DEFINE_JOB(rnl_product_avx512bf16, rnl_product)

/* Tiers with more instructions differ in two products. */
const rnl_rnn_kernels rnl_rnn_avx512vnni[RNL_NUM_RNN_KERNELS] = KERNELS(
    rnl_product_avx512vnni, BY_VECTORS(product_rounded));
const rnl_rnn_kernels rnl_rnn_avx512bf16[RNL_NUM_RNN_KERNELS] = KERNELS(
    rnl_product_avx512vnni, BY_VECTORS(rnl_product_avx512bf16));
DEFINE_OF_TILES(amx)
const rnl_rnn_kernels rnl_rnn_amx[RNL_NUM_RNN_KERNELS] = KERNELS(rnl_product_avx512vnni,
                                                                 BY_TILES(amx));

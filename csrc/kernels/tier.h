/* A tier: all kernels, compiled for one kind of CPU from a body that all tiers share. */
#ifndef RNL_KERNELS_TIER_H
#define RNL_KERNELS_TIER_H

#include "kernels/kernels.h"
#include "kernels/rnn.h"

/* The tile of a transposition; the check programs test sizes around it. */
enum { RNL_TILE_ROWS = 64, RNL_TILE_COLS = 128 };

typedef struct rnl_tier {
    const char *name;
    rnl_kernel *copy;
    int64_t (*find_overflow)(const rnl_job *job);
    const rnl_rnn_kernels *rnn; /* kernels/rnn.h */
} rnl_tier;

extern const rnl_tier rnl_tier_plain;
extern const rnl_rnn_kernels rnl_rnn_plain[RNL_NUM_RNN_KERNELS];
#if defined(__x86_64__)
extern const rnl_tier rnl_tier_avx2, rnl_tier_avx512, rnl_tier_avx512bf16;
extern const rnl_rnn_kernels rnl_rnn_avx2[RNL_NUM_RNN_KERNELS], rnl_rnn_avx512[RNL_NUM_RNN_KERNELS],
    rnl_rnn_avx512bf16[RNL_NUM_RNN_KERNELS];
rnl_product_fn rnl_product_avx512bf16, rnl_product_avx512vnni;
#elif defined(__aarch64__)
extern const rnl_tier rnl_tier_neon;
extern const rnl_rnn_kernels rnl_rnn_neon[RNL_NUM_RNN_KERNELS];
#endif

/* The best tier that the CPU supports, or the one that RNNLAYOUT_CPU names if the CPU supports it.
 */
const rnl_tier *rnl_tier_get(void);

#endif

/* A tier: all kernels, compiled for a kind of CPU from a body that all tiers share. */
#ifndef RNL_KERNELS_TIER_H
#define RNL_KERNELS_TIER_H

#include "kernels/kernels.h"
#include "kernels/rnn.h"

enum { RNL_ROWS_OF_TILES = 256 }; /* rnl_rnn_kernels.rows where tile registers multiply */

/* The kernels of RNL_ROUNDED by tile registers (kernels/rnn_amx.inc). */
#define RNL_DECLARE_TILES(tier)                                                                    \
    void rnl_arrange_##tier(const rnl_matrices *of, void *panel);                                  \
    void rnl_unpack_##tier(const rnl_matrices *of, const void *panel, int gate, void *to);         \
    int64_t rnl_scratch_##tier(int64_t rows, int64_t K);                                           \
    void rnl_product_##tier(const rnl_product *job);

/* The tile of a transposition; the check programs test sizes around the tile. */
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
extern const rnl_tier rnl_tier_avx2, rnl_tier_avx512, rnl_tier_avx512vnni, rnl_tier_avx512bf16,
    rnl_tier_amx;
extern const rnl_rnn_kernels rnl_rnn_avx2[RNL_NUM_RNN_KERNELS], rnl_rnn_avx512[RNL_NUM_RNN_KERNELS],
    rnl_rnn_avx512vnni[RNL_NUM_RNN_KERNELS], rnl_rnn_avx512bf16[RNL_NUM_RNN_KERNELS],
    rnl_rnn_amx[RNL_NUM_RNN_KERNELS];
rnl_product_fn rnl_product_avx512vnni, rnl_product_avx512bf16;
RNL_DECLARE_TILES(amx)
#elif defined(__aarch64__)
extern const rnl_tier rnl_tier_neon;
extern const rnl_rnn_kernels rnl_rnn_neon[RNL_NUM_RNN_KERNELS];
#endif

#ifdef RNL_TILES_IN_C /* in builds with check programs */
extern const rnl_tier rnl_tier_amx_in_c;
extern const rnl_rnn_kernels rnl_rnn_amx_in_c[RNL_NUM_RNN_KERNELS];
RNL_DECLARE_TILES(amx_in_c)
#endif

/* Return the tier that RNNLAYOUT_CPU names if the CPU supports this tier, else the best tier. */
const rnl_tier *rnl_tier_get(void);

#endif

/* The curves of csrc/kernels/curves.inc, applied to arrays, on each tier. */
#ifndef CURVES_TIER_H
#define CURVES_TIER_H

#include <stdint.h>

enum { SIGMOID, TANH, HARD_SIGMOID, HARD_SIGMOID_KERAS2, NUM_CURVES };

/* Compute y from x; n is a multiple of 64. */
typedef void curve_fn(void *y, const void *x, int64_t n);

typedef struct curves_tier {
    const char *name;
    curve_fn *of_float[NUM_CURVES], *of_double[NUM_CURVES];
} curves_tier;

extern const curves_tier curves_avx512, curves_avx2, curves_neon, curves_plain;

#endif

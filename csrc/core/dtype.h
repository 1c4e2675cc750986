/* The element types: a row per type, and exact conversions to and from double. */
#ifndef RNL_CORE_DTYPE_H
#define RNL_CORE_DTYPE_H

#include <stdbool.h>

#include "rnnlayout.h"

enum { RNL_NUM_DTYPES = RNL_FLOAT64 + 1 };

typedef struct rnl_dtype_row {
    int nbytes;
    int exponent_bits;
    int mantissa_bits; /* without the hidden bit */
} rnl_dtype_row;

extern const rnl_dtype_row rnl_dtypes[RNL_NUM_DTYPES];

/* A mask of the sign bit of an element. */
uint64_t rnl_sign_bit(rnl_dtype dtype);

/* Can `wide` represent every value of `narrow`? */
bool rnl_dtype_holds(rnl_dtype wide, rnl_dtype narrow);

/* Does any finite value of `from` become infinite in `to`? */
bool rnl_dtype_may_overflow(rnl_dtype to, rnl_dtype from);

/* The bits of the smallest positive value of `from` that rounds to infinity in `to`. */
uint64_t rnl_overflow_bits(rnl_dtype to, rnl_dtype from);

/* The bits of positive infinity. */
uint64_t rnl_infinity_bits(rnl_dtype dtype);

/* Load or store the bits of the element at p. p need not be aligned. */
uint64_t rnl_load_bits(rnl_dtype dtype, const void *p);
void rnl_store_bits(rnl_dtype dtype, void *p, uint64_t bits);

/* Convert exactly; a signalling NaN becomes quiet and keeps the payload. */
double rnl_to_double(rnl_dtype dtype, uint64_t bits);

/* Round once, to nearest even. Overflow gives infinity; a NaN keeps the top of the payload. */
uint64_t rnl_from_double(rnl_dtype dtype, double value);

#endif

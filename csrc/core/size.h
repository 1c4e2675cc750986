/*
 * Checked 64-bit size arithmetic. rnl_spec_check() bounds the size of the whole RNN; every offset
 * computed later is below this bound and needs no check.
 */
#ifndef RNL_CORE_SIZE_H
#define RNL_CORE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* A size, and whether any step of the computation overflowed int64. */
typedef struct rnl_size {
    int64_t n;
    bool overflow;
} rnl_size;

static inline rnl_size rnl_size_of(int64_t n)
{
    return (rnl_size){n, false};
}

static inline rnl_size rnl_size_add(rnl_size a, rnl_size b)
{
    rnl_size sum;
    sum.overflow = __builtin_add_overflow(a.n, b.n, &sum.n) || a.overflow || b.overflow;
    return sum;
}

static inline rnl_size rnl_size_mul(rnl_size a, rnl_size b)
{
    rnl_size product;
    product.overflow = __builtin_mul_overflow(a.n, b.n, &product.n) || a.overflow || b.overflow;
    return product;
}

#endif

/* Bit patterns of a dtype at which conversions may go wrong. */
#ifndef VALUES_H
#define VALUES_H

#include <stdlib.h>

#include "check.h"
#include "core/dtype.h"

typedef struct values {
    uint64_t *bits;
    int64_t n;
} values;

enum { NUM_RANDOM = 1 << 18 };

/* Return all patterns of a two-byte type. For other types: every exponent with every mantissa that
 * is at, below or above a power of two or a run of leading ones (ties and their neighbours,
 * carries, overflow borders, subnormals, all kinds of NaN), in both signs; then random bits. */
static inline values values_of(rnl_dtype dtype)
{
    const rnl_dtype_row *row = &rnl_dtypes[dtype];
    const uint64_t ones = (UINT64_C(1) << row->mantissa_bits) - 1;
    const int64_t most = (INT64_C(2) << row->exponent_bits) * 6 * row->mantissa_bits + NUM_RANDOM;
    values all = {malloc((size_t)most * sizeof *all.bits), 0};
    if (!all.bits)
        abort();
    if (row->nbytes == 2) {
        for (uint64_t bits = 0; bits < 65536; bits++)
            all.bits[all.n++] = bits;
        return all;
    }
    for (uint64_t top = 0; top < UINT64_C(2) << row->exponent_bits; top++)
        for (int k = 0; k < row->mantissa_bits; k++) {
            const uint64_t power = UINT64_C(1) << k, run = ones & ~(power - 1);
            const uint64_t mantissas[] = {power, power - 1, power + 1, run, run - 1, run + 1};
            for (int m = 0; m < 6; m++)
                all.bits[all.n++] = top << row->mantissa_bits | (mantissas[m] & ones);
        }
    for (int k = 0; k < NUM_RANDOM; k++)
        all.bits[all.n++] = random_bits() >> (64 - 8 * row->nbytes);
    return all;
}

#endif

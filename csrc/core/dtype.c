#include "core/dtype.h"

#include <math.h>
#include <string.h>

const rnl_dtype_row rnl_dtypes[RNL_NUM_DTYPES] = {
    [RNL_FLOAT16] = {2, 5, 10},
    [RNL_BFLOAT16] = {2, 8, 7},
    [RNL_FLOAT32] = {4, 8, 23},
    [RNL_FLOAT64] = {8, 11, 52},
};

enum { DOUBLE_MANTISSA = 52, DOUBLE_BIAS = 1023, DOUBLE_EXPONENT_MAX = 2047 };

int64_t rnl_dtype_nbytes(rnl_dtype dtype)
{
    return rnl_dtypes[dtype].nbytes;
}

uint64_t rnl_sign_bit(rnl_dtype dtype)
{
    return UINT64_C(1) << (8 * rnl_dtypes[dtype].nbytes - 1);
}

bool rnl_dtype_holds(rnl_dtype wide, rnl_dtype narrow)
{
    return rnl_dtypes[wide].exponent_bits >= rnl_dtypes[narrow].exponent_bits &&
           rnl_dtypes[wide].mantissa_bits >= rnl_dtypes[narrow].mantissa_bits;
}

bool rnl_dtype_may_overflow(rnl_dtype to, rnl_dtype from)
{
    const rnl_dtype_row *t = &rnl_dtypes[to], *f = &rnl_dtypes[from];
    return t->exponent_bits < f->exponent_bits ||
           (t->exponent_bits == f->exponent_bits && t->mantissa_bits < f->mantissa_bits);
}

uint64_t rnl_infinity_bits(rnl_dtype dtype)
{
    const rnl_dtype_row *row = &rnl_dtypes[dtype];
    return ((UINT64_C(1) << row->exponent_bits) - 1) << row->mantissa_bits;
}

/* The midpoint between the largest finite value and the next power of two rounds to the even
 * neighbour, infinity. If `from` cannot represent the midpoint, the midpoint itself rounds up to
 * the power of two. */
uint64_t rnl_overflow_bits(rnl_dtype to, rnl_dtype from)
{
    const int largest_exponent = (1 << (rnl_dtypes[to].exponent_bits - 1)) - 1;
    const double midpoint = ldexp(2.0 - ldexp(1.0, -rnl_dtypes[to].mantissa_bits - 1),
                                  largest_exponent);
    return rnl_from_double(from, midpoint);
}

uint64_t rnl_load_bits(rnl_dtype dtype, const void *p)
{
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (rnl_dtypes[dtype].nbytes) {
    case 2: memcpy(&two, p, sizeof two); return two;
    case 4: memcpy(&four, p, sizeof four); return four;
    default: memcpy(&eight, p, sizeof eight); return eight;
    }
}

void rnl_store_bits(rnl_dtype dtype, void *p, uint64_t bits)
{
    const uint16_t two = (uint16_t)bits;
    const uint32_t four = (uint32_t)bits;
    switch (rnl_dtypes[dtype].nbytes) {
    case 2: memcpy(p, &two, sizeof two); break;
    case 4: memcpy(p, &four, sizeof four); break;
    default: memcpy(p, &bits, sizeof bits); break;
    }
}

static double double_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double rnl_to_double(rnl_dtype dtype, uint64_t bits)
{
    const rnl_dtype_row *row = &rnl_dtypes[dtype];
    const int exponent_max = (1 << row->exponent_bits) - 1;
    const int bias = exponent_max >> 1;
    const uint64_t sign = bits & rnl_sign_bit(dtype) ? UINT64_C(1) << 63 : 0;
    const uint64_t mantissa = bits & ((UINT64_C(1) << row->mantissa_bits) - 1);
    const int widen = DOUBLE_MANTISSA - row->mantissa_bits;
    const int exponent = (int)(bits >> row->mantissa_bits) & exponent_max;
    const uint64_t quiet = mantissa ? UINT64_C(1) << (DOUBLE_MANTISSA - 1) : 0;

    if (exponent == exponent_max)
        return double_of_bits(sign | (uint64_t)DOUBLE_EXPONENT_MAX << DOUBLE_MANTISSA |
                              mantissa << widen | quiet);
    if (dtype == RNL_FLOAT64)
        return double_of_bits(bits);
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^(1 - bias - mantissa_bits), exact */
        const double unit = double_of_bits((uint64_t)(DOUBLE_BIAS + 1 - bias - row->mantissa_bits)
                                           << DOUBLE_MANTISSA);
        const double magnitude = (double)mantissa * unit;
        return sign ? -magnitude : magnitude;
    }
    return double_of_bits(sign | (uint64_t)(exponent - bias + DOUBLE_BIAS) << DOUBLE_MANTISSA |
                          mantissa << widen);
}

/* value >> shift, rounded to nearest, ties to even. */
static uint64_t shift_round_even(uint64_t value, int shift)
{
    if (shift >= 64)
        return 0;
    const uint64_t floor = value >> shift;
    const uint64_t remainder = value - (floor << shift);
    const uint64_t half = UINT64_C(1) << (shift - 1);
    return floor + (remainder > half || (remainder == half && (floor & 1)));
}

uint64_t rnl_from_double(rnl_dtype dtype, double value)
{
    const rnl_dtype_row *row = &rnl_dtypes[dtype];
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const int exponent_max = (1 << row->exponent_bits) - 1;
    const int bias = exponent_max >> 1;
    const uint64_t sign = bits >> 63 ? rnl_sign_bit(dtype) : 0;
    const uint64_t infinity = (uint64_t)exponent_max << row->mantissa_bits;
    const uint64_t mantissa = bits & ((UINT64_C(1) << DOUBLE_MANTISSA) - 1);
    const int exponent = (int)(bits >> DOUBLE_MANTISSA) & DOUBLE_EXPONENT_MAX;
    const int narrow = DOUBLE_MANTISSA - row->mantissa_bits;

    if (exponent == DOUBLE_EXPONENT_MAX) {
        const uint64_t quiet = mantissa ? UINT64_C(1) << (row->mantissa_bits - 1) : 0;
        return sign | infinity | mantissa >> narrow | quiet;
    }
    if (dtype == RNL_FLOAT64)
        return bits;
    if (exponent == 0) /* a double this small is zero in every narrower type */
        return sign;
    /* target is the exponent of the result. Below the smallest normal number, each step of the
     * exponent shifts the 53-bit significand by one further place. A carry out of the mantissa
     * increments the exponent, up to infinity. */
    const int target = exponent - DOUBLE_BIAS + bias;
    const uint64_t significand = mantissa | UINT64_C(1) << DOUBLE_MANTISSA;
    if (target >= exponent_max)
        return sign | infinity;
    if (target < 1)
        return sign | shift_round_even(significand, narrow + 1 - target);
    return sign |
           (((uint64_t)(target - 1) << row->mantissa_bits) + shift_round_even(significand, narrow));
}

/* Convert the bits of an element to another dtype. The results are equal to
 * rnl_from_double(rnl_to_double(x)), and the compiler can vectorize loops over these functions. */
#ifndef RNL_KERNELS_CONVERT_H
#define RNL_KERNELS_CONVERT_H

#include <string.h>

#include "core/dtype.h"

typedef uint16_t half_bits;
typedef uint16_t bfloat_bits;
typedef uint32_t float_bits;
typedef uint64_t double_bits;

static inline float as_float(float_bits bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float_bits bits_of_float(float value)
{
    float_bits bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double as_double(double_bits bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double_bits bits_of_double(double value)
{
    double_bits bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

enum { FLOAT_QUIET = 0x00400000 };

static inline bfloat_bits bfloat_of_float(float_bits bits)
{
    if ((bits & 0x7fffffff) > 0x7f800000) /* a NaN stays a NaN and keeps the top of the payload */
        return (bfloat_bits)((bits | FLOAT_QUIET) >> 16);
    return (bfloat_bits)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float_bits float_of_bfloat(bfloat_bits bits)
{
    const float_bits wide = (float_bits)bits << 16;
    return (wide & 0x7fffffff) > 0x7f800000 ? wide | FLOAT_QUIET : wide;
}

static inline half_bits half_of_float(float_bits bits)
{
    const half_bits sign = (half_bits)(bits >> 16 & 0x8000);
    const float_bits magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (half_bits)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x47800000) /* from 65536 on; values that round up to 65536 carry over below */
        return sign | 0x7c00;
    if (magnitude >= 0x38800000) { /* normal: exponent bias 127 to 15, round 13 bits away */
        const float_bits shifted = magnitude - 0x38000000;
        return (half_bits)(sign | ((shifted + 0xfff + (shifted >> 13 & 1)) >> 13));
    }
    /* Subnormal: after adding 0.5, the last place of the float is 2^-24, the unit of the result, so
     * that the FPU rounds to nearest even. */
    const float sum = as_float(magnitude) + 0.5f;
    return (half_bits)(sign | (bits_of_float(sum) - bits_of_float(0.5f)));
}

static inline float_bits float_of_half(half_bits bits)
{
    const float_bits sign = (float_bits)(bits & 0x8000) << 16;
    const float_bits magnitude = bits & 0x7fff;
    if (magnitude > 0x7c00)
        return sign | 0x7f800000 | FLOAT_QUIET | (magnitude & 0x3ff) << 13;
    if (magnitude == 0x7c00)
        return sign | 0x7f800000;
    if (magnitude >= 0x0400)
        return sign | ((magnitude << 13) + 0x38000000);
    return sign | bits_of_float((float)magnitude * 0x1p-24f);
}

static inline double_bits double_of_float(float_bits bits)
{
    return bits_of_double((double)as_float(bits));
}

static inline float_bits float_of_double(double_bits bits)
{
    return bits_of_float((float)as_double(bits));
}

static inline double_bits double_of_half(half_bits bits)
{
    return double_of_float(float_of_half(bits));
}

static inline double_bits double_of_bfloat(bfloat_bits bits)
{
    return double_of_float(float_of_bfloat(bits));
}

static inline bfloat_bits bfloat_of_half(half_bits bits)
{
    return bfloat_of_float(float_of_half(bits));
}

static inline half_bits half_of_bfloat(bfloat_bits bits)
{
    return half_of_float(float_of_bfloat(bits));
}

/* Not through float: that would round twice. */
static inline half_bits half_of_double(double_bits bits)
{
    return (half_bits)rnl_from_double(RNL_FLOAT16, as_double(bits));
}

static inline bfloat_bits bfloat_of_double(double_bits bits)
{
    return (bfloat_bits)rnl_from_double(RNL_BFLOAT16, as_double(bits));
}

#endif

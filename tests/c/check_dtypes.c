/* Are conversions from and to double right? Compared with the C compiler, ldexp and a search. */
#include <math.h>
#include <string.h>

#include "values.h"

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double double_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool same(double a, double b)
{
    return !memcmp(&a, &b, sizeof a);
}

static void check_against_compiler(const values *floats, const values *doubles)
{
    for (int64_t k = 0; k < floats->n; k++) {
        const uint64_t bits = floats->bits[k];
        CHECK(same(rnl_to_double(RNL_FLOAT32, bits), (double)float_of_bits((uint32_t)bits)),
              "%" PRIx64, bits);
    }
    for (int64_t k = 0; k < doubles->n; k++) {
        const double value = double_of_bits(doubles->bits[k]);
        const uint32_t bits = (uint32_t)rnl_from_double(RNL_FLOAT32, value);
        CHECK(same((double)float_of_bits(bits), (double)(float)value), "%a", value);
    }
}

/* The definition: (-1)^sign * 1.mantissa * 2^(exponent - bias). */
static double defined_value(rnl_dtype dtype, uint64_t bits)
{
    const rnl_dtype_row *row = &rnl_dtypes[dtype];
    const int last = (1 << row->exponent_bits) - 1, bias = last / 2;
    const uint64_t mantissa = bits & ((UINT64_C(1) << row->mantissa_bits) - 1);
    const int exponent = (int)(bits >> row->mantissa_bits) & last;
    const int hidden = exponent > 0;
    const double fraction = ldexp((double)mantissa, -row->mantissa_bits);
    const double magnitude = exponent == last ? (mantissa ? NAN : INFINITY)
                                              : ldexp(hidden + fraction, exponent + !hidden - bias);
    return bits & rnl_sign_bit(dtype) ? -magnitude : magnitude;
}

static void check_to_double(rnl_dtype dtype, const values *all)
{
    const uint64_t quiet = UINT64_C(1) << (rnl_dtypes[dtype].mantissa_bits - 1);
    for (int64_t k = 0; k < all->n; k++) {
        const uint64_t bits = all->bits[k];
        const double value = rnl_to_double(dtype, bits), defined = defined_value(dtype, bits);
        CHECK(isnan(defined) ? isnan(value) : same(value, defined), "%s %" PRIx64 " is %a",
              rnl_name(RNL_NAMES_DTYPE, (int)dtype), bits, value);
        CHECK(rnl_from_double(dtype, value) == (isnan(value) ? bits | quiet : bits),
              "%s %" PRIx64 " there and back", rnl_name(RNL_NAMES_DTYPE, (int)dtype), bits);
    }
}

/* Round a finite magnitude to a two-byte type by looking for its neighbours. */
static uint64_t nearest(rnl_dtype dtype, double magnitude)
{
    uint64_t below = 0, above = rnl_infinity_bits(dtype);
    while (above - below > 1) {
        const uint64_t middle = (below + above) / 2;
        if (defined_value(dtype, middle) <= magnitude)
            below = middle;
        else
            above = middle;
    }
    /* Infinity counts as the next power of two: one unit above the largest finite value. */
    const double unit = defined_value(dtype, below) - defined_value(dtype, below - (below > 0));
    const double low = defined_value(dtype, below);
    const double high = isinf(defined_value(dtype, above)) ? low + unit
                                                           : defined_value(dtype, above);
    const double halfway = low + (high - low) / 2; /* exact: few bits, far from a double's limits */
    return magnitude < halfway || (magnitude == halfway && below % 2 == 0) ? below : above;
}

static void check_rounding(rnl_dtype dtype, const values *doubles)
{
    for (int64_t k = 0; k < doubles->n; k++) {
        const double value = double_of_bits(doubles->bits[k]);
        const uint64_t bits = rnl_from_double(dtype, value);
        const uint64_t sign = signbit(value) ? rnl_sign_bit(dtype) : 0;
        if (isnan(value))
            CHECK(isnan(defined_value(dtype, bits)) && (bits & rnl_sign_bit(dtype)) == sign, "%a",
                  value);
        else
            CHECK(bits == (sign |
                           (isinf(value) ? rnl_infinity_bits(dtype) : nearest(dtype, fabs(value)))),
                  "%a as %s is %" PRIx64, value, rnl_name(RNL_NAMES_DTYPE, (int)dtype), bits);
    }
}

static uint64_t convert(rnl_dtype to, rnl_dtype from, uint64_t bits)
{
    return rnl_from_double(to, rnl_to_double(from, bits));
}

/* Which values a dtype can represent: checked for every value, and at the border. */
static void check_limits(rnl_dtype to, rnl_dtype from, const values *all)
{
    const char *const to_name = rnl_name(RNL_NAMES_DTYPE, (int)to);
    const char *const from_name = rnl_name(RNL_NAMES_DTYPE, (int)from);
    const uint64_t border = rnl_overflow_bits(to, from), infinity = rnl_infinity_bits(from);
    bool holds = true;
    for (int64_t k = 0; k < all->n; k++)
        holds &= isnan(rnl_to_double(from, all->bits[k])) ||
                 convert(from, to, convert(to, from, all->bits[k])) == all->bits[k];
    CHECK(rnl_dtype_holds(to, from) == holds, "%s in %s", from_name, to_name);
    CHECK(rnl_dtype_may_overflow(to, from) == (border < infinity), "%s in %s", from_name, to_name);
    CHECK(convert(to, from, border) == rnl_infinity_bits(to), "%s in %s", from_name, to_name);
    CHECK(convert(to, from, border - 1) < rnl_infinity_bits(to), "%s in %s", from_name, to_name);
}

int main(void)
{
    values all[RNL_NUM_DTYPES];
    for (rnl_dtype dtype = 0; dtype <= RNL_FLOAT64; dtype++) {
        all[dtype] = values_of(dtype);
        check_to_double(dtype, &all[dtype]);
    }
    check_against_compiler(&all[RNL_FLOAT32], &all[RNL_FLOAT64]);
    check_rounding(RNL_FLOAT16, &all[RNL_FLOAT64]);
    check_rounding(RNL_BFLOAT16, &all[RNL_FLOAT64]);
    for (rnl_dtype to = 0; to <= RNL_FLOAT64; to++)
        for (rnl_dtype from = 0; from <= RNL_FLOAT64; from++)
            check_limits(to, from, &all[from]);
    for (rnl_dtype dtype = 0; dtype <= RNL_FLOAT64; dtype++)
        free(all[dtype].bits);
    return check_end();
}

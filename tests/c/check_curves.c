/* Are the curves as accurate as they should be, on every tier that this CPU supports?
 *
 * float is compared with the C library's double: on the best tier at every argument of both signs
 * up to where the curves are flat, on the others at every STRIDE-th one. double is compared with
 * long double, at random arguments. */
#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "bits.h"
#include "check.h"
#include "curves_tier.h"

enum { BLOCK = 4096, MOST_TIERS = 3 };

/* Prime strides, so that all mantissas occur; or 1 for all arguments, which takes half a minute.
 * Without NDEBUG, sanitizers may be in use. */
#if defined(NDEBUG) && !defined(__aarch64__) /* which is emulated */
enum { STRIDE_OF_BEST = 1, STRIDE = 37, STRIDE_BEYOND = 4001, NUM_BLOCKS = 64 };
#else
enum { STRIDE_OF_BEST = 307, STRIDE = 307, STRIDE_BEYOND = 40009, NUM_BLOCKS = 8 };
#endif

static const char *const names[] = {"sigmoid", "tanh", "hard_sigmoid", "hard_sigmoid_keras2"};

/*
 * The largest error allowed, in units in the last place (ulp) of the true value; u is half a unit
 * of
 * 1. The bound is the sum of these errors:
 *
 * sigmoid, a power of two divided by d: the division adds at most 1/2. If d is a power of two times
 * m, 1 <= m < 2, the rounding of d is u / m of d, and the quotient has the mantissa 2 / m: this
 * adds 1 / m^2, at most 1. The terms of d have two errors of u / 4, from the roundings of r and of
 * e^r - 1, and less if m is near 1: at most 1/2.
 *
 * tanh: the last sum adds at most 1/2. The rounding of m is 1/2 of its ulp; t is about m / 2, or a
 * little less, and then its ulp is a quarter of that of m: at most 1. The Newton step leaves
 * 1 - (1 - t) of the other roundings; for large |x|, where it leaves more, m has hardly any effect:
 * at most 1/2.
 */
static const double most_ulp = 2;

typedef struct tier {
    const curves_tier *curves;
    double worst_float[NUM_CURVES], worst_double[NUM_CURVES];
} tier;

static tier tiers[MOST_TIERS];
static int num_tiers;

static void find_tiers(void)
{
    tiers[num_tiers++].curves = &curves_plain;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        tiers[num_tiers++].curves = &curves_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        tiers[num_tiers++].curves = &curves_avx512;
#elif defined(__aarch64__)
    tiers[num_tiers++].curves = &curves_neon;
#endif
}

/* --------------------------------------------------------------------------------------- float */

/* The true values at x and -x, x >= 0. The roundings of double are about 2^-27 units of a float. */
static void true_floats(int curve, double x, double *want)
{
    if (curve == TANH) {
        want[0] = tanh(x);
        want[1] = -want[0];
    } else {
        const double e = exp(-x);
        want[0] = 1 / (1 + e);
        want[1] = e * want[0];
    }
}

/* Return the distance of a float from a value, in units of 2^-23 of the value's power of two, or in
 * units of the smallest subnormal. */
static double error_of_float(float y, double value)
{
    const double power = double_of_bits(bits_of_double(value) & UINT64_C(0x7ff) << 52);
    return fabs(y - value) * 0x1p23 / (power < FLT_MIN ? FLT_MIN : power);
}

/* Check pairs of x and -x in one curve. */
static void check_floats(tier *t, int curve, const float *x)
{
    static double want[BLOCK];
    static float y[BLOCK];
    t->curves->of_float[curve](y, x, BLOCK);
    for (int k = 0; k < BLOCK; k += 2)
        true_floats(curve, x[k], want + k);
    double worst = 0;
    int at = 0, odd = 0, outside = 0;
    for (int k = 0; k < BLOCK; k++) {
        const double error = error_of_float(y[k], want[k]);
        at = error <= worst ? at : k; /* also if it is a NaN */
        worst = error <= worst ? worst : error;
        odd += bits_of_float(y[k]) == bits_of_float(-y[k ^ 1]);
        outside += !(y[k] <= 1 && y[k] >= (curve == TANH ? -1 : 0));
    }
    CHECK(worst <= most_ulp, "%s %s(%a): %a, not %a: %.3f ulp", t->curves->name, names[curve],
          x[at], y[at], want[at], worst);
    CHECK(!outside && odd == (curve == TANH ? BLOCK : 0), "%s %s, from %a on: %d outside, %d odd",
          t->curves->name, names[curve], x[0], outside, odd);
    t->worst_float[curve] = fmax(t->worst_float[curve], worst);
}

/* Fill a block with the bit patterns from first to last; the last one is repeated. */
static void check_float_range(tier *t, int curve, uint32_t first, uint32_t last, uint32_t stride)
{
    static float x[BLOCK];
    for (uint64_t bits = first; bits <= last;) {
        for (int k = 0; k < BLOCK; k += 2, bits += stride) {
            x[k] = float_of_bits(bits < last ? (uint32_t)bits : last);
            x[k + 1] = -x[k];
        }
        check_floats(t, curve, x);
    }
}

static void check_all_floats(tier *t, int curve)
{
    const uint32_t flat = bits_of_float(curve == TANH ? 10.0f : 104.0f);
    const bool best = t == tiers + num_tiers - 1;
    check_float_range(t, curve, 0, flat, best ? STRIDE_OF_BEST : STRIDE);
    check_float_range(t, curve, flat, bits_of_float(INFINITY), STRIDE_BEYOND);
}

/* -------------------------------------------------------------------------------------- double */

static long double true_double(int curve, long double x)
{
    const long double e = expl(-fabsl(x));
    return curve == TANH ? tanhl(x) : (x < 0 ? e : 1) / (1 + e);
}

static long double ulp_of_double(long double value)
{
    int exponent;
    (void)frexpl(value, &exponent);
    return ldexpl(1, exponent - 53 < -1074 ? -1074 : exponent - 53);
}

static void check_doubles(int curve, const double *x)
{
    static long double want[BLOCK], ulp[BLOCK];
    static double y[BLOCK];
    /* If long double is as wide as double: the error of the C library. */
    const double own = LDBL_MANT_DIG > DBL_MANT_DIG ? 0 : 2;
    for (int k = 0; k < BLOCK; k++) {
        want[k] = true_double(curve, x[k]);
        ulp[k] = ulp_of_double(want[k]);
    }
    for (tier *t = tiers; t < tiers + num_tiers; t++) {
        t->curves->of_double[curve](y, x, BLOCK);
        for (int k = 0; k < BLOCK; k++) {
            const double error = (double)(fabsl(y[k] - want[k]) / ulp[k]);
            CHECK(error <= most_ulp + own && y[k] <= 1 && y[k] >= (curve == TANH ? -1 : 0),
                  "%s %s(%a): %a, not %La: %.3f ulp", t->curves->name, names[curve], x[k], y[k],
                  want[k], error);
            t->worst_double[curve] = fmax(t->worst_double[curve], error);
        }
    }
}

/* Arguments are spread evenly up to each of these, and over all exponents. */
static void check_all_doubles(int curve)
{
    static const double reaches[] = {1, 24, 760};
    static double x[BLOCK];
    for (int block = 0; block < 4 * NUM_BLOCKS; block++) {
        for (int k = 0; k < BLOCK; k++) {
            const double unit = (double)(int64_t)random_bits() * 0x1p-63;
            x[k] = block % 4 < 3 ? unit * reaches[block % 4]
                                 : ldexp(unit, (int)random_below(1074 + 9) - 1074);
        }
        check_doubles(curve, x);
    }
}

/* ------------------------------------------------------------------------------- hard sigmoids */

/* Keras 3's has the same bits. In the older one 0.2, its product and the sum are each rounded by at
 * most a quarter of epsilon for results near 1. */
static void check_hard(const tier *t, const float *x)
{
    static float y[BLOCK], old[BLOCK];
    static double wide[BLOCK], z[BLOCK], old_z[BLOCK];
    for (int k = 0; k < BLOCK; k++)
        wide[k] = x[k];
    t->curves->of_float[HARD_SIGMOID](y, x, BLOCK);
    t->curves->of_float[HARD_SIGMOID_KERAS2](old, x, BLOCK);
    t->curves->of_double[HARD_SIGMOID](z, wide, BLOCK);
    t->curves->of_double[HARD_SIGMOID_KERAS2](old_z, wide, BLOCK);
    for (int k = 0; k < BLOCK; k++) {
        const float want = fminf(fmaxf(x[k] + 3, 0), 6) / 6;
        const double want_z = fmin(fmax(wide[k] + 3, 0), 6) / 6;
        const long double old_want = fminl(fmaxl(0.2L * x[k] + 0.5L, 0), 1);
        CHECK(bits_of_float(y[k]) == bits_of_float(want), "%s hard_sigmoid(%a): %a, not %a",
              t->curves->name, x[k], y[k], want);
        CHECK(bits_of_double(z[k]) == bits_of_double(want_z), "%s hard_sigmoid(%a): %a, not %a",
              t->curves->name, wide[k], z[k], want_z);
        CHECK(fabsl(old[k] - old_want) <= 0.75 * FLT_EPSILON && old[k] >= 0 && old[k] <= 1,
              "%s hard_sigmoid_keras2(%a): %a", t->curves->name, x[k], old[k]);
        CHECK(fabsl(old_z[k] - old_want) <= 0.75 * DBL_EPSILON && old_z[k] >= 0 && old_z[k] <= 1,
              "%s hard_sigmoid_keras2(%a): %a", t->curves->name, wide[k], old_z[k]);
    }
}

static void check_all_hard(const tier *t)
{
    static float x[BLOCK] = {0, -0.0f, INFINITY, -INFINITY, 3, -3, 2.5f, -2.5f};
    for (int k = 8; k < BLOCK; k++)
        x[k] = (float)(int64_t)random_bits() * 0x1p-61f;
    check_hard(t, x);
}

/* ------------------------------------------------------------------------------ all the curves */

/* A NaN gives a NaN. Any other value gives the same bits in another lane, between NaNs. */
static void check_lanes(const tier *t, int curve)
{
    static float x[BLOCK], y[BLOCK], apart[2 * BLOCK], z[2 * BLOCK];
    static double wide[BLOCK], wide_y[BLOCK], wide_apart[2 * BLOCK], wide_z[2 * BLOCK];
    for (int k = 0; k < BLOCK; k++) {
        wide[k] = x[k] = (float)(int64_t)random_bits() * 0x1p-60f;
        const uint32_t payload = (uint32_t)random_below(0x7fffff) + 1;
        wide_apart[2 * k] = apart[2 * k] = float_of_bits((k & 1 ? 0x7f800000 : 0xff800000) |
                                                         payload);
        wide_apart[2 * k + 1] = apart[2 * k + 1] = x[k];
    }
    t->curves->of_float[curve](y, x, BLOCK);
    t->curves->of_float[curve](z, apart, 2 * BLOCK);
    t->curves->of_double[curve](wide_y, wide, BLOCK);
    t->curves->of_double[curve](wide_z, wide_apart, 2 * BLOCK);
    for (int k = 0; k < BLOCK; k++) {
        CHECK(isnan(z[2 * k]) && isnan(wide_z[2 * k]), "%s %s(NaN %08" PRIx32 ")", t->curves->name,
              names[curve], bits_of_float(apart[2 * k]));
        CHECK(bits_of_float(y[k]) == bits_of_float(z[2 * k + 1]) &&
                  bits_of_double(wide_y[k]) == bits_of_double(wide_z[2 * k + 1]),
              "%s %s(%a): %a, in another lane %a", t->curves->name, names[curve], x[k], y[k],
              z[2 * k + 1]);
    }
}

int main(void)
{
    find_tiers();
    for (int curve = SIGMOID; curve <= TANH; curve++) {
        for (tier *t = tiers; t < tiers + num_tiers; t++)
            check_all_floats(t, curve);
        check_all_doubles(curve);
        for (const tier *t = tiers; t < tiers + num_tiers; t++)
            printf("%s %s: float within %.3f ulp, double within %.3f\n", t->curves->name,
                   names[curve], t->worst_float[curve], t->worst_double[curve]);
    }
    for (const tier *t = tiers; t < tiers + num_tiers; t++) {
        check_all_hard(t);
        for (int curve = 0; curve < NUM_CURVES; curve++)
            check_lanes(t, curve);
    }
    return check_end();
}

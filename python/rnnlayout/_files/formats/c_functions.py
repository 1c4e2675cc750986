"""The functions that a step in C calls: products and activations, as in csrc/kernels/curves.inc.

Each operation that rounds is a separate declaration or assignment: a compiler for the x87 rounds
only declarations and assignments. REAL stands for float or double, rnn_ for the name of the RNN.
"""

from __future__ import annotations

_FUNCTIONS = {
    "rnn_fma": """\
/* Rounded twice, on every machine. */
static inline REAL rnn_fma(REAL a, REAL b, REAL c)
{{
    const REAL product = a * b, sum = product + c;
    return sum;
}}
""",
    "rnn_min": """\
/* A NaN in x compares false and stays. */
static inline REAL rnn_min(REAL x, REAL limit)
{{
    return limit < x ? limit : x;
}}
""",
    "rnn_max": """\
/* A NaN in x stays. */
static inline REAL rnn_max(REAL x, REAL limit)
{{
    return limit > x ? limit : x;
}}
""",
    "rnn_reduce": """\
typedef union rnn_word {{ REAL value; uint{bits}_t bits; }} rnn_word;
typedef char rnn_{bits}_bits[sizeof(REAL) == sizeof(uint{bits}_t) ? 1 : -1]; /* is checked */

/* Return n, the nearest integer to x / ln 2, and 2^(n + lift) in *power. The sum is so large that n
 * is in its lowest bits. */
static inline REAL rnn_reduce(REAL x, int lift, REAL *power)
{{
    const REAL round = {round} + (REAL)({exponent_bias} + lift);
    rnn_word sum;
    sum.value = rnn_fma(x, {log2_e}, round);
    const REAL n = sum.value - round;
    sum.bits <<= {mantissa};
    *power = sum.value;
    return n;
}}
""",
    "rnn_expm1": """\
/* e^r - 1, plus last - r: r + r^2 times a polynomial. */
static inline REAL rnn_expm1(REAL r, REAL last)
{{
    const REAL square = r * r;
{exponential}    const REAL fourth = square * square;
    return rnn_fma(fourth, sum, rnn_fma(rnn_fma({c1}, r, {c0}), square, last));
}}
""",
    "rnn_sigmoid": """\
/* 2^n / (2^n + e^r), where x = n ln 2 - r; lifted, so that small results do not lose bits. */
static inline REAL rnn_sigmoid(REAL x)
{{
    const REAL inside = rnn_max(rnn_min(x, 40), {left});
    REAL power;
    const REAL n = rnn_reduce(inside, {lift}, &power);
    const REAL r = rnn_fma(n, {ln2_low}, rnn_fma(n, {ln2_high}, -inside));
    const REAL sum = power + {lifted}, above = sum - {lifted}, lost = power - above;
    const REAL last = rnn_fma(lost, {lower}, r);
    const REAL result = power / rnn_fma(rnn_expm1(r, last), {lifted}, sum);
    return result;
}}
""",
    "rnn_hard_sigmoid": """\
static inline REAL rnn_hard_sigmoid(REAL x)
{{
    const REAL shifted = x + 3, result = rnn_min(rnn_max(shifted, 0), 6) / 6;
    return result;
}}
""",
    "rnn_hard_sigmoid_keras2": """\
static inline REAL rnn_hard_sigmoid_keras2(REAL x)
{{
    return rnn_min(rnn_max(rnn_fma(x, (REAL)0.2, (REAL)0.5), 0), 1);
}}
""",
    "rnn_relu": """\
static inline REAL rnn_relu(REAL x)
{{
    return rnn_max(x, 0);
}}
""",
    "rnn_tanh": """\
/* 1 - 2 / (e^2|x| + 1), with 2|x| = n ln 2 + r; near zero an odd polynomial. */
static inline REAL rnn_tanh(REAL x)
{{
    rnn_word word;
    word.value = x;
    const uint{bits}_t sign = word.bits & (uint{bits}_t)1 << {sign};
    word.bits ^= sign;
    const REAL size = rnn_min(word.value, 20);
    if (size < {near}) {{
        const REAL square = x * x, cube = x * square;
{odd}        word.value = rnn_fma(sum, cube, x);
    }} else {{
        const REAL twice = size + size;
        REAL power;
        const REAL n = rnn_reduce(twice, 0, &power), r = rnn_fma(n, -{ln2}, twice);
        const REAL more = power + 1, rest = 2 / rnn_fma(rnn_expm1(r, r), power, more);
        word.value = 1 - rest;
    }}
    word.bits |= sign;
    return word.value;
}}
""",
    "rnn_add": """\
/* sum[j] += the sum over k of w[k][j] x[k], in this order; four terms at a time. */
static void rnn_add(REAL *restrict sum, const REAL *w, const REAL *x, int rows, int cols)
{{
    int k = 0;
    for (; k + 4 <= cols; k += 4, w += 4 * rows)
        for (int j = 0; j < rows; j++) {{
            REAL s = rnn_fma(w[j], x[k], sum[j]);
            s = rnn_fma(w[rows + j], x[k + 1], s);
            s = rnn_fma(w[2 * rows + j], x[k + 2], s);
            sum[j] = rnn_fma(w[3 * rows + j], x[k + 3], s);
        }}
    for (; k < cols; k++, w += rows)
        for (int j = 0; j < rows; j++)
            sum[j] = rnn_fma(w[j], x[k], sum[j]);
}}
""",
}


def _in_pairs(*terms: str) -> str:
    """Return the statements that compute a polynomial of r, pairs of terms at a time."""
    first, *pairs = [terms[k : k + 2] for k in range(0, len(terms), 2)][::-1]
    start = f"rnn_fma({first[1]}, r, {first[0]})" if len(first) > 1 else first[0]
    lines = [f"rnn_fma(sum, square, rnn_fma({high}, r, {low}))" for low, high in pairs]
    return f"    REAL sum = {start};\n" + "".join(f"    sum = {line};\n" for line in lines)


def _term_by_term(*terms: str) -> str:
    """Return the statements that compute a polynomial of the square."""
    *lower_terms, highest = terms
    lines = [f"        sum = rnn_fma(sum, square, {term});\n" for term in reversed(lower_terms)]
    return f"        REAL sum = {highest};\n" + "".join(lines)


# The numbers of csrc/kernels/curves.inc.
_FLOAT = {
    "bits": 32,
    "mantissa": 23,
    "sign": 31,
    "exponent_bias": 127,
    "lift": 64,
    "round": "0x1.8p23f",
    "left": "-104.0f",
    "lower": "0x1p-64f",
    "lifted": "0x1p64f",
    "near": "0.55f",
    "log2_e": "0x1.715476p+0f",
    "ln2": "0x1.62e43p-1f",
    "ln2_high": "0x1.62e8p-1f",
    "ln2_low": "-0x1.e8082ep-16f",
    "c0": "0x1.fffffcp-2f",
    "c1": "0x1.555494p-3f",
    "exponential": _in_pairs("0x1.5558b8p-5f", "0x1.123854p-7f", "0x1.6a43a6p-10f"),
    "odd": _term_by_term(
        "-0x1.55554cp-2f",
        "0x1.110d6cp-3f",
        "-0x1.b9326ep-5f",
        "0x1.598688p-6f",
        "-0x1.9cac9cp-8f",
    ),
}
_DOUBLE = {
    "bits": 64,
    "mantissa": 52,
    "sign": 63,
    "exponent_bias": 1023,
    "lift": 512,
    "round": "0x1.8p52",
    "left": "-746.0",
    "lower": "0x1p-512",
    "lifted": "0x1p512",
    "near": "0.55",
    "log2_e": "0x1.71547652b82fep+0",
    "ln2": "0x1.62e42fefa39efp-1",
    "ln2_high": "0x1.62e42fefa4p-1",
    "ln2_low": "-0x1.8432a1b0e2634p-43",
    "c0": "0x1.0000000000008p-1",
    "c1": "0x1.55555555554fep-3",
    "exponential": _in_pairs(
        "0x1.5555555550f6fp-5",
        "0x1.11111111274ecp-7",
        "0x1.6c16c182e9a20p-10",
        "0x1.a01a012a68d6ep-13",
        "0x1.a0199cf771f0ep-16",
        "0x1.71df28de2c912p-19",
        "0x1.28ab110a714f2p-22",
        "0x1.ad756a1bc1450p-26",
    ),
    "odd": _term_by_term(
        "-0x1.55555555554e1p-2",
        "0x1.11111111062c1p-3",
        "-0x1.ba1ba1afade06p-5",
        "0x1.664f461da2d86p-6",
        "-0x1.226de59bedde3p-7",
        "0x1.d6c70d7a30960p-9",
        "-0x1.7cfc22a3f47a0p-10",
        "0x1.2fd038fbaf0cdp-11",
        "-0x1.ba1e21d7a2511p-13",
        "0x1.aeca0613b690dp-15",
    ),
}


def with_functions(code: str, real: str) -> str:
    """Return the code after the functions that it calls."""
    for name, text in reversed(_FUNCTIONS.items()):
        if f"{name}(" in code:
            code = text.format(**(_DOUBLE if real == "double" else _FLOAT)) + "\n" + code
    return code

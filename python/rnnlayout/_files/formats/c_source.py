""".c: an RNN as a C program: one C99 file with the weights and a step; written only.

The step has the arithmetic of the core's plain kernels (csrc/kernels/rnn_plain.c and rnn_gates.inc)
in the same order, so the results have the same bits. In the texts below rnn_ and RNN_ stand for the
name of the RNN, REAL for float or double, GATE and CURVE for the activations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rnnlayout import _native
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._model.config import how_to_leave_out
from rnnlayout._model.dtypes import widen_bits
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._model.weights import Weights
from rnnlayout._native import LossyError
from rnnlayout._run.settings import CPU, source_settings_of

from .c_functions import with_functions
from .c_header import c_identifier
from .registry import ModelFormat

_PER_LINE = 6  # numbers

_TOP = """\
/*
 * @SPEC@: one step in C99. Written by rnnlayout; do not edit.
 *
 *     rnn_state state;
 *     rnn_init(&state);           zeros
 *     rnn_step(&state, x, y);     for each step: x has RNN_INPUTS numbers, y RNN_OUTPUTS
 *
 * It needs no library, no files and no memory but the state. y may be x. Another file of the
 * program gets the declarations alone:
 *
 *     #define RNN_DECLARATIONS
 *     #include "@FILE@"
 *
 * Compiled with -std=c99, or with -ffp-contract=off, the results have the bits of rnnlayout's
 * kernels for any CPU (RNNLAYOUT_CPU=plain). gcc uses vectors with -O3 -fno-trapping-math.
 */
#ifndef RNN_DECLARED
#define RNN_DECLARED
#ifdef __cplusplus
extern "C" {{
#endif
enum {{ RNN_INPUTS = {I}, RNN_OUTPUTS = {P}, RNN_HIDDEN = {H}, RNN_LAYERS = {L} }};
typedef struct rnn_state {{
    REAL h[RNN_LAYERS][RNN_OUTPUTS];{c}
}} rnn_state;
void rnn_init(rnn_state *state);
void rnn_step(rnn_state *state, const REAL *x, REAL *y);
#ifdef __cplusplus
}}
#endif
#endif

#ifndef RNN_DECLARATIONS
#include <stdint.h>
#if defined __clang__ || !defined __GNUC__
#pragma STDC FP_CONTRACT OFF
#endif

"""

_C_STATE = "\n    REAL c[RNN_LAYERS][RNN_HIDDEN];"

_LAYER = """\
typedef struct rnn_weights {{
    int inputs;
    const REAL *w, *r, *start{members};
}} rnn_weights;

/* {about} */
static void rnn_layer(const rnn_weights *of, const REAL *x, REAL *h{c})
{{
    REAL sum[{sums} * RNN_HIDDEN]{more};
    for (int j = 0; j < {sums} * RNN_HIDDEN; j++)
        sum[j] = of->start[j];
{of_x}    rnn_add(sum{h_at}, of->r, h, {of_h} * RNN_HIDDEN, RNN_OUTPUTS);
{before}    for (int j = 0; j < RNN_HIDDEN; j++) {{
{unit}    }}
{after}}}

"""

_OF_X = "    rnn_add(sum, of->w, x, {of_x} * RNN_HIDDEN, of->inputs);\n"
_SKIPS = """\
    if (of->w)
        rnn_add(sum, of->w, x, {of_x} * RNN_HIDDEN, of->inputs);
    for (int j = 0; j < {of_x} * RNN_HIDDEN && !of->w; j++)
        sum[j] = sum[j] + x[j % RNN_HIDDEN];
"""

_LSTM = """\
        const REAL i = GATE({i});
        const REAL f = GATE({f});
        const REAL added = i * CURVE(sum[2 * RNN_HIDDEN + j]);
        c[j] = {c};
        {out}[j] = GATE({o}) * CURVE(c[j]);
"""
_GRU_AFTER = """\
        const REAL r = GATE(sum[RNN_HIDDEN + j]);
        const REAL z = GATE(sum[2 * RNN_HIDDEN + j]);
        const REAL n = CURVE(rnn_fma(r, sum[3 * RNN_HIDDEN + j], sum[j]));
        const REAL left = 1 - z;
        const REAL kept = z * h[j];
        h[j] = rnn_fma(n, left, kept);
"""
_RESET = """\
    for (int j = 0; j < RNN_HIDDEN; j++)
        reset[j] = GATE(sum[j]) * h[j];
    rnn_add(sum + 2 * RNN_HIDDEN, of->r_new, reset, RNN_HIDDEN, RNN_OUTPUTS);
"""
_GRU_BEFORE = """\
        const REAL z = GATE(sum[RNN_HIDDEN + j]);
        const REAL n = CURVE(sum[2 * RNN_HIDDEN + j]);
        const REAL left = 1 - z;
        const REAL kept = z * h[j];
        h[j] = rnn_fma(n, left, kept);
"""
_PROJECT = """\
    for (int j = 0; j < RNN_OUTPUTS; j++)
        h[j] = 0;
    rnn_add(h, of->project, full, RNN_OUTPUTS, RNN_HIDDEN);
"""

_END = """\
static const rnn_weights rnn_layers[RNN_LAYERS] = {{
{layers}}};

void rnn_init(rnn_state *state)
{{
    for (int k = 0; k < RNN_LAYERS; k++) {{
        for (int j = 0; j < RNN_OUTPUTS; j++)
            state->h[k][j] = 0;
{init_c}    }}
}}

void rnn_step(rnn_state *state, const REAL *x, REAL *y)
{{
    for (int k = 0; k < RNN_LAYERS; k++) {{
        rnn_layer(&rnn_layers[k], x, state->h[k]{pass_c});
        x = state->h[k];
    }}
    for (int j = 0; j < RNN_OUTPUTS; j++)
        y[j] = x[j];
}}
#endif
"""
_INIT_C = """\
        for (int j = 0; j < RNN_HIDDEN; j++)
            state->c[k][j] = 0;
"""


@dataclass(frozen=True)
class _Cell:
    """The arithmetic of a layer. sums: (gate, biases) of each sum, in order. input_gates: the gates
    of the product with the input, from the first sum. state_gates: the gates of the product with
    the state, from sum state_at. separate_gates: the gates of a second product with the state."""

    about: str
    sums: tuple[tuple[str, tuple[str, ...]], ...]
    input_gates: str
    state_gates: str
    unit: str
    separate_gates: str = ""

    @property
    def state_at(self) -> int:
        return len(self.sums) - len(self.state_gates) - len(self.separate_gates)


_BOTH = "bW", "bR"
_CELLS = {
    "lstm": _Cell(
        about="Sums of the gates i f g o.",
        sums=tuple((gate, _BOTH) for gate in "ifgo"),
        input_gates="ifgo",
        state_gates="ifgo",
        unit=_LSTM,
    ),
    "gru after": _Cell(
        about="Sums of n (of the input), r, z, n (of the state).",
        sums=(("n", ("bW",)), ("r", _BOTH), ("z", _BOTH), ("n", ("bR",))),
        input_gates="nrz",
        state_gates="rzn",
        unit=_GRU_AFTER,
    ),
    "gru before": _Cell(
        about="Sums of the gates r z n.",
        sums=tuple((gate, _BOTH) for gate in "rzn"),
        input_gates="rzn",
        state_gates="rz",
        separate_gates="n",
        unit=_GRU_BEFORE,
    ),
    "rnn": _Cell(
        about="One sum per unit.",
        sums=(("h", _BOTH),),
        input_gates="h",
        state_gates="h",
        unit="        h[j] = CURVE(sum[j]);\n",
    ),
}


def _write_c_source(out: Output, entries: Mapping[str, Weights]) -> None:
    ((name, weights),) = entries.items()
    spec = weights.spec
    if spec.bidirectional:
        raise LossyError(
            f"{name} is bidirectional, and a .c file computes one step after the other, but the"
            " backward direction starts at the last step: write a .bin, for the C library"
        )
    source = source_settings_of(weights, None)
    if source.settings:
        raise LossyError(
            f"{name} is used with {source.settings}, which a .c file does not apply: write a .bin,"
            f" or, to leave it out, {how_to_leave_out(name, source.around)}"
        )
    with np.errstate(invalid="ignore"):  # signalling NaNs
        numbers = widen_bits(weights.arrays[0], spec.dtype)
    if not np.isfinite(numbers).all():
        raise LossyError(f"{name} has weights that are not finite, which C99 has no constants for")
    c_name = c_identifier(name)
    names = {"rnn": f"{c_name}_", "RNN": f"{c_name.upper()}_"}
    real = "double" if spec.dtype == "float64" else "float"
    comment = str(spec) if spec.dtype in ("float32", "float64") else f"{spec}, widened to float"
    file_name = out.name if re.fullmatch(r"[\w.+-]+", out.name, re.ASCII) else f"{c_name}.c"
    with open(out, "w", encoding="ascii", newline="\n") as file:
        for text in _program(spec, real, source.cell_clip, numbers):
            text = re.sub(r"\b(rnn|RNN)_(?=\w)", lambda match: names[match[1]], text)
            text = re.sub(r"\bREAL\b", real, text)
            file.write(text.replace("@SPEC@", comment).replace("@FILE@", file_name))


FORMAT = ModelFormat(".c", (CPU.name,), None, _write_c_source, single=True)


def _program(spec: Spec, real: str, clip: float | None, numbers: np.ndarray) -> Iterator[str]:
    has_c = CELLS[spec.cell].has_c
    yield _TOP.format(
        I=spec.input_size,
        P=spec.proj_size or spec.hidden_size,
        H=spec.hidden_size,
        L=spec.num_layers,
        c=_C_STATE if has_c else "",
    )
    yield with_functions(_layer(spec, real, clip), real)
    rows = []
    for layer in range(spec.num_layers):
        arrays = dict(_arrays(spec, layer, numbers))
        for name, array in arrays.items():  # a paragraph of lines for each row
            yield f"static const {real} rnn_{name}{layer}[{array.size}] = {{\n"
            for row in array.tolist():
                literals = [_constant(number, real) for number in row]
                for k in range(0, len(row), _PER_LINE):
                    yield "    " + ", ".join(literals[k : k + _PER_LINE]) + ",\n"
            yield "};\n\n"
        inputs = arrays["w"].shape[0] if "w" in arrays else spec.input_size
        members = ["w", "r", "start", *_optional_arrays(spec)]
        names = [f"rnn_{name}{layer}" if name in arrays else "0" for name in members]
        rows.append(f"    {{{', '.join([str(inputs), *names])}}},\n")
    yield _END.format(
        layers="".join(rows),
        init_c=_INIT_C if has_c else "",
        pass_c=", state->c[k]" if has_c else "",
    )


def _cell_of(spec: Spec) -> _Cell:
    cell = spec.cell.partition("_")[0]
    return _CELLS[f"gru {spec.reset}" if cell == "gru" else cell]


def _optional_arrays(spec: Spec) -> list[str]:
    """Return the names of the arrays that only some RNNs have."""
    optional = {
        "r_new": _cell_of(spec).separate_gates,
        "peepholes": spec.peepholes,
        "project": spec.proj_size,
    }
    return [name for name, needed in optional.items() if needed]


def _layer(spec: Spec, real: str, clip: float | None) -> str:
    cell, projects = _cell_of(spec), bool(spec.proj_size)

    def with_peephole(k: int, sums: str) -> str:
        peephole = f"of->peepholes[{k} * RNN_HIDDEN + j]"
        return f"rnn_fma({peephole}, c[j], {sums})" if spec.peepholes else sums

    stored = "rnn_fma(f, c[j], added)"
    if clip is not None:
        limit = _constant(clip, real)
        stored = f"rnn_min(rnn_max({stored}, -{limit}), {limit})"
    unit = cell.unit.format(
        i=with_peephole(0, "sum[j]"),
        f=with_peephole(1, "sum[RNN_HIDDEN + j]"),
        o=with_peephole(2, "sum[3 * RNN_HIDDEN + j]"),
        c=stored,
        out="full" if projects else "h",
    )
    code = _LAYER.format(
        about=cell.about,
        members="".join(f", *{name}" for name in _optional_arrays(spec)),
        c=", REAL *c" if CELLS[spec.cell].has_c else "",
        sums=len(cell.sums),
        more=", full[RNN_HIDDEN]"
        if projects
        else ", reset[RNN_HIDDEN]"
        if cell.separate_gates
        else "",
        of_x=(_SKIPS if spec.skip_input else _OF_X).format(of_x=len(cell.input_gates)),
        h_at=f" + {cell.state_at} * RNN_HIDDEN" if cell.state_at else "",
        of_h=len(cell.state_gates),
        before=_RESET if cell.separate_gates else "",
        unit=unit,
        after=_PROJECT if projects else "",
    )
    relu = spec.cell == "rnn_relu" or spec.activation == "relu"
    code = code.replace("GATE(", f"rnn_{spec.recurrent_activation}(")
    return code.replace("CURVE(", "rnn_relu(" if relu else "rnn_tanh(")


def _arrays(spec: Spec, layer: int, numbers: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a layer by name. A matrix is (columns, rows of all gates)."""
    cell = _cell_of(spec)
    blocks: dict[tuple[str, str], np.ndarray] = {}
    for (block_layer, _, role, _, gate), view in _native.blocks(CPU, spec):
        tensor, at, rows, columns, *_ = view
        if block_layer == layer and tensor >= 0:
            blocks[role, gate] = numbers[at : at + rows * columns].reshape(rows, columns)

    def matrix(role: str, gates: str) -> np.ndarray:
        return np.concatenate([blocks[role, gate] for gate in gates]).T

    if layer or not spec.skip_input:
        yield "w", matrix("W", cell.input_gates)
    yield "r", matrix("R", cell.state_gates)
    exact = np.float64 if spec.dtype == "float64" else np.float32
    starts = []
    for gate, roles in cell.sums:
        start = np.zeros((spec.hidden_size, 1), exact)
        for role in roles:  # rounded as in the kernels
            start = start + blocks.get((role, gate), np.zeros(1)).astype(exact)
        starts.append(start)
    yield "start", np.concatenate(starts).T
    if cell.separate_gates:
        yield "r_new", matrix("R", cell.separate_gates)
    if spec.peepholes:
        yield "peepholes", matrix("peephole", CELLS[spec.cell].peepholes)
    if spec.proj_size:
        yield "project", blocks["P", ""].T


def _constant(number: float, real: str) -> str:
    """Return a number in hexadecimal, which no compiler rounds."""
    digits, power = number.hex().split("p")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{digits}p{power}" + ("f" if real == "float" else "")

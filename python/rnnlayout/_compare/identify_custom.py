"""identify: custom layouts, not in the table, as hand-written code produces.

Tensors are described in the letters of the table (csrc/layout/format.h): g gate, o output unit,
i input unit, the slowest first, with a comma between dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from typing import get_args

import numpy as np

from rnnlayout import _native
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._model.spec import CELLS, Activation, Cell, RecurrentActivation, Reset, Spec
from rnnlayout._model.weights import Weights, checked_weights
from rnnlayout._native import HAS_BIAS

from .identify_inputs import Observed
from .identify_rows import MOST_LAYERS
from .matrix_forms import MATRIX_AXES, reorder_axes

_ACTIVATIONS: list[tuple[RecurrentActivation, Activation]] = [
    *product(get_args(RecurrentActivation), get_args(Activation))
]
_CURVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_sigmoid_keras2": lambda x: np.clip(x / 5 + 0.5, 0, 1),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}
_ONNX = Layout("onnx")  # can represent every custom layout


@dataclass(frozen=True, eq=False)
class SplitTensors:
    """The tensors of a layer and direction, assigned to W, R and biases by size.

    W, R: the input and the recurrent matrices of all gates, an array each. biases: vectors of G H
    elements. joined: "x before h" or "h before x" if W and R are parts of a single tensor, else "".
    candidate: the recurrent bias of the candidate alone, (H,), beside a bias of all gates; or None.
    """

    W: np.ndarray
    R: np.ndarray
    biases: tuple[np.ndarray, ...]
    joined: str = ""
    candidate: np.ndarray | None = None

    def arrange(self, W: str, R: str, G: int, H: int) -> SplitTensors:
        """Return matrices (G, H, I) and biases (G, H) without gaps. W, R: axes of matrices."""
        biases = tuple(_arrange_axes(bias, _unit_order(W), G, H) for bias in self.biases)
        matrices = _arrange_axes(self.W, W, G, H), _arrange_axes(self.R, R, G, H)
        return SplitTensors(*matrices, biases, self.joined, self.candidate)


def _arrange_axes(array: np.ndarray, form: str, G: int, H: int) -> np.ndarray:
    sizes = {"g": G, "o": H, "i": array.size // (G * H)}
    return np.ascontiguousarray(reorder_axes(array, sizes, form.replace(",", ""), MATRIX_AXES))


@dataclass(frozen=True, eq=False)
class CustomLayout:
    """An RNN whose tensors are in a custom layout.

    parts: the arranged tensors of each layer and direction: layer 0 forward, layer 0 backward,
    layer 1 ... how: in words, their order. W, R: the axes that the matrices had. gates: the letters
    of the gates in the order in memory. swapped: whether the recurrent bias comes before the input
    bias. negated: whether z scales the candidate, as 1 - z does in cuDNN. forget: added to the bias
    of f.
    """

    spec: Spec
    parts: tuple[SplitTensors, ...]
    how: str
    W: str
    R: str
    gates: str
    swapped: bool
    negated: bool
    forget: float

    def weights(self, arrays: Sequence[np.ndarray] = (), dtype: str = "float64") -> Weights:
        """Return the RNN in float64 in layout onnx, from `parts`; `arrays` is not used."""
        tensors = _native.tensors(_ONNX, self.spec, HAS_BIAS)
        filled = [np.empty(shape) for _, shape in tensors]
        gates = known_layouts()["onnx"]["gates"][self.spec.cell]
        order = [self.gates.index(gate) for gate in gates]
        for k, part in enumerate(self.parts):
            layer, direction = divmod(k, self.spec.num_directions)
            W, R, biases = (array[direction] for array in filled[3 * layer : 3 * layer + 3])
            W, R = W.reshape(part.W.shape), R.reshape(part.R.shape)
            biases = biases.reshape(2, *part.W.shape[:2])
            W[:], R[:] = part.W[order], part.R[order]
            biases[:] = self.biases(part)[:, order]
            if self.negated:
                z = gates.index("z")
                for array in (W[z], R[z], biases[: len(part.biases), z]):
                    array *= -1
            if self.forget:
                biases[0, gates.index("f")] += self.forget
        return checked_weights(self.spec, _ONNX, HAS_BIAS, [name for name, _ in tensors], filled)

    def biases(self, part: SplitTensors) -> np.ndarray:
        """Return the input and the recurrent biases (2, G, H) of a part, unchanged."""
        missing = [np.zeros(part.W.shape[:2])] * (2 - len(part.biases))
        both = np.stack([*part.biases, *missing])[:: -1 if self.swapped else 1]
        if part.candidate is not None:
            both[1, self.gates.index(CELLS[self.spec.cell].candidate)] = part.candidate
        return both

    @property
    def text(self) -> str:
        """The layout of the tensors in words."""
        joined = self.parts[0].joined
        phrases = [f"gates {' '.join(self.gates)}"] if len(self.gates) > 1 else []
        if joined:
            phrases.append(f"one matrix ({_axes_in_words(self.W, 'I + H')}), {joined}")
        else:
            phrases.append(f"input matrix ({_axes_in_words(self.W, 'I')})")
            phrases.append(f"recurrent matrix ({_axes_in_words(self.R, 'H')})")
        phrases += ["the recurrent bias before the input bias"] if self.swapped else []
        phrases += ["z is multiplied with the candidate"] if self.negated else []
        phrases += [f"{self.forget} is added to the bias of f"] if self.forget else []
        count = ("no biases", "one bias", "two biases")[len(self.parts[0].biases)]
        extra = " and bR of n" if self.parts[0].candidate is not None else ""
        phrases.append(count + extra)
        return ", ".join([*phrases, self.how] if self.how else phrases)


def _axes_in_words(form: str, width: str) -> str:
    """Return the dimensions in words: "go,i" is "gates x units, I"."""
    words = {"g": "gates", "o": "units", "i": width}
    return ", ".join(" x ".join(words[axis] for axis in part) for part in form.split(","))


def _unit_order(form: str) -> str:
    """Return "og" if the gates of each unit are side by side, else "go"."""
    return form.replace("i", "").replace(",", "")


def first_steps(layouts: Sequence[CustomLayout], x: np.ndarray, directions: int) -> np.ndarray:
    """Return the outputs of the top layer's forward direction at the first step, from a zero state,
    of layouts that have equal parts: (layout, N, H).

    x: (T, N, I); in an RNN of one layer or of one direction, only the first step counts.
    directions: of the layers below. For all layouts a step is one product, which takes a fraction
    of the time of separate runs.
    """
    spec, parts, values = layouts[0].spec, layouts[0].parts, x[None]
    for layer in range(spec.num_layers - 1):
        sides = []
        for direction in range(directions):
            part, turn = parts[layer * spec.num_directions + direction], 1 - 2 * direction
            sides.append(_run_part(layouts, part, values[:, ::turn])[:, ::turn])
        values = np.concatenate(sides, axis=-1)
    top = parts[(spec.num_layers - 1) * spec.num_directions]
    return _run_part(layouts, top, values[:, :1])[:, 0]


def _run_part(layouts: Sequence[CustomLayout], part: SplitTensors, x: np.ndarray) -> np.ndarray:
    """Return the outputs of a layer and direction, (layout, T, N, H). x: (layout, T, N, I), or
    (1, T, N, I) if it is the same for all layouts."""
    spec, numbers = layouts[0].spec, np.arange(len(layouts))
    gate, state = _CURVES[spec.recurrent_activation], _CURVES[spec.activation]
    at = {
        letter: (numbers, [layout.gates.index(letter) for layout in layouts])
        for letter in layouts[0].gates
    }
    sign = np.where([layout.negated for layout in layouts], -1, 1)[:, None, None]
    forget = np.array([layout.forget for layout in layouts])[:, None, None]
    biases = np.stack([layout.biases(part) for layout in layouts], 1)[..., None, :]
    h = c = np.zeros((len(layouts), x.shape[2], part.W.shape[1]))
    outputs = []
    for step in x.swapaxes(0, 1):
        of_x, of_h = _products(step, part.W) + biases[0], _products(h, part.R) + biases[1]
        sums = {letter: of_x[place] + of_h[place] for letter, place in at.items()}
        if spec.cell == "lstm":
            c = gate(sums["f"] + forget) * c + gate(sums["i"]) * state(sums["g"])
            h = gate(sums["o"]) * state(c)
        elif spec.cell == "gru":
            r, z, place = gate(sums["r"]), gate(sign * sums["z"]), at["n"]
            if spec.reset == "before":
                of_h = _products(r * h, part.R) + biases[1]
            n = of_x[place] + (r if spec.reset == "after" else 1) * of_h[place]
            h = z * h + (1 - z) * state(n)
        else:
            h = _CURVES[spec.cell.removeprefix("rnn_")](sums["h"])
        outputs.append(h)
    return np.stack(outputs, 1)


def _products(values: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Return the products of (layout, N, K) with matrices (G, H, K): (layout, G, N, H)."""
    G, H, K = matrices.shape
    if not values.any():  # as h is at first
        return np.zeros((len(values), G, values.shape[1], H))
    rows = values.reshape(-1, K) @ matrices.reshape(-1, K).T
    products: np.ndarray = rows.reshape(*values.shape[:2], G, H).swapaxes(1, 2)
    return products


def custom_layouts(
    arrays: Sequence[np.ndarray], observed: Sequence[Observed]
) -> Iterator[list[list[CustomLayout]]]:
    """Yield the custom layouts that may agree, grouped by tensors, Spec and axes of W, then in
    lists with equal outputs at the first step from a zero state."""
    sides = product(get_args(Cell), range(1, MOST_LAYERS + 1), (1, 2))
    widths = {(reading.x.shape[-1], reading.width) for reading in observed}
    for (cell, L, D), (I, width) in product(sides, widths):  # noqa: E741
        per_part, rest = divmod(len(arrays), L * D)
        if rest:
            continue
        chunks = [arrays[k * per_part : (k + 1) * per_part] for k in range(L * D)]
        orders = {"": chunks}
        if D == 2 and L == 1:
            orders["the backward direction first"] = chunks[::-1]
        elif D == 2:
            turned = [chunks[k + L * side] for k in range(L) for side in (0, 1)]
            orders["all forward layers first"] = turned
        for H, (how, ordered) in product({width // D, width}, orders.items()):
            spec = Spec(cell, I, H, L, D == 2, dtype="float64")
            # Two added directions of a layer have the shapes of two layers, and no first step
            # distinguishes the two cases: not tried, as the search would take minutes.
            added = D == 2 and L == 1
            if any(
                reading.joins(spec)
                and not (added and reading.form != "states" and reading.width == H)
                for reading in observed
            ):
                yield from _forms(spec, ordered, how)


def _forms(
    spec: Spec, chunks: Sequence[Sequence[np.ndarray]], how: str
) -> Iterator[list[list[CustomLayout]]]:
    """Yield every form that the tensors of all layers and directions may have."""
    gates, H, D = CELLS[spec.cell].gates, spec.hidden_size, spec.num_directions
    G = len(gates)
    widths = [spec.input_size] * D + [D * H] * (len(chunks) - D)
    options = [
        _split_tensors(chunk, G, width, H) for chunk, width in zip(chunks, widths, strict=True)
    ]
    resets: tuple[Reset, ...] = ("after", "before") if CELLS[spec.cell].has_reset else ("after",)
    for parts, reset in product(_layers_alike(options), resets):
        first = parts[0]
        if first.candidate is not None and reset == "before":  # only a sum of biases counts there
            continue
        Ws, Rs = (_array_axes(a.shape, G, H, a.size // (G * H)) for a in (first.W, first.R))
        has_two = len(first.biases) == 2 and reset == "after" and "n" in gates
        swapped = (False, True) if has_two else (False,)
        negated = (False, True) if "z" in gates else (False,)
        forget = (0.0, 1.0) if "f" in gates else (0.0,)
        for W in Ws:
            arranged = {
                (W, R): tuple(part.arrange(W, R, G, H) for part in parts)
                for R in Rs
                if (R == W if first.joined else _unit_order(R) == _unit_order(W))
            }
            for recurrent, state in _ACTIVATIONS[: None if G > 1 else 1] if arranged else ():
                full = spec.replace(reset=reset, recurrent_activation=recurrent, activation=state)
                yield [
                    [
                        CustomLayout(full, ordered, how, *axes, "".join(order), swap, negate, shift)
                        for (axes, ordered), shift in product(arranged.items(), forget)
                    ]
                    for order, swap, negate in product(permutations(gates), swapped, negated)
                ]


@cache
def _array_axes(shape: tuple[int, ...], G: int, H: int, width: int) -> tuple[str, ...]:
    """Return the axes that an array of this shape may have."""
    sizes, forms = {"g": G, "o": H, "i": width}, []
    for (a, b, c), first, second in product(permutations(MATRIX_AXES), ("", ","), ("", ",")):
        form = a + first + b + second + c
        if shape == tuple(math.prod(sizes[axis] for axis in part) for part in form.split(",")):
            forms.append(form)
    return tuple(forms)


# ------------------------------------------------------------------------- which tensor is which


def _layers_alike(options: Sequence[Sequence[SplitTensors]]) -> Iterator[tuple[SplitTensors, ...]]:
    """Yield an assignment of tensors for all layers and directions: the same in each layer and
    direction, as far as the sizes allow."""
    for joined in dict.fromkeys(part.joined for part in options[0]):
        alike = [[part for part in choices if part.joined == joined] for choices in options]
        for k in range(max(map(len, alike)) if all(alike) else 0):
            yield tuple(choices[k % len(choices)] for choices in alike)


def _split_tensors(chunk: Sequence[np.ndarray], G: int, width: int, H: int) -> list[SplitTensors]:
    """Return the possible assignments of the tensors of a layer and direction."""
    arrays = _stack_gates([a[0] if a.ndim == 3 and len(a) == 1 else a for a in chunk], G, width, H)
    candidate = None
    if G == 3 and len(lone := [a for a in arrays if a.shape == (H,)]) == 1:
        candidate = lone[0]
        arrays = [a for a in arrays if a is not candidate]
    shapes = ((G, H), (H, G)) if G > 1 else ()
    plain = [a.size == G * H and (a.ndim == 1 or a.shape in shapes) for a in arrays]
    pairs = [a.size == 2 * G * H and (a.ndim == 1 or len(a) == 2) for a in arrays]
    splits: list[SplitTensors] = []
    # Two rows of biases look like the matrix of two units: try the matrix first.
    for is_bias in (plain, np.logical_or(plain, pairs)):
        vectors = [a.ravel() for a, vector in zip(arrays, is_bias, strict=True) if vector]
        biases = tuple(half for a in vectors for half in np.split(a, a.size // (G * H)))
        matrices = [a for a, vector in zip(arrays, is_bias, strict=True) if not vector]
        if splits or len(biases) > 2 or (candidate is not None and len(biases) != 1):
            break
        for W, R in permutations(matrices) if len(matrices) == 2 else ():
            if W.size == G * H * width and R.size == G * H * H:
                splits.append(SplitTensors(W, R, biases, "", candidate))
        for axis, n in enumerate(matrices[0].shape if len(matrices) == 1 else ()):
            if n == width + H and matrices[0].size == G * H * n:
                W, R = np.split(matrices[0], [width], axis)
                splits.append(SplitTensors(W, R, biases, "x before h", candidate))
                R, W = np.split(matrices[0], [H], axis)
                splits.append(SplitTensors(W, R, biases, "h before x", candidate))
    return splits


def _stack_gates(arrays: Sequence[np.ndarray], G: int, width: int, H: int) -> list[np.ndarray]:
    """Return tensors of single gates joined, in the order of the list."""
    if G == 1:
        return list(arrays)
    stacked: list[np.ndarray] = []
    groups: dict[tuple[int, ...], list[np.ndarray]] = {}
    for array in arrays:
        is_gate = array.size in (H, H * width, H * H, H * (width + H))
        (groups.setdefault(array.shape, []) if is_gate else stacked).append(array)
    for group in groups.values():
        if len(group) % G:  # not of single gates: with H = G a bias of all has the size of a matrix
            stacked += group
        else:
            stacked += [np.stack(group[at : at + G]) for at in range(0, len(group), G)]
    return stacked

"""identify: the row of a custom layout, which also reads the next checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.layout import Layout, gate_placeholder
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, SpecError

from .identify_custom import CustomLayout
from .identify_rows import RowMatch
from .matrix_forms import MATRIX_AXES

_Tensor = tuple[np.ndarray, str, str]  # an array, its text in a row, and its gate or ""


def user_layout(
    case: CustomLayout, names: Sequence[str] | None, arrays: Sequence[np.ndarray]
) -> Layout | None:
    """Return the layout of the tensors, by which they are the RNN of the case to the last bit; None
    if no row describes their names or their order. names: None for a list."""
    if not (tensors := _tensor_texts(case, names, arrays)):
        return None
    spec = case.spec
    row: dict[str, Any] = {"gates": {spec.cell: case.gates}, "tensors": tensors}
    if spec.cell == "gru":
        row |= {"reset": spec.reset, "z": "candidate" if case.negated else "state"}
    if spec.recurrent_activation != "sigmoid":
        row["recurrent_activation"] = ["sigmoid", spec.recurrent_activation]
    if spec.activation != "tanh":
        row["activation"] = ["tanh", spec.activation]
    if case.forget:
        row |= {"biases": "always", "forget_bias": case.forget}
    try:
        layout = Layout(row)
        source: Any = [*arrays] if names is None else dict(zip(names, arrays, strict=True))
        onnx = Weights(source, spec, layout).to("onnx")
    except (LayoutError, SpecError):
        return None
    return layout if _have_equal_values(onnx, case.weights()) else None


def renamed_layout(
    case: RowMatch, names: Sequence[str] | None, arrays: Sequence[np.ndarray]
) -> Layout:
    """Return the layout of the case; for one layer and direction under names of their own, the row
    of the layout with these names."""
    spec, renamed = case.spec, {*(names or case.shapes)} != {*case.shapes}
    if not renamed or names is None or not case.order or spec.num_layers > 1:
        return case.layout
    roles = {block[2] for block, _ in _native.blocks(case.layout, spec, case.optional_tensors)}
    whole = case.layout.row
    row = next(
        row
        for row in whole.get("rows", [whole])
        if spec.cell in row["gates"] and (spec.cell != "gru" or spec.reset in row["reset"])
    )
    in_order = (names[k] for k in case.order)
    tensors: dict[str, str] = {}
    try:
        for pattern, text in row["tensors"].items():
            pieces = re.findall(r"(\w+)(?:\[(\w+)\])?", text.partition("(")[0])
            gates = [gate for gate in row["gates"][spec.cell] if gate in (pieces[0][1] or gate)]
            if not gates or not any(role in roles for role, _ in pieces):
                continue
            if "{gate" in pattern:
                tensors[_gate_pattern({gate: next(in_order) for gate in gates})] = text
            else:
                tensors[next(in_order)] = text
        row |= {"gates": {spec.cell: row["gates"][spec.cell]}, "tensors": tensors}
        of_gru = () if spec.cell == "gru" else ("reset", "z")
        layout = Layout({key: fact for key, fact in row.items() if key not in of_gru})
        read = Weights(dict(zip(names, arrays, strict=True)), spec, layout)
    except (LayoutError, SpecError, StopIteration):
        return case.layout
    return layout if _have_equal_values(read, case.weights(arrays, "float64")) else case.layout


def _have_equal_values(a: Weights, b: Weights) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a.arrays, b.arrays, strict=True))


def _tensor_texts(
    case: CustomLayout, names: Sequence[str] | None, arrays: Sequence[np.ndarray]
) -> dict[str, str]:
    """Return name -> text of the tensors, as in a row; {} if a tensor or a name has no text."""
    L, D = case.spec.num_layers, case.spec.num_directions
    places = [*product(range(L), range(D))]  # (layer, direction) of each part of the list
    if case.how == "the backward direction first":
        places.reverse()
    elif case.how:
        places = [(layer, direction) for direction in range(D) for layer in range(L)]
    count = len(arrays) // len(places)
    first, options = places.index((0, 0)), [*_possible_tensors(case)]
    patterns: dict[str, str] = {}
    gates: dict[str, dict[str, str]] = {}  # text -> gate -> name
    for k in range(count):
        at = {place: names[j * count + k] for j, place in enumerate(places)} if names else {}
        array, ones = arrays[first * count + k], ""
        if array.ndim == 3 and len(array) == 1:
            array, ones = array[0], "1, "
        fits = [j for j, option in enumerate(options) if np.array_equal(option[0], array)]
        name = _name_pattern(at) if names else f"tensor{k}"
        if not fits or not name:
            return {}
        _, text, gate = options.pop(fits[0])
        text = text.replace("(", f"({ones}")
        if gate:
            gates.setdefault(text, {})[gate] = name
        else:
            patterns[name] = text
    return patterns | {_gate_pattern(by_gate): text for text, by_gate in gates.items()}


def _gate_pattern(by_gate: dict[str, str]) -> str:
    """Return a name with {gate}. by_gate: letter of the gate -> name of its tensor."""
    start = _common_start([*by_gate.values()])
    end = _common_start([name[len(start) :][::-1] for name in by_gate.values()])[::-1]
    middles = {gate: name[len(start) : len(name) - len(end)] for gate, name in by_gate.items()}
    return f"{start}{gate_placeholder(middles)}{end}"


def _common_start(names: Sequence[str]) -> str:
    """Return the characters that all names begin with."""
    alike = [len({*letters}) == 1 for letters in zip(*names, strict=False)]
    return names[0][: [*alike, False].index(False)]


def _name_pattern(names: dict[tuple[int, int], str]) -> str:
    """Return a name with {layer} and {direction:...} from those of all layers and directions; ""
    if the names of layers do not count from 0."""
    name, parts = names[0, 0], []
    for place in {(1, 0), (0, 1)} & names.keys():
        start = len(_common_start([name, names[place]]))
        rest = min(len(name), len(names[place])) - start
        end = len(_common_start([name[::-1][:rest], names[place][::-1][:rest]]))
        a, b = name[start : len(name) - end], names[place][start : len(names[place]) - end]
        if place == (1, 0) and (a, b) != ("0", "1"):
            return ""
        parts.append((start, a, "{layer}" if place == (1, 0) else f"{{direction:{a}|{b}}}"))
    for start, a, placeholder in sorted(parts, reverse=True):
        name = name[:start] + placeholder + name[start + len(a) :]
    return name


def _possible_tensors(case: CustomLayout) -> Iterator[_Tensor]:
    """Yield every tensor that the first layer and direction of the case may have."""
    part = case.parts[0]
    roles = {"W + R": (part.W, part.R), "R + W": (part.R, part.W)}
    if part.joined:
        role = "W + R" if part.joined == "x before h" else "R + W"
        yield from _matrix(case.gates, role, np.concatenate(roles[role], -1), case.W)
    else:
        yield from _matrix(case.gates, "W", part.W, case.W)
        yield from _matrix(case.gates, "R", part.R, case.R)
    names = ["bR", "bW"] if case.swapped else ["bW", "bR"]
    units = [axis for axis in case.W if axis in "go"]
    axes = ["GH"["go".index(axis)] for axis in units]
    vectors = [bias if units[0] == "g" else bias.T for bias in part.biases]
    for name, bias, vector in zip(names, part.biases, vectors, strict=False):
        yield vector.ravel(), f"{name} ({'*'.join(axes)})", ""
        yield vector, f"{name} ({', '.join(axes)})", ""
        if case.W.startswith("g,"):
            yield from ((row, f"{name} (H)", g) for g, row in zip(case.gates, bias, strict=True))
    if len(vectors) == 2:
        both, product_text = np.stack(vectors).reshape(2, -1), "*".join(axes)
        yield both.ravel(), f"{' + '.join(names)} ({product_text} + {product_text})", ""
        yield both, f"{' + '.join(names)} (1 + 1, {product_text})", ""
    if part.candidate is not None:
        yield part.candidate, "bR[n] (H)", ""


def _matrix(gates: str, role: str, matrix: np.ndarray, form: str) -> Iterator[_Tensor]:
    """Yield the tensor of all gates, and of each if the form begins with them. matrix: (G, H, I).
    form: the axes of the tensor, as in CustomLayout."""
    inputs = {"W": "I", "R": "H_in"}
    words = {"g": "G", "o": "H", "i": " + ".join(inputs[part] for part in role.split(" + "))}
    axes = [MATRIX_AXES.index(axis) for axis in form.replace(",", "")]
    dimensions = form.split(",")
    text = ", ".join("*".join(words[axis] for axis in part) for part in dimensions)
    sizes = dict(zip(MATRIX_AXES, matrix.shape, strict=True))
    shape = [int(np.prod([sizes[axis] for axis in part])) for part in dimensions]
    tensor = matrix.transpose(axes).reshape(shape)
    yield tensor, f"{role} ({text})", ""
    if dimensions[0] == "g":
        for gate, array in zip(gates, tensor, strict=True):
            yield array, f"{role} ({text.removeprefix('G, ')})", gate

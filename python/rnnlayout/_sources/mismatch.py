"""Errors for tensors that do not fit: the actual shape, the needed shape, the likely cause."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from rnnlayout import _native
from rnnlayout._model.dtypes import FLOATS
from rnnlayout._model.errors import Ask, Message, TextPart, join_parts
from rnnlayout._model.layout import Layout, known_layouts
from rnnlayout._model.sized_cache import cached_by_size
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._native import LayoutError, SpecError

from .accounting import shortest_patterns
from .candidates import (
    Guess,
    Shape,
    UnsizedRNN,
    candidates_with_names,
    count_shapes,
    guess_sizes,
    one_layer_candidates,
)
from .other_cells import difference_of_class
from .tensor_paths import is_under, prefixes_that_fit

_RNN = TypeVar("_RNN")
_LONGEST = 100  # characters of a name in a message
_MOST_TENSORS = 500  # of an RNN that a message compares names with
UNKNOWN_GATES = (
    "the order of the gates is not known: rl.identify(tensors, x, y), or `rnnlayout identify`,"
    " finds it from an input x and its output y"
)
UNKNOWN_NAMES = (
    "do not have the names of a layout: rl.identify(tensors, x, y), or `rnnlayout identify`, finds"
    " how to read those of an RNN from an input x and its output y"
)
_QUANTIZED = ("_all_weight_values", "_packed_params")  # in names of torch.ao.nn.quantized


def list_names(names: Iterable[str], most: int = 6) -> str:
    """Return "'a', 'b', 'c' and 12 more"."""
    names = list(names)
    text = ", ".join(map(_short_repr, names[:most]))
    return text + (f" and {len(names) - most} more" if len(names) > most else "")


def _short_repr(name: str) -> str:
    return repr(name) if len(name) <= _LONGEST else f"{name[:_LONGEST]!r}..."


def gradients_of_parts(name: str, parts: Iterable[str]) -> LayoutError:
    """Return the error for gradients of the parts from which torch computes a weight."""
    return LayoutError(
        f"torch computes {name} from {list_names(parts)}, whose gradients are not the gradient of"
        f" {name}: make it a plain parameter before the backward pass"
        " (parametrize.remove_parametrizations, prune.remove)"
    )


def more_parameters(module: Any, base: str, names: Iterable[str]) -> LayoutError:
    """Return the error for a subclass of a framework's layer that has further parameters."""
    text = f"{type(module).__name__} has more parameters than {base}: {list_names(names, 12)}. "
    if difference := difference_of_class(type(module).__name__):
        return LayoutError(f"{text}Its class is not supported: {difference}")
    return LayoutError(
        f"{text}It may compute something else; if it does not use them, pass the others as a dict"
        " of arrays"
    )


def other_cell(class_name: str, similar: str) -> LayoutError | None:
    """Return the error for a class that is known to compute something else; None for another class.
    similar: the class with similar tensors."""
    if not (difference := difference_of_class(class_name)):
        return None
    return LayoutError(
        f"class {_short_repr(class_name)} is not supported: its tensors look like those of"
        f" {similar}, but {difference}"
    )


def not_recurrent(module: Any, need: str) -> LayoutError:
    """Return the error for a module or layer that neither is nor contains an RNN."""
    return LayoutError(f"{type(module).__name__} is not {need}, and contains none")


def names_by_hand(shapes: Mapping[str, Shape]) -> Message | None:
    """Return what to pass for tensors of RNNs written by hand; None for other tensors."""
    from .hand_written import hand_written_advice  # for errors alone: load() does not import it

    return hand_written_advice(shapes)


def wrong_names(
    layouts: Sequence[Layout],
    names: Sequence[str],
    expected: Sequence[str] | None,
    stripped: str = "",
    fields: Mapping[str, Any] | None = None,
) -> LayoutError:
    """Return the error for names that do not fit one RNN. expected: the names of the spec; None
    without a spec. stripped: the prefix that was removed from all names. fields: the fields of a
    spec that the caller passed."""
    where = _name_layouts(layouts)
    expected = _closest(tuple(layouts), tuple(names)) if expected is None else expected
    actual, needed = set(names), set(expected)
    missing = [name for name in expected if name not in actual]
    unknown = [name for name in names if name not in needed]
    if (unknown or not names) and (error := _rnns_below(layouts, names, unknown, stripped)):
        return error
    if any(part in name for name in names for part in _QUANTIZED):
        return LayoutError(
            f"{list_names(names, 3)} are of a quantized module, which stores rounded weights: pass"
            " the state_dict() of the module that it was quantized from"
        )
    if names and len(unknown) == len(names) and len(layouts) > 1:
        return LayoutError(f"{list_names(names)} {UNKNOWN_NAMES}; need {list_names(expected)}")
    if names and len(unknown) == len(names):
        return LayoutError(
            f"no tensor of {where} among {list_names(names)}; need {list_names(expected)}"
        )
    if not missing and not unknown:
        fields_in_words = ", ".join(f"{key} {value!r}" for key, value in (fields or {}).items())
        return LayoutError(
            f"an RNN with {fields_in_words} does not have these tensors: {list_names(names, 8)}"
        )
    if expected and not missing:
        return _beside_an_rnn(layouts, unknown, expected, stripped)
    lines = [f"missing {list_names(missing)}"] if missing else []
    lines += [f"unknown {list_names(unknown)}"] if unknown else []
    if not unknown and all(n.split("/")[-1].startswith(("bias", "b_", "B")) for n in missing):
        lines.append("all layers and directions have biases, or none has")
    return LayoutError(f"{', '.join(lines)} ({where}; found {list_names(names, 8) or 'none'})")


def _rnns_below(
    layouts: Sequence[Layout], names: Sequence[str], unknown: Sequence[str], stripped: str
) -> LayoutError | None:
    """Return the error for names with RNNs under prefixes, None without such a prefix."""
    prefixes = prefixes_that_fit(layouts, names)
    if not prefixes:
        return None
    return LayoutError(
        f"{len(names)} tensors are not one RNN in {_name_layouts(layouts)} (unknown"
        f" {list_names(unknown or names, 3)}); with ",
        Ask("prefix"),
        f" these would work: {list_names([stripped + prefix for prefix in prefixes], 12)}",
    )


def _name_layouts(layouts: Sequence[Layout]) -> str:
    return layouts[0].name if len(layouts) == 1 else "any known layout"


def further_tensors(
    layouts: Sequence[Layout],
    names: Sequence[str],
    expected: Sequence[str] | None,
    stripped: str = "",
) -> LayoutError | None:
    """Return the error for all tensors of an RNN beside further tensors, None for other names. The
    arguments are those of wrong_names()."""
    expected = _closest(tuple(layouts), tuple(names)) if expected is None else expected
    needed = {*expected}
    unknown = [name for name in names if name not in needed]
    if not unknown or not needed or not needed <= {*names}:
        return None
    # a Linear of Haiku beside an LSTM has the names of an RNN
    return _rnns_below(layouts, names, unknown, stripped) or _beside_an_rnn(
        layouts, unknown, expected, stripped
    )


def _beside_an_rnn(
    layouts: Sequence[Layout], unknown: Sequence[str], expected: Sequence[str], stripped: str
) -> LayoutError:
    """Return the error for unknown tensors beside the expected tensors of an RNN."""
    rnn_names = [stripped + name for name in expected]
    further = [stripped + name for name in unknown]
    patterns = shortest_patterns(further, stripped.rstrip("./"), rnn_names)
    return LayoutError(
        f"beside the tensors of an RNN, unknown {list_names(unknown)} ({_name_layouts(layouts)}):"
        " a module with further tensors may compute something else; if the tensors change nothing,"
        " pass ",
        Ask("ignore", patterns),
    )


def wrong_count(layout: Layout, count: int, expected: Sequence[str] | None) -> LayoutError:
    """Return the error for a list with a number of arrays that fits no RNN. expected: the names of
    the spec; None without a spec."""
    text = f"arrays in the list: {count}; "
    if expected is not None:
        return LayoutError(
            f"{text}this RNN has {len(expected)} in {layout}: {list_names(expected, 8)}"
        )
    counts = sorted(
        {len(rnn.names) for rnn in one_layer_candidates(layout) if not rnn.bidirectional}
    )
    choices = " or ".join(map(str, counts))
    advice = "; of a whole model's arrays pass those of the RNN, or the model itself"
    return LayoutError(f"{text}an RNN in {layout} has {choices} per layer and direction{advice}")


def check_prefix(prefix: Any) -> None:
    """Raise LayoutError if a prefix is not a string."""
    if not isinstance(prefix, str):
        raise LayoutError(f"prefix is a {type(prefix).__name__}, need a string")


def choose_under_prefix(rnns: Sequence[tuple[str, str, _RNN]], prefix: str, owner: str) -> _RNN:
    """Return the only RNN with a name that is the prefix or starts with the prefix. rnns: (name,
    description, rnn) triples. owner: the class of the container. Raises LayoutError unless exactly
    one RNN fits."""
    names = [name for name, _, _ in rnns]
    chosen = [rnn for rnn in rnns if prefix and rnn[0] == prefix]
    chosen = chosen or [rnn for rnn in rnns if is_under(rnn[0], prefix)]
    if not chosen:
        raise LayoutError(
            f"no RNN in this {owner} has a name with prefix {prefix!r}; with ",
            Ask("prefix"),
            f" these would work: {list_names(names, 12)}",
        )
    if len(chosen) > 1:
        listed = ", ".join(f"{_short_repr(name)} ({kind})" for name, kind, _ in chosen[:12])
        remainder = f" and {len(chosen) - 12} more" if len(chosen) > 12 else ""
        raise LayoutError(
            f"this {owner} contains {len(chosen)} RNNs: {listed}{remainder}; pass one of them, or"
            " choose it with ",
            Ask("prefix", chosen[0][0]),
        )
    return chosen[0][2]


@cached_by_size(lambda layouts, names: len(names))
def _closest(layouts: tuple[Layout, ...], names: tuple[str, ...]) -> Sequence[str]:
    """Return the names of the RNN that shares most names with `names`, and has fewest further
    names. The larger RNN wins a tie: a missing tensor is more likely than an extra tensor. Cached,
    because a file may have thousands of parts that lack the same tensors."""
    actual, most = set(names), min(3 * len(names) + 7, _MOST_TENSORS)
    best: tuple[int, int, Sequence[str]] = (-(1 << 60), 0, ())
    for layout in layouts:
        closest = max(_scores(layout, actual, most), key=lambda score: score[:2], default=best)
        best = closest if closest[0] > best[0] else best
    return best[2][: best[1]]


def _scores(
    layout: Layout, actual: set[str], most: int
) -> Iterator[tuple[int, int, Sequence[str]]]:
    """Yield (score, count, names) for RNNs of one layer and more; names[:count] are the names of
    the RNN. Among RNNs with the same names, only the first is scored."""
    distinct: dict[Any, UnsizedRNN] = {}
    for rnn in one_layer_candidates(layout):
        distinct.setdefault((rnn.names, rnn.two_layers.names), rnn)
    for rnn in distinct.values():
        first, per_layer = len(rnn.names), len(rnn.two_layers.names) - len(rnn.names)
        if first <= most:
            yield 4 * len(actual.intersection(rnn.names)) - first, first, rnn.names
        if not per_layer:  # all layers are in one vector
            continue
        names = replace(rnn, num_layers=2 + max(0, most - first - per_layer) // per_layer).names
        shared = len(actual.intersection(names[:first]))
        for count in range(first + per_layer, min(most, len(names)) + 1, per_layer):
            shared += len(actual.intersection(names[count - per_layer : count]))
            yield 4 * shared - count, count, names


def wrong_shapes(guesses: Sequence[Guess]) -> LayoutError:
    """Return the error for names that fit and shapes that do not fit: the closest guess."""
    best = min(guesses, key=lambda guess: (len(guess.wrong), -len(guess.sizes)))
    for guess in guesses:
        for names in _may_be_transposed(guess):
            solved = guess_sizes(guess.candidate, _transpose_shapes(guess.shapes, names))
            if solved.fits:
                wrong = [n for n in guess.shapes if solved.shape(n) != guess.shapes[n]]
                fits = Guess(guess.candidate, guess.shapes, solved.sizes, wrong)
                return LayoutError(_shape_text(fits, transposed=True))
    return LayoutError(_shape_text(best, transposed=False))


def _matrices(guess: Guess) -> list[str]:
    """Return the names of tensors that may be transposed: not the (2, 3 H) bias of a Keras GRU."""
    dimensions = guess.candidate.dimensions
    return [
        name
        for name, shape in guess.shapes.items()
        if len(shape) == 2 and all(dimension.coefficients for dimension in dimensions[name])
    ]


def _may_be_transposed(guess: Guess) -> Iterator[set[str]]:
    """Yield the matrices that may be transposed: all, or a single matrix. Then the other tensors
    with equal dimensions have equal shapes, and no other tensor has the shape of a single one."""
    matrices = _matrices(guess)
    dimensions, tensors = guess.candidate.dimensions, count_shapes(guess.candidate, guess.shapes)
    if not matrices or len(tensors) > len({*dimensions.values()}) + 1:
        return
    yield {*matrices}
    for name in matrices:
        if tensors[dimensions[name], guess.shapes[name]] == 1:
            yield {name}


def _transpose_shapes(shapes: dict[str, Shape], names: Collection[str]) -> dict[str, Shape]:
    return {name: s[::-1] if name in names else s for name, s in shapes.items()}


def _shape_text(best: Guess, transposed: bool) -> str:
    if not best.wrong:
        return "the shapes do not determine all sizes of the RNN: pass its spec"
    name, candidate = best.wrong[0], best.candidate
    actual, needed = best.shapes[name], best.shape(name)
    symbols = [str(dimension) for dimension in candidate.dimensions[name]]
    lengths = [
        str(dimension.at(best.sizes))
        if dimension.coefficients.keys() <= best.sizes.keys()
        else str(dimension)
        for dimension in candidate.dimensions[name]
    ]
    sizes = ", ".join(f"{symbol} = {n}" for symbol, n in best.sizes.items())
    text = f"{name}: shape {actual}, expected {_shape_in_words(lengths)}"
    if lengths != symbols:
        text += f" = {_shape_in_words(symbols)} with {sizes}"
    text += f" ({candidate.cell} in {candidate.layout})"
    if cause := _likely_cause(best, actual, needed, transposed):
        text += f": {cause}"
    if len(best.wrong) > 1:
        text += f"; {len(best.wrong) - 1} more do not fit: {list_names(best.wrong[1:], 4)}"
    return text


def _shape_in_words(words: Sequence[str]) -> str:
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


def _likely_cause(best: Guess, actual: Shape, needed: Shape, transposed: bool) -> str:
    dimensions, shapes = best.candidate.dimensions, best.shapes
    has_more_dimensions = all(
        len(shape) == 1 + len(dimensions[name]) for name, shape in shapes.items()
    )
    if has_more_dimensions and len({shape[0] for shape in shapes.values()}) == 1:
        return "one dimension more: are these the weights of several RNNs? Pass w[0] of each"
    letters = known_layouts()["cudnn"]["gates"]
    if transposed and len(best.wrong) > 1:
        return _advice_on_transposed(best.candidate)
    if len(actual) == 2 and actual[::-1] == needed:
        square = [name for name in _matrices(best) if len({*shapes[name]}) == 1]
        further = f" (the square {list_names(square)} may be transposed too)"
        return f"this matrix is transposed; pass its .T{further * bool(square)}"
    gates = len(letters[best.candidate.cell])
    for cell, cell_in_words in (("lstm", "an LSTM"), ("gru", "a GRU")):
        count = len(letters[cell])
        differ = [(f * gates, n * count) for f, n in zip(actual, needed, strict=False) if f != n]
        scaled = len(actual) == len(needed) and len(differ) == 1 and differ[0][0] == differ[0][1]
        if count != gates and scaled:
            return f"{count} H where {gates} H is needed: are these the weights of {cell_in_words}?"
    if len(actual) == 1 and math.prod(actual) == 2 * math.prod(needed):
        return "twice as long: does it have two biases per gate, as in 'keras-cudnn' or 'onnx'?"
    if len(actual) == 1 and 2 * math.prod(actual) == math.prod(needed):
        return "half as long: does it have one bias per gate where two are needed?"
    return ""


def _advice_on_transposed(candidate: UnsizedRNN) -> str:
    """Return the advice for an RNN whose matrices are all transposed: the program that wrote the
    matrices may use another order of the gates than the candidate."""
    gates = candidate.layout.facts["gates"][candidate.cell]
    if len(gates) == 1:
        return "the matrices are transposed; pass w.T of each (or name the layout they come from)"
    order = " ".join(gates)
    return f"the matrices are transposed, and {UNKNOWN_GATES}; if it is {order}, pass w.T of each"


def spec_mismatch(
    layout: Layout,
    spec: Spec,
    optional_tensors: int,
    shapes: dict[str, Shape],
    expected: dict[str, Shape],
) -> LayoutError:
    """Return the error for shapes that do not fit the spec that the caller passed."""
    candidate = UnsizedRNN(
        layout,
        spec.cell,
        spec.reset,
        spec.num_layers,
        spec.bidirectional,
        bool(spec.proj_size),
        optional_tensors,
    )
    sizes = {"H": spec.hidden_size, "I": spec.input_size}
    if spec.proj_size:
        sizes["P"] = spec.proj_size
    best = Guess(candidate, shapes, sizes, [n for n in shapes if shapes[n] != expected[n]])
    transposed = _transpose_shapes(shapes, {*_matrices(best)}) == expected
    parts: list[TextPart] = [_shape_text(best, transposed)]
    fitting = (
        guess_sizes(candidate, shapes)
        for candidate in candidates_with_names(layout, frozenset(shapes))
    )
    if not transposed and (match := next((guess for guess in fitting if guess.fits), None)):
        fitting_spec = match.candidate.spec(match.sizes, dtype=spec.dtype)
        parts += ["; these shapes fit ", Ask("spec", fitting_spec)]
    return LayoutError(*parts)


# ----------------------------------------------------------- flat vectors of a wrong length


def wrong_length(nelems: int, spec: Spec) -> LayoutError:
    """Return the error for a flat vector of a wrong length, with similar specs that would fit."""
    parts: list[TextPart] = [f"weight space: {nelems} elements, need {spec.num_params} for {spec}"]
    tied: list[Ask] = []  # bias modes of equal length
    nearby: list[Ask] = []
    for changes in _variations(spec):
        with suppress(SpecError):
            similar = spec.replace(**changes)
            if similar.num_params == nelems:
                ask = Ask("spec", similar, tuple(changes))
                (tied if changes.get("bias") in ("input", "recurrent") else nearby).append(ask)
    if tied:
        parts += ["; it would fit ", join_parts(" or ", tied)]
        parts += [" (you have to know which: both have this length)"]
    if spec.bias == "none" and nearby and nearby[0].also == ("bias",):
        parts += ["; it would fit ", nearby.pop(0)]
        parts += [": torch's own GPU buffer of a bias=False module also has biases, which are zero"]
    if nearby:
        parts += ["; it would fit ", join_parts(" or ", nearby[:4])]
    for dtype in FLOATS:
        similar = spec.replace(dtype=dtype)
        if dtype != spec.dtype and nelems * _native.itemsize(spec.dtype) == similar.nbytes:
            parts += [f"; as {dtype} it would fit: pass w.view({dtype!r}) with "]
            parts += [Ask("spec", similar)]
    return LayoutError(*parts)


def _variations(spec: Spec) -> Iterator[dict[str, Any]]:
    """Yield changes of fields that make similar specs. A change may change nothing."""
    yield from ({"bias": bias} for bias in ("double", "input", "recurrent", "none"))
    yield {"bidirectional": not spec.bidirectional}
    yield {"skip_input": not spec.skip_input}
    yield {"proj_size": 0}
    yield from ({"cell": cell} for cell in ("lstm", "gru", "rnn_tanh"))
    yield from ({"num_layers": n} for n in range(1, spec.num_layers + 4))
    yield {"input_size": spec.hidden_size, "hidden_size": spec.input_size}
    if CELLS[spec.cell].may_project:
        yield from ({"proj_size": n} for n in range(1, min(spec.hidden_size, 4096)))

"""Find the RNN that tensors are: the shapes of a candidate are equations for its sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rnnlayout import _native
from rnnlayout._model.asks import Ask, join_messages
from rnnlayout._model.checked_rnn import CheckedRNN
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._native import LayoutError, SpecError

from .candidates import Dimension, UnsizedRNN

Shape = tuple[int, ...]
# Fields of a spec that tensors may not show: the activations, and others.
ACTIVATIONS = ("recurrent_activation", "activation")
HIDDEN = ("cell", "reset", *ACTIVATIONS)


@dataclass(frozen=True)
class Guess:
    """A candidate, with the sizes that fit the shapes that were found best."""

    candidate: UnsizedRNN
    shapes: dict[str, Shape]  # of the tensors found, by the names of the layout
    sizes: dict[str, int]  # those of H, I and P that the shapes determine
    wrong: list[str]  # the tensors whose shapes do not fit

    @property
    def fits(self) -> bool:
        return not self.wrong and len(self.sizes) == 2 + self.candidate.projected

    def shape(self, name: str) -> Shape:
        """Return the shape that the tensor would have with these sizes."""
        return tuple([d.at(self.sizes) for d in self.candidate.dimensions[name]])

    def spec(self, dtype: str) -> Spec:
        return self.candidate.spec(**{"P": 0, **self.sizes}, dtype=dtype)


def guess_sizes(candidate: UnsizedRNN, shapes: dict[str, Shape]) -> Guess:
    """Solve for the sizes. shapes: the shapes that were found, by the layout's names."""
    equations = [
        (dimension, n)
        for name, shape in shapes.items()
        if len(shape) == len(candidate.dimensions[name])
        for dimension, n in zip(candidate.dimensions[name], shape, strict=True)
    ]
    found = Guess(candidate, shapes, solve_sizes(equations), [])
    found.wrong.extend(name for name, shape in shapes.items() if found.shape(name) != shape)
    if found.fits:
        try:  # the core refuses sizes that contradict each other: P must be below H
            found.spec("float32")
        except SpecError:
            found.wrong.extend(shapes)
    return found


def solve_sizes(equations: Sequence[tuple[Dimension, int]]) -> dict[str, int]:
    """Return the sizes that most equations agree on; one that no equation determines is missing."""
    sizes: dict[str, int] = {}
    while True:
        votes: dict[str, Counter[int]] = {}
        for dimension, found in equations:
            unknown = [symbol for symbol in dimension.coefficients if symbol not in sizes]
            if len(unknown) == 1:
                (symbol,) = unknown
                n, rest = divmod(found - dimension.at(sizes), dimension.coefficients[symbol])
                if rest == 0 and n > 0:
                    votes.setdefault(symbol, Counter())[n] += 1
        if not votes:
            return sizes
        symbol = next(symbol for symbol in "HIP" if symbol in votes)
        sizes[symbol] = votes[symbol].most_common(1)[0][0]


# --------------------------------------------------------------------------------- one of many


def choose_rnn(found: Sequence[CheckedRNN]) -> CheckedRNN:
    """Return the one RNN that fits.

    Raises UndecidedError if there are several; the message says how to tell them apart.
    """
    found = _first_of_same(found)
    if len(found) == 1:
        return found[0]
    if len({one.layout for one in found}) > 1:
        raise several_layouts(one.layout for one in found)
    raise _several_specs(found)


def _first_of_same(found: Sequence[CheckedRNN]) -> list[CheckedRNN]:
    """Leave out what tensors may be too if it is the same: without biases, cells of Equinox are
    cells of torch."""
    kept: list[CheckedRNN] = []
    for one in found:
        if not any(same_network(one, other) for other in kept):
            kept.append(one)
    return kept


def same_network(a: CheckedRNN, b: CheckedRNN) -> bool:
    """Are the same tensors, read in one layout or another, the same network?"""
    if a.spec != b.spec:
        return False
    if _native.blocks(a.layout, a.spec, a.optional_tensors) != _native.blocks(
        b.layout, b.spec, b.optional_tensors
    ):
        return False
    if a.layout == b.layout:  # which has the biases always, whatever was asked for
        return True
    steps = _native.Plan(a.spec, a.layout, a.optional_tensors, b.layout).steps()
    return all(op == "move" and not negate for op, _, _, negate, *_ in steps)


def several_layouts(layouts: Iterable[Layout]) -> LayoutError:
    """Return the error for tensors that are different networks in these layouts."""
    names = sorted({layout.name for layout in layouts})
    return LayoutError(
        "these tensors fit several layouts, and are a different RNN in each: pass "
        + join_messages(" or ", [Ask("layout", name) for name in names])
    )


def _several_specs(found: Sequence[CheckedRNN]) -> UndecidedError:
    layout, specs = found[0].layout, [one.spec for one in found]
    differ = [f.name for f in fields(Spec) if len({getattr(spec, f.name) for spec in specs}) > 1]
    whole = join_messages(" or ", [Ask("spec", spec, tuple(differ)) for spec in specs[:6]])
    if differ == ["cell"] and len(specs) == 2:
        return UndecidedError(
            "these tensors do not show whether this plain RNN uses tanh or relu: pass "
            + Ask("cell", "rnn_tanh") + " or " + Ask("cell", "rnn_relu") + "; or the whole "
            + whole,
            found, differ, "tanh or relu, which tensors do not show",
        )  # fmt: skip
    if differ == ["reset"]:
        return UndecidedError(
            f"{layout} does not record where the reset gate of this GRU acts: pass "
            + Ask("reset", "after") + " (on the product R h) or " + Ask("reset", "before")
            + " (on h); or the whole " + whole,
            found, differ, f"where the reset gate acts, which layout {layout} does not record",
        )  # fmt: skip
    return UndecidedError(
        "these tensors fit several RNNs: pass " + whole,
        found, ["spec"], f"{' and '.join(differ)}, which tensors do not show",
    )  # fmt: skip


def check_hints(hints: Mapping[str, Any], spec: Spec | None, whose: str) -> None:
    """Raise SpecError if a hint is not a name of its kind, or contradicts the spec.

    whose: who has the spec, for the message: "the spec", "the source".
    """
    named = {key: hints[key] for key in HIDDEN if key in hints}
    if not named:
        return
    for key, value in named.items():  # raises its errors; not every cell has all of them
        Spec(**{"cell": "gru", key: value, "input_size": 2, "hidden_size": 1})
    for key, value in named.items():
        if spec is not None and getattr(spec, key) != value:
            raise SpecError(
                f"{key} {value!r} contradicts {whose}, which has {getattr(spec, key)!r}: omit "
                + Ask(key, None)
            )

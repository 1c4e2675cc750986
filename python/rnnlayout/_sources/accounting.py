"""Find the tensors next to an RNN that may change the outputs of the RNN.

A layer-norm LSTM has the tensors of an LSTM, and further tensors on the same path. Without the
further tensors the LSTM would compute different outputs. Tensors that a rule explains are harmless.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape
from itertools import islice
from typing import Any

from .other_cells import PARTS_OF_OTHER_CELLS
from .tensor_paths import starting_with

# Slots of TensorFlow's optimizers: tensors whose path is the name of the variable.
_SLOTS = (
    "Adadelta|Adagrad|Adam|AdaMax|Adamax|AdamW|AdamWeightDecay|Ftrl|LAMB|LARS|Lamb|Momentum|Nadam|"
    "RMSProp|adam_m|adam_v|lamb_m|lamb_v"
)
# Patterns of names of tensors that change no output, by reason.
_HARMLESS = {
    "the state of an optimizer": (
        r".+/\.OPTIMIZER_SLOT/.+",
        r"(.*\.)?(exp_avg|exp_avg_sq|max_exp_avg_sq|momentum_buffer|square_avg)",
    ),
    "ranges that an observer has seen": (
        r"(.*\.)?activation_post_process(_\d+)?\.(eps|min_vals?|max_vals?|histogram)",
    ),
    "the state of a random generator": (
        r"(.*[./])?rngs[./].+",
        r"(.*[./])?seed_generator(_\d+)?([./].+)?",
        r"(.*[./])?seed_generator_state",
    ),
    "state of torch that is not a weight": (r"(.*\.)?_extra_state(\..+)?",),
    "a count of batches": (r"(.*\.)?num_batches_tracked",),
}
_IS_HARMLESS = re.compile("|".join(f"(?:{p})" for ps in _HARMLESS.values() for p in ps), re.DOTALL)
_AVERAGE = "ExponentialMovingAverage"  # may be the weight that the user wants
_SLOT = re.compile(rf"(.+)/({_AVERAGE}|(?:{_SLOTS})(?:_\d+)?)", re.DOTALL)
# Names of parts of cells, for an RNN at the root of a file, next to all modules of the model.
_PART_OF_A_CELL = re.compile(
    r"((?i:[hc](_?0|x)|(init|initial|start)_?(h|c|hidden|cell|state)s?|states?)"
    rf"|activation_post_process(_\d+)?|\w*fake_quant|{PARTS_OF_OTHER_CELLS})([./].*)?",
    re.DOTALL,
)
_SEPARATOR = re.compile(r"[./]")
_WORD = re.compile(r"[^\W\d_]+")
_MOST = 1000  # tensors of one RNN that are listed
_MOST_PATTERNS = 6  # in an error, before the patterns are shortened


@dataclass(frozen=True)
class Account:
    """The names of tensors that no rule explains, and notes on explained tensors."""

    unexplained: Sequence[str] = ()
    notes: Sequence[str] = ()


class FurtherTensors:
    """The tensors of a source that belong to no RNN, sorted for a quick search by path."""

    def __init__(self, all_names: Collection[str], rnn_names: Collection[str]) -> None:
        self._all = all_names
        self._names = sorted(set(all_names) - set(rnn_names))

    def account(self, path: str, rnn_names: Collection[str], is_root: bool) -> Account:
        """Return the tensors that may change the outputs of an RNN.

        path: of the RNN, without the name of the cell. rnn_names: the names of the RNN's tensors.
        is_root: whether the path is the path of a whole model, with modules of all kinds."""
        names = self._under(path)
        if is_root:
            names = _parts_of_cell(names, path, rnn_names)
        unexplained = (name for name in names if not _is_harmless(name, self._all))
        average = next((n for n in self._under(path) if _slot(n, self._all) == _AVERAGE), None)
        note = f"{average}: an average of a weight is not read; it may be the weight you want"
        return Account(list(islice(unexplained, _MOST)), [note] if average else [])

    def _under(self, path: str) -> Iterator[str]:
        for start in (f"{path}.", f"{path}/") if path else ("",):
            yield from starting_with(self._names, start)


def harmful_names(names: Collection[str]) -> list[str]:
    """Return the names of tensors that may change an output."""
    all_names = set(names)
    return [name for name in names if not _is_harmless(name, all_names)]


def _is_harmless(name: str, all_names: Collection[str]) -> bool:
    return bool(_slot(name, all_names)) or bool(_IS_HARMLESS.fullmatch(name))


def _slot(name: str, all_names: Collection[str]) -> str:
    """Return the slot of a tensor that has the path of another tensor: Adam_1; "" for others."""
    match = _SLOT.fullmatch(name)
    return match[2] if match and match[1] in all_names else ""


def _parts_of_cell(names: Iterable[str], path: str, rnn_names: Collection[str]) -> Iterator[str]:
    """Yield the names at the root of a model that are a part of the cell: names that begin with a
    word of the RNN's names, such as weight_ih_l0_scale, names in a module of the RNN, and known
    names of parts of cells."""
    start = len(path) + 1 if path else 0
    rnn_tails = [name[start:] for name in rnn_names]
    words = {word[0] for tail in rnn_tails if (word := _WORD.match(tail))}
    modules = {
        _SEPARATOR.split(tail, maxsplit=1)[0] for tail in rnn_tails if _SEPARATOR.search(tail)
    }
    for name in names:
        tail = name[start:]
        word, (module, *inner) = _WORD.match(tail), _SEPARATOR.split(tail, maxsplit=1)
        is_like_rnn = module in modules if inner else word and word[0] in words
        if is_like_rnn or _PART_OF_A_CELL.fullmatch(tail):
            yield name


# ------------------------------------------------------------------------------- what is ignored

_FLAG = "fake_quant_enabled"  # of a torch.ao.quantization.FakeQuantize, which observes without it


def switched_off(names: Collection[Any], is_zero: Callable[[str], bool]) -> set[str]:
    """Return the names of all tensors of fake quantizations that are switched off. names: of all
    tensors. is_zero: whether the tensor of this name is a zero."""
    flags = [name for name in names if isinstance(name, str) and name.endswith(f".{_FLAG}")]
    modules: list[str] = []
    for module in sorted(flag.removesuffix(_FLAG) for flag in flags if is_zero(flag)):
        if not modules or not module.startswith(modules[-1]):
            modules.append(module)
    ordered = sorted(name for name in names if isinstance(name, str)) if modules else []
    return {name for module in modules for name in starting_with(ordered, module)}


def is_ignored(name: str, patterns: Sequence[str]) -> bool:
    """Does a pattern of the caller match the name of a tensor? `*` stands for any characters."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def shortest_patterns(
    unexplained: Sequence[str], path: str, rnn_names: Collection[str]
) -> list[str]:
    """Return a short list of patterns that match the unexplained tensors and no tensor of the RNN:
    a pattern per module, or shorter patterns for many modules.

    >>> names = ["rnn.weight_ih", "rnn.weight_hh"]
    >>> shortest_patterns(["rnn.norm.weight", "rnn.norm.bias", "rnn.h0"], "rnn", names)
    ['rnn.h0', 'rnn.norm.*']
    """
    start, ordered = len(path) + 1 if path else 0, sorted(rnn_names)
    shared = {name: _shared_length(name, ordered) for name in unexplained}
    ends = {name: _SEPARATOR.search(name, max(start, shared[name])) for name in unexplained}
    patterns = {_pattern(name, end.end() if end else None) for name, end in ends.items()}
    if len(patterns) > _MOST_PATTERNS:
        patterns = {
            _pattern(name, length + 1 if length < len(name) else None)
            for name, length in shared.items()
        }
    return sorted(patterns)


def _pattern(name: str, end: int | None) -> str:
    """Return the pattern for names with the same first characters, or for this name alone."""
    return escape(name) if end is None else f"{escape(name[:end])}*"


def _shared_length(name: str, ordered: Sequence[str]) -> int:
    """Return the length of the longest prefix that a name shares with one of the sorted names."""
    at = bisect_left(ordered, name)
    return max(_first_difference(name, near) for near in ordered[max(at - 1, 0) : at + 1])


def _first_difference(a: str, b: str) -> int:
    pairs = enumerate(zip(a, b, strict=False))
    return next((k for k, (x, y) in pairs if x != y), min(len(a), len(b)))

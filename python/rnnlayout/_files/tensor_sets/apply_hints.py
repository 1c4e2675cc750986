"""What the caller says about the RNNs of a file must agree with what the file says.

What neither says is assumed: options of Keras's layers, which a file of weights alone lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from rnnlayout._model.asks import Ask, Message, join_messages
from rnnlayout._model.checked_rnn import checked_rnn_of
from rnnlayout._model.spec import CELLS
from rnnlayout._model.undecided import UndecidedError, error_with_name
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources.caller_spec import ACTIVATIONS, CallerSpec, check_hints
from rnnlayout._sources.mismatch import list_names
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.tensor_paths import KERAS
from rnnlayout._weights.weights import Weights, weights_of

from .found import Found, with_rnns
from .tensor_set import Hints

# Keras's, and those of a Spec: there they may be only the defaults, so they answer nothing.
DEFAULT_ACTIVATIONS = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def apply_hints(found: Found, hints: Hints, prefixes: Sequence[str]) -> Found:
    """Return the RNNs with the caller's spec; those that the hints contradict are refused.

    prefixes: what to suggest for prefix=.
    cell and reset concern the RNNs that do not record them, so in a file with several RNNs they
    contradict none. The bias mode and skip_input are cuDNN's: of another layout they are the
    caller's choice. Raises SpecError if there is a spec, which describes one RNN, for several.
    """
    count = len(found.names)
    if hints.asked.spec is not None and count > 1:
        raise SpecError(
            f"the spec describes one RNN, but {count} were found: choose one with "
            + Ask("prefix")
            + f", for example one of {list_names(prefixes, 6)}"
        )
    entries, unread = {}, found.unread
    for name, weights in found.items():
        try:
            _check_hints(weights, hints, alone=count == 1)
            entries[name] = _with_spec(weights, hints)
        except (LayoutError, SpecError) as error:
            unread[name] = error_with_name(error, name)
    return with_rnns(found, entries, unread)


def _check_hints(weights: Weights, hints: Hints, alone: bool) -> None:
    if hints.asked.layout not in (None, weights.layout):
        raise LayoutError(
            f"the file has it in layout {weights.layout}, not {hints.asked.layout}: omit "
            + Ask("layout", None)
        )
    names = ["cell", "reset"] if alone else []
    names += ACTIVATIONS if CELLS[weights.spec.cell].is_gated else []
    concerned = {name: hint for name, hint in hints.asked.hints.items() if name in names}
    check_hints(concerned, weights.spec, "the file")


def _with_spec(weights: Weights, hints: Hints) -> Weights:
    """Return the weights with the caller's spec. Raises SpecError if it describes another RNN."""
    spec = hints.asked.spec
    if spec is None or spec == weights.spec:
        return weights
    asked, own = asdict(spec), asdict(weights.spec)
    free = set() if weights.layout.name == "cudnn" else {"bias", "skip_input"}
    free |= {"dtype"} if hints.dtype is not None else set()
    wrong = [field for field in own if own[field] != asked[field] and field not in free]
    if wrong:
        text = (
            f"the file has {', '.join(f'{field} {own[field]}' for field in wrong)}, the spec has"
            f" {', '.join(f'{field} {asked[field]}' for field in wrong)}: omit "
        ) + Ask("spec", None)
        if "dtype" in wrong:
            text += ", and pass " + Ask("dtype") + " to convert to another dtype"
        raise SpecError(text)
    return weights_of(read_source(weights, CallerSpec(spec.replace(dtype=weights.spec.dtype))))


def unknown_class_question(
    name: str, weights: Weights, what: str, as_class: Mapping[str, str]
) -> UndecidedError:
    """Return the error that asks whether classes may be read as the RNNs that they look like.

    what: these classes, in words. as_class: what to pass if they may.
    """
    repair = Message(Ask("as_class", dict(as_class)))
    return UndecidedError(
        f"{name}: {what}: the file does not show what another class computes; if it computes"
        " the same from its weights, pass " + repair,
        [checked_rnn_of(weights)],
        ["as_class"],
        what,
        repair,
    )


def unrecorded(entries: Iterable[object], hints: Hints) -> list[str]:
    """Return a note on the options that are assumed of RNNs in Keras's layouts; [] without any.

    entries: the RNNs, or their errors, that a file has without a config and without a record of
    rnnlayout. hints: the caller's.
    """
    found = [one for one in entries if isinstance(one, Weights) and one.layout.name in KERAS]
    if not found:
        return []
    asked = [
        key
        for key in DEFAULT_ACTIVATIONS
        if key not in hints.asked.hints and any(_may_differ(one, key) for one in found)
    ]
    assumed = [f"{key.replace('_', ' ')} {DEFAULT_ACTIVATIONS[key]}" for key in asked]
    assumed.append("go_backwards=False")
    if any(one.spec.bidirectional for one in found):
        assumed.append("merge_mode='concat'")
    repair = "pass " + join_messages(", ", map(Ask, asked)) + " or set" if asked else "set"
    text = f"the file lacks Keras's config: {', '.join(assumed)} assumed; for others "
    return [text + repair + " weights.config in Python"]


def _may_differ(weights: Weights, key: str) -> bool:
    """Return whether an activation is only assumed: a Spec of the caller may have another."""
    spec = weights.spec
    is_default = getattr(spec, key) == DEFAULT_ACTIVATIONS[key]
    return weights.layout.name == "keras" and CELLS[spec.cell].is_gated and is_default

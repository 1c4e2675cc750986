"""Read a dict of tensors: which layout's names are these, and which RNN is it?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from rnnlayout._model.asks import Ask, Message, join_messages
from rnnlayout._model.checked_rnn import CheckedRNN
from rnnlayout._model.config import describe_config
from rnnlayout._model.describe import describe
from rnnlayout._model.layout import CUDNN, Layout, known_layouts, layouts_to_infer
from rnnlayout._model.undecided import UndecidedError, error_with_text
from rnnlayout._native import LayoutError, SpecError

from . import frameworks, jax_modules, mismatch
from .candidates import is_one_vector
from .containers import cells_under, checkpoint_error, flatten_rnn_dicts
from .infer import same_network, several_layouts
from .resolve import Arrays, BitsByName, CallerSpec, NamedArrays, resolve_rnn, take_all_bits
from .tensor_paths import match_layout_names, strip_prefix
from .torch_names import plain_names, plain_value

# By convention, names of PyTorch and Keras are theirs: tensors with biases of Haste's LSTM, or
# without biases of Core ML, have them too, and are read in those layouts only if they are named.
_BY_CONVENTION = ("torch", "torch-cell", "keras")


@cache
def _plain_layouts() -> list[Layout]:
    """Return the layouts that a dict of tensors may be in without naming it.

    Not cudnn, which is a flat vector, nor concat, whose tensors do not show its options.
    """
    known = known_layouts()
    return [layout for layout in layouts_to_infer()
            if not is_one_vector(layout) and not known[layout.name]["options"]]  # fmt: skip


@cache
def _layouts_to_name() -> list[Layout]:
    """Return the other layouts of dicts of tensors."""
    every = map(Layout, known_layouts())
    return [layout for layout in every if layout not in (CUDNN, *_plain_layouts())]


def read_dict(source: Mapping[Any, Any], prefix: str, asked: CallerSpec) -> CheckedRNN:
    """Find out which RNN the tensors under the prefix are, and check it."""
    maybe = [asked.layout] if asked.layout else _plain_layouts()
    whole, source = source, flatten_rnn_dicts(source, prefix, maybe)
    names = [name for name in source if isinstance(name, str)]
    if len(names) != len(source) or not names:
        raise LayoutError("a key is not a string" if source else "the dict of tensors is empty")
    if asked.layout is not None and asked.layout.name == "cudnn":
        raise LayoutError(f"cudnn is one flat vector, found a dict of {mismatch.list_names(names)}")
    plain = plain_names(names)
    rest = strip_prefix(plain.sources, plain.name(prefix))
    if not rest:
        raise checkpoint_error(source, maybe) or mismatch.wrong_prefix(
            maybe, list(plain.sources), prefix
        )
    known = {
        layout: tensors
        for layout in maybe
        if (tensors := match_layout_names(layout, rest.values()))
    }
    if not known:
        raise checkpoint_error(source, maybe) or _wrong_names(rest, maybe, asked)
    if source is not whole and (cells := cells_under(whole, prefix)):
        asked = _spec_of_cells(cells, asked)
        known = {layout: known[layout] for layout in known if layout == asked.layout}
    taken = take_all_bits(((name, plain_value(name, plain, source)) for name in rest), asked)
    arrays = {rest[name]: array for name, array in taken.arrays.items()}
    fit: list[tuple[Layout, Arrays]] = [
        (layout, _rename_arrays(arrays, tensors)) for layout, tensors in known.items()
    ]
    if asked.layout is not None:
        return resolve_rnn(fit, taken, asked, list(arrays))
    return _only_one(fit, arrays, taken, asked)


def _wrong_names(
    rest: Mapping[str, str], maybe: Sequence[Layout], asked: CallerSpec
) -> LayoutError:
    """Return the error for names of no RNN. rest: name -> what is left without the prefix."""
    names = list(rest.values())
    if asked.layout is None:
        if concat := _concat_names(names):
            return LayoutError(
                f"{mismatch.list_names(concat)} are tensors of layout 'concat', which does not"
                " record the order of h and x or the meaning of z: pass "
                + Ask("layout", Layout("concat", inputs="hx", z="state"))
                + ", or with inputs='xh' or z='candidate'"
            )
        if to_name := [
            layout for layout in _layouts_to_name() if match_layout_names(layout, names)
        ]:
            return LayoutError(
                f"{mismatch.list_names(names)} may be tensors of a layout that is read only if it"
                " is named: pass " + join_messages(" or ", map(_layout_argument, to_name))
            )
    name, tail = next(iter(rest.items()))
    expected = list(describe(asked.spec, asked.layout)) if asked.layout and asked.spec else None
    return mismatch.wrong_names(maybe, names, expected, name.removesuffix(tail))


def _rename_arrays(arrays: NamedArrays, tensors: Mapping[str, str]) -> NamedArrays:
    return {tensor: arrays[name] for name, tensor in tensors.items()}


# ----------------------------------------------------------------------- one of several layouts


def _only_one(
    fit: list[tuple[Layout, Arrays]], arrays: NamedArrays, taken: BitsByName, asked: CallerSpec
) -> CheckedRNN:
    """Return the RNN that arrays are. Raise LayoutError if a layout has to be named.

    fit: the arrays in each layout that need not be named.
    """
    try:
        found = resolve_rnn(fit, taken, asked, list(arrays))
    except UndecidedError:
        raise
    except (LayoutError, SpecError) as error:
        if others := [layout for layout, _ in _fits_if_named(arrays, taken, asked)]:
            ways = join_messages(" or ", map(_layout_argument, others))
            text = str(error) + "; these tensors fit " + ways
            raise error_with_text(error, text + ", which is read only if it is named") from None
        raise
    if found.layout.name not in _BY_CONVENTION:
        others = [layout for layout, givens in _fits_if_named(arrays, taken, asked)
                  if not all(same_network(found, given) for given in givens)]  # fmt: skip
        if others:
            raise several_layouts([found.layout, *others])
    return found


def _fits_if_named(
    arrays: NamedArrays, taken: BitsByName, asked: CallerSpec
) -> Iterator[tuple[Layout, Sequence[CheckedRNN]]]:
    """Yield the layouts to be named that the arrays fit, with the RNNs that they may be in it."""
    for layout in _layouts_to_name():
        if tensors := match_layout_names(layout, arrays):
            with suppress(LayoutError, SpecError):  # other shapes, or not the asked RNN
                try:
                    givens = [
                        resolve_rnn([(layout, _rename_arrays(arrays, tensors))], taken, asked)
                    ]
                except UndecidedError as error:
                    givens = [*error.givens]
                yield layout, givens


def _layout_argument(layout: Layout) -> Message:
    """Return the argument that names a layout."""
    options = known_layouts()[layout.name]["options"]
    chosen = {key: next(iter(values)) for key, values in options.items()}
    others = " (or other values of its options)" if chosen else ""
    return Message(Ask("layout", Layout(layout.name, **chosen)), others)


def _concat_names(names: Iterable[str]) -> list[str]:
    """Return the names of tensors that seem to be concat's, and not those of Keras 1."""
    leaves = [name.split("/")[-1] for name in names]
    if any(leaf.startswith("U_") for leaf in leaves):
        return []
    return [leaf for leaf in leaves if leaf[:2] in ("W_", "b_") and len(leaf) == 3]


def _spec_of_cells(cells: Sequence[Any], asked: CallerSpec) -> CallerSpec:
    """Return what is known of the RNN that these cells of Flax or Equinox are parts of."""
    own = [frameworks.own_spec(cell) for cell in cells]
    for cell in cells:
        if method := frameworks.overridden(cell):
            raise LayoutError(
                f"{method}, so it may compute something else; if it computes the same, put"
                f" {jax_modules.jax_expression(cell)} in the place of the cell"
            )
    if config := next((one.config for one in own if one.config), None):
        raise LayoutError(
            f"a layer in this dict is used with {describe_config(config)}, which a dict of several"
            " does not keep: pass the layers in a list, bottom first"
        )
    return replace(asked, layout=asked.layout or Layout(own[0].layout))

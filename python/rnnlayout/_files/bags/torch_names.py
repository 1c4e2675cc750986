"""The names that torch gives to tensors of an RNN which is wrapped, or computed from others.

A module that is wrapped (DataParallel, torch.compile) has one more part in its names. A weight
that is computed (weight norm, pruning) is stored as what it is computed from. Here both become
plain names with the values that the module computes with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rnnlayout._model.dtypes import FLOATS, narrowed, widened
from rnnlayout._native import LayoutError

from .bag import Tensor

_WRAPPERS = ("module", "_orig_mod")  # DataParallel, DistributedDataParallel; torch.compile
_LIST = "parametrizations."
_LONGEST = 500  # of a name that is looked at
_COMPUTED = re.compile(
    r"(?P<under>(?:.*\.)?)"
    r"(?P<weight>(?:weight|bias)_(?:ih|hh|hr)(?:_l\d++(?:_reverse)?+)?+)(?P<rest>[._].+)"
)


@dataclass
class Plain:
    """Tensors by plain names, and how they came by them.

    sources: plain name -> its names in the file. notes: plain name -> how it was computed.
    rounds: the plain names of those that were rounded.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    rounds: set[str] = field(default_factory=set)
    wrappers: frozenset[str] = frozenset()

    def name(self, path: str) -> str:
        """A name or prefix without the wrappers."""
        return _unwrapped(path, self.wrappers)

    def under(self, name: str, tail: str) -> str:
        """What stands in the file before `tail`, the layout's own part of a plain name."""
        source = self.sources[name][0]
        return source[: source.rindex(tail)].removesuffix(_LIST)


def plain(tensors: Mapping[str, Tensor]) -> Plain:
    """Tensors as the RNNs among them would have them: unwrapped and computed.

    One that is stored in a form not known here raises LayoutError when its values are asked for.

        >>> import numpy as np
        >>> mask = {"module.weight_hh_l0_orig": np.ones((4, 1)), "module.weight_hh_l0_mask":
        ...         np.zeros((4, 1))}
        >>> list(plain({k: Tensor.of(v, "float64") for k, v in mask.items()}).tensors)
        ['weight_hh_l0']
    """
    result = Plain(wrappers=_wrappers(tensors))
    parts: dict[str, dict[str, str]] = {}  # a computed weight -> form -> the name in the file
    for name in tensors:
        match = _COMPUTED.fullmatch(name) if len(name) <= _LONGEST else None
        if match:
            under = match["under"].removesuffix(_LIST)
            weight = under + match["weight"]
            parts.setdefault(weight, {})[match["under"][len(under) :] + match["rest"]] = name
    begun = set()
    computed = {name: weight for weight, forms in parts.items() for name in forms.values()}
    for name in tensors:
        weight = computed.get(name, name)
        if weight in begun or (weight in tensors and weight != name):
            continue  # a plain one beside the parts: it is what the module last computed with
        begun.add(weight)
        new = result.name(weight)
        if weight == name:
            result.tensors[new], result.sources[new] = tensors[name], (name,)
            continue
        forms = parts[weight]
        result.sources[new] = tuple(forms.values())
        result.tensors[new], result.notes[new] = _computed(weight, forms, tensors)
        if _weight_norm(forms):
            result.rounds.add(new)
    return result


# ------------------------------------------------------------------------------------ wrapped ones


def _wrappers(names: Iterable[str]) -> frozenset[str]:
    """The paths to a `module` or `_orig_mod` that is all there is where it stands."""
    inside: dict[str, set[str]] = {}
    for name in names:
        parts = name.split(".") if len(name) <= _LONGEST else [name]
        for k in range(len(parts)):
            inside.setdefault(".".join(parts[:k]), set()).add(parts[k])
    return frozenset(
        f"{path}.{only}" if path else only
        for path, (only, *others) in ((path, tuple(found)) for path, found in inside.items())
        if not others and only in _WRAPPERS
    )


def _unwrapped(path: str, wrappers: frozenset[str]) -> str:
    if not wrappers:
        return path
    parts = path.split(".")
    return ".".join(
        part for k, part in enumerate(parts) if ".".join(parts[: k + 1]) not in wrappers
    )


# ----------------------------------------------------------------------------------- computed ones

_WEIGHT_NORMS = (("_g", "_v"), (f"{_LIST}.original0", f"{_LIST}.original1"))
_PRUNED = ("_orig", "_mask")


def _weight_norm(forms: Mapping[str, str]) -> tuple[str, str] | None:
    """The forms of g and v, where these are what a weight is stored as."""
    return next((pair for pair in _WEIGHT_NORMS if forms.keys() == set(pair)), None)


def _computed(
    weight: str, forms: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> tuple[Tensor, str]:
    """(the weight, what was done) of the tensors that it is stored as."""
    if pair := _weight_norm(forms):
        g, v = (tensors[forms[form]] for form in pair)
        return _lazily(v, lambda: _normed(weight, g, v)), (
            f"{weight}: weight norm, computed as g v / ||v|| and rounded to {v.dtype}"
        )
    if forms.keys() == set(_PRUNED):
        kept, mask = (tensors[forms[form]] for form in _PRUNED)
        return _lazily(kept, lambda: _masked(weight, kept, mask)), f"{weight}: pruned by its mask"
    return _lazily(tensors[next(iter(forms.values()))], lambda: _unknown(weight, forms)), ""


def _lazily(like: Tensor, bits: Callable[[], np.ndarray]) -> Tensor:
    return Tensor(like.dtype, like.shape, bits)


def _unknown(weight: str, forms: Mapping[str, str]) -> np.ndarray:
    raise LayoutError(
        f"{weight} is stored as {', '.join(sorted(forms.values())[:4])}, and how torch computes it"
        " from them is not known here: make it plain there (parametrize.remove_parametrizations,"
        " prune.remove, remove_spectral_norm) and save it again"
    )


def _normed(weight: str, g: Tensor, v: Tensor) -> np.ndarray:
    """g v / ||v||, the norm over the axes that g has not; in double, rounded once."""
    if g.dtype != v.dtype or v.dtype not in FLOATS:
        raise LayoutError(f"{weight}: weight norm of {g.dtype} and {v.dtype}")
    fits = len(g.shape) == len(v.shape) and all(
        a in (1, b) for a, b in zip(g.shape, v.shape, strict=True)
    )
    if g.shape and not fits:
        raise LayoutError(f"{weight}: weight norm with g of shape {g.shape}, v of {v.shape}")
    values = widened(v.bits(), v.dtype)
    axes = tuple(k for k in range(values.ndim) if not g.shape or g.shape[k] == 1)
    with np.errstate(all="ignore"):  # a row of zeros is NaN for torch too
        norm = np.sqrt(np.square(values).sum(axis=axes, keepdims=True))
        return narrowed(values * (widened(g.bits(), g.dtype) / norm), v.dtype)


def _masked(weight: str, kept: Tensor, mask: Tensor) -> np.ndarray:
    if kept.shape != mask.shape or {kept.dtype, mask.dtype} - set(FLOATS):
        raise LayoutError(f"{weight}: a mask of shape {mask.shape} for weights of {kept.shape}")
    ones = widened(mask.bits(), mask.dtype)
    if not np.isin(ones, (0, 1)).all():
        raise LayoutError(f"{weight}: a mask with other values than 0 and 1")
    with np.errstate(all="ignore"):  # as torch has it: a masked infinity is NaN
        return narrowed(widened(kept.bits(), kept.dtype) * ones, kept.dtype)

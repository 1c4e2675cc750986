"""Plain names and values for tensors of wrapped modules and computed weights in torch.

A wrapped module (DataParallel, torch.compile) has one more part in the names of its tensors. A
computed weight (weight norm, pruning) is stored as the tensors that it is computed from. Both
become plain names with the values that the module computes with.
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
_LONGEST = 500  # characters; longer names are left as they are
_COMPUTED = re.compile(
    r"(?P<under>(?:.*\.)?)"
    r"(?P<weight>(?:weight|bias)_(?:ih|hh|hr)(?:_l\d++(?:_reverse)?+)?+)(?P<rest>[._].+)"
)


@dataclass
class Plain:
    """Tensors by plain names, and where they come from.

    sources: plain name -> its names in the file. notes: plain name -> how it is computed.
    rounded: the plain names of weights that are rounded when they are computed.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    rounded: set[str] = field(default_factory=set)
    wrappers: frozenset[str] = frozenset()

    def name(self, path: str) -> str:
        """Return a name or prefix without the wrappers."""
        if not self.wrappers:
            return path
        parts = path.split(".")
        return ".".join(
            part for k, part in enumerate(parts) if ".".join(parts[: k + 1]) not in self.wrappers
        )

    def stored_prefix(self, name: str, tail: str) -> str:
        """Return what precedes `tail`, the layout's part of a plain name, in the file."""
        source = self.sources[name][0]
        return source[: source.rindex(tail)].removesuffix(_LIST)


def plain(tensors: Mapping[str, Tensor]) -> Plain:
    """Return tensors by plain names: without wrappers, and with computed weights.

    A weight in an unknown form raises LayoutError when its values are asked for.

        >>> import numpy as np
        >>> mask = {"module.weight_hh_l0_orig": np.ones((4, 1)), "module.weight_hh_l0_mask":
        ...         np.zeros((4, 1))}
        >>> list(plain({k: Tensor.of(v, "float64") for k, v in mask.items()}).tensors)
        ['weight_hh_l0']
    """
    result = Plain(wrappers=_wrappers(tensors))
    parts: dict[str, dict[str, str]] = {}  # computed weight -> form -> name in the file
    weight_of: dict[str, str] = {}  # name in the file -> the weight that is computed from it
    for name in tensors:
        match = _COMPUTED.fullmatch(name) if len(name) <= _LONGEST else None
        if match:
            under = match["under"].removesuffix(_LIST)
            weight = weight_of[name] = under + match["weight"]
            parts.setdefault(weight, {})[match["under"][len(under) :] + match["rest"]] = name
    for name in tensors:
        weight = weight_of.get(name, name)
        if weight in tensors and weight != name:
            continue  # a plain weight beside its parts is what the module last computed with
        new = result.name(weight)
        if weight == name:
            result.tensors[new], result.sources[new] = tensors[name], (name,)
        elif new not in result.tensors:
            forms = parts[weight]
            result.sources[new] = tuple(forms.values())
            result.tensors[new], result.notes[new] = _computed(weight, forms, tensors)
            if _weight_norm(forms):
                result.rounded.add(new)
    return result


def _wrappers(names: Iterable[str]) -> frozenset[str]:
    """Return the paths to each `module` or `_orig_mod` that is alone in its module."""
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


_WEIGHT_NORMS = (("_g", "_v"), (f"{_LIST}.original0", f"{_LIST}.original1"))
_PRUNED = ("_orig", "_mask")


def _weight_norm(forms: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the forms of g and v if a weight is stored so, else None."""
    return next((pair for pair in _WEIGHT_NORMS if forms.keys() == set(pair)), None)


def _computed(
    weight: str, forms: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> tuple[Tensor, str]:
    """Return the weight, computed when it is asked for, and a note on how."""
    if pair := _weight_norm(forms):
        g, v = (tensors[forms[form]] for form in pair)
        return _like(v, lambda: _normed(weight, g, v)), (
            f"{weight}: weight norm, computed as g v / ||v|| and rounded to {v.dtype}"
        )
    if forms.keys() == set(_PRUNED):
        kept, mask = (tensors[forms[form]] for form in _PRUNED)
        return _like(kept, lambda: _masked(weight, kept, mask)), f"{weight}: pruned by its mask"
    return _like(tensors[next(iter(forms.values()))], lambda: _unknown(weight, forms)), ""


def _like(tensor: Tensor, bits: Callable[[], np.ndarray]) -> Tensor:
    return Tensor(tensor.dtype, tensor.shape, bits)


def _unknown(weight: str, forms: Mapping[str, str]) -> np.ndarray:
    raise LayoutError(
        f"{weight} is stored as {', '.join(sorted(forms.values())[:4])}, and it is not known how"
        " torch computes it from them: make it a plain parameter in torch"
        " (parametrize.remove_parametrizations, prune.remove, remove_spectral_norm) and save it"
        " again"
    )


def _normed(weight: str, g: Tensor, v: Tensor) -> np.ndarray:
    """Return g v / ||v||, the norm over the axes that g lacks; in double, rounded once."""
    if g.dtype != v.dtype or v.dtype not in FLOATS:
        raise LayoutError(f"{weight}: weight norm with g of {g.dtype}, v of {v.dtype}")
    fits = len(g.shape) == len(v.shape) and all(
        a in (1, b) for a, b in zip(g.shape, v.shape, strict=True)
    )
    if g.shape and not fits:
        raise LayoutError(f"{weight}: weight norm with g of shape {g.shape}, v of {v.shape}")
    values = widened(v.bits(), v.dtype)
    axes = tuple(k for k in range(values.ndim) if not g.shape or g.shape[k] == 1)
    with np.errstate(all="ignore"):  # a row of zeros is NaN in torch too
        norm = np.sqrt(np.square(values).sum(axis=axes, keepdims=True))
        return narrowed(values * (widened(g.bits(), g.dtype) / norm), v.dtype)


def _masked(weight: str, kept: Tensor, mask: Tensor) -> np.ndarray:
    if kept.shape != mask.shape or {kept.dtype, mask.dtype} - set(FLOATS):
        raise LayoutError(
            f"{weight}: a mask of {mask.dtype} {mask.shape} for {kept.dtype} {kept.shape}"
        )
    ones = widened(mask.bits(), mask.dtype)
    if not np.isin(ones, (0, 1)).all():
        raise LayoutError(f"{weight}: its mask has values other than 0 and 1")
    with np.errstate(all="ignore"):  # as in torch, a masked infinity is NaN
        return narrowed(widened(kept.bits(), kept.dtype) * ones, kept.dtype)

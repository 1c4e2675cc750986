"""Plain names for tensors of wrapped modules, quantizable modules and computed weights in torch.

A wrapped module (DataParallel, torch.compile) has one more part in the names of its tensors. A
quantizable LSTM consists of linear layers. A computed weight (weight norm, pruning) is stored as
the tensors that it is computed from, one with weight dropout (AWD-LSTM, fastai) as the trained
tensor beside a copy with zeros. All become plain names with the values that the module computes
with in evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from rnnlayout._model.dtypes import FLOATS, Bits, narrow_values, take_bits, widen_bits
from rnnlayout._model.errors import Ask
from rnnlayout._native import LayoutError, LossyError

_WRAPPERS = ("module", "_orig_mod")  # DataParallel, DistributedDataParallel; torch.compile
_LIST = "parametrizations."
_LONGEST = 500  # characters; longer names are left as they are
_MATRICES = ("_ih", "_hh", "_hr")
_TENSOR = re.compile("(?:weight|bias)_(?:ih|hh|hr)")
_COMPUTED = re.compile(  # weight_ih_back is Core ML's tensor of the backward direction
    r"(?P<under>(?:.*\.)?)"
    r"(?P<weight>(?:weight|bias)_(?:ih|hh|hr)(?:_l\d++(?:_reverse)?+)?+)(?P<rest>(?!_back$)[._].+)"
)
# torch.ao.nn.quantizable.LSTM: the linear layers of x and h
_QUANTIZABLE = re.compile(
    r"((?:.*\.)?)layers\.(\d+)\.layer_(fw|bw)\.cell\.([ih])gates\.(weight|bias)"
)
_RAW = "_raw"  # of weight dropout; the weight itself is the copy of the last call
# The endings of the tensors that a weight is stored as -> how it is computed from them.
_COMPUTATIONS = {
    frozenset(("_g", "_v")): "weight norm",
    frozenset((f"{_LIST}.original0", f"{_LIST}.original1")): "weight norm",
    frozenset(("_mask", "_orig")): "mask",
    frozenset((_RAW,)): "weight dropout",
}


@dataclass(frozen=True)
class ComputedWeight:
    """A weight that torch computes from stored tensors.

    weight: the weight's name, without the ending of a stored tensor. forms: the ending of each
    stored tensor -> its whole name, as {"_g": "lstm.weight_hh_l0_g", "_v": "lstm.weight_hh_l0_v"}.
    """

    weight: str
    forms: Mapping[str, str]

    @property
    def _how(self) -> str:
        return _COMPUTATIONS.get(frozenset(self.forms), "")

    @property
    def like(self) -> str:
        """The stored tensor that has its shape and dtype."""
        if self.rounds:
            return self.forms[max(self.forms)]  # v, after g
        return self.forms.get("_orig") or next(iter(self.forms.values()))

    @property
    def rounds(self) -> bool:
        """Whether it is rounded when it is computed."""
        return self._how == "weight norm"

    @property
    def dropped(self) -> bool:
        """Whether it is trained with weight dropout: a tensor of its own name is a masked copy."""
        return self._how == "weight dropout"

    def note(self, dtype: str) -> str:
        """Return a message on how it is computed, "" if that is not known."""
        if self.rounds:
            return f"{self.weight}: weight norm, computed as g v / ||v|| and rounded to {dtype}"
        if self.dropped:
            return f"{self.weight}: trained with weight dropout, read from {self.forms[_RAW]}"
        return f"{self.weight}: pruned by its mask" if self._how else ""

    def bits(self, stored: Callable[[str], Bits]) -> Bits:
        """Return its bits. stored: returns a tensor by its stored name. Raises LayoutError if it is
        not known how torch computes it."""
        if not self._how:
            raise LayoutError(
                f"{self.weight} is stored as {', '.join(sorted(self.forms.values())[:4])}, and it"
                " is not known how torch computes it from them: make it a plain parameter in torch"
                " (parametrize.remove_parametrizations, prune.remove, remove_spectral_norm), and"
                " pass or save it again"
            )
        first, *others = (stored(self.forms[form]) for form in sorted(self.forms))
        if self.rounds:
            return Bits(_apply_norm(self.weight, first, *others), first.dtype, rounded=True)
        return Bits(_apply_mask(self.weight, first, *others), first.dtype) if others else first


@dataclass
class PlainNames:
    """Plain names of tensors, and where these come from.

    sources: each plain name -> the stored names that it is made from. computed: the plain names
    that are made from several, and how. modules: the path of a module (nn.Linear) that has the name
    of a weight -> the name of one of its stored tensors.
    """

    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    computed: dict[str, ComputedWeight] = field(default_factory=dict)
    wrappers: frozenset[str] = frozenset()
    modules: dict[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """Messages about the modules: their tensors keep their names."""
        return [
            f"{module} is a module ({name}), not a weight: it is not read as an RNN; to read it as"
            f" one, rename its tensors to {module} and {'bias_'.join(module.rsplit('weight_', 1))}"
            for module, name in self.modules.items()
        ]

    def name(self, path: str) -> str:
        """Return a name or prefix without the wrappers."""
        if not self.wrappers:
            return path
        parts = path.split(".")
        return ".".join(
            part for k, part in enumerate(parts) if ".".join(parts[: k + 1]) not in self.wrappers
        )

    def stored_prefix(self, name: str, tail: str) -> str:
        """Return what precedes `tail`, the layout's part of a plain name, as it is stored."""
        source = self.sources[name][0]
        if match := _match_linear(source):
            return match[1]
        return source[: source.rindex(tail)].removesuffix(_LIST)


@lru_cache(maxsize=32)
def plain_names(names: tuple[str, ...]) -> PlainNames:
    """Return plain names: without wrappers, and with computed weights. Do not change the result.

    Kept, because the names of a model are asked for again with each prefix.

    >>> mask = ("module.weight_hh_l0_orig", "module.weight_hh_l0_mask")
    >>> list(plain_names(mask).sources)
    ['weight_hh_l0']
    """
    result = PlainNames(wrappers=_find_wrappers(names) | _dropped(names))
    parts: dict[str, dict[str, str]] = {}  # computed weight -> form -> stored name
    weight_of: dict[str, str] = {}  # stored name -> the weight that is computed from it
    for name in names:
        if match := _match_computed(name):
            under = match["under"].removesuffix(_LIST)
            weight = weight_of[name] = under + match["weight"]
            parts.setdefault(weight, {})[match["under"][len(under) :] + match["rest"]] = name
    for weight, forms in parts.items():
        if form := next((form for form in forms if ".weight" in form), None):
            result.modules[weight] = forms[form]
    stored = frozenset(names)
    computed = {w: ComputedWeight(w, forms) for w, forms in parts.items()}
    dropped = {result.name(weight): one for weight, one in computed.items() if one.dropped}
    for name in names:
        linear = _match_linear(name)
        if linear and f"{name}_fake_quant.scale" not in stored:  # with it the module rounds them
            under, layer, direction, side, role = linear.groups()
            end = "_reverse" if direction == "bw" else ""
            result.sources[result.name(f"{under}{role}_{side}h_l{layer}{end}")] = (name,)
            continue
        weight = weight_of.get(name, name)
        weight = name if weight in result.modules else weight
        new = result.name(weight)
        if new in dropped:  # the trained weight, or its masked copy
            result.sources[new] = (*result.sources.get(new, ()), name)
            result.computed[new] = dropped[new]
            continue
        if weight in stored and weight != name:
            continue  # a plain weight beside its parts is what the module last computed with
        if weight == name:
            result.sources[new] = (name,)
            result.computed.pop(new, None)
        elif new not in result.sources:
            result.sources[new] = tuple(parts[weight].values())
            result.computed[new] = computed[weight]
    return result


def plain_value(name: str, plain: PlainNames, tensors: Mapping[str, Any]) -> Any:
    """Return the array of a plain name. tensors: the arrays by their stored names."""
    if name not in plain.computed:
        return tensors[plain.sources[name][0]]
    return plain.computed[name].bits(lambda stored: Bits(*take_bits(tensors[stored], stored)))


def _match_computed(name: str) -> re.Match[str] | None:
    if not any(part in name for part in _MATRICES):  # sooner than the pattern finds out
        return None
    return _COMPUTED.fullmatch(name) if len(name) <= _LONGEST else None


def _match_linear(name: str) -> re.Match[str] | None:
    is_one = "gates." in name and len(name) <= _LONGEST
    return _QUANTIZABLE.fullmatch(name) if is_one else None


def _find_wrappers(names: Iterable[str]) -> frozenset[str]:
    """Return the paths to each `module` or `_orig_mod` that is alone in its module."""
    if not any(wrapper in name for name in names for wrapper in _WRAPPERS):
        return frozenset()
    inside: dict[str, set[str]] = {}
    for name in names:
        parts = name.split(".") if len(name) <= _LONGEST else [name]
        for k, part in enumerate(parts):
            inner = "" if k == len(parts) - 1 else part  # a tensor is not a wrapper
            inside.setdefault(".".join(parts[:k]), set()).add(inner)
    return frozenset(
        f"{path}.{only}" if path else only
        for path, (only, *others) in ((path, tuple(found)) for path, found in inside.items())
        if not others and only in _WRAPPERS
    )


def _dropped(names: Iterable[str]) -> frozenset[str]:
    """Return the paths to each RNN whose trained weights are in the module around it: `rnn.module`
    if there is `rnn.weight_hh_l0_raw`."""
    matches = [match for name in names if name.endswith(_RAW) and (match := _match_computed(name))]
    around = {match["under"]: set[str]() for match in matches if match["rest"] == _RAW}
    for name in names if around else ():
        module, _, tensor = name.rpartition(".")
        above = module[: module.rfind(".") + 1]
        if module and above in around and _TENSOR.match(tensor):
            around[above].add(module)
    return frozenset(path for paths in around.values() if len(paths) == 1 for path in paths)


def rounded_weights(names: Iterable[str]) -> LossyError:
    """Return the error for weights that were rounded when they were computed, if exact=True."""
    return LossyError(
        f"{', '.join(names)}: a weight is rounded when it is computed from its weight norm, which"
        " is not exact: omit ",
        Ask("exact", None),
        ", or first remove weight norm from the module in torch",
    )


def _apply_norm(weight: str, g: Bits, v: Bits) -> np.ndarray:
    """Return g v / ||v||, the norm over the axes that g lacks; in double, rounded once."""
    if g.dtype != v.dtype or v.dtype not in FLOATS:
        raise LayoutError(f"{weight}: weight norm with g of {g.dtype}, v of {v.dtype}")
    few, many = g.array.shape, v.array.shape
    fits = len(few) == len(many) and all(a in (1, b) for a, b in zip(few, many, strict=True))
    if few and not fits:
        raise LayoutError(f"{weight}: weight norm with g of shape {few}, v of {many}")
    values = widen_bits(v.array, v.dtype)
    axes = tuple(k for k in range(values.ndim) if not few or few[k] == 1)
    with np.errstate(all="ignore"):  # a row of zeros is NaN in torch too
        norm = np.sqrt(np.square(values).sum(axis=axes, keepdims=True))
        return narrow_values(values * (widen_bits(g.array, g.dtype) / norm), v.dtype)


def _apply_mask(weight: str, mask: Bits, kept: Bits) -> np.ndarray:
    shapes = mask.array.shape, kept.array.shape
    if shapes[0] != shapes[1] or {kept.dtype, mask.dtype} - set(FLOATS):
        raise LayoutError(
            f"{weight}: a mask of {mask.dtype} {shapes[0]} for {kept.dtype} {shapes[1]}"
        )
    ones = widen_bits(mask.array, mask.dtype)
    if not np.isin(ones, (0, 1)).all():
        raise LayoutError(f"{weight}: its mask has values other than 0 and 1")
    with np.errstate(all="ignore"):  # as in torch, a masked infinity is NaN
        return narrow_values(widen_bits(kept.array, kept.dtype) * ones, kept.dtype)

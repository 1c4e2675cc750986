"""Plain names for tensors of wrapped modules, quantizable modules and computed weights in torch.

A wrapped module (DataParallel, torch.compile) has a further part in the names of its tensors. A
quantizable LSTM consists of linear layers. A computed weight is stored as the inputs of the
computation (weight norm, pruning), or as the trained tensor and a copy with zeros (weight dropout
of AWD-LSTM and fastai). All get plain names, and the values that the module uses in evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.dtypes import FLOATS, Bits, narrow_values, take_bits, widen_bits
from rnnlayout._model.errors import Ask
from rnnlayout._model.layout import Layout
from rnnlayout._model.sized_cache import cached_by_size
from rnnlayout._native import LayoutError, LossyError

_WRAPPERS = ("module", "_orig_mod")  # DataParallel, DistributedDataParallel; torch.compile
_PARAMETRIZATIONS = "parametrizations."
_LONGEST = 500  # characters; longer names are left unchanged
_MATRICES = ("_ih", "_hh", "_hr")
_TENSOR = re.compile("(?:weight|bias)_(?:ih|hh|hr)")
_COMPUTED = re.compile(  # weight_ih_back is Core ML's tensor of the backward direction
    r"(?P<prefix>(?:.*\.)?)"
    r"(?P<weight>(?:weight|bias)_(?:ih|hh|hr)(?:_l\d++(?:_reverse)?+)?+)(?P<ending>(?!_back$)[._].+)"
)
# torch.ao.nn.quantizable.LSTM: the linear layers of x and h
_QUANTIZABLE = re.compile(
    r"((?:.*\.)?)layers\.(\d+)\.layer_(fw|bw)\.cell\.([ih])gates\.(weight|bias)"
)
# Names of other programs with the matrices and gates of torch: AllenNLP's AugmentedLstm without
# highway (input_linearity, allennlp/modules/augmented_lstm.py), and bidirectional LSTMs ported to
# MLX (Wx_forward, bias_ih_backward), one layer each.
_OTHER_NAMES = re.compile(
    r"((?:.*\.)?)(?:(input|state)_linearity\.(weight|bias)"
    r"|(Wx|Wh|bias_ih|bias_hh)_(forward|backward))"
)
_ROLES = {
    "inputweight": "weight_ih",
    "stateweight": "weight_hh",
    "inputbias": "bias_ih",
    "statebias": "bias_hh",
    "Wx": "weight_ih",
    "Wh": "weight_hh",
}
_OTHER_ENDS = ("_linearity.weight", "_linearity.bias", "_forward", "_backward")
_RAW = "_raw"  # the trained tensor of weight dropout; the weight is the copy of the last call
# Endings of the stored tensors of a weight -> the computation.
_COMPUTATIONS = {
    frozenset(("_g", "_v")): "weight norm",
    frozenset((f"{_PARAMETRIZATIONS}.original0", f"{_PARAMETRIZATIONS}.original1")): "weight norm",
    frozenset(("_mask", "_orig")): "mask",
    frozenset((_RAW,)): "weight dropout",
}


@dataclass(frozen=True)
class ComputedWeight:
    """A weight that torch computes from stored tensors.

    weight: the name of the weight, without the ending of a stored tensor. forms: ending of a stored
    tensor -> whole name, as {"_g": "lstm.weight_hh_l0_g", "_v": "lstm.weight_hh_l0_v"}.
    """

    weight: str
    forms: Mapping[str, str]

    @property
    def _computation(self) -> str:
        return _COMPUTATIONS.get(frozenset(self.forms), "")

    @property
    def is_known(self) -> bool:
        """Whether it is known how torch computes the weight."""
        return bool(self._computation)

    @property
    def like(self) -> str:
        """The name of a stored tensor with the shape and dtype of the weight."""
        if self.rounds:
            return self.forms[max(self.forms)]  # v, after g
        return self.forms.get("_orig") or next(iter(self.forms.values()))

    @property
    def rounds(self) -> bool:
        """Whether the computation rounds."""
        return self._computation == "weight norm"

    @property
    def has_dropout(self) -> bool:
        """Whether weight dropout is applied: a tensor with the name of the weight is then a masked
        copy of the trained tensor."""
        return self._computation == "weight dropout"

    def note(self, dtype: str) -> str:
        """Return a message about the computation, "" if the computation is unknown."""
        if self.rounds:
            return f"{self.weight}: weight norm, computed as g v / ||v|| and rounded to {dtype}"
        if self.has_dropout:
            return f"{self.weight}: trained with weight dropout, read from {self.forms[_RAW]}"
        return f"{self.weight}: pruned by its mask" if self._computation else ""

    def bits(self, stored: Callable[[str], Bits]) -> Bits:
        """Return the bits of the weight. stored: returns a tensor by its stored name. Raises
        LayoutError if the computation is unknown."""
        if not self._computation:
            raise LayoutError(
                f"{self.weight} is stored as {', '.join(sorted(self.forms.values())[:4])}, and it"
                " is not known how torch computes it from them: make it a plain parameter in torch"
                " (parametrize.remove_parametrizations, prune.remove, remove_spectral_norm), and"
                " pass or save it again"
            )
        first, *second = (stored(self.forms[form]) for form in sorted(self.forms))
        if self.rounds:
            return Bits(_apply_norm(self.weight, first, *second), first.dtype, rounded=True)
        return Bits(_apply_mask(self.weight, first, *second), first.dtype) if second else first


@dataclass
class PlainNames:
    """Plain names of tensors, and the stored names behind.

    sources: plain name -> stored names. computed: plain name -> computed weight, for a plain name
    with several stored names. modules: path of a module (nn.Linear) with the name of a weight ->
    name of a stored tensor of the module.
    """

    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    computed: dict[str, ComputedWeight] = field(default_factory=dict)
    wrappers: frozenset[str] = frozenset()
    modules: dict[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """Messages about `modules`. Tensors of a module keep the stored names."""
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
        """Return the part before `tail` in the stored name. tail: the layout's part of the plain
        name."""
        source = self.sources[name][0]
        if renamed := _rename_linear(source):
            return renamed[0]
        return source[: source.rindex(tail)].removesuffix(_PARAMETRIZATIONS)


@cached_by_size(lambda names, layout: len(names))
def plain_names(names: tuple[str, ...], layout: Layout | None) -> PlainNames:
    """Return plain names: without wrappers, and with computed weights. Do not change the result.

    layout: the layout that the caller names. A layout of the caller's own may have names that look
    like stored tensors: all names are plain then.

    Cached, because each prefix of a model is looked up among the same names.

    >>> mask = ("module.weight_hh_l0_orig", "module.weight_hh_l0_mask")
    >>> list(plain_names(mask, None).sources)
    ['weight_hh_l0']
    """
    if layout is not None and any(map(_match_computed, _native.names(layout))):
        return PlainNames({name: (name,) for name in names})
    result = PlainNames(wrappers=_find_wrappers(names) | _dropout_modules(names))
    forms_of: dict[str, dict[str, str]] = {}  # computed weight -> form -> stored name
    weight_of: dict[str, str] = {}  # stored name -> computed weight
    for name in names:
        if match := _match_computed(name):
            prefix = match["prefix"].removesuffix(_PARAMETRIZATIONS)
            weight = weight_of[name] = prefix + match["weight"]
            forms_of.setdefault(weight, {})[match["prefix"][len(prefix) :] + match["ending"]] = name
    for weight, forms in forms_of.items():
        if form := next((form for form in forms if ".weight" in form), None):
            result.modules[weight] = forms[form]
    stored = frozenset(names)
    computed = {weight: ComputedWeight(weight, forms) for weight, forms in forms_of.items()}
    with_dropout = {
        result.name(name): weight for name, weight in computed.items() if weight.has_dropout
    }
    for name in names:
        if renamed := _rename_linear(name):
            result.sources[result.name("".join(renamed))] = (name,)
            continue
        weight = weight_of.get(name, name)
        weight = name if weight in result.modules else weight
        plain = result.name(weight)
        if plain in with_dropout:  # the trained weight, or the masked copy
            result.sources[plain] = (*result.sources.get(plain, ()), name)
            result.computed[plain] = with_dropout[plain]
            continue
        if weight in stored and weight != name:
            if not computed[weight].is_known:
                result.sources[name] = (name,)
            continue  # the plain weight, stored next to the parts, is the weight of the last call
        if weight == name:
            result.sources[plain] = (name,)
            result.computed.pop(plain, None)
        elif plain not in result.sources:
            result.sources[plain] = tuple(forms_of[weight].values())
            result.computed[plain] = computed[weight]
    return result


def plain_value(name: str, plain: PlainNames, tensors: Mapping[str, Any]) -> Any:
    """Return the array of a plain name. tensors: the arrays by stored name."""
    if name not in plain.computed:
        return tensors[plain.sources[name][0]]
    return plain.computed[name].bits(lambda stored: Bits(*take_bits(tensors[stored], stored)))


def _match_computed(name: str) -> re.Match[str] | None:
    if not any(part in name for part in _MATRICES):  # faster than the pattern
        return None
    return _COMPUTED.fullmatch(name) if len(name) <= _LONGEST else None


def _rename_linear(name: str) -> tuple[str, str] | None:
    """Return (prefix, torch's name) of a tensor of a linear layer, or of another program."""
    if len(name) > _LONGEST:
        return None
    if "gates." in name and (match := _QUANTIZABLE.fullmatch(name)):
        prefix, layer, direction, side, role = match.groups()
        return prefix, f"{role}_{side}h_l{layer}{'_reverse' * (direction == 'bw')}"
    if name.endswith(_OTHER_ENDS) and (match := _OTHER_NAMES.fullmatch(name)):
        prefix, side, role, tensor, direction = match.groups()
        torch_role = _ROLES.get(tensor or side + role, tensor)
        return prefix, f"{torch_role}_l0{'_reverse' * (direction == 'backward')}"
    return None


def _find_wrappers(names: Iterable[str]) -> frozenset[str]:
    """Return the paths to each `module` or `_orig_mod` that is alone in its module."""
    if not any(wrapper in name for name in names for wrapper in _WRAPPERS):
        return frozenset()
    children: dict[str, set[str]] = {}
    for name in names:
        parts = name.split(".") if len(name) <= _LONGEST else [name]
        for k, part in enumerate(parts):
            inner = "" if k == len(parts) - 1 else part  # a tensor is not a wrapper
            children.setdefault(".".join(parts[:k]), set()).add(inner)
    return frozenset(
        f"{path}.{child}" if path else child
        for path, (child, *siblings) in ((path, tuple(names)) for path, names in children.items())
        if not siblings and child in _WRAPPERS
    )


def _dropout_modules(names: Iterable[str]) -> frozenset[str]:
    """Return the paths of RNNs with trained weights in the outer module: `rnn.module` if
    `rnn.weight_hh_l0_raw` exists."""
    matches = [match for name in names if name.endswith(_RAW) and (match := _match_computed(name))]
    modules = {match["prefix"]: set[str]() for match in matches if match["ending"] == _RAW}
    for name in names if modules else ():
        module, _, tensor = name.rpartition(".")
        prefix = module[: module.rfind(".") + 1]
        if module and prefix in modules and _TENSOR.match(tensor):
            modules[prefix].add(module)
    return frozenset(path for paths in modules.values() if len(paths) == 1 for path in paths)


def rounded_weights(names: Iterable[str]) -> LossyError:
    """Return the error for weights that the computation rounded, with exact=True."""
    return LossyError(
        f"{', '.join(names)}: a weight is rounded when it is computed from its weight norm, which"
        " is not exact: omit ",
        Ask("exact", None),
        ", or first remove weight norm from the module in torch",
    )


def _apply_norm(weight: str, g: Bits, v: Bits) -> np.ndarray:
    """Return g v / ||v||, with the norm over the axes that g lacks; in double, rounded once."""
    if g.dtype != v.dtype or v.dtype not in FLOATS:
        raise LayoutError(f"{weight}: weight norm with g of {g.dtype}, v of {v.dtype}")
    g_shape, v_shape = g.array.shape, v.array.shape
    fits = len(g_shape) == len(v_shape) and all(
        a in (1, b) for a, b in zip(g_shape, v_shape, strict=True)
    )
    if g_shape and not fits:
        raise LayoutError(f"{weight}: weight norm with g of shape {g_shape}, v of {v_shape}")
    doubles = widen_bits(v.array, v.dtype)
    axes = tuple(k for k in range(doubles.ndim) if not g_shape or g_shape[k] == 1)
    with np.errstate(all="ignore"):  # a row of zeros is NaN in torch too
        norm = np.sqrt(np.square(doubles).sum(axis=axes, keepdims=True))
        return narrow_values(doubles * (widen_bits(g.array, g.dtype) / norm), v.dtype)


def _apply_mask(weight: str, mask: Bits, original: Bits) -> np.ndarray:
    shapes = mask.array.shape, original.array.shape
    if shapes[0] != shapes[1] or {original.dtype, mask.dtype} - set(FLOATS):
        raise LayoutError(
            f"{weight}: a mask of {mask.dtype} {shapes[0]} for {original.dtype} {shapes[1]}"
        )
    factors = widen_bits(mask.array, mask.dtype)
    if not np.isin(factors, (0, 1)).all():
        raise LayoutError(f"{weight}: its mask has values other than 0 and 1")
    with np.errstate(all="ignore"):  # as in torch, a masked infinity is NaN
        return narrow_values(widen_bits(original.array, original.dtype) * factors, original.dtype)

"""Recurrent modules of torch, recognized by their classes: nothing is imported here."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from rnnlayout._native import LayoutError

from . import mismatch
from .self_description import RNNDescription, class_names
from .torch_names import PlainNames, plain_names, plain_value

RNNS = "torch.nn.modules.rnn"
_WRAPPERS = ("torch.nn.parallel", "torch._dynamo")  # around a module: DataParallel, torch.compile
_QUANTIZED = ("torch.ao.nn.quanti", "torch.nn.quanti")
_FIELDS = ("input_size", "hidden_size", "num_layers", "bidirectional", "proj_size", "bias")
_SAID = (*_FIELDS, "mode", "nonlinearity", "batch_first")
_CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}


def is_torch_module(value: Any) -> bool:
    """Is it a torch module? With torch as backend each Keras layer is one too."""
    return "Module" in class_names(value, "torch.nn.modules.module")


def torch_rnns(module: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the RNNs in a module with their names in its state_dict(). A traced RNN is its own
    state_dict(): torch.jit.trace() keeps nothing else."""
    rnn = rnn_in(module)
    if _rnn_classes(rnn):
        yield path, module if hasattr(rnn, "bias") else module.state_dict()
        return
    wraps = class_names(module, *_WRAPPERS)
    for name, child in module.named_children():
        yield from torch_rnns(child, path if wraps else f"{path}.{name}" if path else name)


def torch_spec(module: Any) -> RNNDescription:
    module = rnn_in(module)
    names = _rnn_classes(module)
    if quantized := class_names(module, *_QUANTIZED):
        if "quantizable" in type(module).__module__:
            raise LayoutError(
                f"torch.ao.nn.quantizable.{quantized[0]} consists of linear layers: pass"
                " module.state_dict(), and the axes of x where it runs"
            )
        raise LayoutError(
            f"{type(module).__module__.partition('.modules')[0]}.{quantized[0]} stores rounded"
            " weights: pass the module that it was quantized from"
        )
    if names in ([], ["RNNCellBase"]):
        raise mismatch.not_recurrent(module, "an nn.LSTM, GRU, RNN or one of their cells")
    is_cell = "RNNBase" not in names
    kind = names[names.index("RNNCellBase") - 1] if is_cell else names[0]
    said = vars(module)
    if is_script(module):
        said = {name: getattr(module, name) for name in _SAID if hasattr(module, name)}
    hints = {"num_layers": 1, "bidirectional": False, "proj_size": 0} | torch_fields(kind, said)
    layout = "torch-cell" if is_cell else "torch"
    return RNNDescription(layout, hints, {}, said.get("batch_first"))


def torch_attributes(*mappings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that describe a torch RNN; a later mapping overrides an earlier one."""
    return {name: mapping[name] for mapping in mappings for name in _SAID if name in mapping}


def torch_fields(kind: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Spec that an RNN of torch says. kind: LSTM, GRU, RNN or one of their
    cells. said: its attributes, of which some may be missing."""
    fields = {name: said[name] for name in _FIELDS if name in said}
    fields |= {name: bool(fields[name]) for name in ("bidirectional", "bias") if name in fields}
    mode, nonlinearity = said.get("mode", kind.removesuffix("Cell")), said.get("nonlinearity")
    if mode == "RNN" and isinstance(nonlinearity, str):
        mode = f"RNN_{nonlinearity.upper()}"
    return fields | ({"cell": _CELLS[mode]} if isinstance(mode, str) and mode in _CELLS else {})


def torch_arrays(module: Any, own: RNNDescription) -> list[tuple[str, Any]]:
    """Return what the module computes with in evaluation, by the names of its layout. The older
    weight_norm, pruning and weight dropout store parts of a weight, and an attribute of its name
    that is only up to date after a call: it is computed from the parts."""
    (_, names), kept = own.spec_and_names(), _kept(module)
    plain = plain_names(tuple(kept))
    check_parameters(module, _stored(plain, names))
    return [(name, plain_value(name, plain, kept)) if name in plain.sources
            else (name, _parametrized(module, name)) for name in names]  # fmt: skip


def check_parameters(module: Any, names: Collection[str]) -> None:
    """Raise LayoutError if a module has more parameters than those of these names. Those of
    parametrizations are the parts of a weight."""
    parameter = sys.modules["torch"].nn.Parameter
    found = [name for name, value in module.named_parameters() if isinstance(value, parameter)]
    if more := [name for name in found if name not in names and "parametrizations." not in name]:
        raise mismatch.more_parameters(module, _rnn_classes(rnn_in(module))[0], more)


def modules_with_calls(module: Any) -> list[Any]:
    """Return the modules whose class says what they compute: a compiled one is its own program."""
    rnn = rnn_in(module)
    return [] if is_script(rnn) else [rnn]


def rnn_in(module: Any) -> Any:
    """Return the RNN in a module that applies dropout to its weights, another module as it is."""
    inner = _inner_rnn(module)
    computed = {} if inner is None else plain_names(tuple(_kept(module))).computed
    return inner if any(one.dropped for one in computed.values()) else module


def _inner_rnn(module: Any) -> Any:
    """Return the RNN that a module wraps, None if it wraps none."""
    if "module" not in getattr(module, "_modules", ()):
        return None
    return module.module if class_names(module.module, RNNS) else None


def torch_expression(module: Any, names: Iterable[str]) -> str:
    """Return code for the tensors of a module's RNN, in messages. names: of its layout."""
    used = _stored(plain_names(tuple(_kept(module))), names)
    more = [k for k in module.state_dict() if k not in used and "parametrizations." not in k]
    if not more:
        return "module.state_dict()"
    return f"{{k: v for k, v in module.state_dict().items() if k not in {more}}}"


def _kept(module: Any) -> dict[str, Any]:
    """Return the parameters and buffers of an RNN, or of one with dropout of its weights."""
    # a plain tensor in the place of a parameter is computed
    parameter = sys.modules["torch"].nn.Parameter
    owned = module.named_parameters(recurse=False, remove_duplicate=False)
    kept = {name: value for name, value in owned if isinstance(value, parameter)}
    kept |= dict(module.named_buffers(recurse=False))
    inner = _inner_rnn(module)
    if inner is not None:
        kept |= {f"module.{name}": value for name, value in _kept(inner).items()}
    return kept


def _stored(plain: PlainNames, names: Iterable[str]) -> set[str]:
    return {stored for name in names for stored in plain.sources.get(name, ())}


def _parametrized(module: Any, name: str) -> Any:
    """Return a weight that torch computes from its parametrizations when it is asked for. In
    training spectral norm would change its vectors each time. In evaluation it is what the last
    call in training used."""
    parametrizations = getattr(module, "parametrizations", {})
    if name not in parametrizations:
        raise LayoutError(
            f"{name} is not a parameter of {type(module).__name__}, which computes with a tensor"
            f" that another module sets: with weight dropout (a {name}_raw) pass the module around"
            " it"
        )
    training = [one for one in parametrizations[name].modules() if one.training]
    try:
        for one in training:
            one.training = False
        return getattr(module, name)
    finally:
        for one in training:
            one.training = True


def is_script(module: Any) -> bool:
    """Is it a module of TorchScript?"""
    return bool(class_names(module, "torch.jit."))


def _rnn_classes(module: Any) -> list[str]:
    """Return the names of a module's classes of torch's RNNs, [] if it is no RNN."""
    names = class_names(module, RNNS)
    if names or not is_script(module):
        return names
    name = module.original_name  # of its class, whose module the compiled type has in its name
    if not module._c._type().qualified_name().startswith(f"__torch__.{RNNS}."):
        return []
    return [name, "RNNCellBase" if name.endswith("Cell") else "RNNBase"]

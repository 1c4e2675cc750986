"""Recurrent modules of torch, recognized by class: nothing is imported here."""

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
_ATTRIBUTES = (*_FIELDS, "mode", "nonlinearity", "batch_first")
_CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}


def is_torch_module(value: Any) -> bool:
    """Is `value` a torch module? With the torch backend, Keras layers are torch modules too."""
    return "Module" in class_names(value, "torch.nn.modules.module")


def torch_rnns(module: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name in the state_dict(), RNN) for each RNN in a module. A traced RNN is yielded as
    its state_dict(): torch.jit.trace() keeps nothing else."""
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
    attributes = vars(module)
    if is_script(module):
        attributes = {name: getattr(module, name) for name in _ATTRIBUTES if hasattr(module, name)}
    fields = {"num_layers": 1, "bidirectional": False, "proj_size": 0} | torch_fields(
        kind, attributes
    )
    layout = "torch-cell" if is_cell else "torch"
    return RNNDescription(layout, fields, {}, attributes.get("batch_first"))


def torch_attributes(*mappings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that describe a torch RNN; later mappings override earlier mappings."""
    return {name: mapping[name] for mapping in mappings for name in _ATTRIBUTES if name in mapping}


def torch_fields(kind: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Spec that attributes of a torch RNN record. kind: LSTM, GRU, RNN, or
    LSTMCell, GRUCell, RNNCell. attributes: may be incomplete."""
    fields = {name: attributes[name] for name in _FIELDS if name in attributes}
    fields |= {name: bool(fields[name]) for name in ("bidirectional", "bias") if name in fields}
    mode = attributes.get("mode", kind.removesuffix("Cell"))
    nonlinearity = attributes.get("nonlinearity")
    if mode == "RNN" and isinstance(nonlinearity, str):
        mode = f"RNN_{nonlinearity.upper()}"
    return fields | ({"cell": _CELLS[mode]} if isinstance(mode, str) and mode in _CELLS else {})


def torch_arrays(module: Any, description: RNNDescription) -> list[tuple[str, Any]]:
    """Return the tensors that the module uses in evaluation, with names of the layout. The older
    weight_norm, pruning and weight dropout store parts of a weight, and set the weight as an
    attribute at each call. The attribute may be out of date, so the weight is computed from the
    parts."""
    (_, names), tensors = description.spec_and_names(), _stored_tensors(module)
    plain = plain_names(tuple(tensors))
    check_parameters(module, _stored_names(plain, names))
    return [
        (name, plain_value(name, plain, tensors))
        if name in plain.sources
        else (name, _parametrized(module, name))
        for name in names
    ]


def check_parameters(module: Any, names: Collection[str]) -> None:
    """Raise LayoutError if a module has parameters with further names. Parameters of
    parametrizations are allowed, as parts of a weight."""
    parameter = sys.modules["torch"].nn.Parameter
    parameters = [
        name for name, tensor in module.named_parameters() if isinstance(tensor, parameter)
    ]
    if extra := [
        name for name in parameters if name not in names and "parametrizations." not in name
    ]:
        raise mismatch.more_parameters(module, _rnn_classes(rnn_in(module))[0], extra)


def modules_with_calls(module: Any) -> list[Any]:
    """Return [RNN] if the class determines the computation; [] for a compiled RNN, a program."""
    rnn = rnn_in(module)
    return [] if is_script(rnn) else [rnn]


def rnn_in(module: Any) -> Any:
    """Return the RNN inside a module that applies weight dropout; return another module as is."""
    inner = _inner_rnn(module)
    computed = {} if inner is None else plain_names(tuple(_stored_tensors(module))).computed
    return inner if any(weight.has_dropout for weight in computed.values()) else module


def _inner_rnn(module: Any) -> Any:
    """Return the RNN that a module wraps, if any."""
    if "module" not in getattr(module, "_modules", ()):
        return None
    return module.module if class_names(module.module, RNNS) else None


def torch_expression(module: Any, names: Iterable[str]) -> str:
    """Return code for the tensors of a module's RNN, in messages. names: names of the layout."""
    used = _stored_names(plain_names(tuple(_stored_tensors(module))), names)
    extra = [k for k in module.state_dict() if k not in used and "parametrizations." not in k]
    if not extra:
        return "module.state_dict()"
    return f"{{k: v for k, v in module.state_dict().items() if k not in {extra}}}"


def _stored_tensors(module: Any) -> dict[str, Any]:
    """Return the parameters and buffers of an RNN, or of a module that applies weight dropout."""
    # a plain tensor in the place of a parameter is a computed weight
    parameter = sys.modules["torch"].nn.Parameter
    parameters = module.named_parameters(recurse=False, remove_duplicate=False)
    tensors = {name: tensor for name, tensor in parameters if isinstance(tensor, parameter)}
    tensors |= dict(module.named_buffers(recurse=False))
    inner = _inner_rnn(module)
    if inner is not None:
        tensors |= {f"module.{name}": tensor for name, tensor in _stored_tensors(inner).items()}
    return tensors


def _stored_names(plain: PlainNames, names: Iterable[str]) -> set[str]:
    return {stored for name in names for stored in plain.sources.get(name, ())}


def _parametrized(module: Any, name: str) -> Any:
    """Return a weight that torch computes from parametrizations when the attribute is read. Each
    reading in training mode would change the vectors of spectral norm; evaluation mode gives the
    weight of the last call in training."""
    parametrizations = getattr(module, "parametrizations", {})
    if name not in parametrizations:
        raise LayoutError(
            f"{name} is not a parameter of {type(module).__name__}, which computes with a tensor"
            f" that another module sets: with weight dropout (a {name}_raw) pass the module around"
            " it"
        )
    training = [submodule for submodule in parametrizations[name].modules() if submodule.training]
    try:
        for submodule in training:
            submodule.training = False
        return getattr(module, name)
    finally:
        for submodule in training:
            submodule.training = True


def forward_hook(module: Any) -> str:
    """Return the name of a hook that may change what a module takes or returns, "" without. The
    hooks of torch.nn.utils compute a weight: weight norm, pruning."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    for hook in hooks:
        function = hook if hasattr(hook, "__qualname__") else type(hook)
        if not is_hook_of_weights(function.__module__):
            return str(function.__qualname__)
    return ""


def is_hook_of_weights(name: str) -> bool:
    """Is this the name of a hook, or of its Python module, that only computes weights?"""
    return f"{name}.".startswith("torch.nn.utils.")


def is_script(module: Any) -> bool:
    """Is the module a TorchScript module?"""
    return bool(class_names(module, "torch.jit."))


def _rnn_classes(module: Any) -> list[str]:
    """Return the names of a module's classes that are RNNs of torch, [] for another module."""
    names = class_names(module, RNNS)
    if names or not is_script(module):
        return names
    name = module.original_name  # of the class; the compiled type's name has the class's module
    if not module._c._type().qualified_name().startswith(f"__torch__.{RNNS}."):
        return []
    return [name, "RNNCellBase" if name.endswith("Cell") else "RNNBase"]

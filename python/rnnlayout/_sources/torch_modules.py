"""Recurrent modules of torch, recognized by class: nothing is imported here."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rnnlayout._native import LayoutError

from . import mismatch
from .self_description import RNNDescription, class_names
from .torch_names import PlainNames, plain_names, plain_value
from .torch_programs import class_in_program, hook_in_program, program_settings, rnn_kind

RNNS = "torch.nn.modules.rnn"
_WRAPPERS = ("torch.nn.parallel", "torch._dynamo")  # around a module: DataParallel, torch.compile
_QUANTIZED = ("torch.ao.nn.quanti", "torch.nn.quanti")
# Hooks that call the module activation_post_process with an input or output.
OBSERVER_HOOKS = "torch.ao.quantization.quantize._observer_forward_"
OBSERVERS = "torch.ao.quantization.observer"
_FIELDS = ("input_size", "hidden_size", "num_layers", "bidirectional", "proj_size", "bias")
_ATTRIBUTES = (*_FIELDS, "mode", "nonlinearity", "batch_first")
_CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn_tanh", "RNN_RELU": "rnn_relu"}


def is_torch_module(value: Any) -> bool:
    """Is `value` a torch module? With the torch backend, Keras layers are torch modules too."""
    return "Module" in class_names(value, "torch.nn.modules.module")


def torch_rnns(module: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name in the state_dict(), RNN) for each RNN in a module, also if it is quantized."""
    rnn = rnn_in(module)
    if _rnn_classes(rnn) or any(map(rnn_kind, _class_paths(rnn))):
        yield path, module
        return
    wraps = class_names(module, *_WRAPPERS)
    for name, child in module.named_children():
        yield from torch_rnns(child, path if wraps else f"{path}.{name}" if path else name)


def torch_spec(module: Any) -> RNNDescription:
    module = rnn_in(module)
    names = _rnn_classes(module)
    for path in _class_paths(module):
        if path.startswith(_QUANTIZED):
            raise _quantized_module(path)
    if names in ([], ["RNNCellBase"]):
        if is_script(module):
            _check_names_of_weights(module)
        raise mismatch.not_recurrent(module, "an nn.LSTM, GRU, RNN or one of their cells")
    is_cell = "RNNBase" not in names
    kind = names[names.index("RNNCellBase") - 1] if is_cell else names[0]
    layout = "torch-cell" if is_cell else "torch"
    fields = {"num_layers": 1, "bidirectional": False, "proj_size": 0} if is_cell else {}
    if is_script(module):
        return _describe_program(module, RNNDescription(layout, fields, {}, None), kind)
    fields |= torch_fields(kind, vars(module))
    return RNNDescription(layout, fields, {}, vars(module).get("batch_first"))


def _quantized_module(path: str) -> LayoutError:
    """Return the error for a module of a class that quantizes."""
    class_name = path.rpartition(".")[2]
    if "quantizable" in path:
        return LayoutError(
            f"torch.ao.nn.quantizable.{class_name} consists of linear layers: pass"
            " module.state_dict(), and the axes of x where it runs"
        )
    return LayoutError(
        f"{path.partition('.modules')[0]}.{class_name} stores rounded weights: pass the module that"
        " it was quantized from"
    )


def _describe_program(module: Any, description: RNNDescription, kind: str) -> RNNDescription:
    """Add what a scripted or traced RNN records. A scripted RNN has the attributes of the RNN, a
    traced RNN only its program."""
    _check_names_of_weights(module)
    attributes = program_settings(_program_text(module)) if is_traced(module) else {}
    attributes |= {name: getattr(module, name) for name in _ATTRIBUTES if hasattr(module, name)}
    return replace(
        description,
        fields=description.fields | torch_fields(kind, attributes),
        batch_first=attributes.get("batch_first"),
        tensors=module.state_dict(),
    )


def _check_names_of_weights(module: Any) -> None:
    """Raise LayoutError if a program has the weights of its RNN as constants."""
    if not module.state_dict() and (mode := program_settings(_program_text(module)).get("mode")):
        raise LayoutError(
            f"{module.original_name} calls torch.{mode.lower()}() with constants, which have no"
            " names: pass the program before torch.jit.freeze()"
        )


def _program_text(module: Any) -> str:
    script = module._c
    return "\n".join(script._get_method(name).code for name in script._method_names())


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
    plain = plain_names(tuple(tensors), None)
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
    """Return [RNN] if the class determines the computation; [] for a TorchScript program."""
    rnn = rnn_in(module)
    return [] if is_script(rnn) else [rnn]


def rnn_in(module: Any) -> Any:
    """Return the RNN inside a module that applies weight dropout; return another module as is."""
    inner = _inner_rnn(module)
    computed = {} if inner is None else plain_names(tuple(_stored_tensors(module)), None).computed
    return inner if any(weight.has_dropout for weight in computed.values()) else module


def _inner_rnn(module: Any) -> Any:
    """Return the RNN that a module wraps, if any."""
    if "module" not in getattr(module, "_modules", ()):
        return None
    return module.module if class_names(module.module, RNNS) else None


def torch_expression(module: Any, names: Iterable[str]) -> str:
    """Return code for the tensors of a module's RNN, in messages. names: names of the layout."""
    used = _stored_names(plain_names(tuple(_stored_tensors(module)), None), names)
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
    rnn, of_all = rnn_in(module), sys.modules["torch.nn.modules.module"]
    global_hooks = [of_all._global_forward_pre_hooks, of_all._global_forward_hooks]
    for layer in (module, rnn):
        hooks = [layer._forward_pre_hooks, layer._forward_hooks, *global_hooks]
        for hook in itertools.chain.from_iterable(by_id.values() for by_id in hooks):
            function = hook if hasattr(hook, "__qualname__") else type(hook)
            name = f"{function.__module__}.{function.__qualname__}"
            observes = name.startswith(OBSERVER_HOOKS) and _observes(layer.activation_post_process)
            if not observes and not is_hook_of_weights(name):
                return str(getattr(hook, "name", function.__qualname__))
    return hook_in_program(_program_text(rnn)) if is_traced(rnn) else ""


def _observes(module: Any) -> bool:
    """Is this an observer, or a fake quantization that is switched off? Both return their input."""
    enabled = getattr(module, "fake_quant_enabled", None)
    return bool(class_names(module, OBSERVERS)) if enabled is None else not bool(enabled)


def is_hook_of_weights(name: str) -> bool:
    """Is this the full name of a hook that only computes weights?"""
    return name.startswith("torch.nn.utils.")


def is_script(module: Any) -> bool:
    """Is the module a TorchScript module?"""
    return bool(class_names(module, "torch.jit."))


def is_traced(module: Any) -> bool:
    """Is the module an RNN that torch.jit.trace() made, without the attributes of the RNN?"""
    return is_script(module) and not hasattr(module, "bias")


def _class_paths(module: Any) -> list[str]:
    """Return the full names of a module's classes. A TorchScript module has one class."""
    if is_script(module):
        return [class_in_program(module._c._type().qualified_name())]
    return [f"{c.__module__}.{c.__qualname__}" for c in type(module).__mro__]


def _rnn_classes(module: Any) -> list[str]:
    """Return the names of a module's classes that are RNNs of torch, [] for another module."""
    if not is_script(module):
        return class_names(module, RNNS)
    (path,) = _class_paths(module)
    if path.startswith(_QUANTIZED) or not (kind := rnn_kind(path)):
        return []
    return [kind, "RNNCellBase" if kind.endswith("Cell") else "RNNBase"]

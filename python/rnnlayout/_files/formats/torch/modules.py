"""Read whole modules in a pickle, of torch.save(model) or TorchScript: the tensors, named as in
state_dict(), and the classes and options of torch's RNNs among the modules.

C++'s torch::save(module) writes TorchScript without programs, in which each module is of the class
__torch__.Module: the tensors have names, but no class and no option is recorded.

Dynamically quantized RNNs have packed weights, which become the tensors of an RNN of floats. A
layer has an object of packed weights per direction, a cell has two objects. The pickled states of
these objects are defined in aten/src/ATen/native/RNN.cpp (torch 2.13).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from rnnlayout._files.formats.pickles import PickledSet, UnreadObject
from rnnlayout._files.tensor_sets.file_limits import InputFile, read_member
from rnnlayout._files.tensor_sets.tensor_set import (
    ALONE,
    LONGEST,
    MOST_DEEP,
    FileTensor,
    ModuleClass,
)
from rnnlayout._model.errors import FileError
from rnnlayout._sources.torch_modules import (
    OBSERVER_HOOKS,
    OBSERVERS,
    is_hook_of_weights,
    torch_attributes,
    torch_fields,
)
from rnnlayout._sources.torch_programs import (
    SCRIPT,
    class_in_program,
    hook_in_program,
    program_settings,
    rnn_kind,
)

_PACKED = ("param", "_packed_weight_ih", "_packed_weight_hh")  # attributes of quantized modules
# Of the budget, per attribute and per tensor of a module: a module in two places is visited twice.
_VISIT_STEPS, _TENSOR_STEPS = 16, 80


class PickledObject(UnreadObject):
    """An object of an unknown class. state: kept for a module and for packed weights. program: the
    settings and the hook of the class, from the program in a TorchScript archive."""

    __slots__ = ("program", "state")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.state: Any = None
        self.program: Mapping[str, Any] = {}

    @property
    def is_script(self) -> bool:
        return self.name.startswith(SCRIPT)

    @property
    def is_module(self) -> bool:
        mark = "training" if self.is_script else "_modules"
        return isinstance(self.state, dict) and (mark in self.state or self.is_libtorch)

    @property
    def is_libtorch(self) -> bool:
        """Whether C++'s torch::save() wrote the object, for a module of any class."""
        return self.is_script and self.class_name == "Module" and "training" not in self.state

    @property
    def class_name(self) -> str:
        """The name of the class before compilation to TorchScript."""
        return class_in_program(self.name)

    @property
    def rnn_kind(self) -> str:
        """The class of torch's RNN or cell: LSTM, GRUCell ...; "" if the object is not an RNN."""
        return rnn_kind(self.class_name)

    def build(self, state: Any) -> None:
        """Keep the state if it may have weights. A state without weights may refer to anything in
        the file, and is dropped."""
        packed = isinstance(state, tuple) and self.name == "torch.ScriptObject"
        if packed or self.is_script or (isinstance(state, dict) and "_modules" in state):
            self.state = state

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield the tensors that state_dict() has of a module, then the modules inside."""
        if self.is_script:  # the biases of a quantized cell are in the packed weights too
            doubles = {
                f"bias_{end}" for end in ("ih", "hh") if f"_packed_weight_{end}" in self.state
            }
            yield from (pair for pair in self.state.items() if pair[0] not in doubles)
            return
        hidden = self.state.get("_non_persistent_buffers_set")
        omitted = hidden.texts if isinstance(hidden, PickledSet) else ()
        for kind in ("_parameters", "_buffers", "_modules"):
            entries = self.state.get(kind)
            for key, value in entries.items() if isinstance(entries, dict) else ():
                if kind != "_buffers" or key not in omitted:
                    yield key, value
        yield from ((key, self.state[key]) for key in _PACKED if key in self.state)


class ModuleWalk:
    """A walk through the modules of a file. classes: path -> class of each visited module. names:
    the names of the modules' tensors."""

    def __init__(self, file: InputFile) -> None:
        self.classes: dict[str, ModuleClass] = {}
        self.names: set[str] = set()
        self._file, self._modules = file, list[PickledObject]()

    def leaves(self, leaves: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Yield the leaves of containers; replace each module by the tensors in the module."""
        for name, value in leaves:
            num_before = len(self.names)
            if isinstance(value, PickledObject) and value.is_module:
                yield from self._leaves_of("" if name == ALONE else name, value, 0)
            if len(self.names) == num_before:  # a leaf, or a module without tensors
                yield name, value

    def forget(self) -> None:
        """Free the states of the modules, which may refer back to the modules."""
        for module in self._modules:
            module.state = None

    def _leaves_of(self, path: str, module: PickledObject, depth: int) -> Iterator[tuple[str, Any]]:
        if depth > MOST_DEEP:
            raise FileError(f"{self._file}: modules nested {depth} deep: refused")
        self._modules.append(module)
        attributes = torch_attributes(module.state, module.program)
        kind = module.rnn_kind
        hook = _forward_hook(module.state) or module.program.get("hook", "")
        # an instance may replace forward()
        is_torch = bool(kind) and "forward" not in module.state and not hook
        fields = torch_fields(kind, attributes) if kind or "mode" in attributes else {}
        axes = attributes.get("batch_first") if fields else None
        batch_first = axes if isinstance(axes, bool) else None
        if not module.is_libtorch:
            self.classes[path] = ModuleClass(module.class_name, is_torch, fields, batch_first, hook)
        for key, value in module.items():
            self._file.budget.charge("steps", _VISIT_STEPS)
            if type(key) is not str or value is None:
                continue
            if len(path) + len(key) > LONGEST:
                raise FileError(
                    f"{self._file}: a name of {len(path) + len(key)} characters: refused"
                )
            name = f"{path}.{key}" if path else key
            if isinstance(value, PickledObject) and value.is_module:
                yield from self._leaves_of(name, value, depth + 1)
            elif not module.is_script or _is_tensor(value):
                self._file.budget.charge("steps", _TENSOR_STEPS)
                self._file.budget.charge("names", len(path))
                self.names.add(name)
                yield name, value


def _forward_hook(state: Mapping[str, Any]) -> str:
    """Return the name of a forward hook in the state of a module, "" without a hook that may change
    an output."""
    for key in ("_forward_pre_hooks", "_forward_hooks"):
        hooks = state.get(key)
        for hook in hooks.values() if isinstance(hooks, dict) else ():
            name = hook.name if isinstance(hook, UnreadObject) else type(hook).__name__
            observes = name.startswith(OBSERVER_HOOKS) and _has_observer(state)
            if not observes and not is_hook_of_weights(name):
                return name
    return ""


def _has_observer(state: Mapping[str, Any]) -> bool:
    """Return whether the module that observes outputs is an observer, or a fake quantization that
    is switched off."""
    modules = state.get("_modules")
    observer = modules.get("activation_post_process") if isinstance(modules, dict) else None
    if not isinstance(observer, PickledObject):
        return False
    buffers = observer.state.get("_buffers") if isinstance(observer.state, dict) else None
    enabled = buffers.get("fake_quant_enabled") if isinstance(buffers, dict) else None
    if enabled is None:
        return observer.name.startswith(OBSERVERS)
    return hasattr(enabled, "bits") and not enabled.bits().any()


def _is_tensor(value: Any) -> bool:
    """Return whether an attribute of a program is a tensor or packed weights."""
    if isinstance(value, UnreadObject):
        return isinstance(value, PickledObject) and value.state is not None
    return not isinstance(value, (dict, list, tuple, str, int, float))


# ------------------------------------------------------------------------------------- TorchScript


def read_programs(
    file: InputFile, archive: zipfile.ZipFile, root: str, objects: Iterable[PickledObject]
) -> None:
    """Set `program` of each object that is an RNN, from the text of the program in an archive."""
    members = set(archive.namelist())
    programs: dict[str, dict[str, Any]] = {}
    texts: dict[str, str] = {}
    for instance in objects:
        if not instance.is_script or not instance.rnn_kind:
            continue
        module, _, kind = instance.name.rpartition(".")
        member = f"{root}code/{module.replace('.', '/')}.py"
        if member in members and member not in texts:
            file.budget.charge("metadata", archive.getinfo(member).file_size)
            texts[member] = "\n" + read_member(archive, member).decode("utf-8", "replace")
        if instance.name not in programs:
            programs[instance.name] = _read_class(texts.get(member, ""), kind)
        instance.program = programs[instance.name]


def _read_class(text: str, name: str) -> dict[str, Any]:
    at = text.find(f"\nclass {name}(Module):\n")
    if at < 0:
        return {}
    end = text.find("\nclass ", at + 1)
    body = text[at : end if end >= 0 else None]
    return program_settings(body) | {"hook": hook_in_program(body)}


# -------------------------------------------------------------------------------- quantized modules

_NAME = re.compile(
    r"((?:.*\.)?)(?:_all_weight_values\.(\d{1,4})\.param|_packed_weight_(ih|hh))", re.DOTALL
)
_PACKINGS = {
    "quantized_dynamic": "was dequantized to float32; the module also rounds its inputs to 8 bits,"
    " which these weights do not reproduce",
    "quantized_fp16": "was rounded to float16, and is read as float32",
}
_ROLES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_UNDECIDED = "packed weights of two layers or two directions"


class QuantizedTensor(UnreadObject):
    """A tensor of integers with a scale. integers: a tensor of the file. scheme: (name, scale, zero
    point), or (name, scales, zero points, axis) with tensors along an axis."""

    __slots__ = ("integers", "scheme")

    def __init__(self, integers: Any, scheme: Any) -> None:
        super().__init__("a quantized tensor")
        self.integers, self.scheme = integers, scheme

    def dequantized(self) -> FileTensor | None:
        """Return the tensor of floats, None if the scheme is not supported."""
        shape, (_, scale, zero, *axis) = self.integers.shape, self.scheme
        if axis:
            fits = type(axis[0]) is int and 0 <= axis[0] < len(shape)
            shapes = [getattr(parameter, "shape", None) for parameter in (scale, zero)]
            is_supported = fits and shapes == [(shape[axis[0]],)] * 2
        else:
            is_supported = type(scale) is float and type(zero) is int and abs(zero) < 256
        if not is_supported or self.integers.dtype not in ("qint8", "quint8"):
            return None

        def floats() -> np.ndarray:  # (q - zero) scale: the difference is exact, one rounding
            numbers, factors = np.array(self.integers.bits(), np.float32, order="C"), (zero, scale)
            if axis:
                broadcast = [-1 if k == axis[0] else 1 for k in range(numbers.ndim)]
                factors = tuple(factor.bits().reshape(broadcast) for factor in factors)
            with np.errstate(all="ignore"):
                numbers -= np.asarray(factors[0], np.float32)
                numbers *= np.asarray(factors[1], np.float32)
            return numbers

        return FileTensor("float32", shape, floats)


def unpack_weights(
    leaves: Iterable[tuple[str, Any]],
    classes: Mapping[str, ModuleClass],
    notes: list[str],
    names: set[str],
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a file; replace packed weights by tensors, named as in an RNN of floats.
    classes: the classes of the modules, by path. Add a note for each RNN to notes, and the new
    names to names."""
    rnns: dict[str, dict[int, list[Any]]] = {}
    unpacked: dict[str, Any] = {}
    new_notes: dict[str, None] = {}
    for name, value in leaves:
        match = _NAME.fullmatch(name) if isinstance(value, PickledObject) else None
        kind, tensors = "", list[Any]()
        if match:
            kind, tensors = (_unpack_linear if match[3] else _unpack_cell)(value)
        if not match or not tensors:
            yield name, value
            continue
        new_notes[f"{match[1].rstrip('.') or 'the RNN'} {_PACKINGS[kind]}"] = None
        if match[3]:
            ends = f"weight_{match[3]}", f"bias_{match[3]}"
            unpacked |= {match[1] + end: tensor for end, tensor in zip(ends, tensors, strict=True)}
        else:
            rnns.setdefault(match[1], {})[int(match[2])] = tensors
    for prefix, parts in rnns.items():
        module = classes.get(prefix.rstrip("."))
        bidirectional = module.fields.get("bidirectional") if module else None
        if bidirectional is None:  # shapes decide, unless both one and two directions fit
            hidden_size = parts[min(parts)][1].shape[-1]
            widths = [parts[k][0].shape[-1] for k in sorted(parts)]
            fits_one = all(n == hidden_size for n in widths[1:])
            deeper = [2 * hidden_size] * (len(widths) - 2)
            fits_two = len(widths) % 2 == 0 and widths == [*widths[:1] * 2, *deeper]
            bidirectional = None if fits_one and fits_two else fits_two
        undecided = [UnreadObject(_UNDECIDED)] * 4
        for k in sorted(parts):
            layer, backward = divmod(k, 2) if bidirectional else (k, 0)
            end = f"l{layer}" + "_reverse" * backward
            layer_tensors = undecided if bidirectional is None else parts[k]
            for role, tensor in zip(_ROLES, layer_tensors, strict=True):
                unpacked[f"{prefix}{role}_{end}"] = tensor
    notes += new_notes
    names.update(unpacked)
    yield from ((name, tensor) for name, tensor in unpacked.items() if tensor is not None)


def _packed_state(packed_weights: Any) -> tuple[Any, ...]:
    state = packed_weights.state if isinstance(packed_weights, PickledObject) else ()
    if isinstance(state, tuple) and state and packed_weights.name == "torch.ScriptObject":
        state = state[0]  # the second element is the name of the class in TorchScript
    return state if isinstance(state, tuple) else ()


def _unpack_linear(packed_weights: Any) -> tuple[str, list[Any]]:
    """Return the packing of a linear layer and [weight, bias]; [] for anything else."""
    state = _packed_state(packed_weights)
    if len(state) != 2:
        return "", []
    kind, (weight, bias) = "quantized_fp16", state
    if isinstance(weight, QuantizedTensor):
        kind, weight = "quantized_dynamic", weight.dequantized()
    return (kind, [weight, bias]) if len(getattr(weight, "shape", ())) == 2 else ("", [])


def _unpack_cell(packed_weights: Any) -> tuple[str, list[Any]]:
    """Return the packing of a layer of an RNN and [W, R, bW, bR]; [] for anything else."""
    state = _packed_state(packed_weights)
    if len(state) != 5 or not isinstance(state[0], str) or state[0] not in _PACKINGS:
        return "", []
    kind, biases, _, _, layers = state
    linears = [_unpack_linear(layer)[1] for layer in layers] if isinstance(layers, list) else []
    if [len(linear) for linear in linears] != [2, 2]:
        return "", []
    if not isinstance(biases, list) or len(biases) != 2:
        biases = [bias for _, bias in linears]
    return kind, [linears[0][0], linears[1][0], *biases]

"""Whole modules in a pickle, of torch.save(model) or TorchScript: the tensors that state_dict()
would have, by its names, and what torch's RNNs among the modules say about themselves.

Dynamically quantized RNNs have packed weights, which become the tensors of an RNN of floats: one
object per layer and direction, a cell has two. Their states are those of
aten/src/ATen/native/RNN.cpp (torch 2.13).
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
from rnnlayout._sources.torch_modules import torch_attributes, torch_fields

SCRIPT = "__torch__."  # the classes of TorchScript
_MANGLED = re.compile(r"___torch_mangle_\d+\.")
_RNN = re.compile(
    r"torch\.(?:nn\.modules\.rnn\.|nn\.utils\.parametrize\.Parametrized"
    r"|(?:ao\.)?nn\.quant\w+(?:\.dynamic)?\.modules\.rnn\.)((?:LSTM|GRU|RNN)(?:Cell)?)"
)
_PACKED = ("param", "_packed_weight_ih", "_packed_weight_hh")  # attributes of quantized modules
# Of the budget, for what a module has: one that is used twice is visited twice.
_VISIT_STEPS, _TENSOR_STEPS = 16, 80


class PickledObject(UnreadObject):
    """An object of an unknown class. state: that of a module, or of packed weights. program: what
    the program in a TorchScript archive says about its class."""

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
        return isinstance(self.state, dict) and mark in self.state

    @property
    def class_name(self) -> str:
        """The name of the class that the program was made from."""
        return _MANGLED.sub("", self.name.removeprefix(SCRIPT))

    @property
    def rnn(self) -> str:
        """Which RNN or cell of torch it is: LSTM, GRUCell ...; "" if it is none."""
        match = _RNN.fullmatch(self.class_name)
        return match[1] if match else ""

    def build(self, state: Any) -> None:
        """Keep the state if it may have weights: others may refer to anything in the file."""
        packed = isinstance(state, tuple) and self.name == "torch.ScriptObject"
        if packed or self.is_script or (isinstance(state, dict) and "_modules" in state):
            self.state = state

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield what a module has: what state_dict() has of it, then its modules."""
        if self.is_script:  # packed weights have the biases of a cell too
            doubles = {
                f"bias_{end}" for end in ("ih", "hh") if f"_packed_weight_{end}" in self.state
            }
            yield from (one for one in self.state.items() if one[0] not in doubles)
            return
        hidden = self.state.get("_non_persistent_buffers_set")
        left_out = hidden.texts if isinstance(hidden, PickledSet) else ()
        for part in ("_parameters", "_buffers", "_modules"):
            found = self.state.get(part)
            for key, value in found.items() if isinstance(found, dict) else ():
                if part != "_buffers" or key not in left_out:
                    yield key, value
        yield from ((key, self.state[key]) for key in _PACKED if key in self.state)


class ModuleWalk:
    """Walks through the modules of a file. classes: the class of each module that it met by its
    path. names: those of their tensors."""

    def __init__(self, file: InputFile) -> None:
        self.classes: dict[str, ModuleClass] = {}
        self.names: set[str] = set()
        self._file, self._seen = file, list[PickledObject]()

    def leaves(self, leaves: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Yield the leaves of containers, and in the place of a module its tensors."""
        for name, value in leaves:
            met = len(self.names)
            if isinstance(value, PickledObject) and value.is_module:
                yield from self._leaves_of("" if name == ALONE else name, value, 0)
            if len(self.names) == met:  # a leaf, or a module without tensors
                yield name, value

    def forget(self) -> None:
        """Free what the modules have, which may refer to them."""
        for module in self._seen:
            module.state = None

    def _leaves_of(self, path: str, module: PickledObject, depth: int) -> Iterator[tuple[str, Any]]:
        if depth > MOST_DEEP:
            raise FileError(f"{self._file}: modules nested {depth} deep: refused")
        self._seen.append(module)
        said = torch_attributes(module.state, module.program)
        is_torch = bool(module.rnn) and "forward" not in module.state  # set on it: not its class's
        fields = torch_fields(module.rnn, said) if module.rnn or "mode" in said else {}
        axes = said.get("batch_first") if fields else None
        batch_first = axes if isinstance(axes, bool) else None
        self.classes[path] = ModuleClass(module.class_name, is_torch, fields, batch_first)
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


def _is_tensor(value: Any) -> bool:
    """Is an attribute of a program a tensor, or packed weights?"""
    if isinstance(value, UnreadObject):
        return isinstance(value, PickledObject) and value.state is not None
    return not isinstance(value, (dict, list, tuple, str, int, float))


# ------------------------------------------------------------------------------------- TorchScript

# The program in an archive is read as text. A scripted module has constants there, as `batch_first
# : Final[bool] = True`; a traced one has only the call of its RNN, whose last arguments are the
# options.
_CONSTANT = re.compile(r'^  (\w{1,20}) : Final\[\w{1,20}\] = (\w{1,20}|"\w{1,20}")$', re.MULTILINE)
_CALL = re.compile(r"torch\.(lstm|gru|rnn_tanh|rnn_relu)\(([^()\n]*)\)")
_BOOLS = {"True": True, "False": False}


def read_programs(
    file: InputFile, archive: zipfile.ZipFile, root: str, objects: Iterable[PickledObject]
) -> None:
    """Set what the program in an archive says about the classes of objects that are RNNs."""
    members = set(archive.namelist())
    told: dict[str, dict[str, Any]] = {}
    texts: dict[str, str] = {}
    for one in objects:
        if not one.is_script or not one.rnn:
            continue
        module, _, kind = one.name.rpartition(".")
        member = f"{root}code/{module.replace('.', '/')}.py"
        if member in members and member not in texts:
            file.budget.charge("metadata", archive.getinfo(member).file_size)
            texts[member] = "\n" + read_member(archive, member).decode("utf-8", "replace")
        if one.name not in told:
            told[one.name] = _read_class(texts.get(member, ""), kind)
        one.program = told[one.name]


def _read_class(text: str, name: str) -> dict[str, Any]:
    at = text.find(f"\nclass {name}(Module):\n")
    if at < 0:
        return {}
    end = text.find("\nclass ", at + 1)
    body = text[at : end if end >= 0 else None]
    told: dict[str, Any] = {}
    for match in _CALL.finditer(body):  # with a packed sequence it has no batch_first
        told["mode"], given = match[1].upper(), match[2].split(", ")
        if len(given) >= 8 and given[-6] in _BOOLS and given[-1] in _BOOLS:
            told["batch_first"] = _BOOLS[given[-1]]
    for key, value in _CONSTANT.findall(body):
        number = int(value) if value.isdigit() else value.strip('"')
        told[key] = _BOOLS.get(value, number)
    return told


# -------------------------------------------------------------------------------- quantized modules

_NAME = re.compile(
    r"((?:.*\.)?)(?:_all_weight_values\.(\d{1,4})\.param|_packed_weight_(ih|hh))", re.DOTALL
)
_TOLD = {
    "quantized_dynamic": "was dequantized to float32; the module also rounds its inputs to 8 bits,"
    " which these weights do not reproduce",
    "quantized_fp16": "was rounded to float16, and is read as float32",
}
_ROLES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_UNDECIDED = "packed weights of two layers or two directions"


class QuantizedTensor(UnreadObject):
    """A tensor of integers with a scale. integers: a tensor of the file. scheme: the name of the
    scheme, then scale and zero point: numbers, or tensors along an axis, which follows."""

    __slots__ = ("integers", "scheme")

    def __init__(self, integers: Any, scheme: Any) -> None:
        super().__init__("torch._utils._rebuild_qtensor")
        self.integers, self.scheme = integers, scheme

    def dequantized(self) -> FileTensor | None:
        """Return the tensor of floats, None if it is not known how torch computes it."""
        shape, (_, scale, zero, *axis) = self.integers.shape, self.scheme
        if axis:
            fits = type(axis[0]) is int and 0 <= axis[0] < len(shape)
            along = [getattr(one, "shape", None) for one in (scale, zero)]
            known = fits and along == [(shape[axis[0]],)] * 2
        else:
            known = type(scale) is float and type(zero) is int and abs(zero) < 256
        if not known or self.integers.dtype not in ("qint8", "quint8"):
            return None

        def floats() -> np.ndarray:  # (q - zero) scale: the difference is exact, one rounding
            numbers, factors = np.array(self.integers.bits(), np.float32, order="C"), (zero, scale)
            if axis:
                along = [-1 if k == axis[0] else 1 for k in range(numbers.ndim)]
                factors = tuple(one.bits().reshape(along) for one in factors)
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
    """Yield the leaves of a file with packed weights as tensors, named as in an RNN of floats.
    classes: of the modules by their paths. Adds a note for each RNN, and the new names to names."""
    rnns: dict[str, dict[int, list[Any]]] = {}
    made: dict[str, Any] = {}
    told: dict[str, None] = {}
    for name, value in leaves:
        match = _NAME.fullmatch(name) if isinstance(value, PickledObject) else None
        kind, tensors = "", list[Any]()
        if match:
            kind, tensors = (_unpack_linear if match[3] else _unpack_cell)(value)
        if not match or not tensors:
            yield name, value
            continue
        told[f"{match[1].rstrip('.') or 'the RNN'} {_TOLD[kind]}"] = None
        if match[3]:
            ends = f"weight_{match[3]}", f"bias_{match[3]}"
            made |= {match[1] + end: one for end, one in zip(ends, tensors, strict=True)}
        else:
            rnns.setdefault(match[1], {})[int(match[2])] = tensors
    for prefix, parts in rnns.items():
        module = classes.get(prefix.rstrip("."))
        both = module.fields.get("bidirectional") if module else None
        if both is None:  # shapes show it, unless two directions may as well be two layers
            hidden = parts[min(parts)][1].shape[-1]
            widths = [parts[k][0].shape[-1] for k in sorted(parts)]
            one = all(n == hidden for n in widths[1:])
            rest = [2 * hidden] * (len(widths) - 2)
            two = len(widths) % 2 == 0 and widths == [*widths[:1] * 2, *rest]
            both = None if one and two else two
        for k in sorted(parts):
            layer, backward = divmod(k, 2) if both else (k, 0)
            end = f"l{layer}" + "_reverse" * backward
            found = parts[k] if both is not None else [UnreadObject(_UNDECIDED)] * 4
            made |= {f"{prefix}{role}_{end}": x for role, x in zip(_ROLES, found, strict=True)}
    notes += told
    names.update(made)
    yield from ((name, one) for name, one in made.items() if one is not None)


def _packed_state(value: Any) -> tuple[Any, ...]:
    state = value.state if isinstance(value, PickledObject) else ()
    if isinstance(state, tuple) and state and value.name == "torch.ScriptObject":
        state = state[0]  # the name of its class in TorchScript follows
    return state if isinstance(state, tuple) else ()


def _unpack_linear(value: Any) -> tuple[str, list[Any]]:
    """Return how a linear layer is packed, its weight and bias; [] if it is not one."""
    state = _packed_state(value)
    if len(state) != 2:
        return "", []
    kind, (weight, bias) = "quantized_fp16", state
    if isinstance(weight, QuantizedTensor):
        kind, weight = "quantized_dynamic", weight.dequantized()
    return (kind, [weight, bias]) if len(getattr(weight, "shape", ())) == 2 else ("", [])


def _unpack_cell(value: Any) -> tuple[str, list[Any]]:
    """Return how one layer of an RNN is packed, its W, R, bW and bR; [] if it is not one."""
    state = _packed_state(value)
    if len(state) != 5 or not isinstance(state[0], str) or state[0] not in _TOLD:
        return "", []
    kind, biases, _, _, layers = state
    found = [_unpack_linear(one)[1] for one in layers] if isinstance(layers, list) else []
    if [len(one) for one in found] != [2, 2]:
        return "", []
    if not isinstance(biases, list) or len(biases) != 2:
        biases = [bias for _, bias in found]
    return kind, [found[0][0], found[1][0], *biases]

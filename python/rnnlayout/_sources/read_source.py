"""Read any source as the arrays of one RNN, in the order of the layout.

A source is, tried in this order: a result of load() with one RNN, or nested dicts (read_tensors);
a path, which is an error; a module, layer or model with one RNN, described by the framework's
classes (frameworks); a Weights or a result of convert(), with spec and layout; a dict of named
tensors, or a list of arrays in a named layout (read_tensors); a flat vector with a spec. For all
sources of tensors, `fitting` finds the RNNs that fit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from rnnlayout import _native
from rnnlayout._model.dtypes import Bits, as_carrier, take_bits
from rnnlayout._model.errors import Ask, load_in_python
from rnnlayout._model.kinds import check_kind_of
from rnnlayout._model.layout import CUDNN, Layout, layout_in_code
from rnnlayout._model.reading_options import TensorOptions, takes_options
from rnnlayout._model.spec import Spec, differing_fields
from rnnlayout._model.stack import stack_layers
from rnnlayout._model.tensors import Tensors
from rnnlayout._model.weights import Weights, changed_weights, checked_weights
from rnnlayout._native import HAS_BIAS, LayoutError, SpecError

from . import frameworks, mismatch
from .candidates import is_one_vector
from .read_tensors import only_rnn, read_dict, read_tensors
from .reading import Reading, check_fields, make_reading

_LONGEST_PATH = 4096  # bytes, PATH_MAX of Linux


def has_names(source: Any) -> bool:
    """Is the source a dict, so that a prefix can choose tensors by name?"""
    return isinstance(source, Mapping) and not isinstance(source, Weights)


def read_source(source: Any, reading: Reading) -> Weights:
    """Return the RNN of a source of any kind, checked against the arguments of the caller."""
    original, source = source, only_rnn(source, reading.prefix)
    if isinstance(source, bytes) and (len(source) > _LONGEST_PATH or 0 in source):
        text = f"found {len(source)} bytes"
        if reading.spec and len(source) == reading.spec.nbytes:
            raise LayoutError(f"{text}: pass np.frombuffer(source, {reading.spec.dtype!r})")
        text += ", need an array: pass np.frombuffer(source, dtype)"
        raise LayoutError(text, *(() if reading.spec else (" with ", Ask("spec"))))
    if isinstance(source, (str, bytes, os.PathLike)):
        path = os.fsdecode(source)
        arguments = {name: getattr(reading, name) for name in ("spec", "layout", "prefix")}
        load = load_in_python(path, arguments)
        raise LayoutError(f"{path!r} is a path, need weights: pass {load}")
    if isinstance(source, Spec):
        raise SpecError(
            "a Spec describes an RNN and has no weights, need a module, a dict of arrays or what"
            " load() returns; if the weights do not record the Spec, pass also ",
            Ask("spec", source),
        )
    _check_kind(source, reading)
    if framework := frameworks.framework_of(source):
        module = frameworks.rnn_of_model(
            source, framework, reading.prefix if source is original else ""
        )
        rnn = _read_module(module, framework, replace(reading, prefix=""))
        settings = {} if module is source else framework.around(source, module)
        return changed_weights(rnn, config=settings | rnn.config) if settings else rnn
    if reading.prefix and source is original and not has_names(source):
        raise LayoutError(
            f"prefix {reading.prefix!r} chooses tensors of a dict by their names, found a"
            f" {type(source).__name__}: omit ",
            Ask("prefix", None),
        )
    if isinstance(source, Weights):
        return _read_again(source, reading)
    if isinstance(source, Tensors):
        return _read_result(source, reading)
    if isinstance(source, Mapping):
        return read_dict(source, reading)
    if isinstance(source, (list, tuple)):
        return _read_list(list(source), reading)
    if isinstance(getattr(source, "params", None), Mapping):  # Flax's TrainState
        raise LayoutError(f"a {type(source).__name__} is more than weights: pass its .params")
    if isinstance(getattr(source, "state_dict", None), Mapping):  # torch.export
        raise LayoutError(f"{type(source).__name__} is a program: pass its .state_dict")
    return _read_flat(source, reading)


@takes_options(TensorOptions)
def infer_spec(
    tensors: Any, layout: str | Layout | None = None, **options: Unpack[TensorOptions]
) -> Spec:
    """Return the Spec of an RNN, inferred from the names and shapes of its tensors.

    tensors: anything that pack() accepts, except a flat vector.
    Other arguments: how to read the tensors, see ReadingOptions.

    Raises SpecError if the tensors fit several RNNs; the message names the missing argument. Raises
    LayoutError if the tensors fit no RNN; the message names the cause.

        >>> import numpy as np
        >>> infer_spec({"kernel": np.ones((2, 12)), "recurrent_kernel": np.ones((3, 12)),
        ...             "bias": np.ones(12)}, "keras").hidden_size
        3
    """
    if getattr(tensors, "ndim", 0) == 1:
        raise SpecError(
            f"a flat vector of {len(tensors)} elements does not record its RNN: infer_spec() needs"
            " the tensors that it was packed from"
        )
    return read_source(tensors, make_reading(infer_spec, options, layout=layout)).spec


def _read_again(weights: Weights, reading: Reading) -> Weights:
    """Read a Weights, or the stack of layers that were read one by one. The result may be the same
    Weights."""
    _check_contradictions("these Weights are", weights.layout, weights.spec, reading)
    if reading.spec is None:
        return weights
    reading.check_dtype("the Weights", weights.spec.dtype)
    bits = [Bits(array, weights.spec.dtype) for array in weights.arrays]
    source_reading = replace(reading, layout=weights.layout)
    rnn = read_tensors(zip(weights.names, bits, strict=True), None, source_reading)
    return changed_weights(
        rnn,
        config=weights.config,
        batch_first=weights.batch_first,
        rounded=weights.rounded,
        assumed=weights.assumed,
    )


def _check_kind(source: Any, reading: Reading) -> None:
    """Raise LayoutError if the source is of another kind than the caller says: modules and Weights
    record their kind, plain arrays do not."""
    if isinstance(source, Weights | Tensors):
        check_kind_of(source, reading.kind)
    elif reading.kind != "weights" and frameworks.framework_of(source) not in (
        None,
        frameworks.JAX,  # where the gradient of a module is a module of the same class
    ):
        raise LayoutError(
            f"a {type(source).__name__} has weights, need arrays of kind {reading.kind!r}: pass a"
            " dict with the names or a list in the order of its weights, as {name: p.grad for"
            " name, p in module.named_parameters()} of torch"
        )


def _read_result(source: Tensors, reading: Reading) -> Weights:
    """Read a result of convert(), with spec and layout. The user may have changed the dict."""
    _check_contradictions("these tensors are", source.layout, source.spec, reading)
    source_reading = replace(reading, spec=reading.spec or source.spec, layout=source.layout)
    try:
        rnn = read_dict(source, source_reading)
    except LayoutError as error:
        raise LayoutError(
            error,
            f"; convert() or unpack() made these tensors for {source.spec}: if they were changed"
            " since, pass dict(tensors) to have the RNN inferred from them",
        ) from None
    return changed_weights(rnn, config=source.config, batch_first=source.batch_first)


def _read_module(module: Any, framework: frameworks.Framework, reading: Reading) -> Weights:
    """Read a module or layer, with the description by its framework's classes."""
    description = framework.describe(module)
    layout = Layout(description.layout)
    if description.tensors is not None:
        fields = {**reading.fields, **description.fields}
        rnn = read_dict(description.tensors, Reading(None, layout, fields))
    else:
        module_reading = Reading(None, layout, description.fields)
        if "input_size" in description.fields:
            spec, _ = description.spec_and_names()
            # with dtype=, because the arrays may have another dtype than the spec
            module_reading = Reading(spec, layout, dtype=spec.dtype)
        rnn = read_tensors(framework.arrays(module, description), None, module_reading)
    reading.check_dtype(rnn.names[0], rnn.spec.dtype)
    rnn = changed_weights(rnn, config=description.config, batch_first=description.batch_first)
    if method := frameworks.overridden(module, framework):
        base = rnn.spec.cell.partition("_")[0].upper()
        if error := mismatch.other_cell(type(module).__name__, base):
            raise error
        arrays, layout = framework.expression(module, rnn.names), rnn.layout
        repair = f"rl.Weights({arrays}, rl.{rnn.spec!r}, layout={layout_in_code(layout)})"
        if rnn.config:
            repair += f", set its .config = {rnn.config!r}"
        if rnn.batch_first:
            repair += ", and run it with batch_first=True"
        raise LayoutError(
            f"{method}, so it may compute something else; if it computes the same, pass {repair}"
        )
    _check_contradictions(f"{type(module).__name__} is", rnn.layout, rnn.spec, reading)
    rnn = changed_weights(rnn, kind=reading.kind)
    if reading.spec is None:
        return rnn
    return changed_weights(rnn, spec=reading.spec.replace(dtype=rnn.spec.dtype))


def _check_contradictions(subject: str, layout: Layout, spec: Spec, reading: Reading) -> None:
    """Raise an error if arguments of the caller contradict a source with spec and layout. subject:
    the source and a verb, for messages."""
    if reading.layout not in (None, layout):
        text = f"{subject} in layout {layout}, not {reading.layout}: pass "
        raise LayoutError(text, Ask("layout", layout))
    if reading.spec is not None and (different := differing_fields(reading.spec, spec)):
        raise SpecError(f"the spec and the source differ: {different}: omit ", Ask("spec", None))
    check_fields(reading.fields, spec, "the source")


def _read_list(source: list[Any], reading: Reading) -> Weights:
    if not source:
        raise LayoutError("the list of tensors is empty")
    if all(map(frameworks.framework_of, source)):
        layers = [read_source(module, Reading(kind=reading.kind)) for module in source]
        return _read_again(stack_layers(layers), reading)
    if any(isinstance(part, Mapping) for part in source):
        raise LayoutError(
            "a list of dicts or Weights is not one RNN: rl.stack([...]) makes one of them"
        )
    if all(isinstance(part, (list, tuple)) for part in source):
        source = [array for layer in source for array in layer]
    if reading.layout is None:
        raise LayoutError(
            f"a list of {len(source)} arrays does not record its layout: pass ",
            Ask("layout", "keras"),
            " (of get_weights()), 'torch', 'onnx' ...",
        )
    if reading.layout.name == "cudnn":
        is_vector = len(source) == 1 and getattr(source[0], "ndim", 0) == 1
        return _read_flat(source[0] if is_vector else source, reading)
    return read_tensors([(f"array {k}", array) for k, array in enumerate(source)], None, reading)


def _read_flat(source: Any, reading: Reading) -> Weights:
    layout, spec = reading.layout or CUDNN, reading.spec
    if layout.name != "cudnn" and is_one_vector(layout):
        return _read_list([source], reading)
    if layout.name != "cudnn":
        raise LayoutError(
            f"{layout} is a dict or list of tensors, found one {type(source).__name__}"
        )
    if spec is not None and isinstance(source, np.ndarray) and source.dtype in ("u1", "i1"):
        text = f"weight space: a buffer of {source.size} bytes, need {spec.num_params} elements"
        advice = f": pass w.view({spec.dtype!r})" if source.size == spec.nbytes else ""
        raise LayoutError(f"{text} for {spec}{advice}")
    array, dtype = take_bits(source, "weight space")
    if spec is None:
        raise SpecError(
            f"a flat vector of {array.size} elements does not record its RNN: pass ",
            Ask("spec"),
            ", which describes it",
        )
    reading.check_dtype("weight space", dtype)
    if dtype != spec.dtype:
        spec = spec.replace(dtype=dtype)
    _native.check(spec, layout)
    if array.ndim != 1:
        raise LayoutError(
            f"weight space: shape {array.shape}, expected ({spec.num_params},): one dimension"
            " (cuDNN's own wDesc is (n, 1, 1): pass w.reshape(-1))"
        )
    if array.size != spec.num_params:
        raise mismatch.wrong_length(array.size, spec)  # spec has the dtype of the array
    return checked_weights(
        spec, layout, HAS_BIAS, ["weight_space"], [as_carrier(array)], kind=reading.kind
    )

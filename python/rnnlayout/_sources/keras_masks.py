"""Masks in the config of a model: which recurrent layers compute behind Masking or an Embedding.

A mask is a text, as in Weights.config: the call of the layer that makes the mask, or UNDECIDED and
the reason. Configs show the layers that call each other, and which layers pass a mask on is known
of Keras's own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .keras_tree import (
    MASK,
    UNDECIDED,
    Node,
    any_config,
    child_layers,
    class_of,
    is_recurrent,
    join_call_masks,
    layer_name,
    mask_made_by,
    mask_settings,
    nodes_inside,
)

# Layers whose output has the mask of the input (supports_masking in Keras 3.15 and tf_keras 2.21).
_PASS_MASKS = frozenset(
    [
        "Activation",
        "ActivityRegularization",
        "Add",
        "AlphaDropout",
        "Average",
        "BatchNormalization",
        "Concatenate",
        "Dense",
        "Dropout",
        "ELU",
        "GaussianDropout",
        "GaussianNoise",
        "GroupNormalization",
        "InputLayer",
        "LayerNormalization",
        "LeakyReLU",
        "Maximum",
        "Minimum",
        "Multiply",
        "PReLU",
        "ReLU",
        "Softmax",
        "SpatialDropout1D",
        "Subtract",
        "ThresholdedReLU",
        "UnitNormalization",
    ]
)
# Layers that do so in some versions, or from some of the inputs.
_MAY_PASS_MASKS = frozenset(
    [
        "AdditiveAttention",
        "Attention",
        "GroupQueryAttention",
        "Identity",
        "MultiHeadAttention",
        "Normalization",
        "Rescaling",
    ]
)
_MOST_CALLS = 8  # per layer of a config: a model may be shared, also within a shared model


class _Tensor(NamedTuple):
    """A tensor in the graph of a model: an output of a call of a layer, both by number."""

    layer: str
    call: int
    output: int


_Inputs = Mapping[str, list[_Tensor]]  # of a call: "mask" of the argument mask, "" of all others
_Calls = Mapping[str, Sequence[_Inputs]]  # of each layer of a model


def mark_masks(model: Node) -> None:
    """Write the mask of each recurrent layer of a model into the layer's node, under MASK."""
    _Walk(model).mask_after(model, [None])


def settings_in_model(model: Any, rnn: Any) -> dict[str, Any]:
    """Return the settings, as in Weights.config, that a live model gives to an RNN in it. {} also
    if the model has no config, like a user's subclass."""
    try:
        config = json.loads(model.to_json())
    except Exception:  # of any class: the user's code may raise any error
        return {}
    mark_masks(config)
    nodes = [node for layer, node in _with_nodes(model, config) if layer is rnn]
    if len(nodes) > 1:  # shared by models
        nodes[0][MASK] = join_call_masks(node.get(MASK) for node in nodes)
    return mask_settings(nodes[0]) if nodes else {}


def _with_nodes(layer: Any, node: Node) -> Iterator[tuple[Any, Node]]:
    """Yield each live layer in a layer with its node in the config."""
    yield layer, node
    nodes = {layer_name(child): child for child in child_layers(node)}
    for child in [*getattr(layer, "layers", ()), *filter(None, [getattr(layer, "layer", None)])]:
        if child.name in nodes:
            yield from _with_nodes(child, nodes[child.name])


class _Walk:
    def __init__(self, model: Node) -> None:
        waiting, self._calls_left = [model], 0
        while waiting:
            self._calls_left += _MOST_CALLS
            waiting += [node for _, node in nodes_inside(waiting.pop())]

    def mask_after(self, node: Node, masks: Sequence[str | None]) -> str | None:
        """Mark the recurrent layers in a node that is called with inputs of these masks, and return
        the mask of the output."""
        self._calls_left -= 1
        kind, config, mask = class_of(node), any_config(node), _join_masks(masks)
        if self._calls_left < 0:
            mask = f"{UNDECIDED}the config has many calls of shared models"
        if is_recurrent(node):
            _mark_layer(node, mask)
            inner = any_config(config["layer"]) if kind == "Bidirectional" else config
            return mask if inner.get("return_sequences") else None
        if (layers := child_layers(node)) and self._calls_left >= 0:
            if not isinstance(config.get("layers"), list):  # a wrapper, such as TimeDistributed
                self.mask_after(layers[0], [mask])
                return mask
            calls = _count_from_zero({layer_name(layer): _calls_of(layer) for layer in layers})
            if any(calls.values()):
                return self._mask_after_graph(node, calls, masks)
            for layer in layers:  # of a Sequential
                mask = self.mask_after(layer, [mask])
            return mask
        made = mask_made_by(kind, config)
        if made or mask is None:
            return made
        is_operation = str(node.get("module")).startswith("keras.src.ops")
        if kind in _PASS_MASKS and not is_operation:
            return mask
        if kind and kind not in _MAY_PASS_MASKS:
            return None  # Keras warns that the layer destroys the mask
        label = str(node.get("class_name"))[:40]
        return f"{UNDECIDED}{label} may pass on {mask.removeprefix(UNDECIDED)}"

    def _mask_after_graph(self, model: Node, calls: _Calls, masks: Any) -> str | None:
        """Mark the layers of a Functional model. calls: of each layer, the inputs by argument."""
        config = any_config(model)
        nodes = {layer_name(layer): layer for layer in child_layers(model)}
        known: dict[tuple[str, int], str | None] = {}
        needs: dict[tuple[str, int], set[tuple[str, int]]] = {}
        readers: dict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)
        for name, layer_calls in calls.items():
            for k, inputs in enumerate(layer_calls):
                needs[name, k] = {t[:2] for tensors in inputs.values() for t in tensors}
                for source in needs[name, k]:
                    readers[source].append((name, k))
        ready = [tensor[:2] for tensor in _tensors_in(config.get("input_layers"))]
        known |= zip(ready, [*masks, *[None] * len(ready)], strict=False)
        while ready:
            done = ready.pop()
            for reader in readers[done]:
                needs[reader].discard(done)
                if needs[reader] or reader in known:
                    continue
                layer = nodes[reader[0]]
                known[reader] = self.mask_after(layer, _masks_read(calls, reader, nodes, known))
                ready.append(reader)
        outputs = [known.get(t[:2]) for t in _tensors_in(config.get("output_layers"))]
        return _join_masks(outputs)


def _masks_read(
    calls: _Calls,
    reader: tuple[str, int],
    nodes: dict[str, Node],
    known: dict[tuple[str, int], str | None],
) -> list[str | None]:
    """Return the masks of the inputs of a call. Of a recurrent layer only x and mask= count, and
    the states that a recurrent layer returns have no mask."""
    name, k = reader
    inputs = calls[name][k]
    tensors = inputs.get("", [])[: 1 if is_recurrent(nodes[name]) else None]
    masks = [
        None if t.output and t.layer in nodes and is_recurrent(nodes[t.layer]) else known[t[:2]]
        for t in tensors
    ]
    if explicit := inputs.get("mask"):
        maker = nodes.get(explicit[0].layer, {}).get("class_name")
        # Keras 3 writes the mask of x as an argument: the result of Masking or Embedding
        is_of_keras = maker in ("NotEqual", "Any", "LogicalOr", "LogicalAnd")
        if not is_of_keras or _join_masks(masks) is None:
            return [f"{UNDECIDED}the model computes it in {explicit[0].layer!r}"]
    return masks


def _mark_layer(node: Node, mask: str | None) -> None:
    """Add the mask of a call to the node of a recurrent layer, which may be shared."""
    node[MASK] = join_call_masks([node.get(MASK, mask), mask])


def _join_masks(masks: Sequence[str | None]) -> str | None:
    distinct = list(dict.fromkeys(mask for mask in masks if mask is not None))
    if len(distinct) <= 1:
        return distinct[0] if distinct else None
    texts = " and ".join(mask.removeprefix(UNDECIDED) for mask in distinct[:4])
    return f"{UNDECIDED}inputs with {texts}"


def _calls_of(layer: Node) -> list[_Inputs]:
    """Return the calls of a layer: the tensors by argument, "" for all but mask."""
    nodes = layer.get("inbound_nodes")
    calls: list[_Inputs] = []
    for call in nodes if isinstance(nodes, list) else []:
        inputs: dict[str, list[_Tensor]] = defaultdict(list)
        for tensor, argument in _arguments_in(call):
            inputs[argument].append(tensor)
        calls.append(inputs)
    return calls


def _count_from_zero(
    calls: _Calls,
) -> _Calls:
    """Return the calls of a model with calls numbered as in the list. Keras 2 numbers the calls of
    an inner model from 1: call 0 made the model."""
    last: dict[str, int] = defaultdict(int)
    for tensor in _all_tensors(calls):
        last[tensor.layer] = max(last[tensor.layer], tensor.call)
    shift = {
        name: max(0, last[name] + 1 - len(layer_calls))
        for name, layer_calls in calls.items()
        if layer_calls  # inputs have no call
    }
    return {
        name: [
            {
                key: [t._replace(call=t.call - shift.get(t.layer, 0)) for t in tensors]
                for key, tensors in inputs.items()
            }
            for inputs in layer_calls
        ]
        for name, layer_calls in calls.items()
    }


def _all_tensors(calls: _Calls) -> Iterator[_Tensor]:
    for layer_calls in calls.values():
        for inputs in layer_calls:
            for tensors in inputs.values():
                yield from tensors


def _tensors_in(value: Any) -> list[_Tensor]:
    return [tensor for tensor, _ in _arguments_in(value)]


def _arguments_in(value: Any, argument: str = "") -> Iterator[tuple[_Tensor, str]]:
    """Yield the tensors of a call with the argument, "mask" or "". A tensor is ["layer", 0, 0],
    and in Keras 2 further arguments follow; in Keras 3 it is the keras_history of a config."""
    if isinstance(value, dict):
        history = any_config(value).get("keras_history")
        if history is not None:
            yield from _arguments_in(history, argument)
        for key in ("args", "kwargs", "mask", "inputs", "sequences"):
            if key in value:
                yield from _arguments_in(value[key], "mask" if key == "mask" else argument)
    elif isinstance(value, list):
        if [type(part) for part in value[:3]] == [str, int, int]:
            yield _Tensor(*value[:3]), argument
            value = value[3:]
        for part in value:
            yield from _arguments_in(part, argument)

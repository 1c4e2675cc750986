"""Read and write recurrent layers of Keras: the tree of a layer, with directions and cells.

A node is Keras's description of a layer or a model: {"class_name": ..., "config": {...}}, read from
a file or made of a live layer, which is recognized by class. A node is only data: the names in a
node are never looked up, imported or created. Only this Python module interprets configs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rnnlayout._model.config import (
    SETTINGS,
    Config,
    facts_of,
    layer_config,
    unwritten_settings,
    without_neutral,
)
from rnnlayout._model.errors import FileError
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError, LossyError

from . import mismatch
from .self_description import RNNDescription, class_among, class_names

Version = tuple[int, int]  # major and minor version of Keras
Node = dict[str, Any]

CELLS = {
    "LSTM": "lstm",
    "GRU": "gru",
    "SimpleRNN": "rnn_tanh",
    "CuDNNLSTM": "lstm",
    "CuDNNGRU": "gru",
}
SIGMOID_SINCE = (2, 3)  # earlier, hard_sigmoid was the default of an LSTM or GRU
MASK = "mask of the input"  # key of a node that is not Keras's: the mask, see mask_made_by()
UNDECIDED = "undecided: "  # the beginning of a mask that the config does not show
# Settings in the config of a layer.
_FLAGS = [
    key for key, facts in SETTINGS.items() if facts.kind == "flag" and "keras" in facts.layouts
]
_MODULES = ("keras", "tf_keras", "tensorflow")
_CELL_CLASSES = ("LSTMCell", "GRUCell", "SimpleRNNCell")
_CLASSES = (*CELLS, *_CELL_CLASSES, "StackedRNNCells", "RNN", "Bidirectional")
_WEIGHTS = ("kernel", "recurrent_kernel", "bias")
_INSIDE = ("cell", "forward_layer", "backward_layer")
# The keys of a config under which a node has layers, and the keys under which a node has cells.
_LAYERS_INSIDE, CELLS_INSIDE = ("layers", "layer", "backward_layer"), ("cell", "cells")
_MASKS = ("Masking", "Embedding")
_MOST_BEFORE = 1000  # layers between a layer and the layer that makes the mask
_KERAS_2 = ("tf_keras", "keras.engine", "keras.src.engine", "tensorflow.python.keras")


# ------------------------------------------------------------------------------ the tree of a layer


@dataclass(frozen=True)
class RecurrentLayer:
    """A recurrent layer: one of CELLS, an RNN of cells, cells alone, or a Bidirectional.

    path: names of the outer models and wrappers, then the name of the layer. node: the part of the
    config, not a copy. trainable: False if the layer or an outer model or wrapper is frozen.
    """

    path: tuple[str, ...]
    node: Node
    trainable: bool = True

    @property
    def name(self) -> str:
        return "/".join(self.path)

    @property
    def both(self) -> bool:
        """Whether the layer is bidirectional."""
        return class_of(self.node) == "Bidirectional"

    @property
    def cells(self) -> list[Node]:
        """The nodes of the cells in the order of the weights: bottom first, forward first. A cell
        for both directions is in the list twice. A layer without an inner cell counts as the cell.
        Raises FileError if the config is malformed."""
        return [cell for side in self._sides() for cell, _ in _cells_of_layer(side)]

    def descriptions(self, version: Version) -> list[RNNDescription]:
        """Return the description of each layer of the RNN, bottom first; only StackedRNNCells have
        several layers. version: (major, minor) of the Keras that wrote the config. Raises
        LossyError or LayoutError if no layout can represent the layer, FileError if the config is
        malformed."""
        sides = [
            [_describe_cell(*cell, version) for cell in _cells_of_layer(side)]
            for side in self._sides()
        ]
        mask = mask_settings(self.node)
        if not self.both:
            return [replace(layer, config=mask | layer.config) for layer in sides[0]]
        forward, backward = sides
        config = config_of(self.node)
        if len(forward) != 1 or len(backward) != 1:
            raise LossyError(
                f"{config_name(config)!r} has a stack of cells per direction, which reads only"
                " outputs of that direction: no layout can represent it"
            )
        name, mode = config_name(config), config.get("merge_mode", "concat")
        if mode is not None and not isinstance(mode, str):
            raise FileError(f"{name!r}: merge_mode is {short_repr(mode)}, need a name or null")
        backwards = [side[0].config.get("go_backwards") for side in sides]
        # without a backward_layer, Keras makes a layer in the opposite direction
        if config.get("backward_layer") is not None and backwards[0] == backwards[1]:
            raise LayoutError(
                f"both layers of {name!r} go in the same direction, which Keras does not run: set"
                " go_backwards of one of them"
            )
        whole = join_directions(forward[0], backward[0], name, mode)
        settings = {key: v for key, v in whole.config.items() if key != "zero_output_for_mask"}
        return [replace(whole, config=mask | settings)]

    def description(self, version: Version) -> RNNDescription:
        """Return the description of the RNN. Raises LayoutError if the cells are several RNNs, and
        the errors of descriptions()."""
        layers = self.descriptions(version)
        first = layers[0]
        for layer in layers[1:]:
            if differences := layer_differences(first, layer):
                raise LayoutError(
                    f"the cells of {self.name!r} differ: {differences}. They are several RNNs,"
                    " convert each cell on its own"
                )
        return replace(first, fields={**first.fields, "num_layers": len(layers)})

    def _sides(self) -> list[Node]:
        if not self.both:
            return [self.node]
        config = config_of(self.node)
        forward = node_of(config.get("layer"))
        backward = config.get("backward_layer")
        return [forward, forward if backward is None else node_of(backward)]


def kind_of(cell: Node) -> str:
    """Return the class of a cell as the class of a layer with the cell: a key of CELLS if known."""
    return class_of(cell).removesuffix("Cell")


def _cells_of_layer(layer: Node) -> list[tuple[Node, dict[str, Any]]]:
    """Return (cell, settings of the outer layer) pairs for a layer of one direction."""
    if class_of(layer) != "RNN":
        return [(cell, {}) for cell in _cells_of_stack(layer)]
    config = config_of(layer)
    outer_flags = {key: config.get(key, False) for key in _FLAGS}
    cells = _cells_of_stack(node_of(config.get("cell")))
    # go_backwards is a setting of the RNN, not of each cell: an upper cell reads the outputs of the
    # cell below
    return [(cell, layer_config(outer_flags, k, len(cells))) for k, cell in enumerate(cells)]


def _cells_of_stack(cell: Node) -> list[Node]:
    """Return the cells of StackedRNNCells, bottom first; another node as the only cell."""
    if class_of(cell) != "StackedRNNCells":
        return [cell]
    cells = config_of(cell).get("cells")
    if not isinstance(cells, list) or not cells:
        raise FileError("the model's config has StackedRNNCells without a list of cells")
    return [node_of(node) for node in cells]


def _describe_cell(cell: Node, outer_flags: dict[str, Any], version: Version) -> RNNDescription:
    if kind_of(cell) not in CELLS:
        kind, name = short_repr(cell.get("class_name")), config_name(config_of(cell))
        raise LossyError(f"{name!r} is a cell of class {kind}, which no layout can represent")
    description = read_config(kind_of(cell), {**config_of(cell), **outer_flags}, version)
    alone = kind_of(cell) != class_of(cell) and not outer_flags
    return replace(description, batch_first=None) if alone else description


def class_of(node: Node) -> str:
    """Return the class of a layer of Keras; "" for a user's layer, even of the same name."""
    name, registered = node.get("class_name"), node.get("registered_name")
    module = str(node.get("module") or "keras").split(".")[0]
    is_keras = isinstance(name, str) and registered in (None, name) and module in _MODULES
    return str(name) if is_keras else ""


def config_of(node: Node) -> dict[str, Any]:
    """Return a node's config. Raises FileError if the node has no config."""
    config = node.get("config")
    return any_config(node) if isinstance(config, list) else object_of(config)


def any_config(node: Node) -> dict[str, Any]:
    """Return a node's config, {} if the config is missing or malformed."""
    config = node.get("config")
    if isinstance(config, list):  # a Sequential of Keras 1 and early 2: the list of its layers
        config = {"layers": config}
    return config if isinstance(config, dict) else {}


def is_recurrent(node: Node) -> bool:
    """Return whether a node is a recurrent layer of a class that Keras defines."""
    kind = class_of(node)
    if kind == "Bidirectional":
        layer = config_of(node).get("layer")
        return isinstance(layer, dict) and is_recurrent(layer)
    return kind in CELLS or kind == "RNN"


def layer_name(node: Node) -> str:
    """Return the name that the user gave to the layer."""
    name = config_of(node).get("name", node.get("name"))
    return name if isinstance(name, str) and name else str(node.get("class_name")).lower()


def nodes_inside(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield (key of the config, node) of each layer and cell directly in a node."""
    config = any_config(node)
    for key in (*_LAYERS_INSIDE, *CELLS_INSIDE):
        children = config.get(key)
        for child in children if isinstance(children, list) else [children]:
            if isinstance(child, dict):
                yield key, child


def child_layers(node: Node) -> list[Node]:
    """Return the layers of a model, or the layer in a wrapper; [] for other nodes."""
    children = (child for key, child in nodes_inside(node) if key in ("layers", "layer"))
    return [child for child in children if "class_name" in child]


def node_of(value: Any) -> Node:
    node = object_of(value)
    if "class_name" not in node:
        raise FileError("the model's config has a layer without class_name")
    return node


def object_of(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FileError(f"the model's config has a {type(value).__name__}, need an object")
    return value


# ---------------------------------------------------------------- the config of a layer or a cell


def read_config(class_name: str, config: Mapping[str, Any], version: Version) -> RNNDescription:
    """Read the config of a layer (LSTM, GRU, SimpleRNN, CuDNNLSTM, CuDNNGRU) or of a cell.

    class_name: the class of the layer; for a cell, its class without "Cell" at the end.
    version: (major, minor) of the Keras that wrote the config; determines the defaults and the
        meaning of hard_sigmoid.
    Raises LossyError for an activation that no layout has, FileError if the config is malformed.
    """
    units = config.get("units", config.get("output_dim"))  # name in Keras 1
    if not isinstance(units, int) or isinstance(units, bool):
        raise FileError(f"{config_name(config)!r}: units is {units!r}, need a number")
    fields: dict[str, Any] = {
        "cell": CELLS[class_name],
        "bidirectional": False,
        "num_layers": 1,
        "hidden_size": units,
    }
    settings = {key: True for key in _FLAGS if config.get(key)}
    if class_name.startswith("CuDNN"):
        return RNNDescription("keras-cudnn", fields, settings, not config.get("time_major"))
    activation = config.get("activation", "tanh")
    if activation not in ("tanh", "relu"):
        raise LossyError(
            f"{config_name(config)!r} has activation {_activation_name(activation)}, which no other"
            " layout has: need tanh or relu"
        )
    if class_name == "SimpleRNN":
        fields["cell"] = f"rnn_{activation}"
    else:
        fields["activation"] = activation
    fields["bias"] = bool(config.get("use_bias", True))
    if class_name == "GRU":
        # Keras 2 without the field: "before"
        reset_after = config.get("reset_after", version >= (3, 0))
        fields["reset"] = "after" if reset_after else "before"
    if class_name != "SimpleRNN":
        gate = recurrent_activation(config, version)
        if gate == "hard_sigmoid" and version < (3, 0):  # Keras 3 has another function
            gate = "hard_sigmoid_keras2"
        elif gate not in ("sigmoid", "hard_sigmoid"):
            raise LossyError(
                f"{config_name(config)!r} has recurrent_activation {_activation_name(gate)}, need"
                " sigmoid or hard_sigmoid"
            )
        fields["recurrent_activation"] = gate
    return RNNDescription("keras", fields, settings, not config.get("time_major"))


def join_directions(
    forward: RNNDescription, backward: RNNDescription, name: str, merge_mode: Any = "concat"
) -> RNNDescription:
    """Join the two layers of a Bidirectional. Raises LayoutError if the layers differ. The setting
    go_backwards is the forward layer's: then the whole Bidirectional reads x from the end."""
    if differences := layer_differences(forward, backward):
        raise LayoutError(
            f"the two directions of {name!r} differ: {differences}. They are two RNNs, convert"
            " forward_layer and backward_layer each on its own"
        )
    settings = {} if merge_mode == "concat" else {"merge_mode": merge_mode}
    fields = {**forward.fields, "bidirectional": True}
    return replace(forward, fields=fields, config=forward.config | settings)


def layer_differences(a: RNNDescription, b: RNNDescription) -> str:
    """Return a text with the differences between two layers or cells, apart from go_backwards."""
    first, second = (
        {"layout": x.layout, **x.fields, **x.config, "go_backwards": 0} for x in (a, b)
    )
    keys = [key for key in {**first, **second} if first.get(key) != second.get(key)]
    return ", ".join(f"{key} {first.get(key)!r} and {second.get(key)!r}" for key in keys)


def mask_made_by(class_name: str, config: Mapping[str, Any]) -> str | None:
    """Return the mask that a layer of Keras makes, as in Weights.config."""
    if class_name == "Masking":
        return f"Masking(mask_value={config.get('mask_value', 0.0)!r})"
    if class_name == "Embedding" and config.get("mask_zero"):
        return "Embedding(mask_zero=True)"
    return None


def join_call_masks(masks: Iterable[str | None]) -> str | None:
    """Return the mask of a layer from the masks of its calls."""
    distinct = sorted(set(masks), key=str)
    if len(distinct) > 1:
        texts = " in a call, ".join(str(mask).removeprefix(UNDECIDED) for mask in distinct)
        return f"{UNDECIDED}{texts} in another one"
    return distinct[0] if distinct else None


def mask_settings(layer: Node) -> dict[str, Any]:
    """Return the settings, as in Weights.config, that the mask of a layer's input gives to it."""
    if layer.get(MASK) is None:
        return {}
    # of a layer, a setting also where the layout changes; a Bidirectional sets it
    outputs = {} if class_of(layer) == "Bidirectional" else {"zero_output_for_mask": False}
    return {"mask": layer[MASK], **outputs}


def config_name(config: Mapping[str, Any]) -> str:
    return str(config.get("name", "a layer"))


def recurrent_activation(config: Mapping[str, Any], version: Version) -> Any:
    """Return the recurrent activation of an LSTM or GRU, with the name in that version of Keras."""
    default = "sigmoid" if version >= SIGMOID_SINCE else "hard_sigmoid"
    return config.get("recurrent_activation", config.get("inner_activation", default))


def _activation_name(value: Any) -> str:
    """Return the name of an activation in messages. Keras describes a user's function by a dict."""
    if not isinstance(value, Mapping):
        return short_repr(value)
    names = [
        name
        for name in (value.get("config"), value.get("class_name"))
        if isinstance(name, str) and name != "__lambda__"
    ]
    return short_repr(names[0]) if names else "a lambda"


def short_repr(value: Any) -> str:
    """Return a value, cut short, for messages."""
    return repr(value)[:80]


# -------------------------------------------------------------------------------------- live layers


def is_keras_layer(value: Any) -> bool:
    cls = type(value)  # of the class: a torch module is slow to report missing attributes
    return hasattr(cls, "get_weights") and hasattr(cls, "get_config")


def describe_keras_layer(layer: Any) -> RNNDescription:
    if _keras_class(layer) is None:
        raise mismatch.not_recurrent(
            layer, f"an {', '.join(CELLS)}, RNN or Bidirectional layer or a cell of these"
        )
    # A live layer records the fields that files of Keras before 2.3 lack. The hard_sigmoid of Keras
    # 2 is another function.
    version = (2, 3) if class_names(layer, *_KERAS_2) else (3, 0)
    return RecurrentLayer((layer.name,), _layer_node(layer)).description(version)


def keras_arrays(layer: Any, description: RNNDescription) -> list[tuple[str, Any]]:
    cell_ids = {
        id(getattr(part, name, None)) for part in layer_with_cells(layer) for name in _WEIGHTS
    }
    if extra := [getattr(w, "path", w.name) for w in layer.weights if id(w) not in cell_ids]:
        raise mismatch.more_parameters(layer, _keras_class(layer) or "", extra)
    name, weights = getattr(layer, "name", layer), layer.get_weights()
    if not weights:
        raise LayoutError(
            f"{name!r} has no weights yet: build it first (layer.build((None, None, input_size)),"
            " or call it once)"
        )
    return [(f"{name} weight {k}", array) for k, array in enumerate(weights)]


def layer_with_cells(layer: Any) -> Iterator[Any]:
    """Yield a layer, and the layers and cells that the layer runs."""
    yield layer
    parts = [getattr(layer, name, None) for name in _INSIDE]
    for part in filter(is_keras_layer, [*parts, *getattr(layer, "cells", ())]):
        yield from layer_with_cells(part)


def keras_rnns(layer: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, layer) for the recurrent layers of a model or a wrapper (TimeDistributed)."""
    if _keras_class(layer):
        yield path, layer
        return
    children = [(child.name, child) for child in getattr(layer, "layers", ())]
    children += [("layer", layer.layer)] if hasattr(layer, "layer") else []
    for name, child in children:
        yield from keras_rnns(child, f"{path}/{name}" if path else name)


def _keras_class(layer: Any) -> str | None:
    """Return the first class of a layer that is a recurrent layer or cell of Keras, if any."""
    return class_among(layer, _CLASSES, "keras.", "tf_keras.", "tensorflow.")


def _layer_node(layer: Any) -> Node:
    """Return a layer as a node of a tree, as Keras writes layers. Unlike in get_config(), a user's
    subclass of a layer or cell has the class of Keras."""
    name, module, config = _keras_class(layer), "keras", dict(layer.get_config())
    if name is None:
        name, module = type(layer).__name__, type(layer).__module__
    if name == "Bidirectional":
        config["layer"] = _layer_node(layer.forward_layer)
        config["backward_layer"] = _layer_node(layer.backward_layer)
    elif name == "RNN":
        config["cell"] = _layer_node(layer.cell)
    elif name == "StackedRNNCells":
        config["cells"] = [_layer_node(cell) for cell in layer.cells]
    node = {"class_name": name, "module": module, "config": config}
    if mask := _mask_of_input(layer):
        node[MASK] = mask
    return node


def _mask_of_input(layer: Any) -> str | None:
    """Return the mask of a live layer's input in its model, if the model has called the layer."""
    return join_call_masks(map(_mask_of_call, getattr(layer, "_inbound_nodes", ())))


def _mask_of_call(call: Any) -> str | None:
    """Return the mask of the first input of a call: the nearest layer before that makes a mask."""
    for _ in range(_MOST_BEFORE):
        x: Any = getattr(call, "input_tensors", None)
        while isinstance(x, (list, tuple)) and x:
            x = x[0]
        arguments = getattr(getattr(call, "arguments", None), "kwargs", {})
        if getattr(x, "_keras_mask", None) is None and arguments.get("mask") is None:
            return None
        history = x._keras_history
        layer = getattr(history, "operation", None) or history.layer
        kind = class_among(layer, _MASKS, "keras.", "tf_keras.", "tensorflow.")
        if mask := mask_made_by(kind or "", layer.get_config() if kind else {}):
            return mask
        call = layer._inbound_nodes[history.node_index]
    return f"{UNDECIDED}a layer before makes it"


# ------------------------------------------------------------------------------------------ writing


def class_name_of(spec: Spec, layout: str = "keras") -> str:
    """Return the class of the layer that is written, without an outer Bidirectional."""
    cell = "rnn_tanh" if spec.cell == "rnn_relu" else spec.cell
    is_cudnn = layout == "keras-cudnn"
    return next(n for n, c in CELLS.items() if c == cell and n.startswith("CuDNN") == is_cudnn)


def layer_node(name: str, spec: Spec, bias: bool, settings: Config) -> dict[str, Any]:
    """Return the config that Keras 3 writes for a layer with return_sequences=True. settings: as in
    Weights.config. Raises LossyError if Keras 3 lacks the layer."""
    class_name = class_name_of(spec)
    config = {
        "name": name,
        "dtype": spec.dtype,
        "units": spec.hidden_size,
        "use_bias": bias,
        "return_sequences": True,
        "activation": "relu" if spec.cell == "rnn_relu" else spec.activation,
    }
    if spec.recurrent_activation == "hard_sigmoid_keras2":
        raise LossyError(
            f"{name!r} has the hard_sigmoid of Keras 2, 0.2 x + 0.5, which Keras 3 lacks: convert"
            " the whole model to its own format, where changed weights compensate for it, or save"
            " only the weights as .weights.h5"
        )
    if class_name != "SimpleRNN":
        config["recurrent_activation"] = spec.recurrent_activation
    if class_name == "GRU":
        config["reset_after"] = spec.reset == "after"
    merge_mode = {"merge_mode": "concat"} if spec.bidirectional else {}
    for key, value in without_neutral(settings, spec.num_directions).items():
        facts = facts_of(key)
        if facts.place == "axes" and "keras" not in facts.layouts:
            continue  # the axes of Keras have a fixed order
        if key == "mask" and str(value).startswith("Masking("):
            continue  # the writer of the model puts the layer before
        if key in merge_mode:
            merge_mode[key] = value
        elif key in ("go_backwards", "zero_output_for_mask"):
            config[key] = value
        else:
            raise unwritten_settings(
                name,
                {key: value},
                "which cannot be written to a model: save only the weights as .weights.h5, or, to"
                " leave it out",
            )
    node: dict[str, Any] = {"class_name": class_name, "config": config}
    if spec.bidirectional:
        inner = {"module": "keras.layers", "registered_name": None, **node}
        outer = {"name": name, "dtype": spec.dtype, "layer": inner, **merge_mode}
        if config.get("go_backwards"):  # Keras 3 makes a backward layer that goes backwards
            backward = {**config, "name": f"backward_{name}", "go_backwards": False}
            outer["backward_layer"] = {**inner, "config": backward}
        node = {"class_name": "Bidirectional", "config": outer}
    return node

"""Layouts by name, and what each supports."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from rnnlayout import _native

from .similar import did_you_mean

# The layouts that are a dict of tensors, for type checkers. tools/tables.py --write generates it.
# <!-- table: layout_literal -->
LayoutName = Literal["torch", "torch-cell", "keras", "keras-cudnn", "onnx", "concat", "flax-linen",
                     "flax-nnx", "equinox", "haiku", "mlx", "paddle", "openvino",
                     "tf1-cudnn-canonical", "keras1", "burn", "webnn", "webnn-ifgo", "haste",
                     "cntk", "dl4j", "flax-nnx-lstm", "mxnet-gluon", "chainer-nstep",
                     "chainer-links", "tf1", "tf1-block-v2", "coreml", "tflite", "tensorrt",
                     "onednn", "miopen", "nam"]  # fmt: skip
# <!-- end of table -->


# The frameworks with layouts of several names, by how these begin.
_FAMILIES = {"tensorflow": ("keras", "tf1"), "tf": ("keras", "tf1"),
             "jax": ("jax", "flax", "equinox", "haiku")}  # fmt: skip


@dataclass(frozen=True, init=False, repr=False)
class Layout:
    """A layout's name with its options, accepted wherever a name is. Make one with layout()."""

    name: str
    options: tuple[tuple[str, str], ...]

    def __init__(self, name: str, **options: Any) -> None:
        if not isinstance(name, str):
            raise _native.LayoutError(
                f"a layout is named by a string, found {name!r}: pass one of rl.layouts()"
            )
        pairs = sorted((key, str(value)) for key, value in options.items())
        self.__dict__.update(name=name, options=tuple(pairs))
        try:
            self.__dict__["name"] = _native.check_layout(self)
        except _native.LayoutError as error:
            known = known_layouts()
            sources = {}
            for one, info in known.items():
                sources[one] = info["sources"][0]
                sources |= {alias["name"]: alias["source"] for alias in info["aliases"]}
            begins = _FAMILIES.get(name.lower(), (name.lower(),))
            if family := [
                f"  {one}: {source.partition(' (')[0]}"
                for one, source in sources.items()
                if one.split("-")[0] in begins and name not in sources
            ]:
                text = "\n".join([f"{name} has several layouts, pass one:", *family])
                raise _native.LayoutError(text) from None
            meant = "" if name in known else did_you_mean(name, known)
            raise _native.LayoutError(error, meant) from None

    @property
    def notes(self) -> dict[str, str]:
        """What each chosen option means."""
        known = known_layouts()[self.name]["options"]
        return {
            f"{key}={value}": known[key].get(value) or next(iter(known[key].values()))
            for key, value in self.options
        }

    def __repr__(self) -> str:
        options = "".join(f", {key}={value!r}" for key, value in self.options)
        return f"layout({self.name!r}{options})"

    def _in_call(self, _also: object) -> str:
        """Return what an Ask for it writes in Python."""
        return f"rl.{self!r}" if self.options else repr(self.name)

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value}" for key, value in self.options)
        return f"{self.name}({options})" if options else self.name


CUDNN = Layout("cudnn")
BlockKey = tuple[int, int, str, str]  # one matrix or bias: its layer, direction, role, gate
# Names of the roles of blocks in messages.
ROLES = {"W": "input matrix", "R": "recurrent matrix", "P": "projection", "bW": "input bias",
         "bR": "recurrent bias", "peephole": "peephole"}  # fmt: skip


def layout(name: str, **options: Any) -> Layout:
    """Return a layout with options, which is accepted wherever a layout's name is.

    concat: inputs="hx" (default) or "xh"; z="state" (default, h' = z h + (1 - z) n) or
        "candidate" (h' = (1 - z) h + z n).
    cudnn: version=9 (default), 8 or 7. The weight space is the same in all. Using the layout for
        an RNN that the version cannot run raises SpecError.

    tf1: forget_bias=1.0 (default) or any number: the argument of the cell, which it adds to the
        bias of f whenever it runs.

    "jax-cudnn" (the flat weights of jax.experimental.rnn) and "mxnet" (the parameters of MXNet's
    operator RNN) are other names of cudnn, "pytorch" and "candle" of torch.

    Raises LayoutError if the layout, an option or its value does not exist. "tensorflow", "jax",
    "flax" and "chainer" have several layouts: the error lists them.

        >>> layout("concat", inputs="xh", z="candidate")
        layout('concat', inputs='xh', z='candidate')
    """
    return Layout(name, **options)


def as_layout(layout: str | Layout) -> Layout:
    """Return the Layout of a name; a Layout is returned as it is."""
    return layout if isinstance(layout, Layout) else Layout(layout)


def layouts() -> dict[str, dict[str, Any]]:
    """Return all layouts, with what each supports.

    A dict: name -> {"cells", "gates" (cell -> order in memory), "resets", "recurrent_activations",
    "relu" (bool: also LSTMs and GRUs with activation "relu"), "projection" (bool), "peepholes"
    (bool), "options" (name -> {value: note}, the default first), "must_name" (bool: its tensors
    look like another layout's, so that they are read in it only if layout= names it), "aliases"
    (other names, each {"name", "source", "checked"}), "rows" (the rows of the table of layouts),
    "sources" and "checked" (of each row: where its facts come from, and what the tests compare it
    with: "framework", the framework itself; "recorded", answers that it once gave; "documents", the
    equations of its source)}.

        >>> layouts()["onnx"]["gates"]["lstm"]
        'iofg'
        >>> layouts()["openvino"]["checked"]
        ['recorded', 'recorded']
    """
    return copy.deepcopy(known_layouts())


@cache
def known_layouts() -> dict[str, dict[str, Any]]:
    """Return the dict that layouts() copies. Do not change it."""
    known: dict[str, dict[str, Any]] = {}
    for row in _native.rows():
        info = known.setdefault(
            row["layout"],
            {"cells": [], "gates": {}, "resets": [], "recurrent_activations": [],
             "relu": False, "projection": False, "peepholes": False, "options": {},
             "must_name": False, "aliases": [], "rows": [], "sources": [], "checked": []},
        )  # fmt: skip
        for key, values in (("cells", row["gates"]), ("resets", row["resets"]),
                            ("recurrent_activations", row["recurrent_activations"])):  # fmt: skip
            info[key] += [value for value in values if value not in info[key]]
        info["gates"].update(row["gates"])
        info["relu"] |= row["relu"]
        info["projection"] |= "P" in row["roles"]
        info["peepholes"] |= "peephole" in row["roles"]
        info["options"].update(row["options"])
        info["must_name"] |= row["must_name"]
        info["rows"].append(row)
        info["sources"].append(row["source"])
        info["checked"].append(row["checked"])
    for alias in _native.aliases():
        known[alias.pop("layout")]["aliases"].append(alias)
    return known


def layer_in_words(layer: int, direction: int, directions: int) -> str:
    """Return "layer 1 backward" for a layer and direction of an RNN with so many directions."""
    return f"layer {layer}{(' forward', ' backward')[direction] if directions == 2 else ''}"

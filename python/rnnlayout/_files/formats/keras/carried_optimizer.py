"""Carry the optimizer of an archive of Keras 2 into the archive for Keras 3.

Both number the variables of an optimizer: the count of steps, in Keras 3 the learning rate, then
the slots of the model's trainable variables. Both put the layers of a model in the same order, and
the variables of a layer in the order in which the layer made them, so the slots keep their order.
The optimizers of OPTIONS compute the same in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rnnlayout._files.tensor_sets.optimizer_slots import PLAIN
from rnnlayout._native import LossyError
from rnnlayout._sources.keras_tree import Node

from .hdf5_tree import Hdf5Group
from .optimizers import MODULE, OPTIONS, class_and_options, numbered_arrays, slot_blocks

_VARIABLES = "optimizer/vars"
_OF_ALL = (
    *("name", "weight_decay", "clipnorm", "global_clipnorm", "clipvalue"),
    *("use_ema", "ema_momentum", "ema_overwrite_frequency"),
)
_ONLY_KERAS_2 = ("jit_compile", "is_legacy_optimizer")  # the numbers do not depend on them


@dataclass(frozen=True)
class CarriedOptimizer:
    """An optimizer for Keras 3. options: of the constructor. num_variables: in Keras 2."""

    class_name: str
    options: dict[str, Any]
    num_variables: int

    @property
    def compile_config(self) -> Node:
        """The compile_config of a model with this optimizer and without a loss."""
        config = {"class_name": self.class_name, "config": self.options, "registered_name": None}
        return {"optimizer": {"module": MODULE, **config}}

    def renumber(self, h5: Any) -> None:
        """Number the variables in an h5py.File as Keras 3 does."""
        variables = h5[_VARIABLES]
        for k in reversed(range(1, self.num_variables)):
            variables.move(str(k), str(k + 1))
        variables["1"] = self.options["learning_rate"]
        variables.attrs["name"] = self.class_name.lower()


def carry_optimizer(
    root: Hdf5Group, model: Node, shapes: Sequence[tuple[int, ...]]
) -> CarriedOptimizer:
    """Return the optimizer of an archive of Keras 2. shapes: of the model's trainable variables, in
    order. Raises LossyError with the reason if Keras 3 could not go on with it."""
    class_name, options = class_and_options(root, model)
    if class_name not in OPTIONS:
        raise LossyError(f"{class_name[:50]!r} is not one of {', '.join(OPTIONS)}")
    options = OPTIONS[class_name] | options
    known = {*_OF_ALL, *OPTIONS[class_name], *_ONLY_KERAS_2}
    for key, value in options.items():
        is_plain = isinstance(value, float if key == "learning_rate" else PLAIN)
        if key not in known or not is_plain:
            raise LossyError(f"the {key[:50]!r} of {class_name} is a schedule, or not known")
    if class_name == "SGD" and not options.get("momentum"):
        raise LossyError("SGD without a momentum keeps nothing for the next step")
    arrays = numbered_arrays(root.group(_VARIABLES))
    blocks = slot_blocks(class_name, options, is_keras_3=False) or ()
    slots = [shape for block in blocks for shape in shapes for _ in block]
    if [array.shape for array in arrays] != [(), *slots]:
        raise LossyError(
            f"the arrays of {class_name} are not {len(slots)} of the shapes of the model's"
            f" {len(shapes)} trainable variables: it made no step, or layers were frozen after its"
            " first step, or are of classes that rnnlayout does not know"
        )
    options = {key: value for key, value in options.items() if key not in _ONLY_KERAS_2}
    return CarriedOptimizer(class_name, options, len(arrays))

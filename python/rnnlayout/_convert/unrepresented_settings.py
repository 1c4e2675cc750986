"""The settings of an RNN that the framework of a layout cannot represent."""

from __future__ import annotations

from rnnlayout._model.checked_rnn import CheckedRNN
from rnnlayout._model.config import changes_outputs, describe_config
from rnnlayout._model.layout import Layout

_KERAS, _ONNX, _TFLITE = ("keras", "keras-cudnn"), ("onnx",), ("tflite",)
_STATES = ("onnx", "nam")
# A setting of Weights.config -> the layouts whose framework has it, and what to do without it.
_SETTINGS = {
    "go_backwards": (_KERAS, "reverse x along time first"),
    "merge_mode": (_KERAS, "join the two directions of y afterwards"),
    "direction": (_ONNX, "reverse x along time first, and y afterwards"),
    "initial_h": (_STATES, "pass it as the initial state"),
    "initial_c": (_STATES, "pass it as the initial state"),
    "sequence_lens": (_ONNX, "pass the lengths in the call"),
    "clip": (_ONNX, "outputs differ where it clips"),
    "cell_clip": (_TFLITE, "outputs differ where it clips the cell state"),
    "proj_clip": (_TFLITE, "outputs differ where it clips h"),
}
_UNKNOWN = ((), "apply it yourself")


def unrepresented_settings(given: CheckedRNN, layout: Layout) -> str:
    """Return what changes the outputs and is lost in the framework of a layout, "" if nothing is.

    The weights may still be converted exactly: a grade is about their bits.
    """
    lost = []
    for key, value in changes_outputs(given.config).items():
        layouts, repair = _SETTINGS.get(key, _UNKNOWN)
        if layout.name not in layouts:
            setting = describe_config({key: value})
            lost.append(f"with {setting}, which {layout.name} cannot represent: {repair}")
    if given.spec.recurrent_activation == "hard_sigmoid_keras2" and layout.name == "keras":
        lost.append(
            "with Keras 2's hard_sigmoid, which Keras 3 cannot represent: convert the whole model"
            " in its own format"
        )
    return "; ".join(lost)

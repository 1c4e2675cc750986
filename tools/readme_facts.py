"""What rnnlayout does, in numbers, and with which frameworks: for the README, tools/tables.py.

Every number is counted from the tests or is a result of the benchmarks.
"""

import json
from pathlib import Path

import proof

import rnnlayout as rl

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"

# {group: {framework: its layouts}}; each layout belongs to a framework
FRAMEWORKS = {
    "Frameworks": {
        "PyTorch": ["torch", "torch-cell"],
        "Keras 1, 2 and 3": ["keras1", "keras", "keras-cudnn"],
        "TensorFlow 1": ["tf1", "tf1-block-v2", "tf1-cudnn-canonical"],
        "Paddle": ["paddle"],
        "MLX": ["mlx"],
        "MXNet": ["mxnet-gluon"],
        "Chainer": ["chainer-nstep", "chainer-links"],
        "CNTK": ["cntk"],
        "DL4J": ["dl4j"],
        "Burn": ["burn"],
    },
    "JAX's libraries": {
        "Flax": ["flax-linen", "flax-nnx", "flax-nnx-lstm"],
        "Equinox": ["equinox"],
        "Haiku": ["haiku"],
    },
    "Runtimes": {
        "ONNX": ["onnx"],
        "cuDNN": ["cudnn"],
        "TFLite": ["tflite"],
        "OpenVINO": ["openvino"],
        "oneDNN": ["onednn"],
        "Core ML": ["coreml"],
        "TensorRT": ["tensorrt"],
        "MIOpen": ["miopen"],
        "WebNN": ["webnn", "webnn-ifgo"],
        "Haste": ["haste"],
    },
    "Elsewhere": {
        "Neural Amp Modeler": ["nam"],
        "one matrix per gate or for x and h together": ["concat"],
    },
}


def frameworks():
    """The frameworks by group. Raises ValueError if a layout belongs to none."""
    grouped = {name for group in FRAMEWORKS.values() for names in group.values() for name in names}
    if grouped != {*rl.layouts()}:
        raise ValueError(f"FRAMEWORKS and the layouts differ in {grouped ^ {*rl.layouts()}}")
    return "".join(f"- {group}: {', '.join(names)}\n" for group, names in FRAMEWORKS.items())


def benefits():
    """Four bullets: converts, names mistakes, runs, reads files safely."""
    return "".join(f"- {bullet}\n" for bullet in (converts(), names_mistakes(), runs(), is_safe()))


def converts():
    signs = proof.pair_signs()
    return (
        f"**Converts** arrays, modules and files between {len(rl.layouts())} layouts and"
        f" [your own](docs/howto/add-a-framework.md): of {signs.total():,} pairs"
        f" {signs['=']:,} keep every bit, {signs['x']} are refused with the reason."
    )


def names_mistakes():
    count, kinds = proof.mistake_counts()
    return (
        f"**Names the mistake** of another converter and undoes it: all of {count} mistakes of"
        f" {kinds} kinds in the tests."
    )


def runs():
    """The first row of benchmarks/results/forward.json: one step of one layer, one thread."""
    results = json.loads((RESULTS / "forward.json").read_text())
    row = results["rows"][0]
    medians = {name: median for name, (_, median) in row["us"].items()}
    size = row["case"].split()[3].removeprefix("H=")
    ratios = {peer: medians[peer] / medians["ours"] for peer in ("torch", "onnxruntime")}
    return (
        "**Runs** weights with NumPy alone, in a wheel below 1 MB, with cuDNN on GPUs, and as C99"
        " without dependencies. A step of an"
        f" {row['cell'].upper()} with {size} inputs and units takes {medians['ours']:.0f} us"
        f" on one thread of an {results['about']['cpu']};"
        f" torch takes {ratios['torch']:.0f} and onnxruntime {ratios['onnxruntime']:.0f} times as"
        " long."
    )


def is_safe():
    files, nbytes = proof.hostile_counts()
    return (
        f"**Reads files safely**: nothing in a file is executed. {files:,} hostile files end in"
        f" an error within {nbytes // 10**6} MB."
    )

"""Write tfjs.npz: files of weights of TensorFlow.js, plain and quantized, and their numbers.

    pip install --no-deps tensorflowjs==4.22.0
    python tests/data/record_tfjs.py

Only two modules of the package run, which need NumPy, and TensorFlow to open files; the converters
around them need much more.
"""

import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np

package = ModuleType("tensorflowjs")  # without its __init__, which imports the converters
package.__path__ = find_spec("tensorflowjs").submodule_search_locations
tensorflow = ModuleType("tensorflow")
tensorflow.io = SimpleNamespace(gfile=SimpleNamespace(GFile=open))
sys.modules |= {"tensorflowjs": package, "tensorflow": tensorflow}

from tensorflowjs.read_weights import read_weights  # noqa: E402
from tensorflowjs.write_weights import write_weights  # noqa: E402

INPUTS, UNITS, SHARD = 5, 3, 500  # bytes of a file: tensors are in two files
rng = np.random.default_rng(5)
shapes = {"dense/kernel": (2 * UNITS, 2), "dense/bias": (2,)}
for side in ("forward", "backward"):
    cell = f"bidirectional/{side}_lstm/lstm_cell"
    shapes |= {f"{cell}/kernel": (INPUTS, 4 * UNITS), f"{cell}/bias": (4 * UNITS,),
               f"{cell}/recurrent_kernel": (UNITS, 4 * UNITS)}  # fmt: skip
weights = [{"name": name, "data": rng.standard_normal(shape).astype("f4")}
           for name, shape in shapes.items()]  # fmt: skip

record = {}
for kind in ("float32", "float16", "uint16", "uint8"):
    with tempfile.TemporaryDirectory() as folder:
        manifest = write_weights(
            [[dict(weight) for weight in weights]], folder, write_manifest=False,
            shard_size_bytes=SHARD,
            quantization_dtype_map=None if kind == "float32" else {kind: True},
        )  # fmt: skip
        (Path(folder) / "manifest").write_text(json.dumps(manifest))
        for path in Path(folder).iterdir():
            record[f"{kind}/{path.name}"] = np.frombuffer(path.read_bytes(), "u1")
        for weight in read_weights(manifest, folder, flatten=True):
            record[f"{kind}={weight['name']}"] = weight["data"].astype("f4")
np.savez_compressed(Path(__file__).with_name("tfjs.npz"), **record)

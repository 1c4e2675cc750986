"""Write examples/data/textgenrnn_rnn1.hdf5: layer rnn_1 of the published textgenrnn weights.

    python tools/cut_checkpoint.py

The names, attributes and bytes of the three arrays are unchanged; the other layers are left out.
Needs h5py. Downloads the package of textgenrnn.
"""

import io
import sys
from pathlib import Path

import h5py

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import checkpoints

LAYER = "rnn_1"


def main():
    whole = h5py.File(io.BytesIO(checkpoints.fetch(checkpoints.TEXTGENRNN)), "r")
    with h5py.File(checkpoints.SMALL, "w") as small:
        small.attrs["backend"] = whole.attrs["backend"]
        small.attrs["keras_version"] = whole.attrs["keras_version"]
        small.attrs["layer_names"] = [LAYER.encode()]
        group = small.create_group(LAYER)
        group.attrs["weight_names"] = whole[LAYER].attrs["weight_names"]
        for name in whole[LAYER].attrs["weight_names"]:
            name = name.decode()
            group.create_dataset(name, data=whole[LAYER][name][()], track_times=False)


if __name__ == "__main__":
    main()

"""Record what RTNeural and Neural Amp Modeler compute, in audio.json.

    python record_audio.py RTNEURAL NAM

RTNEURAL is a checkout of github.com/jatinchowdhury18/RTNeural with its submodule modules/Eigen (at
1fb1f07), NAM one of github.com/sdatkinson/NeuralAmpModelerCore (at daae2d0). The models are random,
written here in the form of each library; nothing of rnnlayout is used. A C++ compiler is needed.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

T, I, H = 12, 2, 3  # noqa: E741
READ = """
#include <cstdio>
#include <vector>
template <class Step> int run(int inputs, Step step) {
    std::vector<float> x(inputs);
    while (fread(x.data(), 4, inputs, stdin) == (size_t)inputs)
        step(x.data());
    return 0;
}
"""
RTNEURAL = """
#include <RTNeural/RTNeural.h>
int main(int, char **argv) {
    std::ifstream file(argv[1]);
    auto model = RTNeural::json_parser::parseJson<float>(file);
    model->reset();
    return run(model->layers[0]->in_size, [&](const float *x) {
        model->forward(x);
        fwrite(model->getOutputs(), 4, model->getOutSize(), stdout);
    });
}
"""
NAM = """
#include "NAM/get_dsp.h"
#include "NAM/lstm.h"
int main(int, char **argv) {
    nam::DspLoadOptions options;
    options.prewarm = false;
    auto model = nam::get_dsp(std::filesystem::path(argv[1]), options);
    auto *lstm = dynamic_cast<nam::lstm::LSTM *>(model.get());
    return run(model->NumInputChannels(), [&](const float *x) {
        std::vector<NAM_SAMPLE> in(x, x + model->NumInputChannels());
        std::vector<NAM_SAMPLE> out(model->NumOutputChannels());
        std::vector<NAM_SAMPLE *> ins, outs;
        for (auto &one : in)
            ins.push_back(&one);
        for (auto &one : out)
            outs.push_back(&one);
        model->process(ins.data(), outs.data(), 1);
        auto h = lstm->_layers.back().get_hidden_state();
        fwrite(h.data(), 4, h.size(), stdout);
        for (float one : out)
            fwrite(&one, 4, 1, stdout);
    });
}
"""


def compiled(folder, name, text, *options):
    source, program = folder / f"{name}.cpp", folder / name
    source.write_text(READ + text)
    subprocess.run(["g++", "-O1", "-std=c++20", source, *options, "-o", program], check=True)
    return program


def numbers(rng, *shape):
    return rng.normal(0, 0.7, shape).astype("f4").tolist()


def layer(rng, kind, inputs, units):
    gates = {"lstm": 4, "gru": 3, "dense": 1}[kind]
    arrays = [numbers(rng, inputs, gates * units)]
    arrays += [numbers(rng, units, gates * units)] if gates > 1 else []
    arrays += [numbers(rng, *([2] if kind == "gru" else []), gates * units)]
    activation = "" if kind == "dense" else "tanh"
    shape = [None, None, units]
    return {"type": kind, "activation": activation, "shape": shape, "weights": arrays}


def rtneural(rng, *layers):
    made, below = [], I
    for kind, units in layers:
        made.append(layer(rng, kind, below, units))
        below = units
    return {"in_shape": [None, None, I], "layers": made}


def nam(rng, layers):
    below = [I] + [H] * (layers - 1)
    count = sum(4 * H * (n + H) + 6 * H for n in below) + H + 1
    sizes = {"input_size": I, "hidden_size": H, "num_layers": layers, "in_channels": I}
    metadata = {"loudness": -20.5, "name": "é"}
    return {"version": "0.5.4", "metadata": metadata, "architecture": "LSTM", "config": sizes,
            "weights": numbers(rng, count), "sample_rate": 48000}  # fmt: skip


def main():
    ours, theirs = map(Path, sys.argv[1:])
    rng, recorded = np.random.default_rng(11), {}
    models = {
        "lstm.json": rtneural(rng, ("lstm", H)),
        "gru.json": rtneural(rng, ("gru", H)),
        "chain.json": rtneural(rng, ("lstm", H), ("lstm", H), ("gru", 4), ("dense", 1)),
        "one.nam": nam(rng, 1),
        "two.nam": nam(rng, 2),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        eigen = f"-I{ours}/modules/Eigen"
        of_json = compiled(folder, "rtneural", RTNEURAL, f"-I{ours}", eigen,
                           "-DRTNEURAL_DEFAULT_ALIGNMENT=16", "-DRTNEURAL_USE_STL=1")  # fmt: skip
        parts = ("activations", "dsp", "get_dsp", "lstm", "nam_file", "util", "container")
        sources = [theirs / "NAM" / f"{part}.cpp" for part in parts]
        folders = ["", "/NAM", "/Dependencies/nlohmann"]
        of_nam = compiled(folder, "nam", NAM, *sources, eigen, *(f"-I{theirs}{f}" for f in folders))
        for file, model in models.items():
            (folder / file).write_text(json.dumps(model))
            x = np.array(numbers(rng, T, I), "f4")
            program = of_json if file.endswith(".json") else of_nam
            done = subprocess.run([program, folder / file], input=x.tobytes(), capture_output=True,
                                  check=True)  # fmt: skip
            y = np.frombuffer(done.stdout, "f4").reshape(T, -1)
            recorded[file] = {"model": model, "x": x.tolist(), "y": y.tolist()}
    Path(__file__).with_name("audio.json").write_text(json.dumps(recorded) + "\n")


if __name__ == "__main__":
    main()

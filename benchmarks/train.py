"""Time a training step beside torch and Keras on torch, and compare gradients with float64.

    python benchmarks/train.py [--quick] [--json FILE]

A step is a forward and a backward pass, without an optimizer, on one thread. All run in turn in one
process, round after round; the least and the median of the turns count, ratios are of least times.
Ours, on NumPy arrays, includes update(), since each step of training has new weights; "layer" is
rnnlayout.torch.RNN. Errors are the largest of a gradient, over the largest of its values; the true
gradients are torch's in float64. A tape is what a forward pass keeps for the backward pass, without
the weights.
"""

import argparse
import datetime
import json
import os
import statistics
import time
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"
os.environ["OMP_NUM_THREADS"] = "1"

import keras
import numpy as np
import torch
from machine import cpu

import rnnlayout as rl
import rnnlayout.torch

# N, T, H (also I), L, bidirectional
CASES = [
    (1, 100, 128, 1, False),
    (16, 100, 128, 1, False),
    (32, 100, 64, 1, False),
    (32, 50, 256, 1, False),
    (64, 25, 512, 1, False),
    (16, 100, 256, 2, True),
]
CELLS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn_tanh": torch.nn.RNN}
KERAS = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU, "rnn_tanh": keras.layers.SimpleRNN}
SECONDS, LEAST_TURNS = 2.0, 15


def in_turn(jobs, seconds):
    """Return name -> seconds of each turn."""
    turns = {name: [] for name in jobs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(turns[next(iter(jobs))]) < LEAST_TURNS:
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            turns[name].append(time.perf_counter() - start)
    return turns


def step_of_torch(module, x, dy):
    def step():
        module.zero_grad()
        x.grad = None
        module(x)[0].backward(dy)

    return step


def step_of_keras(cell, x, dy, H):
    layer = KERAS[cell](H, return_sequences=True)
    layer.build(x.shape)

    def step():
        for variable in layer.trainable_variables:
            variable.value.grad = None
        x.grad = None
        layer(x).backward(dy)

    return step


def errors(module, rnn, x, dy):
    """Return the largest relative error of our gradients and of torch's."""
    step_of_torch(module, x, dy)()
    names = [name for name, _ in module.named_parameters()]
    torchs = [x.grad, *(p.grad for p in module.parameters())]
    dx, _, dweights = rnn.record(x.detach()).backward(dy)
    tensors = rl.convert(dweights, rnn.spec, layout="cudnn", to="torch", kind="gradient")
    ours = [dx, *(tensors[name] for name in names)]
    wide, wide_x = type(module)(**options_of(module)).double(), x.detach().double().requires_grad_()
    wide.load_state_dict(module.state_dict())
    step_of_torch(wide, wide_x, dy.double())()
    truths = [wide_x.grad, *(p.grad for p in wide.parameters())]

    def largest(gradients):
        return max(
            float((torch.as_tensor(np.asarray(g)).double() - truth).abs().max() / truth.abs().max())
            for g, truth in zip(gradients, truths, strict=True)
        )

    return largest(ours), largest(torchs)


def tape_nbytes_of_torch(module, x):
    """Return the bytes of the tensors that torch keeps for the backward pass, without weights."""
    weights = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = module(x)  # keeps the tensors alive: each has an address of its own
    nbytes = sum(size for address, size in kept.items() if address not in weights)
    del y
    return nbytes


def options_of(module):
    return {name: getattr(module, name) for name in
            ("input_size", "hidden_size", "num_layers", "bidirectional")}  # fmt: skip


def measure(cell, N, T, H, L, bidirectional, seconds):
    torch.manual_seed(1)
    module = CELLS[cell](H, H, L, bidirectional=bidirectional)
    rnn = rl.RNN(module)
    x = torch.randn(T, N, H, requires_grad=True)
    dy = torch.randn(T, N, H * (1 + bidirectional))
    plain, weights = x.detach().numpy(), rl.pack(module)
    gradient = dy.numpy()

    def ours():
        rnn.update(weights, layout="cudnn")
        rnn.record(plain).backward(gradient)

    jobs = {
        "rnnlayout": ours,
        "torch": step_of_torch(module, x, dy),
        "layer": step_of_torch(rnnlayout.torch.RNN(module), x, dy),
        "three forward": lambda: [rnn(plain) for _ in range(3)],
    }
    if L == 1 and not bidirectional:
        batch = torch.randn(N, T, H, requires_grad=True)
        jobs["keras"] = step_of_keras(cell, batch, torch.randn(N, T, H), H)
    turns = in_turn(jobs, seconds)
    our_error, torch_error = errors(module, rnn, x, dy)
    return {
        "cell": cell, "N": N, "T": T, "H": H, "L": L, "bidirectional": bidirectional,
        "least": {name: min(times) for name, times in turns.items()},
        "median": {name: statistics.median(times) for name, times in turns.items()},
        "errors": {"rnnlayout": our_error, "torch": torch_error},
        "tape_nbytes": {
            "rnnlayout": rnn.tape_nbytes(T, N), "torch": tape_nbytes_of_torch(module, x),
        },
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="half a second per case")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rl.set_num_threads(1)
    rows = []
    for cell in CELLS:
        for case in CASES:
            row = measure(cell, *case, 0.5 if options.quick else SECONDS)
            rows.append(row)
            least, ours = row["least"], row["least"]["rnnlayout"]
            ratios = ", ".join(f"{name} {least[name] / ours:.2f}"
                               for name in least if name != "rnnlayout")  # fmt: skip
            error, tape = row["errors"], row["tape_nbytes"]
            print(f"{cell} N={case[0]} T={case[1]} H={case[2]} L={case[3]} D={1 + case[4]}:"
                  f" {ours * 1e3:.2f} ms; times ours: {ratios}; error {error['rnnlayout']:.1e},"
                  f" torch {error['torch']:.1e}; tape {tape['rnnlayout'] / tape['torch']:.2f}"
                  " of torch's", flush=True)  # fmt: skip
    if options.json:
        about = {"cpu": cpu(), "date": f"{datetime.date.today()}", "tier": rl.cpu_tier(),
                 "rnnlayout": rl.__version__, "torch": torch.__version__,
                 "keras": keras.__version__, "threads": 1}  # fmt: skip
        result = {"about": about, "rows": rows}
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

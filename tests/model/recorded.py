"""The answers of real cuDNN libraries about their weight space: tests/data/README.md."""

import json

from commands import TESTS

import rnnlayout as rl

RECORDED = [
    json.loads(line) for line in (TESTS / "data/cudnn-weight-space.jsonl").read_text().splitlines()
]
CELLS = {"lstm": "lstm", "gru": "gru", "tanh": "rnn_tanh", "relu": "rnn_relu"}
DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


def spec_of(config):
    sizes = ("input_size", "hidden_size", "proj_size", "num_layers", "bias", "bidirectional")
    return rl.Spec(
        CELLS[config["cell"]],
        dtype=DTYPES[config["dtype"]],
        skip_input=bool(config["skip_input"]),
        **{name: config[name] for name in sizes},
    )

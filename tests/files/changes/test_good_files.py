"""Files as programs write them, with much beside an RNN that changes nothing: each is read without
a question. More of them are in test_account.py, test_companions.py and torch/test_torch.py."""

import json
import os

import jax
import keras
import numpy as np
import pytest
import safetensors.torch
import tf_keras
import torch
from flax import nnx, serialization
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl

pytestmark = KERAS_NOISE
I, H = 5, 3  # noqa: E741


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.fc = torch.nn.LSTM(I, H, 2, bidirectional=True), torch.nn.Linear(2 * H, 2)
        self.register_buffer("mean", torch.zeros(I))

    def forward(self, x):
        return self.fc(self.rnn(x - self.mean)[0])


def trained():
    """Return a model, its optimizer and the scheduler, after a step."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model(torch.randn(4, 2, I)).sum().backward()
    optimizer.step()
    scheduler.step()
    return model, optimizer, scheduler


def lightning(model, optimizer, scheduler):
    """Return what a Trainer of Lightning 2 saves."""
    return {
        "epoch": 1, "global_step": 10, "pytorch-lightning_version": "2.5.0",
        "state_dict": {f"model.{name}": value for name, value in model.state_dict().items()},
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"current": {"ready": 1}}}},
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": torch.ones(())}},
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [scheduler.state_dict()],
        "hparams_name": "kwargs", "hyper_parameters": {"hidden": H, "lr": 1e-3},
    }  # fmt: skip


def loop(model, optimizer, scheduler):
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
        "scheduler": scheduler.state_dict(), "scaler": {"scale": 65536.0}, "best_loss": 0.25,
        "rng": torch.get_rng_state(),
    }  # fmt: skip


def averaged(model, optimizer, scheduler):
    return torch.optim.swa_utils.AveragedModel(model).state_dict()


def with_average(model, optimizer, scheduler):
    return {"model": model.state_dict(), "model_ema": averaged(model, optimizer, scheduler)}


def observed(model, optimizer, scheduler):
    """Return the state_dict with the observers that prepare() adds."""
    qconfig = torch.ao.quantization.get_default_qconfig("fbgemm")
    for module in (model.rnn, model.fc):
        module.add_module("activation_post_process", qconfig.activation())
    model.rnn.activation_post_process(torch.randn(9))
    return model.state_dict()


CHECKPOINTS = {
    lightning: ["state_dict.model.rnn"],
    loop: ["model.rnn"],
    averaged: ["module.rnn"],
    with_average: ["model.rnn", "model_ema.module.rnn"],
    observed: ["rnn"],
}


@pytest.mark.parametrize("make", CHECKPOINTS)
def test_checkpoints_of_torch(make, tmp_path):
    parts = trained()
    expected = rl.Weights(parts[0].rnn.state_dict())
    torch.save(make(*parts), tmp_path / "a.ckpt")
    found = rl.load(tmp_path / "a.ckpt")
    assert not found.unread and [*found.values()] == [expected] * len(CHECKPOINTS[make])
    names = [name.removeprefix("module.").replace(".module.", ".") for name in found]
    plain = [name.removeprefix("module.").replace(".module.", ".") for name in CHECKPOINTS[make]]
    assert names == plain


@pytest.mark.parametrize("parts", [1, 2])
def test_the_cache_of_hugging_face(parts, tmp_path):
    """snapshots/REVISION/NAME is a link to ../../blobs/HASH, which has no suffix."""
    state = trained()[0].state_dict()
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0af"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    names = [f"model-{k:05d}-of-00002.safetensors" for k in (1, 2)][:parts]
    names = names if parts > 1 else ["model.safetensors"]
    places = {tensor: names[k % parts] for k, tensor in enumerate(state)}
    for k, name in enumerate(names):
        part = {tensor: state[tensor] for tensor in state if places[tensor] == name}
        safetensors.torch.save_file(part, blobs / f"{k}e3")
        os.symlink(f"../../blobs/{k}e3", snapshot / name)
    path = snapshot / names[0]
    if parts > 1:
        (blobs / "1d").write_text(json.dumps({"metadata": {}, "weight_map": places}))
        path = snapshot / "model.safetensors.index.json"
        os.symlink("../../blobs/1d", path)
    for source in (path, *([snapshot] if parts > 1 else [])):
        found = rl.load(source)
        assert list(found) == ["rnn"] and not found.unread and not found.notes
        assert {*found.others} == {"fc.weight", "fc.bias", "mean"}


def test_a_state_of_flax_with_random_generators(tmp_path):
    rngs = nnx.Rngs(0)
    cell = nnx.OptimizedLSTMCell(I, H, rngs=rngs)
    model = {"rnn": nnx.RNN(cell, rngs=rngs), "drop": nnx.Dropout(0.5, rngs=rngs),
             "head": nnx.Linear(H, 2, rngs=rngs)}  # fmt: skip
    leaves = {}
    for name, module in model.items():
        for path, variable in nnx.to_flat_state(nnx.state(module)):
            value = variable.value if hasattr(variable, "value") else variable
            is_key = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
            leaves[(name, *path)] = np.asarray(jax.random.key_data(value) if is_key else value)
    tree = {}
    for (*path, leaf), array in leaves.items():
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[leaf] = array
    (tmp_path / "a.msgpack").write_bytes(serialization.msgpack_serialize(tree))
    np.savez(tmp_path / "a.npz", **{"/".join(path): array for path, array in leaves.items()})
    assert any("rngs" in path for path in leaves)
    for name in ("a.msgpack", "a.npz"):
        found = rl.load(tmp_path / name)
        assert list(found) == ["rnn"] and not found.unread
        assert found["rnn"] == rl.Weights(cell)


@pytest.mark.parametrize("kit, names", [
    (keras, ["a.h5", "a.keras", "a.weights.h5"]),
    (tf_keras, ["a.h5", "a.keras", "a.weights.h5", "a.index"]),
], ids=["keras 3", "keras 2"])  # fmt: skip
def test_models_of_keras_with_seeds_and_an_optimizer(kit, names, tmp_path):
    x = kit.Input((4, I))
    rnn = kit.layers.LSTM(H, dropout=0.2, recurrent_dropout=0.1, name="rnn")
    model = kit.Model(x, kit.layers.Dense(2)(kit.layers.Dropout(0.5)(rnn(x))))
    model.compile(kit.optimizers.Adam(), "mse")
    model.fit(np.ones((2, 4, I), "f4"), np.ones((2, 2), "f4"), verbose=0)
    for name in names:
        path = tmp_path / name
        if name == "a.index":
            model.save_weights(path.with_suffix(""))
        else:
            (model.save_weights if "weights" in name else model.save)(path)
        found = rl.load(path)
        assert len(found) == 1 and not found.unread, (name, found.unread)
        (weights,) = found.values()
        arrays = [array.tobytes() for array in rnn.get_weights()]
        assert [array.tobytes() for array in weights.values()] == arrays

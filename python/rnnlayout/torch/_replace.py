"""replace: put RNN in the place of torch's RNNs in a model, under the names of their tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rnnlayout._native import LayoutError

from ._layer import RNN


class ReplacedRNN(RNN):
    """An RNN in the place of an nn.LSTM, nn.GRU or nn.RNN: state_dict() has torch's names."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, tensor in self.tensors().items():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        loaded = {name: state_dict.pop(prefix + name, None) for name in self.tensors()}
        missing_keys += [prefix + name for name, tensor in loaded.items() if tensor is None]
        tensors = {name: tensor for name, tensor in loaded.items() if tensor is not None}
        copy = RNN.__new__(RNN)
        nn.Module.__init__(copy)
        dtypes = {tensor.dtype for tensor in tensors.values()}
        dtype = dtypes.pop() if len(dtypes) == 1 else self.weight_space.dtype
        copy.weight_space = nn.Parameter(self.weight_space.detach().to(dtype, copy=True))
        copy._spec = self._spec
        with torch.no_grad():
            for name, view in copy.tensors().items():
                if name not in tensors:
                    continue
                if tensors[name].shape != view.shape:
                    error_msgs.append(
                        f"size mismatch for {prefix}{name}: copying a param with shape"
                        f" {tensors[name].shape} from checkpoint, the shape in current model is"
                        f" {view.shape}."
                    )
                    continue
                view.copy_(tensors[name])
        state_dict[f"{prefix}weight_space"] = copy.weight_space.detach()
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def replace(model: nn.Module) -> list[str]:
    """Put an RNN in the place of each nn.LSTM, nn.GRU and nn.RNN in a model; return their names.

    Outputs, gradients and the keys of state_dict() stay, and load_state_dict() takes checkpoints of
    either model. The parameters become one per RNN, weight_space: make the optimizer after this
    call. A module in two places stays one module. An RNN with frozen parameters becomes frozen.

    Raises LayoutError, with the model unchanged, if some parameters of an RNN are frozen, or
    computed (weight norm, pruning), or belong to another module too, or are on a GPU; and if the
    model is itself an RNN.

        >>> model = nn.Sequential(nn.Linear(2, 3), nn.GRU(3, 4))
        >>> replace(model)
        ['1']
        >>> list(model.state_dict())[2:]
        ['1.weight_ih_l0', '1.weight_hh_l0', '1.bias_ih_l0', '1.bias_hh_l0']
    """
    if isinstance(model, nn.RNNBase):
        kind = type(model).__name__
        raise LayoutError(f"the model is itself an {kind}: use rnnlayout.torch.RNN(model)")
    places = [
        (f"{path}.{name}" if path else name, parent, name, child)
        for path, parent in model.named_modules()
        for name, child in parent._modules.items()
        if isinstance(child, nn.RNNBase)
    ]
    owners = Counter(id(p) for module in model.modules() for p in module._parameters.values())
    replacements: dict[int, RNN] = {}
    for path, _, _, rnn in places:
        if id(rnn) not in replacements:
            replacements[id(rnn)] = _replacement(path, rnn, owners)
    for _, parent, name, rnn in places:
        parent._modules[name] = replacements[id(rnn)]
    return [path for path, *_ in places]


def _replacement(path: str, rnn: nn.RNNBase, owners: Counter[int]) -> RNN:
    if computed := set(rnn._flat_weights_names) ^ set(rnn._parameters) | set(rnn._modules):
        raise LayoutError(
            f"{path} has {', '.join(sorted(computed))}: remove the weight norm, pruning or other"
            " parametrization first"
        )
    parameters: dict[str, Tensor] = dict(rnn.named_parameters())
    if shared := [name for name, p in parameters.items() if owners[id(p)] > 1]:
        raise LayoutError(f"{path}.{shared[0]} is a parameter of another module too: copy it first")
    if on_device := [name for name, p in parameters.items() if p.device.type != "cpu"]:
        raise LayoutError(
            f"{path}.{on_device[0]} is on {parameters[on_device[0]].device}, but rnnlayout.torch"
            " trains on the CPU: keep torch's module, or call model.cpu()"
        )
    frozen = [name for name, p in parameters.items() if not p.requires_grad]
    if len(frozen) not in (0, len(parameters)):
        raise LayoutError(
            f"{path}.{frozen[0]} is frozen and other parameters of {path} are not, but they become"
            " one parameter: freeze all or none"
        )
    replacement = ReplacedRNN(rnn)
    replacement.weight_space.requires_grad_(not frozen)
    return replacement.train(rnn.training)

"""The binding of the C core (csrc/include/rnnlayout.h)."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, final

import numpy as np

from rnnlayout._model.errors import (
    CudnnError as CudnnError,
    CudnnNotFoundError as CudnnNotFoundError,
    LayoutError as LayoutError,
    LossyError as LossyError,
    SpecError as SpecError,
)
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec

HAS_BIAS: int
HAS_PEEPHOLES: int
STEP: int
TIME_FIRST: int
BATCH_FIRST: int
__version__: str

_Block = tuple[int, int, str, int, str]
_View = tuple[int, int, int, int, int, int, int]
_Op = tuple[str, _Block, str, bool, int, int, int, bool, bool, float]
_Move = tuple[int, int, int, int, int]

@final
class Plan:
    def __new__(
        cls, spec: Spec, src: Layout, optional: int, dst: Layout, kind: str = "weights"
    ) -> Plan: ...
    @property
    def sources(self) -> list[tuple[str, tuple[int, ...]]]: ...
    @property
    def targets(self) -> list[tuple[str, tuple[int, ...]]]: ...
    @property
    def num_ops(self) -> int: ...
    @property
    def shifts(self) -> bool: ...
    def block_ops(self) -> list[_Op]: ...
    def moves(self) -> list[_Move] | None: ...
    def run(
        self,
        src: Sequence[np.ndarray],
        dst: Sequence[np.ndarray] | None,
        src_dtype: str,
        dst_dtype: str,
        exact: bool,
        new: bool,
    ) -> tuple[str, int]: ...

@final
class Rnn:
    def __new__(
        cls,
        spec: Spec,
        weights: np.ndarray,
        clip: tuple[float, float] | None = None,
        math: str = "default",
        borrows: bool = False,
    ) -> Rnn: ...
    def run(
        self,
        x: Any,
        state: Any,
        lengths: Any,
        mask: Any,
        out: Any,
        h_out: Any,
        c_out: Any,
        axes: int,
        repeats_masked: bool,
        checked: bool,
        /,
    ) -> Any: ...
    def bind(
        self,
        x: np.ndarray,
        state: Any,
        lengths: np.ndarray | None,
        mask: np.ndarray | None,
        out: np.ndarray,
        h_out: np.ndarray,
        c_out: np.ndarray | None,
        axes: int,
        repeats_masked: bool,
        rnn: Any,
        result: Any,
        /,
    ) -> BoundCall: ...
    def weights(self) -> np.ndarray: ...

@final
class Stepper:
    """A live signal through an RNN, from RNN.stepper(): y = s(x), and s.state."""

    state: Any
    def __new__(
        cls,
        rnn: Rnn | GpuRnn,
        step: Callable[[Stepper, Any, Any], Any],
        read: Callable[[Any], tuple[np.ndarray, ...]],
    ) -> Stepper: ...
    def __call__(self, x: Any, out: Any = None) -> Any: ...

@final
class BoundCall:
    """An RNN with fixed arrays, from RNN.bind(): y, state = bound()."""

    def __call__(self) -> Any: ...

@final
class GpuRnn:
    def __new__(
        cls,
        spec: Spec,
        weights: np.ndarray,
        device: int,
        tf32: bool,
        standard: bool,
    ) -> GpuRnn: ...
    def run(
        self,
        T: int,
        N: int,
        batch_first: bool,
        x: np.ndarray,
        lengths: np.ndarray | None,
        h0: np.ndarray | None,
        c0: np.ndarray | None,
        y: np.ndarray | None,
        hn: np.ndarray | None,
        cn: np.ndarray | None,
        /,
    ) -> None: ...
    def call(
        self,
        x: Any,
        state: Any,
        lengths: np.ndarray | None,
        out: Any,
        h_out: Any,
        c_out: Any,
        axes: int,
        stream: int | None,
        empty: Callable[[tuple[int, ...]], Any] | None,
        home: int | None,
        /,
    ) -> tuple[Any, Any] | list[tuple[int, ...] | None] | None: ...
    def bind(
        self,
        x: Any,
        state: Any,
        lengths: np.ndarray | None,
        out: Any,
        h_out: Any,
        c_out: Any,
        axes: int,
        stream: int | None,
        empty: Callable[[tuple[int, ...]], Any] | None,
        home: int | None,
        rnn: Any,
        /,
    ) -> BoundCall | list[tuple[int, ...] | None] | None: ...
    def update(self, weights: np.ndarray, stream: int, /) -> None: ...
    def weights(self) -> np.ndarray: ...

@final
class DeviceArray:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    def numpy(self) -> np.ndarray: ...
    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def check(spec: Spec, layout: Layout | None = None, /) -> None: ...
def check_layout(layout: Layout, /) -> str: ...
def cpu_tier() -> str: ...
def itemsize(dtype: str, /) -> int: ...
def bfloat16() -> np.dtype: ...
def tensors(
    layout: Layout, spec: Spec, optional: int | None = None, /
) -> list[tuple[str, tuple[int, ...]]]: ...
def blocks(
    layout: Layout, spec: Spec, optional: int | None = None, /
) -> list[tuple[_Block, _View]]: ...
def names(layout: Layout, /) -> list[str]: ...
def open_cudnn(path: bytes | None, /) -> None: ...
def describe_cudnn() -> dict[str, Any]: ...
def set_num_threads(n: int, /) -> None: ...
def num_threads() -> int: ...
def cells() -> dict[str, dict[str, Any]]: ...
def settings() -> dict[str, dict[str, Any]]: ...
def rows() -> list[dict[str, Any]]: ...
def layout_rows(layout: Layout, /) -> list[dict[str, Any]]: ...
def read_rows(text: bytes, /) -> tuple[str, object]: ...
def write_rows(layout: Layout, /) -> str: ...
def tape_nbytes(rnn: Rnn, T: int, N: int, /) -> int: ...
def record(
    rnn: Rnn,
    x: np.ndarray,
    h_0: np.ndarray | None,
    c_0: np.ndarray | None,
    lengths: np.ndarray | None,
    y: np.ndarray | None,
    h_n: np.ndarray | None,
    c_n: np.ndarray | None,
    tape: np.ndarray,
    /,
) -> None: ...
def backward(
    rnn: Rnn,
    tape: np.ndarray,
    T: int,
    N: int,
    lengths: np.ndarray | None,
    dy: np.ndarray | None,
    dh_n: np.ndarray | None,
    dc_n: np.ndarray | None,
    dx: np.ndarray | None,
    dh_0: np.ndarray | None,
    dc_0: np.ndarray | None,
    dweights: np.ndarray | None,
    adds: bool,
    /,
) -> None: ...
def aliases() -> list[dict[str, str]]: ...

"""The binding of the C core (csrc/include/rnnlayout.h)."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from rnnlayout._layouts import Layout
from rnnlayout._spec import Spec

HAS_BIAS: int
HAS_PEEPHOLES: int
STEP: int
TIME_FIRST: int
BATCH_FIRST: int
__version__: str

class SpecError(ValueError): ...
class LayoutError(ValueError): ...
class LossyError(LayoutError): ...
class CudnnNotFoundError(RuntimeError): ...

_Block = tuple[int, int, str, int, str]
_View = tuple[int, int, int, int, int, int, int]
_Step = tuple[str, _Block, str, bool, int, int, int, bool, bool]

@final
class Plan:
    def __new__(cls, spec: Spec, src: Layout, has: int, dst: Layout) -> Plan: ...
    @property
    def sources(self) -> list[tuple[str, tuple[int, ...]]]: ...
    @property
    def targets(self) -> list[tuple[str, tuple[int, ...]]]: ...
    @property
    def num_ops(self) -> int: ...
    def steps(self) -> list[_Step]: ...
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
        rounds: bool = False,
        borrows: bool = False,
    ) -> Rnn: ...
    def run(
        self,
        x: Any,
        state: Any,
        lengths: np.ndarray | None,
        out: Any,
        h_out: Any,
        c_out: Any,
        axes: int,
        checked: bool,
        /,
    ) -> Any: ...
    def weights(self) -> np.ndarray: ...

def check(spec: Spec, layout: Layout | None = None, /) -> None: ...
def check_layout(layout: Layout, /) -> None: ...
def cpu_tier() -> str: ...
def itemsize(dtype: str, /) -> int: ...
def tensors(
    layout: Layout, spec: Spec, has: int | None = None, /
) -> list[tuple[str, tuple[int, ...]]]: ...
def blocks(layout: Layout, spec: Spec, has: int | None = None, /) -> list[tuple[_Block, _View]]: ...
def find_cudnn(packages: list[bytes], environments: list[bytes], /) -> dict[str, Any]: ...
def choose_cudnn(path: bytes | None, /) -> None: ...
def set_num_threads(n: int, /) -> None: ...
def num_threads() -> int: ...
def rows() -> list[dict[str, Any]]: ...

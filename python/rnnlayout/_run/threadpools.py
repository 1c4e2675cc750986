"""threadpoolctl finds and limits our threads as a BLAS's, whichever of the two is imported first.

>>> import rnnlayout as rl, threadpoolctl
>>> with threadpoolctl.threadpool_limits(1):
...     rl.num_threads()
1
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

NAME = "threadpoolctl"


def register(threadpoolctl: Any) -> None:
    """Make the team of threads known to it."""
    if not hasattr(threadpoolctl, "register"):  # older than 3.2
        return
    from rnnlayout._native import __version__, num_threads, set_num_threads  # it has to see them

    controller = {
        "user_api": "rnnlayout",
        "internal_api": "rnnlayout",
        "filename_prefixes": ("_native",),
        "check_symbols": ("rnl_num_threads",),  # other packages have a _native too
        "get_num_threads": staticmethod(num_threads),
        "set_num_threads": staticmethod(set_num_threads),
        "get_version": staticmethod(lambda: __version__),
    }
    threadpoolctl.register(type("Team", (threadpoolctl.LibController,), controller))


class _Loader:
    """As threadpoolctl's own, and then registers."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        register(module)


class _Finder:
    """Stands before the finders of modules, and wraps what they find of threadpoolctl."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != NAME:
            return None
        found = (f.find_spec(name, path, target) for f in sys.meta_path if f is not self)
        spec = next(filter(None, found), None)
        if spec:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


if NAME in sys.modules:
    register(sys.modules[NAME])
sys.meta_path.insert(0, _Finder())

"""Register our threads with threadpoolctl, so that threadpool_limits() limits our threads too.

The import of rnnlayout registers the threads if threadpoolctl was imported before. Otherwise the
first RNN registers the threads, and imports threadpoolctl if installed.

    >>> import numpy as np, rnnlayout as rl, threadpoolctl
    >>> rnn = rl.RNN(np.ones(84, "f4"), rl.Spec("lstm", 2, 3))
    >>> with threadpoolctl.threadpool_limits(1):
    ...     rl.num_threads()
    1
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any

NAME = "threadpoolctl"


@cache
def register_threads() -> None:
    """Register the threads at the first call."""
    try:
        threadpoolctl: Any = import_module(NAME)
    except ImportError:
        return
    if not hasattr(threadpoolctl, "register"):  # older than 3.2
        return

    class Team(threadpoolctl.LibController):  # type: ignore[misc]
        """Our library, which may not be loaded yet: functions are imported late."""

        user_api = internal_api = "rnnlayout"
        filename_prefixes = ("_native",)
        check_symbols = ("rnl_num_threads",)  # other packages have a _native too

        def get_num_threads(self) -> int:
            from rnnlayout._native import num_threads

            return num_threads()

        def set_num_threads(self, n: int) -> None:
            from rnnlayout._native import set_num_threads

            set_num_threads(n)

        def get_version(self) -> str:
            from rnnlayout._native import __version__

            return __version__

    threadpoolctl.register(Team)


if NAME in sys.modules:
    register_threads()

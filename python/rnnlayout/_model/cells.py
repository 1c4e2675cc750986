"""What is true of each cell: the core's table."""

from __future__ import annotations

from dataclasses import dataclass

from rnnlayout import _native


@dataclass(frozen=True)
class CellFacts:
    """What is true of a cell. A gate is a letter.

    gates: in cuDNN's order. peepholes: the gates that may have one. candidate: the gate with the
    other activation. has_reset: it has a reset gate. has_c: its state is h and c, otherwise h.
    """

    gates: str
    peepholes: str
    candidate: str
    has_reset: bool
    has_c: bool
    may_project: bool

    @property
    def is_gated(self) -> bool:
        """Whether it has gates with the recurrent activation."""
        return len(self.gates) > 1


CELLS = {name: CellFacts(**facts) for name, facts in _native.cells().items()}

"""Report: what a conversion does to the values of an RNN."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """What a conversion does to these values.

    grade: "exact" (bits are only moved; a negation counts as moved), "rounds" (sums of two
        non-zero biases, a rounded sum with a forget bias, or a dtype that cannot represent every
        value), or "unrepresentable".
    rounded_sums: the number of elements that are such sums.
    reason: why it rounds or is not possible; "" if exact.
    settings: what changes the outputs and is not in the weights, if the target's framework cannot
        represent it (go_backwards in torch), and what to do about it; "" if there is nothing.

    The grade is about bits: an exact conversion has the same outputs only if settings is "".
    str() returns all of it as one line.
    """

    grade: str
    rounded_sums: int = 0
    reason: str = ""
    settings: str = ""

    def __str__(self) -> str:
        grade = f"{self.grade}: {self.reason}" if self.reason else self.grade
        return f"{grade}; {self.settings}" if self.settings else grade


EXACT = Report("exact")

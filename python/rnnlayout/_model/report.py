"""Report: the effect of a conversion on the values of an RNN."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """The effect of a conversion on the values of an RNN.

    grade: "exact" (bits are only moved; a negation counts as moved), "rounds" (sums of two
        non-zero biases, a rounded sum with a forget bias, or a dtype that cannot represent every
        value), or "unrepresentable".
    rounded_sums: the number of sums of two non-zero biases.
    reason: why the conversion rounds or is not possible; "" if exact.
    settings: the settings of the source, outside the weights, that change outputs and that the
        target's framework cannot represent (go_backwards in torch), with the repair; "" if the
        target's framework represents all settings.

    The grade is about bits: an exact conversion has the same outputs only if settings is "".
    str() returns the report in one line.
    """

    grade: str
    rounded_sums: int = 0
    reason: str = ""
    settings: str = ""

    def __str__(self) -> str:
        grade = f"{self.grade}: {self.reason}" if self.reason else self.grade
        return f"{grade}; {self.settings}" if self.settings else grade

    def _repr_html_(self) -> str:
        from .picture.html import html_grade

        return html_grade(self.grade, str(self).removeprefix(self.grade).lstrip(":; "))


EXACT = Report("exact")

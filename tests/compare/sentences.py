"""Are the sentences of a diagnosis true? Each is tested as a statement about the arrays."""

import re

import numpy as np
from compare.repairs import bits, same, wide_of
from compare.report_words import NESTS
from compare.value_sentences import ValueSentences


class Checker(ValueSentences):
    """Tests the sentences of a diagnosis of a case."""

    def check(self):
        diagnosis = self.diagnosis
        if not diagnosis.mistakes:
            if diagnosis.same:
                right = self.as_values(self.case.written, self.dtype)
                self.expect(
                    right is not None and same(right, self.case.like), diagnosis.text, "it differs"
                )
            else:
                self.check_nothing(diagnosis.text)
            return self.false
        if diagnosis.text != "; ".join(self.texts):
            if not diagnosis.text.startswith("; ".join(self.texts) + "; none of the "):
                self.say(diagnosis.text, "not the sentences of the mistakes")
            self.check_nothing(diagnosis.text)
        for mistake in sorted(diagnosis.mistakes, key=lambda m: "not found" not in m.rule):
            if not self.parse(mistake, mistake.text):
                self.say(mistake.text, "UNKNOWN sentence")
        if any(why.startswith("UNKNOWN") for _, why in self.false):
            return self.false
        buffer = self.decoded()
        if buffer is None or self.whole(buffer):
            return self.false
        if diagnosis.fixed is None and not self.tensors:
            return self.false  # of another length, which is not explained
        stored = self.stored(buffer)
        if stored is not None:
            self.check_values(stored)
            self.check_order(buffer)
        return self.false

    def check_nothing(self, sentence):
        """Test "none of the matrices is in it": none is in its right form and order."""
        if isinstance(self.case.written, bytes) or self.case.written.dtype != self.dtype:
            return
        data = bits(self.case.written)
        for name, matrix in self.true.matrices.items():
            x = bits(matrix.ravel())
            if len(np.unique(x)) > 4:
                for at in np.flatnonzero(data[: data.size - x.size + 1] == x[0]):
                    self.expect((data[at : at + x.size] != x).any(), sentence, f"{name} is at {at}")

    def check_order(self, buffer):
        """Test the sentences on the order of matrices and biases by where they are."""
        names = sorted(self.spans, key=self.spans.get)
        roles = {"recurrent matrix": "R", "input matrix": "W", "projection": "P"}
        for kind, text, *rest in self.layout:
            if kind in ("absent", "there"):
                self.check_absence(text, *rest, kind == "absent")
            elif match := re.match(r"the layers are in the order ([\d ]+)", text):
                self.expect(
                    [int(k) for k in match[1].split()] == self.shown_order("layers"),
                    text,
                    str(names),
                )
            elif text.startswith("the directions are swapped"):
                self.expect(self.shown_order("sides") == [1, 0], text, str(names))
            elif match := re.match("the matrices of each layer are in the order (.*)", text):
                order = list(dict.fromkeys(name[2] for name in names))
                self.expect(
                    order == [roles[word] for word in match[1].split(", ")], text, str(names)
                )
            elif text in NESTS.values():
                nest = next(nest for nest, words in NESTS.items() if words == text)
                orders = [list(dict.fromkeys(name[k] for name in names)) for k in range(3)]
                axes = ["ldr".index(letter) for letter in nest.strip()]
                ranks = [[orders[k].index(name[k]) for k in axes] for name in names]
                self.expect(ranks == sorted(ranks), text, str(names))
            elif text == "the biases come before the matrices":
                self.expect(
                    self.free.size and self.free[-1] < min(self.spans.values())[0], text, "not so"
                )
            elif text == "the biases are between the matrices":
                self.expect(
                    self.free.size
                    and min(self.spans.values())[1] <= self.free[0]
                    and self.free[-1] < max(self.spans.values())[0],
                    text,
                    "not so",
                )
            elif match := re.match(r"the biases of each ([\w ]+) come next to its matrices", text):
                runs = 1 + int((np.diff(self.free) > 1).sum())
                D, L = self.spec.num_directions, self.spec.num_layers
                self.expect(
                    runs
                    == {
                        "layer": L if D == 1 or runs == L else L * D,
                        "layer and direction": L * D,
                    }.get(match[1], runs),
                    text,
                    f"{runs} runs",
                )

    def check_absence(self, text, name, gates, absent):
        """Test "is not in the buffer": not all rows of a gate are there, in whichever places."""
        written = self.case.written
        if (
            isinstance(written, bytes)
            or written.dtype != self.dtype
            or "their place" in text
            or "in its place" in text
            or self.said("the bytes of each")
        ):
            return
        true, data = self.true.parts()[name], bits(written)
        for k in range(len(true)) if gates is None else gates:
            rows = true[k] if true[k].ndim == 2 else true[k][None]
            if rows.shape[1] > 3 and len(np.unique(wide_of(rows))) > 3:
                there = all(self.is_there(bits(row), data) for row in rows)
                self.expect(there != absent, text, f"gate {k} of {name}")

    def is_there(self, run, data):
        starts = np.flatnonzero(data[: data.size - run.size + 1] == run[0])
        return any((data[at : at + run.size] == run).all() for at in starts)


def false_sentences(case, diagnosis):
    """Return (sentence, why) of each sentence of a diagnosis that is not true."""
    return Checker(case, diagnosis).check()

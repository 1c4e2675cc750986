"""The words of a report: what each sentence of a diagnosis claims, of which parts."""

import re

import numpy as np
from compare.mistake_machine import GATES
from compare.packed_arrays import Arrays
from compare.wrong_values import DTYPES

# ------------------------------------------------------------------------------------ words, places

ROLES = {
    "input matri": "W", "recurrent matri": "R", "projection": "P", "biases bW": "bW",
    "biases bR": "bR", "biases": "b",
}  # fmt: skip
FORM_WORDS = {
    "gio/goi": "transposed, each gate separately",
    "igo/goi": "transposed, all gates together",
    "goi/gio": "reshaped where a transposition is needed, each gate separately",
    "goi/igo": "reshaped where a transposition is needed, all gates together",
    "ogi/goi": "with the gates interleaved unit by unit",
    "iog/goi": "transposed, with the gates interleaved unit by unit",
    "oig/goi": "with the gates interleaved element by element",
}
NESTS = {
    "dlr": "all layers of the forward direction come before those of the backward direction",
    "dlr ": "all layers of the backward direction come before those of the forward direction",
    "rld": "the matrices are sorted by role: those of all layers with one role come together",
    "rdl": "the matrices are sorted by role, then by direction, then by layer",
    "lrd": "in each layer, the matrices of both directions with one role come together",
    "drl": "the matrices are sorted by direction, then by role, then by layer",
}
BIAS_RULES = {
    "summed (the sum is in bW, and 0 in bR)": lambda w, r: (w + r, 0 * r),
    "summed (the sum is in bR, and 0 in bW)": lambda w, r: (0 * w, w + r),
    "summed (the sum is in both vectors and counts twice)": lambda w, r: (w + r, w + r),
    "summed (half of the sum is in each vector)": lambda w, r: ((w + r) / 2, (w + r) / 2),
    "summed, except those of gate n": lambda w, r: (
        np.stack([w[0] + r[0], w[1] + r[1], w[2]]), np.stack([0 * r[0], 0 * r[1], r[2]])),
    "halved": lambda w, r: (w / 2, r / 2), "doubled": lambda w, r: (w * 2, r * 2),
    "incomplete: bR is replaced by 0": lambda w, r: (w, 0 * r),
    "incomplete: bW is replaced by 0": lambda w, r: (0 * w, r),
    "replaced by 0": lambda w, r: (0 * w, 0 * r),
    "wrong: bW is in both vectors": lambda w, r: (w, w),
    "wrong: bR is in both vectors": lambda w, r: (r, r),
    "wrong: the sum is in bW, and bR beside the sum counts twice": lambda w, r: (w + r, r),
    "wrong: the sum is in bR, and bW beside the sum counts twice": lambda w, r: (w, w + r),
}  # fmt: skip
BUT = r"(?:, but for (?P<but>\d+) values?(?: \(.*\))?)?"
VALUE = r"(?P<count>\d+) of (?P<size>\d+) values? (?:is|are) "


def names_in(words, names):
    """Return which of some (layer, direction, role) are meant by "the biases of layer 1"."""
    meant = set()
    for phrase in re.split(r", (?=the )", words):
        kinds = {role for key, role in ROLES.items() if re.search(rf"{key}(?! b[WR]\b)", phrase)}
        if "all matrices" in phrase:
            kinds |= {"W", "R", "P"}
        if "b" in kinds:
            kinds |= {"bW", "bR"}
        if phrase.startswith("the values") or phrase in ("all values", ""):
            kinds = {"W", "R", "P", "bW", "bR"}
        layers = re.search(r"layers? (\d+(?: and \d+)*)", phrase)
        numbers = {int(k) for k in layers[1].split(" and ")} if layers else None
        side = 0 if "forward" in phrase else 1 if "backward" in phrase else None
        meant |= {
            name for name in names
            if name[2] in kinds and (numbers is None or name[0] in numbers)
            and (side is None or name[1] == side)
        }  # fmt: skip
    return meant


class Claims:
    """What the sentences of a diagnosis of a case claim. false: the sentences that are not true."""

    def __init__(self, case, diagnosis):
        self.case, self.diagnosis, self.false = case, diagnosis, []
        spec = case.spec
        self.tensors = spec.reset == "before"
        self.dtype = np.dtype(DTYPES[case.dtype])
        self.like = case.like
        self.spec = spec
        if self.tensors:  # which are compared as two vectors of biases, bR 0
            self.spec = spec.replace(bias="double", reset="after")
            self.like = np.append(case.like, np.zeros(3 * spec.hidden_size, self.dtype))
        self.true = Arrays(self.spec, self.like)
        self.names = [*self.true.parts()]
        self.texts = [mistake.text for mistake in diagnosis.mistakes]
        self.signs, self.scales = {}, {}
        self.orders, self.forms, self.unknown = {}, {}, set()
        self.axes, self.turned, self.joined, self.vectors = "", set(), "", None
        self.rules, self.shifts, self.values = {}, [], []
        self.layout, self.extra, self.written = [], slice(0), {}

    def say(self, sentence, why):
        self.false.append((sentence, why))

    def expect(self, true, sentence, why):
        if not true:
            self.say(sentence, why)
        return bool(true)

    def where(self, mistake, words):
        """Return the names that a sentence is about, from its words; they must be `where`."""
        among = self.names
        meant = names_in(words, among) if words else set(among)
        places = {*mistake.where}
        places |= {(*at, role) for *at, kind in places if kind == "b" for role in ("bW", "bR")}
        said = places & {*among}
        vacuous = {n for n in meant if len(self.true.parts()[n]) == 1 and "gate" in mistake.text}
        if mistake.where and words and meant - self.unknown - vacuous - said | said - meant:
            self.say(mistake.text, f"where is {sorted(said)}, the words mean {sorted(meant)}")
        return said if mistake.where else meant

    def parse(self, mistake, text):
        """Read a sentence; return whether the sentence is known."""
        if match := re.fullmatch(
            r"(all matrices[^:]*?|the (?!layers|directions)[a-zRW ]*(?:matri|projection)[^:]*?)"
            r" are "
            r"((?:transposed|reshaped|in reverse|with (?:the gates|rows|columns|strides)).*)",
            text,
        ):
            for name in self.where(mistake, match[1]):
                self.forms[name] = match[2]
        elif match := re.fullmatch(
            r"gates (?:in the order ([\w ]+), expected ([\w ]+?)|(\w) and (\w) swapped)"
            r"(?: in (.*))?",
            text,
        ):
            expected = (match[2] or f"{match[3]} {match[4]}").split()
            order = (match[1] or f"{match[4]} {match[3]}").split()
            gates = GATES[self.spec.cell]
            perm = list(range(len(gates)))
            for slot, gate in zip(expected, order, strict=True):
                perm[gates.index(slot)] = gates.index(gate)
            for name in self.where(mistake, match[5]):
                if len(self.true.parts()[name]) > 1:
                    self.orders[name] = perm
        elif match := re.fullmatch(
            r"(?:(all gates)|gates? (\w(?: and \w)*)) negated(?: in ([^:]*))?(?:: z scales.*)?",
            text,
        ):
            letters = GATES[self.spec.cell] if match[1] else match[2].split(" and ")
            for name in self.where(mistake, match[3]):
                self.signs[name] = {GATES[self.spec.cell].index(letter) for letter in letters}
        elif match := re.fullmatch(r"(.*) are multiplied by ([-\d.e+]+)", text):
            for name in self.where(mistake, match[1]):
                self.scales[name] = float(match[2])
        elif match := re.fullmatch(
            r"the input and recurrent matrices are joined (row|gate) by \1", text
        ):
            self.joined = match[1]
        elif (
            match := re.fullmatch(
                r"(.*) are (.*?)(?:: (the same function|another function).*)?", text
            )
            if re.sub(r": (?:the same|another) function.*", "", text).partition(" are ")[2]
            in BIAS_RULES
            else None
        ):
            for name in self.where(mistake, match[1]):
                if name[2] in ("bW", "bR"):
                    self.rules[name[:2]] = (match[2], text, match[3])
        elif match := re.fullmatch(r"(.*) are split differently between bW and bR.*", text):
            for name in self.where(mistake, match[1]):
                self.rules[name[:2]] = ("split", text, None)
        elif match := re.fullmatch(
            r"(the .*|all .*) of gate (\w) have ([\d.e+-]+) (added to|subtracted from) them in "
            r"(b[WR])(?: \(a forget bias\))?",
            text,
        ):
            number = float(match[3]) * (1 if match[4].startswith("a") else -1)
            for name in self.where(mistake, match[1]):
                if name[2] == match[5]:
                    self.shifts.append((name, GATES[self.spec.cell].index(match[2]), number))
        elif match := re.fullmatch(
            r"(?:gates? ([\w ]+) of )?(layer .*), (.*) (?:is|are)"
            r" (not in|in) the (?:buffer|tensors)"
            r"(, in no form that is searched for)?(: in (?:its|their) place.*)?",
            text,
        ):
            letters = match[1].split(" and ") if match[1] else []
            for name in self.where(mistake, f"the {match[3]} of {match[2]}"):
                gates = [GATES[self.spec.cell].index(letter) for letter in letters]
                located = gates and any(
                    line.startswith(f"{match[2]}, {match[3]}: elements")
                    or f"({match[2]}, {match[3]})" in line
                    for line in self.diagnosis.evidence
                )
                self.unknown |= {(*name, gate) for gate in gates} if located else {name}
                self.layout.append(
                    ("absent" if match[4] == "not in" else "there", text, name, gates or None)
                )
        elif match := re.fullmatch(
            r"(the biases.*) are (in reverse order of units|interleaved unit by unit|"
            r"written with (\d+) values from gate to gate, expected \d+| and )+",
            text,
        ):
            for name in self.where(mistake, match[1]):
                self.written[name] = text
        elif (
            text == "bR comes before bW, each in the other's place: " + text.partition("place: ")[2]
        ):
            self.turned.add("v")
        elif match := re.fullmatch(
            r"the (layers|directions) of the (?:biases|matrices, but not of the biases,) are in "
            "reverse order",
            text,
        ):
            self.turned.add(match[1][0])
        elif match := re.fullmatch(r"the biases are sorted by (.*)", text):
            words = {
                "layer": "l",
                "direction": "d",
                "vector (bW, bR)": "v",
                "gate": "g",
                "unit": "o",
            }
            self.axes = "".join(words[word] for word in re.split(r", (?!bR\))", match[1]))
        elif text == "the buffer has one bias vector per layer and direction where cuDNN has two":
            self.vectors = 1
        elif text == "the biases are left out":
            self.vectors = 0
        elif re.fullmatch(VALUE + r"changed.*", text) or re.fullmatch(
            VALUE + r"0(?: in .*?)?, the others are as they were \(pruned\?\)" + BUT, text
        ):
            self.values.append((mistake, text))
        elif re.fullmatch(VALUE + "rounded, as too small for the dtype", text):
            self.layout.append(("layout", text))
        elif re.fullmatch(
            r"(.*?) are (rounded|cut off|quantized|clipped) to .*?" + BUT, text
        ) or re.fullmatch(
            r"(.*?) of gate f are rounded, as 1 was added and subtracted again \(a forget bias\)"
            + BUT,
            text,
        ):
            self.values.append((mistake, text))
        elif (
            re.match(
                r"the (layers are in|directions are swapped|matrices (of each layer )?are in the)"
                r"|the biases |the bytes of|the values are (float|bfloat|rolled)|the hidden units"
                r"|all values are in the reverse|the buffer has"
                r"|the values are in another",
                text,
            )
            or text in NESTS.values()
        ):
            self.layout.append(("layout", text))
        else:
            return False
        return True

    def said(self, pattern):
        for text in self.texts:
            if match := re.match(pattern, text):
                return match
        return None

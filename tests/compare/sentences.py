"""Are the sentences of a diagnosis true? Each is tested as a statement about the arrays.

The report says where each matrix is, and how it was written: from there each value is read, in
numpy and apart from the code that made the report. The value must be the true value, or be among
those of which a sentence says what was done to them; what a sentence counts is counted again.
"""

import re
from functools import partial

import ml_dtypes
import numpy as np
from compare.repairs import bits, same, wide_of
from compare.report_words import BIAS_RULES, BUT, FORM_WORDS, NESTS, VALUE, Claims
from compare.wrong_packers import DTYPES, FORMS, as_text, bits_kept, fixed_point, via


class Checker(Claims):
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

    def as_values(self, written, dtype):
        if isinstance(written, bytes):
            return np.frombuffer(written[: len(written) // dtype.itemsize * dtype.itemsize], dtype)
        return written if written.dtype == dtype else None

    # ------------------------------------------------------------------------------ the buffer

    def decoded(self):
        """Return the buffer's values as the sentences on dtype, bytes and length say; None if other
        sentences cannot be tested, or a sentence is false."""
        written, dtype = self.case.written, self.dtype
        if self.tensors:
            written = np.append(written, np.zeros(3 * self.case.spec.hidden_size, dtype))
        raw = written if isinstance(written, bytes) else None
        swapped = self.said("the bytes of each value are in the other order")
        if read_as := self.said(r"the values are (\w+), but were read as (\w*)"):
            raw = raw or written.tobytes()
            values = np.frombuffer(raw, DTYPES.get(read_as[1], read_as[1]))
        elif other := self.said(r"the values are (b?float\d+), expected (b?float\d+)"):
            name = np.dtype(DTYPES.get(other[1], other[1]))
            self.expect(other[2] == self.case.dtype, other[0], "expected dtype")
            if raw is None and written.dtype != name:
                self.say(other[0], f"the dtype is {written.dtype}")
                return None
            with np.errstate(all="ignore"):
                values = (np.frombuffer(raw, name) if raw else written).astype(dtype)
        elif raw is not None:
            rest = len(raw) % dtype.itemsize
            front = self.said("the buffer has.*in front")
            values = np.frombuffer(
                raw[rest if front else 0 :][: len(raw) // dtype.itemsize * dtype.itemsize], dtype
            )
        elif written.dtype != dtype and not swapped:
            self.say(self.diagnosis.text, f"the dtype {written.dtype} is not mentioned")
            return None
        else:
            values = written
        if swapped:
            values = bits(values).byteswap().view(values.dtype)
            if values.dtype != dtype:
                values = values.astype(dtype)
        if length := self.said(
            r"the buffer has (\d+) values(?: and (\d+) bytes?)?, expected (\d+)(.*)"
        ):
            nbytes = len(written) if isinstance(written, bytes) else written.nbytes
            count = int(length[1]) * values.itemsize + int(length[2] or 0)
            right = [
                nbytes,
                nbytes
                * dtype.itemsize
                // (written.itemsize if not isinstance(written, bytes) else dtype.itemsize),
            ]
            self.expect(
                count in right and int(length[3]) == self.like.size, length[0], "the counts"
            )
            return self.of_right_length(values, length)
        return values

    def of_right_length(self, values, length):
        size, text = self.like.size, length[4]
        if match := re.match(
            r": (\d+)( bytes?)? too many(?:, (at the end|in front|between the others))?$", text
        ):
            extra = (values.size - size) * values.itemsize + int(length[2] or 0)
            self.expect(
                int(match[1]) == (extra if match[2] else values.size - size), length[0], "how many"
            )
            if match[3] in ("at the end", "in front"):
                self.extra = (
                    slice(size, None) if match[3] == "at the end" else slice(0, values.size - size)
                )
                return values
            return None
        if match := re.match(
            r": the (first|last) (\w+)(?: and the last (\w+))? (?:is|are) missing", text
        ):
            n = [1 if k == "one" else int(k or 0) for k in match.groups()[1:]]
            first, last = n if match[1] == "first" else (0, n[0])
            self.expect(
                same(values, self.like[first : size - last]), length[0], "other values are missing"
            )
        elif text:
            self.say(length[0], "UNKNOWN length")
        return None

    def whole(self, buffer):
        """Test a sentence on all values in another order; return whether there is one."""
        like = self.like
        if text := self.said("all values are in the reverse order"):
            self.expect(same(buffer[::-1], like), text[0], "not so")
        elif text := self.said(r"the values are rolled by (-?\d+)"):
            self.expect(same(np.roll(buffer, -int(text[1])), like), text[0], "not so")
        elif text := self.said("the hidden units|the values are in another order"):
            self.expect(
                not same(buffer, like) and same(np.sort(wide_of(buffer)), np.sort(wide_of(like))),
                text[0],
                "not so",
            )
        return bool(text)

    def written_ids(self, name, span):
        """Return the places of a matrix in the buffer, as (gates, rows, columns)."""
        shape = self.true.matrices[name].shape
        form = self.forms.get(name, "")
        gates, rows, columns = shape
        order = self.orders.get(name, range(gates))
        ids = np.arange(np.prod(shape)).reshape(shape)[list(order)]
        rolls = [
            int((re.search(rf"{axis} rolled by (-?\d+)", form) or "00")[1])
            for axis in ("rows", "columns")
        ]
        if any(rolls):
            ids = np.roll(ids, rolls, (1, 2))
        words, _, turned = form.partition("in reverse order of ")
        words = words.removesuffix(", ")
        key = next((key for key, text in FORM_WORDS.items() if text == words), None)
        width, room = columns, span[1] - span[0]
        if match := re.search(r"with rows of (\d+) values", words):
            width = int(match[1])
        if self.joined == "row" and name[2] in "WR":
            width = sum(self.true.matrices[(*name[:2], role)].shape[2] for role in "WR")
        if (
            width != columns
            or (self.joined == "gate" and name[2] in "WR")
            or "strides" in words
            or (not key and room != np.prod(shape))
        ):
            if "strides" in words or "transposed, with rows" in words:
                return None
            gate = (room - (rows - 1) * width - columns) // max(gates - 1, 1)
            at = span[0] + (
                np.arange(gates)[:, None, None] * gate
                + np.arange(rows)[:, None] * width
                + np.arange(columns)
            )
        elif room != np.prod(shape):  # joined gate by gate
            gate = (room - rows * columns) // max(gates - 1, 1)
            at = span[0] + np.arange(gates)[:, None] * gate + np.arange(rows * columns)
        else:
            at = span[0] + np.arange(np.prod(shape))
        if turned:
            if key:
                return None
            at = at.reshape(shape)
            at = np.flip(
                at, [1 + k for k, word in enumerate(("rows", "columns")) if word in turned]
            )
        sequence = FORMS[key](ids) if key else ids.ravel()
        places = np.empty(ids.size, int)
        places[sequence] = at.ravel()
        return places.reshape(shape)

    def stored(self, buffer):
        """Return the values of each part, in the true order; None if the report does not say where
        they are."""
        spans = {}
        for line in self.diagnosis.evidence:
            if match := re.match(
                r"layer (\d+)( forward| backward)?, (input matrix|recurrent matrix|projection): "
                r"elements (\d+) to (\d+)",
                line,
            ):
                role = {"i": "W", "r": "R", "p": "P"}[match[3][0]]
                spans[int(match[1]), int(match[2] == " backward"), role] = (
                    int(match[4]),
                    int(match[5]),
                )
        starts, at = {}, 0
        for name, x in self.true.matrices.items():
            starts[name] = (at, at + x.size)
            at += x.size
        if self.tensors:
            spans = {name: starts[name] for name in starts if name not in self.unknown}
        self.spans = spans
        used, stored = np.zeros(buffer.size, bool), {}
        used[self.extra] = True
        for name in self.true.matrices:
            if name in self.unknown:
                first = self.extra.stop if self.extra.stop else 0
                used[slice(first + starts[name][0], first + starts[name][1])] = True
                continue
            if name not in spans:
                self.say(f"evidence: {self.diagnosis.evidence}", f"nothing on {name}")
                return None
            places = self.written_ids(name, spans[name])
            if places is None:
                return None
            if places.max() >= buffer.size:
                self.say(str(self.forms.get(name)), "it ends after the buffer")
                return None
            used[places] = True
            stored[name] = buffer[places]
        free = np.flatnonzero(~used)
        self.free = free
        if not any(b.size for b in self.true.biases.values()) or self.vectors == 0:
            return stored
        spec, vectors = self.spec, self.vectors or self.true.vectors
        shape = spec.num_layers, spec.num_directions, vectors, len(self.true.gates)
        sizes = dict(zip("ldvgo", (*shape, spec.hidden_size), strict=True))
        axes = self.axes + "".join(a for a in "ldvgo" if a not in self.axes)
        sorted_by_direction = any(self.said(NESTS[nest]) for nest in ("dlr", "dlr ", "rdl", "drl"))
        if not self.axes and sizes["d"] > 1 < sizes["l"] and sorted_by_direction:
            axes = "dl" + axes[2:]
        total = int(np.prod([*sizes.values()]))
        if (
            re.search(
                r"values apart|biases (are apart|are in the order|begin)|next to its matrix",
                self.diagnosis.text,
            )
            or self.written
            or free.size != total
        ):
            return self.with_places(stored, buffer)
        if self.shown_order("layers") != sorted(self.shown_order("layers")):
            self.turned ^= {"l"}
        if self.shown_order("sides") == [1, 0]:
            self.turned ^= {"d"}
        places = free.reshape([sizes[a] for a in axes]).transpose([axes.index(a) for a in "ldvgo"])
        places = np.flip(places, ["ldv".index(a) for a in self.turned])
        for name in self.true.parts():
            if name[2] in ("bW", "bR") and ("bW" in name or self.vectors != 1):
                v = ["bW", "bR"].index(name[2]) if self.true.vectors == 2 else 0
                stored[name] = buffer[places[name[0], name[1], v]]
                if name in self.orders:
                    x = np.empty_like(stored[name])
                    x[list(self.orders[name])] = stored[name]
                    stored[name] = x
        return stored

    def shown_order(self, axis):
        k = {"layers": 0, "sides": 1}[axis]
        names = sorted(self.spans, key=self.spans.get)
        return list(dict.fromkeys(name[k] for name in names))

    def with_places(self, stored, buffer):
        """Read the biases where the picture draws them."""
        for place in self.diagnosis.places:
            layer, side, role, gate = place.key
            if role in ("bW", "bR"):
                x = stored.setdefault(
                    (layer, side, role),
                    np.full((len(self.true.gates), self.spec.hidden_size), np.nan, self.dtype),
                )
                values = buffer[place.at :: max(place.row_stride, 1)][: place.rows]
                turned = "reverse order of units" in self.written.get(place.key[:3], "")
                x[self.true.gates.index(gate)] = values[::-1] if turned else values
        return stored

    # ------------------------------------------------------------------------------- the values

    def check_values(self, stored):
        parts, eps = self.true.parts(), float(ml_dtypes.finfo(self.dtype).eps)
        tiny = float(ml_dtypes.finfo(self.dtype).smallest_subnormal)
        x, b, wide = {}, {}, {}
        for at in self.true.biases:
            self.check_rule(at, stored, eps)
        for name in stored:
            if name in self.unknown:
                continue
            x[name], b[name] = wide_of(stored[name]), wide_of(parts[name])
            wide[name] = np.zeros(x[name].shape)
            with np.errstate(all="ignore"):
                if name in self.signs:
                    x[name][[*self.signs[name]]] *= -1
                rule = self.rules.get(name[:2]) if name[2] in ("bW", "bR") else None
                if rule and rule[0] == "split":
                    del x[name]
                    continue
                if rule:
                    w, r = (
                        wide_of(parts.get((*name[:2], role), 0 * parts[name]))
                        for role in ("bW", "bR")
                    )
                    b[name] = np.asarray(BIAS_RULES[rule[0]](w, r)[name[2] == "bR"])
                    exact = (w, r, w / 2, r / 2, 2 * w, 2 * r)
                    if not any(np.array_equal(b[name], vector) for vector in exact):
                        wide[name] = min(8 * eps, 2**-6) * (abs(w) + abs(r)) * (b[name] != 0)
                for shifted, gate, number in self.shifts:
                    if shifted == name:
                        b[name] = b[name].copy()
                        b[name][gate] += number
                        wide[name][gate] += 16 * eps * (abs(b[name][gate]) + abs(number))
                if name in self.scales and b[name].any():
                    ratio = x[name] / b[name]
                    ratio = float(np.median(ratio[np.isfinite(ratio)]))
                    unit = 10.0 ** (
                        np.floor(np.log10(self.scales[name]))
                        - (5 if eps < 1e-4 else 2 if eps < 2e-3 else 1)
                    )
                    self.expect(
                        abs(ratio - self.scales[name]) <= unit + 2 * eps * ratio,
                        f"x {self.scales[name]}",
                        f"{name} by {ratio}",
                    )
                    b[name] = b[name] * ratio
                    wide[name] = wide[name] * ratio
                    if np.frexp(ratio)[0] != 0.5:
                        wide[name] = wide[name] + 32 * eps * np.nan_to_num(abs(b[name])) + 2 * tiny
        for name, gate in [(u[:3], u[3]) for u in self.unknown if len(u) == 4]:
            if name in x:
                x[name][gate] = b[name][gate]
        self.check_changes(x, b, wide)

    def check_rule(self, at, stored, eps):
        """Test "split differently", "the same function" and "another function"."""
        rule = self.rules.get(at)
        if not rule or (*at, "bR") not in stored or (*at, "bW") in self.unknown:
            return
        x, b = (
            [wide_of(parts[(*at, role)]) for role in ("bW", "bR")]
            for parts in (stored, self.true.parts())
        )
        sums = abs(x[0] + x[1] - b[0] - b[1]) <= 8 * eps * (
            abs(x[0]) + abs(x[1]) + abs(b[0]) + abs(b[1])
        )
        if rule[0] == "split":
            self.expect(sums.all() and (x[0] != b[0]).any(), rule[1], "the sums differ")

    def check_changes(self, x, b, wide):
        """Test the sentences on changes of values, and that no other value differs."""
        with np.errstate(all="ignore"):
            differs = {
                n: ~(
                    (abs(x[n] - b[n]) <= wide[n])
                    | (x[n] == b[n])
                    | (np.isnan(x[n]) & np.isnan(b[n]))
                )
                for n in x
            }
        layers = {name[:2] for name in self.unknown if name[2] in ("bW", "bR")}
        size = sum(y.size for n, y in x.items() if n[2] in "WRP" or n[:2] not in layers)
        changed = None
        for mistake, text in self.values:
            if match := re.match(VALUE + "changed", text):
                changed = match, text, mistake
                continue
            but = re.search(BUT + "$", text)
            listed = int(but["but"] or 0)
            body = text[: but.start()] if but["but"] else text
            words = re.match(r"(.*?)(?: of gate f)? are |.*?$", body)[1] or ""
            if match := re.match(VALUE + "0(?: in (.*?))?, the others", body):
                words = match[3] or "the values"
            names = [n for n in self.where(mistake, words) if n in x]
            fits = {n: self.fits(body, n, x[n], b[n], wide[n], listed, text) for n in names}
            number = sum(int((~fit).sum()) for fit in fits.values())
            if "quantized" in body:
                self.expect(number <= listed, text, f"{number} values are not so")
            else:
                self.expect(number == listed, text, f"{number} values are not so")
            if "pruned" in body:
                zeros = sum(int(((x[n] == 0) & differs[n]).sum()) for n in names)
                self.expect(
                    int(match["count"]) == zeros and int(match["size"]) == size,
                    text,
                    f"{zeros} of {size}",
                )
            self.expect(any(differs[n].any() for n in names), text, "no value differs")
            for n in names:
                differs[n] = (
                    differs[n] & ~fits[n] if "quantized" not in body else np.zeros(x[n].shape, bool)
                )
                self.quantized = getattr(self, "quantized", False) or "quantized" in body
        if other := self.said(r"the values are (b?float\d+), expected"):
            for n in x:
                differs[n] &= wide_of(via(other[1])(b[n].astype(self.dtype))) != x[n]
        with np.errstate(all="ignore"):  # how many differ by much more, or at all by more than half
            less, more = (
                sum(
                    int((d & ~(abs(x[n] - b[n]) <= 4 * wide[n])).sum()) for n, d in differs.items()
                ),
                sum(int((d | (abs(x[n] - b[n]) > wide[n] / 8)).sum()) for n, d in differs.items()),
            )
        if not any(w.any() for w in wide.values()) or self.values[1:]:
            more = less
        count = sum(int(d.sum()) for d in differs.values())
        if not changed:
            where = {name: int(mask.sum()) for name, mask in differs.items() if mask.any()}
            self.expect(count == 0, self.diagnosis.text, f"{count} other values differ: {where}")
            return
        match, text, mistake = changed
        if getattr(self, "quantized", False):
            return
        number = int(match["count"])
        self.expect(
            (number == count or less <= number <= more) and int(match["size"]) == size,
            text,
            f"{count} of {size} values differ",
        )
        nans = sum(int((np.isnan(x[n]) & d).sum()) for n, d in differs.items())
        stated = re.search(r"changed(?:, (\d+) of them)? to NaN", text)
        self.expect(nans == (int(stated[1] or count) if stated else 0), text, f"{nans} NaN")
        if most := re.search(r"by up to ([\w.e+-]+)", text):
            with np.errstate(all="ignore"):
                gaps = [np.nanmax(abs(x[n] - b[n])[d], initial=0) for n, d in differs.items()]
            self.expect(
                np.isclose(float(most[1]), max(gaps), rtol=6e-3)
                or self.scales
                or not np.isfinite(float(most[1])),
                text,
                f"by {max(gaps)}",
            )
        for name in mistake.where:
            roles = ("bW", "bR") if name[2] == "b" else (name[2],)
            self.expect(
                any(differs.get((*name[:2], r), np.zeros(1)).any() for r in roles),
                text,
                f"{name} does not differ",
            )

    def fits(self, text, name, x, b, wide, listed, whole):
        """Return which values of a part are as a sentence says."""
        with np.errstate(all="ignore"):
            equal = (abs(x - b) <= wide) | (x == b) | (np.isnan(x) & np.isnan(b))
            if "pruned" in text:
                return equal | (x == 0)
            if match := re.search(r"clipped to ([\d.e+-]+)", text):
                sizes = np.unique(abs(x))
                limit = sizes[np.argmin(abs(sizes - float(match[1])))]
                limit = limit if np.isclose(limit, float(match[1]), rtol=1e-5) else float(match[1])
                return abs(x - np.clip(b, -limit, limit)) <= wide
            if "subtracted again" in text:
                t = self.dtype.type
                gate = np.zeros(x.shape, bool)
                gate[self.true.gates.index("f")] = name[2] in ("bW", "bR")
                ways = [
                    abs(x - wide_of((b.astype(t) + t(s)) - t(s)))
                    <= 2 * wide + 4 * float(ml_dtypes.finfo(t).eps) * (wide > 0)
                    for s in (1, -1)
                ]
                return equal | (gate & (ways[0] | ways[1]))
            if match := re.search(
                r"quantized to (\d+) bits, with one scale (and zero point )?(.*)", text
            ):
                return self.fits_grid(int(match[1]), bool(match[2]), match[3], x, b, wide)
            return self.fits_rounding(text, x, b, wide)

    def fits_rounding(self, text, x, b, wide):
        t = self.dtype.type
        if match := re.search(r"rounded to (\w+?)(?:,|$| \()", text):
            rounding = via(match[1]) if match[1] in ("float16", "bfloat16", "float32") else None
            rounding = partial(bits_kept, bits=13) if match[1] == "TF32" else rounding
        if "cut off to bfloat16" in text:
            rounding = partial(bits_kept, bits=16, nearest=False)
        if "cut off to TF32" in text:
            rounding = partial(bits_kept, bits=13, nearest=False)
        if match := re.search(r"(\d+) decimals?", text):
            rounding = as_text(f"%.{match[1]}f")
        if match := re.search(r"(\d+) significant", text):
            rounding = as_text(f"%.{int(match[1]) - 1}e")
        if match := re.search(r"with (\d+) bits after", text):
            rounding = fixed_point(int(match[1]))

        def r(y):
            return wide_of(rounding(y.astype(t)))

        nans = np.isnan(x) & np.isnan(b)
        if not wide.any():
            y = r(b)
            step = 1e-9 * abs(b)
            tie = (
                (r(b - step) <= x) & (x <= r(b + step))
                if "decimal" in text or "significant" in text
                else False
            )
            return (x == y) | nans | tie
        return ((r(b - 2 * wide) <= x) & (x <= r(b + 2 * wide)) & (r(x) == x)) | nans

    def fits_grid(self, count, zero_point, group, x, b, wide):
        """Return which values are near enough to be of a grid, if each group has few values."""
        y = x.reshape((1, *x.shape)) if x.ndim == 2 else x
        c, w = b.reshape(y.shape), wide.reshape(y.shape)
        if match := re.match(r"per (\d+) values of a row", group):
            y, c, w = (z.reshape(*z.shape[:2], -1, int(match[1])) for z in (y, c, w))
            axes = (3,)
        else:
            axes = {
                "per gate": (1, 2),
                "per row": (2,),
                "per column": (0, 1),
                "per column of each gate": (1,),
            }.get(group, (0, 1, 2))
        groups = np.moveaxis(y, axes, range(-len(axes), 0)).reshape(
            -1, int(np.prod([y.shape[a] for a in axes]))
        )
        few = [len(np.unique(g[np.isfinite(g)])) <= 2**count + 8 for g in groups]
        finite = np.where(np.isfinite(y), y, 0)
        low, high = finite.min(axes, keepdims=True), finite.max(axes, keepdims=True)
        if group == "for all":
            high = np.full_like(high, np.inf)
        span = np.maximum(high, 0) - np.minimum(low, 0) if zero_point else np.maximum(high, -low)
        step = span / max(2 ** (count - (not zero_point)) - 2, 1)
        fits = abs(y - c) <= 1.02 * step + w
        return fits.reshape(x.shape) & all(few)

    # -------------------------------------------------------------------------------- the order

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

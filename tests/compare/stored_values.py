"""Where is each value of a wrong buffer, by what the report says? Each is read there, in numpy and
apart from the code that made the report."""

import re

import numpy as np
from compare.packed_arrays import FORMS
from compare.repairs import bits, same, wide_of
from compare.report_words import FORM_WORDS, NESTS, Claims
from compare.wrong_values import DTYPES


class StoredValues(Claims):
    """Reads the values of a buffer where the sentences of a diagnosis say that they are.

    Tests the sentences on dtype, bytes, length, and the order of all values.
    """

    def as_values(self, written, dtype):
        if isinstance(written, bytes):
            return np.frombuffer(written[: len(written) // dtype.itemsize * dtype.itemsize], dtype)
        return written if written.dtype == dtype else None

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
            or any(used[place.at] for place in self.diagnosis.places if "b" in place.key[2])
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

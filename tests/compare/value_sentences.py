"""Is each value as a sentence says? It is the true value, or among those of which a sentence says
what was done to them; what a sentence counts is counted again."""

import re
from functools import partial

import ml_dtypes
import numpy as np
from compare.repairs import rounding_of_sums, wide_of
from compare.report_words import BIAS_RULES, BUT, VALUE
from compare.stored_values import StoredValues
from compare.wrong_values import as_text, bits_kept, fixed_point, via


class ValueSentences(StoredValues):
    """Tests the sentences on values."""

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
                        wide[name] = rounding_of_sums(eps) * (abs(w) + abs(r)) * (b[name] != 0)
                for shifted, gate, number in self.shifts:
                    if shifted == name:
                        b[name] = b[name].copy()
                        wide[name][gate] += 2 * eps * (abs(b[name][gate]) + abs(number))
                        b[name][gate] += number
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
        by_dtype = {}
        if other := self.said(r"the values are (b?float\d+), expected"):
            for n in x:
                by_dtype[n] = differs[n] & (wide_of(via(other[1])(b[n].astype(self.dtype))) == x[n])
                differs[n] = differs[n] & ~by_dtype[n]
        with np.errstate(all="ignore"):  # how many differ by much more, or at all by more than half
            less, more = (
                sum(
                    int((d & ~(abs(x[n] - b[n]) <= 4 * wide[n])).sum()) for n, d in differs.items()
                ),
                sum(int((d | (abs(x[n] - b[n]) > wide[n] / 8)).sum()) for n, d in differs.items()),
            )
        if not any(w.any() for w in wide.values()) or self.values[1:]:
            more = less
        more += sum(int(mask.sum()) for mask in by_dtype.values())
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
                "per gate": (1, 2)[x.ndim == 2 :],
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

"""The tables about layouts: what each supports, a section on each, and which pairs convert."""

from collections import Counter
from functools import cache

import rnnlayout as rl
from rnnlayout import LossyError, _native
from rnnlayout._convert.engine import result_spec
from rnnlayout._model.config import SETTINGS
from rnnlayout._model.spec import optional_tensors_of
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES
from rnnlayout._sources.candidates import UnsizedRNN, is_one_vector

CELLS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN"}
CHECKED = {
    "framework": "the framework itself",
    "recorded": "recorded answers of the framework",
    "documents": "its documents",
}
Z = {"state": "h' = z h + (1 - z) n", "candidate": "h' = (1 - z) h + z n"}


def markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


# ------------------------------------------------------------------------ what a layout supports


def gates(info, cell):
    return " ".join(info["gates"][cell]) if cell in info["gates"] else "-"


def biases(layout, cell, reset):
    """Return the number of bias vectors per gate as text: "1", "2", or "1, for n 2"."""
    try:
        blocks = _native.blocks(rl.layout(layout), rl.Spec(cell, 2, 3, reset=reset), HAS_BIAS)
    except LossyError:
        return ""
    counts = Counter(gate for (_, _, role, _, gate), _ in blocks if role in ("bW", "bR"))
    least = min(counts.values())
    return ", ".join([str(least), *(f"for {g} {n}" for g, n in counts.items() if n > least)])


def bias_column(layout, info):
    kinds = [("LSTM", "lstm", "after"), ("RNN", "rnn_tanh", "after")]
    kinds += [(f"GRU, reset {reset}", "gru", reset) for reset in info["resets"]]
    by_count = {}
    for what, cell, reset in kinds:
        if count := biases(layout, cell, reset):
            by_count.setdefault(count, []).append(what)
    if len(by_count) == 1:
        return next(iter(by_count))
    return ", ".join(f"{count} ({'; '.join(by_count[count])})" for count in sorted(by_count))


def checked(values):
    return "; ".join(CHECKED[value] for value in dict.fromkeys(values))


def held():
    """What each layout supports."""
    rows = []
    for name, info in rl.layouts().items():
        rows.append([
            f"`{name}`",
            *(gates(info, cell) for cell in CELLS),
            " or ".join(sorted(info["resets"])) or "-",
            bias_column(name, info),
            "yes" if info["projection"] else "no",
            "yes" if info["peepholes"] else "no",
            "yes" if "hard_sigmoid" in info["recurrent_activations"] else "no",
            "yes" if info["relu"] else "no",
            ", ".join(f"`{option}`" for option in info["options"]) or "-",
            checked(info["checked"]),
        ])  # fmt: skip
    head = ["layout", "LSTM gates", "GRU gates", "RNN", "GRU reset", "biases per gate",
            "projection", "peepholes", "hard sigmoid", "relu", "options",
            "checked against"]  # fmt: skip
    return markdown(head, rows)


def literal():
    """Return the type of the names of the layouts that are a dict of tensors, as Python code."""
    lines = "".join(f'    "{name}",\n' for name in rl.layouts() if name != "cudnn")
    return f"LayoutName = Literal[\n{lines}]\n# "


# ---------------------------------------------------------------------- a section on each layout


def each_layout():
    return "\n".join(f"## {name}\n\n{section(name, info)}" for name, info in rl.layouts().items())


def section(name, info):
    facts = [f"Source: {row['source']}. Checked against {CHECKED[row['checked']]}."
             for row in info["rows"]]  # fmt: skip
    facts += [f"Also called `{alias['name']}`: {alias['source']}. Checked against"
              f" {CHECKED[alias['checked']]}." for alias in info["aliases"]]  # fmt: skip
    if "gru" in info["gates"]:
        z = {Z[row["z"]] for row in info["rows"] if "gru" in row["gates"]}
        if "z" not in info["options"]:
            facts.append(f"GRU: {' or '.join(sorted(z))}.")
    if all(row["bias_always"] for row in info["rows"]):
        facts.append("It always has biases.")
    if info["must_name"]:
        facts.append("Its tensors look like those of another layout, so they are read in it only"
                     f' with `layout="{name}"`.')  # fmt: skip
    facts += [f"Option `{option}`: " + "; ".join(
                  f"`{value}`{' (default)' if k == 0 else ''}: {note}"
                  for k, (value, note) in enumerate(values.items())) + "."
              for option, values in info["options"].items()]  # fmt: skip
    return "".join(f"- {fact}\n" for fact in facts) + "\n" + tensors(name, info)


def tensors(name, info):
    """Names and shapes of the tensors of one layer in one direction."""
    rows = []
    forms = [(cell, title, reset, HAS_BIAS) for cell, title in CELLS.items()
             for reset in (info["resets"] if cell == "gru" else ["after"])]  # fmt: skip
    if info["peepholes"]:
        forms.insert(1, ("lstm", "LSTM with peepholes", "after", HAS_BIAS | HAS_PEEPHOLES))
    for cell, title, reset, has in forms:
        one = UnsizedRNN(rl.layout(name), cell, reset, 1, False, False, has)
        try:
            # the length of one vector is not an affine function of the sizes
            shapes = {} if is_one_vector(one.layout) else one.dimensions
        except LossyError:
            continue
        several = len(info["resets"]) > 1 and cell == "gru"
        shown_shapes = ", ".join(map(shown, shapes, shapes.values()))
        rows.append(
            [
                f"{title}, reset {reset}" if several else title,
                gates(info, cell),
                shown_shapes or f"`{one.names[0]}`, one vector",
            ]
        )
    return markdown(["cell", "gates in memory", "tensors"], rows)


def shown(name, shape):
    comma = "," if len(shape) == 1 else ""
    return f"`{name}` ({', '.join(map(str, shape))}{comma})"


# ------------------------------------------------------------------------------ pairs of layouts

KINDS = {
    "LSTM": rl.Spec("lstm", 2, 3),
    "LSTM with peepholes": rl.Spec("lstm", 2, 3, peepholes=True),
    "GRU, reset after": rl.Spec("gru", 2, 3, reset="after"),
    "GRU, reset before": rl.Spec("gru", 2, 3, reset="before"),
    "RNN": rl.Spec("rnn_tanh", 2, 3),
}
# sign in the grid -> its meaning
SIGNS = {
    "=": "exact: every bit is kept (in the pictures without a sign)",
    "+": "exact where one of the two biases of a gate is zero, or the sum with a"
    " forget bias is exact; else rounds",
    "0": "exact if the recurrent bias of n, or all peepholes, are zero; else refused",
    "+0": "both: sums that may round, and what must be zero",
    "x": "refused: the target has no such RNN",
}


@cache
def sign(spec, source, target):
    """Return the sign of a pair, and the reason if it is refused."""
    try:
        both = rl.layout(source), rl.layout(target)
        plan = _native.Plan(result_spec(both[1], spec), both[0], optional_tensors_of(spec), both[1])
        block_ops = plan.block_ops()
    except LossyError as error:
        return "x", str(error)
    kinds = {kind for kind, *_ in block_ops}
    return ("+" * bool(kinds & {"add", "shift"}) + "0" * ("expect_zero" in kinds)) or "=", ""


def grid(kind):
    """Return (sources, targets) of a kind of RNN: the layouts that have it, those with its cell."""
    spec = KINDS[kind]
    targets = [name for name, info in rl.layouts().items() if spec.cell in info["cells"]]
    return [name for name in targets if has_form(spec, name)], targets


def has_form(spec, name):
    try:
        return bool(rl.describe(spec, name))
    except LossyError:
        return False


def picture_of(kind):
    """Return the name of the picture of a grid, which tools/pictures.py draws."""
    return f"pairs-{kind.lower().replace(', reset ', '-').replace(' ', '-')}.svg"


def pairs():
    """Return for each kind of RNN its grid, as a picture, and the reason of one refusal."""
    parts = [markdown(["", "meaning"], [[f"`{s}`", text] for s, text in SIGNS.items()])]
    for kind, spec in KINDS.items():
        sources, targets = grid(kind)
        about = f"{kind}: which layouts convert exactly, which may round, which are refused"
        parts.append(f"\n### {kind}\n\n![{about}](images/{picture_of(kind)})\n")
        reasons = sorted(sign(spec, sources[0], target)[1] for target in targets)
        parts += [f"\nFor example: {reasons[-1]}.\n"] if reasons[-1] else []
    return "".join(parts)


# --------------------------------------------------------------------------------------- settings

PLACES = {"before": "before the first layer", "after": "after the last layer",
          "each layer": "in each layer", "axes": "order of the axes",
          "calls": "between calls", "argument": "in each call"}  # fmt: skip


def settings():
    """The table of settings."""
    head = ["setting", "layouts that have it", "where", "changes nothing", "in other layouts"]
    rows = []
    for key, facts in SETTINGS.items():
        neutral = dict.fromkeys(f"`{value!r}`" for value in map(facts.neutral_value, (1, 2)))
        zeros = "zeros" if facts.kind == "states" else " or ".join(neutral)
        nothing = "-" if facts.neutral_value(1) is None else zeros
        layouts = ", ".join(f"`{layout}`" for layout in facts.layouts)
        rows.append([f"`{key}`", layouts, PLACES[facts.place], nothing, facts.advice])
    return markdown(head, rows)

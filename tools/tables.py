"""Generate the tables in README.md, docs and benchmarks/README.md, and the names in layout.py.

They follow from the library and from the results of the benchmarks. Programs are copied into pages.

    python tools/tables.py            compare; exit code 1 if a page is out of date
    python tools/tables.py --write    write the tables into the pages

A table is between <!-- table: NAME --> and <!-- end of table -->, a program between
<!-- program: PATH --> and <!-- end of program -->.
"""

import inspect
import json
import re
import sys
from functools import partial
from pathlib import Path

import cudnn_differences
import format_facts
import generated
import hostile_facts
import layout_tables
import proof
import readme_facts
from layout_tables import markdown

import rnnlayout

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("api", "c-api", "howto/c-inference", "layouts", "every-layout", "conversions", "formats",
         "cudnn-versions", "performance", "security", "compatibility")  # fmt: skip
PAGES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    *(ROOT / "docs" / f"{page}.md" for page in NAMES),
    ROOT / "python" / "rnnlayout" / "_model" / "layout.py",  # a type
]
RESULTS = ROOT / "benchmarks" / "results"
CONVERSIONS, FILES, FORWARD, SPECIAL, INT8, BATCHES, TRAIN = (
    json.loads((RESULTS / f"{name}.json").read_text())
    for name in ("convert", "files", "forward", "forward_special", "int8", "batches", "train")
)
REALTIME = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("realtime-*.json"))]
GPU = next((json.loads(path.read_text()) for path in sorted(RESULTS.glob("gpu-*.json"))[::-1]), {})
MARKED = re.compile(r"(<!-- (table|program): (\S+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


NOT_MEASURED = "Not measured yet: no machine with a GPU was available.\n"
PUBLIC = re.compile(r"^(\w.*)\n--+$|^\.\. auto[a-z]+:: rnnlayout\.(\w+)", re.MULTILINE)


def public_names():
    """The first sentence of each docstring, in the order of the reference."""
    items = []
    for section, name in PUBLIC.findall((ROOT / "docs" / "api.md").read_text()):
        if section:
            items.append(f"\n**{section}**\n\n")
        else:
            first = inspect.getdoc(getattr(rnnlayout, name)).split("\n\n")[0]
            items.append(f"- `rl.{name}`: {' '.join(first.split())}\n")
    return "".join(items) + "\n"


def program(path):
    """The text of a file, as a block of code."""
    return f"```{path.suffix[1:]}\n{path.read_text()}```\n"


def speeds():
    """The others' times divided by ours: above 1, rnnlayout is faster."""
    peers = ["copy", "streaming copy", "NumPy", "torch", "ours, new"]
    rows = [
        [r["case"], r["job"], f"{r['ms']['ours, out='][0]:.3g}", f"{r['GB/s']:.1f}",
         *(f"{r['times ours'][peer]:.2f}" if peer in r["times ours"] else "-" for peer in peers)]
        for r in CONVERSIONS["rows"]
    ]  # fmt: skip
    return markdown(["case", "conversion", "ms", "GB/s", *peers], rows)


def about(*results):
    """Return where and when it was measured."""
    rows = [list(map(str, r["about"].values())) for r in results if r]
    return markdown(list(results[0]["about"]), rows) if rows else NOT_MEASURED


def files():
    """Compared with cp of the same file; the goals are 1.5 times cp, and 1.2 times the output."""
    rows = [
        [case, task, f"{t['s']:.2f}", f"{t['of_cp']:.2f}", f"{t['median_of_cp']:.2f}",
         f"{t['core_s']:.2f}", f"{t['peak_of_output']:.2f}"]
        for case, found in FILES["cases"].items() for task, t in found["tasks"].items()
    ]  # fmt: skip
    return markdown(["1 GB file", "task", "s", "of cp", "medians", "CPU s", "peak / output"], rows)


HELD = ["torch", "OpenVINO", "NumPy"]


def forward_speeds():
    """Medians; the last columns are the others' times divided by ours."""
    peers = ["torch", "onnxruntime", "OpenVINO", "NumPy", "ours, once"]
    rows = []
    for r in FORWARD["rows"]:
        median = {name: t[1] for name, t in r["us"].items()}
        ratios = (f"{median[p] / median['ours']:.2f}" if p in median else "-" for p in peers)
        rows.append([r["cell"], str(r["threads"]), r["case"], f"{median['ours']:.4g}",
                     f"{r['GFLOP/s']:.1f}", f"{r['of the FMA peak']:.0%}", *ratios])  # fmt: skip
    return markdown(["cell", "threads", "case", "us", "GFLOP/s", "of the peak", *peers], rows)


def forward_narrow():
    """RNNs with narrower weights, compared with float32 peers."""
    rows = []
    for r in FORWARD["rows"]:
        median = {name: t[1] for name, t in r["us"].items()}
        best = min((t for name, t in median.items() if not name.startswith("ours")), default=None)
        for dtype, change in r["change"].items():
            mine = median[f"ours, {dtype}"]
            rows.append([r["cell"], str(r["threads"]), r["case"], dtype, f"{mine:.4g}",
                         f"{median['ours'] / mine:.2f}", f"{best / mine:.2f}" if best else "-",
                         f"{change:.1e}"])  # fmt: skip
    head = ["cell", "threads", "case", "weights", "us", "ours, float32", "best other", "change"]
    return markdown(head, rows)


def forward_coarse():
    """Arithmetic in bfloat16: times, ratios, and errors against float64."""
    rows = []
    for r in FORWARD["rows"]:
        median = {name: t[1] for name, t in r["us"].items()}
        mine, theirs = median.get("ours, bfloat16 math"), median.get("OpenVINO, bfloat16 math")
        if mine and theirs:
            errors = (r["error"][f"{who}, bfloat16 math"] for who in ("ours", "OpenVINO"))
            rows.append([r["cell"], str(r["threads"]), r["case"], f"{mine:.4g}",
                         f"{median['ours'] / mine:.2f}", f"{theirs / mine:.2f}",
                         *(f"{error:.1e}" for error in errors)])  # fmt: skip
    head = ["cell", "threads", "case", "us", "ours, float32", "OpenVINO, bfloat16", "error",
            "OpenVINO's error"]  # fmt: skip
    return markdown(head, rows)


def forward_held():
    """All limited to AVX2, one thread: the others' times divided by ours."""
    rows = []
    for r in FORWARD.get("avx2", []):
        ratios = (f"{r['times ours'][p]:.2f}" if p in r["times ours"] else "-" for p in HELD)
        rows.append([r["cell"], r["case"], f"{r['us']['ours'][1]:.4g}", *ratios])
    return markdown(["cell", "case", "us", *HELD], rows)


def forward_behind():
    """The cases in which another is faster: its time divided by ours."""
    rows = []
    for r in FORWARD["rows"]:
        median = {name: t[1] for name, t in r["us"].items()}
        for ours, time in median.items():
            if not ours.startswith("ours"):
                continue
            name = min(peers_of(ours, median), key=median.get, default=None)
            if name and median[name] < time:
                rows.append([ours, r["cell"], str(r["threads"]), r["case"], name,
                             f"{median[name] / time:.2f}"])  # fmt: skip
    head = ["", "cell", "threads", "case", "faster", "its time / ours"]
    return markdown(head, sorted(rows, key=lambda row: row[0]))


def peers_of(ours, names):
    """Return the others of the same precision; one call without preparation beside onnxruntime."""
    coarse = ours.endswith("bfloat16 math")
    if ours == "ours, once":
        return [name for name in names if name == "onnxruntime"]
    others = (name for name in names if not name.startswith("ours"))
    return [name for name in others if name.endswith("bfloat16 math") == coarse]


def special(which, *names, ratios="ratios"):
    """Times divided by those without, or the others' divided by ours."""
    rows = [[r["cell"], r["case"], f"{r['us']['ours']:.4g}",
             *(f"{r[ratios][name]:.2f}" if name in r[ratios] else "-" for name in names)]
            for r in SPECIAL[which]]  # fmt: skip
    return markdown(["cell", "case", "us", *names], rows)


def realtime_speeds():
    """Our least time, and RTNeural's times divided by ours, least and median, on each CPU."""
    backends = [(k, name) for k, machine in enumerate(REALTIME)
                for name in dict.fromkeys(c["backend"] for c in machine["cases"])]  # fmt: skip
    times = {(k, case["backend"], *(case[key] for key in ("cell", "I", "H", "steps"))): case
             for k, machine in enumerate(REALTIME) for case in machine["cases"]}  # fmt: skip

    def cells(network):
        for k, backend in backends:
            case = times[k, backend, *network]
            if backend == "Eigen":
                yield f"{case['ours'][0]:.0f}"
            ratios = zip(case["rtneural"], case["ours"], strict=True)
            yield " / ".join(f"{rtneural / ours:.2f}" for rtneural, ours in ratios)

    head = ["cell", "I", "H", "steps"]
    for k, backend in backends:
        kind = REALTIME[k]["about"]["cpu"].split()[0].removesuffix("(R)")
        head += [f"{kind}: ns", backend] if backend == "Eigen" else [backend]
    networks = dict.fromkeys(key[2:] for key in times)
    return markdown(head, [[*map(str, network), *cells(network)] for network in networks])


def int8_speeds():
    """The others' least times divided by ours, and in brackets the errors."""
    others = ["float32", "torch", "torch, int8", "onnxruntime", "onnxruntime, int8"]
    rows = []
    for case in INT8["cases"]:
        found = case["measured"]
        least, _, error = found["int8"]
        rows.append([case["cell"], *(str(case[k]) for k in "NTH"), f"{least:.0f} ({error:.1e})",
                     *(f"{found[o][0] / least:.2f} ({found[o][2]:.0e})" if o in found else "-"
                       for o in others)])  # fmt: skip
    head = ["cell", "N", "T", "I = H", "us", "ours, float32", *others[1:]]
    return markdown(head, rows)


def train_speeds():
    """The others' least times divided by ours, and errors."""
    others, rows = ["torch", "layer", "three forward", "keras"], []
    for r in TRAIN["rows"]:
        least, error = r["least"], r["errors"]
        ours = least["rnnlayout"]
        ratios = (f"{least[o] / ours:.2f}" if o in least else "-" for o in others)
        sizes = (str(r[k]) for k in "NTHL")
        ours_nbytes, torchs_nbytes = (r["tape_nbytes"][who] for who in ("rnnlayout", "torch"))
        tape = f"{ours_nbytes / 1e6:.1f} ({torchs_nbytes / 1e6:.1f})"
        rows.append([r["cell"], *sizes, str(1 + r["bidirectional"]), f"{ours * 1e3:.2f}", *ratios,
                     f"{error['rnnlayout']:.0e} ({error['torch']:.0e})", tape])  # fmt: skip
    head = ["cell", "N", "T", "I = H", "L", "D", "ms", "torch", "our layer",
            "three of our forwards", "Keras", "error (torch's)", "tape (torch's), MB"]  # fmt: skip
    return markdown(head, rows)


def batches():
    """What the best tier of that machine reaches, and its peers."""
    rows = [r for r in BATCHES["rows"] if r["tier"] == BATCHES["about"]["tier"]]
    names = list(rows[0]["GFLOP/s"])

    def cell(row, name):
        return f"{row['GFLOP/s'][name]:.0f} ({row['of the FMA peak'][name]:.0%})"

    cells = [[*map(str, r["case"][::2]), *(cell(r, name) for name in names)] for r in rows]
    return markdown(["N", "I = H", *names], cells)


def gpu_speeds():
    """Our medians; the last columns are the others' medians divided by ours, whole / host."""
    speed = GPU.get("speed")
    if not speed:
        return NOT_MEASURED
    peers = list(dict.fromkeys(name for r in speed for name in r["times ours"]))
    rows = []
    for r in speed:
        ours = (f"{r['us']['ours'][kind][1]:.1f}" for kind in ("host", "device", "whole"))
        others = (r["times ours"].get(peer) for peer in peers)
        ratios = (f"{p['whole']:.2f} / {p['host']:.2f}" if p else "-" for p in others)
        rows.append([r["case"], *ours, *ratios])
    return markdown(["case", "host, us", "device, us", "whole, us", *peers], rows)


def gpu_parity():
    if "parity" not in GPU:
        return NOT_MEASURED
    rows = [[who, f"{worst:.2g}"] for who, worst in GPU["parity"]["worst"].items()]
    failures = len(GPU["parity"]["failures"])
    counted = f"\n{GPU['parity']['checked']} results, {failures} of them out of bounds.\n"
    return markdown(["implementation and dtype", "largest error / bound"], rows) + counted


def gpu_facts():
    def verdict(answer):
        return answer.get("left_out") or ("as expected" if answer["right"] else "not as expected")

    rows = [[f"`{name}`", verdict(answer)] for name, answer in GPU.get("facts", {}).items()]
    return markdown(["question", "answer"], rows) if rows else NOT_MEASURED


DIFFERENCES = ["RNN", "rnnlayout", "cuDNN", "calls of cuDNN", "reason"]
MEASURED_ON = {
    "measured_on": CONVERSIONS, "forward_on": FORWARD, "special_on": SPECIAL, "int8_on": INT8,
    "batches_on": BATCHES, "gpu_on": GPU, "train_on": TRAIN,
}  # fmt: skip
TABLES = {
    function.__name__: function
    for function in (
        batches, gpu_speeds, gpu_parity, gpu_facts, public_names, speeds, files,
        forward_speeds, forward_narrow, forward_coarse, forward_held, forward_behind,
        realtime_speeds, int8_speeds, train_speeds, layout_tables.held, layout_tables.each_layout,
        layout_tables.pairs, layout_tables.settings,
    )
} | {
    "proof": proof.table,
    "main_proof": proof.main_table,
    "benefits": readme_facts.benefits,
    "frameworks": readme_facts.frameworks,
    "layout_literal": layout_tables.literal,
    "differences": lambda: markdown(DIFFERENCES, cudnn_differences.rows()),
    "format_records": lambda: markdown(*format_facts.records()),
    "format_uses": lambda: markdown(*format_facts.uses()),
    "limits": hostile_facts.table,
    "hostile": hostile_facts.figures,
    "forward_lengths": lambda: special("lengths", "ours, all T", "ours, half"),
    "forward_subnormals": lambda: special("subnormals", "ours, weights", "ours, states",
                                          "torch, weights", "torch, states"),
    "forward_short": lambda: special("short", "torch", "onnxruntime", "OpenVINO", "ours, once",
                                     ratios="times ours"),
    "realtime_on": lambda: about(*REALTIME),
} | {name: partial(about, results) for name, results in MEASURED_ON.items()}  # fmt: skip


def current(page):
    """Return the page's text with every table up to date."""

    def generated(marked):
        start, kind, name, end = marked.groups()
        return start + (TABLES[name]() if kind == "table" else program(page.parent / name)) + end

    return MARKED.sub(generated, page.read_text())


if __name__ == "__main__":
    sys.exit(generated.main({page: current(page) for page in PAGES}))

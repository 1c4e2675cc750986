"""What a newcomer meets first: recordings, the tutorial as a notebook, the search of the docs."""

import json
import re
import sys

from commands import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import notebooks
import recordings
import run_pages

SEARCHES = {
    "unknown layer cudnnlstm": "howto/cudnn-layers-to-keras3",
    "different outputs": "my-outputs-differ",
    "troubleshooting": "my-outputs-differ",
    "gate order": "layouts",
    "onnx to pytorch": "howto/onnx-to-torch",
    "keras to pytorch": "howto/torch-and-keras",
    "unexpected key": "errors",
    "size mismatch": "errors",
    "run lstm in c": "howto/c-inference",
    "run lstm in c++": "howto/c-inference",
    "microcontroller": "howto/microcontroller",
    "streaming inference": "forward",
    "variable length sequences": "forward",
    "pack_padded_sequence": "forward",
    "macos": "install",
    "license": "install",
    "cudnn_status_not_supported": "errors",
    "is not a kerassaveable subclass": "howto/cudnn-layers-to-keras3",
}


def test_the_search_of_the_docs_finds_first_what_answers():
    """Sphinx puts main index entries, marked by "!", before all else that it finds."""
    firsts = {}
    for page in run_pages.pages():
        for entries in re.findall(r"^<!-- sphinx {index} (.*) -->", page.read_text(), re.MULTILINE):
            for entry in entries.lower().split(", "):
                if entry.startswith("! "):
                    firsts.setdefault(entry[2:], []).append(page)
    for search, answer in SEARCHES.items():
        assert firsts[search] == [ROOT / "docs" / f"{answer}.md"], search


def test_the_recordings_show_the_commands_and_the_mistake():
    shown = recordings.recorded()
    assert [kind for kind, _ in shown["all"]].count("command") == 3
    assert "transposed" in next(line for kind, line in shown["mistakes"] if kind == "answer")


def test_the_notebooks_have_cells_of_code():
    for path in notebooks.NOTEBOOKS.values():
        cells = json.loads(path.read_text())["cells"]
        assert sum(cell["cell_type"] == "code" for cell in cells) >= 8
        assert not any("notebook](" in line for cell in cells for line in cell["source"])

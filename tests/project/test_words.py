"""Comments and docstrings use nouns, and a name states the contents of the variable.

A pronoun makes the reader search for the noun. The limits are shares of words in well-kept
libraries; a limit may fall, but not rise.
"""

import ast
import io
import re
import tokenize

import pytest
from commands import ROOT


def words_in(text):
    return re.findall(r"[a-z']+", text.lower())


PRONOUNS = {
    *words_in("it its they them their those these one ones other others which what whose such"),
    *words_in("there beside told asked given found own made"),
}
PLACE_HOLDERS = {
    *words_in("found one given own told asked made known what whose has some other others more"),
    *words_in(
        "less rest every each seen said here there both again it this that these those which"
    ),
}
VAGUE = {*words_in("value values item items data obj thing things stuff info")}

PACKAGE = ROOT / "python" / "rnnlayout"
ROOMS = [path for path in sorted(PACKAGE.glob("_*/")) if list(path.glob("*.py"))]
C_FOLDERS = [ROOT / "csrc", PACKAGE / "_native"]
PYTHON_FILES = sorted(PACKAGE.rglob("*.py"))


def c_files(folder):
    return [path for path in sorted(folder.rglob("*")) if path.suffix in {".c", ".h", ".inc"}]


def c_text(text):
    """Return (comments, identifiers) of C code, without the contents of strings."""
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)
    comment = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
    return comment.findall(text), re.findall(r"\b[a-z_]\w*\b", comment.sub(" ", text))


def python_text(text):
    """Return (comments and docstrings, bound names) of Python code."""
    nodes = [*ast.walk(ast.parse(text))]
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    sentences = [token.string for token in tokens if token.type == tokenize.COMMENT]
    names = []
    for node in nodes:
        if isinstance(node, (ast.Module, *definitions)):
            sentences.append(ast.get_docstring(node) or "")
        if isinstance(node, definitions):
            names.append(node.name)
        elif isinstance(node, ast.arg):
            names.append(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
    return sentences, [name.strip("_") for name in names]


def words_of(sentences):
    """Return the words of comments, without code."""
    return words_in(re.sub(r"`[^`]*`|>>>.*|\.\.\. .*", " ", "\n".join(sentences)))


def per_mille(words, vocabulary):
    return 1000 * sum(word in vocabulary for word in words) / len(words)


def read_words(paths, split):
    """Return (words of comments, names) of files."""
    words, names = [], []
    for path in paths:
        sentences, names_of_file = split(path.read_text())
        words += words_of(sentences)
        names += names_of_file
    return words, names


@pytest.mark.parametrize("folder", C_FOLDERS, ids=lambda path: path.name)
def test_c_uses_nouns(folder):
    words, names = read_words(c_files(folder), c_text)
    assert len(words) > 1000 and len(names) > 1000
    assert per_mille(words, PRONOUNS) <= 30
    assert per_mille(names, PLACE_HOLDERS) <= 2


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.name)
def test_a_room_uses_nouns(room):
    words, names = read_words(sorted(room.rglob("*.py")), python_text)
    assert len(words) > 500 and len(names) > 100
    assert per_mille(words, PRONOUNS) <= 30
    assert per_mille(names, PLACE_HOLDERS) <= 10


@pytest.mark.parametrize(
    "paths, split, limit",
    [
        (c_files(C_FOLDERS[0]), c_text, 4.1),
        (c_files(C_FOLDERS[1]), c_text, 15.1),
        (PYTHON_FILES, python_text, 17.4),
    ],
    ids=["csrc", "_native", "python"],
)
def test_no_vague_word_replaces_a_place_holder(paths, split, limit):
    _, names = read_words(paths, split)
    assert per_mille(names, VAGUE) <= limit


def test_words_are_counted():
    assert c_text('int given = 1; /* it is */ char *s = "its"; // one\n') == (
        ["/* it is */", "// one"],
        ["int", "given", "char", "s"],
    )
    code = '"""Its `own`.\n\n>>> it\n"""\ndef _found(a):\n    b = "it"  # others\n'
    sentences, names = python_text(code)
    assert words_of(sentences) == ["others", "its"]
    assert names == ["found", "a", "b"]
    assert per_mille(["it", "is"], PRONOUNS) == 500

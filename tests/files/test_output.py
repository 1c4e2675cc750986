"""Output files appear whole or not at all, whatever existed before or happens meanwhile."""

import errno
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rnnlayout as rl
from rnnlayout import _output
from rnnlayout._output import whole

HANG = 600  # seconds; no test waits for as long on any machine


def written(path, text="new", **options):
    with whole(path, **{"force": False} | options) as part:
        part.write_text(text)
    return path.read_text()


@pytest.fixture
def folder(tmp_path):
    """A folder: afterwards it must contain only what the test says."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


@pytest.fixture(params=[None, errno.EPERM, errno.EOPNOTSUPP], ids=["links", "EPERM", "EOPNOTSUPP"])
def links(request, monkeypatch):
    """File systems with and without hard links."""

    def no_links(*_):
        raise OSError(request.param, os.strerror(request.param))

    if request.param:
        monkeypatch.setattr(os, "link", no_links)


def test_it_appears_and_nothing_else(folder, links):
    for name in ("a.h5", "ünï\udcff.npz", "x" * 250 + ".npz"):
        assert written(folder / name) == "new"
        with pytest.raises(rl.FileError, match="is there already: remove it or use --force"):
            written(folder / name, "newer")
        assert written(folder / name, "newer", force=True) == "newer"
    assert len(os.listdir(folder)) == 3


def test_one_that_comes_up_in_the_meantime_stays(folder, links):
    out = folder / "a.h5"
    with (
        pytest.raises(rl.FileError, match="it came up in the meantime"),
        whole(out, force=False) as part,
    ):
        part.write_text("new")
        out.write_text("old")
    assert out.read_text() == "old" and os.listdir(folder) == ["a.h5"]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_are_the_umasks(folder, mask):
    before = os.umask(mask)
    try:
        written(folder / "a.h5")
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "a.h5").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, OSError])
@pytest.mark.parametrize("force", [True, False])
def test_an_error_on_the_way_leaves_what_was(folder, error, force):
    if force:
        (folder / "a.h5").write_text("old")
    with pytest.raises(error), whole(folder / "a.h5", force=force) as part:
        part.write_text("half")
        (part.parent / "and more").write_text("of the writer's own")
        raise error
    assert [p.read_text() for p in folder.iterdir()] == (["old"] if force else [])


@pytest.mark.parametrize("kind", ["itself", "symbolic link", "hard link", "another way"])
def test_what_is_read_is_not_replaced(folder, kind):
    source = folder / "in.h5"
    source.write_text("old")
    out = {"itself": source, "another way": folder / ".." / "out" / "in.h5"}.get(
        kind, folder / "out.h5"
    )
    if kind == "symbolic link":
        out.symlink_to(source)
    if kind == "hard link":
        os.link(source, out)
    for force in (True, False):
        with pytest.raises(rl.FileError, match="is the file that is read"):
            written(out, force=force, source=source)
    assert source.read_text() == "old"


def test_links_are_replaced_and_not_followed(folder, tmp_path):
    kept, out = tmp_path / "kept.h5", folder / "a.h5"
    kept.write_text("old")
    for target in (kept, tmp_path / "nowhere"):
        out.unlink(missing_ok=True)
        out.symlink_to(target)
        with pytest.raises(rl.FileError, match="is there already"):
            written(out)
        assert written(out, force=True) == "new" and not out.is_symlink()
    assert kept.read_text() == "old" and not (tmp_path / "nowhere").exists()


def test_what_is_no_file_is_not_replaced(folder):
    os.mkfifo(folder / "fifo")
    for out, said in (
        (folder, "is a folder: name a file to write"),
        (folder / "fifo", "is no regular file"),
        (folder / "not" / "there.h5", "cannot be written: No such file or directory"),
        (folder / "fifo" / "a.h5", "cannot be written: Not a directory"),
        (folder / ("x" * 300), "cannot be written: File name too long"),
    ):
        with pytest.raises(rl.FileError, match=said):
            written(out, force=True)
    assert os.listdir(folder) == ["fifo"]


def test_a_folder_that_may_not_be_written(folder, monkeypatch):
    """The error is simulated: root, who may run this, never gets it."""

    def refused(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(_output.tempfile, "mkdtemp", refused)
    with pytest.raises(rl.FileError, match=r"a\.h5 cannot be written: Permission denied"):
        written(folder / "a.h5")


def test_a_process_that_ends_leaves_its_large_files_to_another(folder):
    """It ended when the system had forgotten them, on a busy machine 0.4 s after Ctrl-C."""
    for name, size in (("large", 1 << 30), ("small", 1)):
        with open(folder / name, "wb") as file:
            file.truncate(size)  # of which the disk knows nothing
    program = f"from rnnlayout import _output; _output._remove({str(folder)!r}); input()"
    with subprocess.Popen([sys.executable, "-P", "-c", program], stdin=subprocess.PIPE) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while folder.exists():
            assert process.poll() is None
            time.sleep(0.01)
        (other,) = children.read_text().split()
        held = [os.path.basename(os.readlink(fd)) for fd in Path(f"/proc/{other}/fd").iterdir()]
        assert "large (deleted)" in held and "small (deleted)" not in held
        process.communicate(b"\n")
    deadline = time.monotonic() + HANG
    while Path(f"/proc/{other}/exe").exists():  # it goes too
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_folder_that_cannot_be_removed_at_once(folder):
    """What another thread writes to it at once may take a busy disk a second."""
    (folder / "out").mkdir()
    with open(folder / "out" / "large", "wb") as file:
        file.truncate(1 << 30)
    program = f"""
import os, threading
from rnnlayout import _output
_output.shutil.rmtree = lambda *_, **__: threading.Event().wait()
_output._remove({str(folder / "out")!r})
os._exit(7)
"""
    assert subprocess.run([sys.executable, "-P", "-c", program], timeout=HANG).returncode == 7
    deadline = time.monotonic() + HANG
    while os.listdir(folder):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_leaves_nothing(folder, signal):
    """A signal in the middle of a command's work."""
    program = f"""
import os, signal, sys
from rnnlayout import _cli, _commands
from rnnlayout._output import whole
from rnnlayout._commands import layouts

def run(options):
    with whole({str(folder / "a.npz")!r}, force=False) as part:
        part.write_text("half")
        os.kill(os.getpid(), signal.{signal})
        while not (part.parent / "more").write_text(""):  # and goes on writing
            pass
layouts.run = run
sys.argv = ["rnnlayout", "layouts"]
sys.exit(_cli.main())
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=HANG
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}[signal], "", "",
    )  # fmt: skip
    assert os.listdir(folder) == []

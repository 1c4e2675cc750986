"""Output files appear whole or not at all, whatever existed before or happens meanwhile."""

import errno
import os
import signal as signals
import stat
import subprocess
import sys

import pytest

import rnnlayout as rl
from rnnlayout._files.tensor_sets import output_file as _output
from rnnlayout._files.tensor_sets.output_file import write_whole_file

# What a process starts with, whatever the tests were started with.
HANDLERS = {"SIGINT": "signal.default_int_handler"} | dict.fromkeys(
    ("SIGTERM", "SIGHUP", "SIGKILL"), "signal.SIG_DFL"
)

HANG = 600  # seconds; no test waits for as long on any machine


def written(path, text="new", **options):
    with write_whole_file(path, **{"force": False} | options) as part:
        part.path.write_text(text)
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

    def no_links(*_, **__):
        raise OSError(request.param, os.strerror(request.param))

    if request.param:
        monkeypatch.setattr(os, "link", no_links)
        monkeypatch.setattr(_output, "_create_unnamed", lambda target, dry_run: None)


@pytest.fixture(params=["unnamed", "named", "other system"])
def names(request, monkeypatch):
    """With and without O_TMPFILE."""
    if request.param == "other system":
        monkeypatch.setattr(sys, "platform", "darwin")
    elif request.param == "named":
        real = os.open

        def without(path, flags, *rest, **options):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            return real(path, flags, *rest, **options)

        monkeypatch.setattr(os, "open", without)


def test_it_appears_and_nothing_else(folder, links):
    for name in ("a.h5", "ünï\udcff.npz", "x" * 250 + ".npz"):
        assert written(folder / name) == "new"
        with pytest.raises(FileExistsError, match="already exists: pass force=True to overwrite"):
            written(folder / name, "newer")
        assert written(folder / name, "newer", force=True) == "newer"
    assert len(os.listdir(folder)) == 3


def test_one_that_comes_up_in_the_meantime_stays(folder, links):
    out = folder / "a.h5"
    meantime = pytest.raises(FileExistsError, match="another process created it in the meantime")
    with meantime, write_whole_file(out, force=False) as part:
        part.path.write_text("new")
        out.write_text("old")
    assert out.read_text() == "old" and os.listdir(folder) == ["a.h5"]


def test_permissions_are_the_umasks(folder, names):
    for mask in (0o022, 0o077, 0o002):
        before = os.umask(mask)
        try:
            written(folder / f"{mask}.h5")
        finally:
            os.umask(before)
        assert stat.S_IMODE((folder / f"{mask}.h5").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("force", [True, False])
def test_an_error_on_the_way_leaves_what_was(folder, names, force):
    if force:
        (folder / "a.h5").write_text("old")
    before = os.listdir("/proc/self/fd")
    for error in (ValueError, KeyboardInterrupt, SystemExit, OSError):
        with pytest.raises(error), write_whole_file(folder / "a.h5", force=force) as part:
            part.path.write_text("half")
            part.companion(".json").write_text("half")
            raise error
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert [p.read_text() for p in folder.iterdir()] == (["old"] if force else [])


def test_what_is_read_is_not_replaced(folder):
    source, soft, hard = folder / "in.h5", folder / "soft.h5", folder / "hard.h5"
    source.write_text("old")
    soft.symlink_to(source)
    os.link(source, hard)
    for out in (source, soft, hard, folder / ".." / "out" / "in.h5"):
        for force in (True, False):
            with pytest.raises(rl.FileError, match="is the input"):
                written(out, force=force, source=source)
    assert source.read_text() == "old"


def test_links_are_replaced_and_not_followed(folder, names, tmp_path):
    kept, out = tmp_path / "kept.h5", folder / "a.h5"
    kept.write_text("old")
    for target in (kept, tmp_path / "nowhere"):
        out.unlink(missing_ok=True)
        out.symlink_to(target)
        with pytest.raises(FileExistsError, match="already exists"):
            written(out)
        assert written(out, force=True) == "new" and not out.is_symlink()
    assert kept.read_text() == "old" and not (tmp_path / "nowhere").exists()


def test_what_is_no_file_is_not_replaced(folder):
    os.mkfifo(folder / "fifo")
    for out, said in (
        (folder, "is a folder: give the name of a file to write"),
        (folder / "fifo", "is not a regular file"),
        (folder / "not" / "there.h5", "cannot be written: No such file or directory"),
        (folder / "fifo" / "a.h5", "cannot be written: Not a directory"),
        (folder / ("x" * 300), "cannot be written: File name too long"),
    ):
        with pytest.raises(rl.FileError, match=said):
            written(out, force=True)
    assert os.listdir(folder) == ["fifo"]


@pytest.mark.parametrize("force", [True, False])
def test_a_second_file_is_refused_or_replaced_like_the_first(folder, names, force):
    (folder / "a.bin.json").write_text("old")
    if force:
        (folder / "a.bin").write_text("old")
    before = os.listdir("/proc/self/fd")
    try:
        with write_whole_file(folder / "a.bin", force=force) as part:
            part.path.write_text("new")
            part.companion(".json").write_text("new")
        assert force
    except FileExistsError as error:
        assert not force and "a.bin.json already exists" in str(error)
    found = {path.name: path.read_text() for path in folder.iterdir()}
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert found == ({"a.bin": "new", "a.bin.json": "new"} if force else {"a.bin.json": "old"})


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_signal_leaves_nothing(folder, signal, force):
    """In the command, while a library holds the interpreter's lock and never gives it back."""
    if force:
        (folder / "a.npz").write_text("old")
    program = f"""
import ctypes, os, signal, sys
from rnnlayout._cli import main
from rnnlayout._cli.commands import layouts
from rnnlayout._files.tensor_sets.output_file import write_whole_file

def run(options):
    with write_whole_file({str(folder / "a.npz")!r}, force={force}) as part:
        part.path.write_text("half")
        part.companion(".json").write_text("half")
        print("writing", flush=True)
        ctypes.PyDLL(None).pause()  # which PyDLL calls with the lock held
layouts.run = run
signal.signal(signal.{signal if signal != "SIGKILL" else "SIGHUP"}, {HANDLERS[signal]})
sys.argv = ["rnnlayout", "layouts"]
sys.exit(main.main())
"""
    command = [sys.executable, "-P", "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"writing\n"
        process.send_signal(getattr(signals, signal))
        out, err = process.communicate(timeout=HANG)
    assert (process.returncode, out, err) == (-getattr(signals, signal), b"", b"")
    assert [path.read_text() for path in folder.iterdir()] == (["old"] if force else [])


def test_who_ignores_ctrl_c_is_not_ended_by_it():
    """nohup, or a shell that starts a job in the background."""
    program = """
import os, signal, sys
from rnnlayout._cli import main
from rnnlayout._cli.commands import layouts
layouts.run = lambda options: os.kill(os.getpid(), signal.SIGINT) or 7
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv = ["rnnlayout", "layouts"]
sys.exit(main.main())
"""
    assert subprocess.run([sys.executable, "-P", "-c", program]).returncode == 7


# What Windows lacks; a process that has all modules believes that it runs there.
WINDOWS = """
import mmap, os, pathlib, sys, tempfile
import numpy, onnx, rnnlayout as rl
from rnnlayout._files.formats import safetensors
safetensors.FORGET_NBYTES = 0
for name in ("O_TMPFILE", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "memfd_create",
             "copy_file_range", "getuid", "sched_getaffinity"):
    delattr(os, name)
del mmap.MADV_DONTNEED
sys.platform = "win32"
out = pathlib.Path(sys.argv[1])
shapes = rl.describe(rl.Spec("lstm", 3, 2), "torch").items()
weights = rl.Weights({name: numpy.ones(shape, "f4") for name, shape in shapes})
rl.save(out / "a.safetensors", {"lstm": weights})
rl.convert_file(out / "a.safetensors", out / "dry.onnx", to="onnx", dry_run=True)
rl.convert_file(out / "a.safetensors", out / "a.onnx", to="onnx")
rl.convert_file(out / "a.safetensors", out / "a.onnx", to="onnx", force=True)
rl.convert_file(out / "a.safetensors", out / "b.safetensors", to="keras")
rl.convert_file(out / "a.onnx", out / "a.bin", to="cudnn")
"""


def test_what_only_linux_has_is_not_needed(folder, tmp_path):
    env = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", WINDOWS, folder], check=True, env=env)
    written = {"a.bin", "a.bin.json", "a.onnx", "a.safetensors", "b.safetensors"}
    assert {*os.listdir(folder)} == written
    assert os.listdir(tmp_path) == ["out"]

"""Read published checkpoints from their packages without running any of the packages' code.

pip downloads each package and checks its SHA-256 (checkpoints.txt). The package is kept in
examples/checkpoints/. One file of it is read in memory; nothing is unpacked or installed.
With RNNLAYOUT_OFFLINE=1 in the environment every package counts as unavailable.
"""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = HERE / "checkpoints"
SMALL = HERE / "data" / "textgenrnn_rnn1.hdf5"

TEXTGENRNN = "textgenrnn-2.0.0.tar.gz", "textgenrnn-2.0.0/textgenrnn/textgenrnn_weights.hdf5"
G2P = "g2p_en-2.1.0-py3-none-any.whl", "g2p_en/checkpoint20.npz"
_SILERO = "silero_vad-6.2.3-py3-none-any.whl"
SILERO = _SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx"
SILERO_NESTED = _SILERO, "silero_vad/data/silero_vad.onnx"  # its LSTMs are in branches of If nodes
SILERO_OP15 = _SILERO, "silero_vad/data/silero_vad_16k_op15.onnx"
SILERO_TENSORS = _SILERO, "silero_vad/data/silero_vad_16k.safetensors"
SILERO_TORCHSCRIPT = _SILERO, "silero_vad/data/silero_vad.jit"

# pip asks the build backend of a source package for its metadata, which would run its setup.py.
# A replacement backend of the same name only writes the metadata.
BACKEND = """
import os
class __legacy__:
    @staticmethod
    def prepare_metadata_for_build_wheel(folder, config_settings=None):
        os.mkdir(os.path.join(folder, "NAME.dist-info"))
        with open(os.path.join(folder, "NAME.dist-info", "METADATA"), "w") as f:
            f.write("Metadata-Version: 2.1\\nName: NAME\\nVersion: VERSION\\n")
        return "NAME.dist-info"
"""


class Unavailable(Exception):
    """The package cannot be downloaded; the text gives the reason."""


def fetch(checkpoint):
    """Return the bytes of one checkpoint: TEXTGENRNN, G2P or one of the SILEROs.

    Raises Unavailable if its package cannot be downloaded.
    """
    if os.environ.get("RNNLAYOUT_OFFLINE"):
        raise Unavailable("RNNLAYOUT_OFFLINE is set")
    archive, member = checkpoint
    data = _kept(archive) or _download(archive)
    return _member(archive, data, member)


def _requirement(archive):
    """Return the line of checkpoints.txt for an archive, and its hash."""
    name = archive.split("-")[0].replace("_", "-")
    for line in (HERE / "checkpoints.txt").read_text().splitlines():
        if line.startswith(name + "=="):
            return line, line.rpartition("sha256:")[2]
    raise KeyError(name)


def _kept(archive):
    path = KEPT / archive
    if not path.is_file():
        return None
    data = path.read_bytes()
    return data if hashlib.sha256(data).hexdigest() == _requirement(archive)[1] else None


def _download(archive):
    line, sha256 = _requirement(archive)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "only.txt").write_text(line + "\n")
        (folder / "setuptools").mkdir()
        (folder / "setuptools" / "__init__.py").touch()
        name, version = line.split()[0].split("==")
        backend = BACKEND.replace("NAME", name).replace("VERSION", version)
        (folder / "setuptools" / "build_meta.py").write_text(backend)
        # fmt: off
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download",
                   "--quiet", "--no-deps", "--require-hashes", "--no-build-isolation",
                   "--retries", "1", "--timeout", "20",
                   "--dest", str(folder), "--requirement", str(folder / "only.txt")]
        # fmt: on
        settings = {**os.environ, "PYTHONPATH": str(folder), "PIP_USE_PEP517": "1"}
        done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
        if done.returncode or not (folder / archive).is_file():
            errors = [s for s in done.stderr.splitlines() if s.startswith("ERROR")]
            raise Unavailable(errors[-1] if errors else "pip failed")
        data = (folder / archive).read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Unavailable(f"{archive} differs from the published file")
    _keep(archive, data)
    return data


def _keep(archive, data):
    """Keep the archive for the next run, written atomically; do nothing if that fails."""
    try:
        KEPT.mkdir(exist_ok=True)
        part = KEPT / f"{archive}.{os.getpid()}.part"
        part.write_bytes(data)
        part.replace(KEPT / archive)
    except OSError:
        pass


def _member(archive, data, member):
    if archive.endswith(".whl"):
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            return opened.read(member)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as opened:
        return opened.extractfile(member).read()

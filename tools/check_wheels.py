"""Check wheels without running them: their size, what they export and what they need.

    python tools/check_wheels.py WHEEL...

abi3audit finds what is not in Python's stable ABI, auditwheel what manylinux does not promise. For
other systems this reads the module itself: its kind of machine, the oldest system it may run on,
and the libraries that it loads.
"""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pefile
from elftools.elf.elffile import ELFFile
from macholib.mach_o import CPU_TYPE_NAMES
from macholib.MachO import MachO

MOST_NBYTES = 1_000_000
MOST_NBYTES_ON_WINDOWS = 1_075_000  # clang's code for it is larger, and it keeps its unwind tables
EXPORTS = {"PyInit__native", "rnl_num_threads"}  # threadpoolctl knows the module by the second
PROMISED = re.compile(r"python3|kernel32|api-ms-win-(crt|core)-[\w-]+", re.I)  # Windows 10


def check_manylinux(wheel: Path, platform: str, module: Path) -> str:
    shown = subprocess.run([sys.executable, "-m", "auditwheel", "show", str(wheel)], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout  # fmt: skip
    if f'"{platform}"' not in shown:
        sys.exit(f"{wheel.name}:\n{shown}")
    return "auditwheel"


def check_musllinux(wheel: Path, platform: str, module: Path) -> str:
    """Needs musl alone. auditwheel looks for `libc.so`, which is a text on systems with glibc."""
    with module.open("rb") as file:
        found = ELFFile(file)
        machine = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}[found["e_machine"]]
        tags = found.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        needed = {tag.needed for tag in tags}
        versions = found.get_section_by_name(".gnu.version_r")
    assert f"musllinux_1_2_{machine}" == platform, machine
    assert needed == {"libc.so"} and versions is None, needed
    return "musl and no other library"


def check_macos(wheel: Path, platform: str, module: Path) -> str:
    (found,) = MachO(str(module)).headers
    machine = CPU_TYPE_NAMES[found.header.cputype].lower()
    assert f"macosx_11_0_{machine}" == platform and found.filetype == "dylib", machine
    commands = {command[0].get_cmd_name(): command for command in found.commands}
    least = commands["LC_BUILD_VERSION"][1].minos
    assert least == 11 << 16, f"the oldest macOS: {least:#x}"
    needed = [path for _, _, path in found.walkRelocatables() if path != "_native.abi3.so"]
    assert all(path == "/usr/lib/libSystem.B.dylib" for path in needed), needed
    signed = "LC_CODE_SIGNATURE" in commands
    assert signed or machine == "x86_64", "Apple's processors run signed code alone"
    return f"macOS 11.0 or later, {'signed ad hoc' if signed else 'not signed'}"


def check_windows(wheel: Path, platform: str, module: Path) -> str:
    found = pefile.PE(str(module))
    assert found.FILE_HEADER.Machine == 0x8664, "x86-64"
    exports = {one.name.decode() for one in found.DIRECTORY_ENTRY_EXPORT.symbols}
    assert exports == EXPORTS, exports
    needed = {one.dll.decode().removesuffix(".dll") for one in found.DIRECTORY_ENTRY_IMPORT}
    assert all(map(PROMISED.fullmatch, needed)), needed
    return "exports and DLLs"


CHECKS = {"manylinux": check_manylinux, "musllinux": check_musllinux, "macosx": check_macos,
          "win": check_windows}  # fmt: skip


def main() -> None:
    for wheel in map(Path, sys.argv[1:]):
        subprocess.run(
            [sys.executable, "-m", "abi3audit", "--strict", "--summary", wheel], check=True
        )
        platform = wheel.stem.split("-")[-1]
        unpacked = Path("build", "wheels", "unpacked", platform)
        with zipfile.ZipFile(wheel) as archive:
            suffix = ".pyd" if platform == "win_amd64" else ".abi3.so"
            module = Path(archive.extract("rnnlayout/_native" + suffix, unpacked))
        said = CHECKS[platform.partition("_")[0]](wheel, platform, module)
        nbytes = wheel.stat().st_size
        most = MOST_NBYTES_ON_WINDOWS if platform.startswith("win") else MOST_NBYTES
        print(f"{wheel.name}: {nbytes} bytes of at most {most}; {said}", flush=True)
        if nbytes > most:
            sys.exit("too large")


if __name__ == "__main__":
    main()

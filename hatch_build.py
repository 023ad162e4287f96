"""Compiles the native kernel into the package, for wheels and editable installs; does without where it cannot.

The kernel is loaded by its name and knows nothing of Python, so a wheel with it is for every Python 3 of its platform,
and one without it (ANEFORGE_PURE=1, or no C compiler) for every platform.

An editable install gets Python's bytecode as well, which installers write for all others. Without it, and where Python
may not write it (PYTHONDONTWRITEBYTECODE), every start compiles each module anew: 0.2 s for a first preflight.
"""

from __future__ import annotations

import compileall
import hashlib
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("aneforge", "sim", "native")
SOURCES = (
    *("bits.h", "crew.c", "crew.h", "mac.c", "mac_avx2.h", "mac_avx512.h", "mac_kernel.h", "mac_neon.h", "packed.c"),
    *("packed_depthwise.h", "packed_kernel.h", "packed_lines_kernel.h", "packed_map.h", "packed_paths.h"),
    *("packed_product.h", "packed_stored.h", "planar.c", "planar_kernel.h", "vector_end.h"),
)
# -ffp-contract=off: a multiply-add is fused where the source says so, and nowhere else. A name that is not declared
# would otherwise be found missing when the library is loaded.
FLAGS = (
    "-std=c11 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -Werror=implicit-function-declaration "
    "-fPIC -shared -fvisibility=hidden -pthread"
)


class CustomBuildHook(BuildHookInterface):
    """The package installs with or without the library; without it the NumPy form of the same sums is used."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        if version == "editable":
            compileall.compile_dir(Path(self.root) / "aneforge", quiet=2)
        if os.environ.get("ANEFORGE_PURE", "0") not in ("", "0"):
            return
        built = self._built(Path(self.root) / FOLDER)
        if built is None:
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"
        build_data["artifacts"].append(f"/{(FOLDER / built.name).as_posix()}")

    def _built(self, folder: Path) -> Path | None:
        """The library, compiled from the sources as they are; nothing, and a notice, if that fails."""
        library = folder / library_name()
        library.unlink(missing_ok=True)
        try:
            compile_library(folder, library)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"aneforge: installed without its native kernel, which is slower but the same: {_said(error)}")
            return None
        return library


def compile_library(folder: Path, library: Path) -> None:
    """Into a file of its own first, so that a process that has the old one loaded keeps it."""
    digest = hashlib.sha256(b"".join((folder / name).read_bytes() for name in SOURCES)).hexdigest()[:16]
    compiler = shlex.split(os.environ.get("CC") or "cc")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / library.name
        units = [str(folder / name) for name in SOURCES if name.endswith(".c")]
        command = [*compiler, *FLAGS.split(), f'-DANEFORGE_SOURCE="{digest}"', "-o", str(made), *units]
        subprocess.run([*command, "-lm"], check=True, capture_output=True, text=True, timeout=300)  # noqa: S603
        made.replace(library)


def library_name() -> str:
    """The name under which aneforge.sim.native looks for it: the same for every Python of the machine."""
    return f"_mac.{sys.platform}-{platform.machine().lower()}.{'dll' if os.name == 'nt' else 'so'}"


def platform_tag() -> str:
    """The platform of a wheel: what was compiled is for this processor, also where Python is for several."""
    name = sysconfig.get_platform().replace("universal2", platform.machine())
    return name.replace("-", "_").replace(".", "_")


def _said(error: Exception) -> str:
    """One line of what went wrong."""
    if isinstance(error, subprocess.CalledProcessError):
        lines = (error.stderr or "").strip().splitlines()
        return lines[0] if lines else f"{error.cmd[0]} ended with {error.returncode}"
    return str(error)

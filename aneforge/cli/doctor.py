"""``aneforge doctor``: what this installation has, and what is degraded."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from aneforge import text
from aneforge.cli import say
from aneforge.errors import FOREIGN, AneforgeError, foreign_package, install_hint
from aneforge.files import LIMITS
from aneforge.version import __version__

# The environment variables that aneforge reads: one table, which ``aneforge doctor`` prints.


SETTINGS = {
    "ANEFORGE_TARGET": "the chip of this machine",
    "ANEFORGE_TARGETS": "the chips of commands that name none (m1..m6)",
    "ANEFORGE_OS": "the version of the system that verdicts are about (the newest known)",
    "ANEFORGE_RUNTIME": "who runs a model: coreml, coreai or direct (who reads its file, else nobody)",
    "ANEFORGE_NATIVE": "0 turns the native kernel off",
    "ANEFORGE_NATIVE_PATH": "the instruction set of the native kernel",
    "ANEFORGE_THREADS": "how many threads a simulation may use",
    "ANEFORGE_NO_CACHE": "1 imports every model file again, and stores nothing",
    "ANEFORGE_CACHE_DIR": "the folder of imported models",
    "ANEFORGE_CACHE_SIZE": "how many bytes of imported models are kept (2G)",
    "CXX": "the compiler by which the tests run kernels of a GPU on the CPU (c++)",
    "ANEFORGE_TRACEBACK": "1 prints the Python traceback of an error",
    **{f"ANEFORGE_MAX_{name.upper()}": f"limit of a model file: {limit.counts}" for name, limit in LIMITS.items()},
    "XDG_CACHE_HOME": "the folder of caches, if ANEFORGE_CACHE_DIR is not set",
    "XDG_CONFIG_HOME": "the folder of settings, with the machines that --machine names (~/.config)",
    "NO_COLOR": "any value turns colours off",
    "TERM": "dumb turns colours off",
}
"""What each variable does, by its name."""


REQUIRED = ("numpy", "typer", "jinja2")
EXTRAS = {
    "onnx": ("onnx", "reads .onnx"),
    "coreml": ("google.protobuf", "reads .mlpackage and .mlmodel"),
    "coreml-export": ("coremltools", "writes .mlpackage"),
    "torch": ("torch", "reads .pt2 and modules"),
    "coreai": ("coreai", "reads .aimodel"),
    "mcp": ("mcp", "serves coding agents (aneforge mcp)"),
    "sweep": ("pyarrow", "writes the tables of sweeps as Parquet"),
    "images": ("PIL", "reads data sets of images"),
    "cluster": ("distributed", "runs sweeps on Dask"),
}


@dataclass(frozen=True)
class Observation:
    """One line: what was looked at, what it is, why, and whether it works as it should."""

    what: str
    value: str
    why: str = ""
    ok: bool = True

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def run(as_json: bool) -> int:
    """Print every finding; 1 if something is degraded."""
    sections_found = examine()
    degraded = [section for section, rows in sections_found.items() if not all(finding.ok for finding in rows)]
    if as_json:
        sections = {section: [finding.to_json() for finding in rows] for section, rows in sections_found.items()}
        print(text.as_json({"ok": not degraded, "degraded": degraded, **sections}))
        return 1 if degraded else 0
    for section, rows in sections_found.items():
        print(section)
        print(text.pairs((finding.what, finding.value, _note(finding)) for finding in rows))
    if degraded:
        print(f"\n{say.paint('degraded', 'red')}: {', '.join(degraded)}")
    else:
        print(f"\n{say.paint('fine', 'green')}: nothing is degraded")
    return 1 if degraded else 0


def _note(finding: Observation) -> str:
    return finding.why if finding.ok else f"{say.paint('degraded', 'red')}: {finding.why}"


def examine() -> dict[str, list[Observation]]:
    """Everything that is looked at, by section."""
    return {
        "versions": _versions(),
        "native kernel": [_guarded("kernel", _native), _guarded("threads", _threads)],
        "optional packages": [_extra(name) for name in EXTRAS],
        "target": [_guarded("detected", _target)],
        "settings": _settings(),
        "data": [_guarded("seal", _data)],
    }


def _guarded(what: str, look: Callable[[], Observation]) -> Observation:
    try:
        return look()
    except AneforgeError as error:
        return Observation(what, "broken", str(error), ok=False)


def _versions() -> list[Observation]:
    rows = [Observation("aneforge", __version__), Observation("python", platform.python_version(), sys.platform)]
    if _version_of(FOREIGN) is not None:
        folder = str(metadata.distribution(FOREIGN).locate_file(""))
        rows.append(Observation("other package", f"{FOREIGN} {_version_of(FOREIGN)}", foreign_package(folder), False))
    return [*rows, *(Observation(name, _version_of(name) or "version unknown") for name in REQUIRED)]


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _native() -> Observation:
    from aneforge.sim import native

    why = native.why_not()
    if why:
        return Observation(
            "kernel", "not loaded", f"{why}; exact sums run in NumPy, the same bits and far slower", False
        )
    return Observation("kernel", "loaded", f"instruction sets: {', '.join(native.paths()) or 'plain'}")


def _threads() -> Observation:
    from aneforge.sim import native

    return Observation("threads", str(native.threads()), "ANEFORGE_THREADS, else the processors of this machine")


def _extra(name: str) -> Observation:
    module, what = EXTRAS[name]
    if not _is_installed(module):
        return Observation(name, "not installed", f"{what}; install with: {install_hint(name)}")
    return Observation(name, _version_of(module.removeprefix("google.")) or "installed", what)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def _target() -> Observation:
    from aneforge.chips.host import ENVIRONMENT, TargetDetectionWarning
    from aneforge.compiler.compile import resolve_target

    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", TargetDetectionWarning)
        target = resolve_target(None)
    override = os.environ.get(ENVIRONMENT, "").strip()
    chips = f" ({target.chips[0]})" if target.chips else ""
    if override:
        why = f"the family of {ENVIRONMENT}={override}"
    elif raised or sys.platform != "darwin":
        why = f"this machine has no engine that is known: the oldest family that takes models; {ENVIRONMENT} chooses"
    else:
        why = "the name of this machine's processor"
    return Observation("detected", f"{target.name}{chips}", why)


def _settings() -> list[Observation]:
    """The variables that are read, and variables of our name that are set and that nothing reads."""
    rows = [Observation(name, os.environ.get(name) or "not set", why) for name, why in SETTINGS.items()]
    ours = sorted(name for name in os.environ if name.startswith("ANEFORGE_") and name not in SETTINGS)
    return [
        *rows,
        *(Observation(name, os.environ[name], "set, but nothing reads it; check its name") for name in ours),
    ]


def _data() -> Observation:
    from aneforge.chips import store

    topics = store.topics()
    for topic in topics:
        store.load(topic)
    return Observation("seal", "whole", f"{len(topics)} files as they were sealed")

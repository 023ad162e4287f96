"""The exact multiply-accumulate in C, where the package was built with a compiler: same bits as the NumPy form.

``ANEFORGE_NATIVE=0`` turns it off, ``ANEFORGE_THREADS`` sets how many threads it may use (all CPUs otherwise), and
``ANEFORGE_NATIVE_PATH`` names the instruction set (see ``paths``) in place of the best one. None of them changes a
bit of any result. The library is loaded on first use.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sysconfig
from functools import lru_cache
from pathlib import Path

import numpy as np

from aneforge.errors import AneforgeError
from aneforge.sim.mac import Sums, start_values

__all__ = ["accumulate", "available", "paths", "rounded", "settled", "threads", "why_not"]

Array = np.ndarray
_INTERFACE = 1  # of mac.c; another number means another list of arguments
_SOURCES = ("mac.c", "mac_kernel.h")
_WORTHWHILE = 1 << 28  # products; half as many take less time than the threads (bench/sim.py, 512 against 1024)
_ROUNDING = 16  # what one rounding costs, in products


def available() -> bool:
    """Whether the library is there, is of this source, and is not turned off."""
    return not why_not()


def why_not() -> str:
    """Why the native form is not in use, in one line; nothing if it is."""
    if os.environ.get("ANEFORGE_NATIVE") == "0":
        return "ANEFORGE_NATIVE=0 turns the native kernel off"
    return _loaded()[1]


def paths() -> list[str]:
    """The instruction sets that this machine and library have, the best one last."""
    return [] if _loaded()[0] is None else [name for name in _path_names() if name]


def threads() -> int:
    """How many threads a call may use."""
    said = os.environ.get("ANEFORGE_THREADS", "")
    if not said:
        return _cpus()
    if not said.isdigit() or int(said) < 1:
        raise AneforgeError(f"ANEFORGE_THREADS is {said!r}: say a whole number from 1")
    return int(said)


def _worth(products: int) -> int:
    """Threads for that many products: one below what starting them takes."""
    return threads() if products >= _WORTHWHILE else 1


def accumulate(
    a: Array,
    b: Array,
    bias: Array | None = None,
    flush_subnormals: bool = False,
    *,
    path: str | None = None,
    workers: int | None = None,
) -> Sums:
    """``aneforge.sim.mac.accumulate`` in C; ``path`` and ``workers`` overrule the environment."""
    sums = start_values(a.shape[0], b.shape[1], bias)
    left, right = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if left.dtype != np.float16 or right.dtype != np.float16 or left.shape[1] != right.shape[0]:
        raise AneforgeError(f"a product of fp16 [n, k] and [k, m], not of {a.dtype} {a.shape} and {b.dtype} {b.shape}")
    failed = _library().aneforge_accumulate(
        *(left.ctypes.data, right.ctypes.data, *left.shape, right.shape[1], int(flush_subnormals)),
        *(
            sums.units.ctypes.data,
            sums.lost.ctypes.data,
            workers or _worth(sums.units.size * left.shape[1]),
            _number(path),
        ),
    )
    if failed:
        raise MemoryError("no memory for the packed operands of a product")
    return sums


def settled(sums: Sums, *, path: str | None = None, workers: int | None = None) -> Array:
    """The fp16 results of accumulators, as ``Sums.settled`` gives them."""
    units, lost = (np.ascontiguousarray(each, np.float64) for each in (sums.units, sums.lost))
    found = np.empty(units.shape, np.float16)
    _library().aneforge_settle(
        *(units.ctypes.data, lost.ctypes.data, found.ctypes.data, units.size),
        *(workers or _worth(_ROUNDING * units.size), _number(path)),
    )
    return found


def rounded(values: Array, *, path: str | None = None, workers: int | None = None) -> Array:
    """``round_half`` as fp16, for finite numbers."""
    wide = np.ascontiguousarray(values, np.float64)
    found = np.empty(wide.shape, np.float16)
    _library().aneforge_settle(
        *(
            wide.ctypes.data,
            None,
            found.ctypes.data,
            wide.size,
            workers or _worth(_ROUNDING * wide.size),
            _number(path),
        ),
    )
    return found


def library_name() -> str:
    """The name of the built library; hatch_build.py gives it the same."""
    return f"_mac.{sysconfig.get_platform()}.{'dll' if os.name == 'nt' else 'so'}"


def _library() -> ctypes.CDLL:
    library, reason = _loaded()
    if library is None:
        raise AneforgeError(f"the native kernel is not there: {reason}")
    return library


@lru_cache(maxsize=1)
def _loaded() -> tuple[ctypes.CDLL | None, str]:
    """The library, or why there is none."""
    folder = Path(__file__).parent
    file = folder / library_name()
    if not file.exists():
        return None, "the native kernel was not built: install again with a C compiler (cc, or CC=...)"
    try:
        library = ctypes.CDLL(str(file))
        _declare(library)
        stale = library.aneforge_interface() != _INTERFACE or library.aneforge_source().decode() != _digest(folder)
    except (OSError, AttributeError) as error:
        return None, f"the native kernel does not load: {error}"
    return (None, f"{file.name} was built from another source: install again") if stale else (library, "")


def _declare(library: ctypes.CDLL) -> None:
    pointer, size, number = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int
    library.aneforge_source.restype = library.aneforge_path.restype = ctypes.c_char_p
    library.aneforge_path.argtypes = [number]
    library.aneforge_accumulate.argtypes = [
        *(pointer, pointer, size, size, size, number),
        *(pointer, pointer, number, number),
    ]
    library.aneforge_settle.argtypes = [pointer, pointer, pointer, size, number, number]


def _digest(folder: Path) -> str:
    """What the sources are, so that a library of older ones is not taken; hatch_build.py compiles it in."""
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in _SOURCES)).hexdigest()[:16]


@lru_cache(maxsize=1)
def _path_names() -> list[str]:
    """Every path of the library by number, empty for one that this machine lacks."""
    names = []
    while (name := _library().aneforge_path(len(names))) is not None:
        names.append(name.decode())
    return names


def _number(path: str | None) -> int:
    wanted = path or os.environ.get("ANEFORGE_NATIVE_PATH", "")
    if not wanted:
        return -1
    if wanted not in paths():
        raise AneforgeError(f"no native path {wanted!r} on this machine: there are {', '.join(paths())}")
    return _path_names().index(wanted)


@lru_cache(maxsize=1)
def _cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""The compiled library: find it, check it, load it on first use; which instruction set and threads it may use."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aneforge.errors import AneforgeError
from aneforge.text import whole_number

_INTERFACE = 12  # of mac.c; another number means another list of arguments
_SOURCES = (
    *("bits.h", "crew.c", "crew.h", "mac.c", "mac_avx2.h", "mac_avx512.h", "mac_kernel.h", "mac_neon.h", "packed.c"),
    *("packed_depthwise.h", "packed_kernel.h", "packed_lines_kernel.h", "packed_map.h", "packed_paths.h"),
    *("packed_product.h", "packed_stored.h", "planar.c", "planar_kernel.h", "vector_end.h"),
)


@dataclass(frozen=True)
class Settings:
    """The settings from the environment."""

    on: bool
    threads: str
    path: str


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings from the environment, read once, because every call needs them. ``settings.cache_clear()``
    rereads."""
    variable = os.environ.get
    return Settings(
        variable("ANEFORGE_NATIVE") != "0", variable("ANEFORGE_THREADS", ""), variable("ANEFORGE_NATIVE_PATH", "")
    )


def available() -> bool:
    """Whether the library exists, was built from this source, and is not turned off."""
    return settings().on and _loaded()[0] is not None


def why_not() -> str:
    """Why the native form is not in use, in one line; empty if it is."""
    return _loaded()[1] if settings().on else "ANEFORGE_NATIVE=0 turns the native kernel off"


def paths() -> list[str]:
    """The instruction sets that this machine and library have, the best one last."""
    return [] if _loaded()[0] is None else [name for name in _path_names() if name]


def threads() -> int:
    """How many threads a call may use."""
    text = settings().threads
    if not text:
        return _cpus()
    count = whole_number(text)
    if not count:
        raise AneforgeError(f"ANEFORGE_THREADS: {text!r} is not a number of threads; set a whole number from 1")
    return count


def library_name() -> str:
    """The name of the built library; hatch_build.py uses the same name."""
    return f"_mac.{sys.platform}-{platform.machine().lower()}.{'dll' if os.name == 'nt' else 'so'}"


def library() -> ctypes.CDLL:
    library, reason = _loaded()
    if library is None:
        raise AneforgeError(f"the native kernel is not available: {reason}")
    return library


@lru_cache(maxsize=1)
def _loaded() -> tuple[ctypes.CDLL | None, str]:
    """The library, or None and the reason."""
    folder = Path(__file__).parent
    file = folder / library_name()
    if not file.exists():
        return None, "the native kernel was not built; install again with a C compiler (cc, or CC=...)"
    try:
        library = ctypes.CDLL(str(file))
        _declare(library)
        stale = library.aneforge_interface() != _INTERFACE or library.aneforge_source().decode() != _digest(folder)
    except (OSError, AttributeError) as error:
        return None, f"the native kernel does not load: {error}"
    return (None, f"{file.name} was built from another source; install again") if stale else (library, "")


def _declare(library: ctypes.CDLL) -> None:
    pointer, size, number = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int
    library.aneforge_source.restype = library.aneforge_path.restype = ctypes.c_char_p
    library.aneforge_path.argtypes = [number]
    library.aneforge_product.argtypes = [
        *(pointer, pointer, size, size, size),
        *(pointer, size, size, number, pointer, pointer, pointer, number, number),
    ]
    library.aneforge_products.argtypes = [
        *(pointer, pointer, size, size, size, size, number, pointer, number, number),
    ]
    library.aneforge_stored_size.argtypes = [size, size, number, number]
    library.aneforge_stored_size.restype = size
    library.aneforge_store_lines.argtypes = [pointer, size, size, size, size, number, pointer, number]
    library.aneforge_stored_rows_product.argtypes = [
        *(pointer, pointer, pointer, pointer, number, pointer, number, number),
    ]
    library.aneforge_stored_columns_product.argtypes = [
        *(pointer, pointer, size, size, size, pointer, size, number, pointer, number, number),
    ]
    library.aneforge_product_inside.argtypes = [
        *(pointer, pointer, size, size, size, size, number, pointer, number, number),
    ]
    library.aneforge_depthwise.argtypes = [pointer, pointer, pointer, pointer, number, pointer, number, number]
    library.aneforge_clamped.argtypes = [pointer, pointer, size, pointer, number, number]
    library.aneforge_settle.argtypes = [pointer, pointer, pointer, size, number, number]
    library.aneforge_widen.argtypes = [pointer, pointer, size, number]
    library.aneforge_narrow.argtypes = [pointer, number, pointer, size, number]
    library.aneforge_pairs.argtypes = [
        *(number, pointer, pointer, pointer, pointer, pointer, pointer, number, number),
    ]
    library.aneforge_gained.argtypes = [
        *(pointer, pointer, pointer, pointer, pointer, ctypes.c_double, ctypes.c_double, ctypes.c_double),
        *(pointer, pointer, number),
    ]
    library.aneforge_special.argtypes = [pointer, size, number]
    library.aneforge_operands.argtypes = [pointer, size, pointer, size, size, number]
    library.aneforge_patches.argtypes = [pointer, pointer, pointer, size]
    library.aneforge_store.argtypes = [pointer, pointer, size, number]
    library.aneforge_look_up.argtypes = [pointer, pointer, pointer, size, number]
    library.aneforge_line_sums.argtypes = [pointer, size, size, number, number, pointer, number]
    library.aneforge_softmax.argtypes = [
        *(pointer, size, size, size, pointer, number, number, pointer, number, number),
    ]
    library.aneforge_layer_norm.argtypes = [
        *(pointer, size, size, size, pointer, pointer, pointer, number, ctypes.c_double, number, number),
        *(pointer, number, number),
    ]
    library.aneforge_settle_single.argtypes = [pointer, pointer, size, size, size, size, pointer, number]


def _digest(folder: Path) -> str:
    """A digest of the sources, which hatch_build.py compiles in, so that a library of older sources is not used."""
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in _SOURCES)).hexdigest()[:16]


@lru_cache(maxsize=1)
def _path_names() -> list[str]:
    """Every path of the library by number, empty for one that this machine lacks."""
    names = []
    while (name := library().aneforge_path(len(names))) is not None:
        names.append(name.decode())
    return names


def path_number(path: str | None) -> int:
    """The number of a path in the library; that of the best one where none is named."""
    wanted = path or settings().path
    if not wanted:
        return -1
    if wanted not in paths():
        raise AneforgeError(
            f"ANEFORGE_NATIVE_PATH: {wanted!r} is not available on this machine; choose one: {', '.join(paths())}"
        )
    return _path_names().index(wanted)


@lru_cache(maxsize=1)
def _cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""Files: written whole or not at all, and read within budgets.

What is new is written beside its place under a name of its own, synced to the disk and renamed. A full disk, a
read-only folder or a kill leaves what was there; after a kill a hidden ``.NAME.*.part`` may lie beside it.
"""

from __future__ import annotations

import io
import math
import os
import re
import secrets
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO

import numpy as np

from aneforge.errors import AneforgeError, LoadError, first_line, shortened, shown

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment a zip archive can name: the same content gives the same bytes


def write_whole(path: str | Path, content: str | bytes, synced: bool = True, mode: int | None = None) -> None:
    """A file of this content (text as UTF-8), whole or not at all; the rest as for :func:`written_file`."""
    with written_file(path, synced, mode) as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def written_file(path: str | Path, synced: bool = True, mode: int | None = None) -> Iterator[IO[bytes]]:
    """A stream whose bytes become the file when the block ends well; any failure leaves the old file.

    A file that is not ``synced`` may be lost or cut off when the machine loses power, not when a process is killed:
    for what is checked when it is read, and made again. ``mode`` gives its permissions; without it, those of the file
    that is there stay.
    """
    file = _place(path)
    try:
        if _passes_through(file):  # a terminal, a pipe: nothing to rename
            with file.open("wb") as stream:
                yield stream
            return
        scratch = _beside(file)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            handle = os.open(scratch, flags, 0o666 if mode is None else mode)
            with os.fdopen(handle, "w+b") as stream:
                if mode is None and file.exists():
                    os.chmod(scratch, stat.S_IMODE(file.stat().st_mode))
                yield stream
                stream.flush()
                if synced:
                    os.fsync(stream.fileno())
            scratch.replace(file)
            if synced:
                _sync_folder(file.parent)
        finally:
            with suppress(OSError):
                scratch.unlink()
    except OSError as error:
        raise AneforgeError(f"{path}: cannot be written ({error.strerror or error})") from None


@contextmanager
def written_folder(path: str | Path) -> Iterator[Path]:
    """An empty folder that takes the place of ``path``, as a unit, when the block ends well."""
    folder = _place(path)
    scratch, old = _beside(folder), _beside(folder)
    try:
        try:
            scratch.mkdir()
            yield scratch
            _sync_tree(scratch)
            if folder.exists():
                folder.rename(old)
            try:
                scratch.rename(folder)
            except BaseException:
                if old.exists():
                    old.rename(folder)
                raise
            _sync_folder(folder.parent)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            if folder.exists():
                _remove(old)
    except OSError as error:
        raise AneforgeError(f"{path}: cannot be written ({error.strerror or error})") from None


def write_folder(path: str | Path, contents: Mapping[str, str]) -> None:
    """Text files by name in a folder; a name may have a folder of its own in front (``region-1/program.txt``).

    A new folder appears as a unit; in one that is there (it may hold the user's own files, or be the working folder)
    every file is staged before the first takes its place.
    """
    folder = Path(path)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not folder.exists():
            with written_folder(folder) as fresh:
                for name, content in contents.items():
                    (fresh / name).parent.mkdir(exist_ok=True)
                    (fresh / name).write_bytes(content.encode("utf-8"))
            return
        for name in contents:
            (folder / name).parent.mkdir(exist_ok=True)
    except OSError as error:
        raise AneforgeError(f"{path}: cannot be written ({error.strerror or error})") from None
    with ExitStack() as staged:
        for name, content in contents.items():
            staged.enter_context(written_file(folder / name)).write(content.encode("utf-8"))


def write_archive(path: str | Path, entries: Iterable[tuple[str, Callable[[IO[bytes]], object]]]) -> None:
    """An uncompressed zip archive; an entry is a name and what writes it. The same entries give the same bytes."""
    with written_file(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, write in entries:
            info = _Entry(name.replace("\0", "\\x00"), _EPOCH)
            info.external_attr = 0o600 << 16
            with archive.open(info, "w", force_zip64=True) as entry:
                write(entry)


class _Entry(zipfile.ZipInfo):
    """An entry whose header has the same bytes on every Python: up to 3.10 large sizes are written another way."""

    def FileHeader(self, zip64: bool | None = None) -> bytes:  # noqa: N802 - the library's name
        try:
            name, flags = self.filename.encode("ascii"), self.flag_bits
        except UnicodeEncodeError:
            name, flags = self.filename.encode("utf-8"), self.flag_bits | _UTF8
        known = (0, 0, 0) if flags & _SIZES_FOLLOW else (self.CRC, self.compress_size, self.file_size)
        self.extract_version = self.create_version = _ZIP64
        year, month, day, hour, minute, second = self.date_time
        moment = hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day
        extra = struct.pack("<HHQQ", 1, 16, known[2], known[1])
        head = (b"PK\3\4", _ZIP64, flags, self.compress_type, *moment, known[0], _LARGE, _LARGE, len(name), len(extra))
        return struct.pack("<4s5H3L2H", *head) + name + extra


_UTF8, _SIZES_FOLLOW = 0x800, 0x08
_ZIP64, _LARGE = 45, 0xFFFFFFFF


def write_arrays(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays by name, as ``np.load`` reads them; any text is a name, also ``file``, which ``np.savez`` cannot take."""
    write_archive(path, ((f"{name}.npy", _array_writer(array)) for name, array in arrays.items()))


def _array_writer(array: np.ndarray) -> Callable[[IO[bytes]], object]:
    return lambda stream: np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)


def _place(path: str | Path) -> Path:
    target = Path(path)
    try:
        file = target.resolve() if target.is_symlink() else target  # the file that a link names, not the link
        if not file.name:
            raise ValueError("it names no file")
        file.with_name(f"{file.name}.part")
    except (OSError, RuntimeError, ValueError) as error:  # a link to itself; a name such as "."
        raise AneforgeError(f"{path}: not a name for a file ({first_line(error)})") from None
    return file


def _beside(file: Path) -> Path:
    return file.with_name(f".{file.name[:120]}.{secrets.token_hex(6)}.part")


def _passes_through(file: Path) -> bool:
    try:
        kind = file.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(kind) or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


def _sync_tree(folder: Path) -> None:
    for directory, _, names in os.walk(folder):
        for name in names:
            if not (Path(directory) / name).is_symlink():
                with (Path(directory) / name).open("rb") as stream, suppress(OSError):
                    os.fsync(stream.fileno())
        _sync_folder(Path(directory))


def _sync_folder(folder: Path) -> None:
    """A rename is on the disk when its folder is; some systems cannot sync a folder."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


# How much a model file may ask of this machine while it is read: one set of limits for every reader.


@dataclass(frozen=True)
class Budget:
    """One limit: its default, and what it counts."""

    default: int
    counts: str


LIMITS: dict[str, Budget] = {
    "unpacked_bytes": Budget(32 << 30, "bytes that one archive (saved graph, .npz, .pt2) unpacks to"),
    "archive_ratio": Budget(200, "bytes that one byte of a compressed entry of an archive unpacks to"),
    "unpacked_files": Budget(10_000, "files that one uploaded archive unpacks to"),
    "folded_bytes": Budget(2 << 30, "bytes of constants computed while a file is read, beyond 8 times its size"),
    "folded_work": Budget(10_000_000_000, "numbers read, multiplied or written to compute constants"),
    "nodes": Budget(250_000, "nodes walked, with functions, branches and loops written out"),
    "rounds": Budget(4096, "rounds of one loop that is written out"),
    "plist_bytes": Budget(256 << 20, "bytes of one netplist, without its weights"),
    "plist_values": Budget(5_000_000, "values of one netplist, each counted wherever it is used"),
    "program_bytes": Budget(8 << 30, "bytes of one compiled program (.hwx, .anec)"),
    "depth": Budget(16, "functions within functions, loops within loops"),
}
"""Every limit by name."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_allowed: ContextVar[dict[str, int] | None] = ContextVar("budgets", default=None)


@contextmanager
def allow(**limits: int) -> Iterator[None]:
    """Other limits for what is loaded inside: ``with budgets.allow(nodes=1_000_000): af.load(...)``."""
    for name, value in limits.items():
        if name not in LIMITS:
            raise AneforgeError(f"{name}: not a budget; choose one: {', '.join(LIMITS)}.")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise AneforgeError(f"budget {name}: {value!r} is not a whole number of 0 or more")
    token = _allowed.set({**(_allowed.get() or {}), **limits})
    try:
        yield
    finally:
        _allowed.reset(token)


def limit(name: str) -> int:
    """The limit that holds now."""
    inside = (_allowed.get() or {}).get(name)
    if inside is not None:
        return inside
    variable = _variable(name)
    text = os.environ.get(variable)
    if text is None:
        return LIMITS[name].default
    number = bytes_of(text)
    if number is None:
        raise AneforgeError(f"{variable}={text!r} is not a whole number; write for instance {variable}=8G")
    return number


def bytes_of(text: str) -> int | None:
    """A whole number as people write sizes (``8192``, ``512M``, ``8G``), or None."""
    number = re.fullmatch(r"(\d{1,18})([KMGT]?)", text.strip().upper())
    return None if number is None else int(number[1]) * _UNITS[number[2]]


def spend(name: str, amount: int, where: str, free: int = 0) -> None:
    """Refuse what is over a limit; ``free`` is what the file's own size allows beyond it."""
    most = limit(name)
    if amount > most + free:
        raise LoadError(
            f"{where}: {amount:,} is over the budget {name} of {most + free:,} ({LIMITS[name].counts}). If you trust "
            f"the file, set {_variable(name)}={amount - free} or use aneforge.files.allow({name}={amount - free})"
        )


def check_archive(archive: zipfile.ZipFile, where: str) -> None:
    """What an archive says that it unpacks to, before anything is unpacked; reading stops at what it says."""
    total = 0
    for info in archive.infolist():
        total += info.file_size
        if info.file_size > 1 << 20:
            ratio = -(-info.file_size // max(1, info.compress_size))
            spend("archive_ratio", ratio, f"{where}: entry {info.filename!r}")
    spend("unpacked_bytes", total, where)


def entry_of(archive: zipfile.ZipFile, name: str, where: str) -> bytes:
    """One entry of an archive. ``LoadError`` where it is encrypted, cut off, or packed in a way that nobody reads."""
    try:
        return archive.read(name)
    except KeyError:
        raise LoadError(f"{where}: has no entry {shown(name)!r}") from None
    except (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, MemoryError, *_BAD_ARCHIVE) as error:
        raise LoadError(f"{where}: entry {shortened(shown(name))!r} cannot be read ({first_line(error)})") from None


_BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, struct.error)
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# NumPy reads the header of an array with Python's own parser, and that of Python 3.11 counts its depth for all threads
# together: two that parse at a time raise SystemError.
_header_lock = Lock()


def array_header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether the first axis runs fastest, and type of an array in NumPy's format, read from its beginning."""
    try:
        with _header_lock:
            version = np.lib.format.read_magic(stream)
            shape, is_fortran, dtype = _HEADERS[version](stream)
    except KeyError:
        raise LoadError(
            f"{where}: an array in a version of NumPy's format that is not supported; write it with np.save"
        ) from None
    except Exception as error:  # the header is parsed as Python: syntax, tokens, recursion, types
        raise LoadError(f"{where}: not an array in NumPy's format ({first_line(error)})") from None
    if dtype.hasobject or any(extent < 0 for extent in shape):
        raise LoadError(f"{where}: not an array of numbers; write it with np.save")
    return shape, is_fortran, dtype


def array_of(content: bytes, where: str) -> np.ndarray:
    """The array that a file in NumPy's format holds, not to be written to. Nothing larger than the file is made."""
    stream = io.BytesIO(content)
    shape, is_fortran, dtype = array_header(stream, where)
    count, begin = math.prod(shape), stream.tell()
    if count * dtype.itemsize != len(content) - begin:
        raise LoadError(
            f"{where}: an array of {list(shape)} {dtype} takes {count * dtype.itemsize:,} bytes, and the file has "
            f"{len(content) - begin:,}"
        )
    return np.frombuffer(content, dtype, count, begin).reshape(shape, order="F" if is_fortran else "C")


def regular_file(path: str | Path, where: str) -> Path:
    """A file to read: a device, a pipe or a socket could block, or never end."""
    file = Path(path)
    try:
        kind = file.stat().st_mode
    except (OSError, ValueError) as error:
        raise LoadError(f"{where}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not stat.S_ISREG(kind):
        raise LoadError(f"{where}: not a regular file; copy its content to one")
    return file


def _variable(name: str) -> str:
    return f"ANEFORGE_MAX_{name.upper()}"

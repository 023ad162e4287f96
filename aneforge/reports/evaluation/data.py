"""Data sets, one sample at a time: named arrays (.npz), folders of images or arrays, manifests and Parquet files.

A reader knows how many samples there are before it reads the first, and holds one of them in memory at a time.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

import numpy as np

from aneforge.documents import parse_json
from aneforge.errors import AneforgeError, LoadError, first_line, install_hint
from aneforge.files import array_header, array_of, check_archive, regular_file
from aneforge.graph.graph import Graph
from aneforge.sim.inputs import read_arrays
from aneforge.text import whole_number

Array = np.ndarray
Preprocess = Callable[[Any], Any]
"""Takes what was read of one sample (an image [rows, columns, channels] of bytes, or arrays by name), and gives the
model's inputs: arrays by name, or the array of the only input."""

LABELS = ("labels", "label", "y", "targets", "target")
"""What the labels of a data set may be called, where nobody says."""
_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_ARRAYS = (".npz", ".npy")
_DAMAGED = (RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error)  # RuntimeError: encrypted
_MANIFESTS = (".csv", ".json", ".jsonl")


class SampleError(AneforgeError):
    """One sample that cannot be used: it is counted, or refused where the user asked for that."""


@dataclass(frozen=True)
class LabelledSample:
    """The model's inputs, and what the data set says that the answer is (None where it says nothing)."""

    feeds: dict[str, Array]
    label: Any


@runtime_checkable
class Reader(Protocol):
    """What each kind of data set gives, and any object may that has these: raw samples by number."""

    identity: str
    """The same for the same data, on any machine."""

    def __len__(self) -> int: ...

    def name(self, number: int) -> str:
        """What to call a sample in messages."""
        ...

    def read(self, number: int) -> tuple[Any, Any]:
        """What there is of one sample, and its label. Raises :class:`SampleError`."""
        ...


@dataclass
class DataSet:
    """Samples as a graph takes them."""

    reader: Reader
    ports: dict[str, tuple[tuple[int, ...], str]]
    """Shape and type of each input, by name."""
    preprocess: Preprocess | None = None
    where: str = "data"

    def __len__(self) -> int:
        return len(self.reader)

    @property
    def identity(self) -> str:
        return self.reader.identity

    def read(self, number: int) -> LabelledSample:
        """One sample. Raises :class:`SampleError`, which names it."""
        name = self.reader.name(number)
        raw, label = self.reader.read(number)
        if self.preprocess is not None:
            try:
                raw = self.preprocess(raw)
            except Exception as error:  # the user's own function
                raise SampleError(f"{name}: --preprocess failed: {first_line(error)}") from None
        elif not isinstance(raw, Mapping):
            raw = self._pixels(np.asarray(raw), name)
        arrays = raw if isinstance(raw, Mapping) else dict(zip(self.ports, [raw], strict=False))
        missing = [port for port in self.ports if port not in arrays]
        if missing:
            raise SampleError(f"{name}: input {missing[0]!r} is missing; it has {', '.join(arrays) or 'nothing'}")
        return LabelledSample({port: self._fitted(port, arrays[port], name) for port in self.ports}, label)

    def _fitted(self, port: str, value: Any, name: str) -> Array:
        shape, _ = self.ports[port]
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise SampleError(f"{name}: {port!r} is {array.dtype}; expected numbers")
        if array.shape != shape and not (shape[:1] == (1,) and array.shape == shape[1:]):
            raise SampleError(f"{name}: {port!r} has shape {list(array.shape)}; the model takes {list(shape)}")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise SampleError(f"{name}: {port!r} has a NaN; a sample must be numbers")
        return array.reshape(shape)

    def _pixels(self, image: Array, name: str) -> Array:
        """An image as the model's image port takes it: bytes, channels first."""
        shape, dtype = next(iter(self.ports.values()))
        if image.shape in (shape, shape[1:]):  # an array that is laid out already
            return image
        if len(self.ports) != 1 or len(shape) != 4 or dtype != "uint8":
            raise AneforgeError(
                f"{name}: the model has no image input, so nothing says how pixels become its numbers. Give "
                "--preprocess own.py:function, which takes the image [rows, columns, channels] and returns the input."
            )
        return resized(image, shape[2], shape[3], shape[1], name).transpose(2, 0, 1)


def open_data(data: Any, graph: Graph, labels: str | None = None, preprocess: Preprocess | None = None) -> DataSet:
    """The data set of a path, or of arrays by name whose first axis counts the samples."""
    names = graph.names()
    ports = {names[port.uid]: (tuple(port.shape), port.dtype) for port in graph.inputs}
    if isinstance(data, Mapping):
        return DataSet(_Named(dict(data), ports, labels, preprocess), ports, preprocess, "data")
    if isinstance(data, Reader):
        return DataSet(data, ports, preprocess, "data")
    place = Path(data)
    if not place.exists():
        raise AneforgeError(f"{place}: no such file or folder. Give FILE.npz, a folder, a manifest or FILE.parquet.")
    suffix = place.suffix.casefold()
    reader: Reader
    if place.is_dir():
        reader = _folder(place)
    elif suffix == ".npz":
        reader = _Archive(place, ports, labels, preprocess)
    elif suffix in _MANIFESTS:
        reader = _manifest(place)
    elif suffix == ".parquet":
        reader = _Parquet(place, labels)
    else:
        endings = ", ".join((".npz", *_MANIFESTS, ".parquet"))
        raise AneforgeError(f"{place}: not a data set; give a folder or a file that ends in {endings}.")
    if not len(reader):
        raise AneforgeError(f"{place}: holds no sample. An evaluation needs at least one.")
    return DataSet(reader, ports, preprocess, str(place))


# Named arrays: in memory, or in an archive whose rows are read in turn.


def _label_name(names: Sequence[str], ports: Mapping[str, Any], labels: str | None, where: str) -> str | None:
    if labels is not None:
        if labels not in names:
            raise AneforgeError(f"{where}: has no array {labels!r} for labels; it has {', '.join(names)}.")
        return labels
    return next((name for name in LABELS if name in names and name not in ports), None)


def _columns(
    names: Sequence[str], ports: Mapping[str, Any], label: str | None, preprocess: Preprocess | None, where: str
) -> dict[str, str]:
    """The array of each input. One array of any name is the only input's; a function gets all."""
    others = [name for name in names if name != label]
    if preprocess is not None:
        return {name: name for name in others}
    if len(ports) == len(others) == 1:
        return {next(iter(ports)): others[0]}
    missing = [port for port in ports if port not in others]
    if missing:
        raise AneforgeError(
            f"{where}: has no array for input {missing[0]!r}; it has {', '.join(names) or 'none'}. Name the arrays "
            "as the inputs."
        )
    return {port: port for port in ports}


def _same_length(counts: Mapping[str, int], where: str) -> int:
    if len(set(counts.values())) != 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise AneforgeError(f"{where}: arrays and labels have different numbers of samples ({listed}).")
    return next(iter(counts.values()))


class _Named:
    """Arrays that are in memory."""

    def __init__(
        self,
        arrays: dict[str, Array],
        ports: Mapping[str, Any],
        labels: str | None,
        preprocess: Preprocess | None,
    ) -> None:
        self._arrays = {name: np.asarray(array) for name, array in arrays.items()}
        self._label = _label_name(list(arrays), ports, labels, "data")
        self._columns = _columns(list(arrays), ports, self._label, preprocess, "data")
        used = [*self._columns.values(), *([self._label] if self._label else [])]
        counts = {name: len(self._arrays[name]) if self._arrays[name].ndim else 0 for name in used}
        self._count = _same_length(counts, "data")
        digest = hashlib.blake2b(digest_size=16)
        for name in used:
            digest.update(f"{name}{self._arrays[name].shape}".encode() + np.ascontiguousarray(self._arrays[name]).data)
        self.identity = digest.hexdigest()

    def __len__(self) -> int:
        return self._count

    def name(self, number: int) -> str:
        return f"sample {number}"

    def read(self, number: int) -> tuple[Any, Any]:
        feeds = {port: self._arrays[name][number] for port, name in self._columns.items()}
        return feeds, None if self._label is None else self._arrays[self._label][number]


class _Rows:
    """One array of an archive, row by row: forwards without reading anything twice, backwards from its start."""

    def __init__(self, file: Path, entry: str) -> None:
        self._file, self._entry = file, entry
        self._stream: IO[bytes] | None = None
        self._archive: zipfile.ZipFile | None = None
        self._at = 0
        self._open()

    def _open(self) -> None:
        self.close()
        self._archive = zipfile.ZipFile(self._file)
        stream = self._stream = self._archive.open(self._entry)
        shape, is_fortran, self.dtype = array_header(stream, self._entry)
        if (is_fortran and len(shape) > 1) or not shape:
            raise ValueError(f"array {self._entry.removesuffix('.npy')!r} has no rows of plain numbers in C order")
        self.count, self.shape = shape[0], shape[1:]
        self._size = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        self._at = 0

    def close(self) -> None:
        for opened in (self._stream, self._archive):
            if opened is not None:
                opened.close()

    def row(self, number: int) -> Array:
        if number < self._at:
            self._open()
        assert self._stream is not None
        while self._at < number:
            self._read()
        return np.frombuffer(self._read(), self.dtype).reshape(self.shape)

    def _read(self) -> bytes:
        assert self._stream is not None
        data = self._stream.read(self._size)
        if len(data) != self._size:
            raise ValueError(f"array {self._entry.removesuffix('.npy')!r} ends early")
        self._at += 1
        return data


class _Archive:
    """An ``.npz`` file. Only the rows that are asked for are in memory."""

    def __init__(
        self, file: Path, ports: Mapping[str, Any], labels: str | None, preprocess: Preprocess | None
    ) -> None:
        self._file = str(file)
        try:
            with zipfile.ZipFile(regular_file(file, self._file)) as archive:
                check_archive(archive, self._file)
                entries = archive.infolist()
            names = [entry.filename.removesuffix(".npy") for entry in entries]
            self._label = _label_name(names, ports, labels, self._file)
            self._columns = _columns(names, ports, self._label, preprocess, self._file)
            used = [*self._columns.values(), *([self._label] if self._label else [])]
            self._rows = {name: _Rows(file, f"{name}.npy") for name in used}
        except (OSError, ValueError, KeyError, EOFError, LoadError, *_DAMAGED) as error:
            raise AneforgeError(
                f"{file}: not a file of named arrays (.npz): {first_line(error)}. Write one with np.savez(file, x=x)."
            ) from None
        self._count = _same_length({name: rows.count for name, rows in self._rows.items()}, self._file)
        listed = sorted((entry.filename, entry.CRC, entry.file_size) for entry in entries)
        self.identity = hashlib.blake2b(json.dumps(listed).encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return self._count

    def name(self, number: int) -> str:
        return f"{self._file}, sample {number}"

    def read(self, number: int) -> tuple[Any, Any]:
        try:
            feeds = {port: self._rows[name].row(number) for port, name in self._columns.items()}
            return feeds, None if self._label is None else self._rows[self._label].row(number)
        except (OSError, ValueError, EOFError, LoadError, *_DAMAGED) as error:  # what is left of a damaged archive
            raise SampleError(f"{self.name(number)}: cannot be read ({first_line(error)})") from None


# Files, one for each sample.


@dataclass
class _Files:
    places: Sequence[Path]
    labels: Sequence[Any]
    identity: str

    def __len__(self) -> int:
        return len(self.places)

    def name(self, number: int) -> str:
        return str(self.places[number])

    def read(self, number: int) -> tuple[Any, Any]:
        place = self.places[number]
        suffix = place.suffix.casefold()
        label = self.labels[number]
        if suffix == ".npz":
            try:
                arrays = read_arrays(str(place))
            except AneforgeError as error:
                raise SampleError(str(error)) from None
            own = next((name for name in LABELS if name in arrays and label is None), None)
            return {name: array for name, array in arrays.items() if name != own}, arrays[own] if own else label
        if suffix == ".npy":
            return _array_of(place), label
        return image_of(place), label


def _array_of(place: Path) -> Array:
    try:
        return array_of(regular_file(place, str(place)).read_bytes(), str(place))
    except (OSError, AneforgeError) as error:
        raise SampleError(f"{place}: cannot be read ({first_line(error)})") from None


def _files(pairs: Sequence[tuple[Path, Any]], root: Path) -> _Files:
    digest = hashlib.blake2b(digest_size=16)
    for place, label in pairs:
        try:
            name = place.relative_to(root).as_posix()
        except ValueError:
            name = place.as_posix()
        size = place.stat().st_size if place.is_file() else -1
        digest.update(f"{name}\n{size}\n{label}\n".encode())
    return _Files([place for place, _ in pairs], [label for _, label in pairs], digest.hexdigest())


def _folder(place: Path) -> _Files:
    """Files of samples; a folder in the folder is a class, numbered in the order of the names (numbers stay)."""
    wanted = (*_IMAGES, *_ARRAYS)
    files = sorted(file for file in place.rglob("*") if file.suffix.casefold() in wanted and file.is_file())
    classes = sorted({file.parent.name for file in files if file.parent != place})
    stated = [whole_number(name) for name in classes]
    numbers = dict(zip(classes, range(len(classes)) if None in stated else stated, strict=True))
    return _files([(file, numbers.get(file.parent.name) if file.parent != place else None) for file in files], place)


def _manifest(file: Path) -> _Files:
    """Records with ``path`` (from the manifest's folder) and ``label``: CSV with a head, JSON lines or JSON."""
    suffix = file.suffix.casefold()
    try:
        content = regular_file(file, str(file)).read_text(encoding="utf-8-sig")
        if suffix == ".csv":
            records: list[Any] = list(csv.DictReader(io.StringIO(content)))
        elif suffix == ".jsonl":
            records = [parse_json(line, str(file)) for line in content.splitlines() if line.strip()]
        else:
            records = parse_json(content, str(file))
        if not isinstance(records, list):
            raise ValueError("expected a list of records")
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise AneforgeError(f"{file}: not a manifest ({first_line(error)})") from None
    pairs = []
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or not isinstance(record.get("path"), str) or not record["path"]:
            raise AneforgeError(f'{file}: record {number} has no path; write for instance path,label and "a.png",3')
        pairs.append((file.parent / record["path"], _manifest_label(record.get("label"), f"{file}: record {number}")))
    return _files(pairs, file.parent)


def _manifest_label(label: Any, where: str) -> Any:
    if label is None or (isinstance(label, str) and not label.strip()):
        return None
    try:
        return int(label)
    except (TypeError, ValueError):
        raise AneforgeError(f"{where}: label {label!r} is not a class; expected a whole number") from None


# Images, by Pillow.


def image_of(source: Path | bytes, name: str | None = None) -> Array:
    """The pixels of an image file: bytes, [rows, columns, channels] with one or three channels."""
    image_library = _pillow(name or str(source))
    try:
        if isinstance(source, Path):
            regular_file(source, str(source))
        with image_library.open(source if isinstance(source, Path) else io.BytesIO(source)) as opened:
            pixels = np.asarray(opened.convert("L" if opened.mode in ("1", "L", "I;16") else "RGB"))
    except (OSError, ValueError, SyntaxError, AneforgeError, image_library.DecompressionBombError) as error:
        raise SampleError(f"{name or source}: not an image that can be read ({first_line(error)})") from None
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def resized(image: Array, rows: int, columns: int, channels: int, name: str) -> Array:
    """An image of another size (bilinear), with one channel or three."""
    if image.ndim != 3 or image.dtype != np.uint8 or channels not in (1, 3):
        raise SampleError(f"{name}: an image of bytes with 1 or 3 channels is expected, not {list(image.shape)}")
    if image.shape == (rows, columns, channels):
        return image
    library = _pillow(name)
    picture = library.fromarray(image if image.shape[2] == 3 else image[:, :, 0])
    picture = picture.convert("RGB" if channels == 3 else "L").resize((columns, rows), library.Resampling.BILINEAR)
    pixels = np.asarray(picture)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _pillow(where: str) -> Any:
    try:
        from PIL import Image  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError:
        raise AneforgeError(f"{where}: images need Pillow. Install it with {install_hint('images')}.") from None
    return Image


# Parquet files: a column for each input, and one of labels.


class _Parquet:
    """One group of rows is in memory at a time."""

    def __init__(self, file: Path, labels: str | None) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError:
            raise AneforgeError(f"{file}: needs pyarrow. Install it with {install_hint('sweep')}.") from None
        try:
            self._file = parquet.ParquetFile(regular_file(file, str(file)))
        except (OSError, pyarrow.ArrowException) as error:
            raise AneforgeError(f"{file}: not a Parquet file ({first_line(error)})") from None
        self._name = str(file)
        names = list(self._file.schema_arrow.names)
        self._label = _label_name(names, {}, labels, self._name)
        self._columns = [name for name in names if name != self._label]
        counts = [self._file.metadata.row_group(group).num_rows for group in range(self._file.metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(int)
        self._group, self._rows = -1, {}
        head = f"{file.stat().st_size} {self._file.metadata.num_rows} {self._file.schema_arrow}"
        self.identity = hashlib.blake2b(head.encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def name(self, number: int) -> str:
        return f"{self._name}, row {number}"

    def read(self, number: int) -> tuple[Any, Any]:
        group = int(np.searchsorted(self._starts, number, side="right")) - 1
        if group != self._group:
            try:
                self._rows = self._file.read_row_group(group).to_pydict()
            except Exception as error:  # pyarrow's own, and what a damaged file leads to
                raise SampleError(f"{self.name(number)}: cannot be read ({first_line(error)})") from None
            self._group = group
        row = number - int(self._starts[group])
        values = {name: self._rows[name][row] for name in self._columns}
        label = None if self._label is None else self._rows[self._label][row]
        image = next((value for value in values.values() if _image_bytes(value) is not None), None)
        if image is not None:
            return image_of(_image_bytes(image) or b"", self.name(number)), label
        return {name: _numbers(value, self.name(number)) for name, value in values.items()}, label


def _image_bytes(value: Any) -> bytes | None:
    """The bytes of an image, bare or in a record, as data sets of images have them."""
    content = value.get("bytes") if isinstance(value, dict) else value
    return content if isinstance(content, bytes) else None


def _numbers(value: Any, name: str) -> Array:
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray("")
    if array.dtype.kind not in "fiub":
        raise SampleError(f"{name}: a column holds no array; expected numbers")
    return array

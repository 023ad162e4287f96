"""The shapes that a model file allows for its inputs, read from its header: no graph is built, no weight is read.

A Core ML file lists shapes (``EnumeratedShapes``) or states a range for each axis (``RangeDim``), beside a default. An
ONNX file names open dimensions. An exported PyTorch program has symbols, each with a range.
"""

from __future__ import annotations

import json
import mmap
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from aneforge.errors import LoadError
from aneforge.files import regular_file
from aneforge.formats.importer.op import FilePort

Span = tuple[int, int | None]
"""The least and the most of a dimension, both allowed; None is no upper limit."""
Sizes = Mapping[str, int]
Asked = Mapping[str, int | tuple[int, int]]
"""What ``--dim`` asks for: a size, or both ends of a range, by the name of the dimension."""

DEFAULT, LISTED, LEAST, MOST, ASKED = "default", "listed", "smallest", "largest", "asked"
_MOST_SIZE = 1 << 62  # PyTorch writes no upper limit as a number near the largest integer
DESCRIPTION = 2  # field of a Core ML Model
MODEL_GRAPH, GRAPH_INPUT = 7, 11  # fields of an ONNX ModelProto and its GraphProto


@dataclass(frozen=True)
class InputShapes:
    """The shapes of one input."""

    name: str
    default: tuple[int | None, ...]
    """The shape that a runtime takes where nobody chooses; None where the file names no size."""
    listed: tuple[tuple[int, ...], ...] = ()
    """Every shape that is allowed, where the file lists them."""
    spans: Mapping[str, Span] = field(default_factory=dict)
    """The range of each open dimension by its name, where the file states ranges or symbols."""

    @property
    def kind(self) -> str:
        """``enumerated``, ``range`` or ``fixed``."""
        if len(set(self.listed)) > 1:
            return "enumerated"
        return "range" if self.spans else "fixed"

    def sizes_of(self, shape: tuple[int, ...]) -> dict[str, int]:
        """A listed shape as sizes by dimension, as ``af.load`` takes them."""
        open_axes = [axis for axis, extents in enumerate(zip(*self.listed, strict=True)) if len(set(extents)) > 1]
        return {f"{self.name}[{axis}]": shape[axis] for axis in open_axes}

    def to_json(self) -> dict[str, Any]:
        ranges = {name: list(span) for name, span in self.spans.items()}
        listed = [list(shape) for shape in self.listed]
        return {"input": self.name, "kind": self.kind, "default": list(self.default), "shapes": listed, "dims": ranges}


@dataclass(frozen=True)
class ShapePoint:
    """One choice of sizes for the open dimensions of a file."""

    sizes: Sizes
    role: str
    """``default``, ``listed``, ``smallest``, ``largest`` or ``asked``."""

    @property
    def label(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items()) or "as the file states"


@dataclass(frozen=True)
class FlexibleShapes:
    """The shapes that a model file allows."""

    file: str
    inputs: tuple[InputShapes, ...]

    @property
    def flexible(self) -> bool:
        """Whether an input may have more than one shape."""
        return any(port.kind != "fixed" for port in self.inputs)

    @property
    def kind(self) -> str:
        """``range`` where an input has one, else ``enumerated``, else ``fixed``."""
        kinds = {port.kind for port in self.inputs}
        return next((kind for kind in ("range", "enumerated") if kind in kinds), "fixed")

    @property
    def spans(self) -> dict[str, Span]:
        """The range of each open dimension by its name."""
        return {name: span for port in self.inputs for name, span in port.spans.items()}

    @property
    def listed(self) -> list[dict[str, int]]:
        """The listed shapes as sizes, each once. Several inputs go together: first with first, second with second."""
        ports = [port for port in self.inputs if port.kind == "enumerated"]
        rows = zip_longest(*(port.listed for port in ports))
        together = [
            {
                name: size
                for port, shape in zip(ports, row, strict=True)
                for name, size in port.sizes_of(shape or port.listed[-1]).items()
            }
            for row in rows
        ]
        return list({tuple(sizes.items()): sizes for sizes in together}.values())

    @property
    def default(self) -> dict[str, int] | None:
        """The sizes of the default shape; None where the file leaves one open."""
        sizes: dict[str, int] = {}
        for port in self.inputs:
            if port.kind == "enumerated":
                sizes |= port.sizes_of(tuple(extent or 0 for extent in port.default))
        stated = self._stated
        if any(name not in stated for name in self.spans):
            return None
        return {**sizes, **{name: stated[name] for name in self.spans}}

    @property
    def _stated(self) -> dict[str, int]:
        """The default of each open dimension that has one."""
        stated: dict[str, int] = {}
        for port in self.inputs:
            for axis, extent in enumerate(port.default):
                if extent is not None and f"{port.name}[{axis}]" in port.spans:
                    stated.setdefault(f"{port.name}[{axis}]", extent)
        return stated

    def names(self) -> list[str]:
        """Every open dimension."""
        return list(dict.fromkeys([*(name for sizes in self.listed[:1] for name in sizes), *self.spans]))

    def points(self, asked: Asked | None = None) -> list[ShapePoint]:
        """The shapes to judge: the default, every other listed one, and both ends of each range. What was asked for
        narrows them. Raises where nothing that the file allows fits, and where a dimension has neither default nor
        range."""
        wanted = dict(asked or {})
        self._check(wanted)
        points = [self._point(sizes, role, wanted) for sizes, role in self._choices(wanted)]
        distinct = {tuple(point.sizes.items()): point for point in reversed(points)}
        return list(distinct.values())[::-1]

    def _choices(self, asked: Asked) -> Iterator[tuple[dict[str, int], str]]:
        default, listed = self.default, [sizes for sizes in self.listed if sizes and _fits(sizes, asked)]
        if self.listed and self.listed[0] and not listed:
            raise LoadError(f"{self.file}: no shape of the file has {_words(asked)}; it lists {self._list()}")
        least, most = self._ends(asked)
        varies = bool(listed) or least != most
        if default is not None and _fits(default, asked) and varies:
            yield default, DEFAULT
        first = listed[0] if listed else {}
        for sizes in listed[1:] if listed and default is not None and first == _part(default, first) else listed:
            yield {**sizes, **_part(default or least, least)}, LISTED if len(listed) > 1 else ASKED
        if least != most or not listed:
            yield {**first, **least}, LEAST if least != most else ASKED
        if least != most:
            yield {**first, **most}, MOST

    def _ends(self, asked: Asked) -> tuple[dict[str, int], dict[str, int]]:
        """Every ranged dimension at its least, and at its most."""
        least: dict[str, int] = {}
        most: dict[str, int] = {}
        stated = self._stated
        for name, (low, high) in self.spans.items():
            wish = asked.get(name)
            if wish is None and high is None and name not in stated:
                raise LoadError(
                    f"{self.file}: dimension {name!r} is open and has no upper limit; give it a size or a range: "
                    f"--dim {name}=1, or --dim {name}={max(1, low)}..512"
                )
            span = (low, stated.get(name, low) if high is None else high)
            least[name], most[name] = (wish, wish) if isinstance(wish, int) else wish or span
        return {name: max(1, size) for name, size in least.items()}, most

    def _point(self, sizes: Mapping[str, int], role: str, asked: Asked) -> ShapePoint:
        exact = {name: size for name, size in asked.items() if isinstance(size, int)}
        return ShapePoint({**sizes, **exact}, role)

    def _check(self, asked: Asked) -> None:
        names = self.names()
        for name, wish in asked.items():
            if name not in names:
                raise LoadError(
                    f"{self.file}: no symbolic dimension {name!r}; the inputs have "
                    f"{', '.join(sorted(names)) or 'none'}"
                )
            low, high = self.spans.get(name, (1, None))
            first, last = (wish, wish) if isinstance(wish, int) else wish
            if first < max(1, low) or (high is not None and last > high):
                bound = f"{low} or more" if high is None else f"{low} to {high}"
                raise LoadError(f"{self.file}: {name}={_text(wish)} is outside the model's range; it allows {bound}")

    def _list(self) -> str:
        shown = [_words(sizes) for sizes in self.listed[:8]]
        return "; ".join([*shown, *(["..."] if len(self.listed) > 8 else [])])

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "inputs": [port.to_json() for port in self.inputs if port.kind != "fixed"]}

    def __str__(self) -> str:
        texts = dict.fromkeys(_port_text(port) for port in self.inputs if port.kind != "fixed")
        return "; ".join(texts) or "fixed shapes"


def _part(sizes: Sizes, names: Mapping[str, Any]) -> dict[str, int]:
    return {name: sizes[name] for name in names if name in sizes}


def _fits(sizes: Sizes, asked: Asked) -> bool:
    """Whether sizes are among those that were asked for."""
    for name, wish in asked.items():
        first, last = (wish, wish) if isinstance(wish, int) else wish
        if name in sizes and not first <= sizes[name] <= last:
            return False
    return True


def _text(wish: int | tuple[int, int]) -> str:
    return str(wish) if isinstance(wish, int) else f"{wish[0]}..{wish[1]}"


def _words(asked: Asked) -> str:
    return ", ".join(f"{name}={_text(wish)}" for name, wish in asked.items())


def _port_text(port: InputShapes) -> str:
    if port.kind == "enumerated":
        some = ", ".join(str(list(shape)) for shape in port.listed[:6])
        rest = f" and {len(port.listed) - 6} more" if len(port.listed) > 6 else ""
        return f"{port.name} is one of {len(port.listed)} listed shapes: {some}{rest}"
    ranges = (f"{name} is {low} or more" if high is None else f"{name} is {low} to {high}"
              for name, (low, high) in port.spans.items())  # fmt: skip
    return ", ".join(ranges)


# Files.


def shapes_of(path: str | Path, function: str | None = None) -> FlexibleShapes:
    """The shapes that a model file allows for its inputs: listed ones, ranges or symbols, and the default. Only the
    header of the file is read. ``function`` names one of several functions in the file."""
    file = Path(path)
    if not file.exists():
        raise LoadError(f"{str(path)!r}: no such file; check the path")
    reader = _READERS.get(file.suffix.casefold())
    if reader is None:
        return FlexibleShapes(file.name, ())
    if not file.is_dir():
        regular_file(file, file.name)
    return FlexibleShapes(file.name, tuple(reader(file, function)))


def _of_port(name: str, port: FilePort) -> InputShapes:
    spans = {
        f"{name}[{axis}]": (low, None if high < 0 else high)
        for axis, (low, high) in enumerate(port.ranges)
        if port.may_change(axis)
    }
    return InputShapes(name, port.shape, port.choices, spans)


def _coreml(file: Path, function: str | None) -> Iterator[InputShapes]:
    from aneforge.formats.coreml.reader import description_in, ports_of

    description = description_in(file)
    wanted = function or description.defaultFunctionName or "main"
    named = next((entry for entry in description.functions if entry.name == wanted), description)
    for name, port in ports_of(named.input).items():
        yield _of_port(name, port)


def _onnx(file: Path, function: str | None) -> Iterator[InputShapes]:
    from aneforge.formats.onnx.adapter import input_dims

    for name, extents in input_dims(file):
        spans: dict[str, Span] = {}
        for axis, extent in enumerate(extents):
            if not isinstance(extent, int):
                spans[extent or f"{name}[{axis}]"] = (1, None)
        yield InputShapes(name, tuple(extent if isinstance(extent, int) else None for extent in extents), (), spans)


def _torch(file: Path, function: str | None) -> Iterator[InputShapes]:
    """The symbols of an exported program with their ranges, from its JSON."""
    try:
        with zipfile.ZipFile(file) as archive:
            entry = next((name for name in archive.namelist() if name.endswith("models/model.json")), None)
            document = json.loads(archive.read(entry)) if entry else {}
        ranges = document.get("range_constraints") or {}
        module = document.get("graph_module") or {}
        values = (module.get("graph") or {}).get("tensor_values") or {}
        specs = (module.get("signature") or {}).get("input_specs") or []
        names = [spec["user_input"]["arg"]["as_tensor"]["name"] for spec in specs if _is_tensor(spec)]
        ports = [_of_tensor(name, values[name]["sizes"], ranges) for name in names if name in values]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, zipfile.BadZipFile, RuntimeError):
        return  # the reader of the graph says what is wrong with the file
    seen: set[str] = set()
    for port, symbols in ports:
        first = {name: span for name, span in port.spans.items() if symbols[name] not in seen}
        seen |= set(symbols.values())
        yield InputShapes(port.name, port.default, (), first)


def _is_tensor(spec: Mapping[str, Any]) -> bool:
    return "as_tensor" in ((spec.get("user_input") or {}).get("arg") or {})


def _of_tensor(name: str, sizes: Any, ranges: Mapping[str, Any]) -> tuple[InputShapes, dict[str, str]]:
    """An input with the ranges of its symbols; and the symbol of each open dimension."""
    default: list[int | None] = []
    spans: dict[str, Span] = {}
    symbols: dict[str, str] = {}
    for axis, size in enumerate(sizes):
        if "as_int" in size:
            default.append(int(size["as_int"]))
            continue
        default.append(None)
        match = re.search(r"[a-z]{1,3}\d+", str(size["as_expr"]["expr_str"]))
        bounds = ranges.get(match[0]) if match else None
        if match is None or not isinstance(bounds, dict):
            continue
        label, most = f"{name}[{axis}]", bounds.get("max_val")
        if match[0] in symbols.values():
            continue
        symbols[label] = match[0]
        spans[label] = (int(bounds.get("min_val") or 1), None if most is None or most >= _MOST_SIZE else int(most))
    return InputShapes(name, tuple(default), (), spans), symbols


_READERS = {".mlpackage": _coreml, ".mlmodel": _coreml, ".onnx": _onnx, ".pt2": _torch}


def field_bytes(file: Path, path: tuple[int, ...]) -> list[bytes]:
    """The content of a field of a protobuf file, found by its numbers from the outside in; nothing else is parsed."""
    from aneforge.formats.onnx.file import fields

    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        places = [(0, len(data))]
        for number in path:
            places = [
                (body, end)
                for begin, stop in places
                for found, kind, _, body, end in fields(data, begin, stop)
                if found == number and kind == 2
            ]
        return [bytes(data[begin:end]) for begin, end in places]

"""JSON from files that anybody may have written: read within bounds, and held against declared types.

What a document must look like is declared once, as the annotations of a dataclass or a TypedDict. A value that does
not fit is named by its place in the document.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from aneforge.errors import LoadError, shortened, shown
from aneforge.files import regular_file

MOST_BYTES = 1 << 30
_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", dict: "an object"}
_EMPTY: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, dict: {}, tuple: (), list: []}
T = TypeVar("T")


class Misshapen(ValueError):  # noqa: N818 - callers say which file it is in
    """A value that is not of the declared type: which one, and what was expected."""


def read_json(path: str | Path, most: int = MOST_BYTES) -> Any:
    """The document in a file. ``LoadError`` where there is none."""
    file = regular_file(path, str(path))
    try:
        size = file.stat().st_size
        if size > most:
            raise LoadError(f"{path}: {size:,} bytes; such a file has at most {most:,}")
        return parse_json(file.read_bytes(), str(path))
    except OSError as error:
        raise LoadError(f"{path}: cannot be read ({error.strerror or error})") from None


def parse_json(content: bytes | str, where: str) -> Any:
    """The document in a text. ``LoadError`` where it is no JSON, is nested too deeply, or has a number too long."""
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        problem = f"line {error.lineno}: {error.msg}"
    except RecursionError:
        problem = "lists within lists, too deep"
    except ValueError as error:
        problem = str(error).partition(";")[0]
    raise LoadError(f"{where}: not JSON ({problem})") from None


def typed(kind: Any, value: Any, place: str = "", empty: bool = False) -> Any:
    """A value of a declared type, from what JSON gives: records, texts, numbers, lists and dictionaries of them.

    ``empty`` fills in what a record lacks and its class has no default for, as writers that leave empty fields out
    expect. Names that a record does not declare are refused in a dataclass, and ignored in a TypedDict.
    """
    if kind is Any:
        return _frozen(value) if empty else value
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(inner, value, place, empty)
    if origin is Literal:
        if value not in inner or isinstance(value, bool):
            raise Misshapen(f"{_quoted(place)} is {_short(value)}; expected one of {', '.join(map(str, inner))}")
        return value
    if dataclasses.is_dataclass(kind):
        return _record(kind, _of(dict, value, place), place, empty)
    if is_typeddict(kind):
        record, hints = _of(dict, value, place), _hints(kind)
        absent = [name for name in kind.__required_keys__ if name not in record]
        if absent:
            raise Misshapen(f"{_quoted(place)} has no {min(absent)!r}")
        return {name: typed(hints[name], record[name], f"{place}.{name}", empty) for name in hints if name in record}
    if origin in (dict, Mapping):
        items = _of(dict, value, place).items()
        return {name: typed(inner[1], item, f"{place}.{shortened(shown(name))}", empty) for name, item in items}
    if origin in (tuple, list, Sequence):
        if not isinstance(value, list):
            raise Misshapen(f"{_quoted(place)} is {_short(value)}, not a list")
        return _list(origin, inner, value, place, empty)
    return _of(kind, value, place)


def _one_of(kinds: Sequence[Any], value: Any, place: str, empty: bool) -> Any:
    if value is None and NoneType in kinds:
        return None
    problem: Misshapen | None = None
    for kind in kinds:
        if kind is not NoneType:
            try:
                return typed(kind, value, place, empty)
            except Misshapen as error:
                problem = problem or error
    assert problem is not None
    raise problem


def _list(origin: Any, inner: Sequence[Any], value: list[Any], place: str, empty: bool) -> Any:
    if origin is tuple and inner and inner[-1] is not ...:
        if len(value) != len(inner):
            raise Misshapen(f"{_quoted(place)} has {len(value)} values; expected {len(inner)}")
        pairs = zip(inner, value, strict=True)
        return tuple(typed(kind, item, f"{place}[{number}]", empty) for number, (kind, item) in enumerate(pairs))
    kind = inner[0] if inner else Any
    items = [typed(kind, item, f"{place}[{number}]", empty) for number, item in enumerate(value)]
    return items if origin is list else tuple(items)


def _record(kind: Any, record: dict[str, Any], place: str, empty: bool) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    strange = [name for name in record if name not in fields]
    if strange:
        raise Misshapen(f"{_quoted(place)} has {shortened(shown(strange[0]))!r}, which is not known")
    hints, read = _hints(kind), {}
    for name, field in fields.items():
        if name in record:
            read[name] = typed(hints[name], record[name], f"{place}.{name}", empty)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            if not empty:
                raise Misshapen(f"{_quoted(place)} has no {name!r}")
            hint = hints[name]
            read[name] = _EMPTY.get(get_origin(hint) or hint)
    return kind(**read)


@lru_cache(maxsize=256)
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _of(kind: type[T], value: Any, place: str) -> T:
    if kind is float and type(value) is int and abs(value) < 2**1000:
        return float(value)  # type: ignore[return-value]
    if type(value) is not kind:
        raise Misshapen(f"{_quoted(place)} is {_short(value)}, not {_WORDS.get(kind, kind.__name__)}")
    return value


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _short(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return shortened(repr(value), 60) if not isinstance(value, int) or abs(value) < 10**60 else "a very long number"


def _quoted(place: str) -> str:
    return f"'{place.removeprefix('.')}'" if place else "the file"

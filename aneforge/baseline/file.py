"""The file of a baseline: read with one clear error for all that can be wrong, written whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from aneforge.baseline.record import CHECKS, FORMAT, Baseline
from aneforge.errors import AneforgeError, first_line
from aneforge.output.files import write_whole
from aneforge.targets.chip import target_names

KIND = "aneforge baseline"
_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", dict: "a record"}
T = TypeVar("T")


class BaselineError(AneforgeError):
    """A baseline that cannot be compared with. ``replaceable``: it is one of ours, so ``--update`` may replace it."""

    def __init__(self, message: str, replaceable: bool = False) -> None:
        super().__init__(message)
        self.replaceable = replaceable


def baseline_text(baseline: Baseline) -> str:
    """The file's content; the same baseline gives the same bytes, one fact on a line."""
    document = {"kind": KIND, "format": FORMAT, **dataclasses.asdict(baseline)}
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def save_baseline(baseline: Baseline, path: str | Path, overwrite: bool = False) -> None:
    """Write a baseline. One that is there stays unless ``overwrite`` says otherwise."""
    file = Path(path)
    if not overwrite and (file.exists() or file.is_symlink()):
        raise AneforgeError(f"{file}: the file exists and was not changed. Use aneforge ci update to replace it.")
    write_whole(file, baseline_text(baseline))


def load_baseline(path: str | Path) -> Baseline:
    """Read a baseline, and check all of it."""
    file = Path(path)
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BaselineError(f"{file}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:  # also bytes that are not UTF-8
        raise BaselineError(
            f"{file}: not valid JSON ({first_line(error)}); restore the committed file, or "
            "remove it and run aneforge ci record"
        ) from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise BaselineError(f"{file}: not a baseline of aneforge (it lacks 'kind': '{KIND}'); give another file")
    if document.get("format") != FORMAT:
        raise BaselineError(
            f"{file}: a baseline of format {document.get('format')!r}, and aneforge {_own_version()} reads format "
            f"{FORMAT} (it was written by aneforge {document.get('aneforge', 'unknown')}); use that version, or "
            "replace it with aneforge ci update",
            replaceable=True,
        )
    try:
        return _checked(_read(Baseline, document, ""))
    except _Wrong as error:
        raise BaselineError(
            f"{file}: {error}; restore the committed file, or replace it with aneforge ci update", replaceable=True
        ) from None


def _own_version() -> str:
    from aneforge.version import __version__

    return __version__


class _Wrong(Exception):  # noqa: N818 - never leaves this file
    """What is wrong, by its place in the document."""


def _checked(baseline: Baseline) -> Baseline:
    """What types cannot say: names must point at something."""
    unknown = [check for check in baseline.checks if check not in CHECKS]
    if unknown:
        raise _Wrong(f"'checks' holds {unknown[0]!r}; it takes {', '.join(CHECKS)}")
    strange = [name for name in baseline.targets if name not in target_names()]
    if strange:
        raise _Wrong(f"target {strange[0]!r} is none that aneforge {_own_version()} knows")
    named = [name for group in baseline.programs for name in group] + [baseline.against]
    lost = [name for name in named if name is not None and name not in baseline.targets]
    if lost:
        raise _Wrong(f"{lost[0]!r} is named and not among the targets")
    for name, record in baseline.targets.items():
        for output, numbers in (record.numerics or {}).items():
            if not re.fullmatch("([0-9a-f]{4})*", numbers.sample):
                raise _Wrong(f"'targets.{name}.numerics.{output}.sample' is not a text of fp16 bits")
        if record.estimate is not None and not record.estimate.us > 0:
            raise _Wrong(f"'targets.{name}.estimate.us' is {record.estimate.us}, not a time")
    return baseline


def _read(kind: Any, value: Any, place: str) -> Any:
    """A value of a declared type from what JSON gives: records, texts, numbers, and lists and dictionaries of them."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None and NoneType in inner:
            return None
        return _read(next(option for option in inner if option is not NoneType), value, place)
    if dataclasses.is_dataclass(kind):
        record = _of(dict, value, place)
        hints = get_type_hints(kind)
        missing = [member.name for member in dataclasses.fields(kind) if member.name not in record]
        if missing:
            raise _Wrong(f"{_quoted(place)} has no {missing[0]!r}")
        read = {name: _read(hint, record[name], f"{place}.{name}") for name, hint in hints.items()}
        return kind(**read)  # type: ignore[operator]
    if origin is dict:
        return {name: _read(inner[1], item, f"{place}.{name}") for name, item in _of(dict, value, place).items()}
    if origin is tuple:
        return tuple(_read(inner[0], item, f"{place}[{number}]") for number, item in enumerate(_list(value, place)))
    return _of(kind, value, place)


def _of(kind: type[T], value: Any, place: str) -> T:
    if kind is float and type(value) is int:
        return float(value)  # type: ignore[return-value]
    if type(value) is not kind:
        raise _Wrong(f"{_quoted(place)} is {value!r:.60}, not {_WORDS[kind]}")
    return value


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise _Wrong(f"{_quoted(place)} is {value!r:.60}, not a list")
    return value


def _quoted(place: str) -> str:
    return f"'{place.removeprefix('.')}'" if place else "the file"

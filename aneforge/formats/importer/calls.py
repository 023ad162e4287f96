"""The calling convention of all formats: an op is a function whose parameters say by name and type what it takes.

The annotation of a parameter says how an argument of a file is given to it: ``Tensor`` and ``Numeric`` make a tensor
of a known value, ``Array``, ``list[int]``, ``int``, ``float``, ``bool`` and ``str`` ask for a known one, ``Value``
takes either. So which arguments an op takes is data that can be read without running it (:func:`parameters`), and an
argument that it does not take is refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.forms.numbers import as_number
from aneforge.formats.values import NoForm, as_tensor
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

CONTEXT = "FileOp"
"""The annotation of a parameter that takes the whole operation: stated types, which results are read."""
MISSING = inspect.Parameter.empty
_ANY = "**"


@dataclass(frozen=True)
class Parameter:
    """One argument that an op takes."""

    name: str
    kind: str
    default: Any = MISSING

    @property
    def is_list(self) -> bool:
        return self.kind.startswith("list[Value")


@lru_cache(maxsize=2048)
def parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """What an op takes, read from the function that builds it."""
    found = []
    for parameter in inspect.signature(function).parameters.values():
        kind = str(parameter.annotation).removesuffix(" | None")
        found.append(Parameter(parameter.name, kind, parameter.default))
    return tuple(found)


def called(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    op: Any,
    shown: Mapping[str, str] | None = None,
    takes: Sequence[Parameter] | None = None,
) -> Any:
    """What an op gives for these arguments. ``shown`` has the file's own words for them where they differ, and
    ``takes`` the parameters of a function that does not declare them itself."""
    words = shown or {}
    bound: dict[str, Any] = {}
    for parameter in parameters(function) if takes is None else takes:
        name = parameter.name
        if parameter.kind == CONTEXT:
            bound[name] = op() if callable(op) else op
            continue
        value = arguments.get(name)
        if value is None:
            if parameter.default is MISSING:
                raise LoadError(f"{words.get(name) or f'argument {name!r}'} is missing; the op needs it")
            bound[name] = parameter.default
            continue
        convert = _CONVERSIONS.get(parameter.kind)
        bound[name] = value if convert is None else convert(value, words.get(name) or f"{name!r}")
    return function(**bound)


# From what a file holds to what a parameter asks for.


def _value(value: Any, what: str) -> Any:
    if isinstance(value, (np.ndarray, Encoded, Tensor, int, float)):
        return value
    raise LoadError(f"argument {what} is a {type(value).__name__.lower()}; give a tensor")


def _tensor(value: Any, what: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    checked = _value(value, what)
    return as_tensor(np.asarray(checked) if isinstance(checked, (int, float)) else checked)


def _array(value: Any, what: str) -> np.ndarray:
    if isinstance(value, Tensor):
        raise NoForm(f"{what} is computed while the program runs; the engine needs a fixed value")
    return value if isinstance(value, np.ndarray) else np.asarray(_known(value, what))


def _known(value: Any, what: str) -> Any:
    return value if isinstance(value, (Encoded, list, tuple, str)) else _value(value, what)


def _scalar(kind: Callable[[Any], Any]) -> Callable[[Any, str], Any]:
    return lambda value, what: kind(value if isinstance(value, (int, float)) else _array(value, what).reshape(-1)[0])


def _line(kind: Callable[[Any], Any]) -> Callable[[Any, str], list[Any]]:
    def numbers(value: Any, what: str) -> list[Any]:
        return [kind(number) for number in (value if isinstance(value, (list, tuple)) else _array(value, what).flat)]

    return numbers


def _text(value: Any, what: str) -> str:
    return value if isinstance(value, str) else str(_array(value, what).reshape(-1)[0])


def _texts(value: Any, what: str) -> list[str]:
    return [word.decode() if isinstance(word, bytes) else str(word) for word in value]


def _values(value: Any, what: str) -> list[Any]:
    for element in value:
        if not isinstance(element, (np.ndarray, Encoded, Tensor)):
            raise LoadError(f"argument {what} holds a {type(element).__name__.lower()}; give tensors")
    return list(value)


_CONVERSIONS: dict[str, Callable[[Any, str], Any]] = {
    "Array": _array,
    "Numeric": lambda value, what: as_number(_value(value, what)),
    "Tensor": _tensor,
    "Value": _value,
    "Value | float": _value,
    "bool": _scalar(bool),
    "float": _scalar(float),
    "int": _scalar(int),
    "list[Value]": _values,
    "list[bool]": _line(bool),
    "list[float]": _line(float),
    "list[int]": _line(int),
    "list[str]": _texts,
    "str": _text,
}

"""Rules every module keeps, whatever pass has just run over it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aneforge.anec.ir import AnecError, Module, Op, TensorType
from aneforge.anec.spec import LABELS, spec
from aneforge.errors import UnknownNameError

__all__ = ["problems", "verify"]


def verify(module: Module, after: str | None = None) -> Module:
    """The module itself, or an error that names the op, the rule and the pass that broke it."""
    found = problems(module)
    if found:
        blame = f" after pass {after!r}" if after else ""
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise AnecError(f"invalid backend code{blame}: {found[0]}{more}")
    return module


def problems(module: Module) -> list[str]:
    """Every broken rule, in order."""
    found: list[str] = []
    position = {op.uid: number for number, op in enumerate(module.ops)}
    if len(position) != len(module.ops):
        found.append("an op stands in the list twice")
    for number, op in enumerate(module.ops):
        where = f"op {number} ({op.name})"
        found += [f"{where}: {text}" for text in _op_problems(op)]
        for operand in op.operands:
            place = position.get(operand.uid)
            if place is None:
                found.append(f"{where}: reads {operand.name}, which is not in the module")
            elif place >= number:
                found.append(f"{where}: reads op {place} ({operand.name}), which stands after it")
            if op not in operand.users:
                found.append(f"{where}: is not in the use list of {operand.name}")
        for user in op.users:
            if user.uid not in position:
                found.append(f"{where}: is used by {user.name}, which is not in the module")
        if op.name == "anec.const_in" and module.weights and op.attrs.get("weight") not in module.weights:
            found.append(f"{where}: refers to weight {op.attrs.get('weight')!r}, which the module does not hold")
    outputs = sum(op.name == "anec.live_out" for op in module.ops)
    if outputs != 1:
        found.append(f"a program has one live_out, this one has {outputs}")
    return found


def _op_problems(op: Op) -> list[str]:
    try:
        declared = spec(op.name)
    except UnknownNameError as error:
        return [str(error)]
    found = []
    count = len(op.operands)
    if count < declared.fewest or (declared.most is not None and count > declared.most):
        found.append(f"takes {' '.join(declared.operands) or 'no operands'}, was given {count} operands")
    for name, value in op.attrs.items():
        known = declared.attributes.get(name)
        if known is None:
            found.append(f"has no attribute {name!r}; it has {', '.join(declared.attributes) or 'none'}")
        elif not _fits(known.kind, value):
            found.append(f"attribute {name} = {value!r} is not of kind {known.kind!r}")
    for name, known in declared.attributes.items():
        if not known.optional and name not in op.attrs:
            found.append(f"lacks attribute {name!r}")
    for name, value in op.labels.items():
        if name not in LABELS:
            found.append(f"has no label {name!r}")
        elif not _fits(LABELS[name], value):
            found.append(f"label {name} = {value!r} is not of kind {LABELS[name]!r}")
    if (op.type is None) != (op.name == "anec.live_out"):
        found.append("has no result" if op.type is None else "must not have a result")
    if op.type is not None:
        found += _type_problems(op.type)
    return found


def _type_problems(type_: TensorType) -> list[str]:
    if len(type_.shape) != 5:
        return [f"result {type_} is not NDCHW"]
    if any(not isinstance(extent, int) or extent < 1 for extent in type_.shape):
        return [f"result {type_} has an axis below one"]
    return []


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _list(length: int | None) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        return isinstance(value, tuple) and all(map(_whole, value)) and (length is None or len(value) == length)

    return check


_KINDS: dict[str, Callable[[Any], bool]] = {
    "i": _whole,
    "f": lambda value: isinstance(value, float) and not math.isnan(value),
    "s": lambda value: isinstance(value, str),
    "u": lambda value: value is True,
    "i*": _list(None),
    "s*": lambda value: isinstance(value, tuple) and all(isinstance(each, str) for each in value),
    "p": lambda value: isinstance(value, tuple) and all(_list(2)(each) for each in value),
}


def _fits(kind: str, value: Any) -> bool:
    check = _KINDS.get(kind)
    if check is None:  # i2, i3, i5, i6
        check = _KINDS[kind] = _list(int(kind[1:]))
    return check(value)

"""The rules that every module keeps, whatever pass has just run over it."""

from __future__ import annotations

import math
from collections.abc import Callable
from marshal import dumps
from typing import Any

from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.spec import LABELS, OpSpec, spec
from aneforge.engine.tensor_type import DTYPES, Params
from aneforge.errors import UnknownNameError

_PLAIN_FORM = 2  # the last version of marshal whose bytes do not depend on how often an object is referred to


def verify(module: Module, after: str | None = None) -> Module:
    """The module itself, or an error that names the op, the rule and the pass that broke it."""
    broken = problems(module)
    if broken:
        blame = f" after pass {after!r}" if after else ""
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        raise AnecError(f"backend code is invalid{blame}: {broken[0]}{more}")
    return module


def problems(module: Module) -> list[str]:
    """Every broken rule, in order."""
    broken: list[str] = []
    position = {op: number for number, op in enumerate(module.ops)}
    if len(position) != len(module.ops):
        broken.append("an op is in the list twice")
    check = _Check(module)
    for number, op in enumerate(module.ops):
        wrong = check(op)
        users = op.users
        for operand in op.operands:
            place = position.get(operand)
            if place is None:
                wrong.append(f"reads {operand.name}, which is not in the module")
            elif place >= number:
                wrong.append(f"reads op {place} ({operand.name}), which comes after it")
            if op not in operand.users:
                wrong.append(f"is not in the use list of {operand.name}")
        for user in () if users.keys() <= position.keys() else users:
            if user not in position:
                wrong.append(f"is used by {user.name}, which is not in the module")
        if wrong:
            source = f" of {op.sources[-1]!r}" if op.sources else ""
            broken += [f"op {number} ({op.name}){source}: {text}" for text in wrong]
    outputs = sum(op.name == "anec.live_out" for op in module.ops)
    if outputs != 1:
        broken.append(f"a program must have one live_out; this one has {outputs}")
    return broken


class _Check:
    """The rules about one op alone.

    A program has few different ops: an op with the same kind, types and attributes as a valid one is valid too. The
    same holds for labels of the same value.
    """

    def __init__(self, module: Module) -> None:
        self._weights = module.weights
        self._sound: set[tuple[str, Any]] = set()
        self._stated: dict[int, bytes] = {}
        self._sound_ops: set[tuple[Any, ...]] = set()

    def __call__(self, op: Op) -> list[str]:
        broken: list[str] = []
        key = self._key(op)
        try:
            known = key in self._sound_ops
        except TypeError:  # a type made of lists has no hash
            key, known = (op.uid,), False
        if not known:
            self._form(op, broken)
            if not broken:
                self._sound_ops.add(key)
        for name, value in op.labels.items():
            if type(value) is _LABEL_CLASSES.get(name):
                continue
            label_kind = LABELS.get(name)
            if label_kind is None:
                broken.append(f"label {name!r} is unknown")
            elif not self._fits(label_kind, value):
                broken.append(f"label {name} = {value!r} is not of kind {label_kind!r}")
        return broken

    def _key(self, op: Op) -> tuple[Any, ...]:
        """All that decides whether an op is valid; the uid for an op that must be checked by itself."""
        attrs = op.attrs
        if not attrs:
            return (op.name, op.type, *[operand.type for operand in op.operands])
        if op.name == "anec.const_in":  # every constant has its own key, and only its shape matters
            name = attrs.get("weight")
            weight = self._weights.get(name) if isinstance(name, str) else None
            return (op.uid,) if weight is None or len(attrs) > 1 else (op.name, op.type, weight.shape)
        stated = self._stated.get(id(attrs))  # ops share their attributes, and keep them alive
        if stated is None:
            try:  # bytes tell 1, 1.0 and True apart, which are equal as values
                stated = self._stated[id(attrs)] = dumps(dict(attrs), _PLAIN_FORM)
            except ValueError:
                return (op.uid,)
        return (op.name, stated, op.type, *[operand.type for operand in op.operands])

    def _form(self, op: Op, broken: list[str]) -> None:
        """Check operands, attributes and result, and then whether they fit together."""
        try:
            declared = spec(op.name)
        except UnknownNameError as error:
            broken.append(str(error))
            return
        count, most = len(op.operands), declared.most
        if count < declared.fewest or (most is not None and count > most):
            broken.append(f"takes {' '.join(declared.operands) or 'no operands'}, but has {count} operands")
        self._attributes(op, declared, broken)
        if (op.type is None) != (op.name == "anec.live_out"):
            broken.append("has no result" if op.type is None else "must not have a result")
        if op.type is not None and not self._fits("type", op.type):
            broken += _type_problems(op.type)
        if not broken:
            self._typed(op, declared, broken)

    def _typed(self, op: Op, declared: OpSpec, broken: list[str]) -> None:
        operands = [operand.type for operand in op.operands]
        if not all(type_ is not None and self._fits("type", type_) for type_ in operands):
            return  # the op that gives such an operand is refused itself
        try:
            expected = declared.type_rule(op, *operands)
            for invariant in declared.invariants:
                invariant(op, self._weights)
        except AnecError as error:
            broken.append(str(error))
            return
        if expected != op.type:
            broken.append(f"result is {op.type}; expected {expected}")

    def _attributes(self, op: Op, declared: OpSpec, broken: list[str]) -> None:
        for name, value in op.attrs.items():
            known = declared.attributes.get(name)
            if known is None:
                broken.append(f"attribute {name!r} is unknown; the op has {', '.join(declared.attributes) or 'none'}")
            elif not self._fits(known.kind, value):
                kind = "; expected a JSON object" if known.kind == "d" else f" is not of kind {known.kind!r}"
                broken.append(f"attribute {name} = {value!r}{kind}")
        for name in declared.needed:
            if name not in op.attrs:
                broken.append(f"attribute {name!r} is missing")
        if self._weights:  # text that came without any constants may name them all the same
            for name in declared.stored:
                if isinstance(op.attrs.get(name), str) and op.attrs[name] not in self._weights:
                    broken.append(f"refers to weight {op.attrs[name]!r}, which is missing from the module")

    def _fits(self, kind: str, value: Any) -> bool:
        if type(value) is _PLAIN.get(kind):
            return True
        try:
            if (kind, value) in self._sound:
                return True
        except TypeError:  # a list has no hash, and is not a valid value of any kind
            return False
        if not _checks(kind)(value):
            return False
        self._sound.add((kind, value))
        return True


def _type_problems(type_: TensorType) -> list[str]:
    if len(type_.shape) != 5:
        return [f"result {type_} is not NDCHW"]
    if any(not isinstance(extent, int) or extent < 1 for extent in type_.shape):
        return [f"result {type_} has an axis below one"]
    if type_.dtype not in DTYPES:
        return [f"result {type_} has an unknown element type; choose one: {', '.join(DTYPES)}"]
    return []


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _list(length: int | None) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        return isinstance(value, tuple) and all(map(_whole, value)) and (length is None or len(value) == length)

    return check


_PLAIN = {"i": int, "s": str}
"""Kinds that the class of a value decides alone."""
_LABEL_CLASSES = {name: _PLAIN[kind] for name, kind in LABELS.items() if kind in _PLAIN}

_KINDS: dict[str, Callable[[Any], bool]] = {
    "i": _whole,
    "f": lambda value: isinstance(value, float) and not math.isnan(value),
    "s": lambda value: isinstance(value, str),
    "u": lambda value: value is True,
    "i*": _list(None),
    "s*": lambda value: isinstance(value, tuple) and all(isinstance(item, str) for item in value),
    "p": lambda value: isinstance(value, tuple) and all(_list(2)(pair) for pair in value),
    "d": lambda value: isinstance(value, Params),
    "type": lambda value: not _type_problems(value),
}


def _checks(kind: str) -> Callable[[Any], bool]:
    check = _KINDS.get(kind)
    if check is None:  # i2, i3, i5, i6
        check = _KINDS[kind] = _list(int(kind[1:]))
    return check

"""The text form: MLIR's generic syntax, so that other tools can read it, and the reader that takes it back.

One op a line, inside the region op of the target's family::

    "builtin.module"() ({
      "anec.A13"() ({
        %0 = "anec.live_in"() {name = "x"} : () -> tensor<1x1x3x32x32xf16>
        %1 = "anec.relu"(%0) : (tensor<1x1x3x32x32xf16>) -> tensor<1x1x3x32x32xf16> loc("relu_0")
        "anec.live_out"(%1) {names = ["y"]} : (tensor<1x1x3x32x32xf16>) -> ()
      }) {target = "h13"} : () -> ()
    }) : () -> ()
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from aneforge.chips.names import target as resolve_target
from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.spec import LABELS, spec
from aneforge.engine.tensor_type import DTYPES, Params
from aneforge.errors import UnknownNameError, shortened

_NONE: Mapping[str, Any] = {}


class ParsedText(NamedTuple):
    """The content of a text: the code, and the target it is for where it names one."""

    module: Module
    target: str | None


def write(module: Module, target: str | None = None) -> str:
    """The module as text for a target. The module itself has no target, since targets may share one."""
    names = {op.uid: f"%{number}" for number, op in enumerate(module.ops)}
    region, attributes = _region(target)
    lines = ['"builtin.module"() ({', f'  "{region}"() ({{']
    labels = {} if module.plan is None else module.plan.labels(module)
    lines += [f"    {write_op(op, names, labels.get(op, _NONE))}" for op in module.ops]
    lines += [f"  }}){attributes} : () -> ()", "}) : () -> ()"]
    return "\n".join(lines) + "\n"


def _region(target: str | None) -> tuple[str, str]:
    if target is None:
        return "anec.A11Legacy", ""
    family = resolve_target(target).family8
    label = "A11Legacy" if family is None else family.name
    return f"anec.{label}", f' {{target = "{target}"}}'


def write_op(op: Op, names: Mapping[int, str], decided: Mapping[str, Any] = _NONE) -> str:
    """One op; ``decided`` is what the plan of its module prints beside it."""
    operands = ", ".join(names.get(operand.uid, "%?") for operand in op.operands)
    labels = {} if op.layer is None else {"layer": op.layer, "slot": op.slot or "primary"}
    settings = sorted({**op.attrs, **op.labels, **decided, **labels}.items())
    attributes = ", ".join(_attribute(name, value) for name, value in settings)
    shown = f" {{{attributes}}}" if attributes else ""
    taken = ", ".join(str(operand.type) for operand in op.operands)
    head = "" if op.type is None else f"{names[op.uid]} = "
    result = "()" if op.type is None else str(op.type)
    return f'{head}"{op.name}"({operands}){shown} : ({taken}) -> {result}{_location(op.sources)}'


def _attribute(name: str, value: Any) -> str:
    return name if value is True else f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, Params):
        return _value(str(value))
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, float):
        return f"{_real(value)} : f64"
    return f"{value} : i64"


def _real(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return "0x7FF0000000000000" if value > 0 else "0xFFF0000000000000"
    text = repr(value)
    if "e" in text and "." not in text:  # MLIR needs a point before the exponent
        mantissa, _, exponent = text.partition("e")
        text = f"{mantissa}.0e{exponent}"
    return text


def _location(sources: tuple[str, ...]) -> str:
    if not sources:
        return ""
    if len(sources) == 1:
        return f" loc({_value(sources[0])})"
    return f" loc(fused[{', '.join(_value(source) for source in sources)}])"


_TOKEN = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<ref>%[\w?]+)|(?P<tensor>tensor<[^>]*>)|(?P<hex>0x[0-9A-Fa-f]{16})'
    r"|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<word>[A-Za-z_][\w.]*)|(?P<arrow>->)|(?P<mark>[(){}\[\],:=])"
    r"|(?P<comment>//[^\n]*))"
)
_LONGEST_NUMBER = 400  # characters; Python refuses some thousands of digits
_TENSOR = re.compile(rf"tensor<((?:\d+x)*)({'|'.join(DTYPES)})>$")


def parse(text: str) -> Module:
    """The module that a text describes; an error names the line and what was expected there."""
    return read(text).module


def read(text: str) -> ParsedText:
    """The module and the target that a text names."""
    return _Reader(text).parsed()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._kind = ""
        self._lexeme = ""
        self._start = 0
        self._next()

    def _next(self) -> None:
        while True:
            match = _TOKEN.match(self._text, self._at)
            if match is None:
                rest = self._text[self._at :]
                self._start = self._at + len(rest) - len(rest.lstrip())
                if rest.strip():
                    self._kind, self._lexeme = "bad", rest.lstrip()[:12]
                    raise self._fault("expected a token of the language")
                self._kind, self._lexeme = "end", ""
                return
            self._at = match.end()
            self._kind = match.lastgroup or ""
            if self._kind != "comment":
                self._lexeme = match.group(self._kind)
                self._start = match.start(self._kind)
                return

    def _fault(self, message: str) -> AnecError:
        line = self._text.count("\n", 0, self._start) + 1
        shown = repr(shortened(self._lexeme)) if self._kind != "end" else "the end"
        return AnecError(f"line {line}: {message}, found {shown}")

    def _take(self, token: str) -> None:
        if self._lexeme != token:
            raise self._fault(f"expected {token!r}")
        self._next()

    def _has(self, token: str) -> bool:
        if self._lexeme == token and self._kind in ("mark", "arrow", "word"):
            self._next()
            return True
        return False

    def _word(self, kind: str, expected: str) -> str:
        if self._kind != kind:
            raise self._fault(f"expected {expected}")
        token = self._lexeme
        self._next()
        return token

    def parsed(self) -> ParsedText:
        if self._lexeme == '"builtin.module"':
            self._wrapper_head()
            region = self._lexeme
            if not re.fullmatch(r'"anec\.A1[1-8](Legacy)?"', region):
                raise self._fault('expected the region op of a family, for instance "anec.A13"')
            self._wrapper_head()
            ops = self._ops()
            attributes = self._wrapper_tail()
            self._wrapper_tail()
            target = attributes.get("target")
        else:
            ops, target = self._ops(), None
        if self._kind != "end":
            raise self._fault("expected the end of the text")
        return ParsedText(Module(ops), target)

    def _wrapper_head(self) -> None:
        self._next()
        for token in ("(", ")", "(", "{"):
            self._take(token)

    def _wrapper_tail(self) -> dict[str, Any]:
        self._take("}")
        self._take(")")
        attributes = self._attributes()
        for token in (":", "(", ")", "->", "(", ")"):
            self._take(token)
        return attributes

    def _ops(self) -> list[Op]:
        ops: list[Op] = []
        values: dict[str, Op] = {}
        while self._kind in ("ref", "string"):
            result = None
            if self._kind == "ref":
                result = self._word("ref", "a result name")
                if result in values:
                    raise self._fault(f"{result} is defined twice")
                self._take("=")
            op = self._op(values, result)
            if result is not None:
                values[result] = op
            ops.append(op)
        return ops

    def _op(self, values: dict[str, Op], result: str | None) -> Op:
        quoted = self._word("string", 'an op name in quotes, such as "anec.relu"')
        name = quoted[1:-1]
        try:
            spec(name)
        except UnknownNameError as error:
            raise self._fault(str(error)) from None
        operands = self._operands(values)
        attributes = self._attributes()
        self._take(":")
        taken = self._types()
        self._take("->")
        results = [self._type()] if self._kind == "tensor" else self._types()
        if len(results) > 1:
            raise self._fault(f"{name}: has {len(results)} results; an op gives one")
        type_ = results[0] if results else None
        if (type_ is None) != (result is None):
            raise self._fault(f"{name}: a result needs both a name and a type")
        if [operand.type for operand in operands] != taken:
            raise self._fault(f"{name}: the operand types do not match the operands")
        layer, slot = attributes.pop("layer", None), attributes.pop("slot", None)
        if (layer is None) != (slot is None) or not (layer is None or isinstance(layer, int)):
            raise self._fault(f"{name}: a layer number and a slot name must come together")
        labels = {label: attributes.pop(label) for label in LABELS if label in attributes}
        for attribute, declared in spec(name).attributes.items():
            if declared.kind == "d" and isinstance(attributes.get(attribute), str):
                with suppress(ValueError):  # the verifier refuses what is no JSON object
                    attributes[attribute] = Params(attributes[attribute])
        op = Op(name, operands, type_, attributes, self._sources())
        op.layer, op.slot, op.labels = layer, slot, labels
        return op

    def _operands(self, values: dict[str, Op]) -> list[Op]:
        self._take("(")
        operands: list[Op] = []
        while not self._has(")"):
            if operands:
                self._take(",")
            if self._kind == "ref" and self._lexeme not in values:
                raise self._fault("expected a value that is defined above")
            operands.append(values[self._word("ref", "an operand")])
        return operands

    def _attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        if not self._has("{"):
            return attributes
        while not self._has("}"):
            if attributes:
                self._take(",")
            name = self._word("word", "an attribute name")
            attributes[name] = self._attribute() if self._has("=") else True
        return attributes

    def _attribute(self) -> Any:
        if self._kind == "string":
            return _unquote(self._word("string", "a text"))
        if self._kind == "mark" and self._has("["):
            items: list[Any] = []
            while not self._has("]"):
                if items:
                    self._take(",")
                items.append(self._attribute())
            return tuple(items)
        if self._kind == "hex":
            negative = self._word("hex", "a number").upper().startswith("0XF")
            self._typed()
            return float("-inf") if negative else float("inf")
        token = self._word("number", "an attribute value")
        if len(token) > _LONGEST_NUMBER:
            raise self._fault(f"a number of {len(token):,} digits; {_LONGEST_NUMBER} is the most")
        type_name = self._typed()
        return float(token) if type_name.startswith("f") or any(mark in token for mark in ".eE") else int(token)

    def _typed(self) -> str:
        return self._word("word", "a type such as i64 or f64") if self._has(":") else ""

    def _types(self) -> list[TensorType]:
        self._take("(")
        types: list[TensorType] = []
        while not self._has(")"):
            if types:
                self._take(",")
            types.append(self._type())
        return types

    def _type(self) -> TensorType:
        token = self._lexeme
        match = _TENSOR.match(token) if self._kind == "tensor" else None
        if match is None:
            raise self._fault("expected a tensor type such as tensor<1x1x8x4x4xf16>")
        if len(token) > _LONGEST_NUMBER:
            raise self._fault(f"a tensor type of {len(token):,} characters; {_LONGEST_NUMBER} is the most")
        self._next()
        return TensorType(tuple(int(extent) for extent in match[1].split("x")[:-1]), match[2])

    def _sources(self) -> tuple[str, ...]:
        if not self._has("loc"):
            return ()
        self._take("(")
        fused = self._has("fused")
        if not fused:
            sources: tuple[str, ...] = (_unquote(self._word("string", "a source name")),)
        else:
            names = self._attribute()
            if not isinstance(names, tuple):
                raise self._fault("expected a list of source names")
            sources = names
        self._take(")")
        return sources


def _unquote(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1])

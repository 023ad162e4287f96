"""MIL text, as compiled models hold it (``model.mil``): one pass over the tokens, errors with the line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.packed import STORED
from aneforge.frontends.records import (
    Binding,
    Block,
    Function,
    Operation,
    OtherType,
    Ref,
    StateType,
    Stored,
    TensorType,
    Type,
)

__all__ = ["default_shapes", "parsed"]

_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|//[^\n]*)|(?P<line>\n)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<number>-?(?:0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*(?:[pP][+-]?\d+)?|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+"
    r"|inf(?:inity)?\b|nan\b))"
    r"|(?P<word>[A-Za-z_%][A-Za-z0-9_.@$%/:]*)|(?P<arrow>->)|(?P<mark>[-()\[\]{}<>,;=?])"
)
_MOST_DEPTH = 32  # of types, lists and blocks within each other
_MOST_ELEMENTS = 1 << 28
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


class _Typed(NamedTuple):
    """A literal with its type in front."""

    type: Type
    value: Any


class _Pair(list):
    """What braces hold: entries of a dictionary."""


def _tokens(source: str, name: str) -> Iterator[_Token]:
    line, place = 1, 0
    while place < len(source):
        found = _TOKEN.match(source, place)
        if found is None:
            raise LoadError(f"{name}: line {line}: {source[place : place + 20]!r} is no MIL text")
        kind = found.lastgroup or ""
        if kind == "line":
            line += 1
        elif kind != "space":
            yield _Token("mark" if kind == "arrow" else kind, found.group(), line)
        place = found.end()
    yield _Token("end", "the end", line)


def parsed(source: str, name: str) -> tuple[dict[str, Function], dict[str, dict[str, Any]]]:
    """The program, and for each function what its header says beside it."""
    parser = _Parser(source, name)
    return parser.program(), parser.notes


def default_shapes(notes: Any) -> dict[str, list[int]]:
    """The shapes that a function says open inputs have unless told otherwise."""
    found: dict[str, list[int]] = {}
    stack = [notes]
    while stack:
        each = stack.pop()
        if isinstance(each, _Typed):
            stack.append(each.value)
        elif isinstance(each, dict):
            stack.extend(each.values())
        elif isinstance(each, (list, tuple)):
            if len(each) == 2 and _plain(each[0]) == "DefaultShapes":
                for entry in _plain(each[1]):
                    port, shape = _plain(entry)
                    found[str(_plain(port))] = [int(extent) for extent in _plain(shape)]
            else:
                stack.extend(each)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, _Typed):
        value = value.value
    return value.tolist() if isinstance(value, np.ndarray) else value


class _Parser:
    def __init__(self, source: str, name: str) -> None:
        self.name = name
        self.tokens = _tokens(source, name)
        self.next = next(self.tokens)
        self.depth = 0
        self.notes: dict[str, dict[str, Any]] = {}

    # Tokens.

    def fail(self, message: str) -> NoReturn:
        raise LoadError(f"{self.name}: line {self.next.line}: {message}")

    def take(self) -> _Token:
        token = self.next
        if token.kind != "end":
            self.next = next(self.tokens)
        return token

    def at(self, text: str) -> bool:
        return self.next.text == text and self.next.kind != "string"

    def accept(self, text: str) -> bool:
        if not self.at(text):
            return False
        self.take()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"{text!r} was expected, here is {self.next.text!r}")

    def word(self, what: str) -> str:
        if self.next.kind != "word" and not (self.next.kind == "number" and self.next.text.isalpha()):
            self.fail(f"{what} was expected, here is {self.next.text!r}")
        return self.take().text

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            self.fail(f"nested more than {_MOST_DEPTH} deep")

    # The program.

    def program(self) -> dict[str, Function]:
        self.expect("program")
        self.expect("(")
        self.take()
        self.expect(")")
        self.attributes()
        self.expect("{")
        functions: dict[str, Function] = {}
        while not self.accept("}"):
            name, function = self.function()
            if name in functions:
                self.fail(f"function {name!r} stands twice")
            functions[name] = function
        if self.next.kind != "end":
            self.fail(f"{self.next.text!r} after the end of the program")
        return functions

    def function(self) -> tuple[str, Function]:
        self.expect("func")
        name = self.word("the name of a function")
        opset = ""
        if self.accept("<"):
            opset = self.word("an opset")
            self.expect(">")
        inputs = self.parameters()
        self.notes[name] = self.attributes()
        block = self.block([])
        self.accept(";")
        return name, Function(inputs, block, opset)

    def parameters(self) -> list[tuple[str, Type]]:
        self.expect("(")
        inputs: list[tuple[str, Type]] = []
        while not self.accept(")"):
            kind = self.type()
            inputs.append((self.word("the name of an input"), kind))
            if not self.at(")"):
                self.expect(",")
        return inputs

    def block(self, inputs: list[tuple[str, Type]]) -> Block:
        self.deeper()
        self.expect("{")
        operations = []
        while not self.accept("}"):
            operations.append(self.operation())
        self.expect("->")
        self.depth -= 1
        return Block(inputs, self.names(), operations)

    def names(self) -> list[str]:
        self.expect("(")
        names = []
        while not self.accept(")"):
            names.append(self.word("a name"))
            if not self.at(")"):
                self.expect(",")
        return names

    def operation(self) -> Operation:
        line = self.next.line
        outputs: list[tuple[str, Type]] = []
        if self.accept("("):
            while not self.accept(")"):
                kind = self.type()
                outputs.append((self.word("the name of a value"), kind))
                if not self.at(")"):
                    self.expect(",")
            self.expect("=")
            word = self.word("an operation")
        else:
            word = self.word("an operation")
            while not self.at("("):
                outputs.append((self.word_after(word), self.last_type))
                if self.accept(","):
                    word = self.word("a type")
                else:
                    self.expect("=")
                    word = self.word("an operation")
        made = Operation(word, self.arguments(), outputs, self.plain(self.attributes()), line=line)
        while self.next.kind == "word" and self.next.text.startswith("block"):
            self.take()
            self.accept(",")
            made.blocks.append(self.block(self.parameters() if self.at("(") else []))
            self.accept(",")
        if self.at("{"):
            made.blocks.append(self.block([]))
        self.expect(";")
        return made

    def word_after(self, first: str) -> str:
        """The name of a value whose type starts with a word that is already read."""
        self.last_type = self.type(first)
        return self.word("the name of a value")

    def arguments(self) -> dict[str, list[Binding]]:
        self.expect("(")
        inputs: dict[str, list[Binding]] = {}
        while not self.accept(")"):
            name = self.word("the name of an argument")
            self.expect("=")
            inputs[name] = self.bindings()
            if not self.at(")"):
                self.expect(",")
        return inputs

    def bindings(self) -> list[Binding]:
        if not self.accept("("):
            return [self.binding()]
        found = []
        while not self.accept(")"):
            found.append(self.binding())
            if not self.at(")"):
                self.expect(",")
        return found

    def binding(self) -> Binding:
        word = self.word("a name or a value")
        if not (self.at("(") or self.at("<")):
            return Ref(word)
        value = self.typed(self.type(word)).value
        return value if isinstance(value, (np.ndarray, Stored)) else np.asarray(str(value))

    def attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if not self.accept("["):
            return found
        while not self.accept("]"):
            name = self.word("an attribute")
            self.expect("=")
            found[name] = self.literal()
            if not self.at("]"):
                self.expect(",")
        return found

    @staticmethod
    def plain(attributes: dict[str, Any]) -> dict[str, Any]:
        return {name: each.value if isinstance(each, _Typed) else each for name, each in attributes.items()}

    # Types and literals.

    def type(self, first: str | None = None) -> Type:
        word = self.word("a type") if first is None else first
        if not self.at("<"):
            if word not in STORED:
                self.fail(f"no type {word!r}")
            return TensorType(word, ())
        self.deeper()
        self.expect("<")
        if word == "tensor":
            dtype = self.word("an element type")
            if dtype not in STORED:
                self.fail(f"no element type {dtype!r}")
            self.expect(",")
            found: Type = TensorType(dtype, self.extents())
        elif word == "state":
            wrapped = self.type()
            if not isinstance(wrapped, TensorType):
                self.fail("a state holds a tensor")
            found = StateType(wrapped)
        else:
            found = OtherType(word)
            while not self.at(">"):
                self.extents() if self.at("[") else self.type_or_mark()
        self.expect(">")
        self.depth -= 1
        return found

    def type_or_mark(self) -> None:
        if self.next.kind == "word":
            self.type()
        elif self.next.kind == "end":
            self.fail("a type without an end")
        else:
            self.take()

    def extents(self) -> tuple[int | None, ...]:
        self.expect("[")
        shape: list[int | None] = []
        while not self.accept("]"):
            token = self.take()
            if token.text != "?" and not token.text.isdigit():
                self.fail(f"an extent was expected, here is {token.text!r}")
            shape.append(None if token.text == "?" else int(token.text))
            if not self.at("]"):
                self.expect(",")
        return tuple(shape)

    def literal(self) -> Any:
        token = self.next
        if token.kind == "string":
            return _unescaped(self.take().text)
        if token.kind == "number":
            return self.number()
        if token.text in ("true", "false"):
            return self.take().text == "true"
        for opening, closing, kind in (("[", "]", list), ("(", ")", tuple), ("{", "}", _Pair)):
            if self.at(opening):
                return kind(self.items(opening, closing))
        return self.typed(self.type())

    def items(self, opening: str, closing: str) -> list[Any]:
        self.deeper()
        self.expect(opening)
        found = []
        while not self.accept(closing):
            found.append(self.literal())
            if not self.at(closing):
                self.expect(",")
        self.depth -= 1
        return found

    def number(self) -> int | float:
        text = self.take().text
        try:
            if "x" in text.lower():
                return float.fromhex(text) if "p" in text.lower() or "." in text else int(text, 16)
            return int(text) if text.lstrip("-").isdigit() else float(text)
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is no number")

    def typed(self, kind: Type) -> _Typed:
        self.expect("(")
        if self.at("BLOBFILE"):
            self.take()
            told = self.arguments()
            self.expect(")")
            return _Typed(kind, self.stored(kind, told))
        given: Any = None
        if not self.at(")"):
            given = self.literal()
            if self.at(","):  # entries of a dictionary or tuple without brackets around them
                given = [given]
                while self.accept(","):
                    given.append(self.literal())
        self.expect(")")
        return _Typed(kind, self.array(kind, given) if isinstance(kind, TensorType) else given)

    def stored(self, kind: Type, told: dict[str, list[Binding]]) -> Stored:
        try:
            (path,), (offset,) = told["path"], told["offset"]
            assert isinstance(kind, TensorType)
            return Stored(str(np.asarray(path).item()), int(np.asarray(offset).item()), kind)
        except (AssertionError, KeyError, TypeError, ValueError):
            self.fail("a BLOBFILE has a path and an offset, and belongs to a tensor")

    def array(self, kind: TensorType, given: Any) -> np.ndarray:
        flat: list[Any] = []
        stack = [given]
        while stack:
            each = stack.pop()
            if isinstance(each, _Typed):
                stack.append(each.value)
            elif isinstance(each, (list, tuple)):
                stack.extend(reversed(each))
            elif isinstance(each, np.ndarray):
                flat.extend(each.reshape(-1).tolist())
            elif each is not None:
                flat.append(each)
        shape = tuple(len(flat) if each is None else each for each in kind.shape)
        count = math.prod(shape)
        if count > _MOST_ELEMENTS or len(flat) not in (count, 1):
            self.fail(f"{len(flat)} values for {kind}")
        held = np.float32 if kind.dtype in ("bf16", "fp8e4m3fn", "fp8e5m2") else STORED[kind.dtype]
        try:
            with np.errstate(over="ignore"):
                values = np.array(flat, held)
        except (ValueError, TypeError, OverflowError):
            self.fail(f"values that are not {kind.dtype}")
        return np.broadcast_to(values, shape) if len(flat) == 1 and count != 1 else values.reshape(shape)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found.group(1), found.group(1)), text[1:-1])

"""The parser of MIL text, as in compiled models (``model.mil``): one pass over the tokens; errors name the line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.records import (
    STORED,
    Binding,
    Block,
    Function,
    Operation,
    OtherType,
    Ref,
    StateType,
    StoredValue,
    Type,
    ValueType,
    numpy_type,
)
from aneforge.text import whole_number

_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|//[^\n]*)|(?P<line>\n)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<number>-?(?:0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*(?:[pP][+-]?\d+)?|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+"
    r"|inf(?:inity)?\b|nan\b))"
    r"|(?P<word>[A-Za-z_%][A-Za-z0-9_.@$%/:]*)|(?P<arrow>->)|(?P<mark>[-()\[\]{}<>,;=?])"
)
_LONGEST_NUMBER = 64  # characters
_MOST_DEPTH = 32  # of nested types, lists and blocks
_MOST_ELEMENTS = 1 << 28
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


class _Typed(NamedTuple):
    """A literal with its type."""

    type: Type
    value: Any


class _Pair(list):
    """The entries of a dictionary, written in braces."""


def _tokens(source: str, name: str) -> Iterator[_Token]:
    line, position = 1, 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise LoadError(f"{name}: line {line}: {source[position : position + 20]!r} is not MIL text")
        kind = match.lastgroup or ""
        if kind == "line":
            line += 1
        elif kind == "number" and match.end() - position > _LONGEST_NUMBER:
            length = match.end() - position
            raise LoadError(f"{name}: line {line}: a number has {length:,} characters; the limit is {_LONGEST_NUMBER}")
        elif kind != "space":
            yield _Token("mark" if kind == "arrow" else kind, match.group(), line)
        position = match.end()
    yield _Token("end", "the end", line)


def parsed(source: str, name: str) -> tuple[dict[str, Function], dict[str, dict[str, Any]]]:
    """The functions of the program, and the attributes in each function's header."""
    parser = _Parser(source, name)
    return parser.program(), parser.notes


def default_shapes(notes: Any) -> dict[str, list[int]]:
    """The default shapes that a function states for inputs with open shapes."""
    shapes: dict[str, list[int]] = {}
    stack = [notes]
    while stack:
        note = stack.pop()
        if isinstance(note, _Typed):
            stack.append(note.value)
        elif isinstance(note, dict):
            stack.extend(note.values())
        elif isinstance(note, (list, tuple)):
            if len(note) == 2 and _untyped(note[0]) == "DefaultShapes":
                for entry in _untyped(note[1]):
                    port, shape = _untyped(entry)
                    shapes[str(_untyped(port))] = [int(extent) for extent in _untyped(shape)]
            else:
                stack.extend(note)
    return shapes


def _untyped(value: Any) -> Any:
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

    def is_at(self, text: str) -> bool:
        return self.next.text == text and self.next.kind != "string"

    def accept(self, text: str) -> bool:
        if not self.is_at(text):
            return False
        self.take()
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected {text!r}, got {self.next.text!r}")

    def until(self, closing: str) -> Iterator[None]:
        """Once for each entry of a list with commas, up to the mark that closes it."""
        while not self.accept(closing):
            yield
            if not self.is_at(closing):
                self.expect(",")

    def word(self, what: str) -> str:
        if self.next.kind != "word" and not (self.next.kind == "number" and self.next.text.isalpha()):
            self.fail(f"expected {what}, got {self.next.text!r}")
        return self.take().text

    def enter_level(self) -> None:
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            self.fail(f"types, lists or blocks are nested more than {_MOST_DEPTH} deep")

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
                self.fail(f"function {name!r} is defined twice")
            functions[name] = function
        if self.next.kind != "end":
            self.fail(f"unexpected {self.next.text!r} after the end of the program")
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
        for _ in self.until(")"):
            kind = self.type()
            inputs.append((self.word("the name of an input"), kind))
        return inputs

    def block(self, inputs: list[tuple[str, Type]]) -> Block:
        self.enter_level()
        self.expect("{")
        operations = []
        while not self.accept("}"):
            operations.append(self.operation())
        self.expect("->")
        self.depth -= 1
        return Block(inputs, self.names(), operations)

    def names(self) -> list[str]:
        self.expect("(")
        return [self.word("a name") for _ in self.until(")")]

    def operation(self) -> Operation:
        line = self.next.line
        outputs: list[tuple[str, Type]] = []
        if self.accept("("):
            for _ in self.until(")"):
                kind = self.type()
                outputs.append((self.word("the name of a value"), kind))
            self.expect("=")
            word = self.word("an operation")
        else:
            word = self.word("an operation")
            while not self.is_at("("):
                kind = self.type(word)
                outputs.append((self.word("the name of a value"), kind))
                if self.accept(","):
                    word = self.word("a type")
                else:
                    self.expect("=")
                    word = self.word("an operation")
        operation = Operation(word, self.arguments(), outputs, self.without_types(self.attributes()), line=line)
        while self.next.kind == "word" and self.next.text.startswith("block"):
            self.take()
            self.accept(",")
            operation.blocks.append(self.block(self.parameters() if self.is_at("(") else []))
            self.accept(",")
        if self.is_at("{"):
            operation.blocks.append(self.block([]))
        self.expect(";")
        return operation

    def arguments(self) -> dict[str, list[Binding]]:
        self.expect("(")
        inputs: dict[str, list[Binding]] = {}
        for _ in self.until(")"):
            name = self.word("the name of an argument")
            self.expect("=")
            inputs[name] = self.bindings()
        return inputs

    def bindings(self) -> list[Binding]:
        if not self.accept("("):
            return [self.binding()]
        return [self.binding() for _ in self.until(")")]

    def binding(self) -> Binding:
        word = self.word("a name or a value")
        if not (self.is_at("(") or self.is_at("<")):
            return Ref(word)
        value = self.typed(self.type(word)).value
        return value if isinstance(value, (np.ndarray, StoredValue)) else np.asarray(str(value))

    def attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        if not self.accept("["):
            return attributes
        for _ in self.until("]"):
            name = self.word("an attribute")
            self.expect("=")
            attributes[name] = self.literal()
        return attributes

    @staticmethod
    def without_types(attributes: dict[str, Any]) -> dict[str, Any]:
        return {name: value.value if isinstance(value, _Typed) else value for name, value in attributes.items()}

    # Types and literals.

    def type(self, first: str | None = None) -> Type:
        word = self.word("a type") if first is None else first
        if not self.is_at("<"):
            if word not in STORED:
                self.fail(f"{word!r} is not a type")
            return ValueType(word, ())
        self.enter_level()
        self.expect("<")
        if word == "tensor":
            dtype = self.word("an element type")
            if dtype not in STORED:
                self.fail(f"{dtype!r} is not an element type")
            self.expect(",")
            kind: Type = ValueType(dtype, self.extents())
        elif word == "state":
            wrapped = self.type()
            if not isinstance(wrapped, ValueType):
                self.fail("a state must hold a tensor")
            kind = StateType(wrapped)
        else:
            kind = OtherType(word)
            while not self.is_at(">"):
                if self.is_at("["):
                    self.extents()
                elif self.next.kind == "word":
                    self.type()
                elif self.next.kind == "end":
                    self.fail("a type has no closing '>'")
                else:
                    self.take()
        self.expect(">")
        self.depth -= 1
        return kind

    def extents(self) -> tuple[int | None, ...]:
        self.expect("[")
        shape: list[int | None] = []
        for _ in self.until("]"):
            token = self.take()
            extent = whole_number(token.text)
            if token.text != "?" and extent is None:
                self.fail(f"expected an extent, got {token.text!r}")
            shape.append(extent)
        return tuple(shape)

    def literal(self) -> Any:
        token = self.next
        if token.kind == "string":
            return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match.group(1), match.group(1)), self.take().text[1:-1])
        if token.kind == "number":
            return self.number()
        if token.text in ("true", "false"):
            return self.take().text == "true"
        for opening, closing, kind in (("[", "]", list), ("(", ")", tuple), ("{", "}", _Pair)):
            if self.is_at(opening):
                return kind(self.items(opening, closing))
        return self.typed(self.type())

    def items(self, opening: str, closing: str) -> list[Any]:
        self.enter_level()
        self.expect(opening)
        literals = [self.literal() for _ in self.until(closing)]
        self.depth -= 1
        return literals

    def number(self) -> int | float:
        text = self.take().text
        try:
            if "x" in text.lower():
                return float.fromhex(text) if "p" in text.lower() or "." in text else int(text, 16)
            return int(text) if text.lstrip("-").isdigit() else float(text)
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is not a number")

    def typed(self, kind: Type) -> _Typed:
        self.expect("(")
        if self.is_at("BLOBFILE"):
            self.take()
            arguments = self.arguments()
            self.expect(")")
            return _Typed(kind, self.stored(kind, arguments))
        literal: Any = None
        if not self.is_at(")"):
            literal = self.literal()
            if self.is_at(","):  # entries of a dictionary or tuple without brackets around them
                literal = [literal]
                while self.accept(","):
                    literal.append(self.literal())
        self.expect(")")
        return _Typed(kind, self.array(kind, literal) if isinstance(kind, ValueType) else literal)

    def stored(self, kind: Type, arguments: dict[str, list[Binding]]) -> StoredValue:
        try:
            (path,), (offset,) = arguments["path"], arguments["offset"]
            assert isinstance(kind, ValueType)
            return StoredValue(str(np.asarray(path).item()), int(np.asarray(offset).item()), kind)
        except (AssertionError, KeyError, TypeError, ValueError):
            self.fail("BLOBFILE needs a path, an offset and a tensor type")

    def array(self, kind: ValueType, literal: Any) -> np.ndarray:
        flat: list[Any] = []
        stack = [literal]
        while stack:
            element = stack.pop()
            if isinstance(element, _Typed):
                stack.append(element.value)
            elif isinstance(element, (list, tuple)):
                stack.extend(reversed(element))
            elif isinstance(element, np.ndarray):
                flat.extend(element.reshape(-1).tolist())
            elif element is not None:
                flat.append(element)
        shape = tuple(len(flat) if extent is None else extent for extent in kind.shape)
        count = math.prod(shape)
        if count > _MOST_ELEMENTS or len(flat) not in (count, 1):
            self.fail(f"{len(flat)} values do not fit {kind}")
        try:
            with np.errstate(over="ignore"):
                values = np.array(flat, numpy_type(kind.dtype))
        except (ValueError, TypeError, OverflowError):
            self.fail(f"a value does not fit type {kind.dtype}")
        return np.broadcast_to(values, shape) if len(flat) == 1 and count != 1 else values.reshape(shape)

# pyright: reportMissingImports=false
"""Core AI assets: all that this project asks of Apple's beta package ``coreai-core`` is asked here.

An asset is a folder with a program in MLIR bytecode. The package reads it; what comes out is walked into plain records
(``coreai_rules.records``), so that the rules need no package and a change of its API touches this file alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import first_line, install_hint
from aneforge.frontends import LoadError
from aneforge.frontends.coreai_rules.blobs import MAGIC, mapped_blobs
from aneforge.frontends.coreai_rules.records import BITS, NUMPY, Block, Function, Operation, Type
from aneforge.frontends.coreai_rules.walker import Walker
from aneforge.graph.graph import Graph

__all__ = ["read"]

_PROGRAM, _HASH, _METADATA = "main.mlirb", "main.hash", "metadata.json"
_MOST_METADATA = 1 << 24
_MOST_DEPTH = 64
_CHUNK = 1 << 22
_ENDS = ("coreai.output", "coreai.yield", "coreai.condition")
_NARROW = {"f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "f8E8M0FNU": "float8_e8m0fnu"}
_WIDER = {"bf16": "bfloat16", "f4E2M1FN": "float4_e2m1fn", **_NARROW}
"""Element types that only the ``ml_dtypes`` package, which comes with Core AI's, can read."""

_MOST_SECONDS = 300
_TRIAL = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from coreai._compiler._mlir_libs._coreaiIR._bindings.compiler import load_module_from_bytecode
from coreai._compiler.context import Context
try:
    load_module_from_bytecode(context=Context()._mlir_context, path=sys.argv[2])
except Exception as error:
    sys.exit((str(error).strip() or type(error).__name__).splitlines()[0])
"""
_SMALL = {"f4E2M1FN": 4, **{name: bits for name, bits in BITS.items() if bits < 8}}
"""Bits of numbers of which several share a byte."""


def read(file: Path, function: str | None) -> Graph:
    """The graph of one function of an asset: the one that is named, ``main``, or the only one."""
    program = _checked(file)
    with _module(file, program) as module:
        functions = _Records(file.name, mapped_blobs(program)).functions(module)
    return Walker(file.name, functions).graph(_chosen(file.name, functions, function))


def _chosen(file: str, functions: Mapping[str, Function], name: str | None) -> str:
    entries = [each for each, function in functions.items() if not function.private]
    there = ", ".join(entries) or "none"
    if name is not None:
        if name not in entries:
            raise LoadError(f"{file}: no function {name!r}; there is {there}")
        return name
    if "main" in entries:
        return "main"
    if len(entries) != 1:
        raise LoadError(f"{file}: {len(entries)} functions ({there}); pick one: af.load(..., function=...)")
    return entries[0]


# The folder, before the package sees it: a damaged program must not reach native code.


def _checked(file: Path) -> Path:
    if not file.is_dir():
        raise LoadError(f"{file.name}: a Core AI asset is a folder with {_PROGRAM} and {_METADATA}")
    for name in (_METADATA, _PROGRAM):
        inside = file / name
        if not inside.is_file():
            raise LoadError(f"{file.name}: no {name} in it; a Core AI asset has one")
        if not inside.resolve().is_relative_to(file.resolve()):
            raise LoadError(f"{file.name}: {name} leads out of the folder, which is not followed")
    _metadata(file)
    program = file / _PROGRAM
    with program.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise LoadError(f"{file.name}: {_PROGRAM} is no MLIR bytecode")
    _same_hash(file, program)
    return program


def _metadata(file: Path) -> None:
    place = file / _METADATA
    if place.stat().st_size > _MOST_METADATA:
        raise LoadError(f"{file.name}: {_METADATA} of {place.stat().st_size:,} bytes")
    try:
        told = json.loads(place.read_bytes())
    except (ValueError, RecursionError):
        raise LoadError(f"{file.name}: {_METADATA} is no JSON") from None
    if not isinstance(told, dict) or "assetVersion" not in told:
        raise LoadError(f"{file.name}: {_METADATA} does not say the version of the asset")


def _same_hash(file: Path, program: Path) -> None:
    """The asset keeps the SHA-256 of its program beside it."""
    stored = file / _HASH
    if not stored.is_file() or stored.stat().st_size != hashlib.sha256().digest_size:
        raise LoadError(
            f"{file.name}: no {_HASH} that fits; without it a damaged program cannot be told from a whole one"
        )
    digest = hashlib.sha256()
    with program.open("rb") as stream:
        while part := stream.read(_CHUNK):
            digest.update(part)
    if digest.digest() != stored.read_bytes():
        raise LoadError(f"{file.name}: {_PROGRAM} is damaged: it does not fit its hash in {_HASH}")


@contextlib.contextmanager
def _module(file: Path, program: Path) -> Iterator[Any]:
    """The program as the package's MLIR module, in a context of its own."""
    try:
        # All of it first: parts that are imported while a module is walked would import each other in a circle.
        from coreai.authoring import Context  # isort: skip
        from coreai._compiler._mlir_libs._coreaiIR._bindings.compiler import load_module_from_bytecode
    except ImportError as error:
        raise LoadError(
            f"{file.name}: reading Core AI assets needs the coreai-core package "
            f"({first_line(error)}): {install_hint('coreai')}"
        ) from None
    _tried(file, program)
    context = Context()._mlir_context
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            module = load_module_from_bytecode(context=context, path=program)
    except Exception as error:  # the package has no class of its own for this
        raise LoadError(f"{file.name}: {_PROGRAM} cannot be read by coreai-core: {first_line(error)}") from None
    with context:
        yield module


def _tried(file: Path, program: Path) -> None:
    """The beta package ends the whole process on some programs, whole ones among them: another process reads first."""
    if not sys.executable:
        return
    command = [sys.executable, "-c", _TRIAL, json.dumps(sys.path), str(program)]
    try:
        trial = subprocess.run(command, capture_output=True, timeout=_MOST_SECONDS, check=False)  # noqa: S603 - ours
    except subprocess.TimeoutExpired:
        raise LoadError(f"{file.name}: coreai-core did not read {_PROGRAM} in {_MOST_SECONDS} s") from None
    except OSError:
        return
    if trial.returncode < 0:
        raise LoadError(
            f"{file.name}: coreai-core crashed on {_PROGRAM} (signal {-trial.returncode}); it cannot be read"
        )
    if trial.returncode:
        lines = trial.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = lines[-1][:300] if lines else "no reason given"
        raise LoadError(f"{file.name}: {_PROGRAM} cannot be read by coreai-core: {reason}")


# The module as records.


@dataclass
class _Records:
    file: str
    blobs: Mapping[str, np.ndarray]
    numbers: dict[Any, int] = field(default_factory=dict)
    """Of every value of the module."""
    kinds: dict[str, Type] = field(default_factory=dict)

    def functions(self, module: Any) -> dict[str, Function]:
        found: dict[str, Function] = {}
        try:
            for view in module.body.operations:
                operation = view.operation
                if operation.name == "coreai.graph":
                    made = self._function(operation)
                    found[made.name] = made
                elif operation.name != "coreai.target_spec":
                    raise LoadError(f"{self.file}: {operation.name} beside the graphs, which is not read")
        except (ValueError, KeyError, IndexError, RuntimeError) as error:
            raise LoadError(f"{self.file}: {_PROGRAM} cannot be read: {first_line(error)}") from None
        except (AttributeError, TypeError) as error:
            raise LoadError(
                f"{self.file}: this version of coreai-core has another API than the one known here "
                f"({first_line(error)}); aneforge reads with coreai-core 1.0"
            ) from None
        if not found:
            raise LoadError(f"{self.file}: a program without a graph")
        return found

    def _function(self, operation: Any) -> Function:
        attributes = operation.attributes
        name = attributes["sym_name"].value
        block = self._block(operation.regions[0].blocks[0], _Counting(), 0)
        ends = list(operation.regions[0].blocks[0].operations)[-1].operation.operands
        return Function(
            name,
            _labels(attributes, "arg_attrs", len(block.arguments), "arg"),
            _labels(attributes, "res_attrs", len(block.outputs), "output"),
            tuple(self._type(each.type) for each in ends),
            _with_names(block),
            private="private" in attributes or "priv" in attributes or "sym_visibility" in attributes,
        )

    def _block(self, block: Any, count: _Counting, depth: int) -> Block:
        if depth > _MOST_DEPTH:
            raise LoadError(f"{self.file}: blocks within blocks, more than {_MOST_DEPTH} deep")
        arguments = tuple((self._number(each), self._type(each.type)) for each in block.arguments)
        made: list[Operation] = []
        outputs: tuple[int, ...] = ()
        for view in block.operations:
            operation = view.operation
            if operation.name in _ENDS:
                outputs = tuple(self._number(each) for each in operation.operands)
            else:
                made.append(self._operation(operation, count, depth))
        return Block(arguments, tuple(made), outputs)

    def _operation(self, operation: Any, count: _Counting, depth: int) -> Operation:
        kind = operation.name.removeprefix("coreai.").removeprefix("decomposable.").removeprefix("broadcasting_")
        attributes = {each.name: _plain(each.attr) for each in operation.attributes if kind != "constant"}
        label = attributes.get("callee", kind) if kind == "invoke" else kind
        name = f"{label}_{count.next(kind)}"
        results = tuple((self._number(each), self._type(each.type)) for each in operation.results)
        operands = tuple(self._number(each) for each in operation.operands)
        if kind == "constant":
            return Operation(kind, name, operands, results, value=self._constant(operation, results[0][1], name))
        regions = tuple(
            self._block(each.blocks[0], count, depth + 1) for each in operation.regions if len(each.blocks)
        )
        told = _told_name(operation.location)
        return Operation(kind, f"{told}\n{name}" if told else name, operands, results, attributes, regions)

    def _number(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def _type(self, kind: Any) -> Type:
        text = str(kind)
        if text not in self.kinds:
            self.kinds[text] = _typed(kind, text)
        return self.kinds[text]

    # Constants.

    def _constant(self, operation: Any, kind: Type, name: str) -> np.ndarray:
        where = f"{self.file}: {name} (constant)"
        if kind.form != "tensor" or kind.static is None or kind.dtype not in NUMPY:
            raise LoadError(f"{where}: a stored value of {kind.text}, which is not read")
        attribute = operation.attributes["value"]
        key = _resource(attribute)
        count = int(np.prod(kind.static, dtype=object))
        if key is not None and key in self.blobs:
            data = self.blobs[key]
        else:
            inline = _inline(attribute, count, kind) if key is None and kind.dtype not in _WIDER else None
            if inline is not None:
                return inline
            data = _copied(operation, count, kind, where)
        return _as_numbers(data, count, kind, where).reshape(kind.static)


@dataclass
class _Counting:
    """Numbers for operations in the order of the file; constants have their own."""

    seen: Counter[str] = field(default_factory=Counter)

    def next(self, kind: str) -> int:
        group = "constant" if kind == "constant" else ""
        self.seen[group] += 1
        return self.seen[group] - 1


def _typed(kind: Any, text: str) -> Type:
    from coreai._compiler.ir import RankedTensorType

    if text == "!coreai.token":
        return Type("token", text=text)
    if text.startswith("!coreai.handle<"):
        inner = getattr(kind, "inner_type", None) or getattr(kind, "type", None)
        if inner is None:
            return _written_type(text, "handle")
        return replace(_typed(inner, str(inner)), form="handle", text=text)
    if not RankedTensorType.isinstance(kind):
        return Type("other", text=text)
    ranked = RankedTensorType(kind)
    shape = tuple(None if ranked.is_dynamic_dim(axis) else ranked.get_dim_size(axis) for axis in range(ranked.rank))
    return Type("tensor", str(ranked.element_type), shape, text)


def _written_type(text: str, form: str) -> Type:
    """A tensor's type from its text, for handles whose inner type the package does not give."""
    found = re.search(r"tensor<((?:(?:\d+|\?)x)*)([A-Za-z]\w*)", text)
    if found is None:
        return Type("other", text=text)
    extents = [each for each in found[1].split("x") if each]
    return Type(form, found[2], tuple(None if each == "?" else int(each) for each in extents), text)


def _labels(attributes: Any, key: str, count: int, default: str) -> tuple[str, ...]:
    """The names that the file gives its inputs and outputs."""
    told = list(attributes[key]) if key in attributes else []
    found = []
    for place in range(count):
        names = told[place] if place < len(told) else {}
        found.append(names["coreai.name"].value if "coreai.name" in names else f"{default}{place}")
    return tuple(found)


def _plain(attribute: Any) -> str:
    """An attribute as text, without the dialect's wrapping: ``constant`` of ``#coreai.padding_mode<constant>``."""
    text = str(attribute)
    symbol = re.match(r'(?:#param\.constant<)?(?:@[\w.$]+::)*@"?([^">]+)"?(?:>|$)', text)
    if symbol:
        return symbol[1]
    wrapped = re.fullmatch(r"#[\w.]+<\"?([\w ]*)\"?>", text)
    return wrapped[1] if wrapped else text.strip('"')


def _told_name(location: Any) -> str:
    """What the tool that made the asset calls an operation, where its debug information says it."""
    text = str(location)
    named = re.match(r'loc\("([^"]+)"(?:\(|\)$)', text)
    if named:
        return named[1]
    noted = re.findall(r'<"([^"]+)": unit>', text.partition("metadata = [")[2])
    return noted[-1] if noted else ""


def _with_names(block: Block) -> Block:
    """Names that a tool gave to one operation only are the operations' own; others stand before kind and number."""
    seen: Counter[str] = Counter()
    waiting = [block]
    while waiting:
        for operation in waiting.pop().operations:
            seen[operation.name.partition("\n")[0]] += 1
            waiting.extend(operation.regions)

    def renamed(part: Block) -> Block:
        return replace(part, operations=tuple(_renamed(each) for each in part.operations))

    def _renamed(operation: Operation) -> Operation:
        told, _, own = operation.name.partition("\n")
        name = f"{told}/{own}" if own and seen[told] > 1 else told
        return replace(operation, name=name, regions=tuple(renamed(each) for each in operation.regions))

    return renamed(block)


# Numbers of constants.


def _resource(attribute: Any) -> str | None:
    """The key of a constant that is stored beside the operations. Only such an attribute is printed: it has no
    numbers in its text."""
    from coreai._compiler.ir import DenseElementsAttr, DenseResourceElementsAttr

    if DenseElementsAttr.isinstance(attribute) or not DenseResourceElementsAttr.isinstance(attribute):
        return None
    found = re.match(r'dense_resource<"?(.+?)"?> :', str(attribute))
    return found[1] if found else None


def _inline(attribute: Any, count: int, kind: Type) -> np.ndarray | None:
    from coreai._compiler.ir import DenseElementsAttr

    if not DenseElementsAttr.isinstance(attribute):
        return None
    try:
        numbers = np.array(DenseElementsAttr(attribute))
    except (TypeError, ValueError, RuntimeError):
        return None
    if numbers.size != count or numbers.dtype.kind not in "fiub":
        return None
    return numbers.reshape(kind.static or ()).astype(NUMPY[kind.dtype])


def _copied(operation: Any, count: int, kind: Type, where: str) -> np.ndarray:
    """The bytes as the package gives them."""
    from coreai._compiler._mlir_libs._coreaiIR._bindings.compiler import copy_constant_value_to_array

    bits = _SMALL.get(kind.dtype, 8 * _stored_type(kind.dtype).itemsize)
    data = np.zeros(-(-count * bits // 8), np.uint8)
    try:
        copy_constant_value_to_array(constant_op=operation, destination=data)
    except Exception as error:  # the package has no class of its own for this
        raise LoadError(f"{where}: a stored value of {kind.text} cannot be read: {first_line(error)}") from None
    return data


def _stored_type(dtype: str) -> np.dtype:
    if dtype in _WIDER:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, _WIDER[dtype]))
    return np.dtype(NUMPY[dtype])


def _as_numbers(data: np.ndarray, count: int, kind: Type, where: str) -> np.ndarray:
    stored, bits = _stored_type(kind.dtype), _SMALL.get(kind.dtype)
    if bits is not None and count > 1 and data.size == count:
        raise LoadError(
            f"{where}: numbers of {bits} bits, one in each byte, where Core AI itself reads {8 // bits} in each; "
            "pack them before the asset is saved"
        )
    if data.size != (count * stored.itemsize if bits is None else -(-count * bits // 8)):
        raise LoadError(f"{where}: {data.size:,} bytes stored for {kind.text}")
    numbers = (data if bits is None else _unpacked(data, bits, count)).view(stored)
    if bits is not None and kind.dtype.startswith("si"):
        numbers = numbers - ((numbers >> (bits - 1)) << bits).astype(stored)
    return numbers.astype(np.float32) if kind.dtype in _WIDER else numbers


def _unpacked(data: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Several numbers in a byte, the first in the low bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((data[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)[:count]

# pyright: reportMissingImports=false
"""Core AI assets: all that this project asks of Apple's beta package ``coreai-core`` is asked here.

An asset is a folder with a program in MLIR bytecode. The package reads it; what comes out is walked into plain records
(``frontends.records``), so that the rules need no package and a change of its API touches this file alone.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.budgets import spend
from aneforge.errors import LoadError, first_line
from aneforge.frontends.coreai.blobs import MAGIC, mapped_blobs
from aneforge.frontends.coreai.language import import_function
from aneforge.frontends.coreai.table import common_op
from aneforge.frontends.packed import PACKED, STORED, from_bytes, unpack
from aneforge.frontends.records import (
    NUMPY,
    Binding,
    Block,
    Function,
    Operation,
    OtherType,
    Ref,
    StateType,
    TensorType,
    Type,
)
from aneforge.graph.graph import Graph

__all__ = ["read"]

_PROGRAM, _HASH, _METADATA = "main.mlirb", "main.hash", "metadata.json"
_MOST_METADATA = 1 << 24
_CHUNK = 1 << 22
_ENDS = ("coreai.output", "coreai.yield", "coreai.condition")
_ML_DTYPES = {"fp4e2m1fn": "float4_e2m1fn", "fp8e8m0fnu": "float8_e8m0fnu"}
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


def read(file: Path, function: str | None) -> Graph:
    """The graph of one function of an asset: the one that is named, ``main``, or the only one."""
    program = _checked(file)
    with _module(file, program) as module:
        functions = _Records(file.name, mapped_blobs(program)).functions(module)
    return import_function(file.name, functions, _chosen(file.name, functions, function))


def _chosen(file: str, functions: Mapping[str, Function], name: str | None) -> str:
    entries = [label for label, function in functions.items() if function.opset != "private"]
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
            f"({first_line(error)}): pip install 'aneforge[coreai]'"
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

_TYPES = {"i1": "bool", "index": "int64", "bf16": "bf16", "f8E4M3FN": "fp8e4m3fn", "f8E5M2": "fp8e5m2"}
_TYPES |= {"f8E8M0FNU": "fp8e8m0fnu", "f4E2M1FN": "fp4e2m1fn", "f16": "fp16", "f32": "fp32", "f64": "fp64"}
_SIGNS = {"si": "int", "ui": "uint"}


def _element(name: str) -> str:
    """An element type by the name that all formats share."""
    return f"{_SIGNS[name[:2]]}{name[2:]}" if name[:2] in _SIGNS else _TYPES.get(name, name)


@dataclass
class _Records:
    file: str
    blobs: Mapping[str, np.ndarray]
    names: dict[Any, str] = field(default_factory=dict)
    """Of every value of the module."""
    types: dict[str, Type] = field(default_factory=dict)

    def functions(self, module: Any) -> dict[str, Function]:
        """Those that an app can call by name, and ``private`` ones that only other functions call."""
        functions: dict[str, Function] = {}
        try:
            for view in module.body.operations:
                operation = view.operation
                if operation.name == "coreai.graph":
                    functions[operation.attributes["sym_name"].value] = self._function(operation)
                elif operation.name != "coreai.target_spec":
                    raise LoadError(f"{self.file}: {operation.name} stands beside the graphs and is not supported")
        except (ValueError, KeyError, IndexError, RuntimeError) as error:
            raise LoadError(f"{self.file}: {_PROGRAM} cannot be read: {first_line(error)}") from None
        except (AttributeError, TypeError) as error:
            raise LoadError(
                f"{self.file}: this version of coreai-core has another API than the one known here "
                f"({first_line(error)}); aneforge reads with coreai-core 1.0"
            ) from None
        if not functions:
            raise LoadError(f"{self.file}: the program has no graph")
        return functions

    def _function(self, operation: Any) -> Function:
        attributes = operation.attributes
        body = operation.regions[0].blocks[0]
        inputs = _labels(attributes, "arg_attrs", len(body.arguments), "arg")
        for label, argument in zip(inputs, body.arguments, strict=True):
            self.names[argument] = label
        block = _with_labels(self._block(body, _Counting(), 0))
        labels = _labels(attributes, "res_attrs", len(block.outputs), "output")
        private = "private" in attributes or "priv" in attributes or "sym_visibility" in attributes
        types = [(label, self._type(each.type)) for label, each in zip(inputs, body.arguments, strict=True)]
        return Function(types, block, "private" if private else "", labels)

    def _block(self, block: Any, count: _Counting, depth: int) -> Block:
        spend("depth", depth, f"{self.file}: blocks within blocks")
        inputs: list[tuple[str, Type | None]] = [(self._name(each), self._type(each.type)) for each in block.arguments]
        operations: list[Operation] = []
        outputs: list[str] = []
        for view in block.operations:
            operation = view.operation
            if operation.name in _ENDS:
                outputs = [self._name(value) for value in operation.operands]
            else:
                operations.append(self._operation(operation, count, depth))
        return Block(inputs, outputs, operations)

    def _operation(self, operation: Any, count: _Counting, depth: int) -> Operation:
        kind = operation.name.removeprefix("coreai.").removeprefix("decomposable.").removeprefix("broadcasting_")
        attributes = {entry.name: _plain(entry.attr) for entry in operation.attributes if kind != "constant"}
        own = f"{attributes.get('callee', kind) if kind == 'invoke' else kind}_{count.next(kind)}"
        types = [self._type(result.type) for result in operation.results]
        outputs: list[tuple[str, Type | None]] = [
            (self._name(result), kind) for result, kind in zip(operation.results, types, strict=True)
        ]
        if kind == "constant":
            value = self._constant(operation, types[0], own)
            return Operation(kind, {}, outputs, {"value": value}, name=own)
        operands: list[Binding] = [Ref(self._name(value)) for value in operation.operands]
        name, inputs, texts = common_op(kind, operands, attributes, types)
        regions = [region.blocks[0] for region in operation.regions if len(region.blocks)]
        blocks = [self._block(block, count, depth + 1) for block in regions]
        given = _given_name(operation.location)
        return Operation(name, inputs, outputs, texts, blocks, name=f"{given}\n{own}" if given else own)

    def _name(self, value: Any) -> str:
        return self.names.setdefault(value, f"%{len(self.names)}")

    def _type(self, kind: Any) -> Type:
        text = str(kind)
        if text not in self.types:
            self.types[text] = _type_of(kind, text)
        return self.types[text]

    # Constants.

    def _constant(self, operation: Any, kind: Type, name: str) -> np.ndarray:
        where = f"{self.file}: {name} (constant)"
        if not isinstance(kind, TensorType) or kind.static is None or kind.dtype not in NUMPY:
            raise LoadError(f"{where}: a stored value of {kind}, which is not supported")
        attribute = operation.attributes["value"]
        key = _resource(attribute)
        count = int(np.prod(kind.static, dtype=object))
        if key is not None and key in self.blobs:
            data = self.blobs[key]
        else:
            inline = _inline(attribute, count, kind) if key is None else None
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


def _type_of(kind: Any, text: str) -> Type:
    from coreai._compiler.ir import RankedTensorType

    if text.startswith("!coreai.handle<"):
        inner = getattr(kind, "inner_type", None) or getattr(kind, "type", None)
        wrapped = _written_type(text) if inner is None else _type_of(inner, str(inner))
        return StateType(wrapped) if isinstance(wrapped, TensorType) else OtherType(text)
    if not RankedTensorType.isinstance(kind):
        return OtherType(text)
    ranked = RankedTensorType(kind)
    shape = tuple(None if ranked.is_dynamic_dim(axis) else ranked.get_dim_size(axis) for axis in range(ranked.rank))
    return TensorType(_element(str(ranked.element_type)), shape)


def _written_type(text: str) -> Type:
    """A tensor's type from its text, for handles whose inner type the package does not give."""
    match = re.search(r"tensor<((?:(?:\d+|\?)x)*)([A-Za-z]\w*)", text)
    if match is None:
        return OtherType(text)
    extents = [extent for extent in match[1].split("x") if extent]
    return TensorType(_element(match[2]), tuple(None if extent == "?" else int(extent) for extent in extents))


def _labels(attributes: Any, key: str, count: int, default: str) -> list[str]:
    """The names that the file gives its inputs and outputs."""
    stated = list(attributes[key]) if key in attributes else []
    labels = []
    for place in range(count):
        names = stated[place] if place < len(stated) else {}
        labels.append(names["coreai.name"].value if "coreai.name" in names else f"{default}{place}")
    return labels


def _plain(attribute: Any) -> str:
    """An attribute as text, without the dialect's wrapping: ``constant`` of ``#coreai.padding_mode<constant>``."""
    text = str(attribute)
    symbol = re.match(r'(?:#param\.constant<)?(?:@[\w.$]+::)*@"?([^">]+)"?(?:>|$)', text)
    if symbol:
        return symbol[1]
    wrapped = re.fullmatch(r"#[\w.]+<\"?([\w ]*)\"?>", text)
    return wrapped[1] if wrapped else text.strip('"')


def _given_name(location: Any) -> str:
    """What the tool that made the asset calls an operation, where its debug information says it."""
    text = str(location)
    named = re.match(r'loc\("([^"]+)"(?:\(|\)$)', text)
    if named:
        return named[1]
    noted = re.findall(r'<"([^"]+)": unit>', text.partition("metadata = [")[2])
    return noted[-1] if noted else ""


def _with_labels(block: Block) -> Block:
    """Names that a tool gave to one operation only are the operations' own; others stand before kind and number."""
    seen: Counter[str] = Counter()
    waiting = [block]
    operations: list[Operation] = []
    while waiting:
        for operation in waiting.pop().operations:
            operations.append(operation)
            seen[operation.name.partition("\n")[0]] += 1
            waiting.extend(operation.blocks)
    for operation in operations:
        given, _, own = operation.name.partition("\n")
        operation.name = f"{given}/{own}" if own and seen[given] > 1 else given
    return block


# Numbers of constants.


def _resource(attribute: Any) -> str | None:
    """The key of a constant that is stored beside the operations. Only such an attribute is printed: it has no
    numbers in its text."""
    from coreai._compiler.ir import DenseElementsAttr, DenseResourceElementsAttr

    if DenseElementsAttr.isinstance(attribute) or not DenseResourceElementsAttr.isinstance(attribute):
        return None
    found = re.match(r'dense_resource<"?(.+?)"?> :', str(attribute))
    return found[1] if found else None


def _inline(attribute: Any, count: int, kind: TensorType) -> np.ndarray | None:
    from coreai._compiler.ir import DenseElementsAttr

    if not DenseElementsAttr.isinstance(attribute) or kind.dtype.startswith(("bf", "fp8", "fp4")):
        return None  # the package crashes on floats that NumPy lacks
    try:
        numbers = np.array(DenseElementsAttr(attribute))
    except (TypeError, ValueError, RuntimeError):
        return None
    if numbers.size != count or numbers.dtype.kind not in "fiub":
        return None
    return numbers.reshape(kind.static or ()).astype(NUMPY[kind.dtype])


def _copied(operation: Any, count: int, kind: TensorType, where: str) -> np.ndarray:
    """The bytes as the package gives them."""
    from coreai._compiler._mlir_libs._coreaiIR._bindings.compiler import copy_constant_value_to_array

    data = np.zeros(-(-count * _bits(kind.dtype) // 8), np.uint8)
    try:
        copy_constant_value_to_array(constant_op=operation, destination=data)
    except Exception as error:  # the package has no class of its own for this
        raise LoadError(f"{where}: a stored value of {kind} cannot be read: {first_line(error)}") from None
    return data


def _bits(dtype: str) -> int:
    if dtype in PACKED:
        return PACKED[dtype]
    return 4 if dtype == "fp4e2m1fn" else 8 * np.dtype(STORED.get(dtype, np.uint8)).itemsize


def _as_numbers(data: np.ndarray, count: int, kind: TensorType, where: str) -> np.ndarray:
    bits = _bits(kind.dtype)
    if bits < 8 and count > 1 and data.size == count:
        raise LoadError(
            f"{where}: numbers of {bits} bits are stored one in each byte, where Core AI itself reads {8 // bits} in "
            "each; pack them before the asset is saved"
        )
    if data.size != -(-count * bits // 8):
        raise LoadError(f"{where}: {data.size:,} bytes are stored for {kind}")
    if kind.dtype not in _ML_DTYPES:
        return from_bytes(data, kind.dtype, (count,))
    import ml_dtypes

    codes = unpack(data, bits, count) if bits < 8 else data
    return codes.view(getattr(ml_dtypes, _ML_DTYPES[kind.dtype])).astype(np.float32)

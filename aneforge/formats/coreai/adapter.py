# pyright: reportMissingImports=false
"""Core AI assets. This is the only module that uses Apple's beta package ``coreai-core``.

An asset is a folder with a program in MLIR bytecode. The package reads it, and the result becomes plain records
(``frontends.records``). So the rules do not need the package, and a change of its API affects only this file.
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

from aneforge.errors import LoadError, first_line, install_hint
from aneforge.files import spend
from aneforge.formats.coreai.language import MAGIC, import_function, mapped_blobs
from aneforge.formats.coreai.table import common_op
from aneforge.formats.records import (
    NUMPY,
    PACKED,
    STORED,
    Binding,
    Block,
    Function,
    Operation,
    OtherType,
    Ref,
    StateType,
    Type,
    ValueType,
    from_bytes,
    unpack,
)
from aneforge.graph.graph import Graph

_PROGRAM, _HASH, _METADATA = "main.mlirb", "main.hash", "metadata.json"
_MOST_METADATA = 1 << 24
_CHUNK = 1 << 22
_ENDS = ("coreai.output", "coreai.yield", "coreai.condition")
_ML_DTYPES = {"fp4e2m1fn": "float4_e2m1fn", "fp8e8m0fnu": "float8_e8m0fnu"}
"""Element types that only the ``ml_dtypes`` package can read; it is installed with Core AI's package."""

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
    """The graph of one function of an asset: the named one, ``main``, or the only one."""
    program = _checked_program(file)
    with _module(file, program) as module:
        functions = _Records(file.name, mapped_blobs(program)).functions(module)
    return import_function(file.name, functions, _choose_function(file.name, functions, function))


def _choose_function(file: str, functions: Mapping[str, Function], name: str | None) -> str:
    entries = [label for label, function in functions.items() if function.opset != "private"]
    available = ", ".join(entries) or "none"
    if name is not None:
        if name not in entries:
            raise LoadError(f"{file}: no function {name!r}; choose one: {available}")
        return name
    if "main" in entries:
        return "main"
    if len(entries) != 1:
        raise LoadError(
            f"{file}: the program has {len(entries)} functions; choose one: {available} (af.load(..., function=...))"
        )
    return entries[0]


# Checks of the folder before the package reads it: a damaged program must not reach native code.


def _checked_program(file: Path) -> Path:
    if not file.is_dir():
        raise LoadError(f"{file.name}: not a Core AI asset; an asset is a folder with {_PROGRAM} and {_METADATA}")
    for name in (_METADATA, _PROGRAM):
        inside = file / name
        if not inside.is_file():
            raise LoadError(f"{file.name}: not a Core AI asset (no {name})")
        if not inside.resolve().is_relative_to(file.resolve()):
            raise LoadError(f"{file.name}: {name} is a link out of the folder; it must be inside")
    _check_metadata(file)
    program = file / _PROGRAM
    with program.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise LoadError(f"{file.name}: {_PROGRAM} is not MLIR bytecode (bad magic). Save the asset again")
    _check_hash(file, program)
    return program


def _check_metadata(file: Path) -> None:
    path = file / _METADATA
    if path.stat().st_size > _MOST_METADATA:
        raise LoadError(f"{file.name}: {_METADATA} has {path.stat().st_size:,} bytes; the limit is {_MOST_METADATA:,}")
    try:
        metadata = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise LoadError(f"{file.name}: {_METADATA} is not JSON. Save the asset again") from None
    if not isinstance(metadata, dict) or "assetVersion" not in metadata:
        raise LoadError(f"{file.name}: {_METADATA} does not state assetVersion. Save the asset again")


def _check_hash(file: Path, program: Path) -> None:
    """Compare the program with the SHA-256 that the asset stores."""
    stored = file / _HASH
    if not stored.is_file() or stored.stat().st_size != hashlib.sha256().digest_size:
        raise LoadError(
            f"{file.name}: {_HASH} is missing or has the wrong size; without it a damaged program cannot be detected"
        )
    digest = hashlib.sha256()
    with program.open("rb") as stream:
        while part := stream.read(_CHUNK):
            digest.update(part)
    if digest.digest() != stored.read_bytes():
        raise LoadError(f"{file.name}: {_PROGRAM} is damaged (its SHA-256 does not match {_HASH})")


@contextlib.contextmanager
def _module(file: Path, program: Path) -> Iterator[Any]:
    """The program as the package's MLIR module, in a context of its own."""
    try:
        # Import everything first: parts imported while a module is walked would import each other in a circle.
        from coreai.authoring import Context  # isort: skip
        from coreai._compiler._mlir_libs._coreaiIR._bindings.compiler import load_module_from_bytecode
    except ImportError as error:
        raise LoadError(
            f"{file.name}: reading Core AI assets needs the coreai-core package "
            f"({first_line(error)}): {install_hint('coreai')}"
        ) from None
    _try_in_subprocess(file, program)
    context = Context()._mlir_context
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            module = load_module_from_bytecode(context=context, path=program)
    except Exception as error:  # the package has no error class for this
        raise LoadError(f"{file.name}: {_PROGRAM} cannot be read by coreai-core: {first_line(error)}") from None
    with context:
        yield module


def _try_in_subprocess(file: Path, program: Path) -> None:
    """Read the program in another process first, because the beta package crashes on some programs, even valid
    ones."""
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
    """The name of every value of the module."""
    types: dict[str, Type] = field(default_factory=dict)

    def functions(self, module: Any) -> dict[str, Function]:
        """The functions that an app can call, and ``private`` ones that only other functions call."""
        functions: dict[str, Function] = {}
        try:
            for view in module.body.operations:
                operation = view.operation
                if operation.name == "coreai.graph":
                    functions[operation.attributes["sym_name"].value] = self._function(operation)
                elif operation.name != "coreai.target_spec":
                    raise LoadError(f"{self.file}: {operation.name} outside a graph is not supported; remove it")
        except (ValueError, KeyError, IndexError, RuntimeError) as error:
            raise LoadError(f"{self.file}: {_PROGRAM} cannot be read: {first_line(error)}") from None
        except (AttributeError, TypeError) as error:
            raise LoadError(
                f"{self.file}: this version of coreai-core is not supported ({first_line(error)}); use coreai-core 1.0"
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
        block = _with_labels(self._block(body, Counter(), 0))
        labels = _labels(attributes, "res_attrs", len(block.outputs), "output")
        private = "private" in attributes or "priv" in attributes or "sym_visibility" in attributes
        types = [(label, self._type(argument.type)) for label, argument in zip(inputs, body.arguments, strict=True)]
        return Function(types, block, "private" if private else "", labels)

    def _block(self, block: Any, count: Counter[bool], depth: int) -> Block:
        spend("depth", depth, f"{self.file}: blocks within blocks")
        inputs: list[tuple[str, Type | None]] = [
            (self._name(argument), self._type(argument.type)) for argument in block.arguments
        ]
        operations: list[Operation] = []
        outputs: list[str] = []
        for view in block.operations:
            operation = view.operation
            if operation.name in _ENDS:
                outputs = [self._name(value) for value in operation.operands]
            else:
                operations.append(self._operation(operation, count, depth))
        return Block(inputs, outputs, operations)

    def _operation(self, operation: Any, count: Counter[bool], depth: int) -> Operation:
        kind = operation.name.removeprefix("coreai.").removeprefix("decomposable.").removeprefix("broadcasting_")
        attributes = {entry.name: _attribute_text(entry.attr) for entry in operation.attributes if kind != "constant"}
        is_constant = kind == "constant"  # constants are counted separately, the others in the order of the file
        default_name = f"{attributes.get('callee', kind) if kind == 'invoke' else kind}_{count[is_constant]}"
        count[is_constant] += 1
        types = [self._type(result.type) for result in operation.results]
        outputs: list[tuple[str, Type | None]] = [
            (self._name(result), kind) for result, kind in zip(operation.results, types, strict=True)
        ]
        if kind == "constant":
            value = self._constant(operation, types[0], default_name)
            return Operation(kind, {}, outputs, {"value": value}, name=default_name)
        operands: list[Binding] = [Ref(self._name(value)) for value in operation.operands]
        name, inputs, texts = common_op(kind, operands, attributes, types)
        regions = [region.blocks[0] for region in operation.regions if len(region.blocks)]
        blocks = [self._block(block, count, depth + 1) for block in regions]
        debug_name = _debug_name(operation.location)
        return Operation(
            name, inputs, outputs, texts, blocks, name=f"{debug_name}\n{default_name}" if debug_name else default_name
        )

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
        if not isinstance(kind, ValueType) or kind.static is None or kind.dtype not in NUMPY:
            raise LoadError(f"{where}: a stored value of {kind} is not supported; use a tensor of fixed shape")
        attribute = operation.attributes["value"]
        key = _resource(attribute)
        count = int(np.prod(kind.static, dtype=object))
        if key is not None and key in self.blobs:
            data = self.blobs[key]
        else:
            inline = _inline_array(attribute, count, kind) if key is None else None
            if inline is not None:
                return inline
            data = _copy_bytes(operation, count, kind, where)
        return _as_numbers(data, count, kind, where).reshape(kind.static)


def _type_of(kind: Any, text: str) -> Type:
    from coreai._compiler.ir import RankedTensorType

    if text.startswith("!coreai.handle<"):
        inner = getattr(kind, "inner_type", None) or getattr(kind, "type", None)
        wrapped = _written_type(text) if inner is None else _type_of(inner, str(inner))
        return StateType(wrapped) if isinstance(wrapped, ValueType) else OtherType(text)
    if not RankedTensorType.isinstance(kind):
        return OtherType(text)
    ranked = RankedTensorType(kind)
    shape = tuple(None if ranked.is_dynamic_dim(axis) else ranked.get_dim_size(axis) for axis in range(ranked.rank))
    return ValueType(_element(str(ranked.element_type)), shape)


def _written_type(text: str) -> Type:
    """The type of a tensor from its text, for handles whose inner type the package does not expose."""
    match = re.search(r"tensor<((?:(?:\d+|\?)x)*)([A-Za-z]\w*)", text)
    if match is None:
        return OtherType(text)
    extents = [extent for extent in match[1].split("x") if extent]
    return ValueType(_element(match[2]), tuple(None if extent == "?" else int(extent) for extent in extents))


def _labels(attributes: Any, key: str, count: int, default: str) -> list[str]:
    """The names of the inputs or outputs in the file."""
    port_attributes = list(attributes[key]) if key in attributes else []
    labels = []
    for index in range(count):
        names = port_attributes[index] if index < len(port_attributes) else {}
        labels.append(names["coreai.name"].value if "coreai.name" in names else f"{default}{index}")
    return labels


def _attribute_text(attribute: Any) -> str:
    """An attribute as text, without the dialect's wrapping: ``constant`` of ``#coreai.padding_mode<constant>``."""
    text = str(attribute)
    symbol = re.match(r'(?:#param\.constant<)?(?:@[\w.$]+::)*@"?([^">]+)"?(?:>|$)', text)
    if symbol:
        return symbol[1]
    wrapped = re.fullmatch(r"#[\w.]+<\"?([\w ]*)\"?>", text)
    return wrapped[1] if wrapped else text.strip('"')


def _debug_name(location: Any) -> str:
    """The name of an operation in the debug information of the tool that made the asset; empty if there is none."""
    text = str(location)
    named = re.match(r'loc\("([^"]+)"(?:\(|\)$)', text)
    if named:
        return named[1]
    noted = re.findall(r'<"([^"]+)": unit>', text.partition("metadata = [")[2])
    return noted[-1] if noted else ""


def _with_labels(block: Block) -> Block:
    """Name each operation by its debug name, with kind and number added where several operations share the name."""
    uses: Counter[str] = Counter()
    waiting = [block]
    operations: list[Operation] = []
    while waiting:
        for operation in waiting.pop().operations:
            operations.append(operation)
            uses[operation.name.partition("\n")[0]] += 1
            waiting.extend(operation.blocks)
    for operation in operations:
        debug_name, _, default_name = operation.name.partition("\n")
        operation.name = f"{debug_name}/{default_name}" if default_name and uses[debug_name] > 1 else debug_name
    return block


# Numbers of constants.


def _resource(attribute: Any) -> str | None:
    """The key of a constant that is stored outside the operations. Only such an attribute is printed, because its text
    has no numbers."""
    from coreai._compiler.ir import DenseElementsAttr, DenseResourceElementsAttr

    if DenseElementsAttr.isinstance(attribute) or not DenseResourceElementsAttr.isinstance(attribute):
        return None
    match = re.match(r'dense_resource<"?(.+?)"?> :', str(attribute))
    return match[1] if match else None


def _inline_array(attribute: Any, count: int, kind: ValueType) -> np.ndarray | None:
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


def _copy_bytes(operation: Any, count: int, kind: ValueType, where: str) -> np.ndarray:
    """The bytes of a constant, copied by the package."""
    from coreai._compiler._mlir_libs._coreaiIR._bindings.compiler import copy_constant_value_to_array

    data = np.zeros(-(-count * _bits(kind.dtype) // 8), np.uint8)
    try:
        copy_constant_value_to_array(constant_op=operation, destination=data)
    except Exception as error:  # the package has no error class for this
        raise LoadError(f"{where}: a stored value of {kind} cannot be read: {first_line(error)}") from None
    return data


def _bits(dtype: str) -> int:
    if dtype in PACKED:
        return PACKED[dtype]
    return 4 if dtype == "fp4e2m1fn" else 8 * np.dtype(STORED.get(dtype, np.uint8)).itemsize


def _as_numbers(data: np.ndarray, count: int, kind: ValueType, where: str) -> np.ndarray:
    bits = _bits(kind.dtype)
    if bits < 8 and count > 1 and data.size == count:
        raise LoadError(
            f"{where}: numbers of {bits} bits are stored one to a byte, but Core AI reads {8 // bits} to a byte; "
            "pack them before you save the asset"
        )
    if data.size != -(-count * bits // 8):
        raise LoadError(f"{where}: a value of {kind} has {data.size:,} bytes; expected {-(-count * bits // 8):,}")
    if kind.dtype not in _ML_DTYPES:
        return from_bytes(data, kind.dtype, (count,))
    import ml_dtypes

    codes = unpack(data, bits, count) if bits < 8 else data
    return codes.view(getattr(ml_dtypes, _ML_DTYPES[kind.dtype])).astype(np.float32)

"""How the importer reads ONNX: checks against the standard's schemas, the reference evaluator for known values, and
the standard's definitions of ops by other ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import AneforgeError, LoadError, first_line
from aneforge.formats.importer.importer import Importer
from aneforge.formats.importer.language import INTEGERS, Control, Language, Scope
from aneforge.formats.onnx.control import CONTROL, INITIALIZER
from aneforge.formats.onnx.file import StoredWeights
from aneforge.formats.onnx.host import Typed, evaluator, host_results, result_types, single_node_model
from aneforge.formats.onnx.node import OnnxNode, apply, element_number, element_type
from aneforge.formats.onnx.provider import Provider
from aneforge.formats.onnx.table import DRAWN, MOVES, PREFERRED, REASONS, SINGLE_NUMBERS, STORED, row_for
from aneforge.formats.records import Block, Operation, Type, ValueType, is_whole
from aneforge.formats.values import NoForm, Value
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

if TYPE_CHECKING:
    from aneforge.formats.onnx.adapter import Records


# What a constant costs, before it is computed: ONNX's own shape inference says how many elements an op creates.


_MATRICES = ("Gemm", "MatMul", "MatMulInteger", "QLinearMatMul")
_CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv")
_SLOW = ("CumSum", "Det", "GridSample", "LRN", "NonMaxSuppression", "Resize", "RoiAlign", "Upsample", *_CONVOLUTIONS)
_GROWING = ("Expand", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample")
"""Ops whose result may be far larger than what they read."""
_UNKNOWN = 1 << 62  # elements: over every budget
_IN_PYTHON = 16  # how much slower ops are that the reference evaluator runs in Python
_MOST_NUMBERS = 64  # of an input that may be a shape, pads or the like


def cost_of(
    onnx: Any, proto: Any, imports: Sequence[Any], inputs: Sequence[Any], attrs: Mapping[str, Any]
) -> tuple[int, int]:
    """Return upper limits for the elements that an op creates from known inputs, and for its work."""
    kind = proto.op_type
    sizes = [math.prod(value.shape) for value in inputs if value is not None]
    # An einsum makes one product for each combination of elements.
    count = min(math.prod(sizes), _UNKNOWN) if kind == "Einsum" else _created(onnx, proto, imports, inputs)
    work = count * _multiplications(kind, inputs, attrs)
    return count, sum(sizes) + work * (_IN_PYTHON if kind in _SLOW else 1)


def _created(onnx: Any, proto: Any, imports: Sequence[Any], inputs: Sequence[Any]) -> int:
    """Return the elements of the results by shapes and short inputs, or an upper limit."""
    helper, ports, known = onnx.helper, [], []
    try:
        for name, value in dict(zip(proto.input, inputs, strict=True)).items():
            if isinstance(value, np.ndarray) and value.size <= _MOST_NUMBERS and value.dtype.kind in "iufb":
                known.append(onnx.numpy_helper.from_array(value, name))
            elif value is not None:
                ports.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value.shape))
        outputs = [helper.make_empty_tensor_value_info(name) for name in proto.output if name]
        graph = helper.make_graph([proto], "constant", ports, outputs, known)
        model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=imports), data_prop=True)
        kinds = [output.type.tensor_type for output in model.graph.output]
    except Exception:  # onnx has no common class for them; the evaluator says what is wrong
        kinds = []
    dims = [dim for kind in kinds for dim in kind.shape.dim]
    if kinds and all(kind.HasField("shape") for kind in kinds) and all(dim.HasField("dim_value") for dim in dims):
        return sum(math.prod(dim.dim_value for dim in kind.shape.dim) for kind in kinds)
    return _at_most(proto.op_type, inputs)


def _at_most(kind: str, inputs: Sequence[Any]) -> int:
    """Return an upper limit where shapes cannot be inferred: an op creates what its inputs broadcast to, or at most
    what it reads, and an op that grows multiplies that by the numbers of its settings."""
    shapes = [value.shape for value in inputs if value is not None]
    try:
        size = math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        size = sum(map(math.prod, shapes))
    settings = [value for value in inputs[kind != "Range" :] if isinstance(value, np.ndarray) and _is_number(value)]
    numbers = [float(number) for value in settings for number in value.reshape(-1)[:_MOST_NUMBERS]]
    if kind not in _GROWING or not all(map(math.isfinite, numbers)):  # the evaluator refuses numbers without end
        return size
    if kind == "Range" and len(numbers) == 3:
        start, stop, step = numbers
        return max(0, math.ceil((stop - start) / step)) if step else 0
    return int(min(size * math.prod(1 + abs(number) for number in numbers), _UNKNOWN))


def _is_number(value: np.ndarray) -> bool:
    return value.dtype.kind in "iufV"  # V: floats that NumPy lacks


def _multiplications(kind: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """Return the number of multiplications for each element of the result."""
    other = 3 if kind in ("QLinearMatMul", "QLinearConv") else 1
    shapes = [() if value is None else tuple(value.shape) for value in inputs]
    if kind not in (*_MATRICES, *_CONVOLUTIONS) or len(shapes) <= other or not shapes[0]:
        return 1
    if kind in _MATRICES:
        return max(1, shapes[0][0 if kind == "Gemm" and attrs.get("transA") else -1])
    return max(1, math.prod(shapes[other][1:]))


# pyright: reportMissingImports=false


_MOST_NUMBER = 1 << 31
_STANDARD = ("", "ai.onnx")
_CONTRIB = "com.microsoft"
_OF_SHAPES = ("Shape", "Size")  # they read the shape of a tensor, which is known
_CHANGES_TYPE = frozenset(("ArgMax", "ArgMin", "Cast", "QLinearConv", "QLinearMatMul", "QuantizeLinear", "TopK"))


_EXACT = 2048
"""fp16 holds every whole number up to this one."""
_VIEWS = frozenset({"reshape", "transpose", "squeeze", "expand_dims"})


def _is_exact(op: OnnxNode) -> bool:
    """Whether an op on integers that the engine computed gives exact numbers in fp16 too: places as one-hot vectors,
    and the remainder of a place by stored numbers."""
    values = op.inputs
    if op.kind == "OneHot":
        return isinstance(values[1], np.ndarray) and 0 < int(values[1].reshape(-1)[0]) <= _EXACT
    if op.kind != "Mod" or not isinstance(values[0], Tensor) or not isinstance(values[1], np.ndarray):
        return False
    sizes = np.abs(values[1].astype(np.int64))
    return bool(sizes.size) and sizes.min() >= 1 and sizes.max() <= _EXACT and _places(values[0]) <= _EXACT


def _places(value: Tensor) -> float:
    """How many different places a tensor can name; infinite where it holds other integers."""
    while value.op in _VIEWS:
        value = value.inputs[0]
    return max(value.inputs[0].shape) if value.op == "argmax" else math.inf


class Onnx(Language):
    remedy = "check the file with onnx.checker"
    forgets = True

    def __init__(self, onnx: Any, records: Records, weights: StoredWeights) -> None:
        self.onnx, self.records, self.weights = onnx, records, weights
        self.importer: Importer | None = None
        self._noted = Provider(records.element_types())

    def release(self) -> None:
        self.weights.release()

    def noted(self, number: int, op: OnnxNode, results: Sequence[Any]) -> None:
        # ONNX Runtime unfolds functions of the file too: their nodes count as themselves.
        if op.operation.kind != INITIALIZER and (op.proto.domain, op.proto.op_type) not in self.records.functions:
            self._noted.note(number, op, results, op.begin)

    @property
    def provider(self) -> Provider:
        return self._noted

    # One node.

    def control_for(self, operation: Operation) -> Control | None:
        if operation.kind != INITIALIZER:
            proto, _ = operation.source
            if (proto.domain, proto.op_type) in self.records.functions:
                return self._call
        return CONTROL.get(operation.kind)

    def _call(self, importer: Importer, operation: Operation, op: OnnxNode, scope: Scope) -> list[Any]:
        """Inline a function of the file."""
        proto, opsets = operation.source
        body = self.records.functions[proto.domain, proto.op_type]
        return importer.inline(
            operation.label, self.records.function(body, proto, opsets), None, *_call_inputs(op, body)
        )

    def bind(self, importer: Importer, operation: Operation, scope: Scope) -> OnnxNode:
        self.importer = importer
        if operation.kind == INITIALIZER:
            return OnnxNode(operation.kind, operation.label, 0)
        proto, _ = operation.source
        self._check_numbers(proto)
        inputs = [importer.bound(binding, scope) for binding in operation.inputs[""]]
        types = [importer.types.get(name) for name in proto.input]
        node = OnnxNode(
            proto.op_type,
            operation.label,
            operation.version,
            {},
            proto.output,
            inputs,
            types,
            operation,
            self._noted.count,
        )
        if (proto.domain, proto.op_type) not in self.records.functions:
            self._check_attributes(operation)
            node.attrs = {
                attribute.name: self._attribute(attribute)
                for attribute in proto.attribute
                if not attribute.HasField("g")
            }
        return node

    def _check_numbers(self, proto: Any) -> None:
        """Refuse numbers that crash the shape inference of the onnx package."""
        for attribute in proto.attribute:
            beyond = [number for number in (attribute.i, *attribute.ints) if abs(number) >= _MOST_NUMBER]
            if beyond and attribute.name not in ("starts", "ends"):  # a slice to the end often has such a number
                raise LoadError(f"attribute {attribute.name!r} is {beyond[0]}; the limit is {_MOST_NUMBER - 1:,}")
            if proto.op_type == "Split" and attribute.name == "num_outputs" and attribute.i != len(proto.output):
                raise LoadError(f"num_outputs is {attribute.i}, but the node has {len(proto.output)} outputs")

    def _check_attributes(self, operation: Operation) -> None:
        """Check against the schema: each attribute once, of its type and finite; the number of inputs and outputs."""
        proto, _ = operation.source
        schema = self._schema(operation)
        types = self.onnx.AttributeProto.AttributeType
        seen: set[str] = set()
        for attribute in proto.attribute:
            if attribute.name in seen:
                raise LoadError(f"attribute {attribute.name!r} is given twice; remove one")
            seen.add(attribute.name)
            if attribute.ref_attr_name:
                raise LoadError(
                    f"attribute {attribute.name!r} refers to an attribute of a function (ref_attr_name), but the node "
                    "is not in one; give it a value"
                )
            declared = schema.attributes.get(attribute.name) if schema is not None else None
            if schema is not None and declared is None:
                stated = ", ".join(sorted(schema.attributes)) or "none"
                raise LoadError(
                    f"attribute {attribute.name!r} is unknown in opset {operation.version}; the op has {stated}"
                )
            if declared is not None and int(declared.type.value) != attribute.type:
                stated = types.Name(attribute.type) if attribute.type in types.values() else f"type {attribute.type}"
                raise LoadError(f"attribute {attribute.name!r} is {stated}; expected {declared.type.name}")
            may_be_infinite = attribute.name.startswith("value") or attribute.name in ("min", "max")
            if not may_be_infinite and not np.isfinite([attribute.f, *attribute.floats]).all():
                raise LoadError(f"attribute {attribute.name!r} is not finite; it must be a finite number")
        if schema is None:
            return
        for what, count, least, most in (
            ("inputs", len(proto.input), schema.min_input, schema.max_input),
            ("outputs", len(proto.output), schema.min_output, schema.max_output),
        ):
            if not least <= count <= most:
                span = f"{least}" if least == most else f"{least} to {most}" if most < 1 << 30 else f"{least} or more"
                raise LoadError(f"the node has {count} {what}; expected {span}")

    def _attribute(self, proto: Any) -> Any:
        try:
            value = self.onnx.helper.get_attribute_value(proto)
        except ValueError:
            raise LoadError(f"attribute {proto.name!r} has no type; the file is damaged") from None
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if proto.type == self.onnx.AttributeProto.TENSOR:
            return self.weights.array(value)
        return value

    def _schema(self, operation: Operation) -> Any:
        proto, opsets = operation.source
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        try:
            return self.onnx.defs.get_schema(proto.op_type, opsets.get(domain, 1), proto.domain)
        except self.onnx.defs.SchemaError:
            return None

    # Known values.

    def fold(self, op: OnnxNode) -> Sequence[Any]:
        assert self.importer is not None
        proto, opsets = op.source
        self._check_domain(op)
        if op.kind in DRAWN and proto.domain in _STANDARD:
            raise LoadError("it draws new random numbers in every run; make them an input of the model")
        size, work = cost_of(self.onnx, proto, self._imports(opsets), op.inputs, op.attrs)
        self.importer.folding.charge(size, work, self.importer.where(op.operation))
        if op.kind in STORED:
            try:
                return _as_list(apply(STORED[op.kind], op))
            except AneforgeError:
                pass  # the reference evaluator computes the plain numbers
        return self._evaluate(op)

    def _evaluate(self, op: OnnxNode) -> list[np.ndarray]:
        """Compute a node of known inputs with the reference evaluator."""
        proto, opsets = op.source
        helper = self.onnx.helper
        arrays = {
            name: _decode(value) for name, value in zip(proto.input, op.inputs, strict=True) if value is not None
        }
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in proto.output if name]
        model = helper.make_model(
            helper.make_graph([proto], "folded", ports, outputs), opset_imports=self._imports(opsets)
        )
        try:
            with np.errstate(all="ignore"):  # log(0) is minus infinity here as on the engine
                results = iter(evaluator(model).run(None, arrays))
        except Exception as error:
            raise LoadError(f"a known value could not be computed: {first_line(error)}") from None
        return [np.asarray(next(results)) if name else np.zeros(0) for name in proto.output]

    def _imports(self, opsets: Any) -> list[Any]:
        return [self.onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]

    # Rules, definitions, the host.

    def _check_domain(self, op: OnnxNode) -> None:
        proto = op.proto
        if proto.domain not in (*_STANDARD, _CONTRIB) and self._schema(op.operation) is None:
            raise LoadError(
                f"op domain {proto.domain!r} is not supported; the reader has the ONNX standard and {_CONTRIB}"
            )

    def why_on_host(self, op: OnnxNode) -> str | None:
        """The host computes with integers. The engine may move integers that fp16 represents exactly."""
        if op.kind in _OF_SHAPES:
            return None
        for value, kind in zip(op.inputs, op.types, strict=True):
            if isinstance(value, Tensor):
                integer = isinstance(kind, ValueType) and is_whole(kind.dtype)
                if value.dtype == "int32" or (integer and op.kind not in MOVES and not _is_exact(op)):
                    return INTEGERS
        return None

    def rule(self, op: OnnxNode) -> Callable[[OnnxNode], Any] | None:
        self._check_domain(op)
        proto = op.proto
        domain = "" if proto.domain in _STANDARD else proto.domain
        if not domain and op.kind in PREFERRED:
            return _apply_preferred
        row = row_for(op.kind, domain, op.opset)
        if row is None:
            return None
        if op.kind not in SINGLE_NUMBERS and any(op.is_single(place) for place in range(len(op.inputs))):
            return _refuse_single_number
        return lambda node: _as_list(apply(row, node))

    def is_defined_otherwise(self, op: OnnxNode) -> bool:
        return op.kind in PREFERRED and op.proto.domain in _STANDARD

    def definition(self, op: OnnxNode) -> tuple[Block, list[Any], list[Type | None]] | None:
        """Return the standard's own definition of an op as a function, or None."""
        proto, opsets = op.source
        schema = self._schema(op.operation)
        if schema is None:
            return None
        full = self._with_defaults(proto, schema)
        if schema.has_function:
            body = schema.function_body
        elif schema.has_context_dependent_function:
            types = [self._type(value).SerializeToString() for value in op.inputs]
            body = self.onnx.FunctionProto()
            body.ParseFromString(schema.get_context_dependent_function(full.SerializeToString(), types))
            if not body.node:
                return None
        else:
            return None
        return (self.records.function(body, full, opsets), *_call_inputs(op, body))

    def _with_defaults(self, proto: Any, schema: Any) -> Any:
        """Return the node with default attributes filled in; the nodes of a function refer to them."""
        full = self.onnx.NodeProto()
        full.CopyFrom(proto)
        stated = {attribute.name for attribute in proto.attribute}
        for name, attribute in schema.attributes.items():
            if name not in stated and attribute.default_value.name:
                full.attribute.add().CopyFrom(attribute.default_value)
        return full

    def _type(self, value: Value | None) -> Any:
        helper = self.onnx.helper
        if value is None:
            return self.onnx.TypeProto()
        truths = isinstance(value, Tensor) and value.dtype == "bool"
        kind = value.dtype if isinstance(value, np.ndarray) else np.dtype(bool if truths else np.float32)
        element = self.onnx.TensorProto.BOOL if kind.kind == "b" else helper.np_dtype_to_tensor_dtype(kind)
        return helper.make_tensor_type_proto(element, value.shape)

    def refusal(self, op: OnnxNode) -> str:
        return REASONS.get(op.kind, "this op is not supported; the engine has no form for it")

    def on_host(self, op: OnnxNode, reason: str) -> Sequence[Any] | None:
        assert self.importer is not None
        proto, opsets = op.source
        if proto.domain not in _STANDARD or op.operation.blocks:
            return None
        results = host_results(self.onnx, proto, self._typed(op), self._imports(opsets), reason)
        if results is None:
            return None
        self.importer.returned_types = [ValueType(element_type(self.onnx, r.element), r.shape) for r in results]
        return [result.value for result in results]

    def _typed(self, op: OnnxNode) -> dict[str, Typed]:
        """Return the inputs with the element types and shapes of the file."""
        proto = op.proto
        typed: dict[str, Typed] = {}
        for name, value, kind in zip(proto.input, op.inputs, op.types, strict=True):
            if value is None:
                continue
            stated = kind if isinstance(kind, ValueType) else None
            if isinstance(value, np.ndarray):
                element, shape = int(self.onnx.helper.np_dtype_to_tensor_dtype(value.dtype)), tuple(value.shape)
            else:
                dtype = "fp16" if isinstance(value, Encoded) else value.dtype
                default = {"bool": "bool", "int32": "int64"}.get(dtype, "fp32")
                element = element_number(self.onnx, default if stated is None else stated.dtype)
                shape = () if stated is not None and stated.shape == () else tuple(value.shape)
            typed[name] = Typed(value, element, shape)
        return typed

    def result_types(self, op: OnnxNode, results: Sequence[Any]) -> Sequence[Type | None]:
        """Return the types of the results. Shape inference runs only if one may be a single number or an integer."""
        if op.operation.kind == INITIALIZER:
            return []
        proto, opsets = op.source
        lines = [isinstance(value, Tensor) and value.op != "host" and value.shape == (1,) for value in results]
        if not op.computed or proto.domain not in _STANDARD or not (any(lines) or op.kind in _CHANGES_TYPE):
            return [_type_of_input(op, value) for value in results]
        model, _ = single_node_model(self.onnx, proto, self._typed(op), self._imports(opsets))
        inferred = result_types(self.onnx, model) or {}
        return [
            ValueType(element_type(self.onnx, inferred[name][0]), inferred[name][1]) if name in inferred else None
            for name in proto.output
        ]


def _type_of_input(op: OnnxNode, value: Any) -> Type | None:
    """Return the type of the input that an op returns unchanged, as a dropout does."""
    for operand, kind in zip(op.inputs, op.types, strict=True):
        if operand is value and isinstance(value, Tensor):
            return kind
    return None


def _call_inputs(op: OnnxNode, body: Any) -> tuple[list[Any], list[Type | None]]:
    """Return the inputs of a call and their types, with None for those that it leaves out."""
    missing = len(body.input) - len(op.inputs)
    return [*op.inputs, *[None] * missing], [*op.types, *[None] * missing]


def _refuse_single_number(node: OnnxNode) -> Any:
    raise NoForm("the input is a single number (rank 0); the engine takes tensors only")


def _apply_preferred(node: OnnxNode) -> list[Value]:
    """Return the results of a row that is tried before the standard's own definition of the op."""
    try:
        return _as_list(apply(PREFERRED[node.kind], node))
    except AneforgeError as error:
        raise NoForm(first_line(error)) from None


def _as_list(results: Any) -> list[Value]:
    return [results] if isinstance(results, (np.ndarray, Tensor, Encoded)) else list(results)


def _decode(value: Value) -> np.ndarray:
    """Return the numbers of a known value, decoded if it is an encoded weight."""
    return value.decode().astype(np.float32) if isinstance(value, Encoded) else np.asarray(value)

"""The core of the graph: what an op declaration is, what a node is, and the one function that makes a node.

A node is immutable and is made by :func:`make`, which runs the op's shape rule and the guards that hold on
every chip. Nodes number themselves in order of creation, so a graph in topological order is its reachable
nodes sorted by number, and no walk ever recurses. Equal (op, attributes, operand types) share one
:class:`Signature`; shape inference and every later per-op question is answered once per signature.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from aneforge.errors import GraphError, nearest, shown
from aneforge.graph.cache import SharedCache
from aneforge.graph.origins import Origins
from aneforge.graph.snapshots import Snapshot
from aneforge.graph.spelling import Spelling, spelling
from aneforge.graph.traits import GraphTrait
from aneforge.graph.weights import Weight

if TYPE_CHECKING:
    import numpy as np

    from aneforge.graph.tensor import Tensor

Shape = tuple[int, ...]
P = ParamSpec("P")
R = TypeVar("R")

MAX_RANK = 5  # limits.json rank_max: every chip refuses rank 6
MAX_BYTES = 1 << 42  # device addresses have 42 bits (td_generations.json dma_encoding)
DTYPES = {"fp16": 2, "uint8": 1, "bool": 1, "int32": 4}
_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep


@dataclass(frozen=True)
class OpDef:
    """One op, declared in one place."""

    name: str
    doc: str
    operands: tuple[str, ...]
    attributes: tuple[str, ...]
    shape: Callable[..., Shape]
    reference: Callable[..., np.ndarray] | None
    derivative: Callable[..., Sequence[Any]] | None
    traits: frozenset[GraphTrait] = frozenset()
    dtypes: str = "fp16"
    gate_name: str = ""
    native_layer: bool = False
    reads_values: bool = False
    kernel_axis: int | None = None
    """The axis of a stored kernel along which its outputs lie."""
    vector_axis: int | None = None
    """The axis of the result along which a bias or gains lie, one number each."""
    diverges_as: str = ""
    """The kind of op whose differences between chips it has, where neither its name nor a trait says it."""
    no_derivative: str = ""
    """Why no gradient passes through the op."""
    mil: str = ""
    """The op in the model language, as a row of :mod:`aneforge.graph.spelling`; empty where more must be computed."""
    no_mil: str = ""
    """Why Core ML has no form for the op."""
    backend: str = ""
    """The backend op that computes it, as such a row; empty where more than one does, or none."""

    @functools.cached_property
    def in_mil(self) -> Spelling | None:
        return spelling(self.mil, self.name) if self.mil else None

    @functools.cached_property
    def in_backend(self) -> Spelling | None:
        return spelling(self.backend, self.name) if self.backend else None

    @property
    def leaf(self) -> bool:
        return GraphTrait.LEAF in self.traits

    @property
    def variadic(self) -> bool:
        return self.operands[-1:] != () and self.operands[-1].startswith("*")


_definitions: dict[str, OpDef] = {}


def definitions() -> Mapping[str, OpDef]:
    """Every declared op, by name."""
    return _definitions


def definition(name: str) -> OpDef:
    """The declaration of one op."""
    declared = _definitions.get(name)
    if declared is None:
        near = ", ".join(nearest(str(name), _definitions)) or "conv, matmul, relu"
        raise GraphError(f"{name!r}: not a graph operation; nearest: {near}")
    return declared


@functools.cache
def ops_with(*traits: GraphTrait) -> frozenset[str]:
    """The names of the ops that have all of these traits."""
    import aneforge.graph.ops  # noqa: F401 - declares them

    return frozenset(name for name, declared in _definitions.items() if declared.traits.issuperset(traits))


def op(name: str, operands: str, attributes: str = "", *traits: GraphTrait, **options: Any) -> Callable[[type], OpDef]:
    """Declare an op from a class body that holds its rules.

    The body is a namespace: ``shape`` (operand shapes and attributes to the output shape, or an error
    message raised as GraphError), ``reference`` (float64 arrays to a float64 array) and ``derivative``
    (gradient, output, operands and attributes to one gradient or None per operand); the docstring is the
    op's one-line description. A body without ``derivative`` has none; ``no_derivative`` says why.
    """

    def declare(body: type) -> OpDef:
        rules = {key: getattr(value, "__func__", value) for key, value in vars(body).items()}
        if name in _definitions:
            raise GraphError(f"op {name} is declared twice; give one of them another name")
        declared = OpDef(
            name=name,
            doc=(body.__doc__ or "").strip(),
            operands=tuple(operands.split()),
            attributes=tuple(attributes.split()),
            shape=rules["shape"],
            reference=rules.get("reference"),
            derivative=rules.get("derivative"),
            traits=frozenset(traits),
            gate_name=options.pop("gate", name),
            **options,
        )
        _definitions[name] = declared
        return declared

    return declare


def composed(form: Callable[..., Tensor]) -> Callable[..., Sequence[Any]]:
    """A derivative rule for an op that equals a composition of other ops: the gradient of that composition."""

    def derivative(g: Tensor, y: Tensor, *operands: Tensor, **attrs: Any) -> Sequence[Any]:
        from aneforge.graph.reference import gradients

        places: list[Tensor] = []
        for operand in operands:  # an operand that is used twice has a gradient at each place
            twice = any(operand is place for place in places)
            places.append(operand.reshape(operand.shape) if twice else operand)
        wanted = [place for place in places if place.op != "const"]
        parts = iter(gradients(form(*places, **attrs), wanted, seed=g, stop=places))
        return [None if place.op == "const" else next(parts) for place in places]

    return derivative


class Signature:
    """An op with its attributes and operand types: everything that decides its shape and its verdicts."""

    __slots__ = ("__weakref__", "attrs", "dtype", "inputs", "op", "result", "shape", "takes_stored", "uniform")

    def __init__(
        self,
        definition: OpDef,
        attrs: tuple[tuple[str, Any], ...],
        inputs: tuple[tuple[Shape, str, str], ...],
        shape: Shape,
        dtype: str,
        uniform: tuple[bool | None, ...],
        storage: str = "",
    ) -> None:
        self.op = definition
        self.attrs = attrs
        self.inputs = inputs  # shape, type, and how a constant is stored ("" for what is computed)
        self.shape = shape
        self.dtype = dtype
        self.uniform = uniform  # of each operand whether all its numbers are equal, where rules ask; None if computed
        self.result = shape, dtype, storage  # what it is as an operand of another
        self.takes_stored = any(stored for _, _, stored in inputs)


class Node:
    """One operation of a graph and its single result. :class:`~aneforge.graph.tensor.Tensor` adds the API."""

    __slots__ = ("__weakref__", "_weight", "inputs", "name", "origins", "signature", "uid", "where")

    def __init__(
        self,
        signature: Signature,
        inputs: tuple[Tensor, ...],
        name: str | None,
        weight: Weight | Snapshot | None,
        where: tuple[str, int] | None,
    ) -> None:
        self.signature = signature
        self.inputs = inputs
        self.uid = next(_numbers)
        self.name: str | None = None if name is None else shown(name)  # reports and logs repeat it
        self._weight = weight
        self.where = where
        self.origins: Origins = ()  # the nodes of the model file that it comes from

    @property
    def weight(self) -> Weight | None:
        """The numbers of a constant or a parameter."""
        if isinstance(self._weight, Snapshot):
            self._weight = self._weight.weight
        return self._weight

    @property
    def op(self) -> str:
        return self.signature.op.name

    @property
    def definition(self) -> OpDef:
        return self.signature.op

    def is_a(self, trait: GraphTrait) -> bool:
        """Whether the op has a property, which its declaration states."""
        return trait in self.signature.op.traits

    @property
    def attrs(self) -> dict[str, Any]:
        return dict(self.signature.attrs)

    @property
    def shape(self) -> Shape:
        return self.signature.shape

    @property
    def dtype(self) -> str:
        """``fp16`` for everything the engine computes, ``uint8`` for image ports, ``bool`` for comparisons, ``int32``
        for what only the host handles."""
        return self.signature.dtype


_numbers = itertools.count()
_type_of = attrgetter("signature.result")
_signatures: SharedCache[Signature] = SharedCache(1 << 16)


def newest_node() -> int:
    """A number that is below those of all nodes that are made from now on."""
    return next(_numbers)


@dataclass
class _Factory:
    tensor: Callable[..., Tensor] = field(default=Node)  # type: ignore[assignment]


factory = _Factory()  # tensor.py sets its class here, so that ops need not import it


def make(
    declared: OpDef,
    inputs: Sequence[Tensor] = (),
    attrs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    weight: Weight | Snapshot | None = None,
    placed: bool = True,
) -> Tensor:
    """The one function that makes a node: type rules, shape rule, guards. An error names the user's line.

    A node that is not ``placed`` has no line until it becomes an operand: then it gets the line of its user.
    """
    settings = tuple(attrs.items()) if attrs else ()
    try:
        types = tuple(map(_type_of, inputs))
    except AttributeError:
        raise _not_a_tensor(declared, inputs) from None
    key: tuple[Any, ...] = (declared.name, settings, types)
    uniform: tuple[bool | None, ...] = ()
    if declared.reads_values:
        uniform = tuple([operand.weight and operand.weight.uniform for operand in inputs])
        key = (*key, *uniform)
    elif weight is not None:
        key = (*key, weight.shape, weight.encoding)
    try:
        signature = _signatures.get(key)
    except TypeError:
        raise _located(declared.name, f"attribute {_unhashable(settings)} is not a plain value") from None
    if signature is None:
        signature = _signatures.keep(key, _infer(declared, settings, types, uniform, weight))
    if len(signature.shape) > MAX_RANK and not _any_rank.get():
        rank = f"result {list(signature.shape)} has rank {len(signature.shape)}; no engine takes more than {MAX_RANK}"
        raise _located(declared.name, f"{rank}{_operand_shapes(inputs, {})}")
    where = _caller() if placed else None
    if signature.takes_stored:
        for operand in inputs:
            if operand.where is None:
                operand.where = where
    return factory.tensor(signature, tuple(inputs), name, weight, where)


def remade(node: Tensor, operands: Sequence[Tensor], name: str | None) -> Tensor:
    """The same op on other operands, with the user's line of the node."""
    copied = make(node.definition, operands, node.attrs, name=name, weight=node.weight)
    copied.where, copied.origins = node.where, node.origins
    return copied


def _not_a_tensor(declared: OpDef, inputs: Sequence[Any]) -> GraphError:
    type_ = next(type(operand) for operand in inputs if not isinstance(operand, Node))
    return _located(declared.name, f"operand is a {type_.__name__}, not a graph tensor{_operand_shapes(inputs, {})}")


def _infer(
    declared: OpDef,
    settings: tuple[tuple[str, Any], ...],
    types: tuple[tuple[Shape, str, str], ...],
    uniform: tuple[bool | None, ...],
    weight: Weight | Snapshot | None,
) -> Signature:
    shapes = [shape for shape, _, _ in types]
    try:
        _check_operands(declared, len(shapes))
        dtype = _result_dtype(declared, [dtype for _, dtype, _ in types], dict(settings))
        shape = weight.shape if weight is not None else declared.shape(*shapes, **dict(settings))
        _check_size(shape, dtype, scalar=weight is not None)
        _check_axes(dict(settings), max(len(size) for size in (shape, *shapes)))
    except GraphError as error:
        operands = f" (operands {', '.join(str(list(size)) for size in shapes)})" if shapes else ""
        raise _located(declared.name, f"{error}{operands}") from None
    except OverflowError as error:
        raise _located(declared.name, f"a size is too large: {error}") from None
    return Signature(declared, settings, types, shape, dtype, uniform, "" if weight is None else weight.encoding)


def _check_operands(declared: OpDef, count: int) -> None:
    """Refuse a wrong number of operands. Builders pass the right number; a file may not."""
    needed = sum(1 for name in declared.operands if not name.endswith("?"))
    if count < needed or (count > len(declared.operands) and not declared.variadic):
        raise GraphError(f"takes {' '.join(declared.operands) or 'no operands'}, but got {count} operands")


def _check_axes(attrs: Mapping[str, Any], rank: int) -> None:
    """Refuse an axis that does not exist. Builders resolve axes; a file may name any (flatten2d may name the end)."""
    axes = (*attrs.get("axes", ()), *(attrs[key] for key in ("axis", "seq_axis", "batch_axis") if key in attrs))
    for axis in axes:
        if not isinstance(axis, int) or isinstance(axis, bool) or not 0 <= axis <= rank - ("axes" in attrs):
            raise GraphError(f"axis {axis!r} is out of range for rank {rank}")


def _check_size(shape: Shape, dtype: str, scalar: bool) -> None:
    if not shape and not scalar:
        raise GraphError("result has rank 0; keep at least one axis")
    elements = 1
    for extent in shape:
        if extent < 1:
            raise GraphError(f"result {list(shape)} has an axis of {extent}; empty tensors are not supported")
        elements *= extent
    if elements * DTYPES[dtype] > MAX_BYTES:
        raise GraphError(
            f"result {list(shape)} needs {elements * DTYPES[dtype]:,} bytes; the limit of device addresses is 2^42"
        )


def _result_dtype(declared: OpDef, dtypes: list[str], attrs: Mapping[str, Any]) -> str:
    """Type rules: the engine computes in fp16; comparisons give bool; uint8 is for image ports only."""
    rule = declared.dtypes
    if rule == "attribute":
        if attrs["dtype"] not in DTYPES:
            raise GraphError(f"type {attrs['dtype']!r} is unknown; choose one: {', '.join(DTYPES)}")
        return attrs["dtype"]
    if rule == "same":
        if len(set(dtypes)) > 1:
            raise GraphError(f"operands are {' and '.join(sorted(set(dtypes)))}; they must have one type")
        return dtypes[0]
    if rule == "select":
        if dtypes[0] != "bool" or set(dtypes[1:]) != {"fp16"}:
            raise GraphError(f"needs a bool condition and fp16 values, not {', '.join(dtypes)}; compare first")
        return "fp16"
    wanted = "bool" if rule.startswith("bool") else "fp16"
    for dtype in dtypes:
        if dtype != wanted:
            remedy = {
                "bool": "cast it, or use it as the condition of where()",
                "uint8": "use image_input() or cast it",
                "int32": "the engine has no integer type; only host ops take integers",
            }
            raise GraphError(f"needs {wanted} operands, not {dtype}; {remedy.get(dtype, 'compare first')}")
    return "bool" if rule in ("bool", "compare") else "fp16"


def _unhashable(settings: Iterable[tuple[str, Any]]) -> str:
    for name, value in settings:
        try:
            hash(value)
        except TypeError:
            return f"{name}={value!r}"
    return "value"


_own_files: set[str] = set()  # files of this package, as frames name them
# The line of an instruction, by its code and place there, because Python computes it anew each time. The value keeps
# the code alive, so no other code can have its id as long as the entry lives.
_places: SharedCache[tuple[CodeType, tuple[str, int]]] = SharedCache(1 << 14)
_read_from: ContextVar[str | None] = ContextVar("aneforge model file", default=None)


_any_rank: ContextVar[bool] = ContextVar("aneforge tensors of many axes", default=False)


@contextmanager
def many_axes() -> Iterator[None]:
    """Nodes made inside this context may have more axes than the engine; who opens it folds them away again."""
    token = _any_rank.set(True)
    try:
        yield
    finally:
        _any_rank.reset(token)


@contextmanager
def made_from(file: str) -> Iterator[None]:
    """Nodes made inside this context come from a model file, not from a line of the user's code."""
    token = _read_from.set(file)
    try:
        yield
    finally:
        _read_from.reset(token)


def _caller() -> tuple[str, int] | None:
    """File and line of the nearest frame outside this package, or the model file that is being read."""
    file = _read_from.get()
    if file is not None:
        return file, 0
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_filename not in _own_files:
            if not code.co_filename.startswith(_PACKAGE):
                place = id(code), frame.f_lasti
                cached = _places.get(place) or _places.keep(place, (code, (code.co_filename, frame.f_lineno)))
                return cached[1]
            _own_files.add(code.co_filename)
        frame = frame.f_back
    return None


def located(where: tuple[str, int] | None) -> str:
    """A place in the user's code as ``file:line``; only the file for a model file."""
    if where is None:
        return "unknown line"
    name, line = shown(Path(where[0]).name), where[1]
    return f"{name}:{line}" if line else name


def _located(name: str, message: str, kind: type[GraphError] = GraphError) -> GraphError:
    """A complete error: the op, the user's line, and a message with the shapes and the rule."""
    error = kind(f"{name} at {located(_caller())}: {message.removeprefix(f'{name}: ')}")
    vars(error)["complete"] = True
    return error


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function that users call. Its refusals then name the call, the user's line and the shapes, wherever the
    rule is; arguments that the code cannot handle at all are refused the same way, with their cause."""
    name = function.__name__.strip("_")
    if function.__name__.startswith("__r"):
        name = name[1:]  # __radd__ is an add

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except GraphError as error:
            if "complete" in vars(error):
                raise
            raise _located(name, f"{error}{_operand_shapes(args, kwargs)}", type(error)) from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise  # arguments missing or unknown: Python's own message is the clear one
            raise _located(name, f"cannot take these arguments: {error}{_operand_shapes(args, kwargs)}") from error

    return call


def _operand_shapes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The shapes among the arguments of a call."""
    shapes = []
    for value in (*args, *kwargs.values()):
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(getattr(item, "shape", None), tuple):
                shapes.append(str(list(item.shape)))
    return f" (operands {', '.join(shapes)})" if shapes else ""

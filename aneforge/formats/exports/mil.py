"""What each op of the graph is called in MIL, written with coremltools' builder, which is loaded when it is needed."""

from __future__ import annotations

import contextlib
import io
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError, install_hint
from aneforge.graph import definitions
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.process import quiet_warnings

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars, logs or warnings of the library. They belong to the process, so one thread at a time."""
    with quiet_warnings():
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                yield
        finally:
            logging.disable(before)


def quiet_mil() -> Mil:
    """The builder, or an error that says how to get it."""
    try:
        with _quiet():
            import coremltools
            from coremltools.converters.mil import mil
    except ModuleNotFoundError:
        raise AneforgeError(
            f"coremltools: writing Core ML needs this package. Install it with {install_hint('coreml-export')}"
        ) from None
    return Mil(coremltools, mil)


class Mil:
    """Functions, ops and constants of an ML program."""

    def __init__(self, tools: Any, mil: Any) -> None:
        self._tools, self._mil, self._builder = tools, mil, mil.Builder

    def port(self, name: str, shape: Sequence[int], state: bool, kind: str) -> Any:
        types = self._mil.types
        if kind == "uint8":
            raise AneforgeError(
                f"{name}: the port takes bytes, which a package does not. Export the graph behind its cast, with "
                "fp16 pixels."
            )
        if state:
            return self._builder.state_tensor_placeholder(tuple(shape), dtype=types.fp16)
        dtype = types.fp32 if kind == "fp32" else types.fp16
        return self._builder.placeholder(tuple(shape), dtype=dtype, name=name)

    def open_extent(self, name: str) -> Any:
        """An extent of a port that a call chooses; :meth:`save` says between which sizes."""
        return self._mil.get_new_symbol(name)

    def flexible(self, name: str, shape: Sequence[int], axis: int, sizes: Sequence[int], listed: bool) -> Any:
        """What a package says of a port with an open extent: some sizes, or all between the first and the last."""
        if listed:
            shapes = [[*shape[:axis], size, *shape[axis + 1 :]] for size in sizes]
            given = self._tools.EnumeratedShapes(shapes=shapes, default=list(shape))
        else:
            span = self._tools.RangeDim(sizes[0], sizes[-1], default=shape[axis])
            given = (*shape[:axis], span, *shape[axis + 1 :])
        return self._tools.TensorType(name, shape=given, dtype=np.float16)

    @contextlib.contextmanager
    def function(self, ports: OrderedDict[str, Any]) -> Iterator[Any]:
        with _quiet(), self._mil.Function(ports, opset_version=self._tools.target.iOS18) as program:
            yield program

    def op(self, kind: str, name: str, **operands: Any) -> Any:
        try:
            return getattr(self._builder, kind)(name=name, **operands)
        except (ValueError, TypeError, AttributeError, RuntimeError) as error:
            line = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise AneforgeError(f"{name} ({kind}): Core ML's own checks refuse it: {line}") from None

    def is_bytes(self, value: Any) -> bool:
        """Whether a value is of 8-bit integers."""
        return value.dtype in (self._mil.types.int8, self._mil.types.uint8)

    def constant(self, values: Any, name: str) -> Any:
        return self._builder.const(val=np.ascontiguousarray(values), name=name)

    def sub_byte(self, codes: np.ndarray, bits: int, signed: bool) -> Any:
        """Codes in the builder's type of so many bits."""
        if bits == 8:
            return np.ascontiguousarray(codes.astype(np.int8 if signed else np.uint8))
        types = self._mil.types
        kind = types.string_to_builtin(f"{'int' if signed else 'uint'}{bits}")
        return np.ascontiguousarray(codes).astype(types.nptype_from_builtin(kind))

    def save(self, function: Any, file: Path, inputs: Sequence[Any] = ()) -> None:
        """The package: no pass of coremltools changes what was written. ``inputs`` says what is flexible of ports."""
        program = self._mil.Program()
        program.add_function("main", function)
        with _quiet():
            package = self._tools.convert(
                program,
                source="milinternal",
                convert_to="mlprogram",
                minimum_deployment_target=self._tools.target.iOS18,
                compute_precision=self._tools.precision.FLOAT32,
                pass_pipeline=self._tools.PassPipeline.EMPTY,
                skip_model_load=True,
                **({"inputs": list(inputs)} if inputs else {}),
            )
            package.save(str(file))
        self._sort_maps(file)

    def _sort_maps(self, file: Path) -> None:
        """The same bytes from every process: protobuf leaves the order of its maps open."""
        from coremltools.proto import Model_pb2

        for place in file.rglob("*.mlmodel"):
            model = Model_pb2.Model()
            model.ParseFromString(place.read_bytes())
            place.write_bytes(model.SerializeToString(deterministic=True))


# Ops of the graph in MIL: by the rows of their declarations, and by functions where more must be computed.


Rule = Callable[..., Any]
"""Takes the builder, the name in the package, the node and its operands; gives the value."""


def _by_row(mil: Mil, name: str, node: Tensor, *values: Any) -> Any:
    """An op whose declaration spells it: operands and attributes under other names."""
    spelled = node.definition.in_mil
    assert spelled is not None
    first = spelled.operands[0]
    operands: dict[str, Any] = dict(zip(spelled.operands, values, strict=False))
    if first.startswith("*"):
        operands = {first[1:]: list(values)}
    settings = {theirs: _number(value) for theirs, value in spelled.stated(node.attrs).items()}
    return mil.op(spelled.name, name, **operands, **settings)


def _number(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return np.float16(value) if isinstance(value, float) else value


def _rms_norm(mil: Mil, name: str, node: Tensor, x: Any, gamma: Any) -> Any:
    """x / sqrt(mean(x^2) + eps) * gamma, step by step: the language has no op for it."""
    square = mil.op("square", f"{name}_square", x=x)
    mean = mil.op("reduce_mean", f"{name}_mean", x=square, axes=[-1], keep_dims=True)
    scale = mil.op("rsqrt", f"{name}_rsqrt", x=mean, epsilon=np.float16(node.attrs["eps"]))
    white = mil.op("mul", f"{name}_white", x=x, y=scale)
    if node.inputs[1].shape != node.shape[-1:]:
        gamma = mil.op("reshape", f"{name}_gain", x=gamma, shape=[node.shape[-1]])
    return mil.op("mul", name, x=white, y=gamma)


def _l2_norm(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    """x / sqrt(sum(x^2) + eps) along one axis; the language's own runs over the last three."""
    total = mil.op("reduce_sum_square", f"{name}_sum", x=x, axes=[node.attrs["axis"]], keep_dims=True)
    scale = mil.op("rsqrt", f"{name}_rsqrt", x=total, epsilon=np.float16(node.attrs["eps"]))
    return mil.op("mul", name, x=x, y=scale)


def _group_norm(mil: Mil, name: str, node: Tensor, x: Any, gamma: Any, beta: Any) -> Any:
    """Groups as lines, each whitened by itself, then gain and offset: the language has no op for it."""
    shape, groups = node.shape, node.attrs["num_groups"]
    lines = mil.op("reshape", f"{name}_lines", x=x, shape=[shape[0], groups, node.size // (shape[0] * groups)])
    mean = mil.op("reduce_mean", f"{name}_mean", x=lines, axes=[2], keep_dims=True)
    centred = mil.op("sub", f"{name}_centred", x=lines, y=mean)
    square = mil.op("square", f"{name}_square", x=centred)
    spread = mil.op("reduce_mean", f"{name}_spread", x=square, axes=[2], keep_dims=True)
    scale = mil.op("rsqrt", f"{name}_rsqrt", x=spread, epsilon=np.float16(node.attrs["eps"]))
    white = mil.op("mul", f"{name}_white", x=centred, y=scale)
    back = mil.op("reshape", f"{name}_back", x=white, shape=list(shape))
    along = [1, shape[1], *(1,) * (len(shape) - 2)]
    gain, offset = (
        mil.op("reshape", f"{name}_{what}", x=parameter, shape=along)
        for what, parameter in (("gain", gamma), ("offset", beta))
    )
    return mil.op("add", name, x=mil.op("mul", f"{name}_scaled", x=back, y=gain), y=offset)


def _prelu(mil: Mil, name: str, node: Tensor, x: Any, alpha: Any) -> Any:
    """The language takes images; elsewhere it is written out."""
    if len(node.shape) == 4:
        return mil.op("prelu", name, x=x, alpha=alpha)
    above = mil.op("relu", f"{name}_above", x=x)
    negative = mil.op("mul", f"{name}_negative", x=x, y=np.float16(-1.0))
    below = mil.op("relu", f"{name}_below", x=negative)
    slopes = [1, node.shape[1], *(1,) * (len(node.shape) - 2)]
    slope = mil.op("reshape", f"{name}_slope", x=alpha, shape=slopes)
    return mil.op("sub", name, x=above, y=mil.op("mul", f"{name}_sloped", x=below, y=slope))


def _select(mil: Mil, name: str, node: Tensor, *operands: Any) -> Any:
    """All three of one shape: the language's checks know no other."""
    spread = []
    for place, (operand, of) in enumerate(zip(operands, node.inputs, strict=True)):
        if of.shape == node.shape:
            spread.append(operand)
            continue
        shape = (1,) * (len(node.shape) - len(of.shape)) + of.shape
        raised = operand
        if shape != of.shape:
            raised = mil.op("reshape", f"{name}_raised_{place}", x=operand, shape=list(shape))
        reps = [a // b for a, b in zip(node.shape, shape, strict=True)]
        spread.append(mil.op("tile", f"{name}_spread_{place}", x=raised, reps=reps))
    condition, a, b = spread
    return mil.op("select", name, cond=condition, a=a, b=b)


def _linear(mil: Mil, name: str, node: Tensor, x: Any, weight: Any, bias: Any = None) -> Any:
    if node.inputs[1].weight is None:
        product = mil.op("matmul", name if bias is None else f"{name}_product", x=x, y=weight, transpose_y=True)
        return product if bias is None else mil.op("add", name, x=product, y=bias)
    return mil.op("linear", name, x=x, weight=weight, **({} if bias is None else {"bias": bias}))


def _attention(mil: Mil, name: str, node: Tensor, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """The language's op divides by the root of the features; another scale goes into the query."""
    attrs, features = node.attrs, node.inputs[0].shape[-1]
    factor = attrs["scale"] * np.sqrt(features)
    if abs(factor - 1.0) > 1e-3:
        q = mil.op("mul", f"{name}_query", x=q, y=np.float16(factor))
    if attrs["is_causal"]:
        raise AneforgeError(f"{name} (sdpa): is_causal has no form in Core ML. Give the mask as attn_mask.")
    if not attrs["subtract_max"]:
        raise AneforgeError(f"{name} (sdpa): SubtractMax false has no form in Core ML. Set SubtractMax.")
    if not attrs["heads_first"]:
        raise AneforgeError(f"{name} (sdpa): a sequence before the heads has no form in Core ML. Transpose first.")
    settings = {} if mask is None else {"attn_mask": mask}
    return mil.op("scaled_dot_product_attention", name, query=q, key=k, value=v, **settings)


def _pad(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    attrs = node.attrs
    widths = [side for pair in attrs["widths"] for side in pair]
    first = next((i for i, pair in enumerate(attrs["widths"]) if any(pair)), 0)
    fill = np.float16(attrs["value"])  # always: the default that other modes ignore has not the type of x
    return mil.op("pad", name, x=x, pad=widths[2 * first :], mode=attrs["mode"], constant_val=fill)


def _resize_bilinear(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    attrs = node.attrs
    sizes = {"target_size_height": attrs["height"], "target_size_width": attrs["width"]}
    mode = "STRICT_ALIGN_CORNERS" if attrs["align_corners"] else "UNALIGN_CORNERS"
    return mil.op("resize_bilinear", name, x=x, **sizes, sampling_mode=mode)


def _upsample(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    """Linear sampling takes real factors, the nearest neighbour whole ones."""
    scale = node.attrs["scale"]
    rows, columns = scale if isinstance(scale, tuple) else (scale, scale)
    settings = {"scale_factor_height": rows, "scale_factor_width": columns}
    if node.op == "upsample_bilinear":
        settings = {key: np.float32(factor) for key, factor in settings.items()}
        settings["align_corners"] = node.attrs["align_corners"]
    return mil.op(node.op, name, x=x, **settings)


def _crop(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    attrs = node.attrs
    return mil.op(
        "crop", name, x=x, crop_height=[attrs["top"], attrs["bottom"]], crop_width=[attrs["left"], attrs["right"]]
    )


def _crop_resize(mil: Mil, name: str, node: Tensor, x: Any, boxes: Any) -> Any:
    """All boxes are cut from the first image; the language would take one box from each."""
    settings = {key: _number(value) for key, value in node.attrs.items()}
    first = np.zeros(node.inputs[1].shape[0], np.int32)
    return mil.op("crop_resize", name, x=x, boxes=boxes, box_indices=first, **settings)


def _topk(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    attrs = node.attrs
    if attrs["lanes"] is not None:
        raise AneforgeError(f"{name} (topk): vectors have no top-k in Core ML. Use the host for it.")
    values, _ = mil.op("topk", name, x=x, k=attrs["k"], axis=-1, ascending=not attrs["largest"])
    return mil.op("identity", f"{name}_values", x=values)


def _einsum(mil: Mil, name: str, node: Tensor, a: Any, b: Any) -> Any:
    return mil.op("einsum", name, values=[a, b], equation=node.attrs["equation"].replace(" ", ""))


def codes(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    """A quantiser whose readers are all dequantisers: the language has a type for what is between them."""
    attrs = node.attrs
    step = {"scale": np.float16(attrs["scale"]), "zero_point": np.dtype(attrs["to"]).type(attrs["zero_point"])}
    return mil.op("quantize", name, input=x, output_dtype=attrs["to"], **step)


def _quantize(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    """Codes that other ops read are numbers to them."""
    return mil.op("cast", name, x=codes(mil, f"{name}_codes", node, x), dtype="fp16")


def _dequantize(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    """Of bytes by the language's own op; numbers of another origin are shifted and scaled."""
    before, scale, zero = node.inputs[0], np.float16(node.attrs["scale"]), node.attrs["zero_point"]
    if before.op == "quantize":
        kind = before.attrs["to"]
        stored = x if mil.is_bytes(x) else x.op.inputs["x"]  # behind it is the cast for others
        return mil.op("dequantize", name, input=stored, scale=scale, zero_point=np.dtype(kind).type(zero))
    shifted = mil.op("sub", f"{name}_shifted", x=x, y=np.float16(zero)) if zero else x
    return mil.op("mul", name, x=shifted, y=scale)


RULES: dict[str, Rule] = {
    **{name: _by_row for name, declared in definitions().items() if declared.mil},
    "crop": _crop,
    "crop_resize": _crop_resize,
    "dequantize": _dequantize,
    "einsum": _einsum,
    "group_norm": _group_norm,
    "l2_norm": _l2_norm,
    "linear": _linear,
    "pad": _pad,
    "pixel_unshuffle": lambda mil, name, node, x: mil.op(
        "pixel_unshuffle", name, x=x, downscale_factor=np.uint32(node.attrs["r"])
    ),
    "prelu": _prelu,
    "quantize": _quantize,
    "resize_bilinear": _resize_bilinear,
    "rms_norm": _rms_norm,
    "sdpa": _attention,
    "select": _select,
    "topk": _topk,
    "upsample_bilinear": _upsample,
    "upsample_nearest_neighbor": _upsample,
}
"""By the row of the op's declaration, or by a function where more must be computed."""

_AUTHORED = "a layer of the engine that only direct authoring reaches; Core ML has no op for it"
REFUSED: dict[str, str] = {
    name: declared.no_mil or _AUTHORED
    for name, declared in definitions().items()
    if name not in RULES and (declared.no_mil or declared.native_layer)
}
"""Why some ops have no rule; those that a rewrite replaces never get here."""


# What the writers of all formats refuse, and with which error.


class ExportError(AneforgeError, ValueError):
    """A graph that has no form in the other language: which node, and why."""


def refuse_host_ops(graph: Graph) -> None:
    """Ops of the host and integers have no place in a program of the engine."""
    for node in graph.nodes:
        if node.op == "host" or node.dtype == "int32":
            name = graph.names()[node.uid]
            raise ExportError(
                f"{name}: the op works on whole numbers or runs on the host. Export the engine's part: aneforge "
                "partition lists the "
                "regions, --region N (or af.partition(...).graph_of(N)) takes one."
            )

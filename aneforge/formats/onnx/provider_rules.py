"""Why ONNX Runtime's Core ML provider leaves a node to the CPU: the constraints behind its list of operators.

The operators of each form are data (``ort_coreml.json``); the functions below are what their builders ask further.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from aneforge.chips import store

NEURAL_NETWORK, ML_PROGRAM = "neuralnetwork", "mlprogram"
PROVIDERS = {"ort-coreml": NEURAL_NETWORK, "ort-coreml-mlprogram": ML_PROGRAM}
"""The forms by the names that users give."""
_OTHER = {NEURAL_NETWORK: "MLProgram", ML_PROGRAM: "NeuralNetwork"}
_MOST_AXES = 5
_MOST_EXTENT = 16384


class Input(NamedTuple):
    """One input of a node, without the weights of the file."""

    shape: tuple[int, ...]
    dtype: str
    """The element type of a constant; empty of what is computed."""
    computed: bool
    value: np.ndarray | None = None
    """A short constant, such as a shape or pads."""


class Node(NamedTuple):
    """One node of the file, as far as the provider looks at it."""

    number: int
    """Its place in the file."""
    kind: str
    domain: str
    opset: int
    attrs: Mapping[str, Any]
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    inputs: tuple[Input | None, ...]
    covers: tuple[int, ...] = ()
    """Numbers of nodes that the reader put in its place."""


@dataclass(frozen=True, eq=False)
class Asked:
    """One node as the provider sees it in one form."""

    node: Node
    form: str
    dtypes: Sequence[str]
    """Element types of the inputs; empty where a file does not say it."""
    maker: str = ""
    """The op that gives the first input."""
    decoded: frozenset[int] = frozenset()
    """Places of weights that a dequantiser decodes while the model runs; the reader of this package decoded them."""

    @property
    def is_program(self) -> bool:
        return self.form == ML_PROGRAM

    def input(self, place: int) -> Input | None:
        return self.node.inputs[place] if place < len(self.node.inputs) else None

    def has(self, place: int) -> bool:
        return self.input(place) is not None

    def is_stored(self, place: int) -> bool:
        """Whether an input is a constant of the file, or is left out."""
        given = self.input(place)
        return place not in self.decoded and (given is None or not given.computed)

    def shape(self, place: int = 0) -> tuple[int, ...]:
        given = self.input(place)
        return () if given is None else given.shape

    def rank(self, place: int = 0) -> int:
        return len(self.shape(place))

    def numbers(self, place: int) -> list[Any]:
        """The numbers of a short constant; none where it is left out or computed."""
        given = self.input(place)
        return [] if given is None or given.value is None else given.value.reshape(-1).tolist()

    def attr(self, name: str, default: Any = None) -> Any:
        return self.node.attrs.get(name, default)


Constraint = Callable[[Asked], str]
"""Why the provider leaves a node; empty where it takes it."""


def _first(*reasons: tuple[bool, str]) -> str:
    return next((reason for holds, reason in reasons if holds), "")


def _unless_stored(*places: int) -> Constraint:
    def check(asked: Asked) -> str:
        return "" if all(map(asked.is_stored, places)) else "its parameters must be constants"

    return check


def _pool(asked: Asked) -> str:
    return _first(
        (asked.rank() != 4, "only 2-D pools of four axes are taken"),
        (bool(asked.attr("storage_order", 0)), "storage_order must be 0"),
        (any(step != 1 for step in asked.attr("dilations", ())), "pools must not be dilated"),
        (len(asked.node.gives) > 1, "a pool gives one result there"),
        (not asked.is_program and bool(asked.attr("ceil_mode", 0)), "ceil_mode 1 needs MLProgram"),
    )


def _four_axes(asked: Asked) -> str:
    return "" if asked.rank() == 4 else "only four axes are taken"


def _reduction(asked: Asked) -> str:
    axes = asked.attr("axes") or asked.numbers(1)
    nothing = bool(asked.attr("noop_with_empty_axes", 0)) and not axes
    return _first(
        (not asked.is_stored(1), "its axes must be constants"),
        (nothing and not asked.is_program, "empty axes need MLProgram"),
    )


def _batch_norm(asked: Asked) -> str:
    return _four_axes(asked) or _first(
        (not all(map(asked.is_stored, (1, 2, 3, 4))), "its parameters must be constants"),
        (len(asked.node.gives) > 1, "only the form for inference is taken"),
    )


def _norm(asked: Asked) -> str:
    return _first(
        (not all(map(asked.is_stored, (1, 2))), "its scale and bias must be constants"),
        (asked.attr("stash_type", 1) != 1, "stash_type must be 1"),
        (len(asked.node.gives) > 1, "a norm gives one result there"),
        (len({dtype for dtype in asked.dtypes if dtype}) > 1, "its inputs must have one type"),
    )


def _cast(asked: Asked) -> str:
    if not asked.is_program:
        behind = asked.maker == "ArgMax" and asked.attr("to") == _INT32
        return "" if behind else "NeuralNetwork takes a Cast from int64 to int32 behind an ArgMax only"
    known = ("fp32", "fp16", "int32", "int64", "bool", "")
    taken = asked.dtypes[0] in known and asked.attr("to") in _CAST_TYPES
    return "" if taken else "MLProgram casts between int32, int64, float, float16 and bool only"


_INT32 = 6
_CAST_TYPES = (1, 6, 7, 9, 10)
"""Numbers of element types in ONNX: float, int32, int64, bool and float16."""


def _concat(asked: Asked) -> str:
    axis = int(asked.attr("axis", 0))
    channels = asked.rank() == 4 and axis % 4 == 1
    return _first(
        (len(asked.node.inputs) < 2, "a Concat of one input is left"),
        (not asked.is_program and not channels, "NeuralNetwork joins channels of four axes only"),
    )


def _conv(asked: Asked) -> str:
    kernel = asked.shape(1)
    stated = asked.attr("kernel_shape")
    return _first(
        (len(kernel) not in (3, 4), "only 1-D and 2-D convolutions are taken"),
        (max((*asked.shape(), *kernel), default=0) > _MOST_EXTENT, f"an axis exceeds {_MOST_EXTENT:,}"),
        (not asked.is_program and not asked.is_stored(1), "a computed kernel needs MLProgram"),
        (not asked.is_stored(2), "its bias must be a constant"),
        (stated is not None and tuple(stated) != kernel[2:], "kernel_shape differs from the weight's"),
    )


def _conv_transpose(asked: Asked) -> str:
    pads = asked.attr("pads", ())
    return _first(
        (not all(map(asked.is_stored, (1, 2))), "its weight and bias must be constants"),
        (max((*asked.shape(), *asked.shape(1)), default=0) > _MOST_EXTENT, f"an axis exceeds {_MOST_EXTENT:,}"),
        (str(asked.attr("auto_pad", "NOTSET")).startswith("SAME"), "SAME padding is not taken"),
        (len(set(pads)) > 1, "all pads must be equal"),
        (asked.attr("output_shape") is not None, "output_shape is not taken"),
        (any(asked.attr("output_padding", ())), "output_padding is not taken"),
    )


def _gather(asked: Asked) -> str:
    rank = asked.rank() + asked.rank(1) - 1
    return _first(
        (asked.dtypes[1] not in ("int32", "int64", ""), "indices must be int32 or int64"),
        (not asked.rank(1) and asked.rank() > _MOST_AXES - 1, "a scalar index takes data of up to four axes"),
        (rank > _MOST_AXES, f"the result has {rank} axes; the limit is {_MOST_AXES}"),
    )


def _gather_nd(asked: Asked) -> str:
    return _unless_stored(1)(asked) or _first((bool(asked.attr("batch_dims", 0)), "batch_dims must be 0"))


def _gemm(asked: Asked) -> str:
    outputs = asked.shape(1)[0 if asked.attr("transB", 0) else -1] if asked.rank(1) else 0
    added = asked.shape(2) if asked.has(2) else ()
    return _first(
        (not all(map(asked.is_stored, (1, 2))), "B and C must be constants"),
        (bool(asked.attr("transA", 0)), "transA must be 0"),
        (asked.attr("alpha", 1.0) != 1.0 or asked.attr("beta", 1.0) != 1.0, "alpha and beta must be 1"),
        (added not in ((), (1,), (outputs,), (1, outputs)), "C must have one number for each output"),
    )


def _matmul(asked: Asked) -> str:
    if asked.is_program:
        lines = (asked.rank(), asked.rank(1))
        return "a vector against more axes is left" if min(lines) == 1 < max(lines) else ""
    matrices = asked.rank() == 2 and asked.rank(1) == 2
    return "" if matrices and asked.is_stored(1) else "NeuralNetwork takes a matrix by a constant matrix only"


def _pad(asked: Asked) -> str:
    mode, pads = asked.attr("mode", "constant"), asked.numbers(1)
    half = len(pads) // 2
    outer = [pad for place, pad in enumerate(pads) if place % half < half - 2] if half else []
    return _first(
        (not asked.is_stored(1), "its pads must be constants"),
        (any(pad < 0 for pad in pads), "its pads must not be negative"),
        (mode not in ("constant", "reflect"), f"mode {mode} is not taken"),
        (not asked.is_program and mode != "constant", f"mode {mode} needs MLProgram"),
        (not asked.is_program and any(outer), "NeuralNetwork pads the last two axes only"),
        (not asked.is_program and not asked.has(2), "NeuralNetwork needs the value to pad with"),
    )


def _prelu(asked: Asked) -> str:
    slope = asked.shape(1)
    size = int(np.prod(slope, dtype=np.int64))
    return _first(
        (asked.rank() not in (3, 4), "only three or four axes are taken"),
        (not asked.is_stored(1), "its slope must be a constant"),
        (size != 1 and slope[1:] != (1, 1), "its slope must be one number, or one for each channel"),
        (size == 1 and asked.is_program, "a slope of one number needs NeuralNetwork"),
    )


def _reshape(asked: Asked) -> str:
    target = asked.numbers(1)
    return _first(
        (not asked.is_stored(1), "its new shape must be a constant"),
        (len(target) > _MOST_AXES, f"the result has {len(target)} axes; the limit is {_MOST_AXES}"),
        (bool(asked.attr("allowzero", 0)) and 0 in target, "allowzero with a 0 is not taken"),
    )


def _resize(asked: Asked) -> str:
    scales, sizes = asked.numbers(2), asked.numbers(3)
    shape, mode = asked.shape(), str(asked.attr("mode", "nearest"))
    transform = str(asked.attr("coordinate_transformation_mode", "half_pixel"))
    factors = [float(scale) for scale in scales] or [size / extent for size, extent in zip(sizes, shape, strict=False)]
    up = all(factor >= 1 and factor == int(factor) for factor in factors)
    is_linear = mode == "linear"
    at_corner = transform == "asymmetric" and asked.attr("nearest_mode", "round_prefer_floor") == "floor"
    program_linear = transform in ("half_pixel", "align_corners", "pytorch_half_pixel") or (
        transform == "asymmetric" and bool(sizes)
    )
    return _first(
        (not all(map(asked.is_stored, (1, 2, 3))) or not factors, "its scales or sizes must be constants"),
        (any(factor != 1 for factor in factors[:-2]), "only the last two axes are resized"),
        (bool(asked.attr("antialias", 0)) or bool(asked.attr("exclude_outside", 0)), "antialias is not taken"),
        (asked.attr("keep_aspect_ratio_policy", "stretch") != "stretch", "only the policy stretch is taken"),
        (mode not in ("nearest", "linear"), f"mode {mode} is not taken"),
        (not up and not asked.is_program, "NeuralNetwork enlarges by whole numbers only"),
        (bool(scales) and not up and not _divides(factors, shape), "it shrinks by a factor of the size only"),
        (not is_linear and not at_corner, "nearest needs asymmetric coordinates and floor"),
        (is_linear and asked.is_program and not program_linear, f"linear with {transform} coordinates is not taken"),
        (is_linear and not asked.is_program and transform != "asymmetric", f"linear with {transform} needs MLProgram"),
        (not asked.is_program and asked.rank() != 4, "only four axes are taken"),
    )


def _divides(factors: Sequence[float], shape: Sequence[int]) -> bool:
    """Whether scales below 1 leave whole extents."""
    return all(extent * factor == int(extent * factor) for factor, extent in zip(factors, shape, strict=False))


def _slice(asked: Asked) -> str:
    return _unless_stored(1, 2, 3, 4)(asked)


def _split(asked: Asked) -> str:
    sizes, axis, count = asked.numbers(1), int(asked.attr("axis", 0)), len(asked.node.gives)
    extent = asked.shape()[axis] if asked.shape() else 0
    return _first(
        (count < 2, "a Split into one part is left"),
        (not asked.is_stored(1), "its sizes must be constants"),
        (not sizes and not asked.attr("split") and bool(extent % count), "it must split evenly without sizes"),
    )


def _tile(asked: Asked) -> str:
    repeats = asked.numbers(1)
    return _first(
        (not asked.is_program and not asked.is_stored(1), "its repeats must be constants"),
        (any(repeat < 1 for repeat in repeats), "its repeats must be positive"),
    )


def _unsqueeze(asked: Asked) -> str:
    axes = asked.attr("axes") or asked.numbers(1)
    rank = asked.rank() + len(axes)
    return _first(
        (not asked.is_stored(1), "its axes must be constants"),
        (rank > _MOST_AXES, f"the result has {rank} axes; the limit is {_MOST_AXES}"),
    )


def _grid_sample(asked: Asked) -> str:
    mode = asked.attr("mode", "linear")
    folded = asked.attr("padding_mode", "zeros") == "reflection" and not asked.attr("align_corners", 0)
    return _first(
        (asked.rank() != 4, "only four axes are taken"),
        (mode not in ("linear", "bilinear"), f"mode {mode} is not taken"),
        (folded, "reflection needs align_corners"),
    )


def _depth_to_space(asked: Asked) -> str:
    mode = asked.attr("mode", "DCR")
    return "" if asked.is_program or mode == "DCR" else f"mode {mode} needs MLProgram"


def _where(asked: Asked) -> str:
    return _first(
        (asked.dtypes[0] not in ("bool", ""), "its condition must be bool"),
        (asked.dtypes[1] not in ("fp32", "fp16", ""), "both branches must be float or float16"),
    )


_CONSTRAINTS: Mapping[str, Constraint] = {
    "And": lambda asked: "" if set(asked.dtypes) <= {"bool", ""} else "both inputs must be bool",
    "ArgMax": lambda asked: _first((bool(asked.attr("select_last_index", 0)), "select_last_index must be 0")),
    "AveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _unless_stored(1, 2),
    "Concat": _concat,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DepthToSpace": _depth_to_space,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "GlobalAveragePool": _four_axes,
    "GlobalMaxPool": _four_axes,
    "GridSample": _grid_sample,
    "GroupNormalization": _norm,
    "InstanceNormalization": _norm,
    "LRN": lambda asked: "" if asked.rank() in (3, 4) else "only three or four axes are taken",
    "LayerNormalization": _norm,
    "MatMul": _matmul,
    "MaxPool": _pool,
    "PRelu": _prelu,
    "Pad": _pad,
    "Pow": lambda asked: _first((len({d for d in asked.dtypes if d}) > 1, "both inputs must have one type")),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), _reduction),
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _unless_stored(1),
    "Tile": _tile,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
_OWN_TYPES = ("And", "ArgMax", "Cast", "Gather", "GatherND", "Where")
"""Operators that say themselves which types they take."""


@cache
def operators() -> dict[tuple[str, str], dict[str, Any]]:
    return {(row.get("domain", ""), row["op"]): row for row in store.load("ort_coreml")["operators"]}


def reason_left(asked: Asked) -> str:
    """Why the provider leaves a node to the CPU; empty where it takes it."""
    node, form = asked.node, asked.form
    row = operators().get((node.domain, node.kind))
    if row is None:
        return "the provider has no form of it"
    if form not in row["forms"]:
        return f"the provider has it with ModelFormat={_OTHER[form]} only"
    if node.opset < row.get("min_opset", 0):
        return f"the provider takes it from opset {row['min_opset']} on; the file has {node.opset}"
    shapes = [given.shape for given in node.inputs if given is not None]
    rank = max(map(len, shapes), default=0)
    if rank > _MOST_AXES:
        return f"an input has {rank} axes; the limit is {_MOST_AXES} (OG01)"
    if any(0 in shape for shape in shapes):
        return "an input is empty (OG01)"
    own = "" if node.kind in _OWN_TYPES else _reason_of_type(asked)
    constraint = _CONSTRAINTS.get(node.kind)
    return own or (constraint(asked) if constraint is not None else "")


def _reason_of_type(asked: Asked) -> str:
    dtype = asked.dtypes[0] if asked.dtypes else ""
    if not asked.is_program and dtype == "fp16":
        return "NeuralNetwork takes no float16 node; use ModelFormat=MLProgram (OG03)"
    taken = ("fp32", "fp16", "int64", "") if asked.is_program else ("fp32", "")
    return "" if dtype in taken else f"the provider takes no {dtype} there (OG02)"

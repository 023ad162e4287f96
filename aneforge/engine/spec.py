"""Every op of the engine's language, declared once: operands, attributes, traits, type rule and invariants.

A signature is ``operands | attributes``. An operand with ``?`` may be left out, ``*xs`` is any number of them.
Attribute kinds: ``i`` whole number, ``f`` real number, ``s`` word, ``u`` flag that is there or not, ``iN`` a list
of N whole numbers, ``i*`` a list of any length, ``s*`` a list of words, ``p`` a list of pairs, ``d`` the parameters of
a native unit (:class:`~aneforge.engine.tensor_type.Params`). An attribute with ``?`` may be left out; ``?=`` gives the
value that it then has, and a flag that is left out is False. Names are the compiler's where a source gives them
(listing 22.2, layers.json ``anec_attribute_schema``); axes are positions in NDCHW. Floor and engine come from the
target data, not from here. ``docs/develop/adding-a-backend-op.md`` walks through one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from aneforge.chips.evidence import Fact
from aneforge.chips.ops import backend_op, backend_ops
from aneforge.engine.tensor_type import AnecError
from aneforge.engine.traits import Trait
from aneforge.engine.types import contraction, movement, pointwise
from aneforge.engine.types.checks import Invariant, TypeRule
from aneforge.errors import UnknownNameError, nearest
from aneforge.graph.spelling import Spelling, spelling


class Declaration(NamedTuple):
    """The declaration of one op in this file."""

    signature: str
    type_rule: TypeRule
    traits: frozenset[Trait]
    invariants: tuple[Invariant, ...] = ()
    unit: str = ""
    """The native unit that it is, as a row of :mod:`aneforge.graph.spelling`; empty where none stands for it."""


def _op(
    signature: str, rule: TypeRule, *traits: Trait, invariants: tuple[Invariant, ...] = (), unit: str = ""
) -> Declaration:
    return Declaration(signature, rule, frozenset(traits), invariants, unit)


_T = Trait
_PAIR, _SINGLE, _NEURON = "ElementWise a b | Type=*", "ElementWise x | Type=*", "Neuron x | Type=*"
_BINARY = _op("a b |", pointwise.arithmetic, _T.POINTWISE, _T.HOST, _T.IN_PLACE, unit=_PAIR)
_PICK = _op("a b |", pointwise.arithmetic, _T.POINTWISE, _T.HOST, _T.IN_PLACE, _T.EXACT, unit=_PAIR)
_COMPARISON = _op("a b |", pointwise.comparison, _T.POINTWISE, _T.COMPARISON, _T.EXACT, unit=_PAIR)
_SIGN = _op("x |", pointwise.comparison, _T.POINTWISE, _T.COMPARISON, _T.EXACT, unit=_SINGLE)
_ACTIVATION = (_T.POINTWISE, _T.IN_PLACE)  # ACTIVATION itself comes from the target data
_FUNCTION = _op("x |", pointwise.pointwise, *_ACTIVATION, unit=_NEURON)
_ROUNDING = _op("x |", pointwise.pointwise, *_ACTIVATION, _T.IDEMPOTENT, unit=_NEURON)
_SHIFTED = "x | epsilon:f?=0.0"


def _activation(signature: str, unit: str, *traits: Trait) -> Declaration:
    return _op(signature, pointwise.pointwise, *_ACTIVATION, *traits, unit=f"Neuron x | {unit}")


_KERNEL = (contraction.kernel_constants,)
_CONVOLUTION = (
    "x weight bias? | strides:i3 dilation_rates:i3 groups:i explicit_padding:i6 kernel_sizes:i3 padding_style:s? "
    "weights_layout:s? padding_mode:s?=Zero channel_wise:u? kernel_scale:s? kernel_zero_point:s? "
    "kernel_palettized_LUT:s?"
)
_CONVOLVES = (_T.CONTRACTION, _T.CONVOLUTION, _T.STORED_KERNEL, _T.HOST)
_KERNEL_UNIT = (
    "Conv x | :kind kernel_sizes>Kernel:window strides>Step dilation_rates>Dilation explicit_padding>Pad:sides "
    "padding_mode>PaddingMode"
)
_POOL = "x | ksize:i3 padding:i6 stride:i3"
_POOL_UNIT = "ksize>Kernel:window stride>Step padding>Pad:sides"
_MOVES = (_T.MOVEMENT, _T.EXACT)
_VIEWS = (_T.MOVEMENT, _T.EXACT, _T.VIEW)


def _reduction(kind: str, *traits: Trait) -> Declaration:
    unit = f"Reduction x | axes>Dimension:axes Type={kind} square_input>SquareInput?"
    return _op("x | axes:i* square_input:u?", pointwise.reduction, _T.REDUCTION, *traits, unit=unit)


def _rearrangement(rule: TypeRule) -> Declaration:
    return _op("x | factors:i3", rule, *_MOVES, unit="* x | factors>Factor:factors")


POINT_CONVOLUTION: dict[str, Any] = {
    "strides": (1, 1, 1),
    "dilation_rates": (1, 1, 1),
    "groups": 1,
    "explicit_padding": (0, 0, 0, 0, 0, 0),
    "kernel_sizes": (1, 1, 1),
    "weights_layout": "OIHW",
    "padding_style": "EXPLICIT",
}
"""The attributes of a convolution that sums over channels at each place."""

OPS: dict[str, Declaration] = {
    # Arithmetic of the planar engine.
    **dict.fromkeys(("add", "sub", "mult", "div", "power"), _BINARY),
    **dict.fromkeys(("max", "min"), _PICK),
    "scaled_elementwise": _op(
        "a b | mode:s scale:f",
        pointwise.scaled,
        _T.POINTWISE,
        _T.HOST,
        unit="ScaledElementWise a b | mode>Type scale>Scale",
    ),
    "abs": _op("x |", pointwise.pointwise, _T.POINTWISE, _T.HOST, _T.IN_PLACE, _T.EXACT, _T.IDEMPOTENT, unit=_SINGLE),
    "square": _op("x |", pointwise.pointwise, _T.POINTWISE, _T.HOST, _T.IN_PLACE, unit=_SINGLE),
    "sqr": _op("x |", pointwise.pointwise, _T.POINTWISE, _T.IN_PLACE, unit=_NEURON),
    **dict.fromkeys(("equal", "not_equal", "less_than", "less_than_equal"), _COMPARISON),
    **dict.fromkeys(("greater_than", "greater_than_equal"), _COMPARISON),
    **dict.fromkeys(("equal_zero", "not_equal_zero", "less_than_zero", "less_than_equal_zero"), _SIGN),
    **dict.fromkeys(("greater_than_zero", "greater_than_equal_zero"), _SIGN),
    # Activations.
    **dict.fromkeys(("cos", "degamma", "dirac", "erf", "sigmoid", "sin", "sqrt"), _FUNCTION),
    **dict.fromkeys(("ceil", "floor", "round_nearest", "sign", "trunc"), _ROUNDING),
    "high_precision_sigmoid": _activation("x |", "Type=SigmoidHighPrecision"),
    "relu": _activation("x |", "Type=ReLU", _T.EXACT, _T.IDEMPOTENT),
    "clamped_relu": _activation(
        "x | min_val:f max_val:f", "Type=ClampedReLU min_val>ReluMin=0.0 max_val>ReluMax", _T.EXACT
    ),
    "n_relu": _activation("x | max_val:f", "Type=ReLUN max_val>ReluMax", _T.EXACT),
    "leaky_relu": _activation("x slope? | negative_slope:f?=0.0", "Type=LeakyReLU negative_slope>ReluSlope"),
    "elu": _activation("x | alpha:f", "Type=ELU alpha>EluAlpha=1.0"),
    "tanh": _activation("x | alpha:f?=1.0 beta:f?=1.0", "Type=*"),
    "swish": _activation("x | hard:u?", ":hard"),
    "gelu": _activation("x | approximation:s?=exact", "Type=GELU"),
    "r_sqrt": _activation(_SHIFTED, "Type=Rsqrt epsilon>Epsilon?=0.0"),  # no key is published for an epsilon
    "invert": _activation(_SHIFTED, "Type=Inv epsilon>Epsilon?=0.0"),
    "log2": _activation(f"{_SHIFTED} base_e:u?", ":base epsilon>Epsilon?=0.0"),
    "exp2": _activation("x | base_e:u?", ":base"),
    # Scales and number formats.
    "gain_offset_control": _op(
        "x scale? offset? | gain:f?=1.0 bias:f?=0.0",
        pointwise.pointwise,
        *(_T.POINTWISE, _T.AFFINE, _T.IN_PLACE),
        unit="GOC x | gain>ScaleScalar bias>BiasScalar",
    ),
    "cast": _op("x | to:s", pointwise.cast, _T.POINTWISE, _T.EXACT),
    "quant": _op("x | scale:f zero_point:i to:s", pointwise.quant, _T.POINTWISE),
    "dequant": _op("x | scale:f zero_point:i", pointwise.dequant, _T.POINTWISE, _T.AFFINE),
    # Products.
    "convolution": _op(_CONVOLUTION, contraction.convolution, *_CONVOLVES, invariants=_KERNEL, unit=_KERNEL_UNIT),
    "deconvolution": _op(_CONVOLUTION, contraction.deconvolution, *_CONVOLVES, invariants=_KERNEL, unit=_KERNEL_UNIT),
    "linear": _op(
        "x weight bias? | kernel_scale:s? kernel_zero_point:s? kernel_lut:s?",
        contraction.linear,
        *(_T.CONTRACTION, _T.STORED_KERNEL, _T.HOST),
        invariants=_KERNEL,
        unit="Linear x",
    ),
    "matmul": _op(
        "a b bias? | transpose_lhs:u? transpose_rhs:u?",
        contraction.matmul,
        _T.CONTRACTION,
        _T.HOST,
        unit="MatrixMultiplication a b",
    ),
    "sdpa": _op(
        "q k v scale mask? | subtract_max:u?",
        contraction.attention,
        _T.NATIVE,
        unit="SDPA *xs | subtract_max>SubtractMax",
    ),
    # Pools, reductions and normalisations.
    "average_pool": _op(
        f"{_POOL} inc_pad:u?",
        pointwise.pool,
        _T.POOL,
        _T.HOST,
        unit=f"Pooling x | Type=Avg {_POOL_UNIT} inc_pad>AverageCountExcludePadding:not",
    ),
    "max_pool": _op(_POOL, pointwise.pool, _T.POOL, _T.HOST, _T.EXACT, unit=f"Pooling x | Type=Max {_POOL_UNIT}"),
    "l2norm_pool": _op(_POOL, pointwise.pool, _T.POOL, _T.HOST, unit=f"Pooling x | Type=L2 {_POOL_UNIT}"),
    "reduce_avg": _reduction("Avg"),
    "reduce_sum": _reduction("Sum"),
    "reduce_max": _reduction("Max", _T.EXACT),
    "reduce_min": _reduction("Min", _T.EXACT),
    "arg_min_max": _op(
        "x | axes:i* kernel_size:i2 stride_values:i2 pad_values:i4 mode:s",
        pointwise.extreme_places,
        _T.EXACT,
        unit="ArgMinMax x | mode>Mode kernel_size>Kernel:window stride_values>Step pad_values>Pad:sides",
    ),
    "global_arg_min_max": _op(
        "x | axis:i mode:s", pointwise.global_extreme_places, _T.EXACT, unit="* x | mode>Type axis>Dimension:axis"
    ),
    "softmax": _op(
        "x | axes:i*", pointwise.normalisation, _T.NORMALISATION, unit="Softmax x | axes>Dimension:one_or_more_axes"
    ),
    "layer_norm": _op(
        "x gamma? beta? | axes:i* epsilon:f groups:i?=1",
        pointwise.layer_norm,
        _T.NORMALISATION,
        unit="LayerNormalization x | axes>Dimension:axes groups>NumGroups",
    ),
    "instance_norm": _op(
        "x gamma? beta? | axes:i* epsilon:f",
        pointwise.normalisation,
        _T.NORMALISATION,
        unit="InstanceNormalization x | axes>Dimension:axes",
    ),
    "batch_norm": _op("x gamma beta mean variance | epsilon:f", pointwise.pointwise, _T.POINTWISE),
    # Movement.
    "reshape": _op("x | shape:i5", movement.reshape, *_VIEWS, unit="Reshape x | shape>Reshaped:extents"),
    "flatten": _op("x | flatten_mode:s?=NCHW", movement.flatten, *_VIEWS, unit="Flatten x"),
    "unflatten": _op("x | flatten_mode:s?=NCHW destination_size:i3", movement.unflatten, *_VIEWS, unit="Unflatten x"),
    "broadcast": _op("x | shape:i5", movement.broadcast, *_MOVES, unit="Broadcast x | :broadcast"),
    "transpose": _op(
        "x | transpose_list:p",
        movement.transpose,
        *_MOVES,
        unit="Transpose x | transpose_list>TransposeDimensions:moves",
    ),
    "concat": _op("*xs | axis:i interleave:u?", movement.concat, *_MOVES, unit="Concat *xs | axis>Dimension:axis"),
    "tile": _op("x | multiples:i5", movement.tile, *_MOVES, unit="Tile x | multiples>:counts"),
    "padding": _op(
        "x | padding_modes:s padding_sizes:p background_value:f",
        movement.padding,
        *_MOVES,
        unit="Padding x | padding_modes>PaddingMode padding_sizes>PaddingSizes",
    ),
    "input_view": _op(
        "x | dimension:i offset:i size:i step:i",
        movement.input_view,
        *_MOVES,
        unit="InputView x | dimension>Dimension:axis offset>Offset size>Size step>Step",
    ),
    "gather_nd": _op(
        "x indices? | axes:i* indices:i*?", movement.gather, *_MOVES, unit="Gather *xs | axes>GatherNDAxes:axes"
    ),
    **dict.fromkeys(("pixel_shuffle", "channel_to_space"), _rearrangement(movement.to_space)),
    **dict.fromkeys(("pixel_unshuffle", "space_to_channel"), _rearrangement(movement.from_space)),
    "space_to_batch": _rearrangement(movement.space_to_batch),
    "batch_to_space": _rearrangement(movement.batch_to_space),
    # Sampling on the texture engine.
    "resize": _op(
        "x | height:i width:i scale_factor_x:f? scale_factor_y:f? sampling_methods:s sampling_modes:s",
        pointwise.resize,
        _T.TEXTURE,
        unit="Resize x | height>Height width>Width",
    ),
    "crop_resize": _op(
        "x boxes | output_dims:i2 crop_dims:i2? box_coordinate_mode:s? coordinate_mode:s? sampling_method:s "
        "sampling_mode:s background_value:f?",
        pointwise.crop_resize,
        _T.TEXTURE,
        unit="CropResize x boxes",
    ),
    "resample": _op(
        "x grid | coordinate_mode:s sampling_method:s sampling_mode:s background_value:f",
        pointwise.resample,
        _T.TEXTURE,
        unit="Resample x grid | sampling_method>SamplingMethod",
    ),
    # Buffers that outlive a run.
    "state": _op("| name:s", movement.free, _T.INPUT, _T.RING),
    "ring_buffer_reader": _op("buffer | offset:i size:i", movement.ring_read, *_MOVES, _T.RING),
    "ring_buffer_writer": _op(
        "x buffer | offset:i", movement.ring_write, *_MOVES, _T.RING, unit="RingBufferWriter x buffer"
    ),
    "tensor_buffer_to_tensor": _op("buffer |", movement.same_type, *_MOVES),
    "tensor_to_tensor_buffer": _op("x |", movement.same_type, *_MOVES),
}

# What a program needs around the 94 ops: ports, stored constants, and the native layers that have no backend op.
# The names are those of the compiler's own layer kinds (enums.json opcode, unit_type).
STRUCTURAL: dict[str, Declaration] = {
    "live_in": _op("| name:s", movement.free, _T.PORT, _T.INPUT),
    "const_in": _op("| weight:s", movement.free, _T.PORT, invariants=(movement.stored_size,)),
    "live_out": _op("*xs | names:s*", movement.output, _T.PORT),
    "select": _op("cond a b |", pointwise.select, _T.POINTWISE, *_MOVES),
    "unit": _op("*xs | type:s params:d", movement.unit, _T.NATIVE),
}

# Attributes whose values are keys of the module's weight table: a constant itself, or how a kernel is stored (table
# 22.3).
_STORED = frozenset(("weight", "kernel_scale", "kernel_zero_point", "kernel_palettized_LUT", "kernel_lut"))

# What the text shows beside an op, apart from its attributes: what phases 0 to 2 and the packing of weights say of the
# op itself (``Op.labels``), and what is planned for its layer, for a port or a constant (the plan's printed form).
# Labels never change what an op means.
LABELS: dict[str, str] = {
    "bridge": "u",  # a native layer by direct authoring: a segment of its own
    "data_path": "s",  # how data moves: crop, dma, texture; floor-divide for a floor that ends such a division
    "storage": "s",  # the number format on that data path: q4 or fp16
    "large_kernel": "u",  # the large-kernel mode of the convolution
    "piece": "i2",  # this op is piece i of n of a split layer
    "passes": "i",  # how often the input passes, where kernel memory holds a part of the outputs at a time
    "sub_layers": "i",  # the layers that it would be if the dense cap were that of the whole weight (U28)
    "segment": "i",
    "task_group": "i",
    "engine": "s",
    "chained": "u",  # its result feeds the next layer inside L2
    "co_issue": "i",  # the layer on the other engine that runs beside it
    "allocation": "i",  # table 22.2
    "space": "s",  # l2, dram, or port where the caller owns the buffer
    "buffer": "s",  # dedicated or default (0x1f0)
    "address": "i",
    "buffer_offset": "i",  # bytes into the buffer that it is inside
    "channel_stride": "i",
    "row_stride": "i",
    "live": "i2",  # first and last place in the schedule at which the buffer is needed
    "inside": "i",  # the layer whose buffer holds this one
    "kernel_path": "s",  # per core or shared (listing 35.2)
    "folded": "s",  # the form of a kernel that the target does not stream, so that it is stored as fp16
    "kernel_bytes": "i",
    "weight_flow": "s",  # stream or fold
    "encoding": "s",  # how a kernel is stored, where not as fp16
}


@dataclass(frozen=True)
class AttributeSpec:
    """One attribute: its name, its kind, whether it is optional, and its default."""

    name: str
    kind: str
    optional: bool
    default: Any = None
    """None where there is no default: the op then means something else without the attribute."""


@dataclass(frozen=True)
class OpSpec:
    """One op of the language."""

    name: str
    operands: tuple[str, ...]
    attributes: dict[str, AttributeSpec]
    floor: Fact[int] | None
    engine: Fact[str] | None
    traits: frozenset[Trait]
    type_rule: TypeRule
    invariants: tuple[Invariant, ...] = ()
    stored: tuple[str, ...] = ()
    """Attributes that name stored constants."""
    unit: Spelling | None = None
    """The native unit that it is."""

    @property
    def structural(self) -> bool:
        return self.floor is None

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Attributes that must be there."""
        return tuple(name for name, attribute in self.attributes.items() if not attribute.optional)

    @cached_property
    def fewest(self) -> int:
        """How many operands must be there."""
        return sum(1 for name in self.operands if not name.endswith("?") and not name.startswith("*"))

    @cached_property
    def most(self) -> int | None:
        """How many operands may be there; None for any number."""
        return None if any(name.startswith("*") for name in self.operands) else len(self.operands)

    def attribute(self, attrs: Mapping[str, Any], name: str) -> Any:
        """The value of an attribute among those that an op states, or its declared default."""
        declared = self.attributes.get(name)
        if declared is None:
            raise AnecError(f"{self.name}: no attribute {name!r}; the op has {', '.join(self.attributes) or 'none'}")
        value = attrs.get(name, declared.default)
        if value is None:
            raise AnecError(f"{self.name}: attribute {name!r} is missing and has no default")
        return value


_READ: dict[str, Callable[[str], Any]] = {"i": int, "f": float, "s": str}


def _attribute(item: str) -> AttributeSpec:
    """``name:kind``, ``name:kind?`` or ``name:kind?=default``."""
    name, _, rest = item.partition(":")
    form, _, default = rest.partition("=")
    kind, optional = form.removesuffix("?"), form.endswith("?")
    if kind == "u":
        return AttributeSpec(name, kind, optional, False)
    return AttributeSpec(name, kind, optional, _READ[kind](default) if default else None)


def _parse(name: str, declared: Declaration) -> OpSpec:
    operands, _, attributes = (part.strip() for part in declared.signature.partition("|"))
    named = {attribute.name: attribute for attribute in map(_attribute, attributes.split())}
    known = None if name in STRUCTURAL else backend_op(f"anec.{name}")
    traits = declared.traits
    if known is not None and str(known.engine.value).startswith("activation slot"):
        traits |= {Trait.ACTIVATION}
    return OpSpec(
        f"anec.{name}",
        tuple(operands.split()),
        named,
        None if known is None else known.floor,
        None if known is None else known.engine,
        traits,
        declared.type_rule,
        declared.invariants,
        tuple(label for label in named if label in _STORED),
        spelling(declared.unit, name) if declared.unit else None,
    )


@cache
def _specs() -> dict[str, OpSpec]:
    names = [op.name.removeprefix("anec.") for op in backend_ops()]
    missing = [name for name in names if name not in OPS]
    if missing:
        raise AnecError(f"ops of the target data are not declared: {', '.join(missing)}; add them to OPS")
    table = {f"anec.{name}": _parse(name, OPS[name]) for name in names}
    return {**table, **{f"anec.{name}": _parse(name, declared) for name, declared in STRUCTURAL.items()}}


def spec_names() -> tuple[str, ...]:
    """The backend ops, without the structural ones."""
    return tuple(name for name, op_spec in _specs().items() if not op_spec.structural)


def structural_names() -> tuple[str, ...]:
    return tuple(f"anec.{name}" for name in STRUCTURAL)


def spec(name: str) -> OpSpec:
    """The declaration of one op."""
    op_spec = _specs().get(name)
    if op_spec is None:
        near = ", ".join(nearest(name, _specs())) or "anec.convolution"
        raise UnknownNameError(f"{name!r}: not a backend op; nearest: {near}")
    return op_spec


@cache
def kinds_with(*traits: Trait) -> frozenset[str]:
    """The kinds of ops that have all of these traits, without the dialect: ``max_pool``."""
    wanted = frozenset(traits)
    if Trait.ACTIVATION in wanted:  # the only one that needs the target data
        return frozenset(name.removeprefix("anec.") for name, op_spec in _specs().items() if wanted <= op_spec.traits)
    return frozenset(
        kind for table in (OPS, STRUCTURAL) for kind, declared in table.items() if wanted <= declared.traits
    )

"""What each backend op takes: operands and attributes. Floor and engine come from the target data, not from here.

Attribute kinds: ``i`` whole number, ``f`` real number, ``s`` word, ``u`` flag that is there or not, ``iN`` a list
of N whole numbers, ``i*`` a list of any length, ``p`` a list of pairs, ``fs`` real number or one word. A name with
``?`` may be left out. Names are the compiler's where a source gives them (listing 22.2, layers.json
``anec_attribute_schema``); axes are positions in NDCHW.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

from aneforge.errors import UnknownNameError, nearest
from aneforge.targets.evidence import Fact
from aneforge.targets.ops import backend_op, backend_ops

__all__ = ["AXES", "LABELS", "AttributeSpec", "OpSpec", "spec", "spec_names", "structural_names"]

AXES = "NDCHW"

# Declared by signature: "operands | attributes". Ops not named here take one operand and nothing else.
_BINARY = "a b |"
_CONV = (
    "x weight bias? | strides:i3 dilation_rates:i3 groups:i explicit_padding:i6 kernel_sizes:i3 padding_style:s? "
    "weights_layout:s? padding_mode:s? channel_wise:u? kernel_scale:s? kernel_zero_point:s? kernel_palettized_LUT:s?"
)
_POOL = "x | ksize:i3 padding:i6 stride:i3"
_FACTORS = "x | factors:i3"
_REDUCE = "x | axes:i*"

SIGNATURES: dict[str, str] = {
    **dict.fromkeys(
        (
            "add",
            "sub",
            "mult",
            "div",
            "max",
            "min",
            "power",
            "equal",
            "not_equal",
            "less_than",
            "less_than_equal",
            "greater_than",
            "greater_than_equal",
        ),
        _BINARY,
    ),
    "scaled_elementwise": "a b | mode:s scale:f",
    "convolution": _CONV,
    "deconvolution": _CONV,
    "linear": "x weight bias? | kernel_scale:s? kernel_zero_point:s? kernel_lut:s?",
    "matmul": "a b bias? | transpose_lhs:u? transpose_rhs:u?",
    "sdpa": "q k v scale mask? | subtract_max:u?",
    "average_pool": f"{_POOL} inc_pad:u?",
    "max_pool": _POOL,
    "l2norm_pool": _POOL,
    "arg_min_max": "x | axes:i* kernel_size:i2 stride_values:i2 pad_values:i4 mode:s",
    "global_arg_min_max": "x | axis:i mode:s",
    **dict.fromkeys(("reduce_avg", "reduce_max", "reduce_min", "reduce_sum"), f"{_REDUCE} square_input:u?"),
    "softmax": "x | axes:i*",
    "layer_norm": "x gamma? beta? | axes:i* epsilon:f groups:i?",
    "instance_norm": "x gamma? beta? | axes:i* epsilon:f",
    "batch_norm": "x gamma beta mean variance | epsilon:f",
    "gain_offset_control": "x scale? offset? | gain:f? bias:f?",
    "leaky_relu": "x slope? | negative_slope:f?",
    "clamped_relu": "x | min_val:f max_val:f",
    "n_relu": "x | max_val:f",
    "elu": "x | alpha:f",
    "tanh": "x | alpha:f? beta:f?",
    "swish": "x | hard:u?",
    "gelu": "x | approximation:s?",
    "r_sqrt": "x | epsilon:f?",
    "invert": "x | epsilon:f?",
    "log2": "x | epsilon:f? base_e:u?",
    "exp2": "x | base_e:u?",
    "concat": "*xs | axis:i interleave:u?",
    "reshape": "x | shape:i5",
    "flatten": "x | flatten_mode:s",
    "unflatten": "x | flatten_mode:s destination_size:i3",
    "broadcast": "x | shape:i5",
    "transpose": "x | transpose_list:p",
    "tile": "x | multiples:i5",
    "padding": "x | padding_modes:s padding_sizes:p background_value:f",
    "input_view": "x | dimension:i offset:i size:i step:i",
    "gather_nd": "x indices? | axes:i* indices:i*?",
    "cast": "x | to:s",
    "quant": "x | scale:f zero_point:i to:s",
    "dequant": "x | scale:f zero_point:i",
    "resize": "x | height:i width:i scale_factor_x:f? scale_factor_y:f? sampling_methods:s sampling_modes:s",
    "crop_resize": "x boxes | output_dims:i2 crop_dims:i2 sampling_method:s sampling_mode:s",
    "resample": "x grid | coordinate_mode:s sampling_method:s sampling_mode:s background_value:f",
    **dict.fromkeys(
        (
            "pixel_shuffle",
            "pixel_unshuffle",
            "space_to_channel",
            "channel_to_space",
            "space_to_batch",
            "batch_to_space",
        ),
        _FACTORS,
    ),
    "state": "| name:s",
    "ring_buffer_reader": "buffer | offset:i size:i",
    "ring_buffer_writer": "x buffer | offset:i",
    "tensor_buffer_to_tensor": "buffer |",
    "tensor_to_tensor_buffer": "x |",
}

# What a program needs around the 94 ops: ports, stored constants, and the native layers that have no backend op.
# The names are those of the compiler's own layer kinds (enums.json opcode, unit_type).
STRUCTURAL: dict[str, str] = {
    "live_in": "| name:s",
    "const_in": "| weight:s",
    "live_out": "*xs | names:s*",
    "select": "cond a b |",
    "unit": "*xs | type:s params:s",
}

# Words that are keys of the module's weight table: a constant itself, or how a kernel is stored (table 22.3).
_STORED = frozenset(("weight", "kernel_scale", "kernel_zero_point", "kernel_palettized_LUT", "kernel_lut"))

# What phases 2 to 4 write beside an op, on the first op of its layer (or on a port or constant). Labels never change
# what an op means.
LABELS: dict[str, str] = {
    "bridge": "u",  # a native layer by direct authoring: a segment of its own
    "route": "s",  # how a movement is done: crop, dma, texture
    "storage": "s",  # the number format on that route: q4 or fp16
    "large_kernel": "u",  # the large-kernel mode of the convolution
    "piece": "i2",  # this op is piece i of n of a split layer
    "passes": "i",  # how often the input passes, where kernel memory holds a part of the outputs at a time
    "segment": "i",
    "partition": "i",
    "engine": "s",
    "chained": "u",  # its result feeds the next layer inside L2
    "co_issue": "i",  # the layer on the other engine that runs beside it
    "allocation": "i",  # table 22.2
    "space": "s",  # l2, dram, or port where the caller owns the buffer
    "buffer": "s",  # dedicated or default (0x1f0)
    "address": "i",
    "buffer_offset": "i",  # bytes into the buffer that it is inside
    "row_stride": "i",
    "live": "i2",  # first and last place in the schedule at which the buffer is needed
    "inside": "i",  # the layer whose buffer holds this one
    "kernel_path": "s",  # per core or shared (listing 35.2)
    "kernel_bytes": "i",
    "weight_flow": "s",  # stream or fold
    "encoding": "s",  # how a kernel is stored, where not as fp16
}


@dataclass(frozen=True)
class AttributeSpec:
    """One attribute: its name, its kind, and whether it may be left out."""

    name: str
    kind: str
    optional: bool


@dataclass(frozen=True)
class OpSpec:
    """One op of the language."""

    name: str
    operands: tuple[str, ...]
    attributes: dict[str, AttributeSpec]
    floor: Fact[int] | None
    engine: Fact[str] | None
    stored: tuple[str, ...] = ()
    """Attributes that name stored constants."""

    @property
    def structural(self) -> bool:
        return self.floor is None

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Attributes that must be there."""
        return tuple(name for name, each in self.attributes.items() if not each.optional)

    @cached_property
    def fewest(self) -> int:
        """How many operands must be there."""
        return sum(1 for name in self.operands if not name.endswith("?") and not name.startswith("*"))

    @cached_property
    def most(self) -> int | None:
        """How many operands may be there; None for any number."""
        return None if any(name.startswith("*") for name in self.operands) else len(self.operands)


def _parse(name: str, signature: str) -> OpSpec:
    operands, _, attributes = (part.strip() for part in signature.partition("|"))
    named = {}
    for item in attributes.split():
        label, _, kind = item.partition(":")
        named[label] = AttributeSpec(label, kind.rstrip("?"), kind.endswith("?"))
    structural = name in STRUCTURAL
    known = None if structural else backend_op(f"anec.{name}")
    return OpSpec(
        f"anec.{name}",
        tuple(operands.split()),
        named,
        None if known is None else known.floor,
        None if known is None else known.engine,
        tuple(label for label in named if label in _STORED),
    )


@cache
def _specs() -> dict[str, OpSpec]:
    names = [op.name.removeprefix("anec.") for op in backend_ops()]
    table = {f"anec.{name}": _parse(name, SIGNATURES.get(name, "x |")) for name in names}
    return {**table, **{f"anec.{name}": _parse(name, text) for name, text in STRUCTURAL.items()}}


def spec_names() -> tuple[str, ...]:
    """The backend ops, without the structural ones."""
    return tuple(name for name, each in _specs().items() if not each.structural)


def structural_names() -> tuple[str, ...]:
    return tuple(f"anec.{name}" for name in STRUCTURAL)


def spec(name: str) -> OpSpec:
    """The declaration of one op."""
    found = _specs().get(name)
    if found is None:
        near = ", ".join(nearest(name, _specs())) or "anec.convolution"
        raise UnknownNameError(f"no backend op {name!r}; nearest: {near}")
    return found

"""Kernels: those beyond the small mode, and those that kernel memory or a program cannot hold whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from aneforge.chips.assumed import constant
from aneforge.chips.streams import Flow, LayerConditions, WeightForm, tiles_overlap, weight_flow
from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.scales import stored_weight
from aneforge.compiler.legalise.relabel import Relayer, Span, rewritten, spans, typed, with_extents
from aneforge.compiler.lower.builder import reject_string
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused, RefusedOps
from aneforge.compiler.schedule.layers import LayerGraph
from aneforge.compiler.storage import form_of
from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait
from aneforge.graph.weights import Weight, moved_weight

# Split one op with a stored kernel into several, each with a share of the output channels.


_CHANNELS, _WIDTH = 2, 4


@dataclass(frozen=True)
class Piece:
    """A run of output channels: whole groups, or a part of one."""

    start: int
    size: int
    groups: int


def output_axis(op: Op) -> int:
    """Where the outputs of a kernel lie: a linear layer contracts the width, everything else the channels."""
    return _WIDTH if op.kind == "linear" else _CHANNELS


def kernel_of(op: Op) -> Op | None:
    """The stored kernel of an op."""
    if not op.is_a(Trait.CONTRACTION) or len(op.operands) < 2:
        return None
    return op.operands[1] if op.operands[1].kind == "const_in" else None


def stored_names(op: Op) -> list[str]:
    """Attributes that say how the kernel is stored, each the name of a constant."""
    return [name for name in op.spec.stored if name in op.attrs]


def pieces_of(outputs: int, groups: int, rows: int) -> list[Piece]:
    """The fewest pieces of at most ``rows`` outputs: whole groups where one fits, else parts of each group."""
    group_outputs = outputs // groups
    if rows >= group_outputs:
        count = -(-groups // (rows // group_outputs))
        return [Piece(start * group_outputs, size * group_outputs, size) for start, size in spans(groups, count)]
    parts = spans(group_outputs, -(-group_outputs // rows))
    return [Piece(group * group_outputs + start, size, 1) for group in range(groups) for start, size in parts]


def split(walk: Relayer, op: Op, pieces: Sequence[Piece], numbered: bool = False) -> None:
    """Put pieces in place of an op, each with the pointwise part of its epilogue, and join what they give."""
    kept = walk.recut(op)
    axis = output_axis(op)
    results: list[Op] = []
    views: dict[Span, Op] = {}
    for number, piece in enumerate(pieces):
        part = _piece(walk, op, piece, views)
        part.labels = {**op.labels, "piece": (number, len(pieces))} if numbered else op.labels
        cut = {axis: (piece.start, piece.size)}
        results.append(walk.again(kept, part, lambda constant, cut=cut: walk.part(constant, cut)))
    joined = walk.joined(results, axis, op.sources)
    walk.settle(op, kept, joined, results, lambda parts: walk.ghost_join(parts, axis))


def _piece(walk: Relayer, op: Op, piece: Piece, views: dict[Span, Op]) -> Op:
    axis, outputs = output_axis(op), (piece.start, piece.size)
    attrs = dict(op.attrs)
    x, weight = op.operands[:2]
    if op.kind == "linear":
        cuts = {_CHANNELS: outputs}
    else:
        x, cuts = _inputs(walk, op, piece, views)
        attrs["groups"] = piece.groups
        if piece.groups == 1:
            attrs.pop("channel_wise", None)
    for name in stored_names(op):
        attrs[name] = _stored_share(walk, op, name, cuts)
    operands = [x, walk.part(weight, cuts)]
    operands += [walk.part(bias, {axis: outputs}, op.sources) for bias in op.operands[2:]]
    return walk.layer(op.kind, operands, with_extents(typed(op), {axis: piece.size}), attrs, op.sources)


def _inputs(walk: Relayer, op: Op, piece: Piece, views: dict[Span, Op]) -> tuple[Op, dict[int, Span]]:
    """The input channels of a piece's groups, and its share of the kernel."""
    x, groups = op.operands[0], op.attrs["groups"]
    inputs, group_outputs = x.shape[_CHANNELS] // groups, op.shape[_CHANNELS] // groups
    first = piece.start // group_outputs
    channels = first * inputs, piece.groups * inputs
    if channels not in views:
        views[channels] = walk.view(x, _CHANNELS, *channels, op.sources)
    if op.kind == "convolution":
        return views[channels], {0: (piece.start, piece.size)}
    # A deconvolution's kernel is [inputs, outputs per group, ...].
    return views[channels], {0: channels, _CHANNELS: (piece.start - first * group_outputs, piece.size // piece.groups)}


def _stored_share(walk: Relayer, op: Op, name: str, cuts: dict[int, Span]) -> str:
    """The key of a piece's share of a kernel's scale or zero point; one number or a table serves every piece."""
    key = op.attrs[name]
    weight = walk.module.weights.get(key)
    if weight is None:
        raise AnecError(f"weight {key!r} is not in the module, so it cannot be cut; use code that carries its weights")
    if weight.size == 1 or name in ("kernel_palettized_LUT", "kernel_lut"):
        return key
    share = _vector_share(weight, next(iter(cuts.values()))) if len(weight.shape) == 1 else _kernel_share(weight, cuts)
    walk.module.weights[share.key] = share
    return share.key


def _vector_share(weight: Weight, rows: Span) -> Weight:
    start, size = rows
    return moved_weight(f"entries {start} to {start + size}", weight, (size,), lambda a: a[start : start + size])


def _kernel_share(weight: Weight, cuts: dict[int, Span]) -> Weight:
    """A share of a constant of rank 4, laid out like the kernel without its depth: axis 2 of NDCHW is its axis 1."""
    spans_by_axis = {0 if axis == 0 else 1: span for axis, span in cuts.items()}
    spans_by_axis = {axis: span for axis, span in spans_by_axis.items() if weight.shape[axis] > 1}
    index = tuple(
        slice(spans_by_axis[i][0], sum(spans_by_axis[i])) if i in spans_by_axis else slice(None) for i in range(4)
    )
    shape = tuple(spans_by_axis[i][1] if i in spans_by_axis else extent for i, extent in enumerate(weight.shape))
    return moved_weight(f"kernel share {sorted(spans_by_axis.items())}", weight, shape, lambda a: a[index])


_REWRITTEN = range(9, 16)  # fusion.json conv_kernel_rewrite: widths 9 to 15


@pass_(
    "large-kernels",
    2,
    reads=["max_f16_conv_kernel_dim_x", "limit:conv_kernel_h", "large_kernel_rewrite"],
    requires=["layers", "native strides", "native groups"],
    ensures=["kernel modes"],
    only=sorted(kinds_with(Trait.CONVOLUTION)),
)
def large_kernels(module: Module, chip: Facts) -> int:
    """GetMaxSmallKernelWidth: a kernel beyond HAL 0x38 takes the large mode, or stride two with twice the outputs.

    The rewrite is that of fusion.json ``conv_kernel_rewrite``, on the targets that were seen to use it (U26): two
    copies of the weights, one shifted by a column, give the even and the odd columns.
    """
    widest, tallest = chip["max_f16_conv_kernel_dim_x"], min(chip["limit:conv_kernel_h"])

    def large(op: Op) -> bool:
        if not op.is_a(Trait.CONVOLUTION):
            return False
        _, height, width = op.attrs["kernel_sizes"]
        return (height > tallest or width > widest) and _stored_fp16(op)

    def rewrite(walk: Relayer, op: Op) -> None:
        tall = op.attrs["kernel_sizes"][1] > tallest
        convolution = op
        if chip["large_kernel_rewrite"] and _rewritable(op) and stored_weight(module, op.operands[1]) is not None:
            walk.record(op, "wide-kernel-even-odd")
            convolution = _to_stride_two(walk, op)
        else:
            walk.keep(op)
            walk.changes += 1
        if tall or convolution is op:
            convolution.mark(large_kernel=True)

    return rewritten(module, large, rewrite)


def _stored_fp16(op: Op) -> bool:
    kernel = op.operands[1]
    return not stored_names(op) and kernel.kind == "const_in" and typed(kernel).dtype == "f16"


def _rewritable(op: Op) -> bool:
    sizes = op.attrs["kernel_sizes"]
    unit = op.attrs["strides"][2] == op.attrs["dilation_rates"][2] == 1
    return op.kind == "convolution" and sizes[2] in _REWRITTEN and sizes[0] == 1 and unit


def _to_stride_two(walk: Relayer, op: Op) -> Op:
    attrs = dict(op.attrs)
    depth, height, width = attrs["kernel_sizes"]
    n, d, c, h, w = op.shape
    wide, half = width + 1 + (width + 1) % 2, -(-w // 2)
    left = attrs["explicit_padding"][4]
    right = 2 * (half - 1) + wide - op.operands[0].shape[4] - left
    attrs["kernel_sizes"] = (depth, height, wide)
    attrs["strides"] = (*attrs["strides"][:2], 2)
    attrs["explicit_padding"] = (*attrs["explicit_padding"][:4], left, right)
    attrs.pop("channel_wise", None)
    # A group's outputs lie together, so with groups the two copies of a channel do; else those of all channels.
    together = attrs["groups"] > 1
    x, weight, *bias = op.operands
    operands = [x, _two_kernels(walk, weight, wide, together), *(_twice(walk, vector, together) for vector in bias)]
    kept = walk.recut(op)
    type_ = TensorType((n, d, 2 * c, h, half), typed(op).dtype)
    wider = walk.layer(op.kind, operands, type_, attrs, op.sources)
    wider.labels = op.labels
    last = walk.again(kept, wider, lambda constant: _twice(walk, constant, together))
    rearrange = "pixel_shuffle" if together else "channel_to_space"
    factors = {"factors": (1, 1, 2)}
    value = walk.layer(rearrange, [last], with_extents(typed(last), {2: c, 4: 2 * half}), factors, op.sources)

    def spread(parts: list[Op]) -> Op:
        type_ = with_extents(typed(parts[0]), {2: c, 4: 2 * half})
        return walk.ghost_view(walk.emit(f"anec.{rearrange}", parts, type_, factors), 4, 0, w)

    walk.settle(op, kept, walk.view(value, 4, 0, w, op.sources), [last], spread)
    return wider


def _two_kernels(walk: Relayer, kernel: Op, wide: int, together: bool) -> Op:
    outputs, _, inputs, height, width = kernel.shape
    shape = (2 * outputs, inputs, height, wide)
    source = (outputs, inputs, height, width)
    recipe = f"two copies a column apart, {wide} wide, {'by channel' if together else 'one after the other'}"
    weight = _require_weight(walk, kernel)
    two_kernels = moved_weight(recipe, weight, shape, partial(_shifted, source=source, shape=shape, together=together))
    return walk.stored(two_kernels, TensorType((2 * outputs, 1, inputs, height, wide)), kernel.sources)


def _shifted(kernel: np.ndarray, source: tuple[int, ...], shape: tuple[int, ...], together: bool) -> np.ndarray:
    outputs, inputs, height, width = source
    copies = np.zeros((2, outputs, inputs, height, shape[3]), kernel.dtype)
    for shift in (0, 1):
        copies[shift, ..., shift : shift + width] = kernel.reshape(source)
    return (copies.swapaxes(0, 1) if together else copies).reshape(shape)


def _twice(walk: Relayer, constant: Op, together: bool) -> Op:
    """A constant per channel for twice the channels; a single number serves all of them."""
    channels = constant.shape[2]
    if channels == 1:
        return walk.part(constant, {})
    weight = _require_weight(walk, constant)
    recipe = "each entry twice" if together else "all entries twice"
    repeat = partial(np.repeat, repeats=2) if together else partial(np.tile, reps=2)
    doubled = moved_weight(recipe, weight, (2 * channels,), lambda vector: repeat(vector.reshape(-1)))
    return walk.stored(doubled, with_extents(typed(constant), {2: 2 * channels}), constant.sources)


def _require_weight(walk: Relayer, constant: Op) -> Weight:
    weight = stored_weight(walk.module, constant)
    assert weight is not None
    return weight


# How much kernel memory a weight needs, and which cap applies to it (listing 24.3). Phase 4 uses the same rules.


KERNELS = kinds_with(Trait.STORED_KERNEL)
"""Ops whose stored weight lies in kernel memory as a whole; the engine tiles the right-hand side of a matmul."""

CONTRACTIONS = kinds_with(Trait.CONTRACTION)
"""Ops that may have a stored kernel or a stored right-hand side."""

TABLES = ("kernel_palettized_LUT", "kernel_lut")
"""Attributes that name the table of a palette."""

_CODES = ("si8", "ui8")
_READABLE = WeightForm("fp16")
_MOVES = kinds_with(Trait.MOVEMENT)


def reads_codes(op: Op) -> bool:
    """Whether a product reads decoded 8-bit codes, as they are or in another order."""
    x = op.operands[0]
    while x.kind in _MOVES and len(x.operands) == 1:
        x = x.operands[0]
    read = x.operands[0].type if x.kind == "dequant" else None
    return read is not None and read.dtype in _CODES


def layer_conditions(op: Op, working_set: int) -> LayerConditions:
    """What of an op decides whether its weight streams; fp16 is a format like the others (U28)."""
    steps, dilations = op.attrs.get("strides", ()), op.attrs.get("dilation_rates", ())
    overlap = False
    if "kernel_sizes" in op.attrs:
        larger = max([side.type.bytes for side in (op.operands[0], op) if side.type is not None])
        overlap = tiles_overlap(op.attrs["kernel_sizes"][1], op.attrs["strides"][1], larger, working_set)
    return LayerConditions(
        unit_stride=steps.count(1) == len(steps),
        no_dilation=dilations.count(1) == len(dilations),
        tiles_overlap=overlap,
        immutable=len(op.operands) > 1 and op.operands[1].kind == "const_in",
        meets_codes=reads_codes(op),
    )


def kernel_form(module: Module, op: Op) -> WeightForm:
    """The form that an op's kernel is stored in: by the attributes of the op, or as the model brought it."""
    kernel = op.operands[1]
    if kernel.kind != "const_in" or kernel.type is None:
        return WeightForm("fp16")
    if kernel.type.dtype != "f16":
        looks_up = any(name in op.attrs for name in TABLES)
        return WeightForm(
            "palette" if looks_up else "affine",
            int(kernel.type.dtype[2:]),
            looks_up=looks_up,
            is_scaled=looks_up and "kernel_scale" in op.attrs,
            has_zero_points="kernel_zero_point" in op.attrs,
        )
    weight = module.weights.get(kernel.attrs["weight"])
    form = form_of(None if weight is None else weight.encoded)
    if form.kind == "palette" or (form.kind == "affine" and form.bits in (4, 8)):
        # Lowering writes these as attributes where it can; vectors and several tables are stored beside the op.
        return form._replace(is_readable=form.vector_size > 1 or form.tables > 1)
    return form


def kernel_flow(module: Module, op: Op, chip: Facts) -> Flow:
    """Whether an op's stored kernel streams in its form."""
    return weight_flow(chip, kernel_form(module, op), layer_conditions(op, chip["max_operand_bytes"]))


def layer_flow(op: Op, chip: Facts) -> Flow:
    """The flow of a kernel whose form the chip reads: behind ``expand-encodings`` only the layer matters."""
    return weight_flow(chip, _READABLE, layer_conditions(op, chip["max_operand_bytes"]))


def kernel_demand(module: Module, op: Op) -> int:
    """The bytes of an op's whole stored weight in the form that it has; 0 where none is stored."""
    if op.kind not in KERNELS or op.operands[1].kind != "const_in":
        return 0
    return constant_size(module, op.operands[1])


def constant_size(module: Module, constant: Op) -> int:
    """The bytes of a stored constant in the form that the module has it in; codes without their table and scales."""
    assert constant.type is not None
    weight = module.weights.get(constant.attrs["weight"])
    if constant.type.dtype != "f16" or weight is None or weight.encoded is None:
        return constant.type.bytes
    return weight.encoded.stored_bytes


def exceeds_kernel_memory(module: Module, op: Op, chip: Facts) -> bool:
    """Whether a weight is too large for one layer: any above the streamed cap, streamed or not (chapter 24)."""
    return kernel_demand(module, op) > chip["kmem_cap_streamed"]


def kernel_passes(module: Module, op: Op, chip: Facts) -> int:
    """How often the input passes the engine: once where the weight streams, fits or is built once for all cores, else
    once for every part of the output channels that kernel memory holds.

    Each lane builds the coefficients of its own share of the output channels, and that share is what the dense cap
    is compared with (chapter 35, U28): 64 KB a lane, not 64 KB a layer.
    """
    return _parts(module, op, chip, -(-op.shape[output_axis(op)] // chip["kernel_lanes"]))


def sub_layers(module: Module, op: Op, chip: Facts) -> int:
    """The layers that a weight would become if the dense cap were that of the whole layer, as chapter 24 says of those
    above 64 KB that do not stream; the listing shows both readings (U28)."""
    return _parts(module, op, chip, op.shape[output_axis(op)])


def _parts(module: Module, op: Op, chip: Facts, outputs: int) -> int:
    """How many parts of some output channels the dense cap makes; one where the weight is sized against the other."""
    demand, cap = kernel_demand(module, op), chip["kmem_cap_dense"]
    if demand <= cap or layer_flow(op, chip).cap != cap:
        return 1
    return -(-outputs // outputs_at_once(op, demand, cap))


def outputs_at_once(op: Op, demand: int, cap: int) -> int:
    """How many output channels of a weight of ``demand`` bytes a stretch of kernel memory holds; a single one that
    exceeds it cannot be cut."""
    single = demand // op.shape[output_axis(op)]
    if single > cap:
        reason = f"the kernel of one output channel takes {single} bytes; kernel memory holds {cap}"
        raise Refused(op, "kernel-memory", reason, reject_string("MatrixMult", "can not fit"))
    return max(1, cap // max(1, single))


def stored_size(module: Module, op: Op) -> int:
    """The bytes of one stored constant in the form it is packed in; its op's table and scales are counted apart."""
    assert op.type is not None
    if op.type.dtype != "f16" or op.labels.get("encoding", "fp16") == "fp16":
        return op.type.bytes
    encoded = module.weights[op.attrs["weight"]].encoded
    assert encoded is not None
    return encoded.stored_bytes


def side_constants_size(module: Module, op: Op) -> int:
    """The bytes of the table, scales and zero points of an op's kernel, as they are stored."""
    sizes = {"kernel_zero_point": 1}
    known = ((name, module.weights.get(op.attrs[name])) for name in stored_names(op))
    return sum(weight.size * sizes.get(name, 2) for name, weight in known if weight is not None)


# Weights that exceed kernel memory (table 22.1, listing 24.3).


@pass_(
    "split-kernel-memory",
    2,
    reads=[
        *("kernel_stream_master", "kmem_cap_dense", "kmem_cap_streamed", "kernel_path"),
        *("kernel_lanes", "max_operand_bytes"),
    ],
    requires=["layers", "mapped resizes", "native strides", "native groups", "kernel modes"],
    ensures=["kernel memory"],
    only=KERNELS,
)
def split_kernel_memory(module: Module, chip: Facts) -> int:
    """ExceedKmemSizeLimit: a weight above its cap runs in passes; one above the streamed cap becomes several layers.

    Above HAL 0x210 (16 MB) a layer is split into pieces along the output channels. Pieces keep the pointwise epilogue
    of the layer with their share of its constants; the rest of the fusion is undone behind the joined result. A weight
    that does not stream and of which one lane's share exceeds HAL 0x200 (64 KB) stays one layer up to A13: the engine
    takes the output channels in parts and reads the input again for each (U28). From A14 on large kernels are built
    once for all cores and sized against HAL 0x210 (listing 35.2).
    """

    def too_large(op: Op) -> bool:
        # Code from text may come without the weight's numbers; then nothing can be cut.
        return (
            op.kind in KERNELS
            and exceeds_kernel_memory(module, op, chip)
            and op.operands[1].attrs["weight"] in module.weights
        )

    def cut(walk: Relayer, op: Op) -> None:
        split(walk, op, _pieces(module, op, chip), numbered=True)

    return rewritten(module, too_large, cut) + _count_passes(module, chip)


def _count_passes(module: Module, chip: Facts) -> int:
    """Say how often the input of each layer passes, and how many layers chapter 24 would make of it (U28); returns
    how many pass more than once."""
    changes, refused = 0, []
    for op in module.ops:
        if op.kind not in KERNELS:
            continue
        try:
            passes = kernel_passes(module, op, chip)
        except Refused as refusal:
            refused.append(refusal)
            continue
        if passes > 1:
            op.mark(passes=passes)
            changes += 1
        if (count := sub_layers(module, op, chip)) > 1:
            op.mark(sub_layers=count)
    if refused:
        raise RefusedOps(refused)
    return changes


def _pieces(module: Module, op: Op, chip: Facts) -> list[Piece]:
    at_once = outputs_at_once(op, kernel_demand(module, op), chip["kmem_cap_streamed"])
    return pieces_of(op.shape[output_axis(op)], op.attrs.get("groups", 1), at_once)


# How much one program may hold.


_GB = 1e9


@pass_("check-program-size", 2, requires=["layers", "segments"], ensures=["program size"], checks=True)
def check_program_size(module: Module, chip: Facts) -> int:
    """Refuse the ops whose weights bring a program above what loads (C52): 1.9 GB was seen to run, 2.3 GB was not.

    Each segment is a program of its own, and a weight that several ops read is stored once.
    """
    most = constant("program_bytes")
    if _all_bytes(module) <= most:
        return 0
    graph = LayerGraph.of_module(module)
    stored_bytes: dict[int, int] = {}
    counted: set[tuple[int, str]] = set()
    full: set[int] = set()
    refused = []
    for op in module.ops:
        segment = graph.of[op].segment if op in graph.of else 0
        for kernel in op.operands:
            if kernel.kind != "const_in" or kernel.type is None or (segment, kernel.attrs["weight"]) in counted:
                continue
            counted.add((segment, kernel.attrs["weight"]))
            stored_bytes[segment] = stored_bytes.get(segment, 0) + constant_size(module, kernel)
            if stored_bytes[segment] > most:
                reason = (
                    f"the weights of one program reach {stored_bytes[segment] / _GB:.2f} GB at this op; "
                    f"{most / _GB:.2f} GB is the most that was seen to load. "
                    "Compile parts of the model as separate programs (aneforge partition shows them)"
                )
                refused.append(Refused(op, "program-size", reason, oversize=True, follows=segment in full))
                full.add(segment)
    if refused:
        raise RefusedOps(refused)
    return 0


def _all_bytes(module: Module) -> int:
    """The bytes of all constants, each once: no segment has more."""
    constants = {op.attrs["weight"]: op for op in module.ops if op.kind == "const_in"}
    return sum(constant_size(module, op) for op in constants.values())

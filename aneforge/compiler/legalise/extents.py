"""Layers within the extents of a chip: groups, products and transposes in pieces, and the final check of shapes."""

from __future__ import annotations

from collections.abc import Iterator

from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.moves import order_of
from aneforge.compiler.fuse.scales import stored_weight
from aneforge.compiler.legalise.kernels import Piece, split
from aneforge.compiler.legalise.relabel import Relayer, Span, rewritten, spans, typed, with_extents
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused, RefusedOps
from aneforge.engine.ir import Module, Op, TensorType
from aneforge.engine.types.checks import AXES

_CAPS = ("limit:batch_extent", "max_tensor_depth", "limit:channel_extent", "max_tensor_height", "max_tensor_width")
_WIDE, _CONTRACTED = "limit:transpose_extent_offset_field", "limit:contraction_extent"


@pass_(
    "check-extents",
    2,
    reads=[*_CAPS, _WIDE, _CONTRACTED],
    requires=["layers", "floors", "native transposes", "mapped views"],
    ensures=["legal"],
    checks=True,
)
def check_extents(module: Module, chip: Facts) -> int:
    """Dimension legalisation: refuse an axis that exceeds the cap of the chip (rank five is what the language has).

    As in preflight (limits.json ``preflight_axis_rule``), a transpose and what it reads have the wide caps of the
    offset field; whatever else reads such a tensor has the narrow ones. A transpose that moves no element is a reshape
    by now and stays a transpose here.
    """
    narrow = tuple(chip[name] for name in _CAPS)
    wide = (chip[_WIDE],) * len(AXES)
    most = chip[_CONTRACTED]
    if _all_fit(module, [min(caps) for caps in zip(narrow, wide, [most] * len(AXES), strict=True)]):
        return 0
    sound: set[tuple[tuple[int, ...], bool]] = set()  # few shapes, seen again and again
    refused: list[Refused] = []
    for op in module.ops:
        if op.kind in ("const_in", "live_out"):
            # A kernel's outputs lie on N and are not a batch; a program's results are checked where they are made.
            continue
        turned = _turns(op)
        for tensor in _tensors(op, turned):
            if (tensor.shape, turned) not in sound:
                problem = _problem(op, tensor, wide if turned else narrow)
                if problem is None:
                    sound.add((tensor.shape, turned))
                else:
                    refused.append(problem)
        for extent in _contracted(op):
            if extent > most:
                reason = f"{op.name} has a contraction or output extent of {extent}; the limit is {most}"
                refused.append(Refused(op, "contraction-extent", reason, oversize=True))
    if refused:
        raise RefusedOps(refused)
    return 0


def _all_fit(module: Module, caps: list[int]) -> bool:
    """Whether every tensor is within every cap. A program has few types, so this is soon known, and mostly so."""
    types = {op.type for op in module.ops if op.kind != "const_in"}
    return all(extent <= cap for type_ in types if type_ for extent, cap in zip(type_.shape, caps, strict=True))


def _turns(op: Op) -> bool:
    """A transpose, or a reshape that only moves axes of one."""
    if op.kind == "reshape":
        before, after = ([extent for extent in shape if extent > 1] for shape in (op.operands[0].shape, op.shape))
        return before == after
    return op.kind == "transpose"


def _tensors(op: Op, turned: bool) -> Iterator[Op]:
    """The tensors that an op reads and gives. A result that only transposes read is checked with them, and an input's
    shape is checked with its readers."""
    for operand in op.operands:
        if operand.kind != "const_in":
            yield operand
    if op.kind != "live_in" and (turned or not op.users or not all(map(_turns, op.users))):
        yield op


def _problem(op: Op, tensor: Op, caps: tuple[int, ...]) -> Refused | None:
    for axis, extent, cap in zip(AXES, tensor.shape, caps, strict=True):
        if extent > cap:
            verb = "gives" if tensor is op else "reads"
            reason = f"{op.name} {verb} {list(tensor.shape)}: axis {axis} is {extent}; the limit is {cap}"
            return Refused(op, "extent", reason, oversize=True)
    return None


def _contracted(op: Op) -> Iterator[int]:
    """The contracted and the free extent of a product's right-hand side (gate rule contraction-extent)."""
    if op.kind == "matmul":
        yield op.operands[0].shape[2 if "transpose_lhs" in op.attrs else 4]
        yield op.shape[4]
    elif op.kind == "linear":
        yield op.operands[0].shape[4]
        yield op.shape[4]


# Group convolutions whose dot products are too long for the grouped form.


@pass_(
    "group-convolutions",
    2,
    reads=["limit:group_conv_decompose"],
    requires=["layers", "native strides"],
    ensures=["native groups"],
    only=["convolution"],
)
def group_convolutions(module: Module, chip: Facts) -> int:
    """Group-convolution decomposition: groups with more inputs times kernel area than the limit run one by one (U35).

    Runs after the large strides, which move pixels to the channels of each group. A live kernel cannot be cut along
    its outputs, which lie on the batch axis, so it stays whole.
    """
    limit = chip["limit:group_conv_decompose"]

    def too_long(op: Op) -> bool:
        return _too_long(op, limit) and stored_weight(module, op.operands[1]) is not None

    return rewritten(module, too_long, lambda walk, op: split(walk, op, _one_by_one(op)))


def _one_by_one(op: Op) -> list[Piece]:
    groups = op.attrs["groups"]
    outputs = op.shape[2] // groups
    return [Piece(number * outputs, outputs, 1) for number in range(groups)]


def _too_long(op: Op, limit: int) -> bool:
    if op.kind != "convolution" or op.attrs["groups"] == 1 or "channel_wise" in op.attrs:
        return False
    _, height, width = op.attrs["kernel_sizes"]
    return op.operands[0].shape[2] // op.attrs["groups"] * height * width > limit


# Products whose right-hand side does not fit the working set.


_HEIGHT = 3


@pass_(
    "slice-products", 2, reads=["max_operand_bytes"], requires=["layers"], ensures=["sliced products"], only=["matmul"]
)
def slice_products(module: Module, chip: Facts) -> int:
    """SliceMatMulAlongHeight: a product is cut along the height until each right-hand side fits HAL 0x1b8 (U32).

    A right-hand side of one row, shared by every row of the left or not, is never cut.
    """
    walk = Relayer(module)
    for op in module.ops:
        slices = _slices(module, op, chip["max_operand_bytes"])
        if len(slices) < 2:
            walk.keep(op)
            continue
        kept = walk.recut(op)
        parts = [_slice(walk, op, kept, rows) for rows in slices]
        joined = walk.joined(parts, _HEIGHT, op.sources)
        walk.settle(op, kept, joined, parts, lambda values: walk.ghost_join(values, _HEIGHT))
    return walk.finish()


def _slices(module: Module, op: Op, working_set: int) -> list[Span]:
    """The fewest runs of rows whose right-hand sides fit; a single row may be too large and stays."""
    if op.kind != "matmul":
        return []
    right = op.operands[1]
    rows = right.shape[_HEIGHT]
    if rows == 1 or typed(right).bytes <= working_set:
        return []
    if right.kind == "const_in" and right.attrs["weight"] not in module.weights:
        return []  # a text without its numbers
    most = max(1, working_set // (typed(right).bytes // rows))
    return spans(rows, -(-rows // most))


def _slice(walk: Relayer, op: Op, kept: list[Op], rows: Span) -> Op:
    """One slice of a product. Operands with one row along the height serve every slice unchanged."""
    cut = {_HEIGHT: rows}
    operands = [walk.part(operand, cut, op.sources) for operand in op.operands]
    part = walk.layer("matmul", operands, with_extents(typed(op), {_HEIGHT: rows[1]}), op.attrs, op.sources)
    part.labels = op.labels
    return walk.again(kept, part, lambda constant: walk.part(constant, cut))


# Transposes beyond the native one.


@pass_(
    "multi-pass-transposes",
    2,
    reads=["max_transpose_h", "max_transpose_w"],
    requires=["layers", "family forms", "mapped resizes"],
    ensures=["native transposes"],
    only=["transpose"],
)
def multi_pass_transposes(module: Module, chip: Facts) -> int:
    """IsValidNETransposeConfiguration: beyond HAL 0x468 and 0x470 a transpose is exchanges of two axes by DMA.

    A cap of zero means that there is no native transpose at all. A transpose that is not native leaves its epilogue
    slot, and so do the ops behind it in that layer.
    """

    def beyond(op: Op) -> bool:
        return op.kind == "transpose" and not _native(op, chip["max_transpose_h"], chip["max_transpose_w"])

    return rewritten(module, beyond, _in_passes)


def _in_passes(walk: Relayer, op: Op) -> None:
    walk.detach(walk.behind(op))
    value = op.operands[0]
    for first, second in _exchanges(op):
        shape = list(value.shape)
        shape[first], shape[second] = shape[second], shape[first]
        attrs = {"transpose_list": ((first, second), (second, first))}
        value = walk.layer("transpose", [value], TensorType(tuple(shape), typed(op).dtype), attrs, op.sources)
        value.mark(data_path="dma")
    walk.replace(op, value)


def _native(op: Op, tallest: int, widest: int) -> bool:
    shapes = (op.operands[0].shape, op.shape)
    return all(shape[3] <= tallest and shape[4] <= widest for shape in shapes)


def _exchanges(op: Op) -> Iterator[tuple[int, int]]:
    """Pairs of axes whose exchange, one after the other, is the transpose; none for two axes of one."""
    wanted = order_of(op)
    order = list(range(5))
    extents = list(op.operands[0].shape)
    for place, axis in enumerate(wanted):
        source = order.index(axis)
        if source == place:
            continue
        if (extents[place], extents[source]) != (1, 1):
            yield place, source
        for line in (order, extents):
            line[place], line[source] = line[source], line[place]

"""What a compiled program has to do: every layer as work, with its weights in the encoding they are packed in."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import prod

from aneforge.compiler.legalise.kernels import CONTRACTIONS, reads_codes
from aneforge.compiler.program import Program, ProgramWeight
from aneforge.compiler.schedule.layers import Layer
from aneforge.cost.in_place import writes_in_place
from aneforge.cost.work import Work, in_lines
from aneforge.engine.interpret_units import AXIS_PLACES
from aneforge.engine.ir import Op
from aneforge.engine.traits import Trait

_NORMS = {"softmax": "softmax", "layer_norm": "layer_norm", "instance_norm": "group_norm", "l2norm_pool": "l2_norm"}
_CHANNELS, _WIDTH = 2, 4
_PICKS = ("input_view", "gather_nd")  # they read what they give, not all that they are given
_COPIES = ("padding", "tile", "broadcast", *_PICKS)  # timed as a concat is, and so is a view that moves bytes
_FORMS = {
    "int8": "int8",
    "int4-affine": "int8",
    "blockwise": "int8",
    "sparse": "sparse",
    "fp8-e4m3": "int8",
    "fp8-e5m2": "int8",
}
_CODES = ("si8", "ui8")


def work_of_program(program: Program) -> list[Work]:
    """One record for each layer, in the order they run. Layers that look alike share one."""
    stored = {weight.key: weight for weight in program.weights}
    padding, written = _Padding(program), writes_in_place(program)
    known: dict[Hashable, Work] = {}
    works = []
    for layer in program.schedule.graph.layers:
        if layer.number in written:
            works.append(_write(written[layer.number]))
            continue
        form = _form(layer, stored, padding)
        work = known.get(form)
        if work is None:
            work = known[form] = _work(layer, stored, padding)
        works.append(work)
    return works


class _Padding:
    """How much longer rows are where the program's memory map puts them than the numbers in them."""

    def __init__(self, program: Program) -> None:
        self._layers = program.schedule.graph.of
        self._rows: dict[int, int] = {}
        """The bytes of a row of each layer's result that the map places: a channel's on chip, a line's in memory."""
        for buffer in program.plan.buffers or ():
            if buffer.space != "port":  # what the caller owns is part of the call
                row = buffer.channel_stride if buffer.space == "l2" else buffer.row_stride
                self._rows.update((name, row) for name in buffer.values if isinstance(name, int))

    def of(self, value: Op) -> float:
        """Bytes for each byte of a value's numbers: 32 where a line of 64 bytes holds one number."""
        layer = self._layers.get(value)
        row = None if layer is None else self._rows.get(layer.number)
        if layer is None or row is None or value.type is None:
            return 1.0
        if layer.strides is not None:  # a view has strides of its own
            row = min(layer.strides)
        return max(1.0, row / (value.shape[_WIDTH] * value.type.element_bytes))


def _write(moved: Sequence[Op]) -> Work:
    """The rows that are moved into a state; where none are, nothing has to be done."""
    size, lines = 2.0 * sum(prod(op.shape) for op in moved), 2 * sum(in_lines(op.shape) for op in moved)
    return Work("copy", bytes_in=size, bytes_out=size, lines=lines) if moved else Work("view")


def _form(layer: Layer, stored: Mapping[str, ProgramWeight], padding: _Padding) -> Hashable:
    """All that decides what a layer has to do."""
    if layer.is_view:
        return None
    op = layer.primary
    beside = _ends_rms_norm(op) if op.kind == "mult" else op.kind in CONTRACTIONS and reads_codes(op)
    kernel = _weight(op, stored) if op.kind in CONTRACTIONS else None
    operands = [(operand.type, operand.kind == "const_in", padding.of(operand)) for operand in op.operands]
    result = layer.result.type, padding.of(layer.result)
    return op.kind, op.type, len(layer.ops) == 1, beside, kernel, result, *operands, *op.attrs.items()


def residents_of(program: Program) -> list[bool]:
    """For each layer, whether the schedule keeps all that it reads and makes on the chip, or the call brings it."""
    spilled = {name for buffer in program.plan.buffers or () if buffer.space == "dram" for name in buffer.values}
    if not spilled:
        return [True] * len(program.layers)
    return [
        layer.number not in spilled and not any(producer.number in spilled for producer in layer.producers)
        for layer in program.schedule.graph.layers
    ]


def _work(layer: Layer, stored: Mapping[str, ProgramWeight], padding: _Padding) -> Work:
    """An op in a layer's slots costs nothing: the engine applies it on the way out.

    The compiler's ``passes`` are not counted here: the fitted constants already hold how often an input is read again
    (:func:`aneforge.cost.contraction.passes`), and a layer in passes is still one layer to issue.
    """
    op = layer.primary
    if layer.is_view:
        return Work("view")
    if _decodes(op) and len(layer.ops) == 1:
        return Work("absorbed")  # what reads codes decodes them on the way in (fusion.json atom_order, InputDeQuant)
    bytes_out = 2.0 * prod(op.shape) * padding.of(layer.result)
    if op.is_a(Trait.STORED_KERNEL):
        return _contraction(op, stored, padding, bytes_out)
    if op.kind == "matmul":
        return _product(op, stored, padding, bytes_out)
    if op.kind == "sdpa":
        return _attention(op)
    return _planar(op)


def _decodes(op: Op) -> bool:
    """Whether an op makes numbers of codes that lie in 8 bits."""
    read = op.operands[0].type if op.kind == "dequant" else None
    return read is not None and read.dtype in _CODES


def _weight(op: Op, stored: Mapping[str, ProgramWeight]) -> tuple[float, str]:
    """Bytes and form of a kernel as the program packs it."""
    kernel = op.operands[1]  # the second of two computed operands has none
    weight = stored.get(kernel.attrs.get("weight", "")) if kernel.kind == "const_in" else None
    if weight is None:
        return 0.0, "fp16"
    form = "palette" if weight.encoding.startswith("lut") else _FORMS.get(weight.encoding.partition("-lut")[0], "fp16")
    return float(weight.bytes), form


def _contraction(op: Op, stored: Mapping[str, ProgramWeight], padding: _Padding, bytes_out: float) -> Work:
    x, kernel = op.operands[0], op.operands[1]
    n, d, c, h, w = op.shape
    size, form = _weight(op, stored)
    if op.kind == "linear":
        inner, outputs, positions, area, groups = x.shape[4], w, n * d * c * h, (1, 1), 1
        steps = True
    else:
        groups, area = op.attrs["groups"], tuple(op.attrs["kernel_sizes"][1:])
        inner, outputs, positions = x.shape[2] // groups, c, n * d * h * w
        if op.kind == "deconvolution":  # each place of the input meets the whole kernel
            positions = prod(x.shape) // x.shape[2]
        steps = all(step == 1 for step in (*op.attrs["strides"], *op.attrs["dilation_rates"]))
    computed, codes = kernel.kind != "const_in", reads_codes(op)
    return Work(
        "bmm" if computed else ("linear" if op.kind == "linear" else "conv"),
        macs=float(positions) * outputs * inner * prod(area),
        weight_bytes=size,
        form=form,
        integers=codes and form == "int8" and kernel.type is not None and kernel.type.dtype in _CODES,
        bytes_in=(1.0 if codes else 2.0) * prod(x.shape) * padding.of(x),
        bytes_out=bytes_out,
        contraction=inner * prod(area),
        channels=(inner, outputs),
        groups=groups,
        positions=positions,
        kernel=(int(area[0]), int(area[1])),
        unit_steps=steps,
    )


def _product(op: Op, stored: Mapping[str, ProgramWeight], padding: _Padding, bytes_out: float) -> Work:
    """[.., rows on C, .., columns on W]; a stored right-hand side is a weight like another."""
    left = op.operands[0]
    inner = left.shape[2] if op.attrs.get("transpose_lhs") else left.shape[4]
    size, form = _weight(op, stored)
    n, d, c, h, w = op.shape
    computed = [operand for operand in op.operands[:2] if operand.kind != "const_in"]
    return Work(
        "linear" if size else "bmm",
        macs=float(prod(op.shape)) * inner,
        weight_bytes=size,
        form=form,
        bytes_in=2.0 * sum(prod(operand.shape) * padding.of(operand) for operand in computed),
        bytes_out=bytes_out,
        contraction=inner,
        channels=(inner, w),
        positions=n * d * c * h,
    )


def _attention(op: Op) -> Work:
    """The native layer: places on C, heads on H, features on W."""
    query, key = op.operands[0], op.operands[1]
    n, d, places, heads, width = query.shape
    return Work(
        "sdpa",
        macs=2.0 * n * d * heads * places * key.shape[2] * width,
        bytes_in=2.0 * sum(prod(operand.shape) for operand in op.operands[:3]),
        bytes_out=2.0 * prod(op.shape),
        rows=n * d * heads,
    )


def _planar(op: Op) -> Work:
    computed = [operand for operand in op.operands if operand.kind != "const_in"]
    shapes = [op.shape] if op.kind in _PICKS else [operand.shape for operand in computed]
    elements = max(map(prod, shapes), default=prod(op.shape))
    kind = _NORMS.get(op.kind, op.kind)
    if op.kind == "layer_norm" and not _is_along_rows(op):
        kind = "group_norm"  # over channels or maps, which the engine sums as it goes; rows of features it turns
    elif _ends_rms_norm(op):
        kind = "rms_norm"  # all of it is timed here: its sums and roots have layers of their own, which take little
    elif op.is_a(Trait.REDUCTION):
        kind = "reduce_sum"
    elif op.kind == "reshape":
        kind = "reshape"
    elif op.is_a(Trait.VIEW) or op.kind in _COPIES:
        kind = "concat"
    elif op.attrs.get("type") == "TopK":
        kind = "topk"
    elif op.kind == "arg_min_max":
        kind = "argmax"
    return Work(
        kind,
        bytes_in=2.0 * sum(map(prod, shapes)),
        bytes_out=2.0 * prod(op.shape),
        lines=sum(map(in_lines, shapes)) + in_lines(op.shape),
        elements=elements,
        rows=_rankings(op) if kind == "topk" else 1,
        operands=max(1, len(computed)),
        turned=_turned(op) if kind == "reduce_sum" else 0,
    )


def _turned(op: Op) -> int:
    """The places whose channels a reduction sums up."""
    n, _, c, h, w = op.operands[0].shape
    return n * h * w if c > 1 and _CHANNELS in op.attrs.get("axes", ()) else 0


def _is_along_rows(op: Op) -> bool:
    """Whether a norm or mean is over the features of rows: along the width, or over the channels of a map of one line,
    where a layout has put them. Norms of rows were measured, wherever the vendor's compiler lays them (U181)."""
    axes, (_, d, _, h, _) = tuple(op.attrs.get("axes", ())), op.operands[0].shape
    return axes == (_WIDTH,) or (axes == (_CHANNELS,) and d == h == 1)


def _ends_rms_norm(op: Op) -> bool:
    """Whether an op divides rows by the root of their mean square: what an RMS norm along the width becomes."""
    if op.kind != "mult" or len(op.operands) != 2:
        return False
    return any(
        root.kind == "r_sqrt" and _is_mean_square(root.operands[0], value)
        for value, root in (op.operands, op.operands[::-1])
    )


def _is_mean_square(op: Op, value: Op) -> bool:
    return op.kind == "reduce_avg" and op["square_input"] and op.operands[0] is value and _is_along_rows(op)


def _rankings(op: Op) -> int:
    """How many lines a native layer ranks: all along the axis that it sorts; lanes move together."""
    shape, params = op.operands[0].shape, op.attrs["params"]
    return prod(shape) // (shape[AXIS_PLACES[params["SortDimension"]]] * shape[AXIS_PLACES[params["VectorDimension"]]])

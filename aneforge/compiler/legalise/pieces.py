"""Split one op with a stored kernel into several, each with a share of the output channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aneforge.anec.ir import AnecError, Op
from aneforge.anec.traits import Trait
from aneforge.compiler.legalise.relabel import Relayer, Span, spans, typed, with_extents
from aneforge.graph.weights import Weight, moved_weight

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

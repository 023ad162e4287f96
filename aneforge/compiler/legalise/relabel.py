"""Rewrite ops of a fused layer: new ops open layers of their own, and the fused layer is cut where needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

import numpy as np

from aneforge.compiler.fuse.slots import PRIMARY
from aneforge.compiler.passes import Rewriter
from aneforge.compiler.refusal import Refused, RefusedOps
from aneforge.engine.interpret import laid_out
from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.graph.encoding import Encoded
from aneforge.graph.weights import Weight, moved_weight

Span = tuple[int, int]
"""Where a share starts and how long it is."""

_POINTWISE = ("pre_activation", "goc", "post_activation")


def recut(epilogue: Sequence[Op]) -> tuple[list[Op], list[Op]]:
    """What stays with each piece of a split layer, and what moves behind the joined result (fusion.json undo).

    Pointwise slots give the same numbers on a piece as on the whole; from the first other slot on nothing stays.
    """
    kept = list(takewhile(lambda op: op.slot in _POINTWISE, epilogue))
    return kept, list(epilogue[len(kept) :])


def spans(total: int, count: int) -> list[Span]:
    """``total`` in ``count`` runs that differ by one at most."""
    size, longer = divmod(total, count)
    return [(number * size + min(number, longer), size + (number < longer)) for number in range(count)]


def typed(op: Op) -> TensorType:
    """The type of an op that gives something."""
    if op.type is None:
        raise AnecError(f"{op.name}: the op has no result, so it has no type")
    return op.type


def with_extents(type_: TensorType, extents: Mapping[int, int]) -> TensorType:
    """The same type with other extents along some axes."""
    shape = list(type_.shape)
    for axis, extent in extents.items():
        shape[axis] = extent
    return TensorType(tuple(shape), type_.dtype)


def rewritten(module: Module, wanted: Callable[[Op], bool], rewrite: Callable[[Relayer, Op], None]) -> int:
    """Rewrite the ops that are wanted and keep the rest. A module without any of them is left unchanged. An op that
    cannot be made legal stays as it is; all of these are refused together, once the rest is rewritten."""
    if not any(map(wanted, module.ops)):
        return 0
    walk = Relayer(module)
    refused: list[Refused] = []
    for op in module.ops:
        if not wanted(op):
            walk.keep(op)
            continue
        try:
            rewrite(walk, op)
        except Refused as refusal:
            refused.append(refusal)
            walk.keep(op)
    changes = walk.finish()
    if refused:
        raise RefusedOps(refused)
    return changes


class Relayer(Rewriter):
    """A rewriter that keeps the labels complete: each new op opens a layer, or takes a slot of one."""

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self._members: dict[int, list[Op]] = {}
        for op in module.ops:
            if op.layer is not None:
                self._members.setdefault(op.layer, []).append(op)
        self._next = max(self._members, default=-1) + 1
        self._shares: dict[tuple[int, tuple[tuple[int, Span], ...]], Op] = {}

    # Layers.

    def layer(
        self,
        kind: str,
        operands: Sequence[Op],
        type_: TensorType,
        attrs: Mapping[str, object] | None = None,
        sources: tuple[str, ...] = (),
    ) -> Op:
        """A new op that opens a layer."""
        op = self.emit(f"anec.{kind}", operands, type_, attrs, sources)
        op.layer, op.slot = self._next, PRIMARY
        self._members[self._next] = [op]
        self._next += 1
        return op

    def behind(self, op: Op) -> list[Op]:
        """The ops in the slots behind an op of the same layer."""
        members = self._members.get(op.layer, []) if op.layer is not None else []
        return members[members.index(op) + 1 :] if op in members else []

    def detach(self, ops: Sequence[Op]) -> None:
        """Move the last ops of a layer into a layer of their own, with the first of them as its primary op."""
        if not ops:
            return
        self._leave(ops)
        for op in ops:
            op.layer = self._next
        ops[0].slot = PRIMARY
        self._members[self._next] = list(ops)
        self._next += 1

    def attach(self, ops: Sequence[Op], host: Op) -> None:
        """Move the last ops of a layer behind another op that opens a layer; they keep their slots."""
        assert host.layer is not None
        self._leave(ops)
        for op in ops:
            op.layer = host.layer
        self._members[host.layer] += ops

    def _leave(self, ops: Sequence[Op]) -> None:
        leaving = set(ops)
        for layer in {op.layer for op in ops}:
            if layer is not None:
                self._members[layer] = [op for op in self._members[layer] if op not in leaving]

    def recut(self, op: Op) -> list[Op]:
        """Cut the layer of an op that is about to be split; return the ops that stay with its pieces."""
        kept, rest = recut(self.behind(op))
        self.detach(rest)
        return kept

    # Ops in place of others.

    def take_over(self, op: Op, new_op: Op) -> None:
        """Replace an op by a new one that takes its layer, slot and labels, with all that is in the slots behind
        it."""
        new_op.layer, new_op.slot, new_op.labels = op.layer, op.slot, op.labels
        self.replace(op, new_op)

    def settle(
        self,
        op: Op,
        kept: Sequence[Op],
        result: Op,
        ends: Sequence[Op] = (),
        joined: Callable[[list[Op]], Op] | None = None,
    ) -> None:
        """Let the readers of a rewritten layer read ``result``, and remove the old layer.

        ``ends`` are the last ops of what replaces it, and ``joined`` says how their values together give the old
        value. With it, the values inside the layer, which the ops before those ends have, can still be found by their
        lineage.
        """
        self.keep(op)  # the sweep removes it, after the ops behind it
        stages = [op, *kept]
        for depth, stage in enumerate(stages[:-1]):
            if stage.stands and joined is not None:
                stage.hand_over(joined([_before(end, len(kept) - depth) for end in ends]))
        (kept[-1] if kept else op).replace_with(result)
        self.changes += 1

    def again(self, kept: Sequence[Op], host: Op, change: Callable[[Op], Op] | None = None) -> Op:
        """Repeat the ops of slots behind a new op; ``change`` adapts each of their constants."""
        value = host
        for op in kept:
            constants = [
                self.part(constant, {}) if change is None else change(constant) for constant in op.operands[1:]
            ]
            copied = self.emit(
                op.name, [value, *constants], TensorType(host.shape, typed(op).dtype), op.attrs, op.sources
            )
            copied.layer, copied.slot, copied.labels = host.layer, op.slot, op.labels
            value = copied
        return value

    def ghost_view(self, x: Op, axis: int, start: int, size: int, step: int = 1) -> Op:
        """A view that no layer computes: the sweep removes it and records what it shows."""
        attrs = {"dimension": axis, "offset": start, "size": size, "step": step}
        return self.emit("anec.input_view", [x], with_extents(typed(x), {axis: size}), attrs)

    def ghost_join(self, parts: Sequence[Op], axis: int) -> Op:
        """A concat that no layer computes."""
        type_ = with_extents(typed(parts[0]), {axis: sum(part.shape[axis] for part in parts)})
        return self.emit("anec.concat", parts, type_, {"axis": axis})

    # Shares of tensors.

    def view(self, x: Op, axis: int, start: int, size: int, sources: tuple[str, ...], step: int = 1) -> Op:
        """A view along one axis, or the tensor itself where the view would show all of it."""
        if step == 1 and size == x.shape[axis]:
            return x
        attrs = {"dimension": axis, "offset": start, "size": size, "step": step}
        return self.layer("input_view", [x], with_extents(typed(x), {axis: size}), attrs, sources)

    def joined(self, parts: Sequence[Op], axis: int, sources: tuple[str, ...]) -> Op:
        """Parts side by side along one axis."""
        if len(parts) == 1:
            return parts[0]
        type_ = with_extents(typed(parts[0]), {axis: sum(part.shape[axis] for part in parts)})
        return self.layer("concat", parts, type_, {"axis": axis}, sources)

    def part(self, operand: Op, cuts: Mapping[int, Span], sources: tuple[str, ...] = ()) -> Op:
        """A share of an operand along some axes; an axis of one stretches, so it is never cut.

        The share of a constant is another constant, which no op reads yet; of a live operand it is a view.
        """
        cuts_needed = {axis: span for axis, span in cuts.items() if operand.shape[axis] > 1}
        if operand.kind != "const_in":
            for axis, (start, size) in cuts_needed.items():
                operand = self.view(operand, axis, start, size, sources)
            return operand
        key = (operand.uid, tuple(cuts_needed.items()))
        if key not in self._shares:
            self._shares[key] = self._constant_share(operand, cuts_needed)
        return self._shares[key]

    def _constant_share(self, operand: Op, cuts: Mapping[int, Span]) -> Op:
        if not cuts:  # the constant of an epilogue must come after the ops that are made before it
            return self.emit("anec.const_in", (), typed(operand), operand.attrs, operand.sources)
        weight = self.module.weights.get(operand.attrs["weight"])
        if weight is None:
            raise AnecError(
                f"weight {operand.attrs['weight']!r} is not in the module, so it cannot be cut; "
                "use code that carries its weights"
            )
        type_ = with_extents(typed(operand), {axis: size for axis, (_, size) in cuts.items()})
        share = self.stored(_share(weight, operand.shape, type_.shape, cuts), type_, operand.sources)
        if "folded" in operand.labels:
            share.mark(folded=operand.labels["folded"])
        return share


def _before(end: Op, steps: int) -> Op:
    """The op that is ``steps`` slots before the last of a layer."""
    for _ in range(steps):
        end = end.operands[0]
    return end


def _share(weight: Weight, shape: tuple[int, ...], sizes: tuple[int, ...], cuts: Mapping[int, Span]) -> Weight:
    """A recipe for a share of a stored constant, of the rank that the constant has where that is possible."""
    n, d, c, h, w = sizes
    rank = len(weight.shape)
    if rank == 5:
        kept: tuple[int, ...] = (n, c, d, h, w)
    elif rank == 4 and d == 1:
        kept = (n, c, h, w)
    elif rank == 2 and (n, d, h) == (1, 1, 1):
        kept = (c, w)
    else:
        kept = (math.prod(sizes),)

    def make(array: np.ndarray) -> np.ndarray:
        index = tuple(slice(cuts[i][0], sum(cuts[i])) if i in cuts else slice(None) for i in range(5))
        part = laid_out(array, shape)[index]
        return part.transpose(0, 2, 1, 3, 4) if rank == 5 else part  # laid_out turns a volume back

    return moved_weight(f"share {sorted(cuts.items())} of {shape}", weight, kept, make, _encoded_share(weight, cuts))


def _encoded_share(weight: Weight, cuts: Mapping[int, Span]) -> Encoded | None:
    """The same share of the form that a weight is stored in, where it is one of whole outputs."""
    if weight.encoded is None or len(cuts) != 1:
        return None
    ((axis, (start, size)),) = cuts.items()
    return weight.encoded.rows(start, start + size) if (len(weight.shape), axis) in _OUTPUTS_FIRST else None


_OUTPUTS_FIRST = ((4, 0), (2, 2))  # ranks, and where their first axis lies in a kernel of NDCHW

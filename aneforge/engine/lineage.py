"""Track where the value of each of the user's nodes is, while passes rewrite the code.

Every op carries the standings of the nodes whose value its result is. Rewrites keep them correct without extra code: a
replacement hands them over, and an op that is swept away leaves either a known move from a value that still exists
(a transpose that was folded into its reader), or the reason why the value is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from aneforge.engine.traits import Trait

if TYPE_CHECKING:
    from aneforge.engine.ir import Op

T = TypeVar("T")


class Standing:
    """The value of one node: an op's result, a move of such values, or gone for a reason."""

    __slots__ = ("lost", "move", "op", "parts", "shape")

    def __init__(self, op: Op | None, shape: tuple[int, ...] | None = None) -> None:
        self.op = op
        """The op whose result it is."""
        self.shape = shape
        """The user's shape of the node."""
        self.move: Op | None = None
        """An op that is not in the code any more, and gave it from ``parts``."""
        self.parts: tuple[Standing, ...] = ()
        self.lost: str | None = None
        """Why the value no longer exists."""

    @classmethod
    def gone(cls, reason: str, shape: tuple[int, ...]) -> Standing:
        """The standing of a node whose value no op has."""
        standing = cls(None, shape)
        standing.lost = reason
        return standing

    @property
    def reason(self) -> str | None:
        """Why the value is not available; None if it is."""
        return self.lost or next((part.reason for part in self.parts if part.reason), None)

    def ops(self) -> Iterator[Op]:
        """The ops in the code that it is made of."""
        if self.op is not None:
            yield self.op
        for part in self.parts:
            yield from part.ops()

    def value(self, of: Callable[[Op], T], moved: Callable[[Op, list[T]], T]) -> T:
        """Its value, given those of ops and how a move acts on them."""
        if self.op is not None:
            return of(self.op)
        assert self.move is not None, self.lost
        return moved(self.move, [part.value(of, moved) for part in self.parts])

    def copied(self, ops: Mapping[int, Op], known: dict[int, Standing]) -> Standing:
        """The same over the copies of ops, for a module that is copied."""
        copy = known.get(id(self))
        if copy is None:
            copy = known[id(self)] = Standing(None if self.op is None else ops[self.op.uid], self.shape)
            copy.move, copy.lost = self.move, self.lost
            copy.parts = tuple([part.copied(ops, known) for part in self.parts])
            if copy.op is not None:
                copy.op.stands += (copy,)
        return copy

    def __repr__(self) -> str:
        if self.lost:
            return f"<gone: {self.lost}>"
        return f"<{self.op}>" if self.op is not None else f"<{self.move} of {self.parts}>"


def see_through(op: Op, move: Op) -> None:
    """Record that the nodes with an op's value have it moved: ``move`` is not in the code."""
    if op.stands:
        part = Standing(op)
        for standing in op.stands:
            standing.op, standing.move, standing.parts = None, move, (part,)
        op.stands = (part,)


def retire(op: Op, reason: str) -> None:
    """Remove an op. The values in its result are lost, unless they can be computed from what the op read."""
    if not op.stands:
        return
    movable = op.is_a(Trait.MOVEMENT) and not op.is_a(Trait.RING)
    movable = movable and all(operand.kind != "const_in" for operand in op.operands)
    movable = movable and op.labels.get("storage") != "q4"  # a data path that clamps changes numbers
    parts: list[Standing] = []
    if movable and op.type is not None and all(operand.type is not None for operand in op.operands):
        for operand in op.operands:
            part = Standing(operand)
            operand.stands += (part,)
            parts.append(part)
    for standing in op.stands:
        standing.op = None
        if parts:
            standing.move, standing.parts = op.detached(), tuple(parts)
        else:
            standing.lost = reason
    op.stands = ()

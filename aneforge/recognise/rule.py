"""What a rule of recognition is, and what it may ask about the graph around a node."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from aneforge.graph.tensor import Tensor


class Scene:
    """Who reads each node: the ops of its readers, once for each time they read it, and "output"."""

    def __init__(self, nodes: Iterable[Tensor], outputs: Iterable[Tensor]) -> None:
        self._readers: dict[int, list[str]] = {}
        for node in nodes:
            for operand in node.inputs:
                self._readers.setdefault(operand.uid, []).append(node.op)
        for output in outputs:
            self._readers.setdefault(output.uid, []).append("output")

    def is_private(self, node: Tensor) -> bool:
        """Whether only one node reads this one, so that it disappears when its reader is built another way."""
        return len(self._readers.get(node.uid, ("",))) == 1

    def is_read_by(self, node: Tensor, ops: Container[str]) -> bool:
        """Whether only such ops read this node."""
        return all(reader in ops for reader in self._readers.get(node.uid, ()))

    def count(self, node: Tensor, ops: Container[str]) -> int:
        """How often such ops read this node."""
        return sum(reader in ops for reader in self._readers.get(node.uid, ()))

    def reads_instead(self, node: Tensor, before: str, now: str) -> None:
        """Say that readers of one op are about to become readers of another."""
        readers = self._readers.get(node.uid, [])
        self._readers[node.uid] = [now if reader == before else reader for reader in readers]

    def stand(self, current: Tensor, before: Tensor) -> Tensor:
        """``current``, which now has the readers of what it stands for as well as its own."""
        if current is not before and before.uid in self._readers:
            self._readers[current.uid] = [*self._readers.get(current.uid, ()), *self._readers[before.uid]]
        return current


@dataclass(frozen=True)
class Rule:
    """One spelling: the ops that it ends in, and a function from its last node to the layer, or None."""

    name: str
    ends: tuple[str, ...]
    apply: Callable[[Tensor, Scene], Tensor | None]

    @property
    def doc(self) -> str:
        return " ".join((self.apply.__doc__ or "").split())

"""A graph on its way to a program: what the user wrote, what phase 0 made of it, and then its backend code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aneforge.compiler.legal.rewrites.functions import HostInput
from aneforge.compiler.lower.walk import Port
from aneforge.compiler.record import Record
from aneforge.engine.ir import Module
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor

if TYPE_CHECKING:
    from aneforge.compiler.legal.check import Judgement


@dataclass
class Draft:
    """One state of a compile. Targets share a draft until a pass treats them differently."""

    source: Graph
    """As the user wrote it."""
    graph: Graph
    """As phase 0 has rewritten it so far."""
    names: dict[int, str]
    """The user's node behind each node of the graph, by uid."""
    stands: dict[int, tuple[str, ...]]
    """The user's nodes whose value a node of the graph has, by uid, where that is not just the node itself."""
    route: str | None = None
    """``conversion`` or ``direct`` where the user asked for one; otherwise each chip uses the route that reaches
    it."""
    host_inputs: list[HostInput] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    """What phase 0 rewrote; the module has those of the later phases."""
    judgements: dict[tuple[str, ...], tuple[tuple[str, Judgement], ...]] = field(default_factory=dict)
    """What rules say of nodes that they let pass, with the user's nodes, for each set of facts."""
    module: Module | None = None
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()

    @classmethod
    def of(cls, graph: Graph, route: str | None = None, names: Mapping[int, str] | None = None) -> Draft:
        names = graph.names() if names is None else dict(names)
        return cls(graph, graph, names, {}, route)

    @property
    def is_authored(self) -> bool:
        """Whether the user stated the layers themselves, as a netplist does. A unit that a chip lacks is refused then,
        and not written with others (chapter 26)."""
        return self.route == "direct" and self.source.route == "direct"

    def fork(self) -> Draft:
        """A copy that other targets go on with; graphs are never changed, so they are shared."""
        return replace(
            self,
            names=dict(self.names),
            stands=dict(self.stands),
            host_inputs=list(self.host_inputs),
            records=list(self.records),
            judgements=dict(self.judgements),
            module=None if self.module is None else self.module.clone(),
        )

    @property
    def code(self) -> Module:
        """The backend code, which phase 0 ends with."""
        assert self.module is not None, "the graph is not lowered yet"
        return self.module

    @property
    def all_records(self) -> tuple[Record, ...]:
        return (*self.records, *(() if self.module is None else self.module.records))

    @property
    def size(self) -> int:
        """Nodes, or backend ops once there are any."""
        return len(self.graph.nodes) if self.module is None else len(self.module)

    def continue_with(self, outputs: Iterable[Tensor]) -> None:
        """Go on with a graph of these outputs."""
        self.graph = Graph(tuple(outputs))

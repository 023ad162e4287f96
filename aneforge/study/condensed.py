"""The verdict of a chip on a graph of repeated blocks, from that on its short form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from aneforge.chips.chip import Target
from aneforge.compiler.refusal import Refusal
from aneforge.study.answers import Shelf
from aneforge.study.preflight import NodeVerdict, OpReport, Preflight, Reports

if TYPE_CHECKING:
    from aneforge.numerics.analysis import Analysis


class _Copies(Reports):
    """The reports of all nodes that some nodes of a short graph stand for."""

    def __init__(self, shelf: Shelf, rows: Sequence[NodeVerdict], chip: Target, status: str, route: str) -> None:
        super().__init__(rows, chip, status, route)
        self._shelf = shelf

    @cached_property
    def _length(self) -> int:
        if not self.rows:
            return 0
        condensed = self._shelf.condensed
        assert condensed is not None
        return sum(condensed.copies[condensed.places[row.node.uid]] for row in self.rows)

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _all(self) -> list[OpReport]:
        return list(self._copied()) if self.rows else []

    def _copied(self) -> Iterator[OpReport]:
        condensed = self._shelf.condensed
        assert condensed is not None
        rows: dict[int, list[NodeVerdict]] = {}
        for row in self.rows:
            rows.setdefault(condensed.places[row.node.uid], []).append(row)
        nodes, names = self._shelf.graph.nodes, self._shelf.names
        for node, place in zip(nodes, condensed.stands_for.tolist(), strict=True):
            for row in rows.get(place, ()):
                yield self._report(row._replace(node=node, name=names[node.uid]))


class CondensedPreflight(Preflight):
    """One chip on a graph that repeats itself. What the data decide of numbers is found in the whole graph: ranges may
    grow from one repetition to the next."""

    def __init__(
        self,
        shelf: Shelf,
        short: Preflight,
        refusals: Callable[[], Mapping[str, Mapping[str, Refusal]]],
        whole: Callable[[Target], Preflight],
    ) -> None:
        self.graph, self.target, self.route, self.os = shelf.graph, short.target, short.route, short.os
        self._shelf, self._short, self._ask_refusals, self._ask_whole = shelf, short, refusals, whole

    @property
    def refusals(self) -> Mapping[str, Refusal]:
        """Everything that the compiler's first phases refuse, by node."""
        return self._ask_refusals()[self.target.name]

    @property
    def ok(self) -> bool:
        """A program results: nothing is rejected and nothing is too large."""
        return self._short.ok

    def rows(self, status: str) -> Sequence[NodeVerdict]:
        """Those of the short form."""
        return self._short.rows(status)

    def _listed(self, status: str) -> Reports:
        return _Copies(self._shelf, self.rows(status), self.target, status, self.route)

    @cached_property
    def _whole(self) -> Preflight:
        return self._ask_whole(self.target)

    @cached_property
    def analysis(self) -> Analysis | None:
        """That of the whole graph."""
        return self._whole.analysis

    @cached_property
    def risk(self) -> Sequence[OpReport]:
        """Those of the whole graph, where ranges have anything to say."""
        return self._whole.risk if self._short.has_questions else self._reports["risk"]

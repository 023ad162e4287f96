"""The verdict of a chip on a graph of repeated blocks, from that on its short form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np

from aneforge.compiler.refusal import Refusal
from aneforge.study.answers import Shelf
from aneforge.study.preflight import STATUSES, OpReport, Preflight
from aneforge.targets.chip import Target

if TYPE_CHECKING:
    from aneforge.numerics.analysis import Analysis

__all__ = ["CondensedPreflight"]


class _Copies(Sequence[OpReport]):
    """The reports of all nodes that some nodes of a short graph stand for, each made when it is read."""

    def __init__(self, shelf: Shelf, stands_for: np.ndarray, reports: dict[int, list[OpReport]]) -> None:
        self._shelf, self._stands_for, self._reports = shelf, stands_for, reports

    @cached_property
    def _listed(self) -> list[OpReport]:
        return list(self)

    @cached_property
    def _length(self) -> int:
        copies = np.bincount(self._stands_for)
        return sum(int(copies[place]) * len(reports) for place, reports in self._reports.items())

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> OpReport: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[OpReport]: ...
    def __getitem__(self, index: int | slice) -> OpReport | Sequence[OpReport]:
        return self._listed[index]

    def __iter__(self) -> Iterator[OpReport]:
        if not self._reports:
            return
        nodes, names = self._shelf.graph.nodes, self._shelf.names
        for node, place in zip(nodes, self._stands_for.tolist(), strict=True):
            for report in self._reports.get(place, ()):
                yield report.of(node, names[node.uid])


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
        self.graph, self.target, self.route = shelf.graph, short.target, short.route
        self._shelf, self._short, self._ask_refusals, self._ask_whole = shelf, short, refusals, whole

    @property
    def refusals(self) -> Mapping[str, Refusal]:
        """Everything that the compiler's first phases refuse, by node."""
        return self._ask_refusals()[self.target.name]

    @property
    def ok(self) -> bool:
        """A program results: nothing is rejected and nothing is too large."""
        return self._short.ok

    @cached_property
    def _reports(self) -> dict[str, Sequence[OpReport]]:
        condensed = self._shelf.condensed
        assert condensed is not None
        places = {node.uid: place for place, node in enumerate(self._short.graph.nodes)}
        lists: dict[str, Sequence[OpReport]] = {}
        for status in STATUSES:
            by_place: dict[int, list[OpReport]] = {}
            for report in self._short.listed(status):
                by_place.setdefault(places[report.node.uid], []).append(report)
            lists[status] = _Copies(self._shelf, condensed.stands_for, by_place)
        return lists

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

"""``af.split``: a model as programs that load on each chip, what a token and a prompt then take, and why no larger
program would do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from aneforge.advice.forms import ERRATUM_FORM, apply_form
from aneforge.advice.proposals import LEAST_GAIN
from aneforge.advice.split.cuts import Holdings, LayerCut, LayerRun, amounts_of, cut_layers, holdings_of
from aneforge.advice.split.head import HeadCut, counts_for, in_pieces, other_numbers, own_numbers
from aneforge.advice.split.limits import Amounts, Breach, Ceilings
from aneforge.advice.split.pieces import piece_of, with_stand_ins
from aneforge.advice.split.price import PartCost, ProgramCost, host_cost, part_costs, program_cost, together
from aneforge.advice.split.resize import Resizer, TokenSizes, sizes_of
from aneforge.advice.split.structure import LayerBlock, ModelStructure
from aneforge.chips.cache_writes import WriteVerdict, write_verdict
from aneforge.chips.chip import Target
from aneforge.compiler.storage import Storage
from aneforge.cost.constants import basis_of
from aneforge.errors import AneforgeError, ArgumentError, GraphError, first_line
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.study.cache_forms import as_ports, as_states, with_rows_as_outputs
from aneforge.study.caches import LAYOUTS
from aneforge.study.study import Study

_PLACE = re.compile(r" at \S+:\d+(?=:)")  # where in this package a node was made
HOST, BODY, HEAD = "host", "layers", "head"


@dataclass(frozen=True)
class PlannedProgram:
    """One program of a plan, or a part that the host computes."""

    name: str
    kind: str
    """``layers``, ``head`` or ``host``."""
    runs: LayerRun | None
    holds: str
    """What it holds, in words."""
    amounts: Amounts
    cost: ProgramCost
    breaches: tuple[Breach, ...] = ()
    rewrites: tuple[str, ...] = ()
    """The forms that its layers are built in, where those are faster on the chip."""
    off_engine: str = ""
    """Why a part of it is not on the engine, where that is so."""
    runs_elsewhere: bool = False
    """Whether nothing of a part of it runs on the engine."""


@dataclass(frozen=True)
class CacheLayout:
    """One way to keep the caches on one chip."""

    name: str
    """One of :data:`aneforge.study.caches.LAYOUTS`."""
    verdict: str
    """``runs``, ``unsure``, ``fails`` or ``unknown``, of the write form that it needs."""
    writes: tuple[WriteVerdict, ...]

    @property
    def words(self) -> str:
        return LAYOUTS[self.name]


@dataclass(frozen=True)
class Phase:
    """The programs of one kind of call: new tokens at a time, in some order."""

    rows: int
    context: int
    programs: tuple[PlannedProgram, ...]
    head_pieces: int
    cut: LayerCut

    @cached_property
    def cost(self) -> ProgramCost:
        return together(program.cost for program in self.programs)

    @property
    def tokens_per_s(self) -> tuple[float, float, float] | None:
        """Least, middle and most; None where the time of a program is not known."""
        cost = self.cost
        if cost.unknown or not cost.us:
            return None
        low, high = cost.interval
        return tuple(1e6 * self.rows / us for us in (high, cost.us, low))  # type: ignore[return-value]

    @property
    def breaches(self) -> list[Breach]:
        return [breach for program in self.programs for breach in program.breaches]


class Planner:
    """What all chips of a plan share: a model in one layout of its caches, its parts and their prices."""

    def __init__(
        self, study: Study, storage: Storage | None, structure: ModelStructure, sizes: TokenSizes | None = None
    ) -> None:
        self.study, self.storage, self.structure = study, storage, structure
        self.now = sizes_of(structure)
        self.sizes = sizes or self.now
        """The tokens of a call, and the places of a cache."""
        self._resizer = None if self.sizes == self.now else Resizer(structure, self.sizes)
        self._costs: dict[object, Mapping[str, PartCost]] = {}
        self._ends: dict[int, HeadCut] = {}

    @cached_property
    def holdings(self) -> list[Holdings]:
        """What each block holds, those that look alike with their own weights."""
        return [holdings_of(self.structure, block, self.storage, self.sizes) for block in self.structure.blocks]

    @cached_property
    def why_not(self) -> str:
        """Why its parts cannot be built for these numbers of tokens; empty where they can."""
        if self._resizer is None or not self.structure.blocks:
            return ""
        try:
            self._piece(self.structure.blocks[0].nodes)
        except GraphError as error:
            reason = _PLACE.sub("", first_line(error))
            return f"the layers cannot be built for {self.sizes.rows:,} new tokens ({reason})"
        return ""

    def _piece(self, nodes: Sequence[Tensor]) -> Graph:
        return piece_of(self.structure, nodes) if self._resizer is None else self._resizer.piece(nodes)

    @cached_property
    def holdings_of_end(self) -> Holdings | None:
        end = self.structure.end
        return None if end is None else holdings_of(self.structure, end, self.storage)

    @cached_property
    def host_start(self) -> tuple[Tensor, ...]:
        """The operations in front of the layers, where they look something up by whole numbers: the host's part."""
        start = self.structure.start
        if start is None or not any(_is_of_host(node) for node in start.nodes):
            return ()
        return start.nodes

    def block_costs(self, block: LayerBlock) -> Mapping[str, PartCost]:
        """The price of one block on each chip, worked out once for all that look alike."""
        same = [other for other in self.structure.blocks if other.kind == block.kind]
        one = same[min(1, len(same) - 1)]  # not the first, whose input is the model's
        return self._priced(("block", block.kind), lambda: self._piece(one.nodes))

    def start_costs(self) -> Mapping[str, PartCost]:
        start = self.structure.start
        assert start is not None
        if self.host_start:
            return dict.fromkeys(self.study.chips, host_cost(self.host_start))
        return self._priced("start", lambda: self._piece(start.nodes))

    def end_costs(self, count: int) -> Mapping[str, PartCost]:
        """The price of the end with its head in so many pieces."""
        return self._priced(("end", count), lambda: self.end_in(count).graph)

    def end_in(self, count: int) -> HeadCut:
        """The end of the model with its head in pieces that stand in."""
        if count not in self._ends:
            end = self.structure.end
            assert end is not None
            # Of a prompt only the last token needs logits, whose row the caller hands on.
            graph = piece_of(self.structure, end.nodes) if self.now.rows == 1 else self._piece(end.nodes)
            head = self.head_in(graph)
            self._ends[count] = HeadCut(graph, {}) if head is None else in_pieces(graph, head, count, other_numbers)
        return self._ends[count]

    def graph_of(self, program: PlannedProgram, count: int = 1) -> HeadCut:
        """A program with the model's own weights, its head in so many pieces."""
        structure = self.structure
        if program.kind == HOST:
            return HeadCut(self._piece(self.host_start), {})
        if program.runs is not None:
            first = structure.start if program.runs.first == 0 and not self.host_start else None
            blocks = structure.blocks[program.runs.first : program.runs.last + 1]
            nodes = [node for block in (*([first] if first else []), *blocks) for node in block.nodes]
            return HeadCut(self._piece(nodes), {})
        assert structure.end is not None
        graph = piece_of(structure, structure.end.nodes) if self.now.rows == 1 else self._piece(structure.end.nodes)
        head = self.head_in(graph)
        return HeadCut(graph, {}) if head is None else in_pieces(graph, head, count, own_numbers)

    @property
    def replaced(self) -> list[str]:
        """Constants that count tokens and were replaced by others of another length: the parts are for prices only."""
        return [] if self._resizer is None else self._resizer.replaced

    def head_in(self, graph: Graph) -> Tensor | None:
        """The head in a graph of the end."""
        head = self.structure.head
        if head is None:
            return None
        name = self.structure.names[head.uid]
        return next((node for node in graph.nodes if node.name == name), None)

    def _priced(self, key: object, make: Callable[[], Graph]) -> Mapping[str, PartCost]:
        if key not in self._costs:
            try:
                graph = make()
                plain = part_costs(self.study, graph, self._once(graph), self.storage)
                self._costs[key] = {**plain, **self._cured(graph, plain)}
            except AneforgeError as error:
                self._costs[key] = dict.fromkeys(self.study.chips, PartCost(unknown=first_line(error)))
        return self._costs[key]

    def _cured(self, graph: Graph, plain: Mapping[str, PartCost]) -> dict[str, PartCost]:
        """The price with the rewrite that avoids a slow stream of weights, on the chips where that is faster."""
        slow = [name for name, chip in self.study.chips.items() if _has_erratum(chip) and not plain[name].unknown]
        try:
            changed = apply_form(with_stand_ins(graph), ERRATUM_FORM) if slow else None
        except ArgumentError:
            return {}  # it fits nowhere
        if changed is None:
            return {}
        costs = part_costs(self.study.with_chips(slow), changed, self._once(graph), self.storage)
        return {
            name: replace(cost, rewrite=ERRATUM_FORM)
            for name, cost in costs.items()
            if not cost.unknown and cost.engine_us < (1 - LEAST_GAIN) * plain[name].engine_us
        }

    def _once(self, graph: Graph) -> frozenset[str]:
        """The ports of a part that do not repeat with it: what is handed on, and what several parts read."""
        caches = {str(write.port.name) for write in self.structure.writes}
        news = {str(output.name) for output in self.structure.graph.outputs}
        ports = {str(port.name) for port in graph.inputs if port.name not in caches}
        return frozenset(ports | {str(output.name) for output in graph.outputs if output.name not in news})

    def phase(self, chip: str) -> Phase:
        """The programs of the model on one chip."""
        target = self.study.chips[chip]
        ceilings = Ceilings.on(target, self.study.runtime.names[-1])
        cut = cut_layers(self.holdings, ceilings)
        programs = list(self._programs(chip, target, ceilings, cut))
        pieces = 1
        if self.structure.end is not None:
            pieces, head = self._end(chip, target, ceilings)
            programs.append(head)
        return Phase(self.sizes.rows, self.sizes.cache or self.sizes.rows, tuple(programs), pieces, cut)

    def _programs(self, chip: str, target: Target, ceilings: Ceilings, cut: LayerCut) -> Iterator[PlannedProgram]:
        scope, structure = self.study.scope, self.structure
        start = [] if structure.start is None else [(self.start_costs()[chip], 1)]
        if self.host_start:
            cost = program_cost(target, scope, start)
            holdings = holdings_of(structure, structure.start, None) if structure.start else Holdings({})
            yield PlannedProgram("start", HOST, None, _in_words(self.host_start), amounts_of([holdings]), cost)
            start = []
        for run in cut.runs:
            blocks = structure.blocks[run.first : run.last + 1]
            kinds: dict[int, int] = {}
            for block in blocks:
                kinds[block.kind] = kinds.get(block.kind, 0) + 1
            some = {block.kind: block for block in blocks}
            parts = [(self.block_costs(some[kind])[chip], count) for kind, count in kinds.items()]
            amounts = self.amounts_of(run)
            name = f"layers_{run.first}_{run.last}"
            holds = f"{run}, behind the start" if start else str(run)
            cost = program_cost(target, scope, [*start, *parts])
            breaches = tuple(ceilings.breaches(amounts))
            rewrites = _rewrites(part for part, _ in parts)
            off = next((part.off_engine for part, _ in parts if part.off_engine), "")
            elsewhere = any(not part.programs for part, _ in parts)
            yield PlannedProgram(name, BODY, run, holds, amounts, cost, breaches, rewrites, off, elsewhere)
            start = []

    def amounts_of(self, run: LayerRun) -> Amounts:
        """What a program of some layers holds."""
        holdings = self.holdings[run.first : run.last + 1]
        start = self.structure.start
        if run.first == 0 and start is not None and not self.host_start:
            holdings = [holdings_of(self.structure, start, self.storage), *holdings]
        return amounts_of(holdings)

    def _end(self, chip: str, target: Target, ceilings: Ceilings) -> tuple[int, PlannedProgram]:
        """The end of the model, its head in as many pieces as take the least time among those that are allowed."""
        structure = self.structure
        assert self.holdings_of_end is not None
        counts = [1] if structure.head is None else counts_for(structure.head)
        tried: list[tuple[int, ProgramCost, list[Breach], PartCost]] = []
        for count in counts:
            rows = -(-structure.vocabulary // count)
            breaches = ceilings.breaches(amounts_of([self.holdings_of_end], rows))
            part = self.end_costs(count)[chip]
            cost = program_cost(target, self.study.scope, [(part, 1)])
            tried.append((count, cost, breaches, part))
        count, cost, breaches, part = min(
            tried, key=lambda one: (bool(one[1].unknown), len(one[2]), one[3].programs, one[1].us)
        )
        words = "what is behind the layers"
        if structure.vocabulary:
            words = f"vocabulary of {structure.vocabulary:,}" + (f" in {count} pieces" if count > 1 else "")
        amounts = amounts_of([self.holdings_of_end], -(-structure.vocabulary // count))
        return count, PlannedProgram(
            "head", HEAD, None, words, amounts, cost, tuple(breaches), _rewrites([part]), part.off_engine,
            not part.programs,
        )  # fmt: skip


def _rewrites(parts: Iterable[PartCost]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.rewrite for part in parts if part.rewrite))


def _has_erratum(chip: Target) -> bool:
    known = basis_of(chip).constants
    return bool(known.notch or known.slow_when_deep)


def _is_of_host(node: Tensor) -> bool:
    return node.op == "host" or node.dtype == "int32" or any(operand.dtype == "int32" for operand in node.inputs)


def _in_words(nodes: Sequence[Tensor]) -> str:
    looks_up = any(operand.op == "const" and operand.ndim > 1 for node in nodes for operand in node.inputs)
    return "embedding and what else is in front of the layers" if looks_up else "what is in front of the layers"


# The ways to keep the caches.


def layouts_of(structure: ModelStructure) -> dict[str, Graph]:
    """The model in every layout of its caches that its writes allow."""
    if not structure.writes:
        return {"none": structure.graph}
    graphs: dict[str, Graph] = {}
    if all(write.form == "rows" for write in structure.writes):
        return {"rows": structure.graph}
    if not any(write.form == "grow" for write in structure.writes):  # a program has one length
        graphs["state"], graphs["port"] = as_states(structure.graph), as_ports(structure.graph)
    if all(write.rows is not None for write in structure.writes):
        graphs["rows"] = with_rows_as_outputs(structure.graph)
    return graphs


_WORST = ("runs", "unknown", "unsure", "fails")


def layout_on(name: str, structure: ModelStructure, chip: Target, study: Study) -> CacheLayout:
    """What is known of a layout on a chip."""
    if name == "none":
        return CacheLayout(name, "runs", ())
    kept = "state" if name == "state" else "port"
    forms = {"rows"} if name == "rows" else {write.form for write in structure.writes if write.form != "rows"}
    runtime = study.runtime.names[-1]
    writes = tuple(write_verdict(form, kept, chip, runtime, study.os) for form in sorted(forms))
    verdict = max((write.verdict for write in writes), key=_WORST.index, default="unknown")
    return CacheLayout(name, verdict, writes)

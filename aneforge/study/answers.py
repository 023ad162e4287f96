"""What is worked out about graphs, each thing once.

A shelf keeps everything that is known of one graph: results by question, and by target where a question has one
answer for each. ``Answers`` finds the shelf of a graph. A graph that says the same as a known one, such as a region of
a model that was changed elsewhere, gets the known one's shelf.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from threading import RLock
from typing import Any, TypeVar

from aneforge.chips.chip import Target
from aneforge.compiler.compile import finished, programs_for
from aneforge.compiler.condense import Condensed, condensed
from aneforge.compiler.program import Program
from aneforge.compiler.refusal import CompileError, Refusal
from aneforge.compiler.survey import Surveyed, survey
from aneforge.graph.graph import Graph
from aneforge.graph.origins import kept_type
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.views import is_integer_view

# The nodes of a graph that a device computes.


class Operations:
    """The nodes of a graph that a device computes, apart from those that only look at integers in another way."""

    def __init__(self, graph: Graph, names: Mapping[int, str]) -> None:
        self.graph, self.names = graph, names
        self.by_name = {name: uid for uid, name in names.items()}
        computed = [node for node in graph.nodes if not node.definition.leaf or node.is_a(GraphTrait.DRAWN)]
        self.views = {node.uid for node in computed if is_integer_view(node)}
        """Not counted as ops: the host does these where it hands integers over."""
        self.port_views = _views_of_ports(computed, self.views)
        """Those among them that read inputs of the model only. They belong to no region."""
        self.placed = [node for node in computed if node.uid not in self.port_views]
        """Every node that has a device."""
        self.counted = tuple(node for node in self.placed if node.uid not in self.views)
        """The ops of the model, as reports count them."""


def _views_of_ports(computed: Sequence[Tensor], views: set[int]) -> dict[int, Tensor]:
    by_uid: dict[int, Tensor] = {}
    for node in computed:
        if node.uid in views and all(operand.definition.leaf or operand.uid in by_uid for operand in node.inputs):
            by_uid[node.uid] = node
    return by_uid


T = TypeVar("T")
_MOST_NODES = 1 << 20
"""Nodes of all graphs whose answers are kept: about a gigabyte of programs. The oldest are forgotten."""


class Shelf:
    """Everything that is known of one graph."""

    def __init__(self, graph: Graph, answers: Answers) -> None:
        self.graph = graph
        self._answers = answers
        self._lock = RLock()
        self._kept: dict[Hashable, Any] = {}

    @cached_property
    def names(self) -> dict[int, str]:
        """A distinct name for every node, by its id."""
        return self.graph.names()

    @cached_property
    def operations(self) -> Operations:
        return Operations(self.graph, self.names)

    def once(self, question: Hashable, work_out: Callable[[], T]) -> T:
        """The answer to a question; worked out where it is asked for the first time."""
        with self._lock:
            if question not in self._kept:
                self._kept[question] = work_out()
            return self._kept[question]

    def once_each(
        self,
        question: Hashable,
        targets: Sequence[Target],
        work_out: Callable[[list[Target]], Mapping[str, T]],
    ) -> dict[str, T]:
        """The answer for each target by name; those that are not known yet are worked out together."""
        with self._lock:
            known: dict[str, T] = self.once(question, dict)
            unknown = {target.name: target for target in targets if target.name not in known}
            if unknown:
                known |= work_out(list(unknown.values()))
            return {target.name: known[target.name] for target in targets}

    @cached_property
    def condensed(self) -> Condensed | None:
        """The short form of a graph that repeats itself; None where it has none."""
        return condensed(self.graph)

    @property
    def short(self) -> Shelf | None:
        """What is known of the short form."""
        return None if self.condensed is None else self._answers.about(self.condensed.graph)

    def refusals(self, targets: Sequence[Target], route: str | None) -> dict[str, Mapping[str, Refusal]]:
        """What each target refuses, by node: of a graph that repeats itself, what it refuses of the short form."""
        shelf = self.short or self
        by_target = {target.name: target for target in targets}
        refused = {
            name: surveyed.refused_by(by_target[name]) for name, surveyed in shelf.surveys(targets, route).items()
        }
        return refused if shelf is self else {name: self._of_all(shelf, known) for name, known in refused.items()}

    def _of_all(self, short: Shelf, refusals: Mapping[str, Refusal]) -> Mapping[str, Refusal]:
        """Refusals of the short form as those of every node that one of its nodes stands for."""
        if not refusals:
            return refusals
        assert self.condensed is not None
        refused = [refusals.get(short.names[node.uid]) for node in short.graph.nodes]
        of_all: dict[str, Refusal] = {}
        for node, place in zip(self.graph.nodes, self.condensed.stands_for.tolist(), strict=True):
            refusal = refused[place]
            if refusal is not None:
                of_all[self.names[node.uid]] = refusal.of(self.names[node.uid])
        return of_all

    def surveys(self, targets: Sequence[Target], route: str | None) -> dict[str, Surveyed]:
        """What the compiler's first phases refuse and rewrite on each target."""
        return self.once_each(("survey", route), targets, lambda new: survey(self.graph, new, route))

    def programs(self, targets: Sequence[Target], route: str | None) -> dict[str, Program | CompileError]:
        """The program of each target, or its refusal."""
        return self.once_each(("program", route), targets, lambda new: self._compiled(new, route))

    def _compiled(self, targets: Sequence[Target], route: str | None) -> dict[str, Program | CompileError]:
        """Compile where the survey ended; what is refused meets the passes that refuse it once more."""
        compiled: dict[str, Program | CompileError] = {}
        refusing = []
        surveys = self.surveys(targets, route)
        for target in targets:
            surveyed = surveys[target.name]
            if surveyed.refused_by(target):
                refusing.append(target)
            elif target.name not in compiled:
                compiled |= finished(surveyed)
        return compiled | (programs_for(self.graph, refusing, route=route) if refusing else {})

    def program(self, target: Target, route: str | None, beside: Sequence[Target] = ()) -> Program:
        """The program of one target; ``beside`` it others are compiled that will be asked about."""
        compiled = self.programs([target, *beside], route)[target.name]
        if isinstance(compiled, CompileError):
            raise compiled
        return compiled

    def compiled_already(self, program: Program) -> None:
        """Note the program of a target that was compiled elsewhere."""
        self.once(("program", program.route), dict)[program.target.name] = program


class Answers:
    """The shelves of some graphs."""

    def __init__(self, most_nodes: int = _MOST_NODES) -> None:
        self._most = most_nodes
        self._nodes = 0
        self._lock = RLock()
        self._shelves: OrderedDict[int, Shelf] = OrderedDict()
        """By the identity of a graph, which its shelf keeps alive."""
        self._alike: dict[tuple[int, bytes], Shelf] = {}
        """By the number of nodes and the content; only of sizes that occurred twice."""
        self._unread: dict[int, list[Shelf]] = {}
        """By the number of nodes: shelves whose content nobody has asked for yet."""

    def about(self, graph: Graph) -> Shelf:
        """The shelf of a graph, or of one that says the same."""
        with self._lock:
            shelf = self._shelves.get(id(graph))
            if shelf is None:
                shelf = self._equal_one(graph) or self._new_one(graph)
            else:
                self._shelves.move_to_end(id(graph))
            return shelf

    def _equal_one(self, graph: Graph) -> Shelf | None:
        size = len(graph.nodes)
        if size not in self._unread:
            return None
        for shelf in self._unread[size]:
            self._alike.setdefault((size, _content(shelf)), shelf)
        self._unread[size] = []
        return self._alike.get((size, content_of(graph)))

    def _new_one(self, graph: Graph) -> Shelf:
        shelf = self._shelves[id(graph)] = Shelf(graph, self)
        self._unread.setdefault(len(graph.nodes), []).append(shelf)
        self._nodes += len(graph.nodes)
        while self._nodes > self._most and len(self._shelves) > 1:
            self._forget(next(iter(self._shelves)))
        return shelf

    def _forget(self, identity: int) -> None:
        shelf = self._shelves.pop(identity)
        size = len(shelf.graph.nodes)
        self._nodes -= size
        if shelf in self._unread[size]:
            self._unread[size].remove(shelf)
        elif self._alike.get((size, _content(shelf))) is shelf:
            del self._alike[size, _content(shelf)]


def _content(shelf: Shelf) -> bytes:
    return shelf.once("content", lambda: content_of(shelf.graph))


def content_of(graph: Graph) -> bytes:
    """A digest of all that answers depend on: every node with its operands, name, line, weight and the type that its
    file keeps, the outputs, the states and the route. Signatures are interned and weights shared, so their identities
    stand for their content; the digest holds as long as the graph lives."""
    position = {node.uid: number for number, node in enumerate(graph.nodes)}
    nodes = [
        (
            id(node.signature),
            *(position[operand.uid] for operand in node.inputs),
            node.name,
            node.where,
            None if node.weight is None else id(node.weight),
            kept_type(node.origins),
        )
        for node in graph.nodes
    ]
    whole = (nodes, [position[output.uid] for output in graph.outputs], graph.states, graph.route)
    return blake2b(repr(whole).encode(), digest_size=16).digest()


_begin = RLock()


def answers_about(graph: Graph) -> Answers:
    """The answers that were begun for a graph. They go with the graph, so that two questions of one user about one
    model share them."""
    with _begin:
        return graph.kept.setdefault("answers", Answers())

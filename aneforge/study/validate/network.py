"""The network-level validators (table 22.4): a dry run over every layer, and what only the whole network shows.

A dry run is the compiler's own: the first phases run for all chips together, as ``aneforge check`` runs them, so that
what is said of a layer is what a compile does with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge.chips import store
from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact, fact
from aneforge.compiler.legal.findings import Finding
from aneforge.compiler.legal.translate import lowered_layers
from aneforge.engine.layers import layer_of
from aneforge.errors import AneforgeError, LoadError
from aneforge.formats.arguments import Chips, Source, chip_of, chips_of, graph_of, model_name
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.study.preflight import OpReport, Preflight
from aneforge.study.study import Study
from aneforge.study.validate.report import report
from aneforge.text import ByChip, plural

EXPORTS: Mapping[str, str] = {
    "_ANECValidateNetworkCreate": "validate_network",
    "_ANECValidate": "validate_layer",
    "_ANECValidateMPSModule": "validate_module",
    "_ANECValidateMPSModuleCreate": "validate_module",
    "_ANECValidateMutableProcedureInfo": "validate_mutable_procedure",
}
"""The five exported functions that are not about one layer, and the function here that stands for each."""

_NO_NETPLIST = ("not a property list", "not a netplist")
"""What the reader says of a file that is damaged or something else: bad input, and no answer of the compiler's."""
_BONDED, _COLLISION = range(2)  # the places of the two strings in layers.json


@dataclass(frozen=True)
class LayerVerdicts:
    """What one chip says of one node of a network and the layers that it becomes."""

    name: str
    layers: tuple[str, ...]
    """The types of its native layers; of an op that phase 0 rewrites, its own name."""
    accepted: bool
    stage: str
    message: str
    """The compiler's own words, else our sentence; empty for an accept."""
    evidence: Fact[Any]
    route: str
    reason: str = ""
    """Our sentence: of a refusal, and of a layer that is rewritten or may give wrong numbers."""
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "layers": list(self.layers),
            "accepted": self.accepted,
            "stage": self.stage,
            "route": self.route,
            "message": self.message,
            "reason": self.reason,
            "evidence": self.evidence.to_json(),
        }


class NetworkVerdict:
    """The answer of one chip: a row for each node, and what only the whole network shows."""

    def __init__(
        self, target: Target, route: str, rows: Sequence[LayerVerdicts], network: Sequence[LayerVerdicts]
    ) -> None:
        self.target = target
        self.route = route
        self.rows = tuple(rows)
        self.network = tuple(network)
        """What is wrong with the network as a whole."""

    @property
    def rejected(self) -> tuple[LayerVerdicts, ...]:
        """The rows that are refused, those of the network first."""
        return (*self.network, *(row for row in self.rows if not row.accepted))

    @property
    def accepted(self) -> bool:
        """Whether the chip takes the network."""
        return not self.rejected

    @property
    def stage(self) -> str:
        """The first layer of the compiler that refuses; of an accept, how far every row is attested."""
        stages = [row.stage for row in (self.rejected or self.rows)]
        return stages[0] if self.rejected else ("measured run" if set(stages) == {"measured run"} else "validator")

    @property
    def message(self) -> str:
        """What the compiler says to the first row that it refuses; empty where it takes all."""
        return self.rejected[0].message if self.rejected else ""

    def __str__(self) -> str:
        head = f"{self.target.name} by the {self.route} route: "
        if self.accepted:
            return f"{head}accepts {plural(len(self.rows), 'layer')}"
        lines = [f"{head}rejects {len(self.rejected)} of {len(self.rows)} layers"]
        return "\n".join([*lines, *(f"  {row.name}: {row.message} ({row.stage})" for row in self.rejected)])

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target.name,
            "route": self.route,
            "accepted": self.accepted,
            "stage": self.stage,
            "message": self.message,
            "network": [row.to_json() for row in self.network],
            "rows": [row.to_json() for row in self.rows],
        }


class Validation(ByChip[NetworkVerdict]):
    """The verdict of each chip on one network."""

    def __init__(self, results: Mapping[str, NetworkVerdict], model: str) -> None:
        super().__init__(results)
        self.model = model

    @property
    def ok(self) -> bool:
        """Whether every chip takes the network."""
        return all(verdict.accepted for verdict in self.values())

    def text(self, everything: bool = False) -> str:
        """A table of layers by chips, and each reason once."""
        return report(self, self.model, everything)

    def __str__(self) -> str:
        return self.text()

    def to_json(self) -> dict[str, Any]:
        return {"model": self.model, "ok": self.ok, **super().to_json()}


def validate_network(
    network: Source, target: str | int | Target, route: str = "direct", *, bonded: bool = False
) -> NetworkVerdict:
    """``_ANECValidateNetworkCreate``: a dry run of every layer of a network on one chip.

    ``network`` is a graph, tensors, or the path of a netplist or of a model file. A netplist that cannot be read is
    refused at the frontend. ``bonded`` asks for one program of two engines.
    """
    return validate_all(network, chip_of(target), route, bonded=bonded).only


def validate_module(module: Source, target: str | int | Target) -> NetworkVerdict:
    """``_ANECValidateMPSModule`` and ``_ANECValidateMPSModuleCreate``: a module by the conversion route, whose floors
    come before the validators."""
    return validate_network(module, target, "conversion")


def validate_all(
    network: Source,
    target: Chips = None,
    route: str = "direct",
    *,
    bonded: bool = False,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Validation:
    """The verdict of several chips on one network; they share the work. The others are as for
    :func:`validate_network`: ``bonded`` asks for one program of two engines."""
    chips = chips_of(target)
    name = str(network) if isinstance(network, (str, Path)) else ""
    try:
        graph = graph_of(network, dims, function)
    except LoadError as error:
        if not _is_netplist(network) or any(words in str(error) for words in _NO_NETPLIST):
            raise
        rows = (_whole(Path(name).name, "frontend", str(error), Fact(None, ("S26",), "decoded")),)
        return Validation({chip: NetworkVerdict(known, route, (), rows) for chip, known in chips.items()}, name)
    reports = Study.on(graph, chips, route).preflights()
    kinds = _Kinds()
    results = {
        chip: NetworkVerdict(report.target, report.route, _rows(report, kinds), _network(graph, report.target, bonded))
        for chip, report in reports.items()
    }
    return Validation(results, name or model_name(graph))


def _is_netplist(network: Source) -> bool:
    """A file of units: what its reader refuses is an answer of the compiler's parser."""
    return isinstance(network, (str, Path)) and Path(network).suffix in (".plist", ".net") and Path(network).is_file()


def _whole(name: str, stage: str, message: str, evidence: Fact[Any], route: str = "direct") -> LayerVerdicts:
    return LayerVerdicts(name, (), False, stage, message, evidence, route, message)


def _network(graph: Graph, chip: Target, bonded: bool) -> tuple[LayerVerdicts, ...]:
    """Bonded networks, and units whose names collide."""
    document = store.load("layers")["network_reject_strings"]
    evidence = fact(document, store.load("layers")["evidence"], about="network checks")
    rows = []
    if bonded and chip.name not in store.load("fusion")["bonded"]["targets"]:
        chosen = Fact(chip.name, evidence.source, "inferred", "bonded networks", conflict_id="U93")
        rows.append(_whole("network", "validator", document["v"][_BONDED], chosen))
    for name in _collisions(graph):
        words = document["v"][_COLLISION].replace("%s", name)
        rows.append(_whole(name, "frontend", words, evidence, "conversion"))
    return tuple(rows)


def _collisions(graph: Graph) -> list[str]:
    """Names that two nodes have once the graph has named those that have none."""
    counts = Counter(graph.names().values())
    return [name for name, count in counts.items() if count > 1]


def _rows(report: Preflight, kinds: _Kinds) -> list[LayerVerdicts]:
    by_node: dict[str, LayerVerdicts] = {}
    for status in ("native", "decompose", "reject", "oversize", "placement", "risk"):
        for entry in report.of(status):
            row = _row(entry, status, kinds)
            if entry.name not in by_node or not row.accepted:
                by_node[entry.name] = row
    names = report.graph.names()
    order = {names[node.uid]: place for place, node in enumerate(report.graph.nodes)}
    return sorted(by_node.values(), key=lambda row: order.get(row.name, len(order)))


def _row(entry: OpReport, status: str, kinds: _Kinds) -> LayerVerdicts:
    accepted = status not in ("reject", "oversize")
    message = "" if accepted else entry.string or entry.message
    return LayerVerdicts(
        entry.name,
        kinds.of(entry.node),
        accepted,
        entry.stage,
        message,
        entry.evidence,
        entry.route,
        entry.message,
        entry.findings,
    )


class _Kinds:
    """The types of layers behind nodes, worked out once for all chips."""

    def __init__(self) -> None:
        self._by_signature: dict[int, tuple[str, ...]] = {}

    def of(self, node: Tensor) -> tuple[str, ...]:
        key = id(node.signature)
        if key not in self._by_signature:
            self._by_signature[key] = self._lowered(node)
        return self._by_signature[key]

    @staticmethod
    def _lowered(node: Tensor) -> tuple[str, ...]:
        if node.op == "host" or "int32" in (node.dtype, *(operand.dtype for operand in node.inputs)):
            return (node.op,)
        try:
            ops = lowered_layers(node.signature)
        except AneforgeError:  # phase 0 writes it with other ops
            return (node.op,)
        layers = (layer_of(op) for op in ops)
        return tuple(dict.fromkeys(layer.type for layer in layers if layer is not None)) or (node.op,)

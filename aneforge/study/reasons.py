"""Why ops of a model are not on the engine: what the compiler's own phases refuse, of the whole and of each region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aneforge.compiler.refusal import Refusal
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.views import moves_only
from aneforge.study.operations import Operations
from aneforge.study.split import ENGINE, Region
from aneforge.targets.chip import Target

if TYPE_CHECKING:
    from aneforge.study.cut import Cut

Refusals = dict[int, Refusal]
"""By the node that is refused."""

IDLE = "moves-only"
_IDLE_REASON = "it only moves numbers between ops of the host, which is not worth a start of the engine"
_FEW_REASON = "it computes few numbers between ops of the host, which is not worth a start of the engine"
_FEW = 1 << 14  # numbers that a region computes: microseconds on the host, and a start of the engine takes more


def sentence(refusal: Refusal) -> str:
    """One refusal in words, with its evidence, without the node."""
    if not refusal.findings:
        return refusal.reason
    words = " ".join(f"{finding.message.rstrip('.')}." for finding in refusal.findings)
    return f"{words} {refusal.findings[0].evidence.label()}"


def refused_nodes(operations: Operations, refusals: Mapping[str, Refusal], chip: str) -> Refusals:
    """Refusals by node, with the chip's name filled in."""
    named = {operations.by_name[name]: refusal for name, refusal in refusals.items() if name in operations.by_name}
    return {uid: refusal.on(chip) for uid, refusal in named.items()}


def refused_in_regions(cut: Cut, targets: Sequence[Target], whole_regions: bool) -> dict[str, Refusals]:
    """Everything that the chips refuse of the engine regions of a cut. A region that is refused for a reason that no
    node of it bears is refused whole, as is every refused one where ``whole_regions`` says so."""
    refused: dict[str, Refusals] = {target.name: {} for target in targets}
    for region in cut.on_engine:
        for name, refusals in cut.shelf_of(region).refusals(targets, cut.route).items():
            if not refusals:
                continue
            blamed = {
                uid: refusal
                for uid, refusal in refused_nodes(cut.operations, refusals, name).items()
                if cut.device_of.get(uid) == ENGINE
            }
            if whole_regions or not blamed:
                first = next(iter(refusals.values())).on(name)
                blamed = {node.uid: first.of(cut.names[node.uid]) for node in region.nodes} | blamed
            refused[name] |= blamed
    return refused


def idle_regions(cut: Cut) -> Refusals:
    """The nodes of engine regions that compute no numbers, or few of them from truth values of the host and for the
    host alone, as masks of token ids are."""
    if len(cut.regions) < 2:
        return {}
    return {
        node.uid: Refusal(cut.names[node.uid], IDLE, reason)
        for region in cut.on_engine
        if (reason := _why_idle(cut, region)) is not None
        for node in region.nodes
    }


def _multiplies(node: Tensor) -> bool:
    return node.is_a(GraphTrait.PRODUCT) or node.op == "sdpa"


def _why_idle(cut: Cut, region: Region) -> str | None:
    if all(moves_only(node) or node.dtype == "bool" for node in region.nodes):
        return _IDLE_REASON
    if sum(node.size for node in region.nodes) > _FEW or any(_multiplies(node) for node in region.nodes):
        return None
    made_by = {crossing.tensor.uid: crossing.source for crossing in cut.crossings}
    read_by = {crossing.tensor.uid: crossing.readers for crossing in cut.crossings}
    handed_out = {output.uid for output in cut.graph.outputs}
    from_host = all(
        port.dtype != "fp16" and port.uid in made_by and made_by[port.uid].device != ENGINE for port in region.inputs
    )
    for_host = all(
        output.uid not in handed_out and all(reader.device != ENGINE for reader in read_by.get(output.uid, ()))
        for output in region.outputs
    )
    return _FEW_REASON if from_host and for_host else None

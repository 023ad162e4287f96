"""What a compile warns of: the numbers that ``check`` lists as risks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from aneforge.compiler.legal.findings import NumberFinding
from aneforge.compiler.program import Program
from aneforge.divergence.numeric_warnings import CrossChipFP16Warning, PrecisionWarning
from aneforge.graph.graph import Graph
from aneforge.numerics.analysis import due_risks
from aneforge.targets.names import chip_label

_NAMED = 4  # nodes that one warning names
_OF_SOME_CHIPS = ("slice-saturation", "int8-activations")
"""Losses at limits that other chips do not have."""


def warn_losses(graph: Graph, program: Program, stacklevel: int = 2, precision: bool = True) -> int:
    """Warn of every number that ``check`` lists as a risk, once for each rule and message; how many there were.

    ``stacklevel`` counts as in ``warnings.warn``: 2 is the caller's line. Without ``precision`` only limits that other
    chips do not have are told. What only another runtime does wrong is for ``check`` to say.
    """
    due: list[tuple[str, NumberFinding]] = [(risk.node, risk) for risk in due_risks(graph, program)]
    due += [(node, finding) for node, finding in program.risks if "direct" in (finding.runtimes or ("direct",))]
    nodes_of: dict[tuple[str, str, str], tuple[NumberFinding, list[str]]] = {}
    for node, finding in due:
        if precision or finding.rule in _OF_SOME_CHIPS:
            key = finding.rule, finding.message, finding.basis
            nodes_of.setdefault(key, (finding, []))[1].append(node)
    chip = chip_label(program.target.name)
    for first, nodes in nodes_of.values():
        category = CrossChipFP16Warning if first.rule in _OF_SOME_CHIPS else PrecisionWarning
        warnings.warn(_sentence(first, nodes, chip), category, stacklevel=stacklevel)
    return sum(len(nodes) for _, nodes in nodes_of.values())


def _sentence(finding: NumberFinding, nodes: list[str], chip: str) -> str:
    hint = f" {finding.hint[0].upper()}{finding.hint[1:]}." if finding.hint else ""
    about = f"on {chip}, rule {finding.rule}, {finding.basis}"
    return f"{listed(nodes)}: {finding.message.rstrip('.')} ({about}) {finding.evidence.label()}.{hint}"


def listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = len(names) - _NAMED
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown

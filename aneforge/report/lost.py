"""Numbers that chips can lose: the risks of one chip of each arithmetic, those of one reason together."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence

from aneforge.numerics.losses import Risk
from aneforge.report.differing import arithmetics
from aneforge.report.rows import RiskRow
from aneforge.study.ranges import ranges_of
from aneforge.study.risk import Risks, risks_of_chip
from aneforge.study.study import Study


def risks_by_chip(study: Study, max_abs: float | None) -> dict[str, Risks]:
    """What each chip can lose, for inputs up to a magnitude."""
    return {
        name: risks_of_chip(study, name, ranges_of(study.graph, [chip], max_abs, None, None))
        for name, chip in arithmetics(study.partitions()).items()
    }


def risk_rows(lost: Mapping[str, Risks], by_name: Mapping[str, int]) -> tuple[RiskRow, ...]:
    """A row for each reason and set of chips: a real loss first, then what concerns most operations."""
    chips_of: dict[tuple[object, ...], tuple[Risk, list[str]]] = {}
    for chip, risks in lost.items():
        for risk in risks:
            chips_of.setdefault((risk.node, risk.rule, risk.message), (risk, []))[1].append(chip)
    alike: dict[tuple[object, ...], tuple[list[Risk], list[str]]] = {}
    for risk, chips in chips_of.values():
        key = (risk.op, risk.rule, risk.basis, risk.message, risk.hint, risk.rewrite, risk.lost, *chips)
        alike.setdefault(key, ([], chips))[0].append(risk)
    rows = [_row(risks, chips, by_name) for risks, chips in alike.values()]
    return tuple(sorted(rows, key=lambda row: (not row.lost, -len(row.nodes), row.id)))


def _row(risks: Sequence[Risk], chips: Sequence[str], by_name: Mapping[str, int]) -> RiskRow:
    first = risks[0]
    worst = max(risks, key=lambda risk: risk.reaches)
    identity = json.dumps([first.rule, first.op, sorted(risk.node for risk in risks)])
    return RiskRow(
        id=f"{first.rule}-{hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()}",
        op=first.op,
        kind=first.rule,
        message=first.message,
        suggestion=first.hint,
        nodes=tuple(by_name[risk.node] for risk in risks if risk.node in by_name),
        chips=tuple(chips),
        worst=by_name.get(worst.node),
        reaches=worst.reaches if math.isfinite(worst.reaches) else None,
        limit=worst.limit,
        lost=first.lost,
        rewrite=first.rewrite or "",
        basis=first.basis,
    )

"""What a Mac said beside what is predicted here, operation by operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aneforge.errors import AneforgeError, UnknownNameError
from aneforge.report.aligned import align
from aneforge.report.rows import MeasuredRow, MeasuredTable, OpRow
from aneforge.study.partition import Partition
from aneforge.study.plan import plan_of_partition
from aneforge.study.plan_document import ComputePlan
from aneforge.targets.names import target as target_of


def overlay(
    plan: ComputePlan, name: str, chip: str | None, splits: Mapping[str, Partition], ops: Sequence[OpRow]
) -> MeasuredTable:
    """The plan of a file called ``name`` over the operations of a report, on the chip that it was made on."""
    place = _chip(plan, name, chip, splits)
    predicted = plan_of_partition(splits[place], place).operations
    listed = [op for op in plan.operations if op.preferred is not None]
    aligned = align([(op.name, op.op) for op in ops], [(op.name, op.op) for op in listed])
    if not aligned.pairs:
        raise AneforgeError(
            f"{name}: none of its {len(listed)} operations is one of this model's {len(ops)}, by name or by kind. "
            "Dump the plan of this model."
        )
    rows = [
        MeasuredRow(
            op=one,
            predicted=predicted[one].preferred or "",
            measured=listed[other].preferred or "",
            supported=listed[other].supported,
            predicted_share=predicted[one].weight,
            share=listed[other].weight,
            us=listed[other].us,
        )
        for one, other in aligned.pairs
    ]
    return MeasuredTable(
        chip=place,
        file=name,
        rows=tuple(rows),
        only_measured=tuple(listed[at].name or listed[at].op for at in aligned.only_second),
        only_predicted=aligned.only_first,
        predicted=plan.predicted,
        os=plan.os,
        latency_us=plan.latency_us,
    )


def _chip(plan: ComputePlan, name: str, chip: str | None, splits: Mapping[str, Partition]) -> str:
    """The chip of the report that the plan is about; never a guess."""
    asked = chip or plan.chip
    if not asked:
        if len(splits) == 1:
            return next(iter(splits))
        raise AneforgeError(
            f"{name}: it does not name its chip. Write --measured CHIP={name}, for instance m1={name}."
        )
    if asked in splits:
        return asked
    try:
        wanted = target_of(asked)
    except UnknownNameError:
        raise AneforgeError(f"{name}: {asked!r} is not a chip. Write --measured CHIP={name}.") from None
    same = [place for place, split in splits.items() if split.target.name == wanted.name]
    if not same:
        raise AneforgeError(f"{name}: it is about {asked}, which is not in this report. Add it to --target.")
    return same[0]

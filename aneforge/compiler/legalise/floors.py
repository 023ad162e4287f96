"""Check the family at which an op starts, and ask the validator of every layer."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.check import program_route
from aneforge.compiler.legal.findings import PlacementFinding
from aneforge.compiler.legal.judge import validated, validator_reads
from aneforge.compiler.legal.translate import query_of_op
from aneforge.compiler.legalise.legacy import FLOOR_DIVIDE
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused, RefusedOps
from aneforge.targets.families import Family8


@pass_(
    "check-floors",
    2,
    reads=lambda: (*validator_reads(), "family8"),
    requires=["layers", "family forms", "mapped resizes", "mapped gathers"],
    ensures=["floors"],
    checks=True,
)
def check_floors(module: Module, chip: Facts) -> int:
    """MinimumFamily and the validators: refuse an op below its floor, or a layer that its validator refuses.

    The validators are the rules that also answer ``aneforge validate`` (listing 24.2, tables 22.4 and 22.5). It runs
    after the passes that replace such ops by others. A target without a family has no floors (U31).
    """
    family = chip.get("family8")
    index = None if family is None else Family8[family]
    route = program_route(chip, module.route)
    sound: set[Hashable] = set()
    refused: list[Refused] = []
    for op in module.ops:
        if op.kind == "const_in":
            continue
        taken = "conversion" if route == "conversion" and not op.labels else _route_of(op, module, route)
        form = (taken, op.kind, *[operand.type for operand in op.operands], *op.attrs.items(), *op.labels.items())
        if form not in sound:
            problem = _problem(op, index, chip, taken)
            if problem is None:
                sound.add(form)
            else:
                refused.append(problem)
    if refused:
        raise RefusedOps(refused)
    return 0


def _route_of(op: Op, module: Module, route: str) -> str:
    """By which route an op reaches the chip: a native layer is authored, others as the program is. What passes make of
    others is no layer that anybody authors."""
    if "bridge" in op.labels:
        return "direct"
    stated = (op.kind in module.lowered_to.get(name, ()) and name not in module.rewritten for name in op.sources)
    return route if any(stated) else "conversion"


def _problem(op: Op, index: Family8 | None, chip: Facts, route: str) -> Refused | None:
    if op.labels.get("data_path") == FLOOR_DIVIDE:
        return None
    findings = _findings(op, chip, route)
    floor = _missed_floor(op, index)
    if floor is not None and not (route == "direct" and findings):  # on the direct route a validator answers first
        words = next((finding.string for finding in findings if finding.string), None)
        return Refused(op, "minimum-family", f"{op.name} starts at family {floor}", words)
    if not findings:
        return None
    first = findings[0]
    return Refused(op, first.rule, first.message, first.string or None, first.oversize, findings=findings)


def _missed_floor(op: Op, index: Family8 | None) -> str | None:
    """The family at which an op starts, where the target is below it. A floor is one of the conversion: what is
    authored directly is gated by what its validator reads (C13)."""
    if index is None or op.spec.floor is None or "bridge" in op.labels or index >= op.spec.floor.value:
        return None
    return f"{Family8(op.spec.floor.value).name}; this target is {index.name}"


def _findings(op: Op, chip: Facts, route: str) -> tuple[PlacementFinding, ...]:
    """What the validator of an op says. Alike ops are asked about once."""
    key = _Alike(op)
    return _asked(key, chip, route)


class _Alike:
    """An op by what its layer depends on: kind, attributes and the types of its operands. It is kept with the answer,
    and must not keep the op's module alive: the op is let go once it has been asked about."""

    __slots__ = ("key", "op")

    def __init__(self, op: Op) -> None:
        self.op: Op | None = op
        self.key = op.kind, tuple(op.attrs.items()), tuple(operand.type for operand in op.operands)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Alike) and self.key == other.key


@lru_cache(maxsize=65536)
def _asked(alike: _Alike, chip: Facts, route: str) -> tuple[PlacementFinding, ...]:
    op, alike.op = alike.op, None
    assert op is not None
    query = query_of_op(op)
    return () if query is None else validated(query, chip, route)

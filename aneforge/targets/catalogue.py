"""The 187-op model-language matrix as questions: is it native there, since when, what is on this chip."""

from __future__ import annotations

from typing import Any

from aneforge.errors import UnknownNameError, nearest
from aneforge.targets import store
from aneforge.targets.evidence import fact
from aneforge.targets.families import MIN_FAMILY, Family
from aneforge.targets.names import target
from aneforge.targets.ops import lowered_to, mil_row, op_routes

__all__ = ["device_status", "is_native", "min_native_family", "op_info", "ops_on", "walled_everywhere"]

STATUSES = ("native", "bridge", "gated", "none")
_TIERS = tuple(family for family in Family if family >= MIN_FAMILY)


def _row(name: str) -> Any:
    row = mil_row(name)
    if row is None:
        names = [each["mil"] for each in store.load("ops")["mil_matrix"]]
        near = ", ".join(nearest(str(name), names)) or "conv, matmul, softmax"
        raise UnknownNameError(f"the op matrix has no {name!r}; nearest: {near}")
    return row


def _family(chip: int | str) -> Family:
    found = target(chip)
    if found.family5 is None:
        raise UnknownNameError(f"{found.name} is in no family, so the op matrix has no column for it")
    return found.family5


def op_info(name: str) -> dict[str, Any]:
    """Everything the matrix and the backend tables hold on one op, with evidence."""
    row = _row(name)
    evidence = store.load("ops")["evidence"]
    lowered = lowered_to(name)
    return {
        "op": name,
        "class": row["class"],
        "status": {
            family.name: fact({**row, "v": row[family.name]}, evidence, family=family.name).to_json()
            for family in _TIERS
        },
        "min_native_family": min_native_family(name),
        "routes": op_routes(name).to_json(),
        "backend": None if lowered is None else lowered.to_json(),
        "kernel_class": row["kernel_class"],
    }


def device_status(name: str, chip: int | str = "m1") -> str:
    """``native``, ``bridge``, ``gated`` or ``none`` for one op on one chip; nothing runs below A13."""
    row, family = _row(name), _family(chip)
    return "none" if family < MIN_FAMILY else row[family.name]


def is_native(op: str, chip: int | str = "m1") -> bool:
    """Whether the op runs as it is on the chip's engine."""
    return device_status(op, chip) == "native"


def ops_on(chip: int | str = "m1", status: str = "native") -> list[str]:
    """All ops of the matrix with one status on a chip, sorted."""
    if status not in STATUSES:
        raise UnknownNameError(f"no status {status!r}: it is one of {', '.join(STATUSES)}")
    return sorted(row["mil"] for row in store.load("ops")["mil_matrix"] if device_status(row["mil"], chip) == status)


def min_native_family(op: str) -> int | None:
    """The oldest five-tier family where the op is native; ``None`` where there is none."""
    row = _row(op)
    return next((int(family) for family in _TIERS if row[family.name] == "native"), None)


def walled_everywhere() -> list[str]:
    """Ops with no path on any family: they are rewritten in the graph or run on the host."""
    rows = store.load("ops")["mil_matrix"]
    return sorted(row["mil"] for row in rows if all(row[family.name] == "none" for family in _TIERS))

"""Questions about one op by its name: whether it is native on a chip, since which family, and what a chip has.

Every answer about what runs is :func:`aneforge.chips.ops.op_status`, which the gate and the compiler use too. The
published 187-op matrix is shown beside it in its own words (``native``, ``bridge``, ``gated``, ``none``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aneforge.chips import store
from aneforge.chips.evidence import fact
from aneforge.chips.families import MIN_FAMILY, Family, as_family
from aneforge.chips.names import target
from aneforge.chips.ops import lowered_to, mil_row, op_routes, op_status, user_names
from aneforge.errors import UnknownNameError

STATUSES = ("native", "decompose", "reject")
PUBLISHED = ("bridge", "gated", "none")
_KEYS = {"m1": "A13", "m2": "A14", "m3": "A15", "m4_m5": "A16"}
_WORDS = {"none": "walled", "gated": "walled"}
_TIERS = tuple(family for family in Family if family >= MIN_FAMILY)


def _published(name: str) -> Mapping[str, Any] | None:
    """The row of the published matrix, by the op's own name or by the name that it is a synonym of."""
    row = mil_row(name)
    synonym = store.load("vocabulary")["synonyms"].get(name)
    return mil_row(synonym) if row is None and synonym is not None else row


def _family(chip: int | str) -> Family:
    if isinstance(chip, int):
        return as_family(chip)
    chip_target = target(chip)
    if chip_target.family5 is None:
        raise UnknownNameError(
            f"{chip_target.name}: the target has no family, so the status of an op is not known for it"
        )
    return chip_target.family5


def op_info(name: str) -> dict[str, Any]:
    """Everything that is known of one op, by its ``name``, with evidence.

    ``status`` is ``op_status`` by family, ``published`` the row of the 187-op matrix (None where it has none),
    ``routes`` the answer by conversion and by direct authoring, ``backend`` the engine's own op. ``m1``, ``m2``,
    ``m3`` and ``m4_m5`` are that matrix in three words: ``native``, ``bridge``, or ``walled`` where there is no path.
    """
    routes = op_routes(name)
    row = _published(name)
    evidence = store.load("ops")["evidence"]
    lowered = lowered_to(name)
    # Existing code reads one word for each generation: none and gated are one there.
    words = {} if row is None else {key: _WORDS.get(row[label], row[label]) for key, label in _KEYS.items()}
    return {
        "op": name,
        "class": None if row is None else row["class"],
        **{key: words.get(key) for key in _KEYS},
        "status": {family.name: routes.main[family].to_json() for family in _TIERS},
        "published": None
        if row is None
        else {
            family.name: fact({**row, "v": row[family.name]}, evidence, family=family.name).to_json()
            for family in _TIERS
        },
        "min_native_family": min_native_family(name),
        "routes": routes.to_json(),
        "backend": None if lowered is None else lowered.to_json(),
        "kernel_class": None if row is None else row["kernel_class"],
    }


def device_status(name: str, chip: int | str = "m1") -> str:
    """The word of the published matrix for one op on one chip: ``native``, ``bridge``, ``gated`` or ``none``.

    ``name`` is that of the op. Nothing converted runs below A13. ``op_status`` says what becomes of the op; it also
    knows ops that the matrix lacks.
    """
    op_routes(name)
    row, family = _published(name), _family(chip)
    if row is None:
        raise UnknownNameError(f"{name}: the published matrix has no row for this op; use op_status({name!r}, family)")
    return "none" if family < MIN_FAMILY else row[family.name]


def is_native(op: str, chip: int | str = "m1") -> bool:
    """Whether ``op_status`` is ``native`` for the op on the chip: it runs as it is on the engine."""
    return op_status(op, _family(chip)) == "native"


def ops_on(chip: int | str = "m1", status: str = "native") -> list[str]:
    """All ops of the catalogue with one status on a chip, sorted.

    ``native``, ``decompose`` and ``reject`` are what ``op_status`` says; ``bridge``, ``gated`` and ``none`` are words
    of the published matrix (a bridge is a native op that only direct authoring reaches).
    """
    family = _family(chip)
    if status in STATUSES:
        return sorted(name for name in user_names() if op_status(name, family) == status)
    if status in PUBLISHED:
        rows = store.load("ops")["mil_matrix"]
        return sorted(row["mil"] for row in rows if device_status(row["mil"], family) == status)
    raise UnknownNameError(f"status {status!r} is unknown; choose one: {', '.join((*STATUSES, *PUBLISHED))}")


def min_native_family(op: str) -> int | None:
    """The oldest five-tier family where ``op_status`` of ``op`` is ``native``; None where there is none."""
    op_routes(op)
    return next((int(family) for family in _TIERS if op_status(op, family) == "native"), None)


def walled_everywhere() -> list[str]:
    """Ops that the published matrix gives no path on any family: they are rewritten in the graph or run on the
    host."""
    rows = store.load("ops")["mil_matrix"]
    return sorted(row["mil"] for row in rows if all(row[family.name] == "none" for family in _TIERS))


class _Catalog(Mapping[str, dict[str, Any]]):
    """Every op by name; an entry is built when it is read."""

    def __getitem__(self, name: str) -> dict[str, Any]:
        if name not in user_names():
            raise KeyError(name)
        return op_info(name)

    def __iter__(self) -> Iterator[str]:
        return iter(user_names())

    def __len__(self) -> int:
        return len(user_names())

    def __contains__(self, name: object) -> bool:
        return name in user_names()

    def __repr__(self) -> str:
        return f"<catalogue of {len(self)} ops>"


OP_CATALOG: Mapping[str, dict[str, Any]] = _Catalog()
"""The result of :func:`op_info`, by op."""

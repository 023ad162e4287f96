"""The model against measurements: ``predict`` for one row of the silicon schema, and figures over many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum
from pathlib import Path
from statistics import median
from typing import Any, TypedDict

import numpy as np

from aneforge.chips import store
from aneforge.cost.calls import CONVERTED, SCOPES, Ports, call_us, short_rows
from aneforge.cost.constants import Basis, basis_of
from aneforge.cost.layers import Surroundings, columns_of, times_of
from aneforge.cost.work import RowError, Work, more_calls, work_of_row
from aneforge.documents import Misshapen, read_json, typed
from aneforge.errors import AneforgeError

NOT_FITTED = frozenset(
    ("host_limited", "slow_stream", "cold_clock", "host_mixed", "noisy", "cpu_tail", "cpu_fallback?")
)
"""Rows whose quality says that something else than the engine was measured."""
_APART = 1.1


def predict(row: Mapping[str, Any]) -> float:
    """Microseconds for a row: a function of chip, layers, encodings, inputs, outputs and scope, and of nothing that
    was measured. An application's loop (scope ``app``) is taken as a host call."""
    return _predicted(row, work_of_row(row), _basis(row))


def _basis(row: Mapping[str, Any]) -> Basis:
    chip, target = row.get("chip"), row.get("target")
    if isinstance(chip, str) and chip in store.load("products")["products"]:
        return basis_of(chip)
    name = target or chip
    if not isinstance(name, str):
        raise RowError("row: it needs its chip (M5 Pro) or its target (h17s).")
    return basis_of(name)


def _predicted(row: Mapping[str, Any], layers: Sequence[Work], basis: Basis) -> float:
    scope = scope_of(row)
    times = times_of(columns_of(layers), basis.constants, surroundings_of(row, layers, scope))
    return float(call_us(scope, times.us.sum(), ports_of(row), basis.constants, calls_of(row, layers)))


def scope_of(row: Mapping[str, Any]) -> str:
    """What a row's time covers; the schema tells Core AI's calls by their runtime."""
    scope = row.get("scope", "host_call")
    if scope == "app":
        return "host_call"
    if scope == "direct_call" and str((row.get("host") or {}).get("runtime", "")).startswith("MPSGraph"):
        return "metal_call"
    if scope == "coreml_call" and "Core AI" in str((row.get("host") or {}).get("runtime", "")):
        return "coreai_call"
    if scope not in SCOPES:
        raise RowError(f"scope: {scope!r} is not a scope; choose one: {', '.join(SCOPES)}, app.")
    return scope


def calls_of(row: Mapping[str, Any], layers: Sequence[Work]) -> int:
    """How many calls a row's time holds."""
    return int(row.get("dispatches") or 1) + more_calls(scope_of(row), layers)


def surroundings_of(row: Mapping[str, Any], layers: Sequence[Work], scope: str) -> Surroundings:
    """A call's own copies hide the way of single planar ops."""
    resident = np.array([scope == "host_call" and not work.macs for work in layers], bool)
    return Surroundings(
        resident,
        np.array(scope == "slope"),
        np.array(int(row.get("engines_used") or 0)),
        np.array(scope in CONVERTED),
    )


def ports_of(row: Mapping[str, Any]) -> Ports:
    read, written = (_bytes(row, key, side) for key, side in (("in_bytes", "inputs"), ("out_bytes", "outputs")))
    shapes = (shape for side in ("inputs", "outputs") for shape in row.get(side) or () if shape)
    return Ports(read, written, *short_rows(shapes))


def _bytes(row: Mapping[str, Any], key: str, side: str) -> float:
    stated = row.get(key)
    if stated is not None:
        return float(stated)
    total = 0.0
    for shape in row.get(side) or ():
        size = 2.0
        for extent in shape:
            size *= extent
        total += size
    return total


@dataclass(frozen=True)
class Figures:
    """How far predictions are off: relative errors of all rows, in per cent but for the last two."""

    rows: int
    median: float
    mape: float
    p90: float
    factor: float
    """The 90th percentile of the larger over the smaller."""
    bias: float
    rank: float
    """Spearman's correlation within sources, weighted by their rows."""
    pairs: tuple[int, int]
    """Of so many pairs with equal FLOPs and times that differ, how many are in the right order."""

    def to_json(self) -> dict[str, Any]:
        numbers = {key: round(value, 4) for key, value in self.__dict__.items() if key != "pairs"}
        return {**numbers, "pairs": list(self.pairs)}


def figures(rows: Sequence[Mapping[str, Any]], predicted: Callable[[Mapping[str, Any]], float] = predict) -> Figures:
    if not rows:
        raise AneforgeError("rows: the list is empty; a comparison needs at least one row.")
    pairs = [(predicted(row), float(row["latency_us"])) for row in rows]
    errors = [predicted_us / measured - 1 for predicted_us, measured in pairs]
    sizes = sorted(abs(error) for error in errors)
    factors = sorted(max(predicted_us / measured, measured / predicted_us) for predicted_us, measured in pairs)
    place = min(len(sizes) - 1, int(0.9 * len(sizes)))
    return Figures(
        len(rows),
        100 * median(sizes),
        100 * fsum(sizes) / len(sizes),
        100 * sizes[place],
        factors[place],
        100 * median(errors),
        _rank_within_sources(rows, pairs),
        equal_flop_pairs(rows, pairs),
    )


def equal_flop_pairs(rows: Sequence[Mapping[str, Any]], times: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """Pairs of one source, chip and scope with the same FLOPs, measured at least a tenth apart: in order, and all."""
    groups: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for row, time in zip(rows, times, strict=True):
        if row.get("flops"):
            groups.setdefault((row.get("source"), row.get("chip"), row.get("scope"), row["flops"]), []).append(time)
    right = total = 0
    for members in groups.values():
        for (one, first), (two, second) in combinations(members, 2):
            if max(first, second) >= _APART * min(first, second):
                total += 1
                right += (one - two) * (first - second) > 0
    return right, total


def _rank_within_sources(rows: Sequence[Mapping[str, Any]], pairs: Sequence[tuple[float, float]]) -> float:
    groups: dict[Any, list[tuple[float, float]]] = {}
    for row, pair in zip(rows, pairs, strict=True):
        groups.setdefault(row.get("source"), []).append(pair)
    large = [group for group in groups.values() if len(group) >= 4]
    total = sum(len(group) for group in large)
    return fsum(len(group) * _spearman(group) for group in large) / total if total else 1.0


def _spearman(pairs: Sequence[tuple[float, float]]) -> float:
    one, two = (_ranks([pair[i] for pair in pairs]) for i in (0, 1))
    middle = (len(pairs) - 1) / 2
    top = fsum((a - middle) * (b - middle) for a, b in zip(one, two, strict=True))
    scale = fsum((a - middle) ** 2 for a in one) * fsum((b - middle) ** 2 for b in two)
    return top / scale**0.5 if scale else 1.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in range(first, last + 1):
            ranks[order[place]] = (first + last) / 2
        first = last + 1
    return ranks


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a file in the silicon schema."""
    file = Path(path)
    document = read_json(file)
    rows = document.get("rows") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise AneforgeError(f"{file.name}: expected an object with a list of 'rows', as in train.json.")
    bad = next((i for i, row in enumerate(rows) if not _is_time(row.get("latency_us"))), None)
    if bad is not None:
        raise AneforgeError(f"{file.name}: row {bad} has no latency_us to compare with. Add it, in microseconds.")
    try:
        typed(list[_TimedRow], rows, "rows")
    except Misshapen as error:
        raise AneforgeError(f"{file.name}: {error}") from None
    return rows


class _TimedRow(TypedDict, total=False):
    """What a row states besides its layers, which are checked where they are timed."""

    latency_us: float
    chip: str | None
    target: str | None
    scope: str | None
    source: str | None
    op_class: str | None
    quality: str | None
    inputs: list[list[int]] | None
    outputs: list[list[int]] | None
    in_bytes: float | None
    out_bytes: float | None
    dispatches: int | None
    engines_used: int | None
    flops: float | None


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def by(rows: Iterable[Mapping[str, Any]], key: str) -> dict[str, list[Mapping[str, Any]]]:
    """Rows grouped by a field, the largest group first."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row.get(key) or "not named"), []).append(row)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))

"""Between which numbers the inputs of a graph lie: what a user says, or what calibration data show."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.compiler.compile import resolve_target
from aneforge.errors import AneforgeError, ArgumentError, nearest
from aneforge.graph.graph import Graph
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.tensor import Tensor
from aneforge.numerics.ranges import ANYTHING, OPEN, Value, as_stored, handed_on, promised_values
from aneforge.sim.inputs import samples_of
from aneforge.study.partition import Partition
from aneforge.study.regions import ENGINE, HOST, Region
from aneforge.study.runner import RegionValues
from aneforge.study.study import Study

Ranges = Mapping[str, Any] | Sequence[Any] | float | int | None


def ranges_of(
    graph: Graph, chips: Sequence[Target], max_abs: float | None = None, inputs: Any = None, ranges: Ranges = None
) -> Ranges:
    """The ranges that a caller gives in one of three ways: a bound on every input, data to run, or ranges by name."""
    options = {"max_abs": max_abs, "inputs": inputs, "ranges": ranges}
    chosen = [name for name, value in options.items() if value is not None]
    if len(chosen) > 1:
        raise ArgumentError(chosen[0], f"{chosen[1]} also says what the ranges are; choose one.")
    if inputs is not None:
        return calibrate(graph, chips, list(samples_of(graph, inputs)))
    return max_abs if ranges is None else ranges


def ranges_note(max_abs: float | None, inputs: Any, ranges: Ranges) -> str:
    """What a report rests on, in a sentence; empty where the caller said it."""
    if inputs is not None:
        return "ranges are those of a run on the data, widened by half: this holds for data like these"
    if max_abs is None and ranges is None:
        return "ranges are what the inputs promise (max_abs), else all of fp16; --max-abs or --input narrows them"
    return ""


def known_values(graph: Graph, ranges: Ranges) -> dict[str, Value]:
    """What is known of each input of a graph, and of the nodes that ``ranges`` names, by name.

    ``ranges`` is one bound on all magnitudes, or for each input (by name, or in order) a bound, a pair of ends, or an
    array of data whose ends are taken. Where it is silent, what the input itself promises (``max_abs``) counts;
    without any of that an input may be any finite fp16 number.
    """
    names = graph.names()
    promises = promised_values(graph, names)
    if isinstance(ranges, (int, float)) and not isinstance(ranges, bool):
        return {name: _value(name, ranges) for name in promises}
    named = {} if ranges is None else _by_name(list(promises), ranges)
    missing = [name for name, value in promises.items() if name not in named and value.is_open]
    if missing and ranges is not None:
        raise AneforgeError(
            f"{missing[0]}: this input has no range. Give each of {', '.join(promises)} a bound on its magnitude, a "
            "pair (low, high) or data, or give one bound for all."
        )
    known = set(names.values())
    unknown = [name for name in named if name not in known]
    if unknown:
        near = ", ".join(nearest(unknown[0], known)) or ", ".join(promises)
        raise AneforgeError(f"{unknown[0]}: not an input or a node; nearest: {near}.")
    return {**promises, **{name: _value(name, range_given) for name, range_given in named.items()}}


def _by_name(inputs: Sequence[str], ranges: Any) -> dict[str, Any]:
    if isinstance(ranges, Mapping):
        return dict(ranges)
    listed = [ranges] if isinstance(ranges, np.ndarray) else list(ranges)
    if len(listed) != len(inputs):
        raise AneforgeError(
            f"ranges: {len(listed)} were given for {len(inputs)} inputs. Give one each: {', '.join(inputs)}."
        )
    return dict(zip(inputs, listed, strict=True))


def calibrate(
    out: Tensor | Sequence[Tensor] | Graph,
    targets: Sequence[str | int | Target],
    samples: Sequence[Mapping[str, Any]],
    margin: float = 1.5,
) -> dict[str, tuple[float, float]]:
    """Ranges of inputs and nodes as samples show them on some chips (``targets``), wider by a margin.

    What rests on them holds for data like these, not for all data: that is what makes deep graphs say something. A
    node that was not finite on one of the chips has no range: what can become of it follows from its inputs alone.
    """
    if not samples or not targets:
        raise AneforgeError("samples: calibrate needs at least one target and one sample (inputs by name).")
    if not margin >= 1:
        raise AneforgeError(f"margin: {margin!r} is not a factor of 1 or more.")
    seen: dict[str, tuple[float, float]] = {}
    lost: set[str] = set()
    for chip in targets:
        runner = Study(out, resolve_target(chip)).partition().runner()
        for sample in samples:
            for name, array in sample.items():
                _widen(seen, name, np.asarray(array, np.float64))
            values = RegionValues(runner.partition, runner.run(dict(sample), trace=True))
            for node in (node for node in values if node not in sample):
                numbers = values[node].astype(np.float64)
                _widen(seen, node, numbers)
                lost |= set() if np.isfinite(numbers).all() else {node}
    return {name: _with_margin(*ends, margin) for name, ends in seen.items() if name not in lost}


def _widen(seen: dict[str, tuple[float, float]], name: str, numbers: np.ndarray) -> None:
    finite = numbers[np.isfinite(numbers)]
    if finite.size:
        low, high = seen.get(name, (math.inf, -math.inf))
        seen[name] = min(low, float(finite.min())), max(high, float(finite.max()))


def _with_margin(low: float, high: float, margin: float) -> tuple[float, float]:
    middle, half = (low + high) / 2, (high - low) / 2
    reach = max(half * margin, abs(middle) * (margin - 1))
    return max(middle - reach, -FP16_MAX), min(middle + reach, FP16_MAX)


def _value(name: str, bounds: Any) -> Value:
    if isinstance(bounds, Value):
        return bounds
    ends = np.asarray(bounds, np.float64)
    if ends.ndim == 0:
        if ends < 0:
            raise AneforgeError(f"{name}: {bounds!r} is not a bound on a magnitude; give 0 or more.")
        ends = np.array([-float(ends), float(ends)])
    if not ends.size or np.isnan(ends).any():
        raise AneforgeError(f"{name}: {bounds!r} is not a range. Give a magnitude, a pair (low, high) or data.")
    low, high = float(ends.min()), float(ends.max())
    if isinstance(bounds, (tuple, list)) and len(bounds) == 2 and np.ndim(bounds[0]) == 0 and bounds[0] > bounds[1]:
        raise AneforgeError(
            f"{name}: the range from {bounds[0]!r} to {bounds[1]!r} runs backwards. Give the low end first."
        )
    if not math.isfinite(low) or not math.isfinite(high) or max(-low, high) > FP16_MAX:
        return ANYTHING
    return as_stored(low, high)


# A model that is only in part on the engine: each region of the engine as a graph, with what is known of its inputs.


def region_graphs(split: Partition, ranges: Ranges) -> Iterator[tuple[Region, Graph, dict[str, Value]]]:
    """Every engine region with its graph and the ranges of its inputs and nodes, by name."""
    given = known_values(split.graph, ranges)
    handed = handed_on(node for region in split.regions if region.device == HOST for node in region.nodes)
    for region in split.regions:
        if region.device != ENGINE:
            continue
        graph = split.graph_of(region.number)
        known = set(graph.names().values())
        by_name = {name: value for name, value in given.items() if name in known}
        for port in region.inputs:
            name = split.names[port.uid]
            if name in known:
                by_name.setdefault(name, handed.get(port.uid, OPEN))
        yield region, graph, by_name


def behind(split: Partition, number: int, others: Sequence[int]) -> bool:
    """Whether a region reads, directly or through further regions, what one of some others gives."""
    made_by = {output.uid: region.number for region in split.regions for output in region.outputs}
    wanted, seen, waiting = set(others), {number}, [number]
    while waiting:
        for port in split.regions[waiting.pop()].inputs:
            source = made_by.get(port.uid)
            if source is not None and source not in seen:
                if source in wanted:
                    return True
                seen.add(source)
                waiting.append(source)
    return False

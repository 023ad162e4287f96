"""Public probes: small programs whose results somebody read off a chip, beside what the simulator gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge import text
from aneforge.chips.chip import Target
from aneforge.chips.names import target as find_target
from aneforge.compiler.refusal import CompileError
from aneforge.formats.arguments import Chips, chips_of
from aneforge.graph.ops.contraction import conv
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor
from aneforge.progress import Progress
from aneforge.study.model import build
from aneforge.text import ByChip


@dataclass(frozen=True)
class Probe:
    """One question to the engine, and the answers that were published: chips to value."""

    name: str
    fact: str
    measured: dict[tuple[str, ...], float]
    ask: Callable[[Target], float]
    digits: int = 12
    """How many significant digits are published."""


@dataclass(frozen=True)
class ProbeReading:
    """A probe on one target."""

    probe: Probe
    simulated: float
    measured: float | None
    chips: tuple[str, ...]

    @property
    def holds(self) -> bool | None:
        """Whether the simulated value is the measured one; None where nobody has measured this generation."""
        if self.measured is None:
            return None
        return f"{self.simulated:.{self.probe.digits}g}" == f"{self.measured:.{self.probe.digits}g}"

    def to_json(self) -> dict[str, Any]:
        return {
            "probe": self.probe.name,
            "fact": self.probe.fact,
            "simulated": self.simulated,
            "measured": self.measured,
            "chips": list(self.chips),
            "holds": self.holds,
        }


@dataclass(frozen=True)
class ChipProbes:
    """Every probe on one target."""

    target: Target
    readings: tuple[ProbeReading, ...]

    def to_json(self) -> dict[str, Any]:
        return {"target": self.target.name, "probes": [reading.to_json() for reading in self.readings]}

    def __str__(self) -> str:
        rows = [
            (
                reading.probe.name,
                reading.probe.fact,
                _number(reading.simulated),
                _number(reading.measured),
                {True: "yes", False: "no", None: "not measured"}[reading.holds],
                ", ".join(reading.chips) or "-",
            )
            for reading in self.readings
        ]
        known = [reading for reading in self.readings if reading.holds is not None]
        table = text.columns(("probe", "fact", "simulated", "measured", "holds", "measured on"), rows)
        total = (
            f"{sum(bool(reading.holds) for reading in known)} of {len(known)} measured probes hold on this generation"
        )
        return f"{self.target.name} ({', '.join(self.target.chips) or 'no product known'})\n{table}\n\n{total}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.13g}"


def readings(target: Target) -> list[ProbeReading]:
    """Every probe on a target, with what was measured on chips of its generation."""
    results = []
    for probe in PROBES:
        chips, value = next(
            ((chips, value) for chips, value in probe.measured.items() if _same_generation(chips, target)), ((), None)
        )
        results.append(ProbeReading(probe, probe.ask(target), value, chips))
    return results


class ProbeReport(ByChip[ChipProbes]):
    """The probes of each chip; ``refused`` says why a chip has no program for them."""

    def __init__(self, results: Mapping[str, ChipProbes], refused: Mapping[str, str]) -> None:
        super().__init__(results)
        self.refused = dict(refused)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "refused": self.refused}

    def __str__(self) -> str:
        refusals = [f"{name}: no program: {why}" for name, why in self.refused.items()]
        return "\n\n".join([*map(str, self.values()), *refusals])


def probe(target: Chips = None, progress: Progress | None = None) -> ProbeReport:
    """Simulate the public probes of the engine's arithmetic on each chip, beside what was read off real chips.

    ``progress`` hears how many chips are done, of how many, and which one is next.
    """
    results: dict[str, ChipProbes] = {}
    refused: dict[str, str] = {}
    chips = chips_of(target)
    for number, (name, chip) in enumerate(chips.items()):
        if progress is not None:
            progress(number, len(chips), f"probing {name}")
        try:
            results[name] = ChipProbes(chip, tuple(readings(chip)))
        except CompileError as error:
            refused[name] = str(error)
    return ProbeReport(results, refused)


def _same_generation(chips: tuple[str, ...], target: Target) -> bool:
    return any(find_target(chip).td_generation == target.td_generation for chip in chips)


def _run(out: Tensor, array: np.ndarray, target: Target) -> np.ndarray:
    return build(out, target)(np.asarray(array, np.float64))


def _dot(*terms: float) -> Callable[[Target], float]:
    """A row of numbers times ones."""

    def ask(target: Target) -> float:
        row = graph_input((1, len(terms)), name="x")
        return float(_run(row.linear(np.ones((1, len(terms)))), np.array([terms]), target)[0, 0])

    return ask


def _units(value: float, weight: float) -> Callable[[Target], float]:
    """One product, in steps of the accumulator."""

    def ask(target: Target) -> float:
        row = graph_input((1, 2), name="x")
        return float(_run(row.linear(np.array([[weight, 0.0]])), np.array([[value, 0.0]]), target)[0, 0]) * 2.0**16

    return ask


def _added(one: float, two: float) -> Callable[[Target], float]:
    """Two numbers of one row, cut apart and added."""

    def ask(target: Target) -> float:
        row = graph_input((1, 2, 1, 1), name="x")
        out = row.slice_by_size([0, 0, 0, 0], [1, 1, 1, 1]) + row.slice_by_size([0, 1, 0, 0], [1, 1, 1, 1])
        return float(_run(out, np.array([one, two]).reshape(1, 2, 1, 1), target)[0, 0, 0, 0])

    return ask


def _triples(size: float) -> Callable[[Target], float]:
    return _dot(*[size, -size, 1.0] * 16)


def _gemm(size: int) -> Callable[[Target], float]:
    """The relative error of a seeded product: its digits are a fingerprint of the arithmetic."""

    def ask(target: Target) -> float:
        rng = np.random.default_rng(0)
        root = np.float32(np.sqrt(size))
        x, weight = (rng.standard_normal((size, size)).astype(np.float32) / root for _ in range(2))
        rows = min(size, 256)
        result = _run(graph_input((rows, size), name="x").linear(weight), x[:rows], target)
        return _relative(result, (x.astype(np.float64) @ weight.astype(np.float64).T)[:rows])

    return ask


def _convolution(target: Target) -> float:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((8, 64, 64, 64)).astype(np.float32)[:1]
    weight = rng.standard_normal((64, 64, 3, 3)).astype(np.float32) * np.sqrt(2.0 / (9 * 64))
    padded = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    columns = np.stack([padded[:, i : i + 64, j : j + 64] for i in range(3) for j in range(3)], 1)
    want = weight.reshape(64, -1).astype(np.float64) @ columns.reshape(64 * 9, -1).astype(np.float64)
    result = _run(conv(graph_input(x.shape, name="x"), weight, pad=1), x, target)
    return _relative(result, want.reshape(1, 64, 64, 64))


def _relative(result: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(result.astype(np.float64) - want) / np.linalg.norm(want))


def _sum_to(total: int) -> Callable[[Target], float]:
    """Eight whole numbers reduced to a total."""

    def ask(target: Target) -> float:
        parts = np.full(8, total // 8, np.float64)
        parts[: total % 8] += 1
        return float(_run(graph_input((8,), name="x").reshape(1, 8).sum(1), parts, target)[0, 0])

    return ask


def _slice(value: float) -> Callable[[Target], float]:
    """A width slice that begins at one, read where the value lies."""

    def ask(target: Target) -> float:
        data = np.zeros((1, 1, 1, 8))
        data[..., 4] = value
        out = graph_input((1, 1, 1, 8), name="x").slice_by_size([0, 0, 0, 1], [1, 1, 1, 7])
        return float(_run(out, data, target)[0, 0, 0, 3])

    return ask


def _one(function: Callable[[Tensor], Tensor], value: float) -> Callable[[Target], float]:
    def ask(target: Target) -> float:
        return float(_run(function(graph_input((1, 1), name="x")), np.array([[value]]), target)[0, 0])

    return ask


def _one_channel(value: float) -> Callable[[Target], float]:
    def ask(target: Target) -> float:
        out = conv(graph_input((1, 1, 1, 2), name="x"), np.ones((1, 1, 1, 1)))
        return float(_run(out, np.full((1, 1, 1, 2), value), target)[0, 0, 0, 0])

    return ask


_INF = float("inf")
_ALL = ("M1", "M1 Max", "M2 Pro", "M4", "M5", "M5 Pro", "M6")
_PRODUCTS = ("M1", "M1 Max", "M2 Pro", "M5", "M5 Pro")

PROBES: tuple[Probe, ...] = (
    Probe("error of a seeded 512 product", "N55", {_PRODUCTS: 0.00257800397023792}, _gemm(512)),
    Probe("error of a seeded 1024 product", "N55", {_PRODUCTS: 0.005528352999597525}, _gemm(1024)),
    Probe(
        "error of a seeded 3 x 3 convolution",
        "N56",
        {("M1", "M1 Max"): 0.0003671660721200675, ("M5",): 0.0005162338465671137},
        _convolution,
    ),
    Probe("4096 and 1024 ones", "N08", {("M1",): 5116}, _dot(4096.0, *[1.0] * 1024)),
    Probe("[+1024, -1024, +1] x 16", "N09", {("M1",): 16}, _triples(1024)),
    Probe("[+4090, -4090, +1] x 16", "N09", {("M1",): 16}, _triples(4090)),
    Probe("[+4096, -4096, +1] x 16", "N09", {("M1",): 4}, _triples(4096)),
    Probe("[+30000, -30000, +1] x 16", "N09", {("M1",): 4}, _triples(30000)),
    Probe("2048, 1 and -2048", "N10", {("M4", "M6"): 1}, _dot(2048.0, 1.0, -2048.0)),
    Probe("2048 + 1 in the accumulator", "N14", {("M4", "M6"): 2050}, _dot(2048.0, 1.0)),
    Probe("4096 + 2 in the accumulator", "N14", {("M4", "M6"): 4100}, _dot(4096.0, 2.0)),
    Probe("1.5 * 2^-13 times 1/8, in 2^-16", "N11", {("M6",): 2}, _units(1.5 * 2.0**-13, 0.125)),
    Probe("1.99 * 2^-3 times 1.99 * 2^-14, in 2^-16", "N11", {("M6",): 0}, _units(1.99 * 2.0**-3, 1.99 * 2.0**-14)),
    Probe("2048 + 1, elementwise", "N47", {("M6",): 2050}, _added(2048.0, 1.0)),
    Probe("65504 + 0, elementwise", "N47", {("M6",): 65504}, _added(65504.0, 0.0)),
    Probe("eight numbers that sum to 2049", "N15", {_ALL[:6]: 2050}, _sum_to(2049)),
    Probe("32752 in the accumulator", "N04", {("M1", "M4", "M6"): 32752}, _dot(32752.0)),
    Probe("16384 + 16384 - 16384", "N04", {("M1", "M4", "M6"): _INF}, _dot(16384.0, 16384.0, -16384.0)),
    Probe("60000 through one channel of a 1 x 1", "N06", {("M1",): 60000}, _one_channel(60000)),
    Probe("32768 through one channel of a 1 x 1", "N06", {("M4", "M6"): _INF}, _one_channel(32768)),
    Probe("4094 through a width slice", "N18", {_ALL[:3]: 4094, _ALL[3:6]: 4094}, _slice(4094)),
    Probe("4096 through a width slice", "N18", {_ALL[:3]: _INF, _ALL[3:6]: 4096}, _slice(4096)),
    Probe("square of 256", "N30", {("M1", "M6"): _INF}, _one(lambda x: x.square(), 256.0)),
    Probe("exp of 11.1", "N29", {("M1",): _INF}, _one(lambda x: x.exp(), 11.1)),
    Probe("log of 0", "N43", {("M1",): -45440}, _one(lambda x: x.log(0.0), 0.0)),
    Probe("softplus of infinity", "N43", {("M1",): 0}, _one(lambda x: x.softplus(), _INF)),
    Probe("softsign of infinity", "N43", {("M1",): 0}, _one(lambda x: x.softsign(), _INF)),
    Probe("sigmoid of NaN", "N31", {("M1",): 1}, _one(lambda x: x.sigmoid(), float("nan"))),
    Probe("infinity less infinity", "N32", {("M1",): 0}, _one(lambda x: x - x, _INF)),
    Probe("reciprocal of -0", "N33", {("M1", "M4", "M6"): _INF}, _one(lambda x: x.inverse(0.0), -0.0)),
    Probe("relu of NaN", "N31", {("M1",): _INF}, _one(lambda x: x.relu(), float("nan"))),
    Probe("gelu of 0", "N84", {("M5 Pro",): -0.0007538795471191406}, _one(lambda x: x.gelu(), 0.0)),
)

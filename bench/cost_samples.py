"""The measurements that the cost model is fitted to and judged by, as samples that are timed all at once."""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import sketches

import aneforge as af
from aneforge.chips import store
from aneforge.chips.names import target as find_target
from aneforge.cost.calls import Constants, Ports, call_us
from aneforge.cost.constants import Physique, constants_by_law, physique_of, traits_of
from aneforge.cost.evaluate import NOT_FITTED, calls_of, ports_of, read_rows, scope_of, surroundings_of
from aneforge.cost.layers import Surroundings, columns_of, is_of_attention, times_of
from aneforge.cost.parts import host_band
from aneforge.cost.program import residents_of, work_of_program
from aneforge.cost.work import Work, work_of_row
from aneforge.errors import AneforgeError
from aneforge.study.placement import fixed_costs

BITS = {
    "lut2": 2,
    "lut4": 4,
    "lut6": 6,
    "lut8": 8,
    "int8": 8,
    "lut mixed 4.04 bit": 4.04,
    "sparse50": 9,
    "sparse75": 5,
}
"""Of a weight of a network whose weights are stored in fewer than 16."""
ENCODED = ("conv", "linear")


@dataclass(frozen=True)
class Sample:
    """One measurement and the work behind it."""

    id: str
    name: str
    chip: str
    target: str
    us: float
    family: str
    """Of a network its family, of a layer its kind of work."""
    source: str
    quality: str
    network: bool
    scope: str
    works: Sequence[Work] = field(repr=False)
    around: Surroundings = field(repr=False)
    steps: Sequence[int] = field(repr=False)
    """Layers of one step run side by side, and only the longest counts."""
    ports: Ports
    calls: int = 1
    host_us: float = 0.0
    """What is not on the engine: the middle of the host's band, and crossings."""
    regions: int = 1
    watts: float = 0.0
    row: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def collection(self) -> str:
        """``silicon`` (the first), ``second`` or ``third``."""
        return self.row["collection"]

    @property
    def machine(self) -> str:
        """The machine that was measured, as its source names it; else its chip."""
        return str((self.row.get("host") or {}).get("model") or self.row.get("device") or self.chip)

    @property
    def fitted(self) -> bool:
        """Whether the figure is certain enough, of the whole network, and the engine's alone."""
        return self.regions == 1 and self.quality != "C" and "chunk" not in self.name


DISPUTED = {
    "FTC": "reports of one board differ by up to six times",
    "SLP": "other work ran on the same machine",
    "EIL": "read second hand",
}
"""Sources whose figures their own notes or others doubt; the page of accuracy says how much they matter."""
LAYER_FILES = ("silicon/train.json", "second/latency.json", "third/latency.json")


_FASTEST = 1.25  # times what is announced: from caches on the chip, and clocks above the announced one


def impossible(row: Mapping[str, Any], works: Sequence[Work]) -> str:
    """Why no chip can have been so fast; empty where it can. The reason is printed, and the row is not fitted."""
    chip = physique_of(row["chip"])
    engines = int(store.load("products")["products"][row["chip"]].get("engines", 1))
    read = sum(work.weight_bytes * (1 if work.shared or work.zeros else work.repeat) for work in works)
    rate = read / row["latency_us"]
    if row["scope"] != "slope" and rate > _FASTEST * chip.memory:
        return f"{rate / 1e3:.0f} GB/s of weights from a memory of {chip.memory / 1e3:.0f}"
    macs = sum(work.repeat * work.macs * (1 - work.zeros) for work in works)
    most = 4 * engines * chip.macs * _FASTEST  # int8 in a Winograd form
    if macs / row["latency_us"] > most:
        return f"{2e-6 * macs / row['latency_us']:.0f} TOPS of an engine of {2e-6 * chip.macs * engines:.0f}"
    return ""


def layers(facts: Path) -> list[Sample]:
    """Single layers and short chains, of all collections."""
    samples = []
    for name in LAYER_FILES:
        for row in read_rows(facts / name):
            if row["quality"] in NOT_FITTED or row["workload"].startswith("native sdpa"):
                continue  # not the engine at speed; the native attention has published figures of its own
            works, scope = work_of_row(row), scope_of(row)
            if reason := impossible(row, works):
                print(f"{row['workload']} on {row['chip']} ({row['source']}): refused, {reason}", file=sys.stderr)
                continue
            samples.append(
                Sample(
                    row["id"], row["workload"], row["chip"], row["target"], row["latency_us"], row["op_class"],
                    row["source"], row["quality"], False, scope, works, surroundings_of(row, works, scope),
                    range(len(works)), ports_of(row), calls_of(row, works),
                    watts=float(row.get("ane_w") or 0.0), row={**row, "collection": name.partition("/")[0]},
                )
            )  # fmt: skip
    return samples


def key_of(row: Mapping[str, Any]) -> str:
    """The file name of a network: its constructor and the shapes of its inputs."""
    return hashlib.sha256(f"{row['constructor']} {json.dumps(row['inputs'])}".encode()).hexdigest()[:12]


NETWORK_FILES = ("silicon/models_train.json", "third/models.json")


def network_rows(facts: Path) -> list[dict[str, Any]]:
    """Whole networks that were timed on the engine, not on a GPU or by the default placement."""
    rows = [
        {**row, "collection": name.partition("/")[0]}
        for name in NETWORK_FILES
        if (facts / name).is_file()
        for row in json.loads((facts / name).read_text(encoding="utf-8"))["rows"]
    ]
    return [row for row in rows if row.get("engine", True) and row["constructor"]]


def _by_network(facts: Path) -> dict[str, list[dict[str, Any]]]:
    """The measurements of whole networks, those of one network together."""
    by_key: dict[str, list[dict[str, Any]]] = {}
    for row in network_rows(facts):
        if "pipeline" not in row["task"]:  # several networks and a scheduler
            by_key.setdefault(key_of(row), []).append(row)
    return by_key


def networks(facts: Path, folder: Path) -> Iterator[Sample]:
    """Whole networks that have been built: each is compiled once for all targets that somebody measured it on."""
    for key, rows in _by_network(facts).items():
        path = folder / f"{key}.sketch"
        if path.exists():
            yield from _of_network(sketches.read(path), rows)


def judged_networks(facts: Path, errors: Mapping[str, LeftOutErrors]) -> Iterator[Sample]:
    """The networks that were left out of a fit, as measured: to judge errors, nobody needs the work behind them."""
    nothing = Surroundings(*(np.zeros(0) for _ in range(4)))
    for rows in _by_network(facts).values():
        for row in rows:
            if row["id"] in errors:
                yield Sample(
                    row["id"], row["model"], row["chip"], row["target"], 1000 * row["latency_ms"], row["family"],
                    row["source"], row["quality"], True, "coreml_call", (), nothing, (), Ports(0, 0), row=row,
                )  # fmt: skip


def _of_network(graph: af.Graph, rows: Sequence[Mapping[str, Any]]) -> Iterator[Sample]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = af.partition(graph, sorted({row["target"] for row in rows}))
    for row in rows:
        try:
            yield _sample(splits[row["target"]], row)
        except AneforgeError as error:
            print(f"{row['model']} on {row['chip']}: {str(error).splitlines()[0]}")


def _sample(split: Any, row: Mapping[str, Any]) -> Sample:
    works: list[Work] = []
    resident: list[bool] = []
    steps: list[int] = []
    ports, calls = [], 0
    for program in split.programs.values():
        first = len(works)
        works += [encoded(work, row["weight_enc"], row.get("act_dtype")) for work in work_of_program(program)]
        resident += residents_of(program)
        numbers = {place: first + step[0] for step in program.steps for place in step}
        steps += [numbers.get(place, first + place) for place in range(len(program.layers))]
        ports.append(
            Ports.of([port.user_shape for port in program.inputs], [port.user_shape for port in program.outputs])
        )
        calls += max(1, len(program.segments))
    works, resident, steps = _together(works, resident, steps)
    return Sample(
        row["id"], row["model"], row["chip"], row["target"], 1000 * row["latency_ms"], row["family"], row["source"],
        row["quality"], True, "app_call" if row["scope"] == "app" else "coreml_call", works,
        Surroundings(np.array(resident, bool), np.array(False), np.array(0), np.array(True)), steps,
        Ports(*(sum(column) for column in zip(*ports, strict=True))), calls,
        _off_the_engine(split), len(split.regions), row=row,
    )  # fmt: skip


def _together(
    works: Sequence[Work], resident: Sequence[bool], steps: Sequence[int]
) -> tuple[list[Work], list[bool], list[int]]:
    """Layers that do the same, each in a step of its own, as one that is repeated: few are different."""
    alone = Counter(steps)
    counts = Counter(
        (work, stays) for work, stays, step in zip(works, resident, steps, strict=True) if alone[step] == 1
    )
    kept: list[tuple[Work, bool, int]] = []
    for work, stays, step in zip(works, resident, steps, strict=True):
        count = counts.pop((work, stays), 0) if alone[step] == 1 else 1
        if count:
            kept.append((replace(work, repeat=work.repeat * count), stays, step))
    return [each[0] for each in kept], [each[1] for each in kept], [each[2] for each in kept]


def _off_the_engine(split: Any) -> float:
    """The host's part, the middle of its band, and the changes of device."""
    host = sum(host_band(region.nodes).middle for region in split.regions if region.device == "host")
    return host + split.changes * fixed_costs()[0]["switch"]


def encoded(work: Work, name: str, activations: str | None = None) -> Work:
    """A layer with its weights stored as a row names it."""
    bits = BITS.get(name)
    if bits is None or work.kind not in ENCODED or not work.weight_bytes:
        return work
    form = "int8" if name == "int8" else "sparse" if name.startswith("sparse") else "palette"
    integers = form == "int8" and str(activations).startswith("int8")
    return replace(work, weight_bytes=work.weight_bytes * bits / 16, form=form, integers=integers)


class Timed:
    """Samples as columns: one evaluation times all of them, on all of their chips."""

    def __init__(self, rows: Sequence[Sample], chips: Sequence[str], stated: Mapping[str, float]) -> None:
        self.chips, self.stated = list(chips), dict(stated)
        self.work = columns_of([work for row in rows for work in row.works])
        counts = [len(row.works) for row in rows]
        row_of = np.repeat(np.arange(len(rows)), counts)
        self.chip_of_row = np.array([self.chips.index(row.chip) for row in rows], int)
        self.chip_of_layer = self.chip_of_row[row_of]
        self.around = Surroundings(
            *(
                np.concatenate([np.broadcast_to(row.around[i], len(row.works)) for row in rows])
                if rows
                else np.zeros(0)
                for i in range(4)
            )
        )
        steps = np.concatenate([np.asarray(row.steps, int) for row in rows]) if rows else np.zeros(0, int)
        self.order = np.lexsort((steps, row_of))
        ordered = np.stack([row_of[self.order], steps[self.order]])
        self.first = np.flatnonzero(np.r_[True, (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)])
        self.row_of_step = ordered[0, self.first]
        self.scope = np.array([row.scope for row in rows])
        self.ports = Ports(*(np.array([row.ports[i] for row in rows], float) for i in range(4)))
        self.calls = np.array([row.calls for row in rows])
        self.host_us = np.array([row.host_us for row in rows])
        self.physique = _stacked([physique_of(chip) for chip in self.chips])
        targets = [store.load("names")["products"][chip]["target"] for chip in self.chips]
        traits = [traits_of(find_target(target), chip) for target, chip in zip(targets, self.chips, strict=True)]
        self.traits = {name: np.array([each[name] for each in traits]) for name in traits[0]}

    def us(
        self,
        coefficients: Mapping[str, float],
        own: Mapping[str, np.ndarray],
        engine: np.ndarray | None = None,
    ) -> np.ndarray:
        """Microseconds of every sample, with factors of every chip; ``engine`` is that part of them, where it is
        known."""
        known, around = self._known(coefficients, own)
        return self._whole(self._engine(known) if engine is None else engine, around)

    def engine_us(self, coefficients: Mapping[str, float], own: Mapping[str, np.ndarray]) -> np.ndarray:
        """The engine's part of every sample."""
        return self._engine(self._known(coefficients, own)[0])

    def shares(self, coefficients: Mapping[str, float], own: Mapping[str, np.ndarray]) -> np.ndarray:
        """Of every sample the engine's share of the time and, of that, the share of attention: two columns."""
        known, around = self._known(coefficients, own)
        engine = self._engine(known)
        whole, attention = self._whole(engine, around), self._engine(known, is_of_attention(self.work))
        return np.clip(np.stack([engine, attention], axis=1) / whole[:, None], 0.0, 1.0)

    def _known(self, coefficients: Mapping[str, float], own: Mapping[str, np.ndarray]) -> tuple[Constants, Constants]:
        """The constants of the chip of every layer and of every sample."""
        by_chip = constants_by_law(coefficients, self.physique, own)
        shared = {**coefficients, **self.stated}
        layer, row = self.chip_of_layer, self.chip_of_row
        traits = {name: values[layer] for name, values in self.traits.items()}
        known = Constants({name: values[layer] for name, values in by_chip.items()}, shared, **traits)
        return known, Constants({name: values[row] for name, values in by_chip.items()}, shared)

    def shipped(self, known: Constants) -> np.ndarray:
        """The same for samples of one chip with constants that are known."""
        return self._whole(self._engine(known), known)

    def _engine(self, known: Constants, of: np.ndarray | bool = True) -> np.ndarray:
        times = np.where(of, times_of(self.work, known, self.around).us, 0.0)
        steps = np.maximum.reduceat(times[self.order], self.first)
        return np.bincount(self.row_of_step, steps, minlength=len(self.scope))

    def _whole(self, engine: np.ndarray, around: Constants) -> np.ndarray:
        return call_us(self.scope, engine, self.ports, around, self.calls) + self.host_us

    def chip_constants(
        self, coefficients: Mapping[str, float], own: Mapping[str, np.ndarray], chip: str
    ) -> dict[str, float]:
        place = self.chips.index(chip)
        return {name: float(each[place]) for name, each in constants_by_law(coefficients, self.physique, own).items()}


def _stacked(chips: Sequence[Physique]) -> Physique:
    names = ("macs", "memory", "phone", "year", "stream", "copy")
    return Physique(*(np.array([getattr(chip, name) for chip in chips]) for name in names))


LEFT_OUT = Path(__file__).resolve().parent / "left_out.json"
"""The errors of rows that a fit did not see: what tools/fit_cost.py found, by what was left out."""


def write_errors(rows: Sequence[Sample], left_out: Mapping[str, np.ndarray], shares: np.ndarray) -> None:
    lines = []
    for place, row in enumerate(rows):
        errors = {way: round(float(found[place]), 4) for way, found in left_out.items() if not np.isnan(found[place])}
        engine, attention = (round(float(share), 3) for share in shares[place])
        record = {"id": row.id, "engine": engine, "attention": attention, "errors": errors}
        lines.append(json.dumps(record, separators=(",", ":")))
    LEFT_OUT.write_text("[" + ",\n".join(lines) + "]\n", encoding="utf-8")


@dataclass(frozen=True)
class LeftOutErrors:
    """The errors of one row, which are logarithms of estimated over measured, by what was left out."""

    by_way: Mapping[str, float]
    shares: tuple[float, float]
    """Of the call: the engine, and the layers of attention."""


def read_errors() -> dict[str, LeftOutErrors]:
    """The errors of every row by its id."""
    records = json.loads(LEFT_OUT.read_text(encoding="utf-8"))
    return {
        record["id"]: LeftOutErrors(record["errors"], (record["engine"], record["attention"])) for record in records
    }


def groups_of(rows: Sequence[Sample], way: str) -> list[str]:
    """What is left out together: the family, source, chip or machine of every row."""
    return [getattr(row, {"families": "family"}.get(way, way.removesuffix("s"))) for row in rows]

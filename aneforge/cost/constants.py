"""Which constants a chip's times are made of: coefficients that all chips share, what is published of the chip, and
its own measured factors or those of a named neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import exp, hypot
from typing import Any, NamedTuple

import numpy as np

from aneforge.chips import store
from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact, fact
from aneforge.chips.names import resolve
from aneforge.chips.suppose import supposed
from aneforge.cost.calls import CONVERTED, Constants
from aneforge.errors import AneforgeError
from aneforge.text import plural

# How the constants of a chip follow from what is published of it: operations per second, memory bandwidth, and
# whether it is in a phone or a Mac.


REFERENCE = 5.5e6  # multiply-adds per us of an M1: the clock that coefficients in microseconds are stated for
YEAR = 2021


@dataclass(frozen=True)
class Physique:
    """What is published of a chip, or of many at once in arrays."""

    macs: Any
    """Multiply-adds per microsecond, as announced."""
    memory: Any
    """Bytes per microsecond of the memory that it shares with the rest of the machine."""
    phone: Any
    year: Any
    """When it was announced: newer phones and systems start a call faster."""
    stream: Any = 0.0
    """Bytes per microsecond of weights into the engine, where somebody has published them; else 0."""
    copy: Any = 0.0
    """Bytes per microsecond of a host's copies on the machine, where they are published; else 0."""


Law = Callable[[Mapping[str, Any], Physique], Any]


def _one_behind_the_other(one: Any, other: Any) -> Any:
    """The rate through two stages."""
    return 1 / (1 / one + 1 / other)


def _call(known: Mapping[str, Any], chip: Physique) -> Any:
    phone = known["phone_call"] * known["newer_call"] ** (chip.year - YEAR)
    return np.where(chip.phone, phone, known["mac_call"])


def _weights(known: Mapping[str, Any], chip: Physique) -> Any:
    stages = _one_behind_the_other(known["weights_memory"] * chip.memory, known["weights_engine"] * chip.macs)
    return np.where(np.asarray(chip.stream) > 0, known["weights_stream"] * chip.stream, stages)


def _by_engine(name: str) -> Law:
    return lambda known, chip: known[name] * chip.macs


def _by_clock(name: str) -> Law:
    return lambda known, chip: known[name] * REFERENCE / chip.macs


def _plain(name: str) -> Law:
    return lambda known, chip: known[name] * np.ones_like(chip.macs)


def _copies(name: str) -> Law:
    """What is published of the machine's copies, where something is (C73)."""
    return lambda known, chip: np.where(np.asarray(chip.copy) > 0, known[f"{name}_published"] * chip.copy, known[name])


LAWS: dict[str, Law] = {
    "macs": _by_engine("macs"),
    "weights": _weights,
    "spill": lambda known, chip: known["spill"] * chip.memory,
    "reread": _by_engine("reread"),
    "l2": _by_engine("l2"),
    "planar": _by_engine("planar"),
    "norms": _by_engine("norms"),
    "copy": _by_engine("copy"),
    "layer": _by_clock("layer"),
    "coreml_call": _call,
    "device_task": _by_clock("device_task"),
    "host_in": _copies("host_in"),
    "host_out": _copies("host_out"),
    **{
        name: _plain(name)
        for name in (
            "linear", "integers", "int8_bytes", "palette_bytes", "sparse_bytes", "notch", "host_call", "direct_call",
            "coreai_call", "app_call", "coreml_io",
        )
    },
}  # fmt: skip
"""How each constant of a chip follows from the coefficients."""


def constants_by_law(known: Mapping[str, Any], chip: Physique, own: Mapping[str, Any]) -> dict[str, Any]:
    """The constants of a chip; ``own`` are its measured factors."""
    return {name: law(known, chip) * own.get(name, 1.0) for name, law in LAWS.items()}


_LENT = ("weights", "spill", "host_call")
"""The factors of a machine that its neighbours take: of its memory, and of a call from Python (U230)."""

_SOURCE = ("silicon",)  # the public measurements that the fit reads


class CallShares(NamedTuple):
    """How much of a call is the engine's, and how much of it is work of the kinds that attention is made of."""

    engine: float
    attention: float

    @staticmethod
    def of(us: float, engine_us: float, attention_us: float) -> CallShares:
        return CallShares(engine_us / us, attention_us / us) if us else CallShares(0.0, 0.0)


@dataclass(frozen=True)
class Width:
    """Logarithms of how many times longer or shorter a call may take that is all one thing. They hold eight of ten
    rows that were left out of the fit."""

    engine: float
    """Layers of the engine, but for those of attention."""
    attention: float
    """Products of computed values, norms and copies."""
    host: float

    def _parts(self, shares: CallShares) -> dict[str, float]:
        return {
            "engine": (shares.engine - shares.attention) * self.engine,
            "attention": shares.attention * self.attention,
            "host": (1 - shares.engine) * self.host,
        }

    def factor(self, shares: CallShares) -> float:
        """How many times longer or shorter a call of these shares may take."""
        return exp(hypot(*self._parts(shares).values()))

    def mostly(self, shares: CallShares) -> str:
        """Which part makes the interval as wide as it is: ``engine``, ``attention`` or ``host``."""
        parts = self._parts(shares)
        return max(parts, key=parts.__getitem__)


@dataclass(frozen=True)
class Basis:
    """The constants of one chip and where they come from."""

    chip: str
    """The product that the times are those of."""
    target: Target
    constants: Constants
    fitted: bool
    """Rows of this very product are among those that were fitted."""
    taken_from: str
    """Whose measured factors these are: its own, or a neighbour's."""
    rule: str
    rows: int
    widths: Mapping[str, Width]
    """How wide an interval is: of ``networks`` for what is converted, of ``layers`` for what is authored."""
    evidence: Mapping[str, Fact[float]]
    """Where each constant comes from, by name: the chip's own and the shared ones."""
    watts: Fact[Any]
    """Of the engine under full load, where somebody has published it."""
    copies_are_given: bool = False
    """Whether somebody said how fast the machine's host copies."""

    @property
    def label(self) -> str:
        """What people call the chip whose times these are; a target that no product carries keeps its name."""
        return self.chip if self.target.chips else self.target.name

    def width(self, scope: str) -> Width:
        """How wide an interval of this scope is."""
        return self.widths["networks" if scope in CONVERTED else "layers"]

    def interval(self, us: float, scope: str, shares: CallShares) -> tuple[float, float]:
        """Between which times a call of ``us`` lies, eight times of ten."""
        factor = self.width(scope).factor(shares)
        return us / factor, us * factor

    def to_json(self) -> dict[str, Any]:
        return {
            "chip": self.chip,
            "target": self.target.name,
            "fitted": self.fitted,
            "measured": self.fitted,
            "anchor": resolve(self.taken_from).target.name,
            "basis": "silicon" if self.fitted else f"extrapolated-from-{self.taken_from}",
            "taken_from": self.taken_from,
            "rule": self.rule,
            "rows": self.rows,
            "widths": {name: vars(width) for name, width in self.widths.items()},
            "watts": self.watts.to_json(),
            "constants": {name: fact.to_json() for name, fact in self.evidence.items()},
        }


def basis_of(chip: str | Target) -> Basis:
    """The basis of a chip's estimates, by any of its names.

    A compiler target that several products carry stands for the first of them, a Mac where there is one (U84): h13 is
    an M1, and an A14 Bionic only by that name.
    """
    target = chip if isinstance(chip, Target) else resolve(chip).target
    basis = _basis(target.name, target.product)
    other = {key.removeprefix("cost:"): value for key, value in supposed().items() if key.startswith("cost:")}
    return replace(basis, constants=_with_others(basis.constants, other)) if other else basis


def _with_others(known: Constants, other: Mapping[str, Any]) -> Constants:
    """Constants of which some are supposed: of the chip, shared by all chips, or what the engine can do."""
    gates = {key: value for key, value in other.items() if isinstance(value, bool)}
    numbers = {key: value for key, value in other.items() if key not in gates}
    chip, shared = (
        {**table, **{key: numbers[key] for key in numbers if key in table}} for table in (known.chip, known.shared)
    )
    return replace(known, chip=chip, shared=shared, **gates)


@cache
def _basis(target_name: str, product: str | None) -> Basis:
    document, target = store.load("cost_fit"), resolve(f"compiler:{target_name}").target
    name, share = (product, 1.0) if product else _representative(target)
    source = _measured_like(name)
    record, own = document["chips"][source], source == name and share == 1.0
    physique = physique_of(name, share)
    shared = document["shared"]["constants"]
    engine = _engine(document, target, source)
    # Other calls and the copies are the machine's own: another product does not have them (C73).
    machine = record["own"] if own else {key: record["own"][key] for key in _LENT}
    chip = constants_by_law(shared, physique, {**machine, **engine["own"]})
    # A framework's call starts the engine's own program too, so the latter alone is no slower (U226).
    chip["direct_call"] = min(chip["direct_call"], chip["coreml_call"])
    stated = {key: _stated(document, key, row) for key, row in document["stated"].items()}
    known = Constants(
        {key: float(value) for key, value in chip.items()},
        {**shared, **{key: each.value for key, each in stated.items()}},
        **traits_of(target, name),
    )
    evidence = {
        **{key: _by_law(key, value, name, source, record, engine) for key, value in known.chip.items()},
        **{f"law of {key}" if key in known.chip else key: _shared(document, key) for key in shared},
        **stated,
    }
    watts = fact(
        document["power"].get(target.name, {}), document["evidence"], about=f"watts of {target.name}'s engine"
    )
    rows = record["rows"] if own else 0
    rule = _rule(name, source, share, rows)
    widths = _widths(document["widths"], own)
    return Basis(name, target.of_product(name), known, own, source, rule, rows, widths, evidence, watts)


def _widths(left_out: Mapping[str, Any], measured: bool) -> dict[str, Width]:
    """The widest of what was left out that this chip is like: a source, machine or family that nobody measured on a
    chip that was, and for others a chip too."""
    ways = ("sources", "machines", "families") if measured else ("sources", "machines", "families", "chips")

    def width(kind: str) -> Width:
        known = [left_out[way][kind] for way in ways if kind in left_out[way]]
        return Width(*(max(each[part] for each in known) for part in ("engine", "attention", "host")))

    return {kind: width(kind) for kind in ("networks", "layers")}


def physique_of(product: str, share: float = 1.0) -> Physique:
    """What is published of a product's engine and memory; ``share`` of it for an engine of fewer cores."""
    record = store.load("products")["products"][product]
    macs, memory, stream = record["tops"] * 1e6 / 2, record["memory"] * 1e3, record.get("stream", 0.0) * 1e3
    phone, copy = record["class"] == "phone", 0.0 if record["class"] == "phone" else _published_copies(product)
    return Physique(macs * share, memory * share, phone, record["year"], stream * share, copy)


def _published_copies(product: str) -> float:
    """Bytes per microsecond of a host's copies: those of the machine, else of the nearest neighbour of which they are
    published (U230)."""
    products, seen = store.load("products")["products"], set[str]()
    while product not in seen and "copy" not in products[product]:
        seen.add(product)
        product = products[product]["like"]
    return products[product].get("copy", 0.0) * 1e3


def traits_of(target: Target, product: str) -> dict[str, Any]:
    """What an engine can do that the times depend on."""
    gates = store.load("cost_fit")["gates"]
    record = store.load("products")["products"][product]
    can = {
        name: product in gate["products"] if "products" in gate else target.td_generation in gate["generations"]
        for name, gate in gates.items()
    }
    engines = int(record.get("engines", 1))
    return {"engines": engines, "winograd": bool(compile_fact(target, "winograd").value), **can}


def _representative(target: Target) -> tuple[str, float]:
    """The product that a compiler target stands for, and the share of its engine."""
    if target.chips:
        return target.chips[0], 1.0
    stand_in = store.load("products")["stand_ins"].get(target.name)
    if stand_in is None:
        raise AneforgeError(
            f"{target.name}: nobody measured this chip, and nothing is published of its speed. Choose another chip."
        )
    return stand_in["product"], stand_in.get("share", 1.0)


def _engine(document: dict[str, Any], target: Target, source: str) -> dict[str, Any]:
    """The factors of the target's generation, whose products share one engine; else of the neighbour's."""
    generations = document["generations"]
    own = str(target.td_generation)
    return generations[own if own in generations else str(resolve(source).target.td_generation)]


def _measured_like(product: str) -> str:
    """The product itself where it was measured, else the first neighbour that was."""
    chips, products = store.load("cost_fit")["chips"], store.load("products")["products"]
    while product not in chips:
        product = products[product]["like"]
    return product


def _rule(product: str, source: str, share: float, rows: int) -> str:
    record = store.load("products")["products"][product]
    published = f"{record['tops']:g} TOPS and {record['memory']:g} GB/s of memory"
    if share != 1.0:
        return f"an engine of one core, {share:g} of the {product}'s (U59): {published} by the common laws"
    if rows:
        return f"{published} by the common laws, and factors fitted to its {plural(rows, 'measurement')}"
    return f"{published} by the common laws, with the measured factors of the {source}"


def _by_law(
    key: str, value: float, product: str, source: str, machine: dict[str, Any], engine: dict[str, Any]
) -> Fact[float]:
    record = engine if key in engine["own"] else machine
    if record is machine and source != product and key not in _LENT:
        return Fact(
            value, _SOURCE, "inferred", f"{key} of {product}", "by the common law: nobody measured the machine"
        )
    informed, factor = record["informed"].get(key, 0), record["own"].get(key, 1.0)
    note = "by the common law from what is published of the chip"
    if informed:
        whose = "its generation's" if record is engine else "its own" if source == product else f"the {source}'s"
        note = f"{note}, with {whose} factor {factor:.2f} from {informed} measurements"
    lent_by = None if source == product else source
    return Fact(value, _SOURCE, "inferred", f"{key} of {product}", note, taken_from=lent_by)


def _shared(document: dict[str, Any], key: str) -> Fact[float]:
    informed, value = document["shared"]["informed"][key], document["shared"]["constants"][key]
    if not informed:
        start = document["starts"][key]
        return Fact(value, (), "inferred", f"{key} of all chips", f"no measurement determines it: {start}")
    return Fact(value, _SOURCE, "inferred", f"{key} of all chips", f"fitted to {plural(informed, 'measurement')}")


def _stated(document: dict[str, Any], key: str, record: dict[str, Any]) -> Fact[float]:
    """A constant that is published, or follows from what is."""
    return fact(record, document["evidence"], about=key)

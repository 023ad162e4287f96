"""``af.estimate`` and ``af.estimate_all``: how long a model takes on each chip; what ``aneforge estimate`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from math import fsum
from typing import Any

from aneforge import text
from aneforge.advice.ranking import Advice, advise, changes_text
from aneforge.chips.chip import Target
from aneforge.chips.names import chip_label, chip_labels
from aneforge.compiler.compile import resolve_target
from aneforge.compiler.compression import CompressionOptions, compressed
from aneforge.cost.calls import PYTHON_SCOPE, SCOPES
from aneforge.cost.elsewhere import unit_bands, where_to_run
from aneforge.cost.estimate import Estimate, LayerEstimate, warn_if_at_floor
from aneforge.cost.machines import copy_rate
from aneforge.cost.order import Slower, Timed, slower_and_newer
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.formats.arguments import Chips, Source, chip_of
from aneforge.frames import Tabular
from aneforge.process import quiet_collector
from aneforge.study.listing import first_call_json, first_call_texts, time_text
from aneforge.study.study import Study
from aneforge.text import ByChip, first_of, grouped, more, short, some, wrapped

_LAYERS = 20
SEED_PAGE_CHIP = "h17s"
DEFAULT_CHANGES = 3


def estimate(
    out: Source,
    int8: bool = False,
    target: str | int | Target | None = None,
    scope: str | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> float:
    """Microseconds of one call, as ``aneforge estimate`` prints them.

    Without a target they are those of a compiled model's chip, else those of the chip that the seed page's own model
    was measured on, an M5 (h17s), whatever this machine is. ``model.estimate()`` gives the same by layers and with an
    interval, ``af.estimate_all`` the table of several chips. ``scope`` is what a call covers: one in an app through
    the runtime that reads the model, Core ML where none does; ``host_call`` is one from Python with NumPy arrays,
    which the seed page's figures are. Of a model that is not on the engine whole it is the time of all its parts:
    regions of the engine, crossings, and the middle of the host's band. ``int8`` times it with the weights as int8,
    as ``compile(compress="int8")`` stores them.
    """
    named = target if target is not None or hasattr(out, "target") else SEED_PAGE_CHIP
    study = Study(out, resolve_target(chip_of(named, out)), scope=scope, dims=dims, function=function)
    options = CompressionOptions.of(int8, None)
    if options is not None:
        study = study.with_graph(compressed(study.graph, study.targets[0], options)[0])
    with quiet_collector():
        known, refused = study.estimates()
    for error in refused.values():
        raise error
    (result,) = known.values()
    if not result.parts:
        warn_if_at_floor(study.timed()[study.targets[0].name].programs[0], result.engine_us, result.us, stacklevel=3)
    return result.us


def estimate_all(
    model: Source,
    target: Chips = None,
    scope: str | None = None,
    vendor: bool = False,
    changes: int = DEFAULT_CHANGES,
    *,
    os: str | None = None,
    runtime: str | None = None,
    machine: str | None = None,
    copy_gbs: float | None = None,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Estimates:
    """Estimate how long a model takes on each chip, with the interval and the basis of every figure.

    ``target`` is the default chips where it is left out. ``scope`` is what a call covers: a call of the runtime
    (``coreml_call``, in an app, where none is asked about), ``host_call`` (from Python, which ``.from_python`` has
    beside it), ``direct_call`` or ``device_task``. ``vendor`` adds the time by the compiler's own published model. A
    model that is not on the engine whole is timed in parts, which ``.parts`` of an estimate lists. A chip whose engine
    would compute nothing of it is in ``.refused`` with the reason. ``changes`` is how many changes that would help
    ``.advice`` has for each chip; they are worked out when it is first asked for, which printing does.

    ``os`` is the version of the system and ``runtime`` who runs the model, as for :class:`Study`. ``machine`` names
    one whose copies are published (such as ``"M4 (MacBook Air)"``) or is the file of one that a kit measured,
    ``copy_gbs`` is what somebody measured on theirs: GB/s of the host's copies, which belong to the machine and not to
    the engine.

    >>> import aneforge as af
    >>> times = af.estimate_all(af.input((1, 64, 56, 56)).relu(), "m1,m5", changes=0)
    >>> [chip for chip, time in times.items() if time.interval[0] < time.us < time.interval[1]]
    ['m1', 'm5']
    """
    if isinstance(changes, bool) or not isinstance(changes, int) or changes < 0:
        raise ArgumentError("changes", f"{changes!r} is not a number of changes. Give 0 or more.")
    rate = copy_rate(machine, copy_gbs)
    study = Study(model, target, scope=scope, os=os, runtime=runtime, copy_gbs=rate, dims=dims, function=function)
    with quiet_collector():
        return Estimates(study, vendor, changes)


def _vendor_us(study: Study, names: Iterable[str]) -> dict[str, float | None]:
    """By the compiler's own model, which knows the engine only; unknown where it does not know a part."""
    from aneforge.cost.vendor_model import vendor_estimate

    figures: dict[str, float | None] = {}
    splits = study.timed()
    for name in names:
        parts = [vendor_estimate(program).us for program in splits[name].programs.values()]
        known = [part for part in parts if part is not None]
        figures[name] = fsum(known) if len(known) == len(parts) else None
    return figures


class Estimates(ByChip[Estimate], Tabular):
    """The estimate of each chip that runs something of the model; the others are in ``refused`` with the reason."""

    def __init__(self, study: Study, vendor: bool = False, changes: int = DEFAULT_CHANGES) -> None:
        known, self.refused = study.estimates()
        super().__init__(known)
        self.study, self._changes = study, changes
        self.vendor_us = _vendor_us(study, known) if vendor else None
        """Microseconds by the compiler's own published model, where they were asked for."""

    @property
    def asked(self) -> tuple[str, ...]:
        """Every chip that was asked for."""
        return tuple(self.study.chips)

    @cached_property
    def advice(self) -> dict[str, Advice]:
        """The changes that would help most on each chip, each with its own estimate; empty where none were asked."""
        return advise(self.study.with_chips(list(self)), self._changes)

    @cached_property
    def slower_and_newer(self) -> list[Slower]:
        """The chips that are slower than an older one of their line, with the cause."""
        splits = self.study.timed()
        return slower_and_newer(
            {name: Timed(estimate, list(splits[name].programs.values())) for name, estimate in self.items()}
        )

    def in_order(self) -> dict[str, Estimate | AneforgeError]:
        """Every chip that was asked for: its estimate, or why there is none."""
        both: dict[str, Estimate | AneforgeError] = {**self, **self.refused}
        return {name: both[name] for name in self.asked}

    def require(self) -> None:
        """Raise the first reason where no chip runs anything of the model."""
        if not len(self):
            raise next(iter(self.refused.values()))

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "estimates": {name: estimate.to_json() for name, estimate in self.items()},
            "from_python_us": self.from_python,
            "other_units": {
                name: {band.unit.lower(): band.to_json() for band in unit_bands(one)} for name, one in self.items()
            },
            "refused": {name: str(error) for name, error in self.refused.items()},
            "advice": {name: advice.to_json() for name, advice in self.advice.items()},
            "slower_and_newer": [one._asdict() for one in self.slower_and_newer],
            "first_call": {
                name: first_call_json(estimate, self._weight_bytes(name)) for name, estimate in self.items()
            },
        }
        return record if self.vendor_us is None else {**record, "vendor_us": dict(self.vendor_us)}

    def records(self) -> list[dict[str, Any]]:
        """A row for each chip that runs something: microseconds of a call with its interval, and what it rests on."""
        python = self.from_python
        return [
            {
                "chip": estimate.basis.label,
                "us": estimate.us,
                "from_us": estimate.interval[0],
                "to_us": estimate.interval[1],
                "engine_us": estimate.engine_us,
                "from_python_us": python[name],
                "energy_mj": estimate.energy_mj,
                "measured": estimate.basis.fitted,
            }
            for name, estimate in self.items()
        ]

    def __str__(self) -> str:
        return self.text()

    def text(self, layers: bool = False, basis: bool = False, everything: bool = False) -> str:
        """The table; ``layers`` adds the slowest layers (``everything``: all), ``basis`` the constants behind it."""
        return "\n\n".join(self._parts(layers, basis, everything))

    def _parts(self, layers: bool, basis: bool, everything: bool) -> Iterator[str]:
        if len(self):
            yield f"microseconds of {SCOPES[self.study.scope]}\n{self._table()}"
        yield from self._verdicts()
        if len(self):
            yield from self._order()
            yield self._widths()
            yield from self._elsewhere()
        split = [wrapped(f"{one.basis.label}: {one.in_words()}") for one in self.values() if one.parts]
        if split:
            yield "\n".join([*split, "aneforge partition lists the regions"])
        for name, error in self.refused.items():
            yield wrapped(f"{chip_label(name)}: {error}")
        if len(self):
            yield time_text(dict(self))
        if self.advice:
            yield changes_text(self.advice)
        if len(self):
            yield from first_call_texts({name: (one, self._weight_bytes(name)) for name, one in self.items()})
        for estimate in self.values():
            if basis:
                yield _basis_text(estimate)
            if layers or everything:
                yield _layers_text(estimate, everything)

    def _order(self) -> Iterator[str]:
        """Why a newer chip is slower than an older one of its line, where one is."""
        lines = [
            wrapped(f"{chip_label(one.newer)} is slower than {chip_label(one.older)}: {one.because}")
            for one in self.slower_and_newer
        ]
        if lines:
            yield "\n".join(lines)

    def _widths(self) -> str:
        """What makes the intervals wide, where it is the same for several chips in one line."""
        alike = grouped(list(self), lambda name: self[name].width_says)
        return "\n".join(
            wrapped(f"{chip_labels(names)}: what makes the interval wide: {says}") for says, names in alike.items()
        )

    def _elsewhere(self) -> Iterator[str]:
        """Engine, GPU or CPU, a line for each chip."""
        lines = [(one.basis.label, where_to_run(one)) for one in self.values()]
        if any(says for _, says in lines):
            yield "\n".join(wrapped(f"{label}: {says}") for label, says in lines if says)

    def _verdicts(self) -> Iterator[str]:
        """The verdicts and what the engines are likely given, where that is not all of the model."""
        splits = self.study.judged()
        not_all = [name for name, split in splits.items() if split.in_part or split.likely != "all"]
        alike = grouped(not_all, lambda name: splits[name].says)
        if alike:
            yield "\n".join(wrapped(f"{chip_labels(names)}: {says}") for says, names in alike.items())

    def _weight_bytes(self, name: str) -> float:
        """What is loaded with the model's programs, as it is stored."""
        split = self.study.timed()[name]
        return float(sum(program.stats["kernel_bytes"] for program in split.programs.values()))

    @cached_property
    def from_python(self) -> dict[str, float | None]:
        """Microseconds of a call of the program that Python compiled (``af.estimate``); None where nothing runs so."""
        known, _ = self.study.in_scope(PYTHON_SCOPE).estimates()
        return {name: known[name].us if name in known else None for name in self}

    def _table(self) -> str:
        headers = ("chip", "us", "from", "to", "engine", "from Python", "mJ", "mostly", "basis")
        python = self.from_python
        rows = [
            (*row[:5], _whole(python[name]), *row[5:])
            for name, row in zip(self, map(_row, self.values()), strict=True)
        ]
        if self.vendor_us is not None:
            headers = (*headers[:-1], "compiler's view", headers[-1])
            views = map(_whole, self.vendor_us.values())
            rows = [(*row[:-1], view, row[-1]) for row, view in zip(rows, views, strict=True)]
        return text.columns(headers, rows)


def _row(estimate: Estimate) -> tuple[object, ...]:
    numbers = (estimate.us, *estimate.interval, estimate.engine_us)
    energy = "?" if estimate.energy_mj is None else f"{estimate.energy_mj:.2f}"
    basis = estimate.basis
    source = (
        f"fitted to {text.plural(basis.rows, 'row')}" if basis.fitted else f"by law, factors of {basis.taken_from}"
    )
    return basis.label, *map(_whole, numbers), energy, next(iter(estimate.shares()), "-"), source


def _whole(us: float | None) -> str:
    return "?" if us is None else f"{us:.0f}"


def _basis_text(estimate: Estimate) -> str:
    facts = sorted(estimate.basis.evidence.items())
    rows = [(key, f"{fact.value:g}", fact.label(), fact.note or "published") for key, fact in facts]
    table = text.columns(("constant", "value", "evidence", "why"), rows, fit=True)
    return "\n".join([wrapped(f"{estimate.basis.label}: {estimate.basis.rule}"), table])


def _layers_text(estimate: Estimate, everything: bool = False) -> str:
    layers = estimate.layers if everything else sorted(estimate.layers, key=lambda layer: -layer.us)
    rows = [
        (one.number, one.op, f"{one.us:.1f}", one.bound, f"{one.rate / 1e6:.2f}", _sources(one))
        for one in first_of(layers, _LAYERS, everything)
    ]
    table = text.columns(("layer", "op", "us", "bound", "TFLOP/s", "from"), rows, fit=True)
    head = "all layers" if everything else "the layers that take longest"
    return "\n".join([f"{estimate.basis.label}, {head}:", table, *more(len(layers), _LAYERS, "layers", everything)])


def _sources(layer: LayerEstimate) -> str:
    return some([short(source) for source in layer.sources], 2)

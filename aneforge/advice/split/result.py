"""What ``af.split`` returns: for each chip the programs, the rates, the caches, memory and limits, to print and as
JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aneforge import text
from aneforge.advice.split.limits import Amounts, Breach, Ceilings, decimal_bytes, shown_amount
from aneforge.advice.split.plan import HOST, CacheLayout, Phase, PlannedProgram, Planner
from aneforge.advice.split.structure import ModelStructure
from aneforge.chips.ceilings import Ceiling
from aneforge.chips.chip import Target
from aneforge.chips.lifecycle import LoadBand, load_band
from aneforge.chips.names import chip_label
from aneforge.errors import ArgumentError
from aneforge.study.caches import LAYOUTS
from aneforge.study.lifecycle import GIGABYTES, SECONDS, StageBand
from aneforge.text import ByChip, wrapped

if TYPE_CHECKING:
    from aneforge.advice.split.apply import Applied


@dataclass(frozen=True)
class LayoutChoice:
    """One way to keep the caches on a chip, with what a token then takes."""

    layout: CacheLayout
    decode: Phase | str
    """The calls for one new token, or why there are none."""
    prompt: Phase | str
    """The calls for many of them, or why there are none."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The kinds of call that there are."""
        return tuple(phase for phase in (self.decode, self.prompt) if isinstance(phase, Phase))

    @property
    def rate(self) -> float:
        """Tokens per second of the first kind of call; 0 where it is not known."""
        rates = self.phases[0].tokens_per_s
        return 0.0 if rates is None else rates[1]

    @property
    def is_refused(self) -> bool:
        """Whether one of its programs is surely above a ceiling."""
        return any(breach.ceiling.effect == "fails" for phase in self.phases for breach in phase.breaches)

    def to_json(self) -> dict[str, Any]:
        return {
            "layout": self.layout.name, "words": self.layout.words, "verdict": self.layout.verdict,
            "tokens_per_s": self.rate or None, "writes": [write.to_json() for write in self.layout.writes],
        }  # fmt: skip


@dataclass(frozen=True)
class Used:
    """How much of a ceiling the plan uses."""

    ceiling: Ceiling
    amount: float

    def to_json(self) -> dict[str, Any]:
        return {"amount": self.amount, **self.ceiling.to_json()}


class ChipPlan:
    """The programs of a model on one chip."""

    def __init__(
        self, name: str, chip: Target, runtime: str, structure: ModelStructure, choices: Sequence[LayoutChoice]
    ) -> None:
        self.name, self.chip, self.runtime, self.structure = name, chip, runtime, structure
        self.choices = tuple(choices)

    @cached_property
    def chosen(self) -> LayoutChoice:
        """The fastest layout of those that are known to run; where none is, the fastest of the least doubtful."""
        order = ("runs", "unsure", "unknown", "fails")
        return min(
            self.choices,
            key=lambda choice: (choice.is_refused, order.index(choice.layout.verdict), -choice.rate),
        )

    @property
    def layout(self) -> CacheLayout:
        return self.chosen.layout

    @property
    def decode(self) -> Phase | None:
        """The programs for one new token."""
        return self.chosen.decode if isinstance(self.chosen.decode, Phase) else None

    @property
    def prompt(self) -> Phase | None:
        """The programs for many tokens at a time."""
        return self.chosen.prompt if isinstance(self.chosen.prompt, Phase) else None

    @property
    def phases(self) -> tuple[Phase, ...]:
        return self.chosen.phases

    @cached_property
    def programs(self) -> tuple[PlannedProgram, ...]:
        """The programs of the engine for one kind of call."""
        return tuple(program for program in self.phases[0].programs if program.kind != HOST)

    @cached_property
    def process(self) -> Amounts:
        """What one process holds that loads the programs of both kinds of call."""
        holdings = [program.amounts for program in self.programs]
        return Amounts(
            programs=len(holdings) * len(self.phases),
            app_bytes=sum(amounts.weight_bytes + amounts.cache_bytes for amounts in holdings),
        )

    @cached_property
    def ceilings(self) -> Ceilings:
        return Ceilings.on(self.chip, self.runtime)

    @cached_property
    def breaches(self) -> list[Breach]:
        """The ceilings that the plan is above; none where it loads as far as anybody knows."""
        found = [breach for phase in self.phases for breach in phase.breaches]
        found += self.ceilings.breaches(self.process)
        return list({(breach.ceiling.id, breach.amount): breach for breach in found}.values())

    @property
    def loads(self) -> bool:
        """Whether no ceiling that is sure is broken, the caches can be kept, and every program is the engine's."""
        sure = any(breach.ceiling.effect == "fails" for breach in self.breaches)
        elsewhere = any(program.runs_elsewhere for program in self.programs)
        return self.layout.verdict != "fails" and not sure and not elsewhere

    @cached_property
    def used(self) -> list[Used]:
        """For each limit that the plan could meet, how much of it is used."""
        largest: dict[str, Used] = {}
        amounts = [program.amounts for phase in self.phases for program in phase.programs if program.kind != HOST]
        for one in (*amounts, self.process):
            for quantity in _SHOWN:
                amount = one.of(quantity)
                if not amount:
                    continue
                for ceiling in self.ceilings.about(quantity, one.kind, one.unlike_states)[:1]:
                    key = f"{ceiling.id} {ceiling.most}"
                    if key not in largest or largest[key].amount < amount:
                        largest[key] = Used(ceiling, amount)
        return list(largest.values())

    def band(self, stage: str) -> LoadBand:
        """What a stage of loading takes for all programs of one kind of call, one after the other."""
        bands = [load_band(stage, self.runtime, self.chip, p.amounts.weight_bytes / 1e6) for p in self.programs]
        points = tuple(dict.fromkeys(point for band in bands for point in band.points))
        same, near = all(band.same_chip for band in bands), all(band.near for band in bands)
        ends = ([band.low for band in bands], [band.high for band in bands])
        low, high = (None if None in end or not end else sum(map(float, end)) for end in ends)  # type: ignore[arg-type]
        return LoadBand(low, high, points, same, near)

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.chip.name,
            "runtime": self.runtime,
            "loads": self.loads,
            "layout": self.layout.name,
            "layouts": [choice.to_json() for choice in self.choices],
            "decode": phase_json(self.chosen.decode),
            "prompt": phase_json(self.chosen.prompt),
            "breaches": [breach.to_json() for breach in self.breaches],
            "limits": [used.to_json() for used in self.used],
            "memory_gb": self.band("memory").to_json(),
            "first_load_s": self.band("first load").to_json(),
        }

    def __str__(self) -> str:
        return "\n".join(_chip_lines(self))


_SHOWN = (
    "weight_bytes",
    "decode_layers",
    "states",
    "state_axis",
    "head_rows",
    "weight_files",
    "programs",
    "app_bytes",
)


def phase_json(phase: Phase | str) -> dict[str, Any]:
    """One kind of call as plain data."""
    if isinstance(phase, str):
        return {"none": phase}
    rates = phase.tokens_per_s
    return {
        "rows": phase.rows,
        "context": phase.context,
        "us": phase.cost.us,
        "interval": list(phase.cost.interval),
        "tokens_per_s": None if rates is None else {"low": rates[0], "middle": rates[1], "high": rates[2]},
        "unknown": phase.cost.unknown,
        "head_pieces": phase.head_pieces,
        "layers_per_program": [run.count for run in phase.cut.runs],
        "most_layers": phase.cut.longest,
        "larger": None if phase.cut.breach is None else phase.cut.breach.to_json(),
        "programs": [
            {
                "name": program.name,
                "kind": program.kind,
                "holds": program.holds,
                "layers": None if program.runs is None else [program.runs.first, program.runs.last],
                "weight_bytes": program.amounts.weight_bytes,
                "cache_bytes": program.amounts.cache_bytes,
                "states": program.amounts.states,
                "us": program.cost.us,
                "interval": list(program.cost.interval),
                "unknown": program.cost.unknown,
                "rewrites": list(program.rewrites),
                "off_engine": program.off_engine,
                "breaches": [breach.to_json() for breach in program.breaches],
            }
            for program in phase.programs
        ],
    }


class SplitPlan(ByChip[ChipPlan]):
    """A model as programs on some chips. ``print`` shows it; ``apply`` writes the programs of one chip."""

    def __init__(
        self,
        name: str,
        structure: ModelStructure,
        weights: str,
        plans: Mapping[str, ChipPlan],
        planners: Mapping[str, Mapping[str, Planner | str]],
    ) -> None:
        super().__init__(plans)
        self.name, self.structure, self.weights, self.planners = name, structure, weights, planners
        """``planners`` are the model in each layout of its caches, for each kind of call, or why there is none."""

    def apply(self, folder: str | Path, target: str | None = None, packages: bool = True) -> Applied:
        """Write the programs of one chip with a manifest into a new folder, whole or not at all, and run them against
        the whole model where that takes moments. ``packages`` adds Core ML packages, where coremltools is there."""
        from aneforge.advice.split.apply import write_split

        name = next(iter(self)) if target is None and len(self) == 1 else target
        if name is None:
            raise ArgumentError("target", f"the programs are of one chip; choose one: {', '.join(self)}.")
        return write_split(self, name, folder, packages)

    @property
    def loads(self) -> bool:
        """Whether the programs of every chip load, as far as anybody knows."""
        return all(plan.loads for plan in self.values())

    def to_json(self) -> dict[str, Any]:
        structure = self.structure
        model = {
            "model": self.name,
            "layers": len(structure.blocks),
            "kinds_of_layers": len({block.kind for block in structure.blocks}),
            "vocabulary": structure.vocabulary,
            "rows": structure.rows,
            "keys": None if structure.attention is None else structure.attention[1],
            "caches": [write.to_json() for write in structure.writes],
            "weights": self.weights,
        }
        return {**model, **super().to_json()}

    def __str__(self) -> str:
        return "\n\n".join([_model_line(self.structure, self.weights), *map(str, self.values())])


# The report.


def _model_line(structure: ModelStructure, weights: str) -> str:
    kinds = len({block.kind for block in structure.blocks})
    layers = f"{text.plural(len(structure.blocks), 'layer')}"
    parts = [f"{layers} of {text.plural(kinds, 'kind')}" if structure.blocks else "no layers"]
    parts += [f"vocabulary of {structure.vocabulary:,}"] if structure.vocabulary else []
    if structure.writes:
        cache_bytes = sum(2 * write.port.size for write in structure.writes)
        forms = ", ".join(dict.fromkeys(f"{write.form} of a {write.kept}" for write in structure.writes))
        parts += [f"{len(structure.writes)} caches ({decimal_bytes(cache_bytes)}, {forms})"]
    stored = sum(block.weight_bytes for block in structure.blocks)
    parts += [f"{decimal_bytes(stored)} of weights in the layers, {weights}"]
    return wrapped("; ".join(parts))


def _chip_lines(plan: ChipPlan) -> Iterator[str]:
    yield f"{chip_label(plan.name)}: {_count(plan)}, {plan.runtime}"
    if plan.structure.attention is None:
        yield wrapped(f"call: {_ms(plan.phases[0])}", "  ")
    else:
        yield wrapped(f"decode: {_rate(plan.chosen.decode, 'token')}", "  ")
        yield wrapped(f"prompt: {_rate(plan.chosen.prompt, 'call')}", "  ")
    rows = []
    for program in plan.phases[0].programs:
        low, high = program.cost.interval
        us = (
            "?" if program.cost.unknown else f"{program.cost.us / 1000:,.1f} ({low / 1000:,.1f} to {high / 1000:,.1f})"
        )
        amounts = program.amounts
        rows.append(
            (program.name, program.kind, decimal_bytes(amounts.weight_bytes), decimal_bytes(amounts.cache_bytes), us,
             "; ".join((program.holds, *program.rewrites)))
        )  # fmt: skip
    yield text.columns(("program", "runs as", "weights", "caches", "ms a call", "holds"), rows, fit=True)
    off = {program.off_engine: program for program in plan.programs if program.off_engine}
    for why, program in off.items():
        yield wrapped(f"{program.name}: {why}", "  ")
    yield from _larger(plan)
    yield from _caches(plan)
    memory, load = plan.band("memory"), plan.band("first load")
    for stage, band, unit in (("memory at load", memory, GIGABYTES), ("first load", load, SECONDS)):
        yield wrapped(f"{stage}: {StageBand(stage, band, unit, '').words} ({band.basis})", "  ")
    for used in plan.used:
        quantity = used.ceiling.quantity
        amount, most = (shown_amount(quantity, value) for value in (used.amount, used.ceiling.most))
        relation = "a multiple of" if used.ceiling.is_multiple else "of at most"
        yield wrapped(f"limit: {amount} {relation} {most}: {used.ceiling.says} ({used.ceiling.label})", "  ")
    for breach in plan.breaches:
        yield wrapped(
            f"above a limit: {breach.words}. {breach.ceiling.hint[:1].upper()}{breach.ceiling.hint[1:]}.", "  "
        )


def _count(plan: ChipPlan) -> str:
    parts = text.plural(len(plan.programs), "program")
    host = len(plan.phases[0].programs) - len(plan.programs)
    doubt = "" if plan.loads else ", which would not load on the engine"
    return f"{parts}{', and a part on the host' if host else ''}{doubt}"


def _rate(phase: Phase | str, each: str) -> str:
    if isinstance(phase, str):
        return f"none: {phase}"
    if phase.cost.unknown:
        return f"unknown: {phase.cost.unknown}"
    rates = phase.tokens_per_s
    assert rates is not None
    low, middle, high = map(_number, rates)
    ms, (least, most) = phase.cost.us / 1000, phase.cost.interval
    rows = text.plural(phase.rows, "new token")
    words = f"{middle} tokens/s ({low} to {high}): {ms:,.1f} ms a {each} ({least / 1000:,.1f} to {most / 1000:,.1f})"
    whole = "" if phase.rows == 1 else f"; {_prompt_ms(phase):,.0f} ms for a prompt of {phase.context:,} tokens"
    return f"{words} of {rows}, {phase.context:,} keys{whole}"


def _ms(phase: Phase) -> str:
    """The time of a call of a model without tokens."""
    low, high = phase.cost.interval
    if phase.cost.unknown:
        return f"unknown: {phase.cost.unknown}"
    return f"{phase.cost.us / 1000:,.1f} ms ({low / 1000:,.1f} to {high / 1000:,.1f})"


def _number(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _prompt_ms(phase: Phase) -> float:
    """A prompt as long as the context."""
    return -(-phase.context // phase.rows) * phase.cost.us / 1000


def _larger(plan: ChipPlan) -> Iterator[str]:
    cut = plan.phases[0].cut
    if cut.alone is not None:
        yield wrapped(f"one layer alone is too large: {cut.alone.words}", "  ")
    elif cut.breach is not None:
        more = text.plural(cut.longest + 1, "layer")
        yield wrapped(f"{more} in one program would be too many: {cut.breach.words}", "  ")


def _caches(plan: ChipPlan) -> Iterator[str]:
    if plan.layout.name == "none":
        return
    for choice in sorted(plan.choices, key=lambda choice: choice is not plan.chosen):
        rate = f", {_number(choice.rate)} tokens/s" if choice.rate else ""
        lead = "caches" if choice is plan.chosen else "  or"
        why = "; ".join(map(str, choice.layout.writes))
        yield wrapped(f"{lead}: {LAYOUTS[choice.layout.name]}{rate}. {why}", "  ")
        form = _form_for(plan.structure, choice.layout.name)
        if choice is plan.chosen and form:
            yield wrapped(f"  built so by --apply, or by aneforge tune --form {form}", "  ")


def _form_for(structure: ModelStructure, layout: str) -> str:
    """The form that gives a model this layout; empty where it has it already."""
    kept = {"rows" if write.form == "rows" else write.kept for write in structure.writes}
    forms = {"rows": "cache-rows-out", "port": "cache-as-ports", "state": "cache-in-one-state"}
    is_so = kept == {layout} and not (layout == "state" and len(structure.writes) > 1)
    return "" if is_so else forms.get(layout, "")

"""Gather a report: one model on many chips, from the answers of the study. Nothing is worked out here."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.advice.estimates import DEFAULT_CHANGES, Estimates
from aneforge.advice.ranking import Advice, PricedChange, likely_cut
from aneforge.advice.stored import DEFAULT_STORAGES, FP16, StoredForm, stored_everywhere
from aneforge.chips.chip import Target
from aneforge.chips.names import chip_label, in_reading_order, resolve, with_label
from aneforge.chips.names import target as target_of
from aneforge.cost.estimate import Estimate
from aneforge.errors import AneforgeError, UnknownNameError
from aneforge.formats.arguments import Chips, Source, model_name
from aneforge.graph.tensor import Tensor
from aneforge.numerics.losses import Risk
from aneforge.numerics.ranges import one_of_each_arithmetic
from aneforge.process import quiet_collector
from aneforge.progress import Progress, Steps
from aneforge.reports.against import align
from aneforge.reports.document import Report
from aneforge.reports.programs import finding_rows, op_rows, program_rows, size_of
from aneforge.reports.rows import (
    BOUNDS,
    ChangeRow,
    ChipRow,
    DivergenceRow,
    LoadRow,
    MeasuredRow,
    MeasuredTable,
    OpRow,
    ProgramRow,
    RiskRow,
    SpanRow,
    StoredRow,
    short,
)
from aneforge.study.checking import Check
from aneforge.study.lifecycle import STEADY, ChipLifecycle, Lifecycle
from aneforge.study.pairwise import Comparisons, Divergence
from aneforge.study.partition import Partition
from aneforge.study.plan import plan_of_partition
from aneforge.study.plan_files import ComputePlan
from aneforge.study.ranges import ranges_of
from aneforge.study.risk import Risks, risks_of_chip
from aneforge.study.study import Study

# Where chips give different numbers: one chip of each arithmetic against the first of them.


_MOST_WORK = 5500  # operations or layers of one pair of programs, times pairs: each takes about a millisecond
_US_DIGITS = 3


def _of_call(us: float) -> float:
    """The time of a call, in digits enough that no reader of it shows another microsecond than the estimate does."""
    return round(us, _US_DIGITS)


def arithmetics(splits: Mapping[str, Partition]) -> dict[str, Target]:
    """One chip of each arithmetic that is published and that some product has, of those that run any of the model."""
    known = {
        name: split.target
        for name, split in splits.items()
        if split.runs and split.target.chips and split.target.meets_floor
    }
    return one_of_each_arithmetic(known or {name: split.target for name, split in splits.items() if split.runs})


def divergence_rows(study: Study, max_abs: float | None) -> tuple[tuple[DivergenceRow, ...], str]:
    """The nodes that can differ, by reason, and a sentence on which chips were compared."""
    graph, splits = study.graph, study.judged()
    chips = list(arithmetics(splits).items())
    size = size_of({name: splits[name] for name, _ in chips})
    unknown = [chip_label(name) for name, split in splits.items() if split.runs and not split.target.meets_floor]
    unlooked = f" Left out, since their arithmetic is not published: {', '.join(unknown)}." if unknown else ""
    if len(chips) < 2:
        alone = f"Nothing to compare {chip_label(chips[0][0])} with." if chips and unknown else ""
        return (), f"{alone or 'The chips of this report have the same arithmetic.'}{unlooked}"
    if size > _MOST_WORK:
        run = "aneforge compare MODEL --any-input --target m1,m5"
        return (), f"Left out for a model of {size:,} operations and layers. Run: {run}"
    (reference, first), *others = chips
    others = _some(others, max(1, _MOST_WORK // max(1, size)))
    names_of = splits[reference].names
    numbers = {names_of[node.uid]: place for place, node in enumerate(splits[reference].cut.operations.counted)}
    alike: dict[tuple[tuple[str, ...], bool], list[tuple[str, Divergence]]] = {}
    comparisons = Comparisons(study)
    for name, chip in others:
        ranges = ranges_of(graph, [first, chip], max_abs, None, None)
        for entry in comparisons.between(first, chip, ranges):
            causes = tuple(
                with_label(with_label(cause, first, chip_label(reference)), chip, chip_label(name))
                for cause in entry.causes
            )
            alike.setdefault((causes, entry.excluded), []).append((name, entry))
    rows = [_divergence_row(reference, entries, causes, numbers) for (causes, _), entries in alike.items()]
    names = ", ".join(chip_label(name) for name, _ in others)
    left_out = [chip_label(name) for name, _ in chips[1:] if name not in dict(others)]
    note = f"{chip_label(reference)} against {names}; the other chips compute as one of these"
    if left_out:
        note += f", without {', '.join(left_out)}, since the model is large"
    return tuple(rows), f"{note}.{unlooked}"


def _some(others: list[tuple[str, Target]], count: int) -> list[tuple[str, Target]]:
    """So many of them, the newest arithmetic among them."""
    return others if len(others) <= count else [*others[: count - 1], others[-1]]


def _divergence_row(
    reference: str, entries: list[tuple[str, Divergence]], causes: tuple[str, ...], numbers: Mapping[str, int]
) -> DivergenceRow:
    _, worst = max(entries, key=lambda named: named[1].bound)
    return DivergenceRow(
        reference,
        tuple(dict.fromkeys(name for name, _ in entries)),
        tuple(dict.fromkeys(numbers[entry.node] for _, entry in entries if entry.node in numbers)),
        numbers.get(worst.node),
        None if not math.isfinite(worst.bound) else float(f"{worst.bound:.3g}"),
        causes,
        worst.excluded,
    )


# Numbers that chips can lose: the risks of one chip of each arithmetic, those of one reason together.


def risks_by_chip(study: Study, max_abs: float | None) -> dict[str, Risks]:
    """What each chip can lose, for inputs up to a magnitude."""
    return {
        name: risks_of_chip(study, name, ranges_of(study.graph, [chip], max_abs, None, None))
        for name, chip in arithmetics(study.judged()).items()
    }


def risk_rows(lost: Mapping[str, Risks], by_name: Mapping[str, int]) -> tuple[RiskRow, ...]:
    """A row for each reason and set of chips: a real loss first, then what concerns most operations."""
    chips_of: dict[tuple[object, ...], tuple[Risk, list[str]]] = {}
    for chip, risks in lost.items():
        for risk in risks:
            chips_of.setdefault((risk.node, risk.rule, risk.message), (risk, []))[1].append(chip)
    alike: dict[tuple[object, ...], tuple[list[Risk], list[str]]] = {}
    for risk, chips in chips_of.values():
        key = (risk.op, risk.rule, risk.basis, risk.message, risk.hint, risk.rewrite, risk.lost, *chips)
        alike.setdefault(key, ([], chips))[0].append(risk)
    rows = [_risk_row(risks, chips, by_name) for risks, chips in alike.values()]
    return tuple(sorted(rows, key=lambda row: (not row.lost, -len(row.nodes), row.id)))


def _risk_row(risks: Sequence[Risk], chips: Sequence[str], by_name: Mapping[str, int]) -> RiskRow:
    first = risks[0]
    worst = max(risks, key=lambda risk: risk.reaches)
    identity = json.dumps([first.rule, first.op, sorted(risk.node for risk in risks)])
    return RiskRow(
        id=f"{first.rule}-{hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()}",
        op=first.op,
        kind=first.rule,
        message=first.message,
        suggestion=first.hint,
        nodes=tuple(by_name[risk.node] for risk in risks if risk.node in by_name),
        chips=tuple(chips),
        worst=by_name.get(worst.node),
        reaches=worst.reaches if math.isfinite(worst.reaches) else None,
        limit=worst.limit,
        lost=first.lost,
        rewrite=first.rewrite or "",
        basis=first.basis,
    )


# What a Mac said beside what is predicted here, operation by operation.


def overlay(
    plan: ComputePlan, name: str, chip: str | None, splits: Mapping[str, Partition], ops: Sequence[OpRow]
) -> MeasuredTable:
    """The plan of a file called ``name`` over the operations of a report, on the chip that it was made on."""
    place = _measured_chip(plan, name, chip, splits)
    predicted = plan_of_partition(splits[place], place).operations
    listed = [op for op in plan.operations if op.preferred is not None]
    aligned = align([(op.name, op.op) for op in ops], [(op.name, op.op) for op in listed])
    if not aligned.pairs:
        raise AneforgeError(
            f"{name}: none of its {len(listed)} operations is one of this model's {len(ops)}, by name or by kind. "
            "Dump the plan of this model."
        )
    rows = [
        MeasuredRow(
            op=one,
            predicted=predicted[one].preferred or "",
            measured=listed[other].preferred or "",
            supported=listed[other].supported,
            predicted_share=predicted[one].weight,
            share=listed[other].weight,
            us=listed[other].us,
        )
        for one, other in aligned.pairs
    ]
    return MeasuredTable(
        chip=place,
        file=name,
        rows=tuple(rows),
        only_measured=tuple(listed[at].name or listed[at].op for at in aligned.only_second),
        only_predicted=aligned.only_first,
        predicted=plan.predicted,
        os=plan.os,
        latency_us=plan.latency_us,
    )


def _measured_chip(plan: ComputePlan, name: str, chip: str | None, splits: Mapping[str, Partition]) -> str:
    """The chip of the report that the plan is about; never a guess."""
    asked = chip or plan.chip
    if not asked:
        if len(splits) == 1:
            return next(iter(splits))
        raise AneforgeError(
            f"{name}: it does not name its chip. Write --measured CHIP={name}, for instance m1={name}."
        )
    if asked in splits:
        return asked
    try:
        wanted = target_of(asked)
    except UnknownNameError:
        raise AneforgeError(f"{name}: {asked!r} is not a chip. Write --measured CHIP={name}.") from None
    same = [place for place, split in splits.items() if split.target.name == wanted.name]
    if not same:
        raise AneforgeError(f"{name}: it is about {asked}, which is not in this report. Add it to --target.")
    return same[0]


# What would be if: changes that help, other forms of the weights, and the cut that Core ML would likely make.


_COMPILED = 20_000  # operations or layers with other weights that are compiled in all, about


def _change_rows(changes: Mapping[str, Iterable[PricedChange]], by_name: Mapping[str, int]) -> list[ChangeRow]:
    """Each change once, with the call after it on every chip: what helps most chips first."""
    rows: dict[tuple[str, str], ChangeRow] = {}
    for chip, listed in changes.items():
        for change in listed:
            nodes = tuple(by_name[name] for name in change.nodes if name in by_name)
            about = (change.name, change.kind, change.cause, change.what, change.how, change.numbers, nodes)
            row = rows.setdefault((change.name, change.what), ChangeRow(*about, {}, {}))
            row.us[chip], row.saved[chip] = _of_call(change.us), short(change.saved)
    return sorted(rows.values(), key=lambda row: (-len(row.us), -max(row.saved.values())))


def helping_rows(study: Study, advice: Mapping[str, Advice], by_name: Mapping[str, int]) -> list[ChangeRow]:
    """The changes that help, and the cut that the runtime would likely make."""
    helping = _change_rows({chip: one.changes for chip, one in advice.items()}, by_name)
    return [*helping, *_change_rows({chip: [change] for chip, change in likely_cut(study).items()}, by_name)]


def stored_rows(study: Study) -> tuple[tuple[StoredRow, ...], str]:
    """Every usual form of the weights, whether or not it helps, and a sentence on those that were left out because the
    model is large. What the model has now comes first."""
    splits = study.timed()
    count = max(1, _COMPILED // max(1, size_of(splits)))
    tried, left_out = DEFAULT_STORAGES[:count], DEFAULT_STORAGES[count:]
    rows = tuple(_stored_row(form, splits) for form in stored_everywhere(study, tried))
    return rows, f"Left out, since the model is large: {', '.join(left_out)}." if left_out else ""


def _stored_row(form: StoredForm, splits: Mapping[str, Partition]) -> StoredRow:
    placed = {name: form.placement(name) for name in form.chips}
    reasons = {} if form.name == FP16 else {name: place.why for name, place in placed.items() if place.why}
    return StoredRow(
        name=form.name,
        what=form.what,
        layers=form.layers,
        bytes=form.stored_bytes,
        rounding=None if form.rounding is None else short(form.rounding),
        streaming={name: form.layers if form.name == FP16 else one.streaming for name, one in form.chips.items()},
        program_bytes={name: one.program_bytes for name, one in form.chips.items()},
        us={name: _of_call(place.us) for name, place in placed.items() if place.us is not None},
        why={name: with_label(why, splits[name].target, chip_label(name)) for name, why in reasons.items()},
        evidence=dict(form.evidence),
    )


_BOUNDS = {word: letter for letter, word in BOUNDS.items()}
_STEPS = 8
Measured = tuple[ComputePlan, str, str | None]
"""A plan from a Mac, the name of its file, and its chip where the file does not name it."""


def report(
    model: Source,
    target: Chips = None,
    scope: str | None = None,
    changes: int = DEFAULT_CHANGES,
    max_abs: float | None = None,
    measured: Measured | None = None,
    accuracy: Mapping[str, Any] | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Gather everything that is known of a model on chips: verdicts and reasons, programs, times, risks, changes that
    would help and other forms of the weights.

    ``target`` is one chip of every engine that is sold where it is left out (``macs,phones``); Macs are listed first.
    ``scope`` is what a time covers (see ``af.estimate_all``), ``changes`` how many changes are worked out for each
    chip, ``max_abs`` the largest magnitude of any input, which the numeric risks are about. ``measured`` is a compute
    plan that a Mac gave (``aneforge.study.read_plan``), shown beside the predictions; ``accuracy`` are the figures of
    an evaluation on a data set (``Evaluation.to_json``). ``progress`` hears how many steps are done, of how many, and
    what comes next. ``report(...).save("page.html")`` writes the page; Markdown, CSV, JSON, a Perfetto trace and the
    other formats go by the suffix too.
    """
    step = Steps(progress, _STEPS).next
    step("reading the model")
    study = Study(model, target, scope=scope, max_abs=max_abs, dims=dims, function=function)
    study = study.with_chips(in_reading_order(study.chips))
    operations = study.operations
    by_name = {operations.names[node.uid]: number for number, node in enumerate(operations.counted)}
    with quiet_collector():
        step("asking every chip")
        checked = Check(study)
        step("compiling for every chip")
        splits, estimates = study.timed(), Estimates(study, changes=changes)
        step("working out what would help")
        helping = helping_rows(study, estimates.advice, by_name)
        step("trying other forms of the weights")
        stored, stored_note = stored_rows(study)
        step("looking for numbers that get lost")
        lost = risks_by_chip(study, max_abs)
        step("comparing the numbers of chips")
        differing, note = divergence_rows(study, max_abs)
        step("writing down the programs")
        programs, places = program_rows(splits, estimates, by_name)
        ops = op_rows(operations, checked, splits)
        name = str(_model(model, study)["name"])
        lives = Lifecycle(study, name)
        return Report(
            model=_model(model, study),
            scope=study.scope,
            max_abs=max_abs,
            chips=tuple(
                _with_products(
                    _chip_row(name, checked, splits[name], estimates, places.get(name), programs, lives[name]),
                    products,
                )
                for name, products in _other_products(study.chips).items()
            ),
            ops=ops,
            findings=finding_rows(checked, by_name, helping),
            programs=programs,
            changes=tuple(helping),
            stored=stored,
            stored_note=stored_note,
            risks=risk_rows(lost, by_name),
            risk_chips=tuple(lost),
            divergences=differing,
            divergence_note=note,
            doubts=tuple(checked.doubts),
            measured=None if measured is None else overlay(*measured, splits, ops),
            accuracy=accuracy,
            source=Path(model) if isinstance(model, (str, Path)) else None,
            estimates=dict(estimates),
        )


def _model(model: Source, study: Study) -> dict[str, object]:
    graph, operations = study.graph, study.operations
    names = operations.names
    ports = [node for node in graph.nodes if node.op == "input"]

    def shown(nodes: Sequence[Tensor]) -> list[dict[str, object]]:
        return [{"name": names[node.uid], "shape": list(node.shape), "dtype": node.dtype} for node in nodes]

    return {
        "name": Path(model).name if isinstance(model, (str, Path)) else model_name(model),
        "inputs": shown(ports),
        "outputs": shown(graph.outputs),
        "operations": len(operations.counted),
        "weights": len(graph.weights),
        "parameters": int(sum(np.prod(weight.shape, dtype=np.int64) for weight in graph.weights.values())),
        "runtime": study.runtime.label if study.by_runtime else "",
        "os": study.os,
    }


def _other_products(chips: Mapping[str, Target]) -> dict[str, tuple[str, ...]]:
    """By chip, the products with the same engine that the report has no row of. Each is named once, beside a chip of
    its own series (M or A) where there is one."""
    labels = {name: chip_label(name) for name in chips}
    others: dict[str, list[str]] = {name: [] for name in chips}
    for chip in dict.fromkeys(chips.values()):
        rows = [name for name, other in chips.items() if other == chip]
        for product in chip.chips:
            if product not in labels.values():
                alike = [name for name in rows if labels[name][0] == product[0]]
                others[(alike or rows)[0]].append(product)
    return {name: tuple(products) for name, products in others.items()}


def _with_products(row: ChipRow, others: tuple[str, ...]) -> ChipRow:
    """With the other products, and who says that all of these have its engine."""
    names = [f"product:{product}" for product in others]
    if resolve(row.name).kind != "compiler":
        names.insert(0, row.name)
    elif row.label != row.target:  # a target stands for its first product, if some product carries it
        names.insert(0, f"product:{row.label}")
    return replace(row, also=others, engines=tuple(str(resolve(name)) for name in names))


def _chip_row(
    name: str,
    checked: Check,
    split: Partition,
    estimates: Estimates,
    place: int | None,
    programs: Sequence[ProgramRow],
    life: ChipLifecycle,
) -> ChipRow:
    counts = {grade: count for grade, count in checked[name].counts.items() if count}
    row = ChipRow(
        name,
        chip_label(name),
        split.target.name,
        checked.verdicts[name],
        checked.likely[name],
        split.ops,
        checked.partitions[name].on_engine,
        counts,
        place,
        older=not split.target.meets_floor,
    )
    if name not in estimates:
        return replace(row, refused=with_label(str(estimates.refused[name]), split.target, chip_label(name)))
    estimate = estimates[name]
    stats = programs[place].stats if place is not None else {}
    return replace(
        row,
        us=_of_call(estimate.us),
        interval=tuple(map(_of_call, estimate.interval)),
        engine_us=short(estimate.engine_us),
        energy_mj=None if estimate.energy_mj is None else short(estimate.energy_mj),
        shares={part: short(us) for part, us in estimate.shares().items()},
        basis=estimate.basis.rule,
        basis_measured=estimate.basis.fitted,
        peak=short(estimate.roof.peak),
        bandwidth=short(estimate.roof.bandwidth),
        layer_us=tuple(short(layer.us) for layer in estimate.layers),
        layer_bounds="".join(_BOUNDS.get(layer.bound, "d") for layer in estimate.layers),
        spans=tuple(_span_rows(estimate)),
        macs=short(sum(layer.flops for layer in estimate.layers) / 2),
        traffic=short(sum(layer.traffic for layer in estimate.layers)),
        loads=tuple(LoadRow(one.stage, one.words, one.basis) for one in life.stages if one.stage != STEADY),
        **{key: int(stats.get(key, 0)) for key in ("weight_bytes", "peak_l2", "l2_bytes", "memory_bytes")},
    )


def _span_rows(estimate: Estimate) -> Iterator[SpanRow]:
    """What takes time beside the layers."""
    before = 0
    for span in estimate.spans():
        if span.kind == "layer":
            before += 1
        elif span.us > 0:
            yield SpanRow(span.kind, _of_call(span.us), before, None if span.part is None else span.part.number)

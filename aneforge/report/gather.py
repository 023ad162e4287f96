"""Gather a report: one model on many chips, from the answers that the other parts give. Nothing is worked out here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from aneforge.advice.estimates import DEFAULT_CHANGES, Estimates
from aneforge.arguments import Chips, Source, model_name
from aneforge.cost.calls import DEFAULT_SCOPE
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.output.progress import Progress, Steps
from aneforge.process import quiet_collector
from aneforge.report.differing import divergence_rows
from aneforge.report.document import Report
from aneforge.report.lost import risk_rows, risks_by_chip
from aneforge.report.measured import overlay
from aneforge.report.programs import program_rows
from aneforge.report.reasons import finding_rows, op_rows
from aneforge.report.rows import BOUNDS, ChipRow, ProgramRow, short
from aneforge.report.whatif import helping_rows, stored_rows
from aneforge.study.checking import Check
from aneforge.study.operations import Operations
from aneforge.study.partition import Partition
from aneforge.study.plan_document import ComputePlan
from aneforge.study.study import Study
from aneforge.targets.chip import Target
from aneforge.targets.names import chip_label, in_reading_order, resolve, with_label

_BOUNDS = {word: letter for letter, word in BOUNDS.items()}
_STEPS = 8
Measured = tuple[ComputePlan, str, str | None]
"""A plan from a Mac, the name of its file, and its chip where the file does not name it."""


def report(
    model: Source,
    target: Chips = None,
    scope: str = DEFAULT_SCOPE,
    changes: int = DEFAULT_CHANGES,
    max_abs: float | None = None,
    measured: Measured | None = None,
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
    plan that a Mac gave (``aneforge.plans.read_plan``), shown beside the predictions. ``progress`` hears how many
    steps are done, of how many, and what comes next. ``report(...).save("page.html")`` writes the page; Markdown, CSV,
    JSON, a Perfetto trace and the other formats go by the suffix too.
    """
    step = Steps(progress, _STEPS).next
    step("reading the model")
    study = Study(model, target, scope=scope, dims=dims, function=function)
    study = study.with_chips(in_reading_order(study.chips))
    graph, operations = study.graph, study.operations
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
        return Report(
            model=_model(model, graph, operations),
            scope=scope,
            max_abs=max_abs,
            chips=tuple(
                _with_products(_chip(name, checked, splits[name], estimates, places.get(name), programs), products)
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
            source=Path(model) if isinstance(model, (str, Path)) else None,
        )


def _model(model: Source, graph: Graph, operations: Operations) -> dict[str, object]:
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


def _chip(
    name: str,
    checked: Check,
    split: Partition,
    estimates: Estimates,
    place: int | None,
    programs: Sequence[ProgramRow],
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
    )
    if name not in estimates:
        return replace(row, refused=with_label(str(estimates.refused[name]), split.target, chip_label(name)))
    estimate = estimates[name]
    stats = programs[place].stats if place is not None else {}
    return replace(
        row,
        us=short(estimate.us),
        interval=tuple(short(end) for end in estimate.interval),
        engine_us=short(estimate.engine_us),
        energy_mj=None if estimate.energy_mj is None else short(estimate.energy_mj),
        shares={part: short(us) for part, us in estimate.shares().items()},
        basis=estimate.basis.rule,
        basis_measured=estimate.basis.measured,
        peak=short(estimate.roof.peak),
        bandwidth=short(estimate.roof.bandwidth),
        layer_us=tuple(short(layer.us) for layer in estimate.layers),
        layer_bounds="".join(_BOUNDS.get(layer.bound, "d") for layer in estimate.layers),
        **{key: int(stats.get(key, 0)) for key in ("weight_bytes", "peak_l2", "l2_bytes", "memory_bytes")},
    )

"""``aneforge ci``: record a baseline of a model, check the model against it, update it."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aneforge import text
from aneforge.chips.names import DEFAULT, chip_label, chip_list
from aneforge.chips.names import target as find_target
from aneforge.cli import notes
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile, load_model
from aneforge.errors import AneforgeError
from aneforge.files import write_whole
from aneforge.reports.baseline.compare import Limits, compare, over_budget
from aneforge.reports.baseline.file import CHECKS, Baseline, BaselineError, load_baseline, save_baseline
from aneforge.reports.baseline.observe import Named, ObservationPlan, Observed, observe
from aneforge.reports.baseline.outcome import BaselineReport, counted, report_text
from aneforge.sim.inputs import read_arrays
from aneforge.version import __version__

SKIPPABLE = {"numerics": "numerics", "estimates": "estimate", "estimate": "estimate"}


@dataclass(frozen=True)
class CiOptions:
    """What the command was asked for."""

    action: str = "check"  # or record, or update
    baseline: str | None = None
    target: str | None = None
    strict: bool = False
    tolerance: float = 5.0
    max_us: Sequence[str] = ()
    skip: str = ""
    seed: int | None = None
    inputs: str | None = None
    junit: str | None = None
    sarif: str | None = None
    as_json: bool = False

    @property
    def write(self) -> bool:
        return self.action == "record"

    @property
    def update(self) -> bool:
        return self.action == "update"


def run(model: str | ModelFile, options: CiOptions) -> int:
    """Compare, or write what there is to compare with; 1 if something changed."""
    source = model if isinstance(model, ModelFile) else ModelFile(model)
    file = Path(options.baseline or f"{_file_of(source.path)}.baseline.json")
    _refuse_contradictions(options, file)
    was = _recorded(file, source, options)
    names = list(was.targets) if was and options.target is None else chip_list(options.target or DEFAULT)
    targets = list(dict.fromkeys(find_target(chip).name for chip in names))
    limits = Limits(options.tolerance, _budgets(options, targets), options.strict)
    plan = _plan(was, options, file)
    notes.slow_kernel("exact")
    with working(f"reading {source.name}") as progress:
        seen = observe(load_model(source), targets, plan, _named(source), progress)
    if was is None:
        report = BaselineReport(_named(source).name, tuple(targets), tuple(over_budget(seen.baseline, limits.max_us)))
    else:
        report = compare(was, seen, limits)
    if options.write or options.update:
        save_baseline(seen.baseline, file, overwrite=options.update)
    _write_reports(report, source, options)
    written = options.write or options.update
    if options.as_json:
        print(text.as_json({**report.to_json(), "baseline": str(file), "written": written}))
    else:
        _print(report, seen, was, file, source, written)
    return 1 if _fails(report, written) else 0


def _fails(report: BaselineReport, written: bool) -> bool:
    """Changes that were just written are accepted; a budget is not."""
    return any(outcome.rule == "over-budget" for outcome in report.outcomes) if written else not report.ok


def _refuse_contradictions(options: CiOptions, file: Path) -> None:
    if not (math.isfinite(options.tolerance) and options.tolerance >= 0):
        raise AneforgeError(f"--tolerance takes per cent, 0 or more, not {options.tolerance:g}")
    if options.seed is not None and options.inputs is not None:
        raise AneforgeError("--seed: it draws the inputs, and --input reads them; choose one.")
    if options.seed is not None and options.seed < 0:
        raise AneforgeError(f"--seed takes a whole number, 0 or more, not {options.seed}")
    if (options.seed is not None or options.inputs is not None) and "numerics" in _skipped(options.skip):
        raise AneforgeError(
            "--seed and --input: they are for the numerics, which --skip leaves out. Leave one of the two away."
        )
    outs = [Path(path).resolve() for path in (str(file), options.junit, options.sarif) if path is not None]
    if len(set(outs)) != len(outs):
        raise AneforgeError("--baseline, --junit and --sarif name one file: each needs its own")


def _recorded(file: Path, source: ModelFile, options: CiOptions) -> Baseline | None:
    """The baseline to compare with, if there is to be one."""
    exists = file.exists()
    if options.write:
        if exists:
            raise AneforgeError(f"{file}: the baseline exists. Use aneforge ci update to replace it.")
        return None
    if not exists:
        if options.update:
            return None
        chips = options.target or DEFAULT
        raise AneforgeError(
            f"{file}: there is not a baseline yet. Create one with: aneforge ci record {_named_words(source)} "
            f"--target {chips} --baseline {file}, look at it and commit it"
        )
    try:
        was = load_baseline(file)
    except BaselineError as error:
        if options.update and error.replaceable:
            print(f"aneforge: {error}", file=sys.stderr)
            return None
        raise
    _same_model(was, source, file)
    return was


def _same_model(was: Baseline, source: ModelFile, file: Path) -> None:
    """By name: a baseline of another model says nothing, and is not to be lost to it."""
    mine = _named(source)
    if (was.model.name, was.model.dims, was.model.function) != (mine.name, mine.dims, mine.function):
        raise AneforgeError(
            f"{file} is the baseline of {was.model.command_words()}, and the model is {_named_words(source)}: "
            "give that model, "
            "or another file with --baseline"
        )


def _file_of(spec: str) -> str:
    return spec.rpartition(":")[0] if ".py:" in spec else spec


def _named(source: ModelFile) -> Named:
    """Without folders, which differ from machine to machine."""
    file = _file_of(source.path)
    return Named(Path(file).name + source.path[len(file) :], tuple(sorted(source.dims)), source.function)


def _named_words(source: ModelFile) -> str:
    words = [source.path, *(f"--dim {size}" for size in sorted(source.dims))]
    return " ".join([*words, *([f"--function {source.function}"] if source.function else [])])


def _skipped(skip: str) -> set[str]:
    parts = [part.strip() for part in skip.split(",") if part.strip()]
    unknown = [part for part in parts if part not in SKIPPABLE]
    if unknown:
        raise AneforgeError(f"--skip takes numerics and estimates, separated by commas, not {unknown[0]!r}")
    return {SKIPPABLE[part] for part in parts}


def _plan(was: Baseline | None, options: CiOptions, file: Path) -> ObservationPlan:
    """The checks and inputs of the baseline, so that one compares like with like."""
    skipped = _skipped(options.skip)
    # What an update writes is what was asked for; a comparison needs no more than what was recorded.
    known = CHECKS if was is None or options.update else was.checks
    checks = [check for check in CHECKS if check in known and check not in skipped]
    if options.max_us and "estimate" not in checks:
        if "estimate" in skipped:
            raise AneforgeError("--max-us: it limits estimates, which --skip leaves out. Leave one of the two away.")
        checks.append("estimate")
    feeds = None if options.inputs is None else read_arrays(options.inputs)
    if was is not None and "numerics" in was.checks and "numerics" in checks:
        if was.seed is None and feeds is None and (options.seed is None or not options.update):
            raise AneforgeError(f"{file} was made with inputs of a file: give it with --input, or --skip numerics")
        drawn_otherwise = was.seed is not None and (feeds is not None or options.seed not in (None, was.seed))
        if drawn_otherwise and not options.update:
            raise AneforgeError(
                f"{file} was made with inputs of seed {was.seed}: leave --seed and --input away, or replace it "
                "with aneforge ci update"
            )
    seed = options.seed if options.seed is not None else (was.seed if was else None) or 0
    return ObservationPlan(tuple(checks), seed, feeds, None if was is None or options.update else was.against)


def _budgets(options: CiOptions, targets: list[str]) -> dict[str, float]:
    budgets = {}
    for option in options.max_us:
        chip, _, number = option.rpartition("=")
        try:
            most = float(number)
        except ValueError:
            most = math.nan
        if not chip.strip() or not (math.isfinite(most) and most > 0):
            raise AneforgeError(f"--max-us takes TARGET=NUMBER, for instance --max-us m1=500, not {option!r}")
        name = find_target(chip).name
        if name not in targets:
            raise AneforgeError(f"--max-us {option}: {chip} is not among the targets ({', '.join(targets)})")
        budgets[name] = most
    return budgets


def _write_reports(report: BaselineReport, source: ModelFile, options: CiOptions) -> None:
    if options.junit is not None:
        from aneforge.reports.baseline.outcome import junit_text

        write_whole(options.junit, junit_text(report))
    if options.sarif is not None:
        from aneforge.reports.baseline.outcome import sarif_text

        write_whole(options.sarif, sarif_text(report, _file_of(source.path), __version__))


def _print(
    report: BaselineReport, seen: Observed, was: Baseline | None, file: Path, source: ModelFile, written: bool
) -> None:
    now = seen.baseline
    if was is not None:
        print(report_text(report))
        print(f"\n{report.model} against {file}: {counted(report)}")
    else:
        for outcome in report.outcomes:
            print(f"{outcome.severity}: {outcome.message}")
    if written:
        runs = [name for name, record in now.targets.items() if record.verdict.runs]
        targets = text.plural(len(now.targets), "target")
        print(f"wrote {file}: {', '.join(now.checks)} on {targets}; {len(runs)} can run the model, whole or in part")
        for line in _missing(seen):
            print(f"  {line}")
        gone = (
            [] if was is None else [name for name in (*was.targets, *was.checks) if name not in _recorded_names(now)]
        )
        if gone:
            print(f"no longer in it: {', '.join(gone)}")
        print("commit it beside the model; aneforge ci check then fails where one of these changes")
    elif any(outcome.rule != "over-budget" for outcome in report.of("error")):
        new = [outcome.target for outcome in report.outcomes if outcome.rule == "target-not-recorded"]
        more = f" --target {','.join([*(was.targets if was else ()), *new])}" if new else ""
        again = f"aneforge ci update {_named_words(source)}{more} --baseline {file}"
        print(f"if the changes are meant: {again}, look at the difference and commit it")


def _missing(seen: Observed) -> list[str]:
    """Targets of which the baseline holds less than was asked for, and why."""
    lines = []
    for name, record in seen.baseline.targets.items():
        refused = record.verdict.refused
        if refused is not None:
            nodes = f"{', '.join(refused.nodes)}: " if refused.nodes else ""
            what = "in part" if record.verdict.runs else "nothing runs on its engine, so verdicts only"
            lines.append(f"{chip_label(name)}: {what}; {refused.by}: {nodes}{refused.why}")
    return [*lines, *seen.not_run.values()]


def _recorded_names(now: Baseline) -> set[str]:
    return {*now.targets, *now.checks}

"""``aneforge sweep``: many models on many chips, the tables of several sweeps, and what two have differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aneforge import text
from aneforge.cli import say
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile
from aneforge.errors import AneforgeError
from aneforge.files import bytes_of, write_whole
from aneforge.reports.sweep.diff import compare
from aneforge.reports.sweep.run import Progress, sweep
from aneforge.reports.sweep.summary import markdown, summary
from aneforge.reports.sweep.table import Table, require_table_name
from aneforge.reports.sweep.table import merge as merged
from aneforge.reports.workers import WorkerLimits

_INTERRUPTED = 130


@dataclass(frozen=True)
class SweepChoices:
    """The options of ``sweep run`` besides the models."""

    target: str
    out: str
    scope: str | None
    dims: Sequence[str]
    function: str | None
    shard: str | None
    workers: int | None
    limits: WorkerLimits
    scheduler: str | None
    retry: bool
    everything: bool
    as_json: bool


def limits_of(seconds: float, memory: str) -> WorkerLimits:
    """``--max-seconds`` and ``--max-memory``."""
    size = bytes_of(memory)
    if size is None:
        raise AneforgeError(f"--max-memory {memory}: not a size. Write for instance 4G or 512M.")
    return WorkerLimits(seconds, size)


def run(models: Sequence[str], options: SweepChoices) -> int:
    """Run the sweep and print its summary; 1 if a model has no answer."""
    dims = ModelFile("", options.dims, options.function).options
    last = Progress(0)

    try:
        with working("reading the models") as shown:

            def tell(now: Progress) -> None:
                nonlocal last
                last = now
                if shown is not None:
                    shown(now.done + now.skipped, now.total, _in_words(now))

            done = sweep(
                models,
                options.target,
                options.out,
                options.scope,
                **dims,
                shard=options.shard,
                workers=options.workers,
                limits=options.limits,
                scheduler=options.scheduler,
                retry=options.retry,
                progress=tell,
            )
    except KeyboardInterrupt:
        whole = f"every result in {options.out} is whole. Run the same command again to go on."
        say.line(f"aneforge: {_stopped(last)}; {whole}")
        return _INTERRUPTED
    _write_pages(done.table, done.folder)
    now = done.progress
    say.note(
        f"{now.done} models done, {now.skipped} had a result or cannot be read, {done.shared} have the graph of "
        f"another; see {done.folder / 'summary.html'}"
    )
    print(text.as_json(done.table.to_json()) if options.as_json else summary(done.table, options.everything))
    return 0 if done.ok else 1


def merge(places: Sequence[str], out: str, everything: bool, as_json: bool) -> int:
    """Write one table of several sweeps, and print its summary; 1 if a model has no answer."""
    file = Path(out)
    require_table_name(file)
    table = merged(places)
    table.save(file)
    say.note(f"wrote {file}: {len(table.rows):,} rows")
    print(text.as_json(table.to_json()) if as_json else summary(table, everything))
    return 0 if table.ok else 1


def diff(before: str, after: str, tolerance: float, everything: bool, as_json: bool) -> int:
    """Print what differs; 1 if something does."""
    comparison = compare(before, after, tolerance)
    print(text.as_json(comparison.to_json()) if as_json else comparison.text(everything))
    return 0 if comparison.ok else 1


def _write_pages(table: Table, folder: Path) -> None:
    from aneforge.reports.sweep.summary import page

    write_whole(folder / "summary.md", markdown(table))
    write_whole(folder / "summary.html", page(table))


def _stopped(now: Progress) -> str:
    if not now.total or not now.is_planned:
        return "stopped while the models were read"
    return f"stopped with {now.skipped + now.done} of {now.total} models done"


def _in_words(now: Progress) -> str:
    """What the bar counts."""
    if not now.is_planned:
        return "models read"
    failed = [f"{now.failed} failed"] if now.failed else []
    rate = [f"{now.rate:.2g} a second"] if now.rate is not None else []
    return ", ".join(["models", *failed, *rate])

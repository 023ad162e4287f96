"""``aneforge sweep``: many models on many chips, the tables of several sweeps, and what two have differently."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aneforge.budgets import bytes_of
from aneforge.cli import say
from aneforge.cli.model_file import ModelFile
from aneforge.errors import AneforgeError
from aneforge.output import text
from aneforge.output.files import write_whole
from aneforge.sweep.diff import compare
from aneforge.sweep.merging import merge as merged
from aneforge.sweep.run import Progress, sweep
from aneforge.sweep.summary import markdown, summary
from aneforge.sweep.table import Table, require_table_name
from aneforge.workers import Limits

__all__ = ["Options", "diff", "limits_of", "merge", "run"]

_INTERRUPTED = 130
_BAR = 24


@dataclass(frozen=True)
class Options:
    """The options of ``sweep run`` besides the models."""

    target: str
    out: str
    scope: str
    dims: Sequence[str]
    function: str | None
    shard: str | None
    workers: int | None
    limits: Limits
    scheduler: str | None
    retry: bool
    everything: bool
    as_json: bool


def limits_of(seconds: float, memory: str) -> Limits:
    """``--max-seconds`` and ``--max-memory``."""
    size = bytes_of(memory)
    if size is None:
        raise AneforgeError(f"--max-memory {memory}: not a size. Write for instance 4G or 512M.")
    return Limits(seconds, size)


def run(models: Sequence[str], options: Options) -> int:
    """Run the sweep and print its summary; 1 if a model has no answer."""
    dims = ModelFile("", options.dims, options.function).options
    last = Progress(0)

    def tell(now: Progress) -> None:
        nonlocal last
        last = now
        say.progress(_bar(now))

    say.progress("reading the models ...")
    try:
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
        say.progress("")
        count = last.skipped + last.done
        print(
            f"aneforge: stopped with {count} of {last.total} models done; every result in {options.out} is whole. Run "
            "the same command again to go on.",
            file=sys.stderr,
        )
        return _INTERRUPTED
    say.progress("")
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
    found = compare(before, after, tolerance)
    print(text.as_json(found.to_json()) if as_json else found.text(everything))
    return 0 if found.ok else 1


def _write_pages(table: Table, folder: Path) -> None:
    from aneforge.sweep.page import page

    write_whole(folder / "summary.md", markdown(table))
    write_whole(folder / "summary.html", page(table))


def _bar(now: Progress) -> str:
    """The bar, the rate and the time that is left."""
    count = now.skipped + now.done
    filled = _BAR * count // max(1, now.total)
    words = [f"[{'#' * filled}{' ' * (_BAR - filled)}] {count}/{now.total} models"]
    if now.failed:
        words.append(f"{now.failed} failed")
    if now.rate is not None:
        words += [f"{now.rate:.2g}/s", f"{_duration(now.left / now.rate)} left"]
    return ", ".join(words)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

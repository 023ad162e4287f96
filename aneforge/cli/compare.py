"""``aneforge compare``: a model on several simulated chips, and where their numbers differ."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aneforge import text
from aneforge.cli import notes, say
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile
from aneforge.cli.plot import writable
from aneforge.errors import AneforgeError
from aneforge.files import write_whole
from aneforge.study.comparison import Comparison, compare
from aneforge.study.decoding import decode_steps
from aneforge.study.pairwise import diverges


@dataclass(frozen=True)
class CompareOptions:
    """What the command was asked for."""

    inputs: str | None = None
    samples: int | None = None
    reference: str | None = None
    plot: str | None = None
    fail_above: float | None = None
    mode: str = "exact"
    as_json: bool = False
    seed: int | None = None
    steps: int | None = None


@dataclass(frozen=True)
class Bounds:
    """What is asked about any input."""

    max_abs: float | None = None
    everything: bool = False


def run(model: str | ModelFile, chips: str, options: CompareOptions, bounds: Bounds | None = None) -> int:
    """Print the comparison, draw it if asked; 1 if an output differs by more than is allowed."""
    file = ModelFile.of(model)
    if bounds is not None:
        return _run_any_input(file, chips, options, bounds)
    if options.steps is not None:
        return _run_steps(file, chips, options, options.steps)
    picture = None if options.plot is None else writable(options.plot, "--plot")
    notes.slow_kernel(options.mode)
    with working(f"reading {file.name}") as progress:
        comparison = compare(
            file.path,
            chips,
            options.inputs,
            options.mode,
            options.reference,
            seed=options.seed,
            samples=options.samples,
            fail_above=options.fail_above,
            progress=progress,
            **file.options,
        )
    notes.drawn(comparison.seed, comparison.samples)
    print(text.as_json(comparison.to_json()) if options.as_json else comparison)
    _note_failures(comparison)
    if picture is not None:
        write_whole(picture, comparison.heatmap_svg(f"{Path(file.path).name}: where chips differ"))
        say.note(f"wrote {picture}")
    return 0 if comparison.ok else 1


def _refuse_beside(options: CompareOptions, option: str, **more: object) -> None:
    """Refuse options that mean nothing beside another."""
    left_out = {"--samples": options.samples, "--reference": options.reference, "--plot": options.plot,
                "--fail-above": options.fail_above, **more}  # fmt: skip
    odd = next((name for name, value in left_out.items() if value is not None), None)
    if odd is not None:
        raise AneforgeError(f"{odd}: it does not go with {option}. Leave one of them out.")


def _run_any_input(file: ModelFile, chips: str, options: CompareOptions, bounds: Bounds) -> int:
    """Print where chips can differ, by the rules alone; nothing fails."""
    _refuse_beside(options, "--any-input", **{"--decode": options.steps, "--seed": options.seed})
    with working(f"reading {file.name}") as progress:
        report = diverges(file.path, chips, bounds.max_abs, options.inputs, progress=progress, **file.options)
        answer = text.as_json(report.to_json()) if options.as_json else report.text(bounds.everything)
    print(answer)
    return 0


def _run_steps(file: ModelFile, chips: str, options: CompareOptions, steps: int) -> int:
    """Print where chips part while they decode; their numbers are shown, and nothing fails."""
    _refuse_beside(options, "--decode")
    with working(f"decoding with {file.name}") as progress:
        settings = {**file.options, "seed": options.seed, "progress": progress}
        decoding = decode_steps(file.path, chips, steps, options.inputs, options.mode, **settings)
    print(text.as_json(decoding.to_json()) if options.as_json else decoding)
    return 0


def _note_failures(comparison: Comparison) -> None:
    if comparison.fail_above is None:
        return
    for chip, outputs in comparison.exceeds(comparison.fail_above).items():
        for output in outputs:
            lost = f" and {output.lost:,} numbers finite on one of both only" if output.lost else ""
            apart = f"{output.max_ulp:,} steps{lost}; --fail-above {comparison.fail_above:g}"
            say.note(f"fails: {output.node} on {chip} differs from {comparison.reference} by {apart}")

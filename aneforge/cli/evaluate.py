"""``aneforge evaluate``: a model on a whole data set, and the shards of one put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aneforge import text
from aneforge.cli import notes, say
from aneforge.cli.notes import warnings_on_stderr, working
from aneforge.cli.options import ModelFile, require_file
from aneforge.files import write_whole
from aneforge.reports.evaluation.evaluate import evaluate_model, merge_evaluations
from aneforge.reports.evaluation.result import Evaluation
from aneforge.reports.evaluation.section import SUMMARY

_INTERRUPTED = 130


@dataclass(frozen=True)
class EvaluateOptions:
    """What the command was asked for."""

    data: str
    target: str
    metric: str | None
    reference: str | None
    mode: str
    samples: int | None
    labels: str | None
    preprocess: str | None
    compress: str | None
    calibration: str | None
    out: str | None
    shard: str | None
    strict: bool
    device: str
    as_json: bool


def run(model: str | ModelFile, options: EvaluateOptions) -> int:
    """Evaluate and print the figures; 1 if a sample has no score."""
    file = ModelFile.of(model)
    notes.slow_kernel(options.mode)
    done = total = 0
    try:
        with warnings_on_stderr(), working(f"evaluating {file.name}") as shown:

            def tell(count: int, of: int, what: str) -> None:
                nonlocal done, total
                done, total = count, of
                if shown is not None:
                    shown(count, of, what)

            result = evaluate_model(
                file.path,
                options.data,
                options.target,
                options.metric,
                options.reference,
                options.mode,
                samples=options.samples,
                labels=options.labels,
                preprocess=options.preprocess,
                compress=options.compress,
                calibration=options.calibration,
                out=options.out,
                shard=options.shard,
                strict=options.strict,
                device=options.device,
                progress=tell,
                **file.options,
            )
    except KeyboardInterrupt:
        kept = f"run the same command again to go on ({options.out})" if options.out else "nothing was kept (no --out)"
        say.line(f"aneforge: stopped with {done} of {total or '?'} samples done; {kept}")
        return _INTERRUPTED
    if options.out is not None:
        file = Path(options.out) / SUMMARY
        write_whole(file, text.as_json(result.to_json()))
        say.note(f"wrote {file}; aneforge report MODEL --evaluation {options.out} shows it on the page")
    return _shown(result, options.as_json)


def merge(folders: Sequence[str], out: str | None, as_json: bool) -> int:
    """Put shards together and print the figures; 1 if a sample has no score."""
    require_file(out)
    result = merge_evaluations(folders)
    if out is not None:
        write_whole(out, text.as_json(result.to_json()))
    if not result.is_whole:
        say.note(f"{result.asked.total - result.samples - len(result.failed)} samples of other shards are missing")
    return _shown(result, as_json)


def _shown(result: Evaluation, as_json: bool) -> int:
    print(text.as_json(result.to_json()) if as_json else result)
    return 1 if result.failed else 0

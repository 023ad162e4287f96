"""``aneforge compress``: which stored form of a model's weights to take on each chip."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.advice.compression import advise_weights
from aneforge.advice.compression_options import WeightAdvice
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile, require_file
from aneforge.errors import AneforgeError
from aneforge.formats.arguments import value_in_file


@dataclass(frozen=True)
class CompressOptions:
    """What the command was asked beside the model and the chips."""

    calibration: str | None = None
    metric: str | None = None
    runtimes: str = "coreml,coreai,direct"
    encodings: str | None = None
    method: str = "plain"
    sparsity: float | None = None
    target_error: float | None = None
    mode: str = "fast"
    layers: bool = False
    out: str | None = None
    as_json: bool = False


def run(model: str | ModelFile, chips: str, options: CompressOptions) -> None:
    """Advise, print the options and the choice, and write the chosen graph where that was asked for."""
    file = ModelFile.of(model)
    require_file(options.out)
    settings: dict[str, Any] = {"mode": options.mode, "method": options.method, **file.options}
    if options.encodings is not None:
        settings["encodings"] = options.encodings.split(",")
    if options.sparsity is not None:
        settings["sparsity"] = options.sparsity
    if options.target_error is not None:
        settings["target_error"] = options.target_error
    metric = options.metric
    if metric is not None and ".py:" in metric:
        settings["metric"] = value_in_file(metric)
    elif metric is not None:
        settings["metric"] = metric
    with working(f"reading {file.name}") as progress:
        advice = advise_weights(file.path, chips, options.calibration, options.runtimes, progress=progress, **settings)
    saved = None if options.out is None else _save(advice, options.out)
    if options.as_json:
        print(text.as_json({**advice.to_json(), "saved": options.out}))
        return
    print(advice.text(options.layers))
    if saved is not None:
        print(f"the model with weights as {saved} is in {options.out}; other commands take it as a model")


def _save(advice: WeightAdvice, out: str) -> str:
    """Write the graph of the choice; which option it is."""
    choices = {choice.option for chip in advice.values() for choice in chip.recommended.values()}
    if len(advice) != 1 or len(choices) != 1:
        raise AneforgeError(
            f"--out: it takes one choice, and there are {len(choices)} for {len(advice)} chips. Name one chip and one "
            "runtime, for instance --target m2 --runtimes coreml."
        )
    option = choices.pop()
    try:
        advice.only.graphs[option].save(Path(out))
    except OSError as error:
        raise AneforgeError(f"{out}: cannot write the graph ({error})") from None
    return option

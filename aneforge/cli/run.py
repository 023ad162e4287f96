"""``aneforge run``: a model on simulated chips, arrays in and arrays out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.advice.split.runner import is_split
from aneforge.chips.names import DEFAULT, chip_list, one_chip
from aneforge.cli import notes
from aneforge.cli.notes import warnings_on_stderr, working
from aneforge.cli.options import ModelFile, require_file
from aneforge.errors import AneforgeError
from aneforge.files import write_arrays
from aneforge.study.loading import PROGRAM_FILES
from aneforge.study.running import run as run_model


@dataclass(frozen=True)
class RunOptions:
    """What the command was asked for."""

    inputs: str | None = None
    out: str | None = None
    trace: bool = False
    batch: bool = False
    mode: str = "exact"
    as_json: bool = False
    seed: int | None = None
    kind: str | None = None


def run(model: str | ModelFile, chips: str | None, options: RunOptions) -> None:
    """Simulate, write what was asked for, and print the result."""
    file = ModelFile.of(model)
    if is_split(file.path):
        require_file(options.out)
        from aneforge.cli.split import run_folder  # brings all that plans need

        if chips is not None or options.trace or options.batch:
            raise AneforgeError("the programs of a folder run on the chip that they are for. Leave the option out.")
        run_folder(file.path, options.inputs, options.out, options.kind, options.as_json)
        return
    if options.kind is not None:
        raise AneforgeError("--call: it is for a folder that aneforge split --apply wrote. Leave it out.")
    if options.out is not None and chips is not None and len(chip_list(chips)) > 1:
        raise AneforgeError("--out: it takes the outputs of one chip. Name one, for instance --target m1.")
    require_file(options.out)
    notes.slow_kernel(options.mode)
    with warnings_on_stderr(), working(f"running {file.name} on {_chips_named(file, chips)}") as progress:
        settings: dict[str, Any] = {**file.options, "seed": options.seed, "progress": progress}
        result = run_model(file.path, chips, options.inputs, options.mode, options.trace, options.batch, **settings)
    notes.drawn(result.seed, result.samples)
    if result.comparison is None and result.only.partition is not None:
        notes.regions(result.only.partition)
    if options.out is not None:
        write_arrays(options.out, result.only.outputs)
    print(text.as_json(result.to_json()) if options.as_json else result)


def _chips_named(file: ModelFile, chips: str | None) -> str:
    """What to call the chips while one waits; a compiled program runs on the chip that it is for."""
    program = Path(file.path).suffix.casefold() in PROGRAM_FILES
    return chips or ("its chip" if program else one_chip(DEFAULT))

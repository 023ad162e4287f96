"""``aneforge ci``: a model against a committed record of itself."""

from __future__ import annotations

from typing import Annotated

import typer

from aneforge.chips.names import DEFAULT
from aneforge.cli.commands import DEPLOY, Commands
from aneforge.cli.options import SPELLINGS, AModel, AsJson, Chips, Input, Seed, chips_option, out_option

commands = Commands(
    DEPLOY,
    "ci",
    purpose="Guard a model in CI: record what is true of it on each chip, check that it stays so, update the record.",
)

Baseline = Annotated[str | None, typer.Option("--baseline", help="The committed file (default: MODEL.baseline.json).")]
Recorded = Annotated[
    str | None, chips_option(words=f"Chips: {SPELLINGS} (default: the baseline's; m1..m6 for a new one).")
]
MaxUs = Annotated[
    list[str] | None,
    typer.Option("--max-us", help="Fail if a call takes more microseconds on a chip, m1=500; repeatable."),
]
Skip = Annotated[str, typer.Option("--skip", help="Leave out these checks, separated by commas: numerics, estimates.")]
Junit = Annotated[str | None, typer.Option("--junit", help="Write the report as JUnit XML.")]
Sarif = Annotated[str | None, typer.Option("--sarif", help="Write the report as SARIF 2.1.0.")]
Tolerance = Annotated[float, typer.Option("--tolerance", help="Allow an estimate to change by this many per cent.")]
Strict = Annotated[bool, typer.Option("--strict", help="Fail on every change, also one for the better.")]


@commands.add("record", judges=True)
def ci_record(
    model: AModel,
    target: Recorded = None,
    baseline: Baseline = None,
    max_us: MaxUs = None,
    skip: Skip = "",
    seed: Seed = None,
    inputs: Input = None,
    as_json: AsJson = False,
) -> None:
    """Create the baseline of a model: its verdicts, programs, numbers and estimates on each chip. Commit the file.

    Fails if the file exists; aneforge ci update replaces it.

    Exit status: 0 written; 1 written, and an estimate is over --max-us.

    Examples:
      aneforge ci record model.onnx --target m1..m6
      aneforge ci record model.onnx --target m4,m5 --skip numerics --max-us m5=5000 --baseline fast.json
    """
    from aneforge.cli import ci as command

    options = command.CiOptions(
        "record", baseline, target, max_us=max_us or (), skip=skip, seed=seed, inputs=inputs, as_json=as_json
    )
    raise typer.Exit(command.run(model, options))


@commands.add("check", judges=True)
def ci_check(
    model: AModel,
    target: Recorded = None,
    baseline: Baseline = None,
    tolerance: Tolerance = 5.0,
    max_us: MaxUs = None,
    strict: Strict = False,
    skip: Skip = "",
    seed: Seed = None,
    inputs: Input = None,
    junit: Junit = None,
    sarif: Sarif = None,
    as_json: AsJson = False,
) -> None:
    """Compare a model with its baseline: verdicts, programs, numbers and estimates.

    Exit status: 0 nothing got worse, or with --strict changed; 1 something did, and the output says what and where.

    Examples:
      aneforge ci check model.onnx
      aneforge ci check model.onnx --tolerance 10 --sarif aneforge.sarif --junit aneforge.xml
    """
    from aneforge.cli import ci as command

    options = command.CiOptions(
        "check", baseline, target, strict, tolerance, max_us or (), skip, seed, inputs, junit, sarif, as_json
    )
    raise typer.Exit(command.run(model, options))


@commands.add("update", judges=True)
def ci_update(
    model: AModel,
    target: Recorded = None,
    baseline: Baseline = None,
    tolerance: Tolerance = 5.0,
    max_us: MaxUs = None,
    skip: Skip = "",
    seed: Seed = None,
    inputs: Input = None,
    junit: Junit = None,
    sarif: Sarif = None,
    as_json: AsJson = False,
) -> None:
    """Replace the baseline by what is true now, and show what changed. Look at the difference, then commit it.

    Exit status: 0 written; 1 written, and an estimate is over --max-us.

    Examples:
      aneforge ci update model.onnx
      aneforge ci update model.onnx --target m1..m6
    """
    from aneforge.cli import ci as command

    options = command.CiOptions(
        "update", baseline, target, False, tolerance, max_us or (), skip, seed, inputs, junit, sarif, as_json
    )
    raise typer.Exit(command.run(model, options))


@commands.add("compare")
def ci_compare(
    models: Annotated[list[str], typer.Argument(help="Model files of this repository.")],
    base: Annotated[str, typer.Option("--base", help="Compare with the files of this commit.")] = "HEAD",
    target: Chips = DEFAULT,
    out: Annotated[str | None, out_option("Write the comparison as Markdown here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare models with their versions at a commit, as the text of a comment on a change.

    It says what aneforge report --compare says: verdicts, operations, times, memory and risks that changed.

    Examples:
      aneforge ci compare model.onnx --base origin/main -o comment.md
      aneforge ci compare model.onnx --target m1,m5
    """
    from aneforge.cli import ci_compare as command

    command.run(models, base, target, out, as_json)

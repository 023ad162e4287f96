"""``aneforge sweep``: many models on many chips."""

from __future__ import annotations

from typing import Annotated

import typer

from aneforge.chips.names import DEFAULT
from aneforge.cli.commands import DEPLOY, Commands, GroupWithDefault
from aneforge.cli.options import AsJson, Chips, Dims, Function, MaxMemory, MaxSeconds, Scope, out_option

commands = Commands(
    DEPLOY,
    "sweep",
    purpose="Run many models on many chips, merge the results, compare two runs: "
    "aneforge sweep MODELS... --out FOLDER.",
    cls=GroupWithDefault,
)


@commands.add("run", judges=True)
def sweep_run(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Models: paths, quoted patterns, folders, or a list of models (.json, .jsonl, .csv with path)."
        ),
    ],
    out: Annotated[
        str, out_option("Keep one result for each model in this folder; what is there is not done again.", "FOLDER")
    ],
    target: Chips = DEFAULT,
    scope: Scope = None,
    shard: Annotated[str | None, typer.Option(help="Do only part i of n, written i/n; merge joins the parts.")] = None,
    workers: Annotated[int | None, typer.Option(help="Use this many processes (default: one for each core).")] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Run on the workers of this Dask scheduler, such as tcp://host:8786.")
    ] = None,
    max_seconds: MaxSeconds = 600.0,
    max_memory: MaxMemory = "8G",
    retry: Annotated[bool, typer.Option("--retry", help="Do models again that ended with an error.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="List every model, not only the first ones.")] = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Run check and estimate of many models on many chips.

    Run it again to go on after a stop: models with a result are skipped. A model that fails is a row with its error.
    The folder also gets summary.md and summary.html.

    Exit status: 0 every model has an answer; 1 one has not.

    Examples:
      aneforge sweep models/ --out results
      aneforge sweep 'models/*.onnx' --target macs --out results
      aneforge sweep zoo.csv --shard 2/8 --out results-2
    """
    from aneforge.cli import sweep as command

    limits = command.limits_of(max_seconds, max_memory)
    options = command.SweepChoices(
        target, out, scope, dim or (), function, shard, workers, limits, scheduler, retry, everything, as_json
    )
    raise typer.Exit(command.run(models, options))


@commands.add("merge")
def sweep_merge(
    folders: Annotated[list[str], typer.Argument(help="Folders of sweeps, or tables that were merged before.")],
    out: Annotated[str, out_option("Write the table to NAME.parquet, .csv or .json.")],
    everything: Annotated[bool, typer.Option("--all", help="List every model, not only the first ones.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the results of several sweeps or shards as one table.

    Exit status: 0 every model has an answer; 1 one has not.

    Examples:
      aneforge sweep merge results-1 results-2 --out results.csv
      aneforge sweep merge results-1 results-2 --out results.parquet
    """
    from aneforge.cli import sweep as command

    raise typer.Exit(command.merge(folders, out, everything, as_json))


@commands.add("compare")
def sweep_compare(
    before: Annotated[str, typer.Argument(help="A folder of a sweep, or a table.")],
    after: Annotated[str, typer.Argument(help="Another, of the same models.")],
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Allow a number to change by this many per cent.")
    ] = 0.0,
    everything: Annotated[bool, typer.Option("--all", help="List every change, not only the first ones.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two sweeps: verdicts, operations, times, memory, rules and errors.

    Exit status: 0 nothing differs; 1 something does.

    Examples:
      aneforge sweep compare last-week today
      aneforge sweep compare last-week today --tolerance 5
    """
    from aneforge.cli import sweep as command

    raise typer.Exit(command.diff(before, after, tolerance, everything, as_json))

"""``aneforge measure``: this package beside what was measured on real chips."""

from __future__ import annotations

from typing import Annotated

import typer

from aneforge.cli.commands import MEASURE, Commands
from aneforge.cli.options import AsJson, chip_option

commands = Commands(
    MEASURE,
    "measure",
    purpose="Compare aneforge with what was measured on real chips: the answers of check, or the times of estimate;"
    " or what a kit measured; or tell how fast a machine copies.",
)


@commands.add("cost")
def measure_cost(
    file: Annotated[str, typer.Argument(help="Measured times: a JSON file with rows as above.")],
    every: Annotated[
        bool,
        typer.Option("--all", help="Also use rows whose quality says that they timed something else than the engine."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the times of aneforge estimate with times that were measured on real chips.

    FILE is a JSON object with a list of rows. Each row has latency_us (microseconds) and chip or target, and describes
    what was timed: layers (a list such as {"op": "conv", "cin": 64, "cout": 64, "h": 56, "w": 56, "kh": 3, "kw": 3})
    or flops, weight_bytes and act_bytes; inputs and outputs (shapes); and scope (as for aneforge estimate, default
    host_call).

    Prints, for all rows and by chip, scope and kind of operation: median, mean and 90th percentile of the relative
    error in per cent, the factor between both, the bias, and how well the order of the rows is predicted.

    Examples:
      aneforge measure cost times.json
      aneforge measure cost times.json --all --json
    """
    from aneforge.cli import measure_cost as command

    command.run(file, every, as_json)


@commands.add("gate")
def measure_gate(
    file: Annotated[str, typer.Argument(help="Measured verdicts: a JSON file with rows as above.")],
    as_json: AsJson = False,
) -> None:
    """Compare the answers of aneforge check with verdicts that were measured on real chips.

    FILE is a JSON object with a list of rows, as aneforge contribute writes it. Each row has op, shapes, chip or
    target, route (conversion or direct) and verdict, which is what the chip did: accept, decompose, wrong_result, cpu
    or reject; optionally attrs, const, dtype and weights.

    Prints how often the answer is the same, how often it is right about whether the operation runs, how many pairs of
    rows on both sides of a limit are both right, and how many wrong results are announced. With --json, also every row
    that is answered otherwise, and why.

    Examples:
      aneforge measure gate rows.json
      aneforge measure gate rows.json --json
    """
    from aneforge.cli import measure_gate as command

    command.run(file, as_json)


@commands.add("machine")
def measure_machine(
    times: Annotated[
        list[str], typer.Argument(help="What calls of one relu took: ELEMENTS:MICROSECONDS, two sizes or more.")
    ],
    target: Annotated[str, chip_option("The chip of that machine.")],
    as_json: AsJson = False,
) -> None:
    """Estimate how fast a machine's host copies, from the times of one relu at growing sizes.

    The copies belong to the machine and not to its engine: two machines with the same chip differ by a factor of 2.5.
    Time a model that is one relu of fp16 numbers, in calls from Python with arrays, at three sizes or more (say 2**14,
    2**18 and 2**22 elements). What the engine takes for it is subtracted. The command prints the option that gives the
    rate to aneforge estimate.

    Examples:
      aneforge measure machine 16384:151 262144:284 4194304:2410 --target m4
      aneforge measure machine 65536:180 1048576:760 --target m1 --json
    """
    from aneforge.cli import measure_machine as command

    command.run(times, target, as_json)


@commands.add("kit")
def measure_kit(
    file: Annotated[str, typer.Argument(help="The results.json of a kit.")],
    profile: Annotated[
        str | None,
        typer.Option("--profile", help="Write the machine's copies, start and rates to this file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare aneforge with the results of a kit: placement, numbers, and times with the machine's own copies.

    --profile FILE.json writes what was measured of the machine. aneforge estimate --machine FILE.json takes it, and
    finds NAME.json in the folder aneforge/machines of your configuration (~/.config) by its name.

    Examples:
      aneforge measure kit results.json
      aneforge measure kit results.json --profile mine.json
    """
    from aneforge.cli import measure_kit as command

    command.run(file, profile, as_json)

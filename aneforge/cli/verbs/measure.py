"""The commands about time, and about what was measured on real chips."""

from __future__ import annotations

from typing import Annotated

import typer

from aneforge.chips.names import DEFAULT
from aneforge.cli.commands import MEASURE, Commands
from aneforge.cli.options import (
    SPELLINGS,
    AModel,
    AsJson,
    Changes,
    Chips,
    Scope,
    chip_option,
    chips_option,
    out_option,
)

commands = Commands(MEASURE)


@commands.add(judges=True)
def estimate(
    model: AModel,
    target: Chips = DEFAULT,
    scope: Scope = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Also show the slowest layers, and what bounds them.")
    ] = False,
    basis: Annotated[
        bool, typer.Option("--basis", help="Also show the constants behind the figures, with evidence.")
    ] = False,
    vendor: Annotated[
        bool, typer.Option("--vendor", help="Also show the time by the compiler's own published model.")
    ] = False,
    changes: Changes = 3,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine",
            help="A machine whose copies are published, such as 'M4 (MacBook Air)', or the file of one that a kit "
            "measured (NAME.json).",
        ),
    ] = None,
    copy_gbs: Annotated[
        float | None, typer.Option("--copy-gbs", help="How fast this machine's host copies, in GB/s, as measured.")
    ] = None,
    lifecycle: Annotated[
        bool,
        typer.Option("--lifecycle", help="Show what loading and waking take instead, as aneforge lifecycle does."),
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Also show every layer.")] = False,
    as_json: AsJson = False,
) -> None:
    """Estimate how long a model takes on each chip, where the time goes, and which changes would help most.

    Every figure has an interval and a basis. The changes are compiled and estimated as the model is. A model that is
    not on the engine whole is timed in parts: regions of the engine, crossings, the host as a band.

    Examples:
      aneforge estimate model.onnx --target all
      aneforge estimate net.py --target m1 --layers
    """
    from aneforge.cli import estimate as command

    if lifecycle:
        from aneforge.cli import lifecycle as other_command

        other_command.run(model, target, as_json)
        return
    command.run(model, target, scope, layers, basis, vendor, as_json, everything, changes, machine, copy_gbs)


@commands.add(judges=True)
def plot(
    model: AModel,
    kind: Annotated[str, typer.Argument(help="The picture: roofline, timeline or chips.")],
    out: Annotated[str, out_option("Write the picture to NAME.svg (an existing file is replaced), or - to print it.")],
    target: Annotated[
        str | None, chips_option(words=f"Chips: {SPELLINGS} (default: macs,phones for chips, m1 for the others).")
    ] = None,
    scope: Scope = None,
    as_json: AsJson = False,
) -> None:
    """Draw the estimates of a model as an SVG file.

    roofline: layers under each chip's roof; timeline: layers along time (both up to 4 chips); chips: all chips.

    Examples:
      aneforge plot model.onnx chips --out chips.svg
      aneforge plot net.py roofline --target m1,m5 --out roof.svg
    """
    from aneforge.cli import plot as command

    command.run(model, kind, target, scope, out, as_json)


@commands.add()
def contribute(
    file: Annotated[
        str,
        typer.Argument(
            help="The results.json of a kit; a compute plan of a Mac, as JSON with the names of MLComputePlan; or a "
            ".hwx file."
        ),
    ],
    out: Annotated[
        str | None, out_option("Write the rows as JSON to this file (results of a kit can be read without it).")
    ] = None,
    system: Annotated[
        str | None,
        typer.Option("--os", help="The system that gave it, for instance 'macOS 26.1' (results of a kit say it)."),
    ] = None,
    target: Annotated[str | None, chip_option("The chip of that Mac (default: the one that the file names).")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Read the shapes from this model, which the plan is of.")
    ] = None,
    source: Annotated[str, typer.Option("--source", help="A name for where the rows come from.")] = "contributed",
    earlier: Annotated[
        list[str] | None,
        typer.Option("--earlier", help="Earlier results of a kit, which these may disagree with (can be repeated)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write what a Mac gave as evidence for you to send in: results of a kit, a compute plan, or a compiled program.

    The results of a kit (aneforge kit) are checked first: a file that was cut, changed, simulated or cannot be true is
    refused. Then the command says which hypothesis of which unknown the chip behaves as, and what stays open.

    Rows hold kinds of operations, shapes, chip, system and answer. Names of the model, of its operations, of files and
    of people are left out. A plan that aneforge predicted is refused. aneforge measure gate compares the rows with
    check.

    A compiled program (.hwx) becomes a record of the words of its tasks, with its shapes and without weights and
    names. Write the network into it. Where several chips have the same registers, --target says which one it is for.

    Examples:
      aneforge contribute results.json
      aneforge contribute results.json -o rows.json
      aneforge contribute conv.hwx --os 'macOS 26.1' -o record.json
      aneforge contribute plan.json --target m1 --os 'macOS 26.1' --model model.onnx -o rows.json
      aneforge contribute plan.json --target m1 --os 'macOS 26.1' -o rows.json --json
    """
    from aneforge.cli import contribute as command

    options = command.ContributeOptions(target, system, out, model, source, tuple(earlier or ()))
    command.run(file, options, as_json)

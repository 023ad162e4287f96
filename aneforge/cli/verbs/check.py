"""The commands that say what chips do with a model, before anything is deployed."""

from __future__ import annotations

from typing import Annotated

import typer

from aneforge.chips.names import DEFAULT
from aneforge.cli.commands import CHECK, Commands
from aneforge.cli.options import (
    USUAL_ROUTE,
    AModel,
    AsJson,
    Changes,
    Chips,
    Everything,
    MaxAbs,
    ModelFile,
    OneChip,
    Scope,
    SeenInput,
    model_argument,
    out_option,
    route_option,
)
from aneforge.study.outcomes import FAIL_ON

commands = Commands(CHECK)


@commands.add(judges=True)
def check(
    model: AModel,
    target: Chips = DEFAULT,
    fail_on: Annotated[
        str,
        typer.Option(
            help="Fail on these outcomes, separated by commas: reject, oversize, unknown, risk, placement, decompose; "
            "or none."
        ),
    ] = FAIL_ON,
    max_abs: MaxAbs = None,
    route: Annotated[str | None, route_option(USUAL_ROUTE)] = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Show what each chip will do with a model: native, decomposed, rejected, too large, numerically risky, and why.

    Outcomes: native, decompose (rewritten), reject, oversize, risk (it runs, and numbers can be wrong), placement
    (it runs as a program of its own, and Core ML or Core AI keeps it off the engine) and unknown (nobody has seen
    whether it runs).

    Prints a table of chips with the number of operations of each outcome, then every reason once with the nodes, the
    rule, its limit and what to do. A chip that runs the model in part says how much of it; the rest would run on the
    CPU or GPU.

    Exit status: 0 every chip runs the whole model with the right numbers; 1 one has an outcome of --fail-on.

    Examples:
      aneforge check model.onnx --target all
      aneforge check net.py:out --target m1 --fail-on reject,risk
      aneforge check model.onnx --target m1,m5 --json
    """
    from aneforge.cli import check as command

    raise typer.Exit(command.run(model, target, fail_on, as_json, route, everything, max_abs))


@commands.add()
def validate(
    model: Annotated[
        ModelFile, model_argument("A netplist, any model that check reads, or the type of one layer (SDPA).")
    ],
    target: Chips = DEFAULT,
    route: Annotated[str, route_option("")] = "direct",
    params: Annotated[
        str | None, typer.Option(help="Of one layer: its parameters as a JSON object, such as '{\"K\": 5}'.")
    ] = None,
    shapes: Annotated[
        str | None, typer.Option(help="Of one layer: the shapes of its inputs, such as 1x4x1x16,1x1x1x6.")
    ] = None,
    bonded: Annotated[bool, typer.Option("--bonded", help="Ask for one program that runs on two engines.")] = False,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Show the compiler's answer to every layer: a table of layers by chips, with reject strings, stage and evidence.

    MODEL is a file, or the type of one layer with its parameters and the shapes of its inputs.

    Exit status: 0 every chip accepts every layer; 1 a chip rejects one.

    Examples:
      aneforge validate net.plist --target all
      aneforge validate model.onnx --route conversion
      aneforge validate Softmax --params '{"Dimension": "Channel"}' --shapes 1x8x4x4 --target m1,m5
    """
    from aneforge.cli import validate as command

    raise typer.Exit(command.run(model, target, route, params, shapes, bonded, as_json, everything))


@commands.add(judges=True)
def partition(
    model: AModel,
    target: Chips = DEFAULT,
    by: Annotated[
        str | None,
        typer.Option(
            help="What goes to the engine: rules (all that may), runtime (without what the runtime keeps off) or "
            "placement (what Core ML likely puts there); default: runtime where one is asked about, else rules."
        ),
    ] = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Split a model into regions of the engine and of the host, and show what crosses between them and what it costs.

    Prints for each chip the regions in order, what runs on the host and why, and the bytes and time of every crossing.

    Examples:
      aneforge partition bert.onnx --target m1 --dim batch=1
      aneforge partition net.py --by placement
    """
    from aneforge.cli import partition as command

    command.run(model, target, by, as_json, everything)


@commands.add()
def risks(
    model: AModel,
    target: Chips = DEFAULT,
    max_abs: MaxAbs = None,
    inputs: SeenInput = None,
    out: Annotated[
        str | None,
        out_option("Write the graph with the cures that are safe, NAME.aneforge, which other commands read."),
    ] = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Find what a chip can lose: overflows, clamps and cancellation, each with its range and a cure.

    Ranges hold for all inputs within --max-abs, or within what the model promises of its inputs; with --input they are
    what a run on that file shows.

    Exit status: 0 nothing can be lost; 1 something can.

    Examples:
      aneforge risks net.py --target m1 --max-abs 4
      aneforge risks net.py --target m1 --out fixed.aneforge
    """
    from aneforge.cli import numerics as command

    if not command.run(model, target, max_abs, inputs, out, as_json, everything):
        raise typer.Exit(1)


@commands.add(judges=True)
def plan(
    model: AModel,
    target: OneChip = DEFAULT,
    out: Annotated[str | None, out_option("Write the plan as JSON to this file.")] = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Show the compute plan of a model as a Mac would likely report it: the device of each operation, cost and why.

    The JSON has the form that report --measured and contribute read, so that a plan from a Mac can be compared with
    it. A plan as JSON in place of the model is shown as it is, with the regions that Core AI made and the device of
    each.

    Exit status: 0 the plan was shown; 1 it is from a Mac and puts a region or an operation on the GPU.

    Examples:
      aneforge plan model.onnx --target m1
      aneforge plan model.onnx --target m4 -o plan.json
    """
    from aneforge.cli import plan as command

    raise typer.Exit(command.run(model, target, out, as_json, everything))


@commands.add(judges=True)
def report(
    model: AModel,
    target: Chips = DEFAULT,
    out: Annotated[
        str | None,
        out_option("Write NAME.html, .md, .csv, .json, .trace.json (Perfetto), .onnx or .sarif (default: Markdown)."),
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option("--format", help="Write html, md, csv, json, perfetto, onnx or sarif, where --out does not say."),
    ] = None,
    scope: Scope = None,
    changes: Changes = 3,
    max_abs: MaxAbs = None,
    measured: Annotated[
        str | None,
        typer.Option("--measured", help="Show a Mac's compute plan beside the predictions: FILE, or CHIP=FILE."),
    ] = None,
    evaluation: Annotated[
        str | None,
        typer.Option("--evaluation", help="Show the figures that aneforge evaluate left in FOLDER.", metavar="FOLDER"),
    ] = None,
    compare: Annotated[
        str | None, typer.Option("--compare", help="Compare with another model, or with a saved report (.json).")
    ] = None,
    compare_target: Annotated[
        str | None, typer.Option("--compare-target", help="Compare with these chips, or use them for --compare.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain a model on every chip in one page: verdicts, reasons, program, times, memory, risks, what-ifs.

    It has one chip of every engine of a Mac or a phone, unless --target names others: all is the 28 targets of the
    compiler, "m1 max" that product.

    The page is one file that needs no network. Markdown is for a pull request, CSV has one line for each chip (and a
    second file one for each layer), JSON has everything and can be read again in place of a model. A .trace.json opens
    in Perfetto; an .onnx is the model with a note on every node, for Netron; a .sarif is for code scanning.

    Examples:
      aneforge report model.onnx -o report.html
      aneforge report old.onnx --compare new.onnx -o diff.md
      aneforge report model.onnx --target m1 --compare-target m5
      aneforge report model.onnx --measured m1=plan.json -o report.html
    """
    from aneforge.cli import report as command

    options = command.ReportOptions(
        target,
        out,
        "json" if as_json else format_name,
        scope,
        changes,
        max_abs,
        measured,
        evaluation,
        compare,
        compare_target,
    )
    command.run(model, options)

"""The commands that compile a model, look into what was compiled, and change the model before."""

from __future__ import annotations

from typing import Annotated

import typer

from aneforge.chips.names import DEFAULT
from aneforge.cli.commands import COMPILE, Commands
from aneforge.cli.options import (
    USUAL_ROUTE,
    AModel,
    AsJson,
    Chips,
    Code,
    Mode,
    OneChip,
    Passes,
    chip_option,
    out_option,
    route_option,
)

commands = Commands(COMPILE)


@commands.add("compile")
def compile_(
    model: AModel,
    target: Chips = "m1",
    explain: Annotated[
        str | None, typer.Option(help="Show why this node became what it is, pass by pass; all shows every node.")
    ] = None,
    show: Annotated[
        str | None,
        typer.Option(
            metavar="PARTS",
            help="Show how one program comes about: code, schedule, memory, tasks or all, with commas between.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        out_option(
            "Write the program to NAME.hwx, NAME.anef or NAME.anec, or the listing, the JSON and the backend code to "
            "a folder.",
            "PLACE",
        ),
    ] = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="Check the meaning in float64 before and after every pass.")
    ] = False,
    route: Annotated[str | None, route_option(USUAL_ROUTE)] = None,
    allow_text: Annotated[
        bool, typer.Option("--allow-text", help="Write NAME.anec also where a task's work has no words.")
    ] = False,
    driver_header: Annotated[
        str | None,
        typer.Option(
            "--driver-header", metavar="BYTES", help="Header of NAME.anec: 0x1000, or 0x800 for old loaders."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile a model through all four phases and print the program: segments, task groups, layers, addresses.

    For several chips, print how many distinct programs there are and what each phase did for them.

    Exit status: 0 every chip takes the model, whole or in regions; 1 a chip refuses it.

    Examples:
      aneforge compile net.py --target m1
      aneforge compile net.py --target all
      aneforge compile net.py --target m1 --explain conv_0
      aneforge compile net.py --target m1 --show all
      aneforge compile net.py --target m1 --out net.hwx
    """
    from aneforge.cli import compile as command

    raise typer.Exit(
        command.run(model, target, explain, show, out, validate, as_json, route, allow_text, driver_header)
    )


@commands.add()
def lower(
    model: AModel,
    target: OneChip = "m1",
    passes: Passes = "",
    out: Code = None,
    as_json: AsJson = False,
) -> None:
    """Print a model as backend code for one chip: rewritten where the chip lacks an op, lowered, optionally fused.

    The code is text that aneforge opt reads. With -v, say what was rewritten and what each pass did.

    Examples:
      aneforge lower net.py --target m1
      aneforge lower net.py --target m1 --pass fuse -v
    """
    from aneforge.cli import lower as command

    command.run(model, target, passes, out, as_json)


@commands.add()
def opt(
    file: Annotated[
        str | None, typer.Argument(help="Backend code in text form, or - for standard input.", show_default=False)
    ] = None,
    passes: Passes = "",
    target: Annotated[
        str | None,
        chip_option("One chip (m1) or compiler target (h13g) (default: the one that the text names)."),
    ] = None,
    out: Code = None,
    as_json: AsJson = False,
) -> None:
    """Run compiler passes on backend code in text form; without a file, list the passes.

    FILE is what aneforge lower prints. With -v, say what each pass did.

    Examples:
      aneforge opt
      aneforge opt net.mlir --pass fuse --target h13 -v
    """
    from aneforge.cli import opt as command

    if file is None:
        command.list_passes(as_json)
    else:
        command.run(file, passes, target, out, as_json)


@commands.add()
def inspect(
    file: Annotated[str, typer.Argument(help="A compiled program: a container (.hwx) of any chip, or .anec.")],
    compare: Annotated[
        str | None, typer.Option(help="Show only what OTHER states differently, by name; status 1 if anything.")
    ] = None,
    task: Annotated[int | None, typer.Option(help="Show every register of this task, numbered from 0.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print the words of tasks as they are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a compiled program holds: ports, sections, and what each task computes, reads and writes.

    Words whose meaning is not published are shown as unknown. Nothing is run.

    Exit status: 0 shown, or --compare finds no difference; 1 --compare finds one.

    Examples:
      aneforge inspect net.hwx
      aneforge inspect net.hwx --task 0
      aneforge inspect before.hwx --compare after.hwx
    """
    from aneforge.cli import inspect as command

    raise typer.Exit(command.run(file, compare, task, raw, as_json))


@commands.add(judges=True)
def tune(
    model: AModel,
    target: OneChip = "m1",
    budget: Annotated[int, typer.Option(help="Compile and simulate this many candidates at most.")] = 8,
    target_error: Annotated[
        float | None,
        typer.Option(help="Allow compressed weights up to this relative error of the outputs (default: none are)."),
    ] = None,
    out: Annotated[str | None, out_option("Write the chosen graph, which other commands read.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also list the candidates that were not tried.")] = False,
    form: Annotated[
        str | None, typer.Option(help="Apply this form by name wherever it fits, without a search; needs --out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the form of a model that is estimated to be fastest on a chip, checked in the simulator.

    Prints every candidate with its estimate and why it was kept or not. Nothing is timed on hardware. With -v, say
    what is being tried. With --form, apply one form that a message names.

    Examples:
      aneforge tune net.py --target m5
      aneforge tune model.onnx --form conv-as-dense --out changed.aneforge
      aneforge tune net.py --target m2 --target-error 0.01 --out tuned.aneforge
    """
    from aneforge.cli import say
    from aneforge.cli import tune as command

    if form is not None:
        command.run_form(model, form, out)
        return
    command.run(model, target, budget, target_error, out, as_json, say.voice().verbose, everything)


@commands.add()
def compress(
    model: AModel,
    target: Chips = DEFAULT,
    calibration: Annotated[
        str | None, typer.Option(help="Read samples of the inputs by name from FILE.npz (default: drawn from a seed).")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Also judge the outputs: top1, rmse, or FILE.py:FUNCTION of the outputs and those of fp16."),
    ] = None,
    runtimes: Annotated[str, typer.Option(help="Ways to the engine, separated by commas.")] = "coreml,coreai,direct",
    encodings: Annotated[
        str | None,
        typer.Option(help="Try these, separated by commas: int8, int4, lut6, lut8, sparse, blockwise, w8a8."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="How weights are encoded: plain, or calibrated (fitted to the samples).")
    ] = "plain",
    sparsity: Annotated[
        float | None, typer.Option(help="The share of weights that sparse makes zero, between 0 and 1 (default: 0.5).")
    ] = None,
    target_error: Annotated[
        float | None,
        typer.Option(help="Allow compressed weights up to this relative error of the outputs (default: 0.01)."),
    ] = None,
    mode: Mode = "fast",
    layers: Annotated[bool, typer.Option("--layers", help="Also show every layer in every encoding.")] = False,
    out: Annotated[str | None, out_option("Write the chosen graph, which other commands read.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find how to store the weights on each chip: bytes, streams or folds, time, and error in the simulator.

    Every encoding is tried on the whole model, and the fastest within --target-error is recommended. Nothing is timed
    on hardware.

    Examples:
      aneforge compress net.py --target m1,m2,m5 --calibration samples.npz
      aneforge compress net.py --target m2 --runtimes coreml --method calibrated --out smaller.aneforge
    """
    from aneforge.cli import compress as command

    options = command.CompressOptions(
        calibration, metric, runtimes, encodings, method, sparsity, target_error, mode, layers, out, as_json
    )
    command.run(model, target, options)


@commands.add(judges=True)
def split(
    model: AModel,
    target: Chips = DEFAULT,
    context: Annotated[
        int | None, typer.Option(help="Tokens that the caches hold (default: as many as the model has places for).")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="Store the weights of the layers as int8, int4, lut6, lut8 or blockwise."),
    ] = None,
    apply: Annotated[
        str | None,
        typer.Option("--apply", metavar="FOLDER", help="Write the programs for one chip into this new folder."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find a cut of a large model into programs that load: layers, head, caches, memory, and what a token takes.

    Layers, head and caches are found in the graph. Every limit is named with its source, and so is what a larger
    program would break. Nothing is timed on hardware.

    Exit status: 0 the programs load on every chip, as far as is known; 1 on one they do not.

    Examples:
      aneforge split decoder.py --target m4,a17-pro --context 2048
      aneforge split decoder.py --target m4 --weights int4 --apply pieces
    """
    from aneforge.cli import split as command

    raise typer.Exit(command.run(model, target, command.SplitOptions(context, weights, apply, as_json)))

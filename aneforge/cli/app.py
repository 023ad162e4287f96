"""The commands and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from aneforge import __version__

app = typer.Typer(
    name="aneforge",
    help="Compiler, simulator and cost model for the Apple Neural Engine, on any machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

AModel = Annotated[
    str,
    typer.Argument(
        help="A model: .onnx, .mlpackage, .mlmodel, .mil, .pt2, .aimodel, a netplist, FILE.py:NAME or a saved graph."
    ),
]
Dims = Annotated[
    list[str] | None, typer.Option("--dim", help="The value of a symbolic dimension of the file, NAME=SIZE; several.")
]
Function = Annotated[str | None, typer.Option("--function", help="Which function of a file that holds several.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, with the evidence of every value.")]


def _version(asked: bool) -> None:
    if asked:
        print(f"aneforge {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compiler, simulator and cost model for the Apple Neural Engine, on any machine.

    Chips are named as you would say them: M1, "M2 Pro", a17-pro, T8103, or by compiler target (h13g).
    Every value carries its evidence: measured, decoded, predicted, inferred or unknown.
    """


@app.command()
def targets(
    name: Annotated[
        str | None, typer.Argument(help="One chip or target: everything about it.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also list names that no compiler build constructs.")] = False,
    as_json: AsJson = False,
) -> None:
    """List every target, or tell everything about one.

    Examples:  aneforge targets   |   aneforge targets "M1 Max"   |   aneforge targets m2 --json
    """
    from aneforge.cli import targets as command

    if name is None:
        command.show_all(every, as_json)
    else:
        command.show_one(name, as_json)


@app.command()
def hal(
    chip: Annotated[str, typer.Argument(help="Chip or target.")],
    field: Annotated[
        str | None, typer.Argument(help="A byte offset (0x1b8) or a field name.", show_default=False)
    ] = None,
    diff: Annotated[str | None, typer.Option(help="Another chip: print the fields that differ.")] = None,
    build: Annotated[
        str | None, typer.Option(help="Compiler build whose offsets are meant: 9.509 or 10.26.6.")
    ] = None,
    unknowns: Annotated[bool, typer.Option(help="Also show fields whose value is not published.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read the hardware-abstraction table of a chip: all of it, one field, or the difference to another chip.

    Examples:  aneforge hal h13 0x1b8   |   aneforge hal m1 texture_engine   |   aneforge hal h13 --diff h17s
    """
    from aneforge.cli import hal as command

    command.show(chip, field, diff, build, unknowns, as_json)


@app.command()
def ops(
    names: Annotated[
        list[str] | None, typer.Argument(help="Operations to show (all if none).", show_default=False)
    ] = None,
    target: Annotated[str, typer.Option(help="Chips, separated by commas.")] = "m1,m2,m3,m4",
    route: Annotated[str | None, typer.Option(help="conversion or direct (default: the one a graph takes).")] = None,
    differ: Annotated[bool, typer.Option(help="Only operations whose status differs between the chips.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which operation is native, decomposed or rejected on which chip.

    Examples:  aneforge ops --target m1,m2,m5 --differ   |   aneforge ops sin topk --target m1,m6
    """
    from aneforge.cli import ops as command

    command.show(names or [], target, route, differ, as_json)


@app.command()
def explain(
    number: Annotated[str, typer.Argument(help="A conflict (C03), a choice of ours (U08) or a source key (S35).")],
    as_json: AsJson = False,
) -> None:
    """Tell what is behind a label: the sources that disagree and why one wins, or what a source key is."""
    from aneforge.cli import explain as command

    command.show(number, as_json)


@app.command()
def check(
    model: AModel,
    target: Annotated[str, typer.Option(help="Chips, separated by commas, or all.")] = "all",
    fail_on: Annotated[
        str, typer.Option(help="Exit with 1 on these: reject, oversize, risk, decompose, or none.")
    ] = "reject,oversize",
    route: Annotated[
        str, typer.Option(help="How the program reaches a chip: conversion, or direct (authored layers; below A13).")
    ] = "conversion",
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Tell what each chip will do with a graph: native, decomposed, rejected, too large, numerically risky, and why.

    Examples:  aneforge check model.onnx --target all   |   aneforge check net.py:out --target m1 --fail-on reject,risk
    """
    from aneforge.cli import check as command
    from aneforge.cli.model_file import ModelFile

    raise typer.Exit(command.run(ModelFile(model, dim or (), function), target, fail_on, as_json, route))


@app.command()
def gate(
    model: AModel,
    baseline: Annotated[
        str | None, typer.Option(help="The committed file (default: the model's with .baseline.json behind it).")
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(help="Chips: m1,m5, m1..m6 or all (default: the baseline's; m1..m6 for a new one)."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Make the baseline; a file that is there stays.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Replace the baseline, showing what changed.")] = False,
    tolerance: Annotated[float, typer.Option(help="Per cent by which an estimate may move.")] = 5.0,
    max_us: Annotated[
        list[str] | None, typer.Option("--max-us", help="The most microseconds of a call, TARGET=NUMBER; several.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Every change fails, also one for the better.")] = False,
    skip: Annotated[str, typer.Option(help="Leave out numerics, estimates or both, separated by commas.")] = "",
    seed: Annotated[int | None, typer.Option(help="Draw other inputs when the baseline is made (0).")] = None,
    given: Annotated[
        str | None, typer.Option("--input", help="Inputs by name (.npz); drawn from the seed if none.")
    ] = None,
    junit: Annotated[str | None, typer.Option(help="Write the report as JUnit XML.")] = None,
    sarif: Annotated[str | None, typer.Option(help="Write the report as SARIF 2.1.0.")] = None,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Compare a model with its committed baseline: verdicts, programs, numbers and estimates; 1 if something changed.

    Examples:  aneforge gate model.onnx --targets m1..m6 --write   |   aneforge gate model.onnx --sarif aneforge.sarif
    """
    from aneforge.cli import gate as command
    from aneforge.cli.model_file import ModelFile

    options = command.Options(
        baseline, targets, write, update, strict, tolerance, max_us or (), skip, seed, given, junit, sarif, as_json
    )
    raise typer.Exit(command.run(ModelFile(model, dim or (), function), options))


@app.command("gate-eval")
def gate_eval(
    file: Annotated[str, typer.Argument(help="Measured verdicts, in the schema of verdicts_train.json.")],
    as_json: AsJson = False,
) -> None:
    """Compare the gate's answers with verdicts measured on real chips."""
    from aneforge.cli import gate_eval as command

    command.run(file, as_json)


@app.command()
def estimate(
    model: AModel,
    target: Annotated[str, typer.Option(help="Chips, separated by commas, or all.")] = "m1,m2,m4,m5,m6",
    scope: Annotated[
        str, typer.Option(help="What a call covers: coreml_call, host_call, direct_call or device_task.")
    ] = "coreml_call",
    layers: Annotated[bool, typer.Option(help="Also the layers that take longest, and what bounds them.")] = False,
    basis: Annotated[bool, typer.Option(help="Also every constant behind the figures, with its evidence.")] = False,
    vendor: Annotated[bool, typer.Option(help="Also the time by the compiler's own published model.")] = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Estimate how long a model takes on each chip, with the interval and the basis of every figure.

    Examples:  aneforge estimate model.onnx --target all   |   aneforge estimate net.py --target m1 --layers
    """
    from aneforge.cli import estimate as command
    from aneforge.cli.model_file import ModelFile

    command.run(ModelFile(model, dim or (), function), target, scope, layers, basis, vendor, as_json)


@app.command()
def plot(
    model: AModel,
    kind: Annotated[str, typer.Argument(help="roofline, timeline or chips.")],
    out: Annotated[str, typer.Option(help="The file to write, NAME.svg (one that is there is replaced), or -.")],
    target: Annotated[
        str | None,
        typer.Option(help="Chips, separated by commas, or all (default: all for chips, m1 for the others)."),
    ] = None,
    scope: Annotated[
        str, typer.Option(help="What a call covers: coreml_call, host_call, direct_call or device_task.")
    ] = "coreml_call",
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Draw the estimates of a model as an SVG file.

    roofline: layers under each chip's roof; timeline: layers along time (both up to 4 chips); chips: all chips.

    Examples:  aneforge plot model.onnx chips --out chips.svg   |   aneforge plot net.py roofline --target m1,m5
    --out roof.svg
    """
    from aneforge.cli import plot as command
    from aneforge.cli.model_file import ModelFile

    command.run(ModelFile(model, dim or (), function), kind, target, scope, out)


@app.command()
def tune(
    model: AModel,
    target: Annotated[str, typer.Option(help="Chip or target.")] = "m1",
    budget: Annotated[int, typer.Option(help="How many candidates are compiled and simulated, at most.")] = 8,
    target_error: Annotated[
        float | None, typer.Option(help="Allow compressed weights up to this relative error (default: none).")
    ] = None,
    save: Annotated[str | None, typer.Option(help="Write the chosen graph, which other commands read.")] = None,
    verbose: Annotated[bool, typer.Option(help="Tell on stderr what is being tried.")] = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Find the form of a model that is estimated to be fastest on a chip, checked in the simulator.

    Nothing is timed. Examples:  aneforge tune net.py --target m5   |   aneforge tune net.py --target m2
    --target-error 0.01 --save tuned.aneforge
    """
    from aneforge.cli import tune as command
    from aneforge.cli.model_file import ModelFile

    command.run(ModelFile(model, dim or (), function), target, budget, target_error, save, as_json, verbose)


MaxAbs = Annotated[float | None, typer.Option(help="A bound on the magnitude of every input.")]
Data = Annotated[str | None, typer.Option("--input", help="Data as FILE.npz: ranges are what a run on them shows.")]


@app.command()
def diverges(
    model: AModel,
    targets: Annotated[str, typer.Option(help="Chips, separated by commas; the first is held against the others.")],
    max_abs: MaxAbs = None,
    data: Data = None,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """List every layer in which chips can give different numbers, by how much at most, and why.

    Nothing is run on the model: a layer that is not listed has the same bits for every input in its range.
    Examples:  aneforge diverges net.py --targets m1,m5 --max-abs 4   |   aneforge diverges m.onnx --targets m1,m2,m5
    --input batch.npz
    """
    from aneforge.cli import numerics as command
    from aneforge.cli.model_file import ModelFile

    command.run_diverges(ModelFile(model, dim or (), function), targets, max_abs, data, as_json)


@app.command()
def risks(
    model: AModel,
    target: Annotated[str, typer.Option(help="Chip or target.")] = "m1",
    max_abs: MaxAbs = None,
    data: Data = None,
    rewrite: Annotated[str | None, typer.Option(help="Write the graph with safe rewrites, NAME.aneforge.")] = None,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Find what a chip can lose: overflows, clamps and cancellation, each with its range and a cure; status 1 if any.

    Examples:  aneforge risks net.py --target m1 --max-abs 4   |   aneforge risks net.py --rewrite fixed.aneforge
    """
    from aneforge.cli import numerics as command
    from aneforge.cli.model_file import ModelFile

    if not command.run_risks(ModelFile(model, dim or (), function), target, max_abs, data, rewrite, as_json):
        raise typer.Exit(1)


@app.command("cost-eval")
def cost_eval(
    file: Annotated[str, typer.Argument(help="Measured times, in the schema of silicon/train.json.")],
    every: Annotated[
        bool, typer.Option("--all", help="Also rows that measured something else than the engine.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the cost model with measured times: median, mean and 90th percentile of the error, bias and ranking.

    Example:  aneforge cost-eval train.json
    """
    from aneforge.cli import cost_eval as command

    command.run(file, every, as_json)


@app.command()
def opt(
    file: Annotated[
        str | None, typer.Argument(help="Backend code in text form, or - for standard input.", show_default=False)
    ] = None,
    passes: Annotated[
        str,
        typer.Option(
            "--pass", help="Passes, separated by commas, or a whole phase: fuse, legalise, schedule, memory."
        ),
    ] = "",
    target: Annotated[str | None, typer.Option(help="Chip or target (default: the one the text names).")] = None,
    log: Annotated[bool, typer.Option(help="Say on stderr what each pass did.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run compiler passes on backend code in text form; without a file, list the passes.

    Examples:  aneforge opt   |   aneforge opt net.mlir --pass fuse --target h13 --log
    """
    from aneforge.cli import opt as command

    if file is None:
        command.list_passes(as_json)
    else:
        command.run(file, passes, target, log)


@app.command("compile")
def compile_(
    model: AModel,
    target: Annotated[str, typer.Option(help="Chip or target; several separated by commas, or all 28.")] = "m1",
    explain: Annotated[
        str | None, typer.Option(help="Tell why a node became what it is, pass by pass; all for every node.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Folder for the listing, the JSON and the backend code.")] = None,
    validate: Annotated[bool, typer.Option(help="Check the meaning in float64 before and after every pass.")] = False,
    route: Annotated[
        str | None,
        typer.Option(help="conversion or direct (authored layers); by default direct below A13, else conversion."),
    ] = None,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Compile a model through all four phases and print the program: segments, partitions, layers, addresses.

    For several targets, print how many distinct programs there are and what each phase did for them.

    Examples:  aneforge compile net.py --target m1   |   aneforge compile net.py --target all   |
    aneforge compile net.py --target m1 --explain conv_0
    """
    from aneforge.cli import compile as command
    from aneforge.cli.model_file import ModelFile

    file = ModelFile(model, dim or (), function)
    raise typer.Exit(command.run(file, target, explain, out, validate, as_json, route))


@app.command("run")
def run_(
    model: AModel,
    target: Annotated[
        str, typer.Option(help="A chip or target, or several (m1,m2,m5) to see where they differ.")
    ] = "m1",
    given: Annotated[
        str | None, typer.Option("--input", help="Inputs by name (.npz); drawn from a seed if none.")
    ] = None,
    out: Annotated[str | None, typer.Option("--output", help="Write the outputs by name (.npz).")] = None,
    trace: Annotated[bool, typer.Option(help="Show every op of every layer with its values and fidelity.")] = False,
    batch: Annotated[bool, typer.Option(help="Inputs have one more axis in front: one run for each.")] = False,
    fidelity: Annotated[str, typer.Option(help="exact, or fast: single-precision sums, one rounding.")] = "exact",
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Simulate a model on a chip: the numbers its engine would give, and how far each can be trusted.

    Examples:  aneforge run net.py --target m1   |   aneforge run net.py --target m5 --input x.npz --output y.npz
    |   aneforge run net.py --target m1,m2,m5,m6
    """
    from aneforge.cli import run as command
    from aneforge.cli.model_file import ModelFile

    command.run(
        ModelFile(model, dim or (), function), target, command.Options(given, out, trace, batch, fidelity, as_json)
    )


@app.command()
def compare(
    model: AModel,
    targets: Annotated[
        str,
        typer.Option(
            "--targets", "--target", help="Two chips or more, separated by commas, or all; float64 adds the error."
        ),
    ] = "m1,m2,m5",
    reference: Annotated[
        str | None, typer.Option(help="The chip that the others are held against (default: the first).")
    ] = None,
    given: Annotated[
        str | None, typer.Option("--input", help="Inputs by name (.npz), of one sample or many; drawn if none.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="How many samples are drawn, or read where the file has many.")
    ] = None,
    picture: Annotated[
        str | None, typer.Option("--plot", help="Draw a heat map, NAME.svg (one that is there is replaced).")
    ] = None,
    fail_above: Annotated[
        float | None, typer.Option(help="Exit with 1 if an output differs by more steps of fp16 than this.")
    ] = None,
    fidelity: Annotated[str, typer.Option(help="exact, or fast: single-precision sums, one rounding.")] = "exact",
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Simulate a model on several chips and show, node by node, where their numbers part and how far.

    Examples:  aneforge compare net.py --targets m1,m2,m5   |   aneforge compare net.py --targets m1,m5 --samples 8
    --plot heat.svg   |   aneforge compare net.py --targets m1,m5 --fail-above 64
    """
    from aneforge.cli import compare as command
    from aneforge.cli.model_file import ModelFile

    options = command.Options(given, samples, reference, picture, fail_above, fidelity, as_json)
    raise typer.Exit(command.run(ModelFile(model, dim or (), function), targets, options))


@app.command()
def partition(
    model: AModel,
    target: Annotated[str, typer.Option(help="Chip or target; several separated by commas.")] = "m1",
    by: Annotated[
        str, typer.Option(help="rules: all that is eligible; placement: what Core ML would likely choose.")
    ] = "rules",
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Split a model into regions of the engine and of the host, and show what crosses between them and what it costs.

    Examples:  aneforge partition bert.onnx --target m1 --dim batch=1   |   aneforge partition net.py --by placement
    """
    from aneforge.cli import partition as command
    from aneforge.cli.model_file import ModelFile

    command.run(ModelFile(model, dim or (), function), target, by, as_json)


@app.command()
def export(
    model: AModel,
    path: Annotated[str, typer.Argument(help="The package to write, NAME.mlpackage.")],
    target: Annotated[
        str | None, typer.Option(help="The chip whose missing ops are rewritten (default: what no chip has).")
    ] = None,
    region: Annotated[
        int | None, typer.Option(help="Only this region of the model, as aneforge partition numbers them.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a package that is there.")] = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Write a model as a Core ML package: fp16, weights in the form they are stored in, rewrites of the target inside.

    Nothing is run on a device. Examples:  aneforge export model.onnx model.mlpackage --target m1
    """
    from aneforge.cli import export as command
    from aneforge.cli.model_file import ModelFile

    command.run(ModelFile(model, dim or (), function), path, target, region, overwrite, as_json)


@app.command()
def probe(
    target: Annotated[str, typer.Option(help="Chip or target.")] = "m1",
    as_json: AsJson = False,
) -> None:
    """Show public probes of the engine's arithmetic: what was read off chips, and what the simulator gives.

    Examples:  aneforge probe --target m1   |   aneforge probe --target m5 --json
    """
    from aneforge.cli import probe as command

    command.run(target, as_json)


@app.command()
def lower(
    model: AModel,
    target: Annotated[str, typer.Option(help="Chip or target.")] = "m1",
    passes: Annotated[
        str, typer.Option("--pass", help="Passes or phases to run afterwards: fuse, legalise, schedule, memory.")
    ] = "",
    log: Annotated[bool, typer.Option(help="Say on stderr what was rewritten and what each pass did.")] = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Print a model as backend code for one chip: rewritten where the chip lacks an op, lowered, optionally fused.

    Examples:  aneforge lower examples/unet_block.py --target m1 --pass fuse --log
    """
    from aneforge.cli import lower as command
    from aneforge.cli.model_file import ModelFile

    command.run(ModelFile(model, dim or (), function), target, passes, log)

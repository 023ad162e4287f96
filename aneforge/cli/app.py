"""The commands and their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from aneforge import __version__
from aneforge.cli.default_command import GroupWithDefault
from aneforge.cli.help import HelpfulCommand
from aneforge.cli.options import (
    CHECK,
    COMPILE,
    DEPLOY,
    LOOK_UP,
    MEASURE,
    RUN,
    SPELLINGS,
    AModel,
    AsJson,
    Dims,
    Everything,
    Function,
    GroupedCommands,
    Input,
    Seed,
    complete_chips,
    out_option,
    with_voice,
)
from aneforge.defaults import DEFAULT_CHIPS
from aneforge.errors import AneforgeError

app = typer.Typer(
    name="aneforge",
    cls=GroupedCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
ci = typer.Typer(
    name="ci",
    help="Guard a model in CI: record what is true of it on each chip, check that it stays so, update the record.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(ci, rich_help_panel=DEPLOY)
measure = typer.Typer(
    name="measure",
    help="Compare aneforge with what was measured on real chips: the answers of check, or the times of estimate.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(measure, rich_help_panel=MEASURE)

sweep = typer.Typer(
    name="sweep",
    cls=GroupWithDefault,
    help="Run many models on many chips, merge the results, compare two runs: aneforge sweep MODELS... --out FOLDER.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(sweep, rich_help_panel=DEPLOY)


def _command(
    panel: str, name: str | None = None, home: typer.Typer = app
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command of a group of the help, with the options that all commands have."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        home.command(name, cls=HelpfulCommand, rich_help_panel=panel)(with_voice(function))
        return function

    return register


def _chips(what: str = "Chips", words: str | None = None) -> Any:
    """``--target``: one meaning and one set of spellings in every command."""
    return typer.Option("--target", help=words or f"{what}: {SPELLINGS}.", autocompletion=complete_chips)


Chips = Annotated[str, _chips()]
OneChip = Annotated[str, _chips(words="A chip (m1) or a compiler target (h13g).")]
MaxAbs = Annotated[float | None, typer.Option("--max-abs", help="Bound the magnitude of every input.")]
Scope = Annotated[
    str, typer.Option("--scope", help="What a call covers: coreml_call, host_call, direct_call or device_task.")
]
Mode = Annotated[str, typer.Option("--mode", help="exact, or fast: single-precision sums, one rounding.")]
Loss = Annotated[
    str, typer.Option(help="What the output is: output (the loss itself), mse or cross-entropy against 'target'.")
]
LossScale = Annotated[float, typer.Option(help="Gradients are computed times this, so that fp16 holds small ones.")]
Passes = Annotated[
    str,
    typer.Option("--pass", help="Passes, separated by commas, or a whole phase: fuse, legalise, schedule, memory."),
]
Code = Annotated[str | None, out_option("Write the code to this file instead of printing it.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"aneforge {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compiler, simulator and cost model for the Apple Neural Engine, on any machine.

    Name chips as you would say them: M1, "M2 Pro", a17-pro, T8103, or by compiler target (h13g). Name several as
    m1,m5 or m1..m6 or macs, phones, all. Every command takes -q, -v, --color and, where it has results, --json.

    Exit status: 0 fine; 1 a check found something; 2 the command or its input is wrong; 3 a bug in aneforge.
    """


# Look up.


@_command(LOOK_UP)
def targets(
    chips: Annotated[
        str | None,
        typer.Argument(
            help=f"One chip: everything about it. Several ({SPELLINGS}): their rows.",
            show_default=False,
            autocompletion=complete_chips,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also list names that no compiler build constructs.")] = False,
    as_json: AsJson = False,
) -> None:
    """List every target, or show everything about one.

    Examples:  aneforge targets   |   aneforge targets "M1 Max"   |   aneforge targets m2 --json
    """
    from aneforge.cli import targets as command

    command.show(chips, every, as_json)


@_command(LOOK_UP)
def hal(
    chip: Annotated[str, typer.Argument(help="A chip or compiler target.", autocompletion=complete_chips)],
    field: Annotated[
        str | None, typer.Argument(help="A byte offset (0x1b8) or a field name.", show_default=False)
    ] = None,
    diff: Annotated[
        str | None, typer.Option(help="Print the fields that differ from this chip.", autocompletion=complete_chips)
    ] = None,
    build: Annotated[
        str | None, typer.Option(help="Read offsets as this compiler build has them: 9.509 or 10.26.6.")
    ] = None,
    unknowns: Annotated[bool, typer.Option(help="Also show fields whose value is not published.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read the hardware-abstraction table of a chip: all of it, one field, or the difference to another chip.

    Examples:  aneforge hal h13 0x1b8   |   aneforge hal m1 texture_engine   |   aneforge hal h13 --diff h17s
    """
    from aneforge.cli import hal as command

    command.show(chip, field, diff, build, unknowns, as_json)


@_command(LOOK_UP)
def ops(
    names: Annotated[
        list[str] | None, typer.Argument(help="Operations to show (all if none).", show_default=False)
    ] = None,
    target: Chips = "m1..m6",
    route: Annotated[str | None, typer.Option(help="conversion or direct (default: the one a graph takes).")] = None,
    differ: Annotated[bool, typer.Option(help="Only operations whose status differs between the chips.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which operation is native, decomposed or rejected on which chip.

    Examples:  aneforge ops --target m1,m2,m5 --differ   |   aneforge ops sin topk --target m1,m6
    """
    from aneforge.cli import ops as command

    command.show(names or [], target, route, differ, as_json)


@_command(LOOK_UP)
def explain(
    number: Annotated[str, typer.Argument(help="A conflict (C03), a choice of ours (U08) or a source key (S35).")],
    as_json: AsJson = False,
) -> None:
    """Explain a label: the sources that disagree and why one wins, or what a source key is.

    Examples:  aneforge explain C03   |   aneforge explain S35
    """
    from aneforge.cli import explain as command

    command.show(number, as_json)


@_command(LOOK_UP)
def probe(target: Chips = DEFAULT_CHIPS["probe"], as_json: AsJson = False) -> None:
    """Show public probes of the engine's arithmetic: what was read off chips, and what the simulator gives.

    Examples:  aneforge probe --target m1   |   aneforge probe --target m5 --json
    """
    from aneforge.cli import probe as command

    command.run(target, as_json)


@_command(LOOK_UP)
def doctor(as_json: AsJson = False) -> None:
    """Check this installation: versions, native kernel, optional packages, detected chip, settings and data.

    Exit status 1 if something is degraded. Examples:  aneforge doctor   |   aneforge doctor --json
    """
    from aneforge.cli import doctor as command

    raise typer.Exit(command.run(as_json))


@_command(LOOK_UP)
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove every stored model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the imported models that are kept on this machine, their place and their size, or remove them.

    Examples:  aneforge cache   |   aneforge cache --clear
    """
    from aneforge.cli import cache as command

    command.run(clear, as_json)


# Check.


@_command(CHECK)
def check(
    model: AModel,
    target: Chips = DEFAULT_CHIPS["check"],
    fail_on: Annotated[
        str, typer.Option(help="Exit with 1 on these: reject, oversize, risk, decompose, or none.")
    ] = "reject,oversize",
    route: Annotated[
        str | None,
        typer.Option(
            help="How the program reaches a chip: conversion, or direct (default: the one that compile takes)."
        ),
    ] = None,
    everything: Everything = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Show what each chip will do with a model: native, decomposed, rejected, too large, numerically risky, and why.

    A chip that runs the model in part says how much of it, and fails, since it refuses some: --fail-on none allows it.
    Examples:  aneforge check model.onnx --target all   |   aneforge check net.py:out --target m1 --fail-on reject,risk
    """
    from aneforge.cli import check as command
    from aneforge.cli.model_file import ModelFile

    file = ModelFile(model, dim or (), function)
    raise typer.Exit(command.run(file, target, fail_on, as_json, route, everything))


@_command(CHECK)
def validate(
    model: Annotated[
        str, typer.Argument(help="A netplist, any model that check reads, or the type of one layer (SDPA).")
    ],
    target: Chips = DEFAULT_CHIPS["validate"],
    route: Annotated[str, typer.Option(help="How layers reach a chip: direct (authored) or conversion.")] = "direct",
    params: Annotated[
        str | None, typer.Option(help="Of one layer: its parameters as JSON, numbers as they are.")
    ] = None,
    shapes: Annotated[
        str | None, typer.Option(help="Of one layer: the shapes of its bottoms, 1x4x1x16,1x1x1x6.")
    ] = None,
    bonded: Annotated[bool, typer.Option("--bonded", help="Ask for one program of two engines.")] = False,
    everything: Everything = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Show the compiler's answer to every layer: a table of layers by chips, with reject strings, stage and evidence.

    Exit status 1 if a chip rejects anything. Examples:  aneforge validate net.plist --target all   |
    aneforge validate TopK --params '{"Type": "Max", "K": 3, ...}' --shapes 1x4x1x16 --target m1,m5
    """
    from aneforge.cli import validate as command
    from aneforge.cli.model_file import ModelFile

    if command.is_layer(model):
        raise typer.Exit(command.layer(model, params, shapes, target, route, as_json))
    if params is not None or shapes is not None:
        raise AneforgeError("--params and --shapes: they describe one layer, and a file was named. Leave them out.")
    file = ModelFile(model, dim or (), function)
    raise typer.Exit(command.network(file, target, route, bonded, as_json, everything))


@_command(CHECK)
def partition(
    model: AModel,
    target: Chips = DEFAULT_CHIPS["partition"],
    by: Annotated[
        str, typer.Option(help="rules: all that is eligible; placement: what Core ML would likely choose.")
    ] = "rules",
    everything: Everything = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Split a model into regions of the engine and of the host, and show what crosses between them and what it costs.

    Examples:  aneforge partition bert.onnx --target m1 --dim batch=1   |   aneforge partition net.py --by placement
    """
    from aneforge.cli import partition as command
    from aneforge.cli.model_file import ModelFile

    command.run(ModelFile(model, dim or (), function), target, by, as_json, everything)


@_command(CHECK)
def risks(
    model: AModel,
    target: Chips = DEFAULT_CHIPS["risks"],
    max_abs: MaxAbs = None,
    inputs: Input = None,
    out: Annotated[str | None, out_option("Write the graph with the safe rewrites, NAME.aneforge.")] = None,
    everything: Everything = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Find what a chip can lose: overflows, clamps and cancellation, each with its range and a cure; status 1 if any.

    Ranges hold for all inputs within max_abs; with --input they are what a run on that file shows.
    Examples:  aneforge risks net.py --target m1 --max-abs 4   |   aneforge risks net.py --out fixed.aneforge
    """
    from aneforge.cli import numerics as command
    from aneforge.cli.model_file import ModelFile

    if not command.run_risks(ModelFile(model, dim or (), function), target, max_abs, inputs, out, as_json, everything):
        raise typer.Exit(1)


@_command(CHECK)
def diverges(
    model: AModel,
    target: Annotated[str, _chips("Two chips or more; the first is the reference")] = DEFAULT_CHIPS["diverges"],
    max_abs: MaxAbs = None,
    inputs: Input = None,
    everything: Everything = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """List every layer in which chips can give different numbers, by how much at most, and why.

    Nothing is run on the model: a layer that is not listed has the same bits for every input in its range.
    With --input, ranges are what a run on that file shows.
    Examples:  aneforge diverges net.py --target m1,m5 --max-abs 4   |   aneforge diverges m.onnx --target m1..m6
    --input batch.npz
    """
    from aneforge.cli import numerics as command
    from aneforge.cli.model_file import ModelFile

    command.run_diverges(ModelFile(model, dim or (), function), target, max_abs, inputs, as_json, everything)


# Compile.


@_command(COMPILE, "compile")
def compile_(
    model: AModel,
    target: Chips = "m1",
    explain: Annotated[
        str | None, typer.Option(help="Show why a node became what it is, pass by pass; all for every node.")
    ] = None,
    out: Annotated[
        str | None,
        out_option(
            "Write the listing, the JSON and the backend code to this folder, or the program to FILE.hwx or FILE.anef."
        ),
    ] = None,
    validate: Annotated[bool, typer.Option(help="Check the meaning in float64 before and after every pass.")] = False,
    route: Annotated[
        str | None,
        typer.Option(help="conversion or direct (authored layers); by default direct below A13, else conversion."),
    ] = None,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Compile a model through all four phases and print the program: segments, task groups, layers, addresses.

    For several targets, print how many distinct programs there are and what each phase did for them.

    Examples:  aneforge compile net.py --target m1   |   aneforge compile net.py --target all   |
    aneforge compile net.py --target m1 --explain conv_0
    """
    from aneforge.cli import compile as command
    from aneforge.cli.model_file import ModelFile

    file = ModelFile(model, dim or (), function)
    raise typer.Exit(command.run(file, target, explain, out, validate, as_json, route))


@_command(COMPILE)
def lower(
    model: AModel,
    target: OneChip = "m1",
    passes: Passes = "",
    out: Code = None,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Print a model as backend code for one chip: rewritten where the chip lacks an op, lowered, optionally fused.

    With -v, say what was rewritten and what each pass did.
    Examples:  aneforge lower examples/unet_block.py --target m1 --pass fuse -v
    """
    from aneforge.cli import lower as command
    from aneforge.cli.model_file import ModelFile

    command.run(ModelFile(model, dim or (), function), target, passes, out, as_json)


@_command(COMPILE)
def opt(
    file: Annotated[
        str | None, typer.Argument(help="Backend code in text form, or - for standard input.", show_default=False)
    ] = None,
    passes: Passes = "",
    target: Annotated[
        str | None, _chips(words="A chip (m1) or a compiler target (default: the one the text names).")
    ] = None,
    out: Code = None,
    as_json: AsJson = False,
) -> None:
    """Run compiler passes on backend code in text form; without a file, list the passes.

    With -v, say what each pass did. Examples:  aneforge opt   |   aneforge opt net.mlir --pass fuse --target h13 -v
    """
    from aneforge.cli import opt as command

    if file is None:
        command.list_passes(as_json)
    else:
        command.run(file, passes, target, out, as_json)


@_command(COMPILE)
def inspect(
    file: Annotated[str, typer.Argument(help="A compiled program: a container (.hwx) of any chip, or .anec.")],
    diff: Annotated[
        str | None, typer.Option(help="Show only what OTHER states differently, by name; status 1 if anything.")
    ] = None,
    task: Annotated[int | None, typer.Option(help="Show every register of this task, numbered from 0.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print the words of tasks as they are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a compiled program holds: ports, sections, and what each task computes, reads and writes.

    Words whose meaning is not published are shown as unknown. Nothing is run.
    Examples:  aneforge inspect net.hwx --task 0   |   aneforge inspect before.hwx --diff after.hwx
    """
    from aneforge.cli import inspect as command

    raise typer.Exit(command.run(file, diff, task, raw, as_json))


@_command(COMPILE)
def tune(
    model: AModel,
    target: OneChip = "m1",
    budget: Annotated[int, typer.Option(help="Compile and simulate this many candidates at most.")] = 8,
    target_error: Annotated[
        float | None, typer.Option(help="Allow compressed weights up to this relative error (default: none).")
    ] = None,
    out: Annotated[str | None, out_option("Write the chosen graph, which other commands read.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also list the candidates that were not tried.")] = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Find the form of a model that is estimated to be fastest on a chip, checked in the simulator.

    Nothing is timed. With -v, say what is being tried. Examples:  aneforge tune net.py --target m5   |
    aneforge tune net.py --target m2 --target-error 0.01 --out tuned.aneforge
    """
    from aneforge.cli import say
    from aneforge.cli import tune as command
    from aneforge.cli.model_file import ModelFile

    file = ModelFile(model, dim or (), function)
    command.run(file, target, budget, target_error, out, as_json, say.voice().verbose, everything)


@_command(COMPILE)
def compress(
    model: AModel,
    target: Chips = DEFAULT_CHIPS["compress"],
    calibration: Annotated[
        str | None, typer.Option(help="Read samples of the inputs from FILE.npz (default: drawn).")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Also judge the outputs: top1, rmse, or FILE.py:FUNCTION of two lists.")
    ] = None,
    runtimes: Annotated[str, typer.Option(help="Ways to the engine, of these three.")] = "coreml,coreai,direct",
    encodings: Annotated[
        str | None,
        typer.Option(help="Try int8, int4, lut6, lut8, sparse, blockwise, w8a8 (default: one of each kind)."),
    ] = None,
    method: Annotated[str, typer.Option(help="Write weights plain, or calibrated: fitted to the samples.")] = "plain",
    sparsity: Annotated[float | None, typer.Option(help="Make this share of zeros for sparse (default: 0.5).")] = None,
    target_error: Annotated[
        float | None, typer.Option(help="Choose within this relative error (default: 0.01).")
    ] = None,
    mode: Mode = "fast",
    layers: Annotated[bool, typer.Option(help="Also show every layer in every encoding.")] = False,
    out: Annotated[str | None, out_option("Write the chosen graph, which other commands read.")] = None,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Find how to store the weights on each chip: bytes, streams or folds, time, and error in the simulator.

    Nothing is timed. Examples:  aneforge compress net.onnx --target m1,m2,m5 --calibration samples.npz   |
    aneforge compress net.onnx --target m2 --runtimes coreml --method calibrated --out smaller.aneforge
    """
    from aneforge.cli import compress as command
    from aneforge.cli.model_file import ModelFile

    options = command.Options(
        calibration, metric, runtimes, encodings, method, sparsity, target_error, mode, layers, out, as_json
    )
    command.run(ModelFile(model, dim or (), function), target, options)


# Run.


@_command(RUN, "run")
def run_(
    model: AModel,
    target: Annotated[str, _chips("One chip, or several to see where they differ")] = DEFAULT_CHIPS["run"],
    inputs: Input = None,
    seed: Seed = None,
    out: Annotated[str | None, out_option("Write the outputs of one chip by name, FILE.npz.")] = None,
    trace: Annotated[bool, typer.Option(help="Show every op of every layer with its values and fidelity.")] = False,
    batch: Annotated[bool, typer.Option(help="Run each sample of --input, whose arrays have one more axis.")] = False,
    mode: Mode = "exact",
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Simulate a model on one chip or several and print the outputs; for several, also where their numbers differ.

    With several chips this is aneforge compare with the outputs of each chip in front.

    Examples:  aneforge run net.py --target m1   |   aneforge run net.py --target m5 --input x.npz --out y.npz
    |   aneforge run net.py --target m1,m2,m5,m6
    """
    from aneforge.cli import run as command
    from aneforge.cli.model_file import ModelFile

    options = command.Options(inputs, out, trace, batch, mode, as_json, seed)
    command.run(ModelFile(model, dim or (), function), target, options)


@_command(RUN)
def compare(
    model: AModel,
    target: Annotated[str, _chips("Two chips or more; float64 among them adds the error of each")] = DEFAULT_CHIPS[
        "compare"
    ],
    reference: Annotated[
        str | None,
        typer.Option(help="Compare the others with this chip (default: the first).", autocompletion=complete_chips),
    ] = None,
    inputs: Input = None,
    seed: Seed = None,
    samples: Annotated[
        int | None, typer.Option(help="Draw this many samples, or read as many where the file has many.")
    ] = None,
    picture: Annotated[
        str | None, typer.Option("--plot", help="Draw a heat map, NAME.svg (an existing file is replaced).")
    ] = None,
    fail_above: Annotated[
        float | None, typer.Option(help="Exit with 1 if an output differs by more steps of fp16 than this.")
    ] = None,
    mode: Mode = "exact",
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Simulate a model on several chips and show, node by node, where their numbers differ and how far.

    The same as aneforge run with several chips, without the outputs, and with a reference, a limit and a picture.
    Drawn inputs fill the ranges that the model promises (max_abs, bytes), and one sample lies at their ends.

    Examples:  aneforge compare net.py --target m1,m2,m5   |   aneforge compare net.py --target m1,m5 --samples 8
    --plot heat.svg   |   aneforge compare net.py --target m1,m5 --fail-above 64
    """
    from aneforge.cli import compare as command
    from aneforge.cli.model_file import ModelFile

    options = command.Options(inputs, samples, reference, picture, fail_above, mode, as_json, seed)
    raise typer.Exit(command.run(ModelFile(model, dim or (), function), target, options))


@_command(RUN)
def train(
    model: AModel,
    data: Annotated[str, typer.Option(help="Samples by input name, FILE.npz: all of them along the first axis.")],
    target: OneChip = DEFAULT_CHIPS["train"],
    steps: Annotated[int, typer.Option(help="Train until this many steps are done in all.")] = 300,
    loss: Loss = "output",
    lr: Annotated[float, typer.Option(help="The rate of the optimiser.")] = 0.01,
    loss_scale: LossScale = 1.0,
    optimizer: Annotated[str, typer.Option(help="The optimiser: sgd or adam.")] = "sgd",
    device: Annotated[bool, typer.Option("--device", help="Put the optimiser into the program, in fp16.")] = False,
    overflow: Annotated[
        str, typer.Option(help="At a gradient that is not finite: skip the step, also halve the scale, or error.")
    ] = "skip",
    out: Annotated[str | None, out_option("Write a checkpoint here, also after Ctrl-C.")] = None,
    every: Annotated[int, typer.Option(help="Also write it after this many steps, again and again.")] = 0,
    resume: Annotated[str | None, typer.Option(help="Continue from this checkpoint.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Draw the batches from this seed (default: 0).")] = None,
    mode: Mode = "exact",
    as_json: AsJson = False,
) -> None:
    """Train the parameters of a graph under a chip's arithmetic, step by step in the simulator.

    The model is a graph with parameters (af.parameter, af.conv_param), whose first axis is the batch.
    Examples:  aneforge train net.py:loss --data batch.npz --target m1   |   aneforge train net.py:logits --loss
    cross-entropy --data digits.npz --loss-scale 1024 --out run.ckpt
    """
    from aneforge.cli import train as command
    from aneforge.cli.model_file import ModelFile

    rates = (loss, lr, loss_scale, optimizer, device, overflow)
    settings = command.Options(data, steps, *rates, out, every, resume, seed, mode, as_json)
    command.run(ModelFile(model), target, settings)


@_command(RUN, "gradcheck")
def gradcheck_(
    model: AModel,
    target: Chips = DEFAULT_CHIPS["gradcheck"],
    inputs: Input = None,
    loss: Loss = "output",
    loss_scale: LossScale = 1.0,
    samples: Annotated[int, typer.Option(help="Numbers of each parameter that are moved.")] = 8,
    seed: Seed = None,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Compare gradients under a chip's arithmetic with float64 differences, and advise a loss scale.

    Names the first op that loses a gradient. Exit status 1 if one is lost. Examples:  aneforge gradcheck net.py:loss
    --target m1,m5   |   aneforge gradcheck net.py:logits --loss cross-entropy --input batch.npz --loss-scale 1024
    """
    from aneforge.cli import train as command
    from aneforge.cli.model_file import ModelFile

    file = ModelFile(model, dim or (), function)
    if not command.check(file, target, inputs, loss, loss_scale, samples, seed, as_json):
        raise typer.Exit(1)


# Measure.


@_command(MEASURE)
def estimate(
    model: AModel,
    target: Chips = DEFAULT_CHIPS["estimate"],
    scope: Scope = "coreml_call",
    layers: Annotated[bool, typer.Option(help="Also show the slowest layers, and what bounds them.")] = False,
    basis: Annotated[bool, typer.Option(help="Also show the constants behind the figures, with evidence.")] = False,
    vendor: Annotated[bool, typer.Option(help="Also show the time by the compiler's own published model.")] = False,
    changes: Annotated[
        int, typer.Option(help="Work out this many changes that would help on each chip; 0 leaves them out.")
    ] = 3,
    everything: Annotated[bool, typer.Option("--all", help="Also show every layer.")] = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Estimate how long a model takes on each chip, where the time goes, and which changes would help most.

    Every figure has an interval and a basis. The changes are compiled and estimated as the model is. A model that is
    not on the engine whole is timed in parts: regions of the engine, crossings, the host as a band.
    Examples:  aneforge estimate model.onnx --target all   |   aneforge estimate net.py --target m1 --layers
    """
    from aneforge.cli import estimate as command
    from aneforge.cli.model_file import ModelFile

    file = ModelFile(model, dim or (), function)
    command.run(file, target, scope, layers, basis, vendor, as_json, everything, changes)


@_command(CHECK)
def plan(
    model: AModel,
    target: OneChip = DEFAULT_CHIPS["plan"],
    out: Annotated[str | None, out_option("Write the plan as JSON to this file.")] = None,
    everything: Everything = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Show the compute plan of a model as a Mac would likely report it: the device of each operation, why, and its
    part of the cost.

    The JSON has the shape that report --measured and contribute read, so that a plan from a Mac can be compared with
    it.

    Examples:  aneforge plan model.mlpackage --target m1   |   aneforge plan model.onnx --target m4 -o plan.json
    """
    from aneforge.cli import plan as command
    from aneforge.cli.model_file import ModelFile

    command.run(ModelFile(model, dim or (), function), target, out, as_json, everything)


@_command(CHECK)
def report(
    model: AModel,
    target: Annotated[str, _chips()] = "all",
    out: Annotated[
        str | None,
        out_option("Write NAME.html, .md, .csv, .json, .trace.json (Perfetto), .onnx or .sarif (default: Markdown)."),
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option("--format", help="Write html, md, csv, json, perfetto, onnx or sarif, where --out does not say."),
    ] = None,
    scope: Scope = "coreml_call",
    changes: Annotated[int, typer.Option("--changes", help="Changes that are worked out for each chip.")] = 3,
    max_abs: Annotated[
        float | None, typer.Option("--max-abs", help="The largest magnitude of any input, for the numeric risks.")
    ] = None,
    measured: Annotated[
        str | None,
        typer.Option("--measured", help="Show a Mac's compute plan beside the predictions: FILE, or CHIP=FILE."),
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="Compare with another model, or with a saved report (.json).")
    ] = None,
    against_target: Annotated[
        str | None, typer.Option("--against-target", help="Compare with these chips, or use them for --against.")
    ] = None,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Explain a model on every chip in one page: verdicts, reasons, program, times, memory, risks, what would help.

    The page is one file without anything from a network. Markdown is for a pull request, CSV has one line for each
    chip (and a second file one for each layer), JSON has everything and can be read again in place of a model. A
    .trace.json opens in Perfetto; an .onnx is the model with a note on every node, for Netron.

    Examples:  aneforge report model.onnx -o report.html   |   aneforge report old.onnx --against new.onnx -o diff.md
    |   aneforge report model.onnx --target m1 --against-target m5   |   aneforge report net.mlpackage --measured
    m1=plan.json -o report.html
    """
    from aneforge.cli import report as command
    from aneforge.cli.model_file import ModelFile

    options = command.Options(
        target,
        out,
        "json" if as_json else format_name,
        scope,
        changes,
        max_abs,
        measured,
        against,
        against_target,
    )
    command.run(ModelFile(model, dim or (), function), options)


@_command(MEASURE)
def plot(
    model: AModel,
    kind: Annotated[str, typer.Argument(help="roofline, timeline or chips.")],
    out: Annotated[str, out_option("Write the picture to NAME.svg (an existing file is replaced), or - to print it.")],
    target: Annotated[
        str | None, _chips(words=f"Chips: {SPELLINGS} (default: macs,phones for chips, m1 for the others).")
    ] = None,
    scope: Scope = "coreml_call",
    as_json: AsJson = False,
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

    command.run(ModelFile(model, dim or (), function), kind, target, scope, out, as_json)


@_command(MEASURE)
def contribute(
    file: Annotated[str, typer.Argument(help="A compute plan that a Mac gave, as JSON.")],
    system: Annotated[str, typer.Option("--os", help="The system that gave it, for instance 'macOS 26.1'.")],
    out: Annotated[str, out_option("Write the rows to this file.")],
    target: Annotated[str | None, _chips(words="The chip of that Mac (default: the one that the file names).")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Read the shapes from this model, which the plan is of.")
    ] = None,
    source: Annotated[str, typer.Option("--source", help="A name for where the rows come from.")] = "contributed",
    as_json: AsJson = False,
) -> None:
    """Write a Mac's compute plan as rows of the silicon format, for you to send in.

    Rows hold kinds of operations, shapes, chip, system and answer. Names of the model, of its operations, of files and
    of people are left out. A plan that aneforge predicted is refused.

    Examples:  aneforge contribute plan.json --target m1 --os 'macOS 26.1' --model net.mlpackage -o rows.json
    """
    from aneforge.cli import contribute as command

    command.run(file, command.Options(target, system, out, model, source), as_json)


@_command(MEASURE, "cost", measure)
def measure_cost(
    file: Annotated[str, typer.Argument(help="Measured times, in the schema of silicon/train.json.")],
    every: Annotated[
        bool, typer.Option("--all", help="Also use rows that measured something else than the engine.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare aneforge estimate with measured times: median, mean and 90th percentile of the error, bias, ranking.

    Example:  aneforge measure cost train.json
    """
    from aneforge.cli import measure_cost as command

    command.run(file, every, as_json)


@_command(MEASURE, "gate", measure)
def measure_gate(
    file: Annotated[str, typer.Argument(help="Measured verdicts, in the schema of verdicts_train.json.")],
    as_json: AsJson = False,
) -> None:
    """Compare the answers of aneforge check with verdicts measured on real chips.

    Example:  aneforge measure gate verdicts_train.json
    """
    from aneforge.cli import measure_gate as command

    command.run(file, as_json)


# Deploy.


@_command(DEPLOY)
def export(
    model: AModel,
    out: Annotated[str, out_option("Write a Core ML package (NAME.mlpackage) or a netplist (NAME.plist).")],
    target: Annotated[
        str | None, _chips(words="Rewrite the ops that this chip lacks (default: those that no chip has).")
    ] = None,
    region: Annotated[
        int | None, typer.Option(help="Export only this region of the model, as aneforge partition numbers them.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing package or netplist.")] = False,
    binary: Annotated[bool, typer.Option(help="Write the netplist as a binary property list.")] = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Write a model as a Core ML package, with weights in the form they are stored in, or as a netplist.

    Both contain the rewrites of the target. A netplist states native layers; its kernels and constants go to
    NAME.weights.bin. Nothing is run on a device.
    Examples:  aneforge export model.onnx --out model.mlpackage --target m1
    """
    from aneforge.cli import export as command
    from aneforge.cli.model_file import ModelFile

    command.run(ModelFile(model, dim or (), function), out, target, region, overwrite, as_json, binary)


Baseline = Annotated[str | None, typer.Option("--baseline", help="The committed file (default: MODEL.baseline.json).")]
Recorded = Annotated[str | None, _chips(words=f"Chips: {SPELLINGS} (default: the baseline's; m1..m6 for a new one).")]
MaxUs = Annotated[
    list[str] | None, typer.Option("--max-us", help="Allow a call this many microseconds, TARGET=NUMBER; repeatable.")
]
Skip = Annotated[str, typer.Option("--skip", help="Leave out numerics, estimates or both, separated by commas.")]
Junit = Annotated[str | None, typer.Option("--junit", help="Write the report as JUnit XML.")]
Sarif = Annotated[str | None, typer.Option("--sarif", help="Write the report as SARIF 2.1.0.")]
Tolerance = Annotated[float, typer.Option("--tolerance", help="Per cent by which an estimate may change.")]
Strict = Annotated[bool, typer.Option("--strict", help="Fail on every change, also one for the better.")]


@_command(DEPLOY, "record", ci)
def ci_record(
    model: AModel,
    target: Recorded = None,
    baseline: Baseline = None,
    max_us: MaxUs = None,
    skip: Skip = "",
    seed: Seed = None,
    inputs: Input = None,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Create the baseline of a model. Fails if the file exists.

    Examples:  aneforge ci record model.onnx --target m1..m6
    """
    from aneforge.cli import ci as command
    from aneforge.cli.model_file import ModelFile

    options = command.Options(
        "record", baseline, target, max_us=max_us or (), skip=skip, seed=seed, inputs=inputs, as_json=as_json
    )
    raise typer.Exit(command.run(ModelFile(model, dim or (), function), options))


@_command(DEPLOY, "check", ci)
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
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Compare a model with its baseline: verdicts, programs, numbers and estimates; status 1 if something changed.

    Examples:  aneforge ci check model.onnx   |   aneforge ci check model.onnx --sarif aneforge.sarif
    """
    from aneforge.cli import ci as command
    from aneforge.cli.model_file import ModelFile

    options = command.Options(
        "check", baseline, target, strict, tolerance, max_us or (), skip, seed, inputs, junit, sarif, as_json
    )
    raise typer.Exit(command.run(ModelFile(model, dim or (), function), options))


@_command(DEPLOY, "update", ci)
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
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Replace the baseline by what is true now, and show what changed.

    Examples:  aneforge ci update model.onnx
    """
    from aneforge.cli import ci as command
    from aneforge.cli.model_file import ModelFile

    options = command.Options(
        "update", baseline, target, False, tolerance, max_us or (), skip, seed, inputs, junit, sarif, as_json
    )
    raise typer.Exit(command.run(ModelFile(model, dim or (), function), options))


# Many models, and a page for everybody on this machine.

MaxSeconds = Annotated[float, typer.Option("--max-seconds", help="Allow one model this many seconds.")]
MaxMemory = Annotated[str, typer.Option("--max-memory", help="Allow one model this much memory, such as 512M or 8G.")]


@_command(DEPLOY, "run", sweep)
def sweep_run(
    models: Annotated[
        list[str],
        typer.Argument(help="Models: paths, quoted patterns, folders, or a manifest (.json, .jsonl, .csv)."),
    ],
    out: Annotated[str, out_option("Keep one result for each model in this folder; what is there is not done again.")],
    target: Chips = "all",
    scope: Scope = "coreml_call",
    shard: Annotated[str | None, typer.Option(help="Do only part i of n, written i/n; merge joins the parts.")] = None,
    workers: Annotated[int | None, typer.Option(help="Use this many processes (default: one for each core).")] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Run on the workers of this Dask scheduler, such as tcp://host:8786.")
    ] = None,
    max_seconds: MaxSeconds = 600.0,
    max_memory: MaxMemory = "8G",
    retry: Annotated[bool, typer.Option("--retry", help="Do models again that ended with an error.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="List every model, not only the first.")] = False,
    as_json: AsJson = False,
    dim: Dims = None,
    function: Function = None,
) -> None:
    """Run check and estimate of many models on many chips; status 1 if a model has no answer.

    Run it again to go on after a stop: models with a result are skipped. A model that fails is a row with its error.
    FOLDER also gets summary.md and summary.html.

    Examples:  aneforge sweep models/ --out results   |   aneforge sweep 'zoo/*.onnx' --target macs --out results
    |   aneforge sweep zoo.csv --shard 2/8 --out results-2
    """
    from aneforge.cli import sweep as command

    limits = command.limits_of(max_seconds, max_memory)
    options = command.Options(
        target, out, scope, dim or (), function, shard, workers, limits, scheduler, retry, everything, as_json
    )
    raise typer.Exit(command.run(models, options))


@_command(DEPLOY, "merge", sweep)
def sweep_merge(
    folders: Annotated[list[str], typer.Argument(help="Folders of sweeps, or tables that were merged before.")],
    out: Annotated[str, out_option("Write the table to NAME.parquet, .csv or .json.")],
    everything: Annotated[bool, typer.Option("--all", help="List every model, not only the first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the results of several sweeps or shards as one table; status 1 if a model has no answer.

    Examples:  aneforge sweep merge results-1 results-2 --out results.parquet
    """
    from aneforge.cli import sweep as command

    raise typer.Exit(command.merge(folders, out, everything, as_json))


@_command(DEPLOY, "diff", sweep)
def sweep_diff(
    before: Annotated[str, typer.Argument(help="A folder of a sweep, or a table.")],
    after: Annotated[str, typer.Argument(help="Another, of the same models.")],
    tolerance: Annotated[float, typer.Option("--tolerance", help="Per cent by which a number may change.")] = 0.0,
    everything: Annotated[bool, typer.Option("--all", help="List every change, not only the first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare two sweeps: verdicts, operations, times, memory, rules and errors; status 1 if something differs.

    Examples:  aneforge sweep diff last-week today --tolerance 5
    """
    from aneforge.cli import sweep as command

    raise typer.Exit(command.diff(before, after, tolerance, everything, as_json))


@_command(DEPLOY)
def serve(
    host: Annotated[str, typer.Option("--host", help="Listen on this address of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Listen on this port; 0 takes a free one.")] = 8017,
    target: Chips = "all",
    max_upload: Annotated[str, typer.Option("--max-upload", help="Take files up to this size, such as 2G.")] = "2G",
    max_seconds: MaxSeconds = 600.0,
    max_memory: MaxMemory = "8G",
    as_json: AsJson = False,
) -> None:
    """Run a local page where a model file is dropped and its report appears.

    Only this machine can reach it. Each model is read in a process of its own and removed afterwards. --json prints
    the address as JSON.

    Examples:  aneforge serve   |   aneforge serve --port 0 --target macs
    """
    from aneforge.cli import serve as command
    from aneforge.cli.sweep import limits_of

    command.run(host, port, target, limits_of(max_seconds, max_memory), max_upload, as_json)

"""The statements of the seed documents as rows, and the names that the calls in them use.

``tests/seed_statements/*.txt`` has one row for each testable statement: an id, how this project stands to it, the
statement in our words, and a call that shows it. ``=`` is implemented; an id (C.., U.. or N..) is different for the
reason that the id gives, which users see; ``- U..`` is unreachable by construction, for the reason of that choice.
"""

# ruff: noqa: F401 - the calls in the rows use these names
from __future__ import annotations

import ast
import contextlib
import os
import warnings
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from validator_cases import CASES, HEADS, MAP

import aneforge as af
from aneforge import _targets as tg
from aneforge._compile import cross_compile_check
from aneforge.chips import Family8, all_targets, backend_op, backend_ops, device_info, generation, store
from aneforge.chips.chip import compiler_target
from aneforge.chips.evidence import conflict
from aneforge.chips.limits import numeric_record
from aneforge.codegen.emission import emit
from aneforge.codegen.words import patch_width
from aneforge.compiler.fuse.slots import SLOTS
from aneforge.compiler.legal.rules import RULES
from aneforge.compiler.pipeline import PHASES
from aneforge.compiler.refusal import CompileError
from aneforge.engine.native import layer_types
from aneforge.engine.spec import spec
from aneforge.numerics.divergence import verdict as divergence_verdict
from aneforge.sim.tables import knots_of
from aneforge.study.validate import EXPORTS, validate_layer

HERE = Path(__file__).parent
KB, MB = 1024, 1024 * 1024
ANCHORS = ["h13", "h14", "h15", "h16", "h18"]
ONE = (1, 1, 1, 1)


@dataclass(frozen=True)
class SeedStatement:
    """One statement of a seed document, and how this project stands to it."""

    id: str
    mark: str
    says: str
    call: str

    @property
    def kind(self) -> str:
        if self.mark == "=":
            return "implemented"
        return "unreachable by construction" if self.mark.startswith("-") else "different with an id"


@cache
def statements() -> tuple[SeedStatement, ...]:
    rows = []
    for file in sorted((HERE / "seed_statements").glob("*.txt")):
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                rows.append(SeedStatement(*(cell.strip() for cell in line.split(" | ", 3))))
    return tuple(rows)


def holds(statement: SeedStatement) -> bool:
    """Whether the call of a statement gives what the statement says; the id of a difference must exist too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return all(map(has_record, ids_of(statement))) and bool(eval(statement.call, globals()))  # noqa: S307


def ids_of(statement: SeedStatement) -> list[str]:
    return [] if statement.mark == "=" else statement.mark.removeprefix("-").split()


def has_record(number: str) -> bool:
    if number.startswith("N"):
        return bool(numeric_record(number))
    return choice(number) if number.startswith("U") else conflict(number).id == number


def choice(number: str) -> bool:
    return number in store.load("choices")["choices"]


# Graphs.


def x4():
    return af.input((1, 8, 16, 16))


def kernel(*shape):
    return np.random.default_rng(0).normal(0, 0.1, shape)


def conv(**options):
    return af.conv(x4(), kernel(8, 8, 3, 3), pad=1, **options)


def biased():
    return conv(bias=np.arange(8.0))


def spelled_out():
    """As a file has it: three ops."""
    return (conv() + np.arange(8.0).reshape(1, 8, 1, 1)).relu()


def big_conv(stride=1):
    """A kernel of several megabytes; a strided one does not stream."""
    return af.conv(af.input((1, 512, 32, 32)), kernel(512, 512, 3, 3), pad=1, stride=stride)


def two_convs():
    return af.conv(conv().relu(), kernel(8, 8, 3, 3), pad=1)


def forked():
    first = conv()
    return af.concat([af.conv(first, kernel(8, 8, 3, 3), pad=1), first.relu()], 1)


def conv3d():
    return af.conv3d(af.input((1, 4, 8, 16, 16)), kernel(8, 4, 3, 3, 3))


def wide(extent):
    return af.input((1, 1, 1, extent)).relu()


def qkv():
    return tuple(af.input((1, 8, 197, 64), name=name) for name in "qkv")


def attention():
    q, k, v = (af.input((8, 64, 32), name=name) for name in "qkv")
    return (q @ k.transpose([0, 2, 1]) * 0.125).softmax(-1) @ v


def two_heads():
    q, k, v = (af.input((64, 32), name=name) for name in "qkv")
    heads = [
        (q[:, part] @ k[:, part].transpose([1, 0])).softmax(-1) @ v[:, part] for part in (slice(0, 16), slice(16, 32))
    ]
    return af.concat(heads, 1)


def x_bmm():
    return af.input((4, 8, 16), name="a") @ af.input((4, 16, 8), name="b")


def shifted():
    """A slice that starts inside the width."""
    return x4().slice_by_size([0, 0, 0, 1], [1, 8, 16, 15])


def ramp():
    return np.linspace(-2, 2, 8 * 16 * 16, dtype=np.float32).reshape(1, 8, 16, 16)


def threes():
    return np.resize(np.arange(3, 2048, 3, dtype=np.float32), (1, 8, 16, 16))


def affine():
    return af.affine(x4(), [[1.0, 0.0, 0.1, 0.0, 1.0, 0.2]], 16, 16)


def resample():
    return af.resample(x4(), af.input((1, 16, 16, 2), name="grid"))


def crop_resize():
    return af.crop_resize(x4(), af.input((3, 4), name="boxes"), 4, 4)


def argmax_all():
    return x4().argmax(axis=None)


def bridge_unflatten():
    return af.bridge("Unflatten", af.input((1, 64, 1, 1)), destination_size=(4, 4, 4))


def bump():
    """A Gaussian curve, which no named activation gives, from its knots."""
    knots = np.linspace(-2, 2, 17)
    return af.pwl(x4(), knots, np.exp(-(knots**2)).astype(np.float16))


# Answers.


def hal(name):
    return compiler_target(name).hal


def targets():
    return list(all_targets(only_28=True))


def backend(name):
    return backend_op(name)


def program(out, chip, **options):
    return af.compile(out, target=chip, **options).program


def layers(out, chip):
    """The layers of a program by their first op, without views."""
    return [layer.op for layer in program(out, chip).layers if layer.op != "reshape"]


def engine_layers(out, chip):
    """The layers without views and without transposes, which the layout of a port may need."""
    return [op for op in layers(out, chip) if op != "transpose"]


def separate_transposes(out):
    """Transposes between other layers: those of ports and of the transpose engine are free."""
    whole = program(out, "m1")
    inner = [layer for layer in whole.layers if layer.op == "transpose" and layer.engine not in ("TE", "DMA")]
    ends = {name for layer in whole.layers for name in layer.inputs if isinstance(name, str)}
    return sum(not (set(layer.inputs) & ends) for layer in inner)


def slots(out, chip):
    return [slot.name for layer in program(out, chip).layers for slot in layer.slots]


def ok(out, chip):
    return af.preflight(out, chip).ok


def ok_route(out, chip, route):
    return af.preflight(out, chip, route).ok


def entry_of(out, chip):
    """What preflight reports of the last op of a graph on a chip."""
    report = af.preflight(out, chip)
    groups = (report.reject, report.decompose, report.native)
    return next(entry for group in groups for entry in group if entry.op == out.op)


def status(out, chip):
    return entry_of(out, chip).status


def stage(out, chip):
    return entry_of(out, chip).stage


def refusal(out, chip):
    return refusal_route(out, chip, None)


def refusal_route(out, chip, route):
    try:
        af.compile(out, target=chip, route=route)
    except CompileError as error:
        return f"{error} {error.reject or ''}"
    return ""


def complaint(call):
    try:
        result = call()
    except (af.AneforgeError, ValueError, KeyError) as error:
        return str(error)
    return str(result) if not getattr(result, "accepted", True) else ""


def run(out, chip, data, **options):
    return af.compile(out, target=chip, **options)(data)


def validate(tag, params, bottoms, chip, fields=None):
    return validate_layer(tag, params or {}, bottoms, chip, fields=fields or {}).accepted


def words(tag, params, bottoms, chip, fields=None):
    """The vendor's words with which a layer is refused."""
    answer = validate_layer(tag, params or {}, bottoms, chip, fields=fields or {})
    return " ".join((answer.message, answer.reason, *(finding.message for finding in answer.findings)))


def resize_case():
    return CASES["Resize"][:2]


def warned(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return " ".join(str(warning.message) for warning in caught)


def warned_kinds(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return {type(warning.message).__name__ for warning in caught}


def quiet(call):
    return call()


@contextlib.contextmanager
def environment(value):
    before = os.environ.pop("ANEFORGE_TARGET", None)
    if value is not None:
        os.environ["ANEFORGE_TARGET"] = value
    try:
        yield
    finally:
        os.environ.pop("ANEFORGE_TARGET", None)
        if before is not None:
            os.environ["ANEFORGE_TARGET"] = before


def detected(value):
    with environment(value):
        return tg.detect_family()


def compiled_under(value):
    with environment(value):
        return af.compile(conv()).target.name


def verdict(kind, shape, a, b, **options):
    return tg.predict_fp16_divergence(kind, shape, a, b, **options)


def says(kind, shape, a, b):
    """The verdict on two chips with its reasons."""
    return divergence_verdict(kind, shape, a, b).says


def same_after_netplist(out):
    """Whether a graph that was written as a netplist and read again is the same program."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "net.plist"
        af.save_netplist(out, file)
        return layers(af.load(file), "m1").count("sdpa") == layers(out, "m1").count("sdpa") == 1


def netplist(out):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        af.save_netplist(out, Path(folder) / "net.plist")
        return "".join(
            file.read_text(errors="ignore")
            for file in Path(folder).rglob("*")
            if file.suffix in (".plist", ".net", ".json")
        )


def sections(out, chip="h13"):
    return {section.name.lower() for section in emit(program(out, chip)).sections}


def table(name):
    return knots_of(name)


def phases():
    return PHASES


def exports():
    return EXPORTS


def epilogue_slots():
    return len(SLOTS)


def pairs(program_):
    return [step for step in program_.steps if len(step) == 2]


def in_order(program_):
    seen = set()
    for layer in program_.layers:
        if any(isinstance(source, int) and source not in seen for source in layer.inputs):
            return False
        seen.add(layer.number)
    return True


def tests(file, name):
    """Whether the test that shows a statement exists; the suite runs it."""
    functions = ast.walk(ast.parse((HERE / file).read_text(encoding="utf-8")))
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in functions)


def weight_paths(chip):
    return {weight.path for weight in program(big_conv(), chip).weights if weight.path}


def legacy_generations():
    return [row["generation"] for row in store.load("td_generations")["generations"] if row["generation"] < 7]


def image_formats(chip):
    return set(af.target(chip).image_formats)


@lru_cache(maxsize=1)
def reached_slots():
    """Slots that some small graph reaches."""
    from aneforge.study.model import compile as compiled

    graphs = [
        (biased().relu(), "m1"),
        (conv().relu().tanh(), "m1"),
        (af.conv(x4(), kernel(8, 8, 1, 1)).transpose([0, 3, 2, 1]), "m1"),
        (af.quantize(conv().relu(), 0.1, 0), "m4"),
        (af.upsample_bilinear(conv()), "m2"),
        (conv().relu() * 2.0 + 1.0, "m1"),
    ]
    return {
        slot.name
        for out, chip in graphs
        for layer in compiled(out, target=chip).program.layers
        for slot in layer.slots
    }


def history(out, chip):
    """What the compiler tells of a node that it did not fuse."""
    return str(af.compile(out, target=chip).explain())


@cache
def states():
    """The allocation states that small programs reach."""
    graphs = [(two_convs(), "m1"), (spelled_out(), "m1"), (forked(), "m1"), (attention(), "m1")]
    graphs += [(two_convs().relu() + x4(), "m1"), (af.input((1, 64, 512, 512)).relu().square(), "m1")]
    graphs += [((x4() + 1.0).sin(), "m1"), (af.input((1, 64, 512, 512)).abs().square().softmax(1).square(), "m1")]
    return {int(layer.allocation) for out, chip in graphs for layer in program(out, chip).layers}


def ring():
    return af.ring_write(af.input((1, 8, 1, 4)), af.live_state((1, 8, 1, 64), "cache"))


def ring_reader():
    return af.input((1, 8, 4, 4)) + af.ring_read(af.live_state((1, 8, 4, 5), "cache"), 3, 4)


def ring_behind_a_chain():
    once = af.conv(af.input((1, 8, 4, 4)), kernel(8, 8, 1, 1)).relu()
    return af.ring_write(af.conv(once, kernel(8, 8, 1, 1)), af.live_state((1, 8, 4, 8), "cache"), 2)


def layers_route(out, chip):
    """The layers of a chip that is reached by authoring only."""
    return [layer.op for layer in program(out, chip, route="direct").layers]


def takes_yuv420(chip):
    """Whether a chip takes a port of two planes, the second with quarter-size colour."""
    luma, _ = af.image_input((1, 1, 16, 16), format="&8f0", name="photo")
    return ok(luma.relu(), chip)


def warned_kinds_on(host, call):
    with environment(host):
        return warned_kinds(call)

"""Networks, procedures, compiled programs and the command ``aneforge validate``."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from random_graphs import random_graph, rewritten_graph, token_graph
from validator_cases import RANK

import aneforge as af
from aneforge.cli.app import app
from aneforge.compiler.refusal import CompileError
from aneforge.engine.native import layer_type
from aneforge.errors import ArgumentError
from aneforge.study.validate import program as loader
from aneforge.study.validate import (
    program_view,
    validate_all,
    validate_module,
    validate_mutable_procedure,
    validate_network,
    validate_program,
)

# Networks.


def network():
    q = af.input((1, 2, 8, 16), name="q")
    best = af.topk(af.input((4, 16), name="scores"), 5).named("best")
    return [af.sdpa(q, q, q).named("attn"), best, q.relu().named("act")]


def test_a_network_layer_by_layer():
    verdict = validate_network(network(), "m1")
    assert not verdict.accepted
    assert [row.name for row in verdict.rejected] == ["best"]
    assert verdict.stage == "code generation"
    assert {row.name: row.accepted for row in verdict.rows} == {"attn": True, "best": False, "act": True}
    assert {"SDPA"} <= {layer for row in verdict.rows for layer in row.layers}
    assert validate_network(network(), "m2").accepted
    assert json.dumps(verdict.to_json())


def test_a_module_meets_the_floor_first():
    wave = af.input((1, 8, 4, 4)).sin().named("wave")
    verdict = validate_module(wave, "m1")
    assert verdict.route == "conversion"
    assert verdict.accepted  # rewritten by this compiler
    assert "rewritten" in verdict.rows[0].reason
    old = validate_module(af.input((1, 8, 4, 4)).relu(), "h12")
    assert (old.accepted, old.stage) == (False, "frontend")


def test_bonded_networks():
    """U93."""
    relu = af.input((1, 8, 4, 4)).relu()
    words = "Bonded networks are not supported on the target"
    assert validate_network(relu, "m1", bonded=True).message == words
    assert validate_network(relu, "h18g", bonded=True).accepted
    text = str(validate_all(relu, "h18g,m1", bonded=True))
    assert re.search(r"^network +accept +reject", text, re.MULTILINE)


def test_a_netplist_that_is_newer_than_the_schema(tmp_path):
    import plistlib

    file = tmp_path / "net.plist"
    file.write_bytes(plistlib.dumps({"Version": "9.0.0", "Networks": ["n"], "ProcedureList": [], "n": {}}))
    verdict = validate_network(file, "m1")
    assert (verdict.accepted, verdict.stage) == (False, "frontend")
    assert "9.0.0" in verdict.message


def test_a_procedure_that_edits_weights():
    kernel = np.ones((8, 8, 1, 1), np.float16)
    y = af.conv(af.input((1, 8, 4, 4)), af.const(kernel, name="stored"))
    assert not validate_mutable_procedure(y, {"stored": kernel}).accepted
    assert validate_mutable_procedure(y, {"stored": kernel}, mutable=["stored"]).accepted
    trained = af.conv(af.input((1, 8, 4, 4)), af.parameter(kernel, name="trained"))
    assert validate_mutable_procedure(trained, {"trained": kernel}).accepted
    wrong = {"trained": kernel[:4], "missing": kernel}
    told = [str(problem) for problem in validate_mutable_procedure(trained, wrong).problems]
    assert "shape [4, 8, 1, 1]; expected [8, 8, 1, 1]" in told[0]
    assert "no stored weight of this name" in told[1]
    assert "float32" in str(validate_mutable_procedure(trained, {"trained": kernel.astype(np.float32)}))
    with pytest.raises(ArgumentError):
        validate_mutable_procedure(trained, [kernel])


# Programs.


@pytest.fixture(scope="module")
def program():
    x, image = af.input((1, 8, 16, 16), name="x"), af.input((1, 4, 8, 8), dtype="uint8", name="image")
    y = af.conv(x, np.ones((8, 8, 3, 3)), pad=1).relu()
    heads = [af.input((1, 2, 8, 16)) for _ in range(3)]
    outputs = [af.conv(y, np.ones((16, 8, 1, 1))) + 1.0, af.sdpa(*heads), af.cast(image).softmax(3).relu()]
    return af.compile_all(outputs, "m1")["m1"]


def test_a_compiled_program_is_sound(program):
    verdict = validate_program(program)
    assert verdict.accepted, str(verdict)
    assert verdict.checked["buffers"] > 5
    assert verdict.checked["weights"] >= 3


def changed(view, part, number, **fields):
    items = list(getattr(view, part))
    items[number] = replace(items[number], **fields)
    return replace(view, **{part: tuple(items)})


def first(view, **wanted):
    return next(
        number
        for number, stretch in enumerate(view.stretches)
        if all(getattr(stretch, key) == value for key, value in wanted.items())
    )


def behind(view):
    """The first buffer in memory that does not begin it."""
    return next(n for n, stretch in enumerate(view.stretches) if stretch.section == "dram" and stretch.address)


MUTATIONS = {
    "an address outside on-chip memory": (
        lambda v: changed(v, "stretches", first(v, section="l2"), address=v.sections["l2"].bytes),
        "addresses",
    ),
    "a negative address": (lambda v: changed(v, "stretches", first(v, section="dram"), address=-16), "addresses"),
    "an address that is not aligned": (
        lambda v: changed(v, "stretches", first(v, section="dram"), address=3),
        "addresses",
    ),
    "a section that is not there": (lambda v: changed(v, "stretches", 0, section="tape"), "addresses"),
    "two buffers at one place": (
        lambda v: changed(v, "stretches", behind(v), address=0),
        "overlaps",
    ),
    "a stride below a row": (lambda v: changed(v, "stretches", 0, row_stride=8), "strides"),
    "a buffer below its rows": (lambda v: changed(v, "stretches", 0, bytes=64), "strides"),
    "a port of another type": (lambda v: changed(v, "ports", 0, dtype="f64"), "ports and planes"),
    "two planes without an image": (lambda v: changed(v, "ports", 0, planes=2), "ports and planes"),
    "one plane of an image of two": (lambda v: changed(v, "ports", 0, image="&8f0"), "ports and planes"),
    "an image format that nobody knows": (lambda v: changed(v, "ports", 0, image="&QQQ"), "ports and planes"),
    "a weight behind the section": (lambda v: changed(v, "stored", 0, address=1 << 20), "weights"),
    "a weight that is not aligned": (lambda v: changed(v, "stored", -1, address=1), "weights"),
    "a dense weight of half its bytes": (
        lambda v: changed(v, "stored", 0, bytes=v.stored[0].bytes // 2),
        "weights",
    ),
    "a compressed weight larger than fp16": (
        lambda v: changed(v, "stored", 0, encoding="lut4", bytes=8 * v.stored[0].bytes),
        "weights",
    ),
    "a weight that is not stored": (lambda v: changed(v, "tasks", 0, weights=("gone",)), "references"),
    "a task before what it reads": (lambda v: changed(v, "tasks", 1, reads=(len(v.tasks) - 1,)), "order of tasks"),
    "a task that reads nothing known": (lambda v: changed(v, "tasks", 0, reads=(999,)), "order of tasks"),
    "a port that is not there": (lambda v: changed(v, "tasks", 0, reads=("nowhere",)), "order of tasks"),
}


@pytest.mark.parametrize("what", MUTATIONS)
def test_a_damaged_program_is_refused(program, what):
    damage, check = MUTATIONS[what]
    verdict = validate_program(damage(program_view(program)))
    assert check in {fault.check for fault in verdict.faults}, str(verdict)
    assert str(verdict).count("\n") >= 1
    assert json.dumps(verdict.to_json())


def test_images_of_two_planes_and_compressed_weights_are_sound(program):
    view = program_view(program)
    view = changed(view, "ports", 1, image="&8f0", planes=2)
    view = changed(view, "stored", 0, encoding="lut4", bytes=view.stored[0].bytes // 4)
    assert validate_program(view).accepted


def test_every_check_of_the_loader_has_a_mutation():
    assert {check for _, check in MUTATIONS.values()} == set(loader._CHECKS)


# The command.


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def command(*words):
        from typer.testing import CliRunner

        result = CliRunner().invoke(app, ["validate", *words])
        return result.exit_code, result.output, result.exception

    return command


def saved(tmp_path):
    file = tmp_path / "net.aneforge"
    af.Graph.of(network()).save(file)
    return str(file)


def test_the_command_prints_a_matrix(run, tmp_path):
    status, text, _ = run(saved(tmp_path), "--target", "m1,m2")
    assert status == 1
    assert "TopK passes its validator on M1 and fails code generation" in text
    assert "rejected on: M1" in text
    assert run(saved(tmp_path), "--target", "m2")[0] == 0


def test_the_command_as_json(run, tmp_path):
    status, text, _ = run(saved(tmp_path), "--target", "all", "--json")
    record = json.loads(text)
    assert (status, record["ok"], len(record["targets"])) == (1, False, 28)
    rows = {row["name"]: row for row in record["targets"]["h13"]["rows"]}
    assert rows["best"]["stage"] == "code generation"
    assert rows["attn"]["accepted"]


def test_the_command_for_one_layer(run):
    params = json.dumps({**RANK, "K": 3})
    status, text, _ = run("TopK", "--params", params, "--shapes", "1x4x1x16", "--target", "m5")
    assert status == 1
    assert "k = 3 is refused" in text
    good = json.dumps(RANK)
    assert run("TopK", "--params", good, "--shapes", "1x4x1x16", "--target", "m2,m5")[0] == 0
    status, text, _ = run("Softmax", "--params", '{"Dimension": "Width"}', "--shapes", "1x4x1x16", "--json")
    assert json.loads(text)["targets"]["m1"]["accepted"]


def test_bad_input_of_the_command(run, tmp_path):
    for words in (
        ("missing.onnx",),
        ("TopK", "--params", "{"),
        ("TopK", "--params", "[]"),
        ("TopK", "--shapes", "1xtwo"),
        (saved(tmp_path), "--shapes", "1x2"),
        (saved(tmp_path), "--route", "sideways"),
    ):
        status, _, error = run(*words)
        assert status != 0
        assert isinstance(error, af.errors.AneforgeError), words


def test_layers_are_found_by_name_and_tag():
    assert layer_type("LRN") is layer_type("LocalResponseNormalization")
    chips = validate_all(network(), "m1,m2")
    assert (chips["m1"].accepted, chips["m2"].accepted, chips.ok) == (False, True, False)


def test_a_layers_own_validator_speaks_before_general_limits():
    """A depth is the fifth axis of a bottom: the product's own words come before those about ranks."""
    deep = af.validate_layer("MatrixMultiplication", {}, [(1, 8, 2, 1, 16), (1, 16, 1, 4)], "m1")
    assert deep.message == "depth > 1 is not supported for MatMult"
    assert {"layer-envelope", "matmul-rank"} <= {finding.rule for finding in deep.findings}
    assert (
        af.validate_layer("Reshape", {}, [(1, 2, 3, 4, 5, 6)], "m1").message == "Cannot reshape a tensor of rank > 5"
    )


def test_a_file_that_is_no_netplist_is_bad_input(tmp_path):
    file = tmp_path / "net.plist"
    file.write_bytes(b"bplist00\xff")
    with pytest.raises(af.LoadError, match="not a property list"):
        af.validate_network(file, "m1")


# Every program passes the validators of the layers that it consists of (item 5 of the second reading).


@pytest.mark.parametrize("chip", ["h11", "m1", "m2", "m4", "m5"])
@pytest.mark.parametrize("make", [random_graph, rewritten_graph, token_graph])
@pytest.mark.parametrize("seed", range(8))
def test_random_programs_pass_the_validators_of_their_layers(make, seed, chip):
    try:
        program = af.compile(make(seed)[0], target=chip).program
    except CompileError:
        return  # the oldest families lack ops; what they refuse is no program
    assert validate_program(program).faults == ()


@pytest.mark.parametrize("stride", [5, 7, 11, 14])
@pytest.mark.parametrize("chip", ["m1", "m5"])
def test_strides_outside_the_factor_list_become_legal_layers(stride, chip):
    """Table 26.1: PixelUnshuffle takes 2, 3, 4 and 8. Such strides were unshuffled by themselves."""
    rng = np.random.default_rng(stride)
    x = af.input((1, 3, 4 * stride, 3 * stride))
    out = af.conv(x, rng.normal(0, 0.1, (8, 3, stride, stride)), stride=stride)
    model, data = af.compile(out, target=chip), rng.normal(0, 1, x.shape)
    assert validate_program(model.program).faults == ()
    np.testing.assert_allclose(model(data), af.evaluate(out, [data]), atol=0.02)


@pytest.mark.parametrize(("move", "shape"), [(af.pixel_unshuffle, (2, 2, 10, 15)), (af.pixel_shuffle, (2, 50, 3, 2))])
def test_blocks_of_five_are_turned_by_transposes(move, shape):
    x = af.input(shape)
    model, data = af.compile(move(x, 5), target="m1"), np.arange(float(np.prod(shape))).reshape(shape) % 2048
    np.testing.assert_array_equal(model(data), af.evaluate(move(x, 5), [data]))
    assert [row.rewrite for row in model.program.rewrites] == ["blocks-by-transposes"]
    assert validate_program(model.program).accepted


def test_a_layer_that_its_validator_refuses_is_a_fault():
    """The check itself: a program whose unshuffle has a factor of five."""
    program = af.compile(af.pixel_unshuffle(af.input((1, 2, 8, 8)), 2), target="m1").program
    op = next(op for op in program.module.ops if op.kind == "pixel_unshuffle")
    op.attrs = {**op.attrs, "factors": (1, 5, 5)}
    told = [fault for fault in validate_program(program).faults if fault.check == "layers"]
    assert "FactorX is 5; it must be one of 1, 2, 3, 4, 8" in told[0].message

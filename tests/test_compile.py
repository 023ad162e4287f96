"""From a graph to programs: all phases together, for every target, and what a program promises."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph

import aneforge as af
from aneforge.chips import all_targets, target
from aneforge.compiler.compile import compile_target
from aneforge.compiler.passes import PASSES, checked_order
from aneforge.compiler.pipeline import PHASES, PIPELINE
from aneforge.compiler.refusal import CompileError
from aneforge.compiler.validate import Validator
from aneforge.engine.ir import AnecError
from aneforge.engine.text import parse, read, write
from aneforge.engine.verify import verify
from aneforge.errors import AneforgeError, UnknownNameError
from aneforge.graph import Graph
from aneforge.study.model import Model, SegmentedModel

NAMES = [each.name for each in all_targets(only_28=True)]
# Below these the random graphs meet ops that the oldest families do not have.
MODERN = [name for name in NAMES if name not in ("h11", "h12", "m9", "t0")]


def small():
    x = af.input((1, 8, 16, 16), name="image")
    y = af.conv(x, np.full((8, 8, 3, 3), 0.01), pad=1, bias=np.ones(8)).relu()
    return y.max_pool(2, 2).named("pooled")


# What a program promises, on random graphs for random targets.


def check_program(program):
    layers = program.layers
    place = dict(enumerate(layers))
    for layer in layers:
        assert all(not isinstance(value, int) or value < layer.number for value in layer.inputs)
        assert layer.sources
    for buffer in program.buffers:
        assert buffer.space in ("l2", "dram", "port")
        assert buffer.live[0] <= buffer.live[1]
    for part in program.task_groups:
        assert part.peak <= part.budget
        assert len({place[number].segment for number in part.layers}) == 1
    held = [each for each in program.buffers if each.address is not None]
    for number, one in enumerate(held):
        for two in held[number + 1 :]:
            together = one.live[0] <= two.live[1] and two.live[0] <= one.live[1]
            if together and (one.space, one.task_group) == (two.space, two.task_group):
                assert one.address + one.bytes <= two.address or two.address + two.bytes <= one.address
    chained = {n for layer in layers if layer.chained for n in (layer.number, layer.number + 1)}
    paired = {layer.number for layer in layers if layer.co_issue is not None}
    assert not chained & paired
    for number in paired:
        assert layers[layers[number].co_issue].co_issue == number
    for layer in layers:
        if layer.chained:
            assert layers[layer.number + 1].task_group == layer.task_group
            assert layer.number in layers[layer.number + 1].inputs
        step = next(i for i, each in enumerate(program.steps) if layer.number in each)
        first, last = layer.buffer.live
        assert first <= step <= last
    for layer in layers:  # every value is still in its buffer when somebody reads it
        for value in layer.inputs:
            if isinstance(value, int):
                step = next(i for i, each in enumerate(program.steps) if layer.number in each)
                assert place[value].buffer.live[1] >= step


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), chip=st.sampled_from(MODERN))
def test_every_pass_keeps_the_meaning_and_every_program_its_promises(seed, chip):
    out, x = random_graph(seed)
    graph = Graph([out] if isinstance(out, af.Tensor) else list(out))
    watch = Validator()
    program = compile_target(graph, target(chip), watch=watch)
    check_program(program)
    assert watch.checked
    module, name = read(program.mlir)
    assert name == chip
    assert write(module, name) == program.mlir
    verify(program.module)
    data = np.random.default_rng(seed).normal(size=x.shape)
    found = Model(graph, program).reference(data)
    want = af.evaluate(graph, [data])
    for one, two in zip([found] if isinstance(out, af.Tensor) else found, want, strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("seed", [None, 3, 11])
def test_sharing_the_work_changes_nothing(seed):
    """Targets that go through the passes together get what each gets alone: passes read only what they declare."""
    out = small() if seed is None else random_graph(seed, steps=10)[0]
    together = af.compile_all(out)
    assert seed is not None or len(together) == 28
    assert set(together) | set(together.refused) == set(NAMES)
    for name, program in together.items():
        alone = af.compile(out, target=name).program
        assert alone.fingerprint == program.fingerprint
        assert alone.to_json() == program.to_json()
        assert alone.mlir == program.mlir
        assert read(program.mlir).target == program.to_json()["target"] == name
    for name in together.refused:
        with pytest.raises(CompileError):
            af.compile(out, target=name)


# The interface.


def test_compile_gives_a_model_around_a_program():
    model = af.compile(small(), target="h13")
    assert type(model) is Model
    program = model.program
    assert program.target.name == "h13"
    conv = program.layers[0]
    assert (conv.op, conv.engine) == ("convolution", "NE")
    assert [str(slot) for slot in conv.slots] == ["post_activation:relu"]
    assert conv.sources == ("conv_0", "relu_0")
    assert conv.task_group == 0
    assert int(conv.allocation) in range(9)
    assert program.segments[0].layers == tuple(range(len(program)))
    assert {weight.flow for weight in program.weights} == {"stream", None}
    assert model.n_ops == 3


def test_a_chip_may_be_named_in_any_way_and_by_family():
    out = small()
    for name in ("M1", "h13", "T8103", af.Family.A13, 2):
        assert af.compile(out, target=name).program.target.name == "h13"


def test_the_default_target_is_the_host_or_the_floor(monkeypatch):
    monkeypatch.setenv("ANEFORGE_TARGET", "h16s")
    assert af.compile(small()).program.target.name == "h16s"


def test_compile_all_maps_targets_to_programs_and_counts_the_distinct_ones():
    compiled = af.compile_all(small(), target="all")
    assert isinstance(compiled, af.Programs)
    assert list(compiled) == NAMES
    assert not compiled.refused
    assert sorted(name for group in compiled.groups() for name in group) == sorted(NAMES)
    assert 1 < compiled.distinct < len(NAMES)
    assert compiled["M5 Pro"].target.name == "h17s"
    assert compiled["h17"].fingerprint == compiled["h17s"].fingerprint
    assert compiled["h13"].fingerprint == compiled["h13g"].fingerprint  # one copy of the kernel, whatever the cores
    assert compiled["h13"].fingerprint != compiled["h14"].fingerprint  # built per core, and shared
    few = af.compile_all(small(), target="m1, m2")
    assert list(few) == ["h13", "h14g"]


def test_one_target_that_refuses_does_not_stop_the_others():
    compiled = af.compile_all(small().softmax(), target=["h11", "h13"])
    assert list(compiled) == ["h13"]
    assert compiled.refused["h11"].refused_by == "check-floors"
    assert compiled.refused["h11"].reject == "Softmax is not supported by this ANE architecture"
    with pytest.raises(CompileError, match="softmax_0"):
        compiled["h11"]


def test_a_native_layer_makes_a_segmented_model():
    q = af.input((1, 4, 16, 8), name="q")
    model = af.compile(af.sdpa(q.relu(), q, q).tanh(), target="m1")
    assert isinstance(model, SegmentedModel)
    assert model.n_netplist == 1
    assert [segment.kind for segment in model.program.segments] == ["compute", "native", "compute"]
    native = model.program.segments[1]
    assert [model.program.layers[number].op for number in native.layers] == ["sdpa"]


def test_refusals_name_node_pass_and_the_compilers_words():
    x = af.input((1, 4, 8, 8), name="x")
    with pytest.raises(CompileError) as caught:
        af.compile(x.softmax(), target="h12")
    assert caught.value.sources == ("softmax_0",)
    assert caught.value.target == "h12"
    assert "Softmax is not supported by this ANE architecture" in str(caught.value)
    line = af.input((4, 16), name="line")
    with pytest.raises(CompileError, match=r"topk.*test_compile\.py:\d+") as caught:
        af.compile(af.topk(line, 5), target="M1")
    assert caught.value.refused_by == "check-legality"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"int8": True, "compress": "auto"}, "int8=True is compress='int8'"),
        ({"compress": "int9"}, "'int9' is unknown; nearest: int8"),
        ({"compress": {"nowhere": "int8"}}, "'nowhere' names no layer with a stored kernel"),
        ({"compress": "auto", "compress_atol": -1}, "-1 is not a tolerance"),
        ({"compress": "blockwise", "block_size": 0}, "0 is not a size"),
        ({"opt": "fast"}, "opt 'fast' is unknown; choose one: 'routes', 1, 0, None"),
        ({"opt": 2}, "opt 2 is unknown"),
        ({"opt": []}, "opt \\[\\] is unknown"),
        ({"compress_atol": 0.1}, "compress_atol=0.1 has no effect without compress"),
        ({"block_size": 64}, "block_size=64 has no effect without compress"),
        ({"route": "sideways"}, "route 'sideways' is unknown; choose one: conversion, direct"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(options, message):
    with pytest.raises(AneforgeError, match=message):
        af.compile(small(), target="m1", **options)


def test_the_levels_of_opt():
    """0 and None leave the overlap of layers out: the same numbers, and no chain or pair."""
    x = af.input((1, 16, 64, 64), name="x")
    rng = np.random.default_rng(0)
    h = af.conv(x, rng.standard_normal((32, 16, 3, 3)) * 0.1, pad=1).relu()
    out = (h.max_pool(2, 2) + af.conv(h, rng.standard_normal((32, 32, 2, 2)) * 0.1, stride=2).sigmoid()).softmax(1)
    full, one, plain, none = (af.compile(out, target="m5", opt=opt) for opt in ("routes", 1, 0, None))
    assert full.program.fingerprint == one.program.fingerprint
    assert plain.program.fingerprint == none.program.fingerprint
    assert full.program.stats["chained"] + full.program.stats["co_issued"] > 0
    assert plain.program.stats["chained"] == plain.program.stats["co_issued"] == 0
    assert plain.estimate().us >= full.estimate().us
    value = rng.standard_normal(x.shape)
    assert (plain(value) == full(value)).all()
    ran = [entry.name for entry in plain.program.log]
    assert "discover-chains" not in ran
    assert "discover-co-issue" not in ran
    assert "chained" in str(full.explain())
    assert "chained" not in str(plain.explain())


def test_unknown_targets_are_refused():
    with pytest.raises(UnknownNameError, match="M7"):
        af.compile(small(), target="M7")
    with pytest.raises(AneforgeError, match="target needs a chip"):
        af.compile_all(small(), target=" , ")


def test_a_model_runs_in_float64_and_as_the_chip():
    out = small()
    data = np.random.default_rng(0).normal(size=(1, 8, 16, 16))
    model = af.compile(out, target="m1")
    np.testing.assert_allclose(model.reference(data), af.evaluate(out, [data]), rtol=1e-9)
    np.testing.assert_allclose(model.reference(image=data), af.evaluate(out, [data]), rtol=1e-9)
    for call in (model.reference, lambda: model.reference(data, data), lambda: model.reference(bad=data)):
        with pytest.raises(AneforgeError, match="image"):
            call()
    simulated = model(data)
    assert simulated.dtype == np.float32
    assert (simulated == simulated.astype(np.float16)).all()  # fp16 values
    np.testing.assert_allclose(simulated, model.reference(data), rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(model(image=data, dtype="float16"), simulated)
    done = model.run({"image": data}, trace=True)
    assert list(done.outputs) == ["pooled"]
    assert [entry.op for entry in done.trace] == ["convolution", "relu", "max_pool"]
    assert {entry.fidelity for entry in done.trace} == {"exact"}
    for call in (lambda: model(data, data), lambda: model.run({"imag": data}), lambda: model(data[:, :4])):
        with pytest.raises(AneforgeError, match="image"):
            call()


def test_the_program_is_plain_json_and_always_the_same():
    first, second = (af.compile(small(), target="h14").program.to_json() for _ in range(2))
    text = json.dumps(first, default=list)
    assert text == json.dumps(second, default=list)
    assert set(json.loads(text)) == {
        *(
            "target",
            "route",
            "inputs",
            "outputs",
            "stats",
            "segments",
            "task_groups",
            "layers",
            "buffers",
            "weights",
            "passes",
        ),
    }


def test_the_listing_follows_an_op_from_source_to_address():
    text = str(af.compile(small(), target="h13"))
    assert "program for h13 (M1" in text
    assert "convolution 3x3 + relu 1x1x8x16x16 <- image" in text
    assert "from conv_0, relu_0" in text
    assert "weights streamed, per core" in text
    assert "output pooled" in text


def strided(channels):
    x = af.input((1, 256, 14, 14), name="x")
    return af.conv(x, np.full((channels, 256, 3, 3), 0.001), stride=2, pad=1).relu()


def test_a_folded_weight_beyond_kernel_memory_is_one_layer_in_passes():
    """4,608 bytes an output: a lane holds 14 of its 32 at a time (U28)."""
    program = af.compile(strided(512), target="h13").program
    (layer,) = program.layers
    assert layer.passes == 3
    assert program.to_json()["layers"][0]["passes"] == 3
    assert "3 passes by lane, or 37 layers of 64 KB (U28); 2.2 MB of weights folded, per core" in str(program)
    assert program.to_json()["layers"][0]["sub_layers"] == 37  # chapter 24: 14 outputs of 4,608 bytes in 64 KB
    assert "U28" in {fact.conflict_id for _, key, fact in program.assumptions if key == "kernel_lanes"}
    small_one = af.compile(strided(128), target="h13").program
    assert small_one.layers[0].passes == 1
    assert "passes" not in small_one.to_json()["layers"][0]
    assert "1 pass by lane, or 10 layers of 64 KB (U28)" in str(small_one)
    shared = af.compile(strided(512), target="h14").program  # listing 35.2: the shared builder, against 16 MB
    assert (shared.layers[0].passes, "U28)" in str(shared)) == (1, False)


def test_a_residual_network_has_as_many_layers_on_every_chip(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parent.parent / "examples")
    compiled = af.compile_all(importlib.import_module("resnet").out, "m1,m5")
    assert {len(program) for program in compiled.values()} == {33}
    sizes = {program.stats["kernel_bytes"] for program in compiled.values()}
    assert sizes == {program.stats["weight_bytes"] for program in compiled.values()}


def test_a_build_folder_holds_the_program(tmp_path):
    af.compile(small(), target="h13", build_dir=tmp_path / "deep" / "build")
    home = tmp_path / "deep" / "build"
    assert json.loads((home / "program.json").read_text())["target"] == "h13"
    verify(parse((home / "program.mlir").read_text()))
    assert "program for h13" in (home / "program.txt").read_text()
    (tmp_path / "file").write_text("")
    with pytest.raises(AneforgeError, match="cannot be written"):
        af.compile(small(), target="h13", build_dir=tmp_path / "file")


def test_another_reader_takes_the_finished_code():
    """Labels are ordinary attributes: an MLIR framework reads a laid-out program."""
    from xdsl.context import Context
    from xdsl.dialects import builtin
    from xdsl.parser import Parser

    context = Context(allow_unregistered=True)
    context.load_dialect(builtin.Builtin)
    text = af.compile(small(), target="h13").program.mlir
    parsed = Parser(context, text).parse_module()
    region = next(iter(parsed.body.block.ops))
    assert len(list(region.regions[0].block.ops)) == text.count("anec.") - 1


def test_labels_never_hide_an_attribute():
    from aneforge.engine.spec import LABELS, spec, spec_names, structural_names

    taken = {attribute for name in (*spec_names(), *structural_names()) for attribute in spec(name).attributes}
    assert not taken & (set(LABELS) | {"layer", "slot"})


# Lineage and explanation.


def test_sources_are_the_users_nodes_even_after_rewriting():
    x = af.input((1, 4, 8, 8), name="x")
    out = (x.sin() + x.sin() * 2).named("wave")
    names = set(Graph([out]).names().values())
    program = af.compile(out, target="m1").program
    assert {source for layer in program for source in layer.sources} <= names
    assert {"sin_0", "sin_1"} <= {source for layer in program for source in layer.sources}
    assert [port.name for port in program.outputs] == ["wave"]


def test_explain_tells_what_each_pass_made_of_a_node():
    x = af.input((1, 4, 8, 8), name="x")
    y = af.conv(x, np.full((4, 4, 1, 1), 0.5))
    y = af.batch_norm(y, np.ones(4), np.zeros(4), np.zeros(4), np.ones(4)).relu()
    out = y.transpose([0, 1, 3, 2]).transpose([0, 1, 3, 2]) + x.sin()
    told = af.compile(out, target="m1").explain()
    bn = told["batch_norm_0"]
    assert [step.pass_name for step in bn.steps] == ["lower", "fold-batch-norm", "fold-gain-into-weights"]
    assert bn.layers == told["conv_0"].layers == told["relu_0"].layers
    assert any("post_activation slot" in kind for step in told["relu_0"].steps for kind in step.becomes)
    gone = told["transpose_0"]
    assert gone.steps[-1].becomes == ()
    assert "nothing is left" in str(gone)
    assert "sin-horner" in told["sin_0"].why_rewritten[0]
    assert len(told["sin_0"].layers) > 5
    with pytest.raises(UnknownNameError, match="conv_0"):
        told["conv_1"]
    assert json.dumps(told.to_json())


# Guards of the pipeline.


def test_the_pipeline_is_the_four_phases_in_order():
    order = checked_order(PIPELINE)
    assert [each.phase for each in order] == sorted(each.phase for each in order)
    assert list(PHASES) == ["legal", "fuse", "legalise", "schedule", "memory"]
    assert set(PIPELINE) == set(PASSES)


def test_a_pass_cannot_read_what_it_did_not_declare(monkeypatch):
    def nosy(module, chip):
        """Looks at a field it did not declare."""
        return chip["max_tensor_width"]

    monkeypatch.setitem(PASSES, "label-layers", replace(PASSES["label-layers"], apply=nosy))
    with pytest.raises(AneforgeError, match=r"max_tensor_width.*without declaring"):
        af.compile(small(), target="m1")


def test_a_pass_that_breaks_the_code_is_named(monkeypatch):
    def broken(module, chip):
        module.ops.pop(0)
        return 1

    monkeypatch.setitem(PASSES, "merge-activations", replace(PASSES["merge-activations"], apply=broken))
    with pytest.raises(AnecError, match="after pass 'merge-activations'"):
        af.compile(small(), target="m1")


def test_validate_names_the_pass_that_changes_a_number(monkeypatch):
    def wrong(module, chip):
        pool = next(op for op in module.ops if op.kind == "max_pool")
        pool.attrs["stride"] = (1, 2, 1)
        pool.attrs["ksize"] = (1, 2, 9)
        return 1

    monkeypatch.setitem(PASSES, "merge-activations", replace(PASSES["merge-activations"], apply=wrong))
    af.compile(small(), target="m1")
    with pytest.raises(AnecError, match="pass 'merge-activations' changed 'pooled'"):
        af.compile(small(), target="m1", validate=True)


def test_assumptions_are_told():
    told = {fact.conflict_id for _, _, fact in af.compile(small(), target="h13").program.assumptions}
    assert "U21" in told  # the chaining bit is published for no chip


# Seed examples.


def test_seed_conv_bias_relu_is_one_layer_and_two_live_inputs_are_not():
    x = af.input((1, 8, 8, 8), name="x")
    weight = np.full((8, 8, 1, 1), 0.1)
    one = af.compile((af.conv(x, weight) + np.ones((1, 8, 1, 1))).relu(), target="h13").program
    assert [str(layer) for layer in one] == ["0 NE convolution + relu"]
    two = af.compile(af.conv(x, weight) + af.conv(x, weight * 2), target="h13").program
    assert [layer.op for layer in two] == ["convolution", "convolution", "add"]


def test_seed_a_3_mb_weight_stays_a_tiled_product():
    x = af.input((4, 1536), name="x")
    big = af.compile(x.linear(np.full((1024, 1536), 0.01)), target="h13").program
    assert "convolution" not in {layer.op for layer in big}
    assert "linear" in {layer.op for layer in big}
    fits = af.compile(x.linear(np.full((512, 1536), 0.01)), target="h13").program
    assert "convolution" in {layer.op for layer in fits}


def test_seed_a_stride_16_convolution_becomes_the_factor_list():
    x = af.input((1, 3, 64, 64), name="x")
    out = af.conv(x, np.random.default_rng(0).normal(size=(8, 3, 13, 13)), stride=16)
    program = af.compile(out, target="h13", validate=True).program
    unshuffle = next(layer for layer in program if layer.op == "pixel_unshuffle")
    conv = next(layer for layer in program if layer.op == "convolution")
    assert unshuffle.attrs["factors"] == (1, 8, 8)
    assert conv.attrs["strides"] == (1, 2, 2)


def test_a_node_that_is_a_constant_has_a_story():
    x = af.input((1, 8), name="x")
    out = af.const(np.ones((1, 8), np.float16)).reshape((8, 1)).transpose((1, 0)) + x
    assert af.compile(out, target="m1").explain("reshape_0").value == "a stored constant"

"""The plan: objects that the phases write once, their text form, and what becomes of them when a module is copied."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from random_graphs import random_graph
from test_fuse import Build
from test_memory import padded_conv
from test_schedule import ALL, M1

import aneforge as af
from aneforge.compiler import program as program_module
from aneforge.compiler.compile import compile_target
from aneforge.compiler.labels import plan_from_labels
from aneforge.compiler.memory import MEMORY
from aneforge.compiler.memory.allocation import Liveness
from aneforge.compiler.passes import run_passes
from aneforge.compiler.plan import plan_of
from aneforge.compiler.program import Program
from aneforge.compiler.schedule import SCHEDULE
from aneforge.compiler.schedule.groups import budget
from aneforge.engine.text import parse, read, write
from aneforge.graph import Graph

ON_OPS = {"bridge", "data_path", "storage", "large_kernel", "piece", "passes", "folded", "weight_flow", "encoding"}
PARTS = ("segments", "steps", "task_groups", "buffers", "weights")


def parts(plan):
    found = {name: getattr(plan, name) for name in PARTS}
    assert None not in found.values()
    return found


def joined():
    """A concat whose parts lie in one buffer, rewrites in place, and an attention between two segments."""
    x = af.input((1, 8, 16, 16), name="x")
    sides = [af.conv(x, np.full((8, 8, 3, 3), 0.01), pad=1), x.softmax(1)]
    y = af.concat(sides, axis=1).relu().max_pool(2, 2)
    rows = y.reshape(1, 1, 16, 64)
    return af.sdpa(rows, rows, rows).tanh() + 1.0


GRAPHS = {"joined": joined, **{f"random {seed}": lambda seed=seed: random_graph(seed)[0] for seed in (1, 4, 7, 23)}}


@pytest.mark.parametrize("chip", ["h13", "h17s"])
@pytest.mark.parametrize("name", GRAPHS)
def test_labels_say_the_same_as_the_objects(name, chip):
    """What is read back from the printed text equals what the passes wrote, part by part."""
    program = af.compile(GRAPHS[name](), target=chip).program
    module = read(program.mlir).module
    module.weights = program.module.weights
    again = Program(program.target, module, program.inputs, program.outputs, list(program.log))
    assert parts(again.plan) == parts(program.plan)
    assert again.to_json() == program.to_json()
    assert str(again) == str(program)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_pass_on_text_does_what_it_does_in_a_compile(name):
    """Phases 3 and 4 with the code printed and read between any two passes: no pass needs more than the labels."""
    graph = GRAPHS[name]()
    names = [*SCHEDULE, *MEMORY]
    texts: list[str] = []

    def watch(each, entry, module):
        if each.name == "cut-segments" or each.name in names:
            texts.append(write(module, "h13"))
            weights.update(module.weights)

    weights: dict = {}
    compile_target(Graph.of(graph), M1, watch=watch)
    for pass_name, before, after in zip(names, texts, texts[1:], strict=False):
        module = read(before).module
        module.weights = dict(weights)
        run_passes(module, M1, [pass_name], ensured=ALL)
        assert write(module, "h13") == after, pass_name
    assert len(texts) == len(names) + 1


def test_liveness_is_worked_out_once(monkeypatch):
    made = []
    old = Liveness.__init__
    monkeypatch.setattr(Liveness, "__init__", lambda self, *args: (made.append(1), old(self, *args))[1])
    program = af.compile(joined(), target="h13").program
    assert len(made) == 1
    assert "concat" in {layer.op for layer in program.layers if layer.engine == "view"}  # join-widths changed it
    assert any("inside" in layer.labels and layer.engine != "view" for layer in program.layers)


def test_a_program_reads_what_the_phases_wrote(monkeypatch):
    monkeypatch.setattr(program_module, "plan_from_labels", None)
    program = af.compile(joined(), target="h13").program
    assert program.plan is program.module.plan
    assert program.to_json()["segments"][1]["kind"] == "native"
    assert [each.number for each in program.segments] == [0, 1, 2]


def scheduled(module):
    run_passes(module, M1, ["label-layers", "cut-segments", *SCHEDULE], ALL)
    return plan_of(module)


def test_a_partition_knows_its_layers_and_budget_when_it_is_closed():
    b = Build()
    module = b.done(b.op("softmax", b.op("softmax", b.input(), axes=(2,)), axes=(2,)))
    plan = scheduled(module)
    (task_group,) = plan.task_groups or ()
    assert task_group.layers == (0, 1)
    assert task_group.budget == budget(2 * 2**20)
    assert task_group.peak == 8 * 4 * 16  # the first result: 8 x 4 rows, 16 bytes apart
    with pytest.raises(FrozenInstanceError):
        task_group.peak = 1  # type: ignore[misc]


def test_a_copy_of_a_module_goes_its_own_way():
    """A fork shares the objects and nothing that refers to ops: what one side decides, the other never sees."""
    module = padded_conv()
    plan = scheduled(module)
    before = (plan.segments, plan.steps, plan.task_groups)
    text = str(module)
    copy = module.clone()
    other = plan_of(copy)
    assert other is not plan
    assert (other.segments, other.steps, other.task_groups) == before
    assert other.graph is not None
    assert plan.graph is not None
    assert not set(other.graph.layers) & set(plan.graph.layers)
    run_passes(copy, M1, list(MEMORY), ALL)
    assert parts(other)["segments"][0].layers == (1,)  # the pad went into the convolution
    assert other.steps == ((1,),)
    assert (plan.segments, plan.steps, plan.task_groups, plan.buffers) == (*before, None)
    assert str(module) == text
    run_passes(module, M1, list(MEMORY), ALL)
    assert parts(plan) == parts(other)
    again = parse(str(copy))
    again.weights = copy.weights
    assert parts(plan_from_labels(again, budget(2 * 2**20))) == parts(other)


def test_another_order_voids_what_was_decided_along_the_old_one():
    module = padded_conv()
    plan = scheduled(module)
    run_passes(module, M1, list(MEMORY), ALL)
    assert plan.is_complete(module)
    run_passes(module, M1, ["schedule-layers"], ALL)
    assert plan.task_groups is None
    assert not plan.is_complete(module)


def test_a_copy_of_a_finished_module_has_a_finished_plan_of_its_own():
    program = af.compile(joined(), target="h13").program
    module = program.module.clone()
    again = Program(program.target, module, program.inputs, program.outputs, [])
    assert again.plan is not program.plan
    assert parts(again.plan) == parts(program.plan)
    assert again.mlir == program.mlir


def test_a_decision_is_in_one_place():
    """Ops carry what phases 0 to 2 say of them; what is planned is on the plan, however the code came."""
    program = af.compile(joined(), target="h13").program
    module = read(program.mlir).module
    module.weights = program.module.weights
    assert {name for op in module for name in op.labels} - ON_OPS
    again = Program(program.target, module, program.inputs, program.outputs, [])
    assert parts(again.plan) == parts(program.plan)
    for code in (program.module, module):
        assert {name for op in code for name in op.labels} <= ON_OPS
    assert again.mlir == program.mlir

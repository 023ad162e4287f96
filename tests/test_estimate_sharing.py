"""What chips share of an estimate changes nothing of it: the estimate is that of the program compiled for one chip."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from split_kit import encoder
from study_kit import partitions_for

import aneforge as af
from aneforge.chips.chip import compiler_target, target_names
from aneforge.chips.costs import first_load_of, wake_of, watts_by_data
from aneforge.chips.names import target
from aneforge.compiler.compile import compile_target
from aneforge.compiler.pipeline import _alike
from aneforge.compiler.shown import Schedule
from aneforge.cost.estimate import _known_demands, demands_of, estimate_program
from aneforge.cost.layers import Surroundings, columns_of, times_of
from aneforge.cost.program import residents_of, work_of_program
from aneforge.graph.graph import Graph
from aneforge.study.programs import compile_all

RNG = np.random.default_rng(5)


def weight(*shape: int) -> np.ndarray:
    return RNG.normal(0, 0.1, shape).astype(np.float32)


def layers_of_tokens(depth: int = 3) -> Graph:
    x = af.input((64, 32), name="tokens")
    for _ in range(depth):
        normal = x.layer_norm(np.ones(32), np.zeros(32))
        q, k, v = (normal.linear(weight(32, 32)).reshape(64, 2, 16).transpose([1, 0, 2]) for _ in range(3))
        mixed = ((q @ k.transpose([0, 2, 1])).softmax(-1) @ v).transpose([1, 0, 2]).reshape(64, 32)
        x = x + mixed.linear(weight(32, 32))
        x = x + x.layer_norm(np.ones(32), np.zeros(32)).linear(weight(64, 32)).gelu().linear(weight(32, 64))
    return Graph.of(x)


def image(depth: int = 3) -> Graph:
    y = af.input((1, 8, 48, 48), name="image")
    for _ in range(depth):
        left = af.conv(y, weight(8, 8, 3, 3), pad=1).relu()
        right = af.conv(y, weight(8, 1, 3, 3), pad=1, groups=8).sigmoid()
        y = af.concat([left * right, y.max_pool(3, stride=1, pad=1)], axis=1)
        y = af.conv(y, weight(8, 16, 1, 1))
    return Graph.of(y)


def large_maps() -> Graph:
    """Tensors that leave the chip's memory, and two outputs."""
    y = af.conv(af.input((1, 64, 256, 256), name="x"), weight(64, 64, 3, 3), pad=1).relu()
    return Graph([y.named("wide"), y.max_pool(2).named("small")])


def with_native_layer() -> Graph:
    y = af.conv(af.input((1, 16, 16, 16), name="x"), weight(16, 16, 1, 1)).mean([2, 3]).reshape(1, 16)
    return Graph.of(af.topk(y, 5) * 2.0)


GRAPHS = [layers_of_tokens, image, large_maps, with_native_layer]


@pytest.mark.parametrize("make", GRAPHS)
def test_the_estimate_of_all_chips_together_is_that_of_each_program_compiled_alone(make):
    graph = make()
    chips = {name: compiler_target(name) for name in target_names()}
    compared = 0
    for name, split in partitions_for(graph, chips).items():
        for number, program in split.programs.items():
            alone = estimate_program(compile_target(split.graph_of(number), chips[name]), "coreml_call")
            together = estimate_program(program, "coreml_call")
            assert together.layers == alone.layers
            assert (together.us, together.interval, together.calls) == (alone.us, alone.interval, alone.calls)
            compared += 1
    assert compared >= 20


def test_parts_of_a_split_model_are_those_of_its_programs(tmp_path):
    graph = af.load(encoder(tmp_path))
    split = partitions_for(graph, {"m1": target("m1")})["m1"]
    whole = split.estimate("coreml_call")
    parts = [part.program for part in whole.parts if part.program is not None]
    assert parts == [estimate_program(program, "coreml_call") for program in split.programs.values()]


def alone(work, resident, constants):
    return times_of(columns_of([work]), constants, Surroundings(np.array([resident]))).us[0]


@pytest.mark.parametrize("make", GRAPHS)
def test_layers_that_do_the_same_are_timed_once_and_as_one_by_one(make):
    program = compile_target(make(), target("m5"))
    constants = estimate_program(program).basis.constants
    kinds, kind_of = demands_of(program)
    one_by_one = [
        alone(work, resident, constants)
        for resident, work in zip(residents_of(program), work_of_program(program), strict=True)
    ]
    shared = [alone(work, resident, constants) for work, resident in kinds]
    assert [shared[kind] for kind in kind_of] == one_by_one
    assert len(set(kinds)) == len(kinds) <= len(program.layers)


def test_programs_of_one_module_share_their_schedule_and_what_is_worked_out_from_it():
    compiled = compile_all(image(), [target("h17"), target("h17a")])
    one, other = compiled["h17"], compiled["h17a"]
    assert one.module is other.module
    assert one.schedule is other.schedule
    assert demands_of(one) is demands_of(other)
    assert one.target is not other.target


def test_what_is_worked_out_goes_with_the_schedule():
    program = compile_target(image(1), target("m1"))
    estimate_program(program)
    gc.collect()
    before = len(_known_demands)
    assert program.schedule in _known_demands
    del program
    gc.collect()
    assert len(_known_demands) < before


def test_a_plan_that_changes_is_shown_anew():
    program = compile_target(image(1), target("m1"))
    shown = program.schedule
    assert Schedule.of(program.module, lambda: program.plan) is shown
    program.plan.forget_order()
    assert Schedule.of(program.module, lambda: program.plan) is not shown


def test_targets_are_grouped_by_the_facts_that_a_pass_declares():
    names, reads = ("h13", "h14g", "h13"), ("max_operand_bytes",)
    groups = _alike(names, reads)
    assert sorted(place for group in groups for place in group) == [0, 1, 2]
    assert any({0, 2} <= set(group) for group in groups)
    assert _alike(("h13", "h13g"), ()) == ((0, 1),)


# What is published about a program's life around its calls.


def test_waking_is_known_of_the_chips_that_it_was_measured_on():
    first, latest = wake_of(target("m1")), wake_of(target("m6"))
    assert (first.value.idle_s, first.value.extra_ms, first.confidence) == (5, 260, "measured")
    assert (latest.value.extra_ms, latest.value.ramp_s) == (50, 0.3)
    assert first.conflict_id == latest.conflict_id == "C62"
    assert not wake_of(target("m3")).known


def test_the_first_load_is_that_of_the_next_larger_program():
    small, large = (first_load_of(target("m2 pro"), size) for size in (1e6, 100e6))
    assert small.value.megabytes == 33.6
    assert small.value.seconds == (0.43, 1.07)
    assert large.value.megabytes == 134
    assert not first_load_of(target("m2 pro"), 1e10).known, "more than anybody has measured"
    assert first_load_of(target("A17 Pro"), 1e6).value.megabytes is None
    assert not first_load_of(target("m5"), 1e6).known
    assert not first_load_of(target("m2"), 1e6).known, "an M2 Pro was measured, which is another machine"


def test_watts_by_data_bound_the_energy():
    watts = watts_by_data(target("m4"))
    assert (watts.value.random, watts.value.zeros) == (12.9, 4.1)
    assert not watts_by_data(target("m1")).known
    estimate = af.compile(image(), target="m4").estimate()
    zeros, random = estimate.energy_by_data_mj
    assert 0 < zeros < random
    assert random == pytest.approx(12.9 * estimate.engine_us / 1000)
    assert af.compile(image(), target="m1").estimate().energy_by_data_mj is None

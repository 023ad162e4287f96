"""Slices cost what they read, and writes into a state the rows that they write."""

from __future__ import annotations

from pathlib import Path

import pytest

import aneforge as af
from aneforge.cost.estimate import Estimate, ports_of
from aneforge.cost.in_place import values_of_states, writes_in_place
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.study.programs import compile_all

LAYERS, PLACES, WIDTH = 8, 256, 64
COMPUTED = """program(1.3) {
    func main<ios18>(state<tensor<fp16, [4, 64, 32]>> cache, tensor<fp16, [1, 1, 32]> x, tensor<int32, [3]> b, \
tensor<int32, [3]> e) {
        tensor<fp16, [4, 64, 32]> held = read_state(input = cache)[name = string("held")];
        tensor<fp16, [4, 64, 32]> new = slice_update(x = held, update = x, begin = b, end = e)[name = string("new")];
        write_state(data = new, input = cache)[name = string("kept")];
        tensor<fp16, [1, 1, 32]> y = relu(x = x)[name = string("y")];
    } -> (y);
}"""


def program(graph: Graph, target: str = "m4"):
    return compile_all(graph, [target])[target]


def engine_us(*outputs: Tensor) -> float:
    estimate = af.partition(Graph(list(outputs)), "m4").estimate("device_task")
    return sum(layer.us for layer in estimate.layers)


def written(state: Tensor, rows: Tensor, layer: int, place: int) -> Tensor:
    """The state with rows of one layer put at a place, as model files spell it."""
    one = state[layer : layer + 1]
    changed = af.concat([one[:, :place], rows, one[:, place + rows.shape[1] :]], axis=1)
    return af.concat([state[:layer], changed, state[layer + 1 :]], axis=0)


def decoder(is_state: bool) -> Graph:
    state, x = af.input((LAYERS, PLACES, WIDTH), name="cache"), af.input((1, 1, WIDTH), name="x")
    value = state
    for layer in range(1, LAYERS - 1):
        value = written(value, x * float(layer), layer, 17)
    return Graph([x.relu(), value.named("cache_out")], {"cache": "cache_out"} if is_state else None)


def estimate_of(graph: Graph) -> Estimate:
    return af.partition(graph, "m4").estimate("coreml_call")


def test_a_slice_costs_what_it_reads() -> None:
    few, many = (engine_us(af.input((layers, 16, 256, 64))[2:3].relu()) for layers in (4, 28))
    assert few == many


def test_pieces_of_one_tensor_are_read_once() -> None:
    x = af.input((1, 64, 64, 64))
    one = engine_us(x[:, 1:].relu())
    eight = engine_us(*(x[:, 8 * i : 8 * (i + 1)].relu() for i in range(8)))
    assert eight < 2 * one


def test_a_write_into_a_state_costs_its_rows() -> None:
    in_place, copied = estimate_of(decoder(True)), estimate_of(decoder(False))
    assert in_place.engine_us < copied.engine_us / 5
    assert sum(layer.us for layer in in_place.layers if layer.op == "input_view") == 0


def test_a_state_is_not_copied_by_the_call() -> None:
    row = 2 * WIDTH
    for is_state, size in ((True, row), (False, row + 2 * LAYERS * PLACES * WIDTH)):
        ports = ports_of(program(decoder(is_state)))
        assert (ports.read, ports.written) == (size, size)


@pytest.mark.parametrize("how", ["shift", "grow", "beside"])
def test_what_moves_is_not_taken_for_a_write_in_place(how: str) -> None:
    state, x = af.input((4, PLACES, WIDTH), name="cache"), af.input((4, 1, WIDTH), name="x")
    outputs = {
        "shift": lambda: [af.concat([state[:, 1:], x], axis=1).named("cache_out")],
        "grow": lambda: [af.concat([state, x], axis=1), state.relu().named("cache_out")],
        "beside": lambda: [af.concat([x, state[:, : PLACES - 1]], axis=1).named("cache_out")],
    }[how]()
    graph = Graph(outputs, {"cache": "cache_out"})
    assert not writes_in_place(program(graph))


def test_a_write_at_a_computed_place_keeps_the_state(tmp_path: Path) -> None:
    path = tmp_path / "cache.mil"
    path.write_text(COMPUTED, encoding="utf-8")
    split = af.partition(str(path), "m4")
    assert len(values_of_states(split.graph)) == 2
    assert split.estimate("coreml_call").host_us[1] < 1000

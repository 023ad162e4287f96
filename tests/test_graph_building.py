"""Building is quick because work is put off or done once; none of that may show: refusals, lines, contents, memory."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import aneforge as af
from aneforge.graph import node, snapshots, weights
from aneforge.graph.cache import SharedCache
from aneforge.graph.snapshots import Snapshot, stored_weight
from aneforge.graph.weights import Weight, intern_weight

RNG = np.random.default_rng(5)
SIDES = (4, 64, 512)  # looked up by content, put off, and rounded at once
KINDS = (np.float16, np.float32, np.float64)


def square(side: int, kind: type = np.float32) -> np.ndarray:
    return RNG.standard_normal((side, side)).astype(kind)


def numbers(y: af.Tensor) -> np.ndarray:
    (weight,) = y.graph().weights.values()
    return weight.array


# What the caller does to an array afterwards.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", SIDES)
def test_writing_to_an_array_changes_no_graph(side, kind):
    mine = square(side, kind)
    before = mine.astype(np.float16)
    x = af.input((2, side))
    first = x.linear(mine)
    mine[1, 2] = 7
    second = x.linear(mine)
    mine[:] = 9
    assert (numbers(first) == before).all()
    assert numbers(second)[1, 2] == 7
    before[1, 2] = 7
    assert (numbers(second) == before).all()
    assert mine.flags.writeable


@pytest.mark.parametrize("side", SIDES)
def test_an_array_that_spoils_is_refused_where_it_is_used_next(side):
    mine = square(side)
    x = af.input((2, side))
    x.linear(mine)
    mine[3, 1] = np.nan
    with pytest.raises(
        af.GraphError, match=r"linear at test_graph_building\.py:\d+: weight holds NaN at index \(3, 1\)"
    ):
        x.linear(mine)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        *((kind, np.nan, "holds NaN at index (2, 3)") for kind in KINDS),
        *((kind, 65520.0, "65520 at index (2, 3)") for kind in KINDS[1:]),
        *((kind, -1e30, "-1e+30 at index (2, 3)") for kind in KINDS[1:]),
    ],
)
def test_what_fp16_cannot_hold_is_refused_at_once(side, kind, value, told):
    spoiled = square(side, kind)
    spoiled[2, 3] = value
    with pytest.raises(af.GraphError) as caught:
        af.const(spoiled, what="table")
    assert told in str(caught.value)
    assert "const at test_graph_building.py:" in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", SIDES)
def test_the_largest_number_and_infinity_are_kept(side, kind):
    edge = square(side, kind)
    edge[0, :3] = 65504, -65504, np.inf
    held = af.const(edge).weight
    assert held is not None
    assert held.array[0, :3].tolist() == [65504, -65504, np.inf]


@pytest.mark.parametrize("side", SIDES)
def test_a_callers_settings_for_float_errors_do_not_matter(side):
    tiny = np.full((side, side), 1e-30, np.float32)
    with np.errstate(all="raise"):
        held = af.const(tiny).weight
    assert held is not None
    assert not held.array.any()


# One content is one weight, however it comes.


@pytest.mark.parametrize("side", SIDES)
def test_all_ways_to_one_content_are_one_weight(side):
    mine = square(side, np.float16).astype(np.float32)
    ways = (
        mine,
        mine.copy(),
        mine.astype(np.float64),
        mine.astype(np.float16),
        np.asfortranarray(mine),
        mine.T.copy().T,
    )
    swapped = mine.astype(mine.dtype.newbyteorder())
    constants = [af.const(each) for each in (*ways, swapped, mine.tolist())]
    assert {each.weight for each in constants} == {intern_weight(mine)}


@pytest.mark.parametrize("shape", [(5, 7), (1, 3), (1024, 32), (1025, 33), (2100, 70)])
def test_a_turned_matrix_is_the_weight_of_its_dense_copy(shape):
    drawn = np.random.default_rng(0).standard_normal(shape[::-1]).astype(np.float16)
    for turned in (drawn.T, drawn[::-1].T, drawn.T[:, ::2]):
        weight = intern_weight(np.ascontiguousarray(turned))
        assert intern_weight(turned) is weight
        assert (weight.array == turned).all()
    drawn[-1, 0] = np.nan
    with pytest.raises(af.GraphError, match=rf"NaN at index \(0, {shape[1] - 1}\)"):
        intern_weight(drawn.T)


def test_a_view_is_stored_as_it_is_seen():
    whole = square(128)
    assert (numbers(af.input((2, 64)).linear(whole[::2, 1::2])) == whole[::2, 1::2].astype(np.float16)).all()
    assert (numbers(af.input((2, 128)).linear(whole.T)) == whole.T.astype(np.float16)).all()


def test_one_array_under_two_shapes_is_two_weights():
    line = square(64).reshape(-1)
    one = af.const(line)
    line.shape = (64, 64)
    two = af.const(line)
    assert one.shape == (4096,)
    assert two.shape == (64, 64)
    assert one.weight is not two.weight


def test_the_same_array_is_copied_once():
    mine = square(64)
    found = {id(stored_weight(mine)): stored_weight(mine) for _ in range(5)}
    (snapshot,) = found.values()
    assert isinstance(snapshot, Snapshot)


def test_a_norm_over_many_features_knows_whether_its_values_are_equal():
    gamma = np.ones(2048, np.float32)
    x = af.input((2, 2048))
    one, two = (x.layer_norm(gamma, gamma) for _ in range(2))
    assert one.signature is two.signature
    gamma[5] = 3
    assert x.layer_norm(gamma, gamma).signature is not one.signature


# Memory.


def wide(constants: list[af.Tensor]) -> int:
    """How many wait to be rounded."""
    return sum(isinstance(each._weight, Snapshot) and each._weight.content is not None for each in constants)


def test_what_waits_to_be_rounded_has_a_bound(monkeypatch):
    waiting = snapshots._Waiting(20 << 14, 4 << 14)  # 20 arrays of 16,384 bytes, then 4
    monkeypatch.setattr(snapshots, "_waiting", waiting)
    arrays = [square(64) for _ in range(50)]
    made = [af.const(each) for each in arrays[:20]]
    assert wide(made) == 20
    for each in arrays[20:]:
        made.append(af.const(each))
        assert 2 <= wide(made) <= 4
        assert waiting.size == wide(made) << 14
    for mine, each in zip(arrays, made, strict=True):
        assert each.weight is not None
        assert (each.weight.array == mine.astype(np.float16)).all()


@pytest.mark.parametrize("end", ["gone", "read"])
def test_a_large_model_that_is_gone_or_read_leaves_room_for_the_next(monkeypatch, end):
    waiting = snapshots._Waiting(20 << 14, 4 << 14)
    monkeypatch.setattr(snapshots, "_waiting", waiting)
    kept = [square(64) for _ in range(60)]
    made = [af.const(each) for each in kept[:30]]
    assert waiting.limit == waiting.least
    if end == "gone":
        made.clear()
    for each in made:
        assert each.weight is not None
    made = [af.const(each) for each in kept[30:48]]
    assert waiting.limit == waiting.most
    assert wide(made) == 18


def test_a_snapshot_goes_with_its_graph():
    y = af.input((2, 64)) @ square(64)
    snapshot = weakref.ref(y.inputs[1]._weight)
    assert isinstance(snapshot(), Snapshot)
    del y
    gc.collect()
    assert snapshot() is None


def test_a_read_weight_keeps_no_wide_copy():
    constant = af.const(square(64, np.float64))
    snapshot = constant._weight
    assert isinstance(snapshot, Snapshot)
    assert isinstance(constant.weight, Weight)
    assert snapshot.content is None
    assert constant._weight is constant.weight is snapshot.weight


def test_places_have_a_bound(monkeypatch):
    places = SharedCache(16)
    monkeypatch.setattr(node, "_places", places)
    for number in range(100):  # code that is gone: another may get its address
        scope = {"x": af.input((2, 3))}
        exec(compile("\n" * number + "y = x.relu()", f"cell_{number}.py", "exec"), scope)  # noqa: S102
        assert scope["y"].where == (f"cell_{number}.py", number + 1)
        assert len(places) <= 16


# Lines.


def test_a_constant_has_the_line_of_the_call_that_makes_it():
    x = af.input((2, 3))
    y = x + 2.0
    z = 1.0 / af.concat([y, np.ones((2, 3))], 1).layer_norm(np.ones(6), np.zeros(6))
    user = {operand: each for each in z.graph() for operand in each.inputs}
    constants = [each for each in z.graph() if each.op == "const"]
    assert len(constants) == 5
    for each in constants:
        assert each.where == user[each].where
        assert each.where is not None
        assert each.where[0] == __file__
    assert {each.where[1] for each in constants if each.where} == {y.where[1], z.where[1]}


def test_two_calls_of_a_line_share_it_and_two_lines_do_not():
    x = af.input((2, 3))
    one, two = x.relu(), x.tanh()
    three = x.relu()
    assert one.where == two.where
    assert three.where is not None
    assert one.where is not None
    assert three.where[1] == one.where[1] + 1


def test_names_stay():
    x = af.input((2, 3), name="x")
    y = ((x + 1.0).relu() @ np.ones((3, 3))).named("mine").relu()
    graph = y.graph()
    names = graph.names()
    assert [names[each.uid] for each in graph] == ["x", "const_0", "add_0", "relu_0", "const_1", "mine", "relu_1"]


# Refusals.


class Impostor:
    """What has a shape, but is no tensor."""

    shape = (2, 3)


@pytest.mark.parametrize("operand", [Impostor(), object(), "x"])
def test_operands_that_are_no_tensors_are_named(operand):
    with pytest.raises(af.GraphError, match=r"matmul|add"):
        af.input((2, 3)) @ operand
    with pytest.raises(af.GraphError, match=rf"relu at .*: operand is a {type(operand).__name__}, not a graph tensor"):
        node.make(node.definition("relu"), (operand,))


@pytest.mark.parametrize("extent", [True, 3.0, "3", None])
def test_a_look_up_that_succeeded_lets_nothing_else_through(extent):
    """1, True and 1.0 are equal keys of a dictionary, and only one of them is an extent."""
    x = af.input((3, 1))
    x.reshape(1, 3)
    x.transpose([1, 0])
    with pytest.raises(af.GraphError, match="reshape at"):
        x.reshape(1, extent)
    with pytest.raises(af.GraphError, match="transpose at"):
        x.transpose([extent, 0])


# Threads.


def test_threads_build_one_graph_each_and_share_its_weights():
    """Eight threads pass the same arrays in and read them at once: one weight of each, the same lines and names."""
    shared = [square(64) for _ in range(6)]
    start = threading.Barrier(8)

    def build(_):
        start.wait()
        x = af.input((2, 64))
        for mine in shared * 5:
            x = x.linear(mine).layer_norm(mine[0], mine[1]) + 0.25
        graph = x.graph()
        return graph.names().values(), [each.where for each in graph], [each.weight for each in graph]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(build, range(8)))
    names, lines, held = results[0]
    for other_names, other_lines, other_held in results[1:]:
        assert list(other_names) == list(names)
        assert other_lines == lines
        assert [id(each) for each in other_held] == [id(each) for each in held]
    stored = {each.key: each for each in held if each is not None}
    assert all((stored[intern_weight(mine).key].array == mine.astype(np.float16)).all() for mine in shared)


@pytest.mark.parametrize("other", ["weight", "shrink"])
def test_a_snapshot_may_be_read_and_shrunk_by_two_threads(other, monkeypatch):
    mine = square(64)
    snapshot = stored_weight(mine)
    assert isinstance(snapshot, Snapshot)
    barrier = threading.Barrier(2)
    intern = weights.intern_fp16

    def met(array):
        barrier.wait(10)
        return intern(array)

    monkeypatch.setattr(snapshots, "intern_fp16", met)

    def rival():
        if other == "weight":
            return snapshot.weight
        barrier.wait(10)
        snapshot.shrink()
        return None

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.submit(lambda: snapshot.weight), pool.submit(rival)
        assert two.result() in (None, one.result())
    assert one.result() is snapshot.weight is intern_weight(mine)

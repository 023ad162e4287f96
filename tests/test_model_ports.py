"""Arrays bound to a model's ports, several outputs by name, releasing a model, and what a port accepts."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

import aneforge as af

RNG = np.random.default_rng(7)


def dense():
    x = af.input((2, 8), name="x")
    z = af.input((2, 8), name="z")
    return (x + z).linear(RNG.standard_normal((4, 8))).named("scores"), (x * 2.0).named("twice")


# Views.


def test_execute_gives_the_numbers_of_a_call():
    model = af.compile(list(dense()), target="m1")
    x, z = RNG.standard_normal((2, 2, 8))
    model.input_view("x")[...] = x
    model.input_view(1)[...] = z
    assert model.execute() is None
    scores, twice = model(x, z)
    assert (model.output_view("scores") == scores).all()
    assert (model.output_view(1) == twice).all()


def test_a_view_is_one_array_in_the_users_shape():
    x = af.input((1, 3, 4, 5), name="x")
    model = af.compile(x.transpose([0, 2, 3, 1]).named("y"), target="m5")
    view = model.input_view()
    assert (view.shape, view.dtype) == ((1, 3, 4, 5), np.float16)
    assert model.input_view("x") is view
    out = model.output_view()
    assert (out.shape, out.dtype) == ((1, 4, 5, 3), np.float16)
    view[...] = RNG.standard_normal(view.shape)
    model.execute()
    assert (out == view.transpose(0, 2, 3, 1)).all()
    view[...] = 1.0
    model.execute()
    assert (out == 1.0).all()  # the array that was handed out before


def test_an_output_view_is_read_only():
    model = af.compile(af.input((2, 2)).relu(), target="m1")
    with pytest.raises(ValueError, match="read-only"):
        model.output_view()[...] = 1


def test_rank_five_parameters_and_truth_values():
    x = af.input((1, 2, 3, 4, 5), name="x")
    model = af.compile((x * 3.0).named("y"), target="m1")
    model.input_view()[...] = RNG.standard_normal(x.shape)
    model.execute()
    assert (model.output_view() == model(model.input_view())).all()
    w = af.parameter(np.full((4,), 2.0), name="w")
    trained = af.compile((af.input((2, 4), name="v") * w).named("y"), target="m1")
    assert (trained.input_view("w") == 2).all()
    trained.input_view("w")[...] = 5
    trained.input_view(0)[...] = 1
    trained.execute()
    assert (trained.output_view() == 5).all()
    truth = af.compile((af.input((2, 2), name="t") > 0.5).named("y"), target="m1")
    truth.input_view()[...] = [[0, 1], [1, 0]]
    truth.execute()
    assert truth.output_view().astype(bool).tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model: model.input_view("w"), "'w': not an input of the program. Choose one: 0 x, 1 z"),
        (lambda model: model.input_view(2), "2: not an input of the program"),
        (lambda model: model.output_view(-3), "-3: not an output of the program. Choose one: 0 scores, 1 twice"),
        (lambda model: model.output_view(1.5), r"1\.5: not an output"),
    ],
)
def test_a_port_that_is_not_there_is_named_with_those_that_are(ask, message):
    with pytest.raises(af.AneforgeError, match=message):
        ask(af.compile(list(dense()), target="m1"))


# Release.


def test_a_released_model_gives_its_memory_back_and_refuses_to_run():
    model = af.compile(list(dense()), target="m1")
    x, z = RNG.standard_normal((2, 2, 8))
    model(x, z)
    model.input_view(0)
    plan = weakref.ref(model._plan)
    model.release()
    gc.collect()
    assert plan() is None
    calls = [
        lambda: model(x, z),
        lambda: model.run({"x": x, "z": z}),
        lambda: model.batch({"x": x[None], "z": z[None]}),
        lambda: model.reference(x, z),
        lambda: model.input_view(0),
        lambda: model.output_view(0),
        model.execute,
    ]
    for call in calls:
        with pytest.raises(af.AneforgeError, match=r"scores, twice: the model was released and cannot run\. Compile"):
            call()
    model.release()
    assert model.n_ops > 0
    assert model.estimate().us > 0
    assert "program for h13" in str(model)


def test_a_segmented_model_is_released_too():
    q = af.input((1, 4, 16, 8), name="q")
    model = af.compile(af.sdpa(q, q, q), target="m1")
    assert isinstance(model, af.SegmentedModel)
    model.release()
    with pytest.raises(af.AneforgeError, match="was released"):
        model(np.zeros(q.shape))
    assert model.n_netplist == 1


# Several outputs.


def test_several_outputs_by_name():
    scores, twice = dense()
    model = af.compile_multi({"a": scores, "b": twice}, target="m1")
    assert isinstance(model, af.MultiModel)
    assert [(tensor.name, name) for tensor, name in model.input_ports] == [("x", "x"), ("z", "z")]
    assert [(tensor.uid, name) for tensor, name in model.output_ports] == [(scores.uid, "a"), (twice.uid, "b")]
    x, z = RNG.standard_normal((2, 2, 8))
    found = model(x, z=z)
    wanted = af.compile([scores, twice], target="m1")(x, z)
    assert list(found) == ["a", "b"]
    assert all(value.dtype == np.float32 for value in found.values())
    assert (found["a"] == wanted[0]).all()
    assert (found["b"] == wanted[1]).all()
    model.input_view("x")[...] = x
    model.input_view("z")[...] = z
    model.execute()
    assert (model.output_view("b") == found["b"]).all()
    model.release()
    with pytest.raises(af.AneforgeError, match="was released"):
        model(x, z)


def test_outputs_in_a_list_go_by_their_own_names():
    model = af.compile_multi(dense(), target="m5")
    assert model.keys == ("scores", "twice")
    one = af.compile_multi([dense()[1]], target="m5")
    assert list(one(np.zeros((2, 8)))) == ["twice"]


def test_one_tensor_may_have_two_names():
    _, twice = dense()
    found = af.compile_multi({"a": twice, "b": twice}, target="m1")(np.ones((2, 8)))
    assert (found["a"] == 2).all()
    assert (found["b"] == 2).all()


def test_outputs_need_names_of_their_own():
    x = af.input((2, 2))
    with pytest.raises(af.AneforgeError, match="outputs are called 1, 1; give each a name of its own"):
        af.compile_multi({1: x.relu(), "1": x.abs()}, target="m1")
    same = af.compile_multi([x.relu().named("y"), x.abs().named("y")], target="m1")  # graphs number equal names
    assert len(set(same.keys)) == 2


# Bytes.


def picture():
    return af.image_input((1, 3, 4, 4), name="photo").relu().named("y")


GOOD = [
    np.full((1, 3, 4, 4), 255, np.uint8),
    np.full((1, 3, 4, 4), 255),
    np.zeros((1, 3, 4, 4), np.int16),
    np.ones((1, 3, 4, 4), bool),
]
BAD = [
    (np.full((1, 3, 4, 4), 0.5), "input 'photo': float64 array given; a uint8 port takes whole numbers from 0 to 255"),
    (np.full((1, 3, 4, 4), 7.0, np.float32), "input 'photo': float32 array given"),
    (np.full((1, 3, 4, 4), 256), "input 'photo': values from 256 to 256 given"),
    (np.full((1, 3, 4, 4), -1), "input 'photo': values from -1 to -1 given"),
]


@pytest.mark.parametrize("value", GOOD, ids=lambda value: str(value.dtype))
def test_a_byte_port_takes_whole_numbers_in_range(value):
    model = af.compile(picture(), target="m1")
    wanted = model(value.astype(np.uint8))
    assert (model(value) == wanted).all()
    assert (model.run({"photo": value}).outputs["y"] == wanted).all()
    (done,) = model.batch({"photo": value[None]})
    assert (done.outputs["y"] == wanted).all()
    model.input_view()[...] = value
    model.execute()
    assert (model.output_view() == wanted).all()


@pytest.mark.parametrize(("value", "message"), BAD, ids=lambda each: str(getattr(each, "dtype", "")))
def test_a_byte_port_refuses_the_rest(value, message):
    model = af.compile(picture(), target="m1")
    with pytest.raises(af.AneforgeError, match=message):
        model(value)
    with pytest.raises(af.AneforgeError, match=message):
        model.run({"photo": value})
    with pytest.raises(af.AneforgeError, match=message):
        list(model.batch({"photo": value[None]}))
    with pytest.raises(af.AneforgeError, match=message):
        model.reference(value)
    with pytest.raises(af.AneforgeError, match=message):
        model.input_view()[...] = value
    with pytest.raises(af.AneforgeError, match="input 'photo'"):
        model.input_view().fill(value.flat[0])
    with pytest.raises(af.AneforgeError, match="input 'photo'"):
        model.input_view()[0, 1][...] = value[0, 1]  # a part of the view is bound to the port as well
    with pytest.raises(af.AneforgeError, match=message):
        af.partition(picture(), "m1").run({"photo": value})


def test_the_command_line_refuses_them_too(tmp_path):
    (tmp_path / "net.py").write_text(
        "import aneforge as af\nout = af.image_input((1, 3, 4, 4), name='photo').relu().named('y')\n"
    )

    def run(array):
        np.savez(tmp_path / "in.npz", photo=array)
        words = ("run", "net.py", "--target", "m1", "--input", "in.npz")
        return subprocess.run(
            [sys.executable, "-m", "aneforge", *words], capture_output=True, text=True, check=False, cwd=tmp_path
        )

    assert run(GOOD[0]).returncode == 0
    for value, message in BAD[:3:2]:
        done = run(value)
        assert done.returncode != 0
        assert message in done.stderr
        assert "Traceback" not in done.stderr

"""The autotuner: every form means the same, the search keeps to its limits, and it never makes a graph slower."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest

import aneforge as af
from aneforge.advice import (
    SearchLimits,
    attention_tiles,
    search,
    tune,
    tune_attention,
    tune_precision,
)
from aneforge.advice.checking import distance
from aneforge.advice.form_search import LEAST_SPEEDUP
from aneforge.advice.forms import ATTENTION_FORMS, TILING_FORMS, forms_for, row_bounds
from aneforge.advice.proposals import Workbench, context_on
from aneforge.chips.streams import native_streams
from aneforge.cli import tune as command
from aneforge.compiler.storage import streamed_storages
from aneforge.graph.encoding import Encoded
from aneforge.graph.forms import OtherForm, Site, applied
from aneforge.graph.graph import Graph, load_graph
from aneforge.graph.layer_forms import OP_FORMS

M1, M5 = af.target("m1"), af.target("m5")


def weights(rng, *shape):
    return rng.normal(0, shape[-1] ** -0.5, shape).astype(np.float16)


def attention(rng, rows=None, keys=None, heads=None, features=None, mask=False, scale="mul"):
    rows, keys = rows or int(rng.integers(9, 40)), keys or int(rng.integers(9, 40))
    heads, features = heads or int(rng.integers(1, 5)), features or int(rng.choice([8, 16, 24]))
    q = af.input((1, heads, rows, features), name="q")
    k, v = (af.input((1, heads, keys, features), name=name) for name in "kv")
    scores = q @ k.mT
    if scale == "mul":
        scores = scores * 0.25
    elif scale == "attribute":
        scores = scores.linear_activation(0.3)
    elif scale == "div":
        scores = scores / 4.0
    if mask == "stored":
        scores = scores + rng.normal(size=(rows, keys)).astype(np.float16)
    elif mask == "given":
        scores = scores + af.input((1, 1, rows, keys), name="mask")
    return scores.softmax(-1) @ v


def fused(rng, causal=False, mask=False):
    rows = int(rng.integers(9, 40))
    q, k, v = (af.input((1, 3, rows, 16), name=name) for name in "qkv")
    plane = af.input((1, 1, rows, rows), name="mask") if mask else None
    return af.sdpa(q, k, v, is_causal=causal, attn_mask=plane)


def dense(rng, rows=None, inputs=None, outputs=None, bias=True, rank=2):
    rows, inputs = rows or int(rng.integers(4, 30)), inputs or int(rng.integers(5, 60))
    outputs = outputs or int(rng.integers(4, 50))
    x = af.input((rows, inputs) if rank == 2 else (2, rows, inputs), name="x")
    return x.linear(weights(rng, outputs, inputs), weights(rng, outputs) if bias else None)


def image(rng, kernel=1, stride=1, side=None, bias=True):
    channels, outputs = int(rng.integers(3, 12)), int(rng.integers(4, 20))
    side = side or int(rng.integers(2, 6)) * max(stride, 2)
    x = af.input((1, channels, side, side), name="x")
    weight = weights(rng, outputs, channels, kernel, kernel)
    return af.conv(x, weight, stride=stride, bias=weights(rng, outputs) if bias else None)


def sums(rng, axis, mean=False):
    x = af.input((1, 16, int(rng.integers(3, 9)), 32), name="x")
    return x.mean(axis) if mean else x.sum(axis)


MAKERS = {
    "attention": [
        attention,
        lambda rng: attention(rng, mask="stored"),
        lambda rng: attention(rng, mask="given", scale="attribute"),
        lambda rng: attention(rng, scale="div"),
        lambda rng: attention(rng, scale=None),
        fused,
        lambda rng: fused(rng, causal=True),
        lambda rng: fused(rng, mask=True),
    ],
    "tiling": [
        dense,
        lambda rng: dense(rng, rank=3, bias=False),
        lambda rng: af.input((7, 40), name="x") @ weights(rng, 40, 12),
        image,
        lambda rng: image(rng, kernel=3),
        lambda rng: dense(rng, rows=2, inputs=8192, outputs=1024),  # one core's share of the weights is 1 MiB
    ],
    "form": [
        dense,
        lambda rng: dense(rng, rank=3, bias=False),
        lambda rng: af.input((7, 40), name="x") @ weights(rng, 40, 12),
        image,
        lambda rng: image(rng, kernel=2, stride=2),
        lambda rng: image(rng, kernel=4, stride=4, bias=False),
        lambda rng: sums(rng, 1),
        lambda rng: sums(rng, 3),
        lambda rng: sums(rng, 1, mean=True),
        lambda rng: sums(rng, 3, mean=True),
        lambda rng: af.conv3d(af.input((1, 4, 5, 6, 7), name="x"), weights(rng, 6, 2, 3, 2, 3), 1, 1, groups=2),
    ],
}
FORMS = (*ATTENTION_FORMS, *TILING_FORMS, *OP_FORMS)


def small_context(graph, chip):
    """Thresholds so low that small graphs meet them: what is tested is meaning, not gain."""
    real = context_on(graph, chip)
    return type(real)(real.users, 64.0, long_sum=8)


def feeds(graph, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=each.shape).astype(np.float16) for each in graph.inputs]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_form_is_an_equivalence(form):
    """In float64 a form and what it replaces differ by the order of sums alone; in the simulator by fp16 rounding."""
    fitted = 0
    chip = "m6" if form.name == "conv3d-as-planes" else "m5"  # volumes run on an M6 alone (C08)
    for number, maker in enumerate(MAKERS[form.kind]):
        for seed in range(3):
            graph = Graph.of(maker(np.random.default_rng(100 * number + seed)))
            node = graph.outputs[0]
            site = form.find(node, small_context(graph, M1))
            if site is None:
                continue
            fitted += 1
            other = applied(graph, [site])
            assert str(other) != str(graph)
            given = feeds(graph)
            expected, found = af.evaluate(graph, given)[0], af.evaluate(other, given)[0]
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * max(1.0, np.abs(expected).max()))
            if seed == 0:
                one, two = (np.asarray(af.compile(each, target=chip)(*given)) for each in (graph, other))
                assert distance(one, two) <= 0.005
    assert fitted >= 2, f"{form.name} was never tried"


def test_a_form_keeps_inputs_outputs_and_names():
    rng = np.random.default_rng(0)
    x = af.input((1, 4, 8, 8), name="picture")
    first = af.conv(x, weights(rng, 6, 4, 2, 2), stride=2).relu()
    graph = Graph([first, first.sum(1), first * 2.0])  # three outputs without names of their own
    form = next(each for each in OP_FORMS if each.name == "patches-as-channels")
    site = form.find(first.inputs[0], small_context(graph, M1))
    assert site is not None
    other = applied(graph, [site])
    assert [each.name for each in other.inputs] == ["picture"]
    names, again = graph.names(), other.names()
    assert [names[each.uid] for each in graph.outputs] == [again[each.uid] for each in other.outputs]
    for one, two in zip(af.evaluate(graph, feeds(graph)), af.evaluate(other, feeds(graph)), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-9)


def test_shared_parts_are_left_alone():
    """Attention whose softmax somebody else reads stays: it would have to be computed twice."""
    rng = np.random.default_rng(0)
    out = attention(rng, 16, 16, 2, 8)
    graph = Graph([out, out.inputs[0]])
    assert all(form.find(out, context_on(graph, M1)) is None for form in ATTENTION_FORMS)


def test_tiles_cover_every_row_once():
    for rows in (5, 8, 13):
        for tiles in (1, 2, 3, 5):
            bounds = row_bounds(rows, tiles)
            places = [begin + each for begin, size in bounds for each in range(size)]
            assert places == list(range(rows))
            assert max(size for _, size in bounds) - min(size for _, size in bounds) <= 1


def only(monkeypatch, *forms):
    """A search that knows these forms alone."""
    monkeypatch.setattr(inspect.getmodule(search), "forms_for", lambda *_: forms)


@pytest.mark.parametrize("chip", ["m1", "m5"])
@pytest.mark.parametrize("size", [64, 512])
def test_attention_gets_the_form_of_the_best_estimate(chip, size, monkeypatch):
    """512 x 512 scores of eight heads are 4 MiB, more than stays on a chip; those of 64 x 64 fit by far."""
    out = attention(np.random.default_rng(0), size, size, 8, 64)
    graph = Graph.of(out)
    tiles = [each for each in ATTENTION_FORMS if each.name.startswith("query-tiles")]
    sites = [each.find(out, context_on(graph, af.target(chip))) for each in tiles]
    times = [af.estimate(each, target=chip) for each in (graph, *(applied(graph, [site]) for site in sites))]
    assert len(set(times)) == len(times)  # there is something to choose
    only(monkeypatch, *tiles)
    model = tune(out, target=chip)
    assert model.tuning.best.us == pytest.approx(min(times), rel=LEAST_SPEEDUP - 1)
    assert model.estimate().us == model.tuning.best.us
    assert bool(model.tuning.kept) == (min(times) * LEAST_SPEEDUP <= times[0])
    assert all(each.same_bits for each in model.tuning.kept)  # rows do not depend on one another


def test_a_graph_without_other_forms_stays():
    out = af.input((4, 64), name="x").relu()
    model = tune(out, target="m1")
    assert not model.tuning.candidates
    assert model.tuning.graph.outputs[0] is out
    assert model.tuning.speedup == 1.0
    assert "nothing better" in str(model.tuning)


def test_the_attention_layer_pays_for_its_own_dispatches():
    """It cuts the graph in three programs; what it saves on the engine must be worth that."""
    told = {each.name: each for each in search(attention(np.random.default_rng(0), 64, 64, 4, 32), "m5").candidates}
    assert not told["fused-layer"].kept
    assert told["fused-layer"].why.startswith(("pruned", "not faster"))


def test_what_the_gate_warns_of_is_not_chosen(monkeypatch):
    """With 512 queries and keys the fused layer gives wrong numbers on silicon (N50), whatever the simulator says."""
    only(monkeypatch, ATTENTION_FORMS[0])
    out = attention(np.random.default_rng(0), 512, 512, 8, 64)
    found = search(out, "m5", SearchLimits(prune_factor=1e9))
    assert [each.name for each in found.candidates] == ["fused-layer"]
    assert "wrong numbers" in found.candidates[0].why
    assert not found.kept


def mixed_graph():
    rng = np.random.default_rng(3)
    x = af.input((64, 6144), name="x")
    return x.linear(weights(rng, 256, 6144)).relu().linear(weights(rng, 320, 256)).softmax(-1)


def test_two_searches_give_the_same():
    found = [search(mixed_graph(), "m2", SearchLimits(target_error=0.05)) for _ in range(2)]
    assert found[0].to_json() == found[1].to_json()
    assert str(found[0]) == str(found[1])
    assert str(found[0].graph).splitlines()[-1] == str(found[1].graph).splitlines()[-1]


@pytest.mark.parametrize("budget", [1, 3])
def test_the_budget_is_kept(budget, monkeypatch):
    compiled = []
    real = Workbench.tried
    monkeypatch.setattr(Workbench, "tried", lambda *arguments: compiled.append(arguments) or real(*arguments))
    found = search(mixed_graph(), "m5", SearchLimits(budget=budget, target_error=0.0, prune_factor=1e9))
    assert found.tried == budget
    assert len(compiled) == budget
    assert any("budget" in each.why for each in found.candidates)


@pytest.mark.parametrize("chip", ["m1", "m2", "m4", "m5", "m6"])
@pytest.mark.parametrize("make", [mixed_graph, lambda: image(np.random.default_rng(5), 4, 4, 32)])
def test_never_slower_than_untouched(make, chip):
    out = make()
    model = tune(out, target=chip, target_error=0.05)
    before, after = af.compile(out, target=chip).estimate().us, model.estimate().us
    assert after <= before
    assert (after < before) == bool(model.tuning.kept)
    assert model.tuning.speedup == pytest.approx(before / after)


def test_a_tuned_model_gives_the_numbers():
    out = wide_layer(zeros=0.8)
    model, plain = tune(out, target="m1", target_error=0.01), af.compile(out, target="m1")
    x = np.random.default_rng(9).normal(size=(32, 2048)).astype(np.float16)
    assert model.tuning.kept
    assert distance(plain(x), model(x)) <= 0.01
    assert model.run({"x": x}).outputs.keys() == plain.run({"x": x}).outputs.keys()


def nearly(step):
    """A form that is much faster, four fifths of its weights being zeros, and a little wrong."""

    def find(node, context):
        if node.op != "linear":
            return None
        numbers = (node.inputs[1].weight.array * np.float16(1 + step)).astype(np.float16)
        stored = Encoded.sparse(numbers != 0, numbers[numbers != 0])
        return Site(node, node.inputs[:1], lambda x: x.linear(stored))

    return OtherForm("form", "nearly", "", find)


def test_other_bits_must_pay(monkeypatch):
    out = wide_layer(zeros=0.8)
    only(monkeypatch, nearly(1 / 512))
    free = search(out, "m1")
    assert [each.name for each in free.kept] == ["nearly"]
    assert free.error == pytest.approx(1 / 512, rel=0.3)
    strict = search(out, "m1", SearchLimits(min_lossy_speedup=free.speedup * 1.01))
    assert not strict.kept
    assert "other bits" in strict.candidates[0].why
    exact = search(out, "m1", SearchLimits(atol=0.001))
    assert not exact.kept
    assert exact.candidates[0].why.startswith("error")
    only(monkeypatch, nearly(0.0))  # the same numbers: nothing to pay for
    assert search(out, "m1", SearchLimits(atol=0.0, min_lossy_speedup=100.0)).kept


def test_a_failed_form_does_not_rule_out_the_others(monkeypatch):
    """A wrong form that is fastest is no measure for the right one, slower than it by more than the factor."""
    out = wide_layer(zeros=0.8)
    right = next(each for each in OP_FORMS if each.name == "dense-as-conv")
    only(monkeypatch, nearly(0.5), right)
    told = {each.name: each for each in search(out, "m1", SearchLimits(prune_factor=1.6)).candidates}
    assert told["nearly"].why.startswith("error")
    assert not told["dense-as-conv"].why.startswith("pruned")


def wide_layer(zeros=0.0, seed=0):
    rng = np.random.default_rng(seed)
    weight = weights(rng, 2048, 2048)
    weight[rng.random(weight.shape) < zeros] = 0
    return af.input((32, 2048), name="x").linear(weight)


def test_weights_are_compressed_only_where_that_is_allowed():
    plain = search(wide_layer(), "m2")
    assert not any(each.kind == "encoding" for each in plain.candidates)
    allowed = search(wide_layer(), "m2", SearchLimits(target_error=0.05, min_lossy_speedup=1.02))
    assert [each.kind for each in allowed.kept] == ["encoding"]
    assert 0 < allowed.error <= 0.05
    assert allowed.speedup >= 1.02
    assert any(weight.encoded is not None for weight in allowed.graph.weights.values())
    tight = search(wide_layer(), "m2", SearchLimits(target_error=1e-6))
    assert not tight.kept
    slow = search(wide_layer(), "m2", SearchLimits(target_error=0.05, min_lossy_speedup=100.0))
    assert not slow.kept


@pytest.mark.parametrize("chip", ["m1", "m2", "m3", "m5", "m6"])
def test_forms_of_weights_follow_the_family(chip):
    """compression.json: M1 streams palettes and sparse weights, M2 int8 too, M3 and later also blocks."""
    target = af.target(chip)
    found = {each.encoding for each in streamed_storages(target)}
    streams = native_streams(target.family5)
    assert ("int8" in found) == ("int8" in streams)
    assert ("blockwise" in found) == ("blockwise" in streams)
    assert {"lut4", "sparse"} <= found
    if chip == "m1":
        assert found == {"lut4", "lut8", "sparse"}
    kinds = {each.name for each in forms_for(target, compressed=True) if each.kind == "encoding"}
    assert kinds == found
    assert not any(each.kind == "encoding" for each in forms_for(target))


def test_every_form_of_weights_streams_and_is_near():
    rng = np.random.default_rng(0)
    weight = weights(rng, 64, 128)
    weight[rng.random(weight.shape) < 0.6] = 0
    allowed = {"int8": 0.5 / 127, "blockwise": 0.5 / 127, "lut8": 0.02, "lut6": 0.04, "lut4": 0.15, "sparse": 0.0}
    for storage in streamed_storages(M5):
        assert storage.pays(weight)
        stored = storage.write(weight)
        assert isinstance(stored, Encoded)
        peak = np.abs(weight.astype(np.float64)).max()
        assert np.abs(stored.decode() - weight.astype(np.float64)).max() <= allowed[storage.encoding] * peak * 1.02
        program = af.compile(af.input((8, 128), name="x").linear(stored), target="m5").program
        assert {each.encoding for each in program.weights if each.flow} == {storage.encoding}


def test_zero_weights_are_encoded():
    """A row of zeros has no largest number to scale by."""
    weight = np.zeros((64, 64), np.float16)
    for storage in streamed_storages(M5):
        assert storage.pays(weight)
        stored = storage.write(weight)
        assert not stored.decode().any()


def test_sparse_weights_keep_their_bits():
    found = search(wide_layer(zeros=0.8), "m1", SearchLimits(target_error=0.0))
    assert [each.name for each in found.kept] == ["sparse"]
    assert found.kept[0].same_bits


def two_layers():
    rng = np.random.default_rng(1)
    x = af.input((16, 1024), name="x")
    return x.linear(weights(rng, 2048, 1024)).relu().linear(weights(rng, 1024, 2048))


def test_precision_within_an_error():
    loose, tight = (tune_precision(two_layers(), target_error=each, target="m2")[1] for each in (0.05, 1e-6))
    assert loose.kept
    assert loose.error <= 0.05
    assert loose.best.us < loose.untouched.us
    assert not tight.kept
    assert tight.best.us == tight.untouched.us


def test_precision_within_a_time():
    out = two_layers()
    whole = tune_precision(out, target_error=1.0, target="m2")[1]
    between = (whole.best.us + whole.untouched.us) / 2
    some = tune_precision(out, cost_budget_us=between, target="m2")[1]
    assert whole.best.us <= some.best.us <= between
    assert some.error <= whole.error
    same = tune_precision(out, cost_budget_us=whole.untouched.us, target="m2")[1]
    assert not same.kept
    with pytest.raises(af.AneforgeError, match="no choice of weights takes"):
        tune_precision(out, cost_budget_us=1.0, target="m2")
    with pytest.raises(af.AneforgeError, match="costs an error"):
        tune_precision(out, cost_budget_us=between, target_error=1e-7, target="m2")


def test_tiles_by_the_working_set():
    """The working set is 2 MiB (HAL 0x1b8). Eight heads of 256 x 256 scores are 1 MiB, in and out exactly 2 MiB."""
    assert attention_tiles(256, 8, 64, target="m1") == 1
    assert attention_tiles(257, 8, 64, T=256, target="m1") == 2
    assert attention_tiles(512, 8, 64, target="m1") == 4
    assert attention_tiles(4096, 8, 64, target="m1") == 8  # the most there is
    assert attention_tiles(512, 8, 64, candidates=(1, 2), target="m1") == 2
    assert attention_tiles(3, 8, 64, T=500000, target="m1") == 3  # never more tiles than queries


def test_tiles_by_estimate():
    for size, chip in ((64, "m1"), (512, "m1"), (512, "m5")):
        chosen = tune_attention(size, 8, 64, candidates=(1, 2, 4), target=chip)
        assert attention_tiles(size, 8, 64, tune=True, candidates=(1, 2, 4), target=chip) == chosen
        times = {}
        for tiles in (1, 2, 4):
            q, k, v = (af.input((1, 8, size, 64)) for _ in range(3))
            height = size // tiles
            parts = [
                ((q[:, :, i * height : (i + 1) * height, :] if tiles > 1 else q) @ k.mT * 0.125).softmax(-1) @ v
                for i in range(tiles)
            ]
            times[tiles] = af.estimate(af.concat(parts, axis=2) if tiles > 1 else parts[0], target=chip)
        assert times[chosen] == pytest.approx(min(times.values()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": 0}, "budget: 0 is not a number of candidates"),
        ({"budget": 2.5}, "budget: 2.5 is not"),
        ({"atol": -0.1}, "atol: -0.1 is not allowed"),
        ({"prune_factor": 0.5}, "prune_factor: 0.5 is not allowed"),
        ({"min_lossy_speedup": float("nan")}, "min_lossy_speedup: nan is not allowed"),
        ({"target_error": -1}, "target_error: -1 is not allowed"),
        ({"target": "m99"}, "m99"),
        ({"inputs": [np.zeros((2, 2))] * 2}, "inputs: 2 arrays were given"),
        ({"inputs": {"y": np.zeros((2, 2))}}, "inputs: 'y' is not an input of the model. Choose from: x"),
        ({"inputs": {}}, "x: this input has no value"),
    ],
)
def test_bad_arguments_are_refused(options, words):
    out = af.input((4, 8), name="x").linear(np.ones((8, 8), np.float16))
    with pytest.raises(af.AneforgeError, match=words):
        tune(out, **{"target": "m1", **options})


def test_bad_sizes_are_refused():
    with pytest.raises(af.AneforgeError, match="S: 0 is not allowed"):
        attention_tiles(0, 8, 64)
    with pytest.raises(af.AneforgeError, match="candidates"):
        tune_attention(8, 8, 64, candidates=())
    with pytest.raises(af.AneforgeError, match="cost_budget_us"):
        tune_precision(wide_layer(), cost_budget_us=-1, target="m1")


def test_names_and_order_that_users_pass():
    wanted = {
        "tune": "out budget=8 inputs=None prune_factor=1.5 reps=20 atol=0.005 min_lossy_speedup=1.1 verbose=False "
        "target_error=None target=None dims=None function=None",
        "tune_precision": "out target_error=None cost_budget_us=None inputs=None reps=20 verbose=False target=None "
        "dims=None function=None",
        "tune_attention": "S n_heads dh T=None candidates=(1, 2, 3, 4, 5, 6, 8) target=None",
        "attention_tiles": "S n_heads dh T=None tune=False candidates=(1, 2, 3, 4, 5, 6, 8) target=None",
    }
    for name, told in wanted.items():
        parameters = inspect.signature(getattr(af, name)).parameters.values()
        shown = " ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters)
        assert shown == told
    assert af.tune(wide_layer(), target="m1", budget=1).tuning.tried <= 1


def test_own_inputs_decide(monkeypatch):
    """The check runs on the inputs that were given: with zeros for inputs no wrong factor shows."""
    only(monkeypatch, nearly(0.5))
    zeros = np.zeros((32, 2048), np.float16)
    assert not search(wide_layer(zeros=0.8), "m1").kept
    for given in ([zeros], {"x": zeros}, zeros):
        assert search(wide_layer(zeros=0.8), "m1", inputs=given).kept


def test_progress_is_told(capsys):
    tune(wide_layer(), target="m1", budget=1, verbose=True)
    told = capsys.readouterr()
    assert "tune: untouched" in told.err
    assert not told.out


def test_distance_by_hand():
    assert distance(np.array([1.0, -4.0]), np.array([1.0, -3.0])) == 0.25
    assert distance(np.array([np.inf, np.nan]), np.array([np.inf, np.nan])) == 0.0
    assert distance(np.array([1.0]), np.array([np.nan])) == np.inf
    assert distance(np.array([0.0]), np.array([0.1])) == np.inf


def test_the_command(tmp_path, capsys):
    file, saved = tmp_path / "net.py", tmp_path / "tuned.aneforge"
    file.write_text(
        "import numpy as np\nimport aneforge as af\nrng = np.random.default_rng(0)\n"
        "weight = rng.normal(0, 0.02, (2048, 2048)) * (rng.random((2048, 2048)) < 0.2)\n"
        "out = af.input((32, 2048), name='x').linear(weight)\n"
    )
    command.run(str(file), "m1", 8, 0.0, str(saved), as_json=False)
    printed = capsys.readouterr().out
    assert "untouched" in printed
    assert "sparse" in printed
    tuned = load_graph(saved)
    assert [each.encoding for each in tuned.weights.values()] == ["sparse"]
    command.run(str(file), "m1", 8, 0.0, None, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["best"]["us"] < told["untouched"]["us"]
    assert af.estimate(tuned, target="m1") == pytest.approx(told["best"]["us"])
    with pytest.raises(af.AneforgeError, match="nowhere does not exist"):
        command.run(str(file), "m1", 1, None, str(tmp_path / "nowhere" / "x"), as_json=False)

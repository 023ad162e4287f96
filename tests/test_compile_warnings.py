"""What compile warns of, and what it does not: each warning names the node, the limit and what to do."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.cli.options import load_model

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def caught(call, *categories):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [each for each in found if issubclass(each.category, categories or (Warning,))]


def precision(out, target="m1", **options):
    found = caught(lambda: af.compile(out, target=target, **options), af.PrecisionWarning)
    return [str(each.message) for each in found]


def test_a_wide_sum_of_unknown_numbers():
    x = af.input((1, 4096), name="x")
    (told,) = precision(x.sum(1).named("total"))
    assert told.startswith("total: a sum of 4096 numbers can exceed 65504 (on M1, rule overflow, any finite input)")
    assert "input(max_abs=...)" in told
    assert "af.reduce_sum_to_matmul" in told


SUMS = [
    (lambda x: x.sum(1), 1.0, 4096, False),
    (lambda x: x.sum(1), 16.0, 4096, True),
    (lambda x: x.sum(1), None, 1024, True),
    (lambda x: x.sum(1), None, 1023, False),
    (lambda x: x.sum(1), 65504.0, 2, True),
    (lambda x: x.l1_norm(1), None, 2048, True),
    (lambda x: x.sum_square(1), 5.0, 4096, True),
    (lambda x: x.sum_square(1), 3.0, 4096, False),
    (lambda x: x.softmax(1).sum(1), None, 4096, False),
    (lambda x: x.mean(1), None, 4096, False),
    (lambda x: x.amax(1), None, 4096, False),
]


@pytest.mark.parametrize(("make", "promise", "count", "due"), SUMS)
def test_sums(make, promise, count, due):
    x = af.input((1, count), name="x", max_abs=promise)
    assert bool(precision(make(x))) == due


PRODUCTS = [
    (1.0, 0.5, False),  # 64 * 0.5 = 32
    (1000.0, 0.5, False),  # 32000
    (1030.0, 0.5, True),  # 32960
    (60000.0, 0.001, False),
    (60000.0, 0.01, True),
]


@pytest.mark.parametrize("form", ["matmul", "linear", "conv"])
@pytest.mark.parametrize(("promise", "weight", "due"), PRODUCTS)
def test_products_of_promised_data(form, promise, weight, due):
    x = af.input((4, 64), name="x", max_abs=promise)
    signs = np.where(np.arange(64) % 2, -weight, weight)
    out = {
        "matmul": lambda: x @ np.tile(signs[:, None], (1, 8)),
        "linear": lambda: x.linear(np.tile(signs, (8, 1))),
        "conv": lambda: af.conv(x.reshape(4, 64, 1, 1), np.tile(signs, (8, 1)).reshape(8, 64, 1, 1)),
    }[form]().named("scores")
    told = precision(out)
    assert bool(told) == due
    if due:
        assert told[0].startswith("scores: a sum whose magnitude reaches 32768 ")
        assert "rule accumulator, promised" in told[0]
        assert "Scale an operand down" in told[0]


def test_products_of_two_promised_tensors_and_of_unknown_ones():
    q, k = (af.input((1, 64, 64), name=name, max_abs=30.0) for name in "qk")
    assert precision(q @ k.transpose([0, 2, 1]))
    assert not precision((q * 0.1).clip(-3, 3) @ k.transpose([0, 2, 1]))
    free = af.input((1, 64, 64), name="free")
    assert not precision(free @ k)  # nothing is known of it, which is no reason to warn


def test_what_a_rule_knows_to_be_wrong_on_silicon():
    x = af.input((1, 8, 4, 4), name="x")
    out = (x.round().named("r") * 2.0).named("scaled")
    (told,) = precision(out, "m5")
    assert told.startswith("scaled: ")
    assert "dropped on h17" in told
    assert "(on M5, rule chain-pattern, any data)" in told
    assert "Put an identity op" in told
    assert [entry.name for entry in af.preflight(out, "m5").risk] == ["scaled"]


def test_what_only_another_runtime_does_wrong_is_for_check_to_say():
    """The program of this compiler is right; its findings have it all the same."""
    layer = af.input((1, 16)).linear(np.ones((8, 16)))
    out = layer * layer.sigmoid_hard(1 / 6, 0.5)
    assert not precision(out, "m5")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", af.DispatchFloorWarning)
        ((node, finding),) = af.compile(out, target="m5").program.risks
    assert (node, finding.runtimes, finding.verdict) == ("mul_0", ("coreai",), "wrong_result")
    (entry,) = af.preflight(out, "m5").risk
    assert (entry.verdict, entry.verdict_words) == ("wrong_result", "runs, but the answer can be wrong")
    assert entry.to_json()["runtimes"] == ["coreai"]
    assert "verdict: runs, but the answer can be wrong" in str(af.check(out, "m5"))


def test_it_can_be_left_out():
    assert not precision(af.input((1, 4096)).sum(1), _check_precision=False)


def test_what_is_warned_of_is_a_risk():
    """precision_risk, which looks at every op, finds all that compile warns of."""
    x = af.input((1, 4096), name="x", max_abs=100.0)
    for out in (x.sum(1).named("hot"), (x @ np.ones((4096, 2))).named("hot"), (x.abs() * 1.0).l1_norm(1).named("hot")):
        assert precision(out)
        assert "hot" in {risk["node"] for risk in af.precision_risk(out, target="m1", ranges=100.0)["risks"]}


@pytest.mark.parametrize("chip", ["m1", "m2", "m5"])
@pytest.mark.parametrize("name", ["lstm.py", "resnet.py", "unet_block.py", "vit.py"])
def test_healthy_networks_compile_without_a_word(name, chip):
    graph = load_model(str(EXAMPLES / name))
    if not af.preflight(graph, chip).ok:
        pytest.skip("refused there")
    assert not caught(lambda: af.compile(graph, target=chip), af.PrecisionWarning, af.DispatchFloorWarning)


# Dispatch.


def test_a_call_that_is_all_dispatch():
    out = af.input((1, 8), name="x").relu().named("y")
    (told,) = caught(lambda: af.compile(out, target="m1"), af.DispatchFloorWarning)
    assert str(told.message).startswith("y: over 99% of a call of ")
    assert "on M1" in str(told.message)
    assert "give it more work, or batch it" in str(told.message)


def test_compile_and_estimate_agree_on_it():
    """Over sizes from all dispatch to all work, the cheap check and the whole estimate answer alike."""
    answers = []
    for size in (4, 32, 64, 96, 128, 192, 256):
        x = af.input((1, size, 32, 32), name="x")
        out = af.conv(x, np.zeros((size, size, 3, 3)), pad=1).relu()
        by_compile = bool(caught(lambda out=out: af.compile(out, target="m1"), af.DispatchFloorWarning))
        by_estimate = bool(caught(lambda out=out: af.estimate(out, target="m1"), af.DispatchFloorWarning))
        assert by_compile == by_estimate, size
        answers.append(by_compile)
    assert answers == sorted(answers, reverse=True)
    assert answers[0]
    assert not answers[-1]


def test_warnings_point_at_the_callers_line():
    out = af.input((1, 4096), name="x").sum(1)
    for call in (lambda: af.compile(out, target="m1"), lambda: af.compile_multi([out], target="m1")):
        found = caught(call, af.PrecisionWarning, af.DispatchFloorWarning)
        assert {each.category for each in found} == {af.PrecisionWarning, af.DispatchFloorWarning}
        assert {Path(each.filename).name for each in found} == {"test_compile_warnings.py"}
    (found,) = caught(lambda: af.estimate(out, target="m1"), af.DispatchFloorWarning)
    assert Path(found.filename).name == "test_compile_warnings.py"


def test_tuning_warns_once_and_not_of_its_candidates():
    x = af.input((1, 2048), name="x")
    out = x.linear(np.ones((8, 2048)))
    tuned = (
        lambda: af.tune(out, budget=4, target="m1"),
        lambda: af.tune_precision(out, target_error=0.1, target="m1"),
    )
    for call in tuned:
        (found,) = caught(call, af.DispatchFloorWarning)  # of the model that is returned
        assert Path(found.filename).name == "test_compile_warnings.py"


def test_the_command_line_prints_them_as_lines(tmp_path, capsys):
    from aneforge.cli import compile as command

    net = tmp_path / "net.py"
    net.write_text("import aneforge as af\nout = af.input((1, 4096), name='x').sum(1).named('total')\n")
    assert command.run(str(net), "m1", None, None, None, False, False) == 0
    told = capsys.readouterr().err
    assert told.startswith("warning: total: a sum of 4096 numbers can exceed 65504 ")
    assert told.count("\n") == 1

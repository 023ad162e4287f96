"""One answer for one route: preflight, cross_compile_check, compile and the command line agree, and say the route."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import aneforge as af
from aneforge import _targets as tg
from aneforge._compile import cross_compile_check
from aneforge.chips import all_targets

pytestmark = pytest.mark.filterwarnings("ignore::aneforge.chips.host.TargetDetectionWarning")
BELOW = [each.name for each in all_targets(only_28=True) if each.family5 is tg.Family.OLDER]
CHIPS = (*BELOW, "h13", "h14g", "h15", "h17s")


def graphs():
    x = af.input((1, 8, 4, 4), name="x")
    line = af.input((4, 16), name="line")
    return {
        "conv": af.conv(x, np.ones((8, 8, 3, 3)) * 0.01, pad=1).relu(),
        "softmax": x.softmax(1),
        "sin": x.sin(),
        "wide": af.input((1, 4, 1, 70000), name="wide").relu(),
        "divide": x / (x * x + 1.0),
        "rms": line.rms_norm(np.ones(16)),
    }


@pytest.mark.parametrize("route", ["conversion", "direct"])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", graphs())
def test_the_same_route_has_the_same_answer(name, chip, route):
    out = graphs()[name]
    report = tg.preflight(out, chip, route)
    assert report.route == route
    assert f"{chip} by the {route} route: {'runs' if report.ok else 'does not run'}" in str(report)
    assert report.to_json()["route"] == route
    assert cross_compile_check(out, chip, route=route) is report.ok
    if report.ok:
        model = af.compile(out, target=chip, route=route)
        assert model.route == model.program.route == route
        assert model.program.to_json()["route"] == route
        assert ("built by the direct route" in str(model)) == (route == "direct")
    else:
        with pytest.raises(af.CompileError) as caught:
            af.compile(out, target=chip, route=route)
        assert caught.value.rule in {entry.rule for entry in (*report.reject, *report.oversize)}
        assert (f"target {chip} by the {route} route" in str(caught.value)) == (route == "direct" or chip in BELOW)


@pytest.mark.parametrize("chip", BELOW)
def test_nothing_is_converted_below_the_floor(chip):
    """Seed page: the MIL path is never available below A13."""
    for out in graphs().values():
        assert cross_compile_check(out, chip) is False
        report = tg.preflight(out, chip)
        assert not report.ok
        assert {entry.rule for entry in report.reject} == {"mil-floor"}
        assert len(report.reject) == len(report.graph.operations)
    model = af.compile(graphs()["conv"], target=chip)  # what compile builds there is authored, and it says so
    assert model.route == "direct"
    assert "direct route" in str(model)


def test_the_oldest_family_has_a_report():
    q = af.input((1, 4, 16, 8), name="q")
    out = af.sdpa(q, q, q).relu().softmax()
    report = tg.preflight(out, tg.Family.OLDER)
    assert (report.family, report.target.name) == (tg.Family.OLDER, "h12")
    assert [(entry.op, entry.status, entry.rule) for entry in report.reject] == [
        (op, "reject", "mil-floor") for op in ("sdpa", "relu", "softmax")
    ]
    assert not report.ok
    assert "MIL is only supported for H13+" in report.reject[0].message
    assert tg.preflight(q.relu(), tg.Family.OLDER, route="direct").ok
    assert tg.preflight(q.relu(), family=1).to_json() == tg.preflight(q.relu(), family="h12").to_json()


def test_the_other_route_is_told_below_the_floor():
    x = af.input((1, 8, 4, 4), name="x")
    report = tg.preflight(x.relu().softmax(1), "h12")
    assert [entry.other_route for entry in report.reject] == ["direct: accept", "direct: reject"]
    assert tg.preflight(x.relu().softmax(1), "h12", route="direct").reject[0].op == "softmax"


def test_by_default_the_route_is_the_one_that_reaches_the_chip():
    out = graphs()["conv"]
    assert af.compile(out, target="h13").route == "conversion"
    assert tg.preflight(out, "h12", route=None).route == "direct"
    assert tg.preflight(out, "h13", route=None).route == "conversion"
    compiled = af.compile_all(out, "h12,h13")
    assert {name: program.route for name, program in compiled.items()} == {"h12": "direct", "h13": "conversion"}
    converted = af.compile_all(out, "h12,h13", route="conversion")
    assert list(converted) == ["h13"]
    assert converted.refused["h12"].rule == "mil-floor"


def test_the_command_line_says_the_route(tmp_path):
    (tmp_path / "net.py").write_text("import aneforge as af\nout = af.input((1, 8, 4, 4), name='x').relu()\n")

    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "aneforge", *words], capture_output=True, text=True, check=False, cwd=tmp_path
        )

    checked = run("check", "net.py", "--target", "h12", "--route", "conversion")
    assert checked.returncode == 1
    assert "by the conversion route" in checked.stdout
    assert "MIL is only supported for H13+" in checked.stdout
    for asked in ((), ("--route", "direct")):  # what compile takes by itself
        direct = run("check", "net.py", "--target", "h12", *asked)
        assert direct.returncode == 0
        assert "by the direct route" in direct.stdout
    assert json.loads(run("check", "net.py", "--target", "h12", "--json").stdout)["route"] == "direct"
    built = run("compile", "net.py", "--target", "h12")
    assert built.returncode == 0
    assert "built by the direct route" in built.stdout
    refused = run("compile", "net.py", "--target", "h12", "--route", "conversion")
    assert refused.returncode == 1
    assert "h12 by the conversion route" in refused.stderr
    several = run("compile", "net.py", "--target", "h12,h13")
    assert "built by the direct route (authored layers, no conversion): A13 Bionic" in several.stdout
    assert run("run", "net.py", "--target", "h12").returncode == 0

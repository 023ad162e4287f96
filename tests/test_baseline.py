"""The gate for CI: a model against its committed baseline. Every change is found, told and, where it is bad, fails."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import aneforge as af
from aneforge.cli.ci import CiOptions, run
from aneforge.cli.options import ModelFile
from aneforge.errors import AneforgeError, UnknownNameError
from aneforge.files import write_whole
from aneforge.graph.graph import Graph
from aneforge.reports.baseline import (
    CHECKS,
    RULES,
    BaselineError,
    BaselineReport,
    ChangeOutcome,
    Limits,
    ObservationPlan,
    chip_list,
    compare,
    load_baseline,
    observe,
    save_baseline,
)
from aneforge.reports.baseline.file import Apart, OutputRecord, baseline_text
from aneforge.reports.baseline.outcome import junit_text, sarif_text
from aneforge.sim.inputs import drawn_sample

ROOT = Path(__file__).resolve().parents[1]
NET = """\
import numpy as np
import aneforge as af
x = af.input((1, 4, {size}, {width}), name="x")
weight = np.random.default_rng(7).normal(0, 0.2, (8, 4, {kernel}, {kernel})) * {gain}
stem = af.conv(x, weight, stride={stride}).named("stem")
out = stem.{op}().named("result")
"""
PLAIN = {"size": 18, "kernel": 3, "stride": 1, "gain": 1.0, "op": "tanh"}
# An axis has at most 16,384 elements on an M1 and 65,536 on an M5.
WIDE = {**PLAIN, "size": 3, "width": 20000}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write()
    return tmp_path


def net(**changes):
    settings = {**PLAIN, **changes}
    return NET.format(**{"width": settings["size"], **settings})


def write(**changes):
    Path("net.py").write_text(net(**changes))


def gate(capsys=None, model="net.py", dims=(), write=False, update=False, **options):
    action = "record" if write else "update" if update else "check"
    status = run(ModelFile(model, dims), CiOptions(action, **options))
    return (status, capsys.readouterr().out) if capsys else status


def outcomes(capsys, **options):
    """Exit status, and outcomes by rule."""
    status, printed = gate(capsys, as_json=True, **options)
    report = json.loads(printed)
    assert report["ok"] == (not report["counts"]["error"])
    found = {}
    for each in report["outcomes"]:
        found.setdefault(each["rule"], []).append(each)
    return status, found


def edit(change, file="net.py.baseline.json"):
    document = json.loads(Path(file).read_text())
    change(document)
    Path(file).write_text(json.dumps(document))


# Writing and reading.


def test_what_was_written_is_what_is_found_again(home, capsys):
    assert gate(write=True) == 0
    first = Path("net.py.baseline.json").read_bytes()
    capsys.readouterr()
    status, printed = gate(capsys)
    assert status == 0
    assert "no change" in printed
    for chip in ("M1", "M2", "M3", "M4", "M5", "M6"):
        assert re.search(rf"^{re.escape(chip)} +same +same +same +same$", printed, re.MULTILINE)
    assert gate(update=True) == 0
    assert Path("net.py.baseline.json").read_bytes() == first


def test_the_file_says_what_it_is_and_names_no_place(home):
    gate(write=True, target="m1,m5")
    content = Path("net.py.baseline.json").read_text()
    document = json.loads(content)
    assert document["format"] == 2
    assert document["aneforge"] == af.__version__
    assert document["model"]["name"] == "net.py"
    assert document["seed"] == 0
    assert list(document["targets"]) == ["h13", "h17"]
    assert str(home) not in content
    again = load_baseline("net.py.baseline.json")
    assert baseline_text(again) == content


def test_moving_code_changes_nothing(home):
    gate(write=True, target="m1")
    Path("net.py").write_text("\n\n\n" + net())
    before = Path("net.py.baseline.json").read_bytes()
    gate(update=True)
    assert Path("net.py.baseline.json").read_bytes() == before


def test_without_a_baseline_the_command_says_how_to_make_one(home):
    with pytest.raises(
        AneforgeError, match=r"base\.json: there is not a baseline yet\. Create one with: aneforge ci record net\.py "
    ):
        gate(baseline="base.json")


def test_a_baseline_is_never_replaced_unasked(home):
    gate(write=True, target="m1")
    before = Path("net.py.baseline.json").read_bytes()
    write(gain=2.0)
    with pytest.raises(AneforgeError, match=r"the baseline exists\. Use aneforge ci update"):
        gate(write=True, target="m1")
    assert gate() == 1
    with pytest.raises(AneforgeError, match="the file exists and was not changed"):
        save_baseline(load_baseline("net.py.baseline.json"), "net.py.baseline.json")
    assert Path("net.py.baseline.json").read_bytes() == before
    assert gate(update=True) == 0
    assert Path("net.py.baseline.json").read_bytes() != before


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_half(home, monkeypatch, broken):
    Path("kept.json").write_text("old")

    def full(handle):
        raise OSError(28, "No space left on device")

    def refuse(path, target):
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(*((os, "fsync", full) if broken == "fsync" else (Path, "replace", refuse)))
    with pytest.raises(AneforgeError, match=r"kept\.json: cannot be written \((No space|Permission)"):
        write_whole("kept.json", "new and longer")
    monkeypatch.undo()
    assert {each.name: each.read_text() for each in home.glob("*.json")} == {"kept.json": "old"}
    assert not list(home.glob(".kept*"))


def test_a_link_is_followed_and_a_folder_refused(home):
    Path("real.json").write_text("old")
    Path("link.json").symlink_to("real.json")
    write_whole("link.json", "new")
    assert Path("link.json").is_symlink()
    assert Path("real.json").read_text() == "new"
    for bad in (".", "nowhere/file.json", "real.json/file"):
        with pytest.raises(AneforgeError, match=re.escape(bad)):
            write_whole(bad, "new")


def test_writing_twice_gives_the_same_bytes_in_other_processes(home):
    code = "from aneforge.cli.ci import *; run('net.py', CiOptions(baseline='{}', target='m1,m5', action='record'))"
    for file, settings in (("a.json", {"PYTHONHASHSEED": "1"}), ("b.json", {"ANEFORGE_NATIVE": "0"})):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
        subprocess.run([sys.executable, "-c", code.format(file)], check=True, env=environment, capture_output=True)
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()


# Broken and foreign files.


def damaged(change):
    def apply(document):
        change(document["targets"]["h13"])

    return apply


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda d: d.update(format=3, aneforge="9.9"),
            r"format 3.*reads format 2.*by aneforge 9\.9.*aneforge ci update",
        ),
        (lambda d: d.pop("kind"), "not a baseline of aneforge"),
        (lambda d: d.pop("targets"), "the file has no 'targets'"),
        (lambda d: d.update(seed="0"), "'seed' is '0', not a whole number"),
        (lambda d: d.update(seed=True), "'seed' is True, not a whole number"),
        (lambda d: d.update(checks=["verdict", "speed"]), "'checks' holds 'speed'"),
        (lambda d: d.update(against="h99"), "'h99' is named and not among the targets"),
        (lambda d: d["targets"].update(h99=d["targets"]["h13"]), "target 'h99' is none that aneforge"),
        (damaged(lambda t: t["estimate"].update(us="fast")), r"'targets\.h13\.estimate\.us' is 'fast', not a number"),
        (damaged(lambda t: t["estimate"].update(us=0)), r"targets\.h13\.estimate\.us' is 0\.0, not a time"),
        (damaged(lambda t: t["verdict"].pop("engine")), r"'targets\.h13\.verdict' has no 'engine'"),
        (damaged(lambda t: t["numerics"]["result"].update(sample="xyz")), "not a text of fp16 bits"),
        (damaged(lambda t: t.update(numerics=[])), r"'targets\.h13\.numerics' is a list, not an object"),
    ],
)
def test_a_damaged_baseline_is_one_clear_error(home, change, told):
    gate(write=True, target="m1")
    edit(change)
    with pytest.raises(BaselineError, match=told):
        gate()


@pytest.mark.parametrize("content", [b"", b"{", b"<<<<<<< HEAD\n{}", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_file_that_is_no_json_is_refused_and_kept(home, content):
    Path("net.py.baseline.json").write_bytes(content)
    for options in ({}, {"update": True}):
        with pytest.raises(BaselineError, match=r"not JSON .*restore the committed file"):
            gate(target="m1", **options)
    assert Path("net.py.baseline.json").read_bytes() == content


def test_an_update_replaces_another_format_and_nothing_that_is_not_ours(home):
    gate(write=True, target="m1")
    good = Path("net.py.baseline.json").read_bytes()
    edit(lambda d: d.update(format=0))
    assert gate(update=True, target="m1") == 0
    assert Path("net.py.baseline.json").read_bytes() == good
    Path("package.json").write_text('{"name": "mine"}')
    with pytest.raises(BaselineError, match="not a baseline of aneforge"):
        gate(update=True, baseline="package.json")
    assert Path("package.json").read_text() == '{"name": "mine"}'


def test_the_baseline_of_another_model_is_refused(home):
    gate(write=True, target="m1", baseline="base.json")
    Path("other.py").write_text(net())
    before = Path("base.json").read_bytes()
    for options in ({}, {"update": True}):
        with pytest.raises(AneforgeError, match=r"base\.json is the baseline of net\.py, and the model is other\.py"):
            gate(model="other.py", baseline="base.json", **options)
    with pytest.raises(AneforgeError, match=r"baseline of net\.py, and the model is net\.py --dim batch=2"):
        gate(dims=("batch=2",), baseline="base.json")
    assert Path("base.json").read_bytes() == before


def test_another_version_is_told_and_does_not_fail_even_strictly(home, capsys):
    gate(write=True, target="m1")
    edit(lambda d: d.update(aneforge="0.0.7"))
    capsys.readouterr()
    for strict in (False, True):
        status, found = outcomes(capsys, strict=strict)
        assert status == 0
        assert [(each["severity"], each["was"]) for each in found["version-differs"]] == [("warning", "0.0.7")]


# Every kind of change.


def test_a_changed_weight_is_found_in_the_numbers(home, capsys):
    gate(write=True, target="m1,m5")
    write(gain=1.01)
    capsys.readouterr()
    status, found = outcomes(capsys)
    assert status == 1
    assert set(found) <= {"model-changed", "bits-changed", "chips-apart", "chips-closer"}
    assert "its weights changed" in found["model-changed"][0]["message"]
    assert [(each["target"], each["node"]) for each in found["bits-changed"]] == [("h13", "result"), ("h17", "result")]
    assert re.search(r"\d+ of 64 sampled values moved, by up to \d+ steps", found["bits-changed"][0]["message"])
    # The numbers are skipped, and nothing else can see a weight: the model's hash still tells.
    status, found = outcomes(capsys, skip="numerics")
    assert (status, set(found)) == (0, {"model-changed"})
    assert outcomes(capsys, skip="numerics", strict=True)[0] == 1


def test_a_changed_op_is_found_in_the_verdict_of_the_chip_that_lacks_it(home, capsys):
    gate(write=True, target="m1,m5")
    write(op="sin")
    capsys.readouterr()
    status, found = outcomes(capsys)
    assert status == 1
    # Sine is rewritten on an M1 and native on an M5 (the seed tables).
    assert [(each["target"], each["node"]) for each in found["verdict-worse"]] == [("h13", "result")]
    assert found["verdict-worse"][0]["is"].startswith("decompose ")
    assert "its nodes changed" in found["model-changed"][0]["message"]
    assert {each["target"] for each in found["program-grew"]} >= {"h13"}
    # Back again is for the better: a note, unless strict.
    gate(update=True)
    write()
    capsys.readouterr()
    status, found = outcomes(capsys, skip="numerics,estimates")
    assert status == 0
    assert [(each["severity"], each["is"]) for each in found["verdict-better"]] == [("note", "native")]
    assert outcomes(capsys, skip="numerics,estimates", strict=True)[0] == 1


def test_a_changed_shape_is_found_at_both_ends(home, capsys):
    gate(write=True, target="m1")
    write(size=20)
    capsys.readouterr()
    status, found = outcomes(capsys)
    assert status == 1
    assert [(each["node"], each["was"], each["is"]) for each in found["input-changed"]] == [
        ("x", "1x4x18x18", "1x4x20x20")
    ]
    assert [(each["node"], each["was"], each["is"]) for each in found["output-changed"]] == [
        ("result", "1x8x16x16", "1x8x18x18")
    ]
    assert "bits-changed" not in found


def test_a_chip_that_no_longer_takes_the_model(home, capsys):
    gate(write=True, target="m1,m5")
    write(**WIDE)
    capsys.readouterr()
    status, found = outcomes(capsys)
    assert status == 1
    assert [(each["target"], each["node"]) for each in found["program-lost"]] == [("h13", "stem")]
    assert "an axis of 20000 exceeds the 16384 that M1 takes" in found["program-lost"][0]["message"]
    assert found["verdict-worse"][0]["is"].startswith("oversize extent")
    assert "tile the axis" in found["verdict-worse"][0]["hint"]
    status, printed = gate(capsys)
    assert re.search(r"^M1 +changed +- +- +-$", printed, re.MULTILINE)
    assert "not compared, there is no program: program, numerics, estimate on M1" in printed
    assert "(net.py:5)" in printed


def test_a_model_with_no_program_keeps_its_verdicts_and_getting_one_is_a_note(home, capsys):
    write(**WIDE)
    status, printed = gate(capsys, write=True, target="m1,m5")
    assert "M1: nothing runs on its engine, so verdicts only; extent: stem: oversize extent" in printed
    assert gate(capsys)[0] == 0
    edited = json.loads(Path("net.py.baseline.json").read_text())
    assert edited["targets"]["h13"]["numerics"] is None
    assert edited["targets"]["h17"]["numerics"]["result"]["elements"] == 8 * 1 * 19998
    write(size=32, stride=16)
    status, found = outcomes(capsys, target="m1", skip="numerics,estimates")
    assert status == 0
    assert [(each["target"], each["severity"]) for each in found["program-gained"]] == [("h13", "note")]
    assert outcomes(capsys, target="m1", skip="numerics,estimates", strict=True)[0] == 1


def test_a_node_that_goes_and_one_that_comes(home, capsys):
    write(op="sin")
    gate(write=True, target="m1")
    Path("net.py").write_text(net(op="cos").replace('"result"', '"answer"'))
    capsys.readouterr()
    status, found = outcomes(capsys, skip="numerics,estimates")
    assert status == 1
    assert [(each["node"], each["is"]) for each in found["verdict-better"]] == [("result", None)]
    assert "no longer in the model" in found["verdict-better"][0]["message"]
    assert [(each["node"], each["was"]) for each in found["verdict-worse"]] == [("answer", "native or not there")]


def test_a_chip_below_the_floor_that_refuses_by_the_same_rule(home, capsys):
    write(**WIDE)
    gate(write=True, target="h11")
    assert (
        json.loads(Path("net.py.baseline.json").read_text())["targets"]["h11"]["verdict"]["refused"]["by"] == "extent"
    )
    write(**{**WIDE, "width": 21000})
    capsys.readouterr()
    status, found = outcomes(capsys)
    assert status == 0
    assert set(found) == {"model-changed"}  # still refused by the same rule


def test_a_refusal_is_recorded_without_the_line():
    from aneforge.compiler.refusal import Refusal
    from aneforge.reports.baseline.observe import _refusal

    class Split:
        def __init__(self, reason):
            self.reasons = {7: reason}
            self.refusals = {7: Refusal("stem", "extent", reason)}

    texts = [f"conv [1, 2] at net.py:{line}: too wide" for line in (5, 50)]
    assert {_refusal(Split(text), {}).why for text in texts} == {"conv [1, 2]: too wide"}


def test_estimates_within_and_beyond_the_tolerance(home, capsys):
    gate(write=True, target="m1,m5")
    us = load_baseline("net.py.baseline.json").targets["h13"].estimate.us

    def recorded(share):
        edit(lambda d: d["targets"]["h13"]["estimate"].update(us=us * share))
        capsys.readouterr()

    recorded(1 / 1.04)  # it rose by 4 %
    assert outcomes(capsys) == (0, {})
    status, found = outcomes(capsys, tolerance=3.0)
    assert (status, list(found), found["slower"][0]["target"]) == (1, ["slower"], "h13")
    assert "(+4.0 %, 3 % may pass)" in found["slower"][0]["message"]
    recorded(1 / 1.06)
    assert outcomes(capsys)[0] == 1
    recorded(1.25)  # it fell by 20 %
    status, found = outcomes(capsys)
    assert (status, list(found)) == (0, ["faster"])
    assert "(-20.0 %" in found["faster"][0]["message"]
    assert found["faster"][0]["severity"] == "note"
    assert outcomes(capsys, strict=True)[0] == 1
    assert outcomes(capsys, skip="estimates") == (0, {})


def test_budgets_hold_whatever_the_baseline_says(home, capsys):
    gate(write=True, target="m1,m5")
    us = load_baseline("net.py.baseline.json").targets["h13"].estimate.us
    capsys.readouterr()
    assert outcomes(capsys, max_us=[f"m1={us + 1}", f"M5={us * 100}"])[0] == 0
    status, found = outcomes(capsys, max_us=[f"m1={us - 1}"])
    assert (status, list(found)) == (1, ["over-budget"])
    assert gate(update=True, max_us=[f"m1={us - 1}"]) == 1
    write(**WIDE)
    capsys.readouterr()
    status, found = outcomes(capsys, max_us=["m1=1e9"], update=True)
    assert (status, found["over-budget"][0]["is"]) == (1, None)


def test_programs_that_grow_shrink_split_and_join(home, capsys):
    gate(write=True, target="m1,m4,m5")
    recorded = load_baseline("net.py.baseline.json")
    layers = recorded.targets["h13"].program.layers
    assert recorded.programs == (("h13",), ("h16g", "h17"))

    def change(document):
        document["targets"]["h13"]["program"]["layers"] -= 1
        document["targets"]["h17"]["program"]["weight_bytes"] += 64
        document["programs"] = [["h13", "h16g"], ["h17"]]

    edit(change)
    capsys.readouterr()
    status, found = outcomes(capsys)
    assert status == 1
    assert [(each["target"], each["was"], each["is"]) for each in found["program-grew"]] == [
        ("h13", layers - 1, layers)
    ]
    assert [(each["target"], each["severity"]) for each in found["program-shrank"]] == [("h17", "note")]
    assert "M1 and M4 no longer share one" in found["programs-split"][0]["message"]
    edit(lambda d: d.update(programs=[["h13"], ["h16g"], ["h17"]]))
    status, found = outcomes(capsys)
    assert "programs-split" not in found
    assert "2 distinct programs for 3 targets, there were 3" in found["programs-joined"][0]["message"]


def test_the_list_of_targets_is_compared_too(home, capsys):
    gate(write=True, target="m1..m3")
    capsys.readouterr()
    status, found = outcomes(capsys, target="m2,M2,h14g")
    assert (status, list(found)) == (0, ["target-not-checked"])
    assert found["target-not-checked"][0]["was"] == ["h13", "h15"]
    status, found = outcomes(capsys, target="m1,m5")
    assert status == 1
    assert [each["target"] for each in found["target-not-recorded"]] == ["h17"]
    status, printed = gate(capsys, target="m1,m5")
    assert "--target h13,h14g,h15,h17 --baseline" in printed
    status, printed = gate(capsys, target="m1", update=True)
    assert status == 0
    assert "no longer in it: h14g, h15" in printed


def test_two_chips_that_part_and_close(home, capsys):
    write(op="sigmoid")
    gate(write=True, target="m1,m5")
    held = load_baseline("net.py.baseline.json")
    assert held.against == "h13"
    assert held.targets["h13"].numerics["result"].apart is None
    # Counted again from the bits: sigmoid is positive, so that steps are differences of the bits.
    graph = Graph.of(af_model())
    feeds = drawn_sample(graph, 0)
    one, two = (af.compile(graph, target=chip).run(feeds).outputs["result"] for chip in ("m1", "m5"))
    apart = np.abs(one.view(np.uint16).astype(int) - two.view(np.uint16).astype(int))
    assert held.targets["h17"].numerics["result"].apart == Apart(int(apart.max()), int((apart > 0).sum()))

    def recorded(ulp, elements):
        found = {"ulp": ulp, "elements": elements}
        edit(lambda d: d["targets"]["h17"]["numerics"]["result"].update(apart=found))
        capsys.readouterr()

    recorded(60000, 5)
    assert outcomes(capsys)[0] == 0
    assert list(outcomes(capsys)[1]) == ["chips-closer"]
    recorded(-1, 0)
    status, found = outcomes(capsys)
    assert (status, list(found)) == (1, ["chips-apart"])
    assert "M5" in found["chips-apart"][0]["message"]
    # Without the chip they are compared with there is nothing to say.
    assert list(outcomes(capsys, target="m5")[1]) == ["target-not-checked"]


def af_model():
    scope = {}
    exec(net(op="sigmoid"), scope)  # noqa: S102 - the very text of the file
    return scope["out"]


def test_a_baseline_without_numerics_says_so(home, capsys):
    gate(write=True, target="m1", skip="numerics,estimates")
    write(gain=3.0)
    status, printed = gate(capsys)
    assert status == 0
    assert "the baseline has no numerics, estimate: nothing to compare with" in printed
    assert "not compared, not in the baseline: numerics, estimate" in printed
    assert outcomes(capsys, max_us=["m1=0.001"])[0] == 1


# The comparison by itself.


def record(values, apart=None):
    held = np.asarray(values, np.float16)
    finite = held[np.isfinite(held)]
    return OutputRecord(
        "x".join(map(str, held.shape)),
        held.tobytes().hex(),
        held.size,
        finite.size,
        float(np.abs(finite).max()),
        float(finite.mean()),
        held.astype("<f2").tobytes().hex(),
        apart,
    )


def seen_with(output):
    x = af.input((1, 4), name="x")
    seen = observe(x.relu().named("y"), ["m1"], ObservationPlan(checks=("verdict", "numerics")))
    target = seen.baseline.targets["h13"]
    target = replace(target, numerics=None if output is None else {"y": output})
    return replace(seen, baseline=replace(seen.baseline, targets={"h13": target}))


def test_how_far_an_output_moved_is_counted_in_steps():
    # 1 + 2^-10 is the number after 1; after 2 it is 2 + 2^-9, so two steps are 2 + 2^-8.
    before, after = record([1.0, 2.0, 4.0, 8.0]), record([1 + 2**-10, 2 + 2**-8, 4.0, np.inf])
    was, now = (seen_with(replace(each, sample=each.sample[:12])) for each in (before, after))
    report = compare(was.baseline, now)
    (found,) = (each for each in report.outcomes if each.rule == "bits-changed")
    assert "2 of 3 sampled values moved, by up to 2 steps of fp16" in found.message
    assert "largest magnitude 8, now 4" in found.message
    assert "0 not finite, now 1" in found.message
    assert found.where[0] == __file__
    same = compare(seen_with(before).baseline, seen_with(before))
    assert [each.rule for each in same.outcomes] == ["check-not-recorded"]


def test_distances_from_different_chips_are_not_compared():
    before, after = (record([1.0], Apart(steps, steps)) for steps in (0, 9))
    was, seen = seen_with(before), seen_with(after)
    assert "chips-apart" in {each.rule for each in compare(was.baseline, seen).outcomes}
    other = replace(seen, baseline=replace(seen.baseline, against=None))
    assert "chips-apart" not in {each.rule for each in compare(was.baseline, other).outcomes}


def test_a_program_that_cannot_be_simulated_any_more():
    whole, without = seen_with(record([1.0])), seen_with(None)
    assert compare(whole.baseline, without).outcomes[0].rule == "numerics-lost"
    assert not compare(whole.baseline, without).ok
    assert compare(without.baseline, whole).of("note")[-1].rule == "numerics-gained"
    assert compare(without.baseline, whole).ok


def test_a_failing_simulation_takes_nothing_from_the_other_chips(monkeypatch):
    from aneforge.study.model import Model

    real = Model.run

    def broken(self, feeds, trace=False):
        if self.target.name == "h13":
            raise AneforgeError("no rule for this op")
        return real(self, feeds, trace)

    monkeypatch.setattr(Model, "run", broken)
    seen = observe(af.input((1, 4), name="x").relu(), ["m1", "m5"])
    assert "no rule for this op" in seen.not_run["h13"]
    assert seen.baseline.targets["h13"].numerics is None
    assert seen.baseline.targets["h17"].numerics is not None
    assert seen.baseline.against == "h17"


def test_the_gravest_comes_first_and_strict_spares_what_is_no_change():
    order = ("error", "warning", "note")
    x = af.input((1, 4), name="x")
    was = replace(observe(x.relu(), ["m1", "m2"]).baseline, aneforge="0", checks=("verdict",))
    seen = observe(x.tanh(), ["m1", "m5"])
    found = compare(was, seen).outcomes
    assert [order.index(each.severity) for each in found] == sorted(order.index(each.severity) for each in found)
    strict = compare(was, seen, Limits(strict=True)).outcomes
    lenient = {each.rule for each in strict if each.severity != "error"}
    assert lenient == {"version-differs", "target-not-checked", "check-not-recorded"}


def test_unknown_names_are_refused():
    x = af.input((1, 4), name="x").relu()
    with pytest.raises(AneforgeError, match="speed: not a check"):
        observe(x, ["m1"], ObservationPlan(checks=("speed",)))
    with pytest.raises(AneforgeError, match="at least one chip"):
        observe(x, [])
    with pytest.raises(UnknownNameError, match="m7"):
        observe(x, ["m7"])


# Inputs.


def test_drawn_inputs_are_made_from_whole_numbers_only():
    graph = Graph.of([af.input((2, 3), name="x") + af.input((2, 3), name="y", max_abs=0.5)])
    drawn = drawn_sample(graph, 5)
    raw = hashlib.shake_128(b"5 x").digest(8 * 6)
    parts = [int.from_bytes(raw[place : place + 2], "little") for place in range(0, 48, 2)]
    wanted = [(sum(parts[place : place + 4]) - 131070) / 37837.0 for place in range(0, 24, 4)]
    assert drawn["x"].dtype == np.float16
    assert drawn["x"].ravel().tolist() == np.array(wanted).astype(np.float16).tolist()
    assert np.abs(drawn["y"]).max() <= 0.5


def test_drawn_inputs_look_normal_and_do_not_depend_on_each_other():
    x, y = af.input((100, 200), name="x"), af.input((100, 200), name="y")
    alone, both = drawn_sample(Graph.of(x.relu()), 0), drawn_sample(Graph.of([x + y]), 0)
    assert np.array_equal(alone["x"], both["x"])
    assert not np.array_equal(both["x"], both["y"])
    wide = both["x"].astype(float)
    # Twenty thousand of them: the mean is within five standard errors, the spread about one.
    assert abs(wide.mean()) < 5 / np.sqrt(wide.size)
    assert abs(wide.std() - 1) < 0.03
    assert not np.array_equal(drawn_sample(Graph.of(x.relu()), 1)["x"], alone["x"])
    image = af.image_input((1, 3, 8, 8))
    pixels = next(iter(drawn_sample(Graph.of(image.relu()), 0).values()))
    assert pixels.min() >= 0
    assert 100 < pixels.max() <= 255


def test_inputs_of_a_file(home, capsys):
    np.savez("x.npz", x=np.ones((1, 4, 18, 18), np.float32))
    np.savez("y.npz", x=np.zeros((1, 4, 18, 18), np.float32))
    np.savez("z.npz", z=np.zeros((1, 4, 18, 18), np.float32))
    np.savez("small.npz", x=np.zeros((1, 4, 2, 2), np.float32))
    Path("no.npz").write_bytes(b"PK\x03\x04")
    assert gate(write=True, target="m1", inputs="x.npz") == 0
    assert load_baseline("net.py.baseline.json").seed is None
    assert gate(inputs="x.npz") == 0
    with pytest.raises(AneforgeError, match="inputs of a file: give it with --input"):
        gate()
    with pytest.raises(AneforgeError, match="inputs of a file"):
        gate(update=True)
    assert gate(skip="numerics") == 0
    capsys.readouterr()
    status, found = outcomes(capsys, inputs="y.npz")
    assert status == 1
    assert "with other numbers" in found["input-changed"][0]["message"]
    for file, told in (
        ("z", "z: not an input of the model"),
        ("small", "takes numbers of shape"),
        ("no", "not a file of named arrays"),
    ):
        with pytest.raises(AneforgeError, match=told):
            gate(inputs=f"{file}.npz")
    assert gate(update=True, seed=3) == 0
    assert load_baseline("net.py.baseline.json").seed == 3
    assert gate() == 0
    for options in ({"inputs": "x.npz"}, {"seed": 4}):
        with pytest.raises(AneforgeError, match="made with inputs of seed 3"):
            gate(**options)


# The command.


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tolerance": -1.0}, "--tolerance takes per cent"),
        ({"tolerance": float("nan")}, "--tolerance takes per cent"),
        ({"skip": "verdicts"}, "--skip takes numerics and estimates"),
        ({"max_us": ["m1"]}, "--max-us takes TARGET=NUMBER"),
        ({"max_us": ["m1=-3"]}, "--max-us takes TARGET=NUMBER"),
        ({"max_us": ["m5=3"]}, "m5 is not among the targets"),
        ({"max_us": ["m1=3"], "skip": "estimates"}, "--max-us: it limits estimates"),
        ({"seed": -1}, "--seed takes a whole number"),
        ({"seed": 1, "inputs": "x.npz"}, "choose one"),
        ({"seed": 1, "skip": "numerics"}, "are for the numerics"),
        ({"junit": "./net.py.baseline.json"}, "name one file"),
        ({"junit": "a", "sarif": "a"}, "name one file"),
        ({"target": "m1..m7"}, "includes 'm7'"),
    ],
)
def test_bad_options_are_one_clear_error(home, options, told):
    gate(write=True, target="m1")
    with pytest.raises(AneforgeError, match=told):
        gate(**options)


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("m1..m6", ["m1", "m2", "m3", "m4", "m5", "m6"]),
        ("M1..m3, h17", ["M1", "M2", "M3", "h17"]),
        ("m2..m2", ["m2"]),
        ("m1 pro..m3 pro", ["m1 pro", "m2 pro", "m3 pro"]),
        ("h13g .. h15g", ["h13g", "h14g", "h15g"]),
        ("m1,,m5,", ["m1", "m5"]),
    ],
)
def test_ranges_of_chips(asked, names):
    assert chip_list(asked) == names


@pytest.mark.parametrize(
    "asked", ["", " , ", "m6..m1", "m1..", "..m3", "m1..h3", "m1..m3pro", "m1..m6..m9", "m1..m999"]
)
def test_ranges_that_are_none(asked):
    with pytest.raises(AneforgeError, match="--target"):
        chip_list(asked)


def test_exit_status_through_a_process(home):
    """As ``main`` has it: 0 same, 1 changed, 2 bad input and one line on stderr."""

    def process(*words):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-m", "aneforge", "ci", *words],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        return done.returncode, done.stderr

    code, told = process("check", "net.py")
    assert code == 2
    assert told.startswith(
        "aneforge: net.py.baseline.json: there is not a baseline yet. Create one with: aneforge ci record net.py"
    )
    assert len(told.splitlines()) == 1
    assert process("record", "net.py") == (0, "")
    assert process("record", "net.py")[0] == 2
    assert process("check", "net.py") == (0, "")
    write(gain=2.0)
    assert process("check", "net.py") == (1, "")
    assert process("update", "net.py") == (0, "")
    assert process("check", "net.py") == (0, "")


# What other programs read.


def parsed(content):
    return ElementTree.fromstring(content)  # noqa: S314 - our own file


def test_junit_has_a_case_for_each_target_and_check(home):
    gate(write=True, target="m1,m2,m5", skip="estimates")
    write(op="sin")
    assert gate(junit="out.xml") == 1
    first = Path("out.xml").read_bytes()
    root = parsed(Path("out.xml").read_text())
    assert root.tag == "testsuites"
    suites = root.findall("testsuite")
    assert [each.get("name") for each in suites] == ["all targets", "M1", "M2", "M5"]
    for suite in suites:
        cases = suite.findall("testcase")
        assert int(suite.get("tests")) == len(cases)
        assert int(suite.get("failures")) == sum(case.find("failure") is not None for case in cases)
        assert int(suite.get("skipped")) == sum(case.find("skipped") is not None for case in cases)
        assert suite.get("errors") == "0"
        for case in cases:
            assert case.get("name")
            assert case.get("classname") == "aneforge.ci.net.py"
            order = [child.tag for child in case]
            assert order == sorted(order, key=("skipped", "failure", "system-out").index)
    named = {case.get("name"): case for suite in suites for case in suite}
    assert {f"{chip}: {check}" for chip in ("M1", "M2", "M5") for check in CHECKS} <= set(named)
    assert named["M1: verdict"].find("failure").get("type") == "verdict-worse"
    assert "net.py:6" in named["M1: verdict"].find("failure").text
    assert named["M5: verdict"].find("failure") is None
    assert named["M1: estimate"].find("skipped").get("message") == "not in the baseline"
    assert int(root.get("tests")) == len(named)
    gate(junit="out.xml")
    assert Path("out.xml").read_bytes() == first


def test_junit_survives_any_name():
    outcome = ChangeOutcome("bits-changed", "h13", "a<b>&\x00\x1b", {"bits": "é"}, None, 'says "\x08<&>" ✓')
    root = parsed(junit_text(BaselineReport("net\x00.onnx", ("h13",), (outcome,))))
    assert root.find(".//failure").get("message") == 'says "\\x08<&>" ✓'


def check_sarif(document):
    """The required properties of SARIF 2.1.0, and what code hosts ask for beyond them."""
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-2.1.0.json")
    (found,) = document["runs"]
    driver = found["tool"]["driver"]
    assert driver["name"] == "aneforge"
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids))
    for rule in driver["rules"]:
        assert all(rule[key]["text"].strip() for key in ("shortDescription", "fullDescription", "help"))
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
    assert all(isinstance(each["executionSuccessful"], bool) for each in found["invocations"])
    for result in found["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert not re.match(r"[a-z]+:|/|\.\.", place["artifactLocation"]["uri"])
        assert place["region"]["startLine"] >= 1
        assert all(result["partialFingerprints"].values())
    prints = [json.dumps(result["partialFingerprints"]) for result in found["results"]]
    assert len(prints) == len(set(prints))
    return found


def test_sarif_points_at_the_line_of_the_node(home, monkeypatch):
    folder = Path("my models")
    folder.mkdir()
    Path("net.py").rename(folder / "net.py")
    model = "my models/net.py"
    gate(model=model, write=True, target="m1,m5")
    (folder / "net.py").write_text(net(op="sin"))
    assert gate(model=model, sarif="out.sarif") == 1
    first = Path("out.sarif").read_text()
    found = check_sarif(json.loads(first))
    assert str(home) not in first
    lines = {(each["ruleId"], each["properties"]["target"]): each for each in found["results"]}
    assert lines["verdict-worse", "h13"]["level"] == "error"
    place = lines["verdict-worse", "h13"]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "my%20models/net.py"}, "region": {"startLine": 6}}
    assert lines["model-changed", ""]["level"] == "warning"
    assert lines["model-changed", ""]["locations"][0]["physicalLocation"]["region"]["startLine"] == 1
    gate(model=model, sarif="out.sarif")
    assert Path("out.sarif").read_text() == first
    # The same model by its full path, and from elsewhere: still no folder of this machine.
    gate(model=str(folder.resolve() / "net.py"), baseline=f"{model}.baseline.json", sarif="full.sarif")
    check_sarif(json.loads(Path("full.sarif").read_text()))
    assert str(home) not in Path("full.sarif").read_text()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    gate(model=str(home / model), sarif="far.sarif")
    found = check_sarif(json.loads(Path("far.sarif").read_text()))
    assert str(home) not in Path("far.sarif").read_text()
    places = [each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in found["results"]]
    assert set(places) == {"net.py"}


def test_sarif_without_a_change_has_no_results(home):
    gate(write=True, target="m1")
    assert gate(sarif="out.sarif") == 0
    found = check_sarif(json.loads(Path("out.sarif").read_text()))
    assert found["results"] == []
    assert {rule["id"] for rule in found["tool"]["driver"]["rules"]} == set(RULES)


def test_every_rule_can_be_written_as_sarif_and_junit():
    for rule in RULES:
        report = BaselineReport(
            "net.onnx", ("h13",), (ChangeOutcome(rule, "h13", "n", 1, 2, "told", where=("net.onnx", 0)),)
        )
        check_sarif(json.loads(sarif_text(report, "net.onnx", "1.0")))
        assert parsed(junit_text(report)).find(".//testcase") is not None


# The page and the workflow.


def test_the_page_lists_every_rule():
    page = (ROOT / "docs" / "guide" / "ci.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([a-z-]+)` \| (error|warning|note) \|", page, re.MULTILINE))
    assert listed == {name: rule.severity for name, rule in RULES.items()}
    never = set(re.findall(r"^\| `([a-z-]+)` .*never fails", page, re.MULTILINE))
    assert never == {name for name, rule in RULES.items() if not rule.change}


def test_the_reference_lists_every_option():
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    parts = [part for part in page.split("\n### ") if re.match("aneforge ci (?!compare)", part)]
    shared = {"--json"}  # of every command, said at the top of the page
    options = {name for part in parts for name in re.findall(r"^\| `(--[a-z-]+)", part, re.MULTILINE)} | shared
    spelled = {"inputs": "input", "as_json": "json", "max_us": "max-us"}
    own = {f"--{spelled.get(name, name)}" for name in CiOptions.__dataclass_fields__ if name != "action"}
    assert options == own | {"--os", "--runtime"}  # which every command that judges takes


def test_the_workflow_uses_the_command_as_it_is():
    text = (ROOT / "examples" / "ci" / "aneforge.yml").read_text(encoding="utf-8")
    yaml = pytest.importorskip("yaml")
    steps = yaml.safe_load(text)["jobs"]["aneforge"]["steps"]
    command = next(step["run"] for step in steps if "aneforge ci check" in step.get("run", ""))
    used = {word.removeprefix("--") for word in command.split() if word.startswith("--")}
    assert used <= set(CiOptions.__dataclass_fields__)
    uploaded = next(step for step in steps if "upload-sarif" in step.get("uses", ""))
    assert uploaded["with"]["sarif_file"] in command

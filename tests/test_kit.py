"""Experiments on chips: the data, what each hypothesis predicts, and the whole loop with a stand-in for a Mac."""

from __future__ import annotations

import copy
import json
import math
from contextlib import suppress
from functools import cache

import kit_standin as standin
import numpy as np
import pytest
from cli_kit import run

from aneforge.advice.estimates import estimate_all
from aneforge.chips.evidence import conflicts
from aneforge.chips.store import load
from aneforge.cost.machines import copy_rate, read_profile
from aneforge.errors import AneforgeError
from aneforge.reports.kit import reach
from aneforge.reports.kit.apply import applied, write_applied
from aneforge.reports.kit.experiments import KINDS, NAME, PROGRAM, WORDS, chosen, experiments
from aneforge.reports.kit.judge import CONFIRMS, CONTRADICTS, NONE, NOT_RUN, OPEN, judged
from aneforge.reports.kit.predict import KitSetting, predictions
from aneforge.reports.kit.profile import profile_of
from aneforge.reports.kit.results import ResultsError, read_results, results_of
from aneforge.reports.kit.rows import silicon_rows
from aneforge.reports.kit.score import scored
from aneforge.study.agreement import evaluate
from aneforge.study.plan import compute_plan
from aneforge.study.plan_files import ENGINE

EXPERIMENTS = list(experiments().values())
CHIPS = ("M1", "M3", "M4", "M5")


def find(chip, **settings):
    return judged(results_of(standin.results(chip, **settings), "results.json"))


@cache
def everything(chip):
    """What a whole file as chosen shows."""
    return find(chip)


def outcome(findings, number):
    return next(row for row in findings.outcomes if row.experiment.id == number)


# The data.


@pytest.mark.parametrize("entry", EXPERIMENTS, ids=lambda entry: entry.id)
def test_an_experiment_names_what_exists(entry):
    assert entry.kind in KINDS
    known = conflicts()
    for number in entry.about:
        assert number in known or number in ("times", "placement", "lifecycle")
    choices = load("choices")["choices"]
    for hypothesis in entry.hypotheses:
        if hypothesis.stands_for:
            assert hypothesis.stands_for <= len(choices[entry.about[0]]["instead"])
    assert sum(hypothesis.stands_for == 0 for hypothesis in entry.hypotheses) <= 1


@pytest.mark.parametrize("entry", EXPERIMENTS, ids=lambda entry: entry.id)
def test_hypotheses_differ_on_some_chip(entry):
    """An experiment whose hypotheses nobody could tell apart would ask nothing."""
    chips = entry.chips or CHIPS
    told = [len({row.key for row in predictions(entry, KitSetting(chip)) if row.cases is not None}) for chip in chips]
    assert max(told) >= min(2, len(entry.hypotheses))


def test_one_long_sum_tells_every_order_apart():
    """U50: no two candidates give the same 64 words."""
    said = predictions(experiments()["X01"], KitSetting("M3"))
    assert len({row.key for row in said}) == len(said) >= 10


def test_the_ten_unknowns_that_most_rests_on_have_experiments():
    first = list(reach.resting())[:10]
    assert all(reach.bearing_on(number) for number in first), first


@pytest.mark.parametrize("chip", ["M1", "M4"])
def test_core_ml_would_likely_run_the_words_on_the_engine(chip):
    """One small op alone is left on the CPU; with the work around it the published placement keeps it."""
    for entry in EXPERIMENTS:
        if entry.kind == WORDS:
            plan = {op.name: op.preferred for op in compute_plan(entry.package_graph({}), chip).operations}
            for name in entry.outputs({}):
                assert plan.get(name) == ENGINE, f"{entry.id} {name}"


def test_the_work_around_an_op_does_not_change_its_numbers():
    from aneforge.reports.kit.predict import simulated, words_of
    from aneforge.study.model import build

    entry = experiments()["X06"]
    alone = simulated(entry, {}, entry.hypotheses[0], KitSetting("M5"))
    graph = entry.package_graph({})
    results = build(graph, "m5")(*entry.run_inputs({}).values())
    assert (words_of(results[0]) == alone["y"]).all()


def test_only_what_is_asked_for():
    assert [entry.id for entry in chosen(["U50"])] == ["X01", "X02", "X03"]
    assert {entry.kind for entry in chosen(["words", "times"])} == {"words", "times", "copies"}
    with pytest.raises(AneforgeError, match="U283: no experiment of the kit bears on it"):
        chosen(["U283"])
    with pytest.raises(AneforgeError, match="not an unknown"):
        chosen(["speed"])


# The whole loop.


@pytest.mark.parametrize("entry", EXPERIMENTS, ids=lambda entry: entry.id)
@pytest.mark.parametrize("chip", CHIPS)
def test_the_hypothesis_that_holds_is_named(entry, chip):
    """Each hypothesis on each chip: it stays alive and, where it can be told from others, these are excluded."""
    if not entry.asks_of(chip) or (entry.kind == PROGRAM and chip != "M3"):  # a compiler aims at any chip
        pytest.skip("asked elsewhere")
    said = predictions(entry, KitSetting(chip))
    for place, hypothesis in enumerate(entry.hypotheses):
        if said[place].cases is None:
            continue
        findings = find(chip, hypotheses={entry.id: place}, only={entry.id}, seed=place)
        row = outcome(findings, entry.id)
        alike = [other.hypothesis for other in said if other.cases is not None and other.key == said[place].key]
        assert list(row.alive) == alike, (hypothesis.name, row)
        if len({other.key for other in said if other.cases is not None}) == 1 and len(said) > 1:
            assert row.status == OPEN
        else:
            chosen_one = len(said) == 1 or any(other.stands_for == 0 for other in alike)
            assert row.status == (CONFIRMS if chosen_one else CONTRADICTS)


def test_the_ten_unknowns_are_settled_by_the_loop():
    settled = set(everything("M3").settled) | set(find("M4 Pro", only={"X76"}).settled)
    assert set(list(reach.resting())[:10]) <= settled


@pytest.mark.parametrize("chip", CHIPS)
def test_a_chip_that_is_as_was_chosen_reopens_nothing(chip):
    findings = everything(chip)
    assert findings.reopened == []
    assert not [row.experiment.id for row in findings.outcomes if row.status == NONE]


def test_words_say_which_hypothesis_of_which_unknown():
    findings = find("M3", hypotheses={"X01": 4}, only={"X01"})
    text = str(findings)
    assert "your M3 behaves as hypothesis 5: a running sum of 24 steps (against the choice of U50)" in text
    assert "it bears on C23" in text
    assert findings.reopened == ["U50"]


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
def test_times_with_noise(noise):
    for place, expected in ((1, "they do"), (2, "they do not")):
        row = outcome(find("M4", hypotheses={"X51": place}, only={"X51"}, noise=noise, seed=7), "X51")
        assert expected in [hypothesis.name for hypothesis in row.alive]


def test_what_cannot_be_decided_stays_open():
    wild = outcome(find("M4", only={"X51"}, noise=1.5, seed=1), "X51")
    assert wild.status == OPEN
    document = standin.results("M3", only={"X01"})
    document["results"][0]["stable"] = False
    row = outcome(judged(results_of(standin.sealed(document), "x")), "X01")
    assert (row.status, row.says) == (OPEN, "two calls gave different numbers")


def test_numbers_of_the_cpu_are_not_the_engines():
    document = standin.results("M3", only={"X01"})
    document["results"][0]["plan"][0]["preferredComputeDevice"] = standin.CPU
    row = outcome(judged(results_of(standin.sealed(document), "x")), "X01")
    assert (row.status, row.says) == (NOT_RUN, "Core ML kept it off the engine")


def test_words_of_no_hypothesis_reopen_the_unknown():
    document = standin.results("M3", only={"X08"})
    other = standin.results("M3", only={"X09"})["results"][0]["outputs"]["y"]
    document["results"][0]["outputs"]["y"] = other
    row = outcome(judged(results_of(standin.sealed(document), "x")), "X08")
    assert row.status == NONE
    assert "the nearest is" in row.says


def test_two_results_that_disagree_are_a_conflict():
    one = results_of(standin.results("M3", only={"X01"}), "one")
    two = results_of(standin.results("M3", hypotheses={"X01": 1}, only={"X01"}), "two")
    findings = judged(one, [two])
    assert findings.disagreements == (
        "conflict: X01 long-sum: M3 (macOS 26.1) and M3 (macOS 26.1) differ; neither is taken",
    )
    assert not judged(one, [results_of(standin.results("M5", only={"X01"}), "another engine")]).disagreements


# Bad input.


def _cut(document):
    document["results"].pop()


def _edited(document):
    document["results"][0]["times_ns"][0] += 1


def _wrong_version(document):
    document["kit"]["version"] = "0.0.1"
    return True


def _simulated(document):
    document["simulated"] = True
    return True


def _impossible(document):
    row = next(row for row in document["results"] if row["id"] == "X51")
    row["times_ns"] = [1000 + number for number in range(30)]
    return True


def _hash(document):
    document["results"][0]["outputs"]["y"]["sha256"] = "0" * 64
    return True


def _words(document):
    out = document["results"][0]["outputs"]["y"]
    out["words"] = "0000" + out["words"][4:]


def _another_mac(document):
    document["machine"]["model"] = "Mac16,1"
    return True


def _another_engine(document):
    document["machine"]["engine_names"] = ["h13"]
    return True


def _another_question(document):
    document["results"][0]["asked"] = "0" * 32
    return True


def _twice(document):
    document["results"].append(document["results"][0])
    return True


def _frozen_clock(document):
    row = next(row for row in document["results"] if row["id"] == "X51")
    row["times_ns"] = [900_000] * 30
    return True


def _too_long(document):
    for row in document["results"]:
        row["times_ns"] = [1000 * ns for ns in row["times_ns"]]
    document["took_s"] = 5
    return True


def _runner(document):
    document["runner"]["name"] = "mine.py"
    return True


def _shape(document):
    del document["machine"]["chip"]


FORGED = {
    _cut: "cut or changed",
    _edited: "cut or changed",
    _wrong_version: "from a kit of aneforge 0.0.1",
    _simulated: "a prediction is not evidence",
    _impossible: "impossible",
    _hash: "its hash is not that of its words",
    _words: "its hash is not that of its words",
    _another_mac: "Mac16,1 has M4, and the file says M3",
    _another_engine: "the file says h13",
    _another_question: "is not the one of this kit",
    _twice: "it is there twice",
    _frozen_clock: "as no clock does",
    _too_long: "times were changed",
    _runner: "'mine.py' is not one of",
    _shape: "chip",
}


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_a_forged_file_is_refused(forge):
    """Those that seal the file again are caught by what it says."""
    document = copy.deepcopy(standin.results("M3", only={"X01", "X51"}))
    document = standin.sealed(document) if forge(document) else document
    with pytest.raises(ResultsError, match=FORGED[forge]):
        results_of(document, "results.json")


def test_a_program_of_ours_is_refused():
    import base64
    import zlib

    from aneforge.codegen.emission import emit
    from aneforge.study.model import build

    document = standin.results("M3", only={"X61"})
    ours = emit(build(experiments()["X61"].graph_of({"op": "relu"}), "h13").program).to_bytes()
    document["results"][0]["program"] = base64.b64encode(zlib.compress(ours)).decode()
    findings = judged(results_of(standin.sealed(document), "x"))
    assert "aneforge wrote this one" in outcome(findings, "X61").says


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"kind": "aneforge kit results"}', "{"])
def test_a_file_of_another_kind_is_one_line(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(AneforgeError) as caught:
        read_results(tmp_path / "r.json")
    assert "\n" not in str(caught.value)


def test_a_cut_file_is_said_to_be_one(tmp_path, monkeypatch, capsys):
    place = standin.written(standin.results("M3", only={"X75"}), tmp_path / "r.json")
    place.write_text(place.read_text()[:200])
    status, _, said = run(f"contribute {place}", monkeypatch, capsys)
    assert status == 2
    assert "not JSON" in said
    assert "the results.json of a kit as it was written" in said


def test_what_results_show_needs_no_file_for_the_rows(tmp_path, monkeypatch, capsys):
    place = standin.written(standin.results("M3", only={"X75"}), tmp_path / "r.json")
    status, out, said = run(f"contribute {place}", monkeypatch, capsys)
    assert (status, [file.name for file in tmp_path.iterdir()]) == (0, ["r.json"])
    assert "your M3 behaves as hypothesis 1" in out
    assert "-o rows.json writes the rows" in said
    place.write_text('{"operations": [{"operatorName": "relu", "preferredComputeDevice": "cpu"}]}')
    status, _, said = run(f"contribute {place} --target m1 --os 'macOS 26.1'", monkeypatch, capsys)
    assert status == 2
    assert "--out: a plan or a program becomes rows in a file" in said


# What results give.


def test_rows_of_the_silicon_form():
    findings = everything("M4")
    rows = silicon_rows(findings, "lab-7")
    assert evaluate(rows["verdicts"]).runs == 1
    assert {row["chip"] for row in rows["verdicts"]} == {"M4"}
    assert all(row["source"] == "lab-7" for listed in rows.values() for row in listed)
    assert len({row["id"] for listed in rows.values() for row in listed}) == sum(map(len, rows.values()))
    assert {row["scope"] for row in rows["times"]} == {"coreml_call"}
    assert any(row["op"] == "long-sum" and row["compare"] == "exact" for row in rows["facts"])


def test_a_profile_narrows_the_times(tmp_path, monkeypatch):
    results = results_of(standin.results("M3", hypotheses={"X50": 2}, only={"X50", "X51"}), "x")
    profile = profile_of(results)
    assumed = profile_of(results_of(standin.results("M3", only={"X50", "X51"}), "x"))
    assert assumed.copy_gbs is not None
    assert profile.copy_gbs == pytest.approx(2 * assumed.copy_gbs, rel=0.05)
    assert profile.start_us == pytest.approx(90, rel=0.05)
    place = tmp_path / "aneforge" / "machines" / "mine.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(profile.to_json()))
    assert read_profile(place) == profile
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    graph = experiments()["X50"].graph_of({"c": 256})
    plain = estimate_all(graph, "m3", scope="coreml_call")
    better = estimate_all(graph, "m3", scope="coreml_call", machine="mine")
    one, two = (next(iter(answer.values())) for answer in (plain, better))
    assert math.log(two.interval[1] / two.interval[0]) < math.log(one.interval[1] / one.interval[0])
    assert copy_rate("mine", None) == profile.copy_gbs
    with pytest.raises(AneforgeError, match="measured on an M3"):
        estimate_all(graph, "m4", machine="mine").require()


@pytest.mark.parametrize("text", ["{", "{}", '{"schema": 1}', "[]"])
def test_a_profile_of_another_shape_is_refused(tmp_path, text):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(AneforgeError, match="not a machine's profile"):
        copy_rate(str(tmp_path / "p.json"), None)


def test_the_score_counts_what_was_predicted():
    score = scored(results_of(standin.results("M3", hypotheses={"X01": 1}), "x"))
    words = sum(entry.kind == WORDS for entry in EXPERIMENTS)
    assert score.right["words"] == (words - 1, words)
    assert score.factor(True) is not None


def test_applying_shows_a_diff_and_changes_nothing_by_itself(tmp_path):
    checkout = standin.checkout(tmp_path)
    before = (checkout / "aneforge/chips/data/choices.json").read_text()
    change = applied(find("M3", hypotheses={"X06": 2}, only={"X06"}), "lab-7", checkout)
    assert '+"table_set":{"named":{"m6":[8,17,19,20,24,26]}' in change.diff
    assert any("U40" in line for line in change.follows)
    assert (checkout / "aneforge/chips/data/choices.json").read_text() == before
    write_applied(change, checkout)
    after = json.loads((checkout / "aneforge/chips/data/choices.json").read_text())
    choice = after["choices"]["U40"]
    assert choice["seen"][0]["chip"] == "M3"
    assert choice["choice"] == load("choices")["choices"]["U40"]["instead"][1]
    assert load("choices")["choices"]["U40"]["choice"] in choice["instead"]
    assert after["choices"]["U41"]["choice"] == load("choices")["choices"]["U41"]["choice"]
    untouched = {number: row for number, row in after["choices"].items() if number not in ("U40", "U41")}
    assert untouched == {n: row for n, row in load("choices")["choices"].items() if n not in ("U40", "U41")}


def test_a_result_as_chosen_only_adds_where_it_was_seen(tmp_path):
    change = applied(find("M3", only={"X01"}), "lab-7", standin.checkout(tmp_path))
    assert change.diff.count("\n-") == 1
    assert '"seen":[{"chip":"M3"' in change.diff
    assert not change.follows
    with pytest.raises(AneforgeError, match="not a checkout"):
        applied(find("M3", only={"X01"}), "lab-7", tmp_path / "elsewhere")


def test_the_digest_of_a_question_follows_its_numbers():
    digests = {entry.digest() for entry in EXPERIMENTS if entry.kind != NAME}
    assert len(digests) == sum(entry.kind != NAME for entry in EXPERIMENTS)


def _places(part, path=()):
    """Every value of a document by its path."""
    yield path
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, inner in items:
        yield from _places(inner, (*path, key))


STRANGE = [None, -1, 0, 10**40, 1.5, float("nan"), float("inf"), "", "x" * 5000, True, [], {}, [[]], "\ud800"]


@pytest.mark.parametrize("seal_again", [False, True])
def test_a_damaged_file_is_refused_or_read_and_never_a_fault(seal_again):
    """Each value replaced by something strange; a forger would seal the file again."""
    document = standin.results("M3", only={"X06", "X33", "X35", "X50", "X66", "X75"})
    for row in document["results"]:
        row["times_ns"] = row.get("times_ns", [])[:8]
    rng = np.random.default_rng(0)
    places = [path for path in _places(document) if path and path != ("digest",)]
    for *above, last in places:
        changed = copy.deepcopy(document)
        inner = changed
        for key in above:
            inner = inner[key]
        inner[last] = STRANGE[int(rng.integers(len(STRANGE)))]
        try:
            changed = standin.sealed(changed) if seal_again else changed
        except Exception:  # noqa: S112 - the runner's own digest needs a whole file
            continue
        with suppress(AneforgeError):
            findings = judged(results_of(changed, "results.json"))
            silicon_rows(findings, "lab-7")
            str(findings)

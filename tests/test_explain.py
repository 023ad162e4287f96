"""``aneforge explain``: labels that pages print, messages with and without a model, and bad input."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cli_kit import run

import aneforge as af
from aneforge.advice.cures import curing_forms, refused_nodes
from aneforge.advice.forms import apply_form
from aneforge.chips.logs import MOST_BYTES
from aneforge.chips.messages import cause_kinds, causes_of, messages
from aneforge.compiler.legal.patterns import PATTERNS
from aneforge.compiler.legal.rules import RULES
from aneforge.compiler.legal.rules.native import RAISED
from aneforge.compiler.legal.table import REWRITES
from aneforge.compiler.passes import PASSES
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.numerics.losses import LOSSES
from aneforge.study import labels
from aneforge.study.causes import FITS, ModelFit
from aneforge.study.labels import label_record
from aneforge.study.structures import STRUCTURES
from aneforge.study.study import Study

ROOT = Path(__file__).resolve().parents[1]
FAILED = "ANECCompile() FAILED"
WIDE = """
import numpy as np
import aneforge as af

out = af.conv(af.input((1, 8, 1, 20000), name="x"), np.ones((8, 8, 1, 1))).relu().named("y")
"""


# Labels.


@pytest.mark.parametrize("name", [*RULES, *(rule.id for rule in RAISED), *LOSSES, *PATTERNS, *REWRITES, *PASSES])
def test_every_name_of_the_code_can_be_asked_for(name):
    record = label_record(name)
    assert record is not None
    assert {"rule", "pattern", "rewrite", "pass"} & set(record)


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"], ids=lambda page: page.stem
)
def test_every_label_that_a_page_prints_can_be_asked_for(page):
    printed = set(re.findall(r"(?<![\w./-])(?:[CULTEN]\d{2,3}|OG\d\d|DV\d\d)(?![\w-]|\.\w)", page.read_text("utf-8")))
    missing = {name for name in printed if label_record(name) is None}
    assert missing <= {"C199", "N102"} | {name for name in missing if name.startswith("LC")}, missing


def test_every_rule_of_a_page_can_be_asked_for():
    page = (ROOT / "docs" / "reference" / "rules.md").read_text("utf-8")
    headed = re.findall(r"^### (\S+)$", page, re.MULTILINE)
    assert len(headed) > 50
    assert [name for name in headed if label_record(name) is None] == []


def test_a_rule_says_where_it_applies(monkeypatch, capsys):
    status, out, _ = run("explain grouped-scales --json", monkeypatch, capsys)
    record = json.loads(out)
    assert status == 0
    assert any("generation 17" in line and "measured" in line for line in record["applies"])
    assert "op-route" in run("explain op-route", monkeypatch, capsys)[1]


def test_a_fact_has_its_evidence(monkeypatch, capsys):
    for number, source in (("T06", "OMLX"), ("L03", "TRI"), ("N01", "conf"), ("OG08", "ORT"), ("DV01", "")):
        status, out, _ = run(f"explain {number}", monkeypatch, capsys)
        assert (status, number in out, source in out) == (0, True, True)


def test_no_name_stands_for_two_things():
    """A look-up stops at the first group that has a name."""
    names = [name for group in labels._GROUPS for name in group()]
    assert len(names) == len(set(names))


# The data.


def test_kinds_name_what_exists():
    raised = {rule.id for rule in RAISED}
    for kind in cause_kinds().values():
        assert set(kind.rules) <= set(RULES) | raised | set(LOSSES), kind.name
        assert set(kind.patterns) <= set(PATTERNS), kind.name
        assert kind.structure in ("", "open-shapes", *STRUCTURES), kind.name
        assert kind.rules or kind.patterns or kind.structure or kind.any_refusal
    used = {kind.name for entry in messages().values() for cause in entry.causes for kind in cause.kinds}
    assert used == set(cause_kinds())
    assert {kind.structure for kind in cause_kinds().values()} >= set(STRUCTURES)


def test_entries_that_stand_for_others_have_their_causes():
    own = [cause for _, cause in causes_of(messages()["E01"])]
    assert [cause for _, cause in causes_of(messages()["E02"])] == own
    assert all(cause.text for entry in messages().values() for _, cause in causes_of(entry))


def test_commands_are_commands(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(WIDE.replace("20000", "64"))
    for command in {command for kind in cause_kinds().values() for command in kind.commands}:
        words = [{"MODEL": "net.py", "CHIP": "m2"}.get(word, word) for word in command.split()]
        assert words[0] == "aneforge"
        status, _, err = run(" ".join(words[1:]), monkeypatch, capsys)
        assert status in (0, 1), (command, err)


# Models.


def fit(graph, chip="m2", **options) -> ModelFit:
    return ModelFit(Study(graph, chip, **options), "net.py", chip)


def first(graph, entry, chip="m2", **options):
    return fit(graph, chip, **options).causes(messages()[entry])[0]


X = {"name": "x"}


def grouped():
    weight = Encoded.blockwise(np.ones((32, 64, 1, 1), np.int8), np.full((32, 2, 1, 1), 0.5))
    return af.conv(af.input((1, 64, 1, 64), **X), weight)


def written_cache():
    before = af.input((1, 8, 128, 64), name="cache")
    after = (before * 2.0).named("cache_out")
    scores = (after @ after.transpose((0, 1, 3, 2))).softmax(-1)
    return Graph([(scores @ after).named("y"), after], states={"cache": "cache_out"})


def fused(queries=64, keys=64):
    x = af.input((1, 4, queries, 32), **X)
    return (x @ af.input((1, 4, 32, keys), name="k")).softmax(-1) @ af.input((1, 4, keys, 32), name="v")


FITTING = [
    (lambda: af.input((1, 8, 1, 20000), **X).relu(), "E01", "m2", 2, "refused", "extent"),
    (lambda: af.input((1, 8, 1, 20000), **X).relu(), "E15", "m2", 1, "refused", "extent"),
    (lambda: af.input((1, 8, 1, 20000), **X).relu(), "E03", "m2", None, "not visible", None),
    (grouped, "E01", "m4", 4, "refused", "grouped-scales"),
    (grouped, "E17", "m5", 1, "refused", "grouped-scales"),
    (written_cache, "E03", "m2", 1, "doubtful", "state-update"),
    (lambda: fused(1), "E08", "m5", 1, "refused", "few-queries"),
    (fused, "E23", "m5", 1, "refused", "chain-pattern"),
    (lambda: af.input((4, 8, 4, 4), **X).relu(), "E10", "m1", 1, "present", None),
    (lambda: af.input((1, 3, 4, 4), **X).softmax(1), "E57", "m3", 1, "present", None),
    (lambda: af.input((1, 16), **X, max_abs=60000) * 3.0, "E61", "m1", 1, "doubtful", "overflow"),
]


@pytest.mark.parametrize(("graph", "entry", "chip", "rank", "fits", "rule"), FITTING)
def test_the_cause_that_the_model_shows_comes_first(graph, entry, chip, rank, fits, rule):
    best = first(graph(), entry, chip)
    if rank is None:
        assert best.fit in ("not visible", "absent")
        assert best.places == ()
        return
    assert (best.cause.rank, best.fit) == (rank, fits)
    assert best.places[0].finding is None if rule is None else best.places[0].finding.rule == rule


def test_another_chip_ranks_another_way():
    line = af.input((1, 8, 1, 20000), **X).relu()
    assert first(line, "E15", "m2").fit == "refused"
    assert first(line, "E15", "m5").fit == "absent"
    assert first(fused(), "E23", "m5", os="27.2").fit == "refused"
    assert first(fused(), "E23", "m5", os="27.0").fit == "absent"


def test_a_model_that_shows_nothing_fits_nothing():
    plain = af.input((1, 8, 4, 4), **X).relu()
    for entry in ("E01", "E03", "E15", "E17", "E31"):
        assert {cause.fit for cause in fit(plain).causes(messages()[entry])} <= {"absent", "not visible"}


def test_causes_stay_in_order_of_rank_within_a_fit():
    for entry in messages().values():
        causes = fit(grouped(), "m4").causes(entry)
        keys = [(FITS.index(cause.fit), cause.of != entry.id, cause.cause.rank) for cause in causes]
        assert keys == sorted(keys)


def test_what_no_cause_names_is_said_too():
    volume = af.conv3d(af.input((1, 4, 8, 16, 16), **X), np.ones((4, 4, 3, 3, 3)))
    model = fit(volume, "m1")
    others = model.others(messages()["E01"], model.causes(messages()["E01"]))
    assert [place.finding.rule for place in others if place.finding] == ["op-record"]
    assert model.others(messages()["E60"], model.causes(messages()["E60"])) == []  # its cause names every refusal


def test_a_form_is_named_only_where_it_cures():
    volume = af.conv3d(af.input((1, 4, 8, 16, 16), **X), np.ones((4, 4, 3, 3, 3)))
    study = Study(volume, "m1")
    forms = curing_forms(study, "m1", {study.names[node.uid] for node in study.graph.nodes})
    assert forms == ["conv3d-as-planes"]
    assert refused_nodes(study.preflights()["m1"]) == 1
    assert refused_nodes(Study(apply_form(volume, forms[0]), "m1").preflights()["m1"]) == 0
    line = Study(af.input((1, 8, 1, 20000), **X).relu(), "m2")
    assert curing_forms(line, "m2", {line.names[node.uid] for node in line.graph.nodes}) == []


# The command.


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(WIDE)
    Path("app.log").write_text(
        f"10:00:00 App[1:2] {FAILED} (11)\nTensor width goes beyond limit supported (> 16384)\n"
    )
    return tmp_path


def test_a_log_with_a_model(home, monkeypatch, capsys):
    status, out, _ = run("explain --file app.log --model net.py --target m2 --os 27", monkeypatch, capsys)
    assert status == 0
    assert out.index("E01") < out.index("E15")
    assert "2. tensor axis above the family limit (16384 / 65536): fits" in out
    assert "conv conv_0 [1, 8, 1, 20000]" in out
    record = json.loads(run("explain --file app.log --model net.py --target m2 --json", monkeypatch, capsys)[1])
    assert [entry["id"] for entry in record["found"]] == ["E01", "E15"]
    assert record["found"][0]["fits"][0]["nodes"][0]["finding"]["rule"] == "extent"


@pytest.mark.parametrize("words", ["-", "--file -"])
def test_a_log_on_stdin(words, home, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path("app.log").read_bytes())))
    status, out, _ = run(f"explain {words}", monkeypatch, capsys)
    assert (status, "E01" in out, "E15" in out) == (0, True, True)


@pytest.mark.parametrize(
    ("mark", "encoding"), [(b"\xff\xfe", "utf-16-le"), (b"\xef\xbb\xbf", "utf-8"), (b"", "latin-1")]
)
def test_logs_in_other_encodings(mark, encoding, home, monkeypatch, capsys):
    Path("other.log").write_bytes(mark + f"Gerät: {FAILED}\n".encode(encoding))
    assert run("explain --file other.log", monkeypatch, capsys)[1].startswith("E01")


@pytest.mark.parametrize("text", ["-14", "0x20004", "Code=53", "error code: -14", "'-14' --json"])
def test_a_code_as_it_is_typed(text, monkeypatch, capsys):
    status, out, _ = run(f"explain {text}", monkeypatch, capsys)
    assert status == 0
    assert "E03" in out or "E05" in out or "E07" in out


def test_unknown_text_is_unknown(monkeypatch, capsys):
    for text in ("'my dog ate the model'", "op-rute", "'ANECCompile succeeded'", "--file /dev/null"):
        status, out, err = run(f"explain {text}", monkeypatch, capsys)
        assert (status, out.startswith("unknown: ")) == (1, True) or (status == 2 and "empty" in err)
    assert "op-route" in run("explain op-rute", monkeypatch, capsys)[1]
    assert json.loads(run("explain 'my dog' --json", monkeypatch, capsys)[1]) == {"found": []}


def test_control_characters_of_a_log_are_not_printed(home, monkeypatch, capsys):
    Path("evil.log").write_bytes(b"\x1b]0;title\x07\x1b[2J\xe2\x80\xae ANECCompile() FAILED \x07\x00\n")
    out = run("explain --file evil.log", monkeypatch, capsys)[1]
    assert out.startswith("E01")
    assert all(letter.isprintable() or letter == "\n" for letter in out)
    told = run("explain 'nothing\x1b[2J known'", monkeypatch, capsys)[1]
    assert all(letter.isprintable() or letter == "\n" for letter in told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("explain", "TEXT is missing"),
        ("explain E01 --file app.log", "Give one of them"),
        ("explain --file missing.log", "No such file"),
        ("explain --file .", "this is a folder"),
        ("explain --file empty.log", "the log is empty"),
        ("explain C199", "nearest"),
        ("explain E01 --model missing.onnx", "missing.onnx"),
        ("explain E01 --model net.py --target m77", "m77"),
        ("explain E01 --model net.py --target m1,m2", "one chip"),
    ],
)
def test_bad_input_is_one_line(words, told, home, monkeypatch, capsys):
    Path("empty.log").write_text(" \n")
    status, out, err = run(words, monkeypatch, capsys)
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert told in err


@pytest.mark.parametrize("from_stdin", [False, True])
def test_of_a_long_log_the_beginning_and_the_end_are_read(from_stdin, home, monkeypatch, capsys):
    line = b"10:00:00 App[1:2] all is well, 14 frames\n"
    count = 1_000_000 // len(line)
    with Path("long.log").open("wb") as stream:
        stream.write(f"{FAILED}\n".encode())
        for number in range(100):
            stream.write(line * count)
            if number == 50:
                stream.write(b"MPSGraph does not support tensor dims larger than INT_MAX\n")
        stream.write(b"Couldn't do topological sort\n")
    if from_stdin:
        with Path("long.log").open("rb") as stream:
            monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream))
            status, out, err = run("explain -", monkeypatch, capsys)
    else:
        status, out, err = run("explain --file long.log", monkeypatch, capsys)
    assert status == 0
    assert re.findall(r"^E\d+", out, re.MULTILINE) == ["E01", "E21"]
    assert f"line {100 * count + 3}:" in out
    assert err.count("\n") == 1
    assert f"only the first and the last {MOST_BYTES >> 21}.0 MB were searched" in err


def test_every_command_that_a_cause_names_runs_on_a_small_model(monkeypatch, capsys, tmp_path):
    """A cure is a command that does something: each ends well on a decoder, or says that something is found."""
    monkeypatch.chdir(tmp_path)
    examples = Path(__file__).resolve().parent.parent / "examples"
    Path("decoder.py").write_text((examples / "decoder.py").read_text())
    for command in sorted({command for kind in cause_kinds().values() for command in kind.commands}):
        line = command.removeprefix("aneforge ").replace("MODEL", "decoder.py").replace("CHIP", "m4")
        status, out, err = run(line, monkeypatch, capsys)
        assert status in (0, 1), f"{line}\n{err}"
        assert out, line


def test_a_model_that_is_too_large_is_led_to_the_cut(monkeypatch, capsys, tmp_path):
    """From a log line to the plan in two commands."""
    monkeypatch.chdir(tmp_path)
    examples = Path(__file__).resolve().parent.parent / "examples"
    Path("decoder.py").write_text((examples / "decoder.py").read_text())
    message = "Failed to build the model execution plan, error code: -14"
    _, out, _ = run(f"explain {message!r} --model decoder.py:large --target m4", monkeypatch, capsys)
    assert "do: aneforge split decoder.py:large --target m4" in out
    status, out, _ = run("split decoder.py:large --target m4,a17-pro,m1", monkeypatch, capsys)
    assert status == 0
    assert out.count("in one program would be too many") == 3
    assert out.count("tokens/s (") >= 6

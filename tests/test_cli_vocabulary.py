"""One vocabulary on the command line: the same spellings of chips, the same options and the same inputs everywhere."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import aneforge as af
from aneforge.chips import all_targets, store, target
from aneforge.chips.names import GROUPS, chip_list, one_chip
from aneforge.cli import doctor, say
from aneforge.cli.app import app
from aneforge.cli.commands import DEFAULT, FRONT
from aneforge.cli.compare import CompareOptions
from aneforge.cli.compare import run as compare_command
from aneforge.cli.options import complete_chips
from aneforge.errors import AneforgeError, UnknownNameError
from aneforge.graph import Graph
from aneforge.sim import native
from aneforge.sim.inputs import default_samples, drawn_inputs, drawn_sample

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NET = """
import numpy as np
import aneforge as af

x = af.input((1, 4, 6, 6), name="x", max_abs=8)
out = af.conv(x, np.full((4, 4, 1, 1), 0.1)).relu().named("y")
loss = (x * af.parameter(np.full((1, 4, 6, 6), 0.5), name="w")).mean()
"""
TEXT = """"builtin.module"() ({
  "anec.A13"() ({
    %0 = "anec.live_in"() {name = "x"} : () -> tensor<1x1x8x4x4xf16>
    %1 = "anec.relu"(%0) : (tensor<1x1x8x4x4xf16>) -> tensor<1x1x8x4x4xf16> loc("a")
    "anec.live_out"(%1) {names = ["y"]} : (tensor<1x1x8x4x4xf16>) -> ()
  }) {target = "h13"} : () -> ()
}) : () -> ()
"""


@pytest.fixture(autouse=True)
def plain_voice():
    yield
    say.set_voice()


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "net.mlir").write_text(TEXT)
    (tmp_path / "plan.json").write_text('[{"operatorName": "relu", "preferredComputeDevice": "cpu"}]')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, list(words))


def commands(group=None, before=()):
    """Every command with the words that call it."""
    for name, command in (group or get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))
        else:
            yield (*before, name), command


ALL_COMMANDS = dict(commands())


def options_of(command):
    return {name: each for each in command.params for name in (*each.opts, *each.secondary_opts)}


# Chips.


def test_all_is_the_28_targets():
    found = chip_list(" ALL ")
    assert [name.removeprefix("target:") for name in found] == [each.name for each in all_targets(only_28=True)]
    assert len(found) == 28


def test_macs_and_phones_are_one_chip_for_each_engine():
    macs, phones = chip_list("macs"), chip_list("phones")
    assert {"M1", "M1 Pro", "M2", "M5 Pro", "M6"} <= set(macs)
    assert {"A14 Bionic", "A17 Pro", "A18 Pro"} <= set(phones)
    assert all(re.match(r"M\d", each) for each in macs)
    assert all(re.match(r"A\d", each) for each in phones)
    for names, letter in ((macs, "M"), (phones, "A")):
        engines = [target(each).name for each in names]
        assert len(set(engines)) == len(engines)
        products = store.load("names")["products"]
        assert set(engines) == {row["target"] for name, row in products.items() if re.match(rf"{letter}\d", name)}


def test_lists_may_mix_spellings_and_hold_each_chip_once():
    assert chip_list("m5, m1..m3, M1, m5") == ["m5", "m1", "m2", "m3"]
    assert chip_list("h13..h15") == ["h13", "h14", "h15"]
    assert chip_list("macs,m6,h13") == [*chip_list("macs"), "h13"]


def test_unknown_names_give_the_nearest():
    with pytest.raises(UnknownNameError, match="no chip or target 'm55'; nearest: "):
        chip_list("m1,m55")
    with pytest.raises(AneforgeError, match=r"takes one chip, but 'm1\.\.m3' names 3; choose one: m1, m2, m3"):
        one_chip("m1..m3")
    assert one_chip("m2..m2") == "m2"


def test_python_takes_the_same_spellings():
    x = af.input((1, 4, 6, 6), name="x")
    out = x.relu()
    assert list(af.compile_all(out, target="m1..m3")) == [target(each).name for each in ("m1", "m2", "m3")]
    found = af.compile_all(out, target="all")
    assert len(found) + len(found.refused) == 28


# The words of each command that takes chips, but for the chips; whether it takes several.
TAKES = {
    ("targets",): (("targets", "{}"), True),
    ("hal",): (("hal", "{}", "0x1b8"), False),
    ("ops",): (("ops", "sin", "--target", "{}"), True),
    ("probe",): (("probe", "--target", "{}"), True),
    ("check",): (("check", "net.py", "--fail-on", "none", "--target", "{}"), True),
    ("partition",): (("partition", "net.py", "--target", "{}"), True),
    ("validate",): (("validate", "net.py", "--target", "{}"), True),
    ("plan",): (("plan", "net.py", "--target", "{}"), False),
    ("contribute",): (("contribute", "plan.json", "--os", "macOS 26.1", "-o", "x.json", "--target", "{}"), False),
    ("report",): (("report", "net.py", "--changes", "0", "--target", "{}"), True),
    ("sweep", "run"): (("sweep", "net.py", "--out", "results", "--target", "{}"), True),
    ("risks",): (("risks", "net.py", "--target", "{}"), True),
    ("compile",): (("compile", "net.py", "--target", "{}"), True),
    ("lower",): (("lower", "net.py", "--target", "{}"), False),
    ("opt",): (("opt", "net.mlir", "--target", "{}"), False),
    ("compress",): (("compress", "net.py", "--target", "{}"), True),
    ("tune",): (("tune", "net.py", "--budget", "1", "--target", "{}"), False),
    ("split",): (("split", "net.py", "--target", "{}"), True),
    ("run",): (("run", "net.py", "--target", "{}"), True),
    ("compare",): (("compare", "net.py", "--target", "{}"), True),
    ("train",): (("train", "net.py:loss", "--data", "none.npz", "--target", "{}"), False),
    ("gradcheck",): (("gradcheck", "net.py:loss", "--samples", "1", "--target", "{}"), True),
    ("estimate",): (("estimate", "net.py", "--target", "{}"), True),
    ("plot",): (("plot", "net.py", "chips", "--out", "x.svg", "--target", "{}"), True),
    ("explain",): (("explain", "E01", "--model", "net.py", "--target", "{}"), False),
    ("lifecycle",): (("lifecycle", "net.py", "--target", "{}"), True),
    ("kit", "list"): (("kit", "list", "--about", "X75", "--target", "{}"), False),
    ("verify",): (("verify", "net.py", "--target", "{}"), False),
    ("measure", "machine"): (("measure", "machine", "16384:151", "4194304:2410", "--target", "{}"), False),
    ("export",): (("export", "net.py", "--out", "x.mlpackage", "--target", "{}"), False),
    ("ci", "record"): (("ci", "record", "net.py", "--skip", "numerics,estimates", "--target", "{}"), True),
    ("ci", "check"): (("ci", "check", "net.py", "--target", "{}"), True),
    ("ci", "update"): (("ci", "update", "net.py", "--skip", "numerics,estimates", "--target", "{}"), True),
}
NO_CHIPS = {("cache",), ("doctor",), ("inspect",), ("measure", "cost"), ("measure", "gate")}
NO_CHIPS |= {("sweep", "merge"), ("sweep", "compare"), ("evaluate", "merge"), ("measure", "machine")}
NO_CHIPS |= {("evaluate", "run")}  # it needs a file of samples: tests/test_evaluate.py asks for some
NO_CHIPS |= {("kit", "apply"), ("measure", "kit")}
NO_CHIPS |= {("kit", "write")}  # it writes a folder, once: tests/test_kit_runner.py writes some
NO_CHIPS |= {("mcp",)}
NO_CHIPS |= {("ci", "compare")}  # it takes chips and needs a repository: tests/test_package.py names some
NO_CHIPS |= {("serve",)}  # it takes chips and runs until it is stopped: tests/test_serve.py asks for some
LISTS = ("m1,m5", "m1..m3", "macs", "phones", "all")


def test_every_command_is_in_the_table():
    assert set(TAKES) | NO_CHIPS == set(ALL_COMMANDS)


@pytest.mark.parametrize("name", TAKES, ids=" ".join)
def test_every_command_takes_the_same_spellings(home, name, monkeypatch):
    words, several = TAKES[name]
    monkeypatch.setattr(
        "aneforge.study.probes.readings", lambda chip: []
    )  # seconds a chip, and nothing to do with names
    if name == ("ci", "check"):
        assert run("ci", "record", "net.py", "--skip", "numerics,estimates").exit_code == 0

    def asked(chips):
        if name == ("ci", "record"):
            (home / "net.py.baseline.json").unlink(missing_ok=True)
        return run(*(word.format(chips) for word in words))

    for chips in LISTS:
        done = asked(chips)
        if several:
            assert done.exception is None or isinstance(done.exception, SystemExit), (chips, done.exception)
            assert done.exit_code in (0, 1), (chips, done.output)
        else:
            assert isinstance(done.exception, AneforgeError), (chips, done.output)
            assert f"takes one chip, but '{chips}' names {len(chip_list(chips))}" in str(done.exception)
    for chips, told in (("m55", "nearest: "), ("m6..m1", "runs backwards"), ("m1..m7", "includes 'm7'")):
        refused = asked(chips)
        assert isinstance(refused.exception, AneforgeError), (chips, refused.output)
        assert told in str(refused.exception)


def test_a_chip_without_probes_does_not_stop_the_others():
    done = run("probe", "--target", "h12,m1")
    assert done.exit_code == 0
    assert "h13 (M1, A14 Bionic)" in done.stdout
    assert "h12: no program: " in done.stdout


def test_the_shell_completes_chips():
    assert "m1" in complete_chips("m")
    assert "m1,macs" in complete_chips("m1,ma")
    assert "h13g" in complete_chips("h13")
    assert set(GROUPS) <= set(complete_chips(""))
    assert complete_chips("zzz") == []
    assert all(target(each) for each in complete_chips("m1-"))


# Options.

ONE_MEANING = ("--target", "--out", "--json", "--input", "--seed", "--dim", "--quiet", "--verbose", "--color")


def test_options_have_one_name_and_one_type():
    gone = {"--targets", "--output", "--save", "--rewrite", "--log", "--write", "--update"}
    kinds: dict[str, set] = {}
    for words, command in ALL_COMMANDS.items():
        found = options_of(command)
        assert not gone & set(found), words
        assert {"-q", "-v", "--color", "--json"} <= {*found, *({"--json"} if words == ("mcp",) else ())}, words
        assert ("-o" in found) == ("--out" in found), words
        for name in ONE_MEANING:
            if name in found:
                kinds.setdefault(name, set()).add((found[name].is_flag, found[name].multiple))
    assert set(kinds) == set(ONE_MEANING)
    assert all(len(found) == 1 for found in kinds.values()), kinds
    assert {name for name, command in ALL_COMMANDS.items() if "--seed" in options_of(command)} == {
        ("run",),
        ("compare",),
        ("train",),
        ("gradcheck",),
        ("ci", "record"),
        ("ci", "check"),
        ("ci", "update"),
    }


def test_help_starts_with_a_verb_and_groups_by_task():
    text = run("--help").output
    more = ("look up", "check", "compile", "run", "measure", "deploy")
    places = [text.index(f"\n{panel}:\n") for panel in ("Start here", *(f"More to {verb}" for verb in more))]
    assert places == sorted(places)
    assert re.findall(r"^  (\w+) ", text[places[0] : places[1]], re.MULTILINE) == list(FRONT)
    assert text.index("\n  partition ") > places[2]
    assert text.index("\n  export ") > places[6]
    assert "\nCommands:\n" not in text
    verbs = {"List", "Read", "Show", "Explain", "Check", "Split", "Find", "Compile", "Print", "Run", "Simulate"}
    verbs |= {"Estimate", "Draw", "Compare", "Write", "Create", "Replace", "Train"}
    for words, command in ALL_COMMANDS.items():
        assert inspect.cleandoc(command.help).split()[0] in verbs, words


def test_every_command_prints_json(home):
    assert run("ci", "record", "net.py", "--skip", "numerics,estimates").exit_code == 0
    for words in (
        ("lower", "net.py"),
        ("opt", "net.mlir", "--pass", "fuse"),
        ("plot", "net.py", "chips", "--out", "x.svg", "--target", "m1"),
        ("risks", "net.py", "--target", "m1,m5"),
        ("run", "net.py", "-q"),
        ("run", "net.py", "--target", "m1,m5", "-q"),
        ("compare", "net.py", "-q"),
        ("ci", "check", "net.py"),
        ("targets", "macs"),
        ("partition", "net.py"),
    ):
        done = run(*words, "--json")
        assert done.exit_code in (0, 1), done.output
        assert json.loads(done.stdout), words


def test_code_goes_to_a_file(home):
    printed = run("lower", "net.py").stdout
    for short in ("--out", "-o"):
        assert run("lower", "net.py", short, "net.out", "-q").output == ""
        assert (home / "net.out").read_text() == printed
    assert json.loads(run("lower", "net.py", "--json").stdout)["code"] == printed


def test_quiet_verbose_and_color(home):
    assert "drawn with seed 0" in run("run", "net.py").stderr
    assert run("run", "net.py", "-q").stderr == ""
    assert "// " in run("opt", "net.mlir", "--pass", "fuse", "-v").stderr
    assert run("opt", "net.mlir", "--pass", "fuse").stderr == ""
    assert "choose one" in str(run("run", "net.py", "-q", "-v").exception)
    assert "--color takes auto, always, never" in str(run("run", "net.py", "--color", "blue").exception)
    Path("long.py").write_text("import aneforge as af\nout = af.input((1, 20000)).relu()\n", encoding="utf-8")
    red = run("check", "long.py", "--target", "m1", "--color", "always")
    plain = run("check", "long.py", "--target", "m1", "--color", "never")
    assert "\x1b[31moversize\x1b[0m: " in red.stdout
    assert re.sub(r"\x1b\[\d+m", "", red.stdout) == plain.stdout
    assert run("check", "long.py", "--target", "m1").stdout == plain.stdout  # no terminal


# Inputs.


def test_inputs_fill_the_ranges_that_are_promised():
    a, b = af.input((1, 4000), name="a", max_abs=16000), af.input((1, 4000), name="b", max_abs=0.3)
    graph = Graph.of([a.relu(), b.relu(), af.input((1, 4000), name="c").relu()])
    first, ends, third = drawn_inputs(graph, 3)
    for sample in (first, ends, third):
        assert np.abs(sample["a"].astype(float)).max() <= 16000
        assert np.abs(sample["b"].astype(float)).max() <= 0.3  # fp16 has no 0.3: the number below it
    assert np.abs(first["a"]).max() > 8000
    assert set(np.unique(ends["a"])) == {-16000, 16000}
    assert set(np.abs(ends["b"].astype(float)).ravel()) == {float(np.nextafter(np.float16(0.3), np.float16(0)))}
    assert 0.9 < first["c"].astype(float).std() < 1.1
    assert 0.9 < ends["c"].astype(float).std() < 1.1
    assert not np.array_equal(first["a"], third["a"])
    assert np.array_equal(drawn_sample(graph)["a"], first["a"])
    assert not np.array_equal(drawn_sample(graph, 1)["a"], first["a"])


def test_bytes_and_whole_numbers_stay_in_their_ranges():
    graph = Graph.of(af.image_input((1, 3, 16, 16)).relu())
    first, ends = (next(iter(each.values())) for each in drawn_inputs(graph, 2))
    assert first.dtype.kind == "i"
    assert first.min() >= 0
    assert 200 < first.max() <= 255
    assert set(np.unique(ends)) == {0, 255}
    assert default_samples(graph) == 2
    assert default_samples(Graph.of(af.input((1, 4)).relu())) == 1


def test_run_and_compare_draw_the_same_inputs(home):
    one = json.loads(run("run", "net.py", "--target", "m1,m5", "--json", "-q").stdout)
    two = json.loads(run("compare", "net.py", "--target", "m1,m5", "--json", "-q").stdout)
    assert one["comparison"] == two  # one implementation
    assert two["samples"] == 2
    other = json.loads(run("compare", "net.py", "--target", "m1,m5", "--json", "-q", "--seed", "3").stdout)
    assert other["outputs"] != two["outputs"]
    text = run("run", "net.py", "--target", "m1,m5", "-q").stdout
    assert text.endswith(run("compare", "net.py", "--target", "m1,m5", "-q").stdout)
    assert text.startswith("m1 (h13)\ny [1, 4, 6, 6] 0 to ")
    alone = json.loads(run("run", "net.py", "--json", "-q").stdout)
    np.savez("x.npz", **drawn_sample(Graph.of(_net(home))))
    given = json.loads(run("run", "net.py", "--json", "-q", "--input", "x.npz").stdout)
    assert alone == given
    both = run("run", "net.py", "--input", "x.npz", "--seed", "1")
    assert "choose one" in str(both.exception)
    assert "0 or more" in str(run("run", "net.py", "--seed", "-1").exception)


def _net(home):
    from aneforge.cli.options import load_model

    return load_model(str(home / "net.py")).outputs


def test_compare_sees_the_network_that_breaks(capsys):
    model = str(EXAMPLES / "breaks_on_m1.py")
    compare_command(model, "m1,m5", CompareOptions())
    told = capsys.readouterr().out
    assert "the same bits" not in told
    assert "first at ahead" in told
    assert "first not finite on m1" in told
    assert compare_command(model, "m1,m5", CompareOptions(fail_above=64)) == 1


def test_equal_bits_are_told_with_their_samples(home, capsys):
    compare_command("net.py", "m1,m4", CompareOptions(samples=3))
    told = capsys.readouterr().out
    assert "the same bits in the outputs and in" in told
    assert "on 3 samples" in told
    assert "aneforge compare --any-input and aneforge risks hold for all inputs" in told
    compare_command("net.py", "m1,h13", CompareOptions())
    assert "hold for all inputs" not in capsys.readouterr().out  # one program: nothing could differ


# The installation.


def test_doctor_finds_a_whole_installation(monkeypatch):
    monkeypatch.delenv("ANEFORGE_TARGET", raising=False)
    found = doctor.examine()
    assert [each.value for each in found["versions"]][:2] == [af.__version__, sys.version.split()[0]]
    assert found["data"][0].ok
    assert f"{len(store.topics())} files" in found["data"][0].why
    monkeypatch.setenv("ANEFORGE_TARGET", "m5")
    chosen = doctor.examine()["target"][0]
    assert "ANEFORGE_TARGET=m5" in chosen.why
    assert chosen.value.startswith("h1")


def test_doctor_fails_where_something_is_degraded(monkeypatch, tmp_path):
    fine = run("doctor", "--json")
    record = json.loads(fine.stdout)
    assert record["ok"] == (fine.exit_code == 0) == native.available()
    monkeypatch.setattr("aneforge.sim.native.why_not", lambda: "it was not built")
    broken = run("doctor")
    assert broken.exit_code == 1
    assert "it was not built; exact sums run in NumPy" in broken.stdout
    assert broken.stdout.splitlines()[-1] == "degraded: native kernel"
    monkeypatch.undo()
    monkeypatch.setenv("ANEFORGE_TARGET", "m55")
    assert "target" in json.loads(run("doctor", "--json").stdout)["degraded"]
    monkeypatch.undo()
    for file in store.DATA.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes() + (b" " if file.name == "enums.json" else b""))
    monkeypatch.setattr(store, "DATA", tmp_path)
    store.clear()
    try:
        told = json.loads(run("doctor", "--json").stdout)
        assert "data" in told["degraded"]
        assert "enums.json" in told["data"][0]["why"]
    finally:
        monkeypatch.undo()
        store.clear()


def test_missing_extras_are_no_fault(monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    rows = doctor.examine()["optional packages"]
    assert {each.what for each in rows} == {
        "onnx",
        "coreml",
        "coreml-export",
        "torch",
        "coreai",
        "mcp",
        "sweep",
        "images",
        "cluster",
    }
    assert all(each.ok and each.value == "not installed" and "pip install" in each.why for each in rows)


def test_completion_is_on():
    done = subprocess.run([sys.executable, "-m", "aneforge", "--help"], capture_output=True, text=True, check=True)
    assert "--install-completion" in done.stdout


# Errors as documents.


def errors_of(*words):
    done = subprocess.run([sys.executable, "-m", "aneforge", *words], capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert list(document) == ["error"]
    assert document["error"]["status"] == done.returncode
    assert done.stderr.strip() == f"aneforge: {document['error']['message']}"
    return document["error"]


def test_an_error_under_json_is_one_document():
    missing = errors_of("check", "nope.onnx", "--json")
    assert (missing["where"], missing["problem"], missing["status"]) == ("nope.onnx", "no such file", 2)
    assert missing["do"].startswith("Give FILE.py:NAME")
    assert missing["rule"] is None
    chip = errors_of("check", "examples/small.py", "--target", "m99", "--json")
    assert (chip["where"], chip["problem"]) == (None, "no chip or target 'm99'")
    misused = errors_of("check", "examples/small.py", "--tarbet", "m1", "--json")
    assert misused["where"] == "aneforge check"
    assert "--tarbet" in misused["problem"]
    assert "--help" in misused["do"]


def test_parts_of_a_message():
    from aneforge.errors import error_document

    message = "net.onnx: Conv conv1: pads has 1 value, expected 4; it needs two for each axis (M1). Give four."
    assert error_document(message, 2)["error"] == {
        "message": message,
        "where": "net.onnx",
        "problem": "Conv conv1: pads has 1 value, expected 4",
        "rule": "it needs two for each axis (M1)",
        "do": "Give four.",
        "status": 2,
    }
    assert error_document("nothing of the kind", 3)["error"]["where"] is None


# Former names.


def test_former_names_of_the_same_question_still_work():
    new = run("compare", "examples/small.py", "--target", "m1,m5", "--any-input").stdout
    assert run("diverges", "examples/small.py", "--target", "m1,m5").stdout == new
    words = ("report", "examples/small.py", "--target", "m1", "--changes", "0")
    assert run(*words, "--against-target", "m5").stdout == run(*words, "--compare-target", "m5").stdout
    assert "diverges" not in run("--help").stdout
    assert "--against" not in run("report", "--help").stdout
    assert isinstance(run("compare", "examples/small.py", "--all").exception, AneforgeError)


# Tables on terminals.


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
def test_tables_follow_the_width_of_the_terminal(monkeypatch, columns):
    from aneforge import text

    headers = ("chip", "us", "what the engine does with it", "why")
    rows = [("M1", 12.5, "word " * 20, "other words " * 12), ("M5 Pro", 7, "short", "a_long_name_without_spaces" * 3)]
    piped = text.columns(headers, rows)
    assert max(map(len, piped.splitlines())) > 160
    monkeypatch.setattr(text, "terminal_width", lambda: columns)
    shown = text.columns(headers, rows)
    assert max(map(len, shown.splitlines())) <= columns
    assert "".join(sorted(shown.replace("-", ""))).split() == "".join(sorted(piped.replace("-", ""))).split()
    assert text.line_width() == min(columns, 120)


def test_a_terminal_is_asked_for_its_width(monkeypatch):
    from aneforge import text

    assert text.terminal_width() is None
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "77")
    assert text.terminal_width() == 77


# What the pages say.

ROOT = EXAMPLES.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *EXAMPLES.glob("*.py")]
PAGES += [*(EXAMPLES / "ci").glob("*.yml")]
FENCED = re.compile(r"^ *```[a-z]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^(?:\$ )?\s*(?:- )?(?:run: )?(aneforge [a-z-].*)$", re.MULTILINE)
QUOTED = re.compile(r"`(aneforge [a-z-][^`\n]*)`")


def shown_commands():
    """Commands in code blocks and in quotes of a page; in examples, on lines of their own."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        code = "\n".join(FENCED.findall(text)) if page.suffix == ".md" else text
        for command in [*LINE.findall(code), *QUOTED.findall(FENCED.sub("", text))]:
            yield page.name, command.partition(" #")[0].split()[1:]


@pytest.mark.parametrize(("page", "words"), list(shown_commands()))
def test_the_pages_show_commands_and_options_that_exist(page, words):
    one, two = tuple(words[:1]), tuple(words[:2])
    meant = (*one, "write") if one == ("kit",) else (*one, DEFAULT)
    command = ALL_COMMANDS.get(two) or ALL_COMMANDS.get(one) or ALL_COMMANDS.get(meant)
    if one in (("ci",), ("measure",)) and command is None:
        assert len(words) == 1, page  # the group itself
        return
    if words[0].startswith("--"):
        assert words[0] in run("--help").output, page
        return
    assert command is not None, f"{page}: aneforge {' '.join(words)}"
    used = {word.split("=")[0].rstrip(",.;)") for word in words if re.match(r"--?[a-z]", word)}
    assert used <= set(options_of(command)), f"{page}: {used}"

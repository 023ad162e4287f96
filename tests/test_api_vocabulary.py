"""One vocabulary in Python: the functions of the command line take the same words and give the same reports."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import aneforge as af
from aneforge.chips.names import DEFAULT
from aneforge.cli import say
from aneforge.cli.app import app
from aneforge.cli.doctor import SETTINGS
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.formats.arguments import chips_of, graph_of
from aneforge.sim.inputs import samples_of

NET = """
import numpy as np
import aneforge as af

x = af.input((1, 4, 6, 6), name="x", max_abs=8)
out = af.conv(x, np.full((4, 4, 1, 1), 0.1)).relu().named("y")
"""
QUESTIONS = ("check", "compile", "run", "estimate", "compare", "diverges", "risks", "partition")
PINNED = ("compile", "estimate")
"""Their signatures are promised to existing code; ``compile_all`` and ``estimate_all`` have the vocabulary."""


@pytest.fixture(autouse=True)
def plain_voice():
    yield
    say.set_voice()


@pytest.fixture
def net(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return "net.py"


def small() -> af.Tensor:
    x = af.input((1, 4, 6, 6), name="x", max_abs=8)
    return af.conv(x, np.full((4, 4, 1, 1), 0.1)).relu().named("y")


# Names and parameters.


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_is_a_function_with_the_model_first_and_the_chips_second(name):
    parameters = list(inspect.signature(getattr(af, name)).parameters)
    if name in PINNED:
        assert parameters[0] == "out"
        assert "target" in parameters
    else:
        assert parameters[:2] == ["model", "target"]
    assert {"dims", "function"} <= set(parameters)


# The option of a command for each parameter that is not called like it.
OPTION_NAMES = {"inputs": "--input", "dims": "--dim"}
FUNCTIONS = {
    "check": af.check,
    "partition": af.partition,
    "risks": af.risks,
    "compile": af.compile_all,
    "run": af.run,
    "compare": af.compare,
    "estimate": af.estimate_all,
    "probe": af.probe,
}
ONLY_IN_PYTHON = {"ranges", "progress", "model"}
# What a command does with a report rather than with the model.
ONLY_IN_COMMANDS = {"--json", "--quiet", "--verbose", "--color", "--out", "--plot", "--layers", "--basis", "--explain"}
ONLY_IN_COMMANDS |= {"--all"}  # the text() of a report takes everything=True
ONLY_IN_COMMANDS |= {"--no-cache"}  # with aneforge.formats.cache.off(): in Python
ONLY_IN_COMMANDS |= {"--show"}  # model.chain() in Python
ONLY_IN_COMMANDS |= {"--allow-text", "--driver-header"}  # both are of container.to_anec in Python
ONLY_IN_COMMANDS |= {"--call"}  # af.load_split(folder).run(feeds, kind) in Python
ONLY_IN_COMMANDS |= {"--lifecycle"}  # the command lifecycle
ONLY_IN_COMMANDS |= {"--decode"}  # af.decode_steps(model, target, steps) in Python
OF_DIVERGES = {"--any-input", "--max-abs"}  # af.diverges(model, target, max_abs) in Python
ONLY_IN_COMMANDS |= {"--validate"}  # af.compile has it: it takes one chip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_commands_have_the_same_options_and_defaults(name):
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    options = {each.opts[0]: each for each in command.params if each.opts[0].startswith("--")}
    found = {}
    for parameter in inspect.signature(FUNCTIONS[name]).parameters.values():
        if parameter.name not in ONLY_IN_PYTHON:
            option = OPTION_NAMES.get(parameter.name, f"--{parameter.name.replace('_', '-')}")
            found[option] = parameter.default
    assert set(found) == set(options) - ONLY_IN_COMMANDS - (OF_DIVERGES if name == "compare" else set())
    for option, default in found.items():
        told = options[option].default
        if option == "--target" and name != "compile":
            assert default is None
            assert told == (None if name == "run" else DEFAULT)
        elif option not in ("--dim", "--target"):
            assert told == default, option


def test_the_help_lists_every_public_name_once_by_task():
    doc = af.__doc__ or ""
    tasks = ["Look up chips and ops", "Build a graph", "Load a model file", "Report on a model"]
    tasks += ["Check a model against chips", "Compile"]
    tasks += ["Run in the simulator", "Measure (estimate times)", "Deploy", "Train"]
    places = [doc.index(f"\n{task}:\n") for task in tasks]
    assert places == sorted(places)
    listed = re.findall(r"\w+", "\n".join(line for line in doc.splitlines() if line.startswith("    ")))
    assert sorted(listed) == sorted(set(af.__all__) - {"__version__"})
    modules = {"autograd", "chips", "ops", "special"}
    assert modules < set(dir(af)) <= {*af.__all__, *modules}
    assert len(dir(af)) < 45  # what completion offers first
    assert af.ops.conv is af.conv
    assert af.autograd.Trainer is af.Trainer
    assert set(af._HOME_OF) == set(listed)


def test_the_functions_across_chips_have_one_home():
    from aneforge import study

    for name in ("compare", "diverges", "risks", "precision_risk", "Study"):
        assert getattr(study, name) is getattr(af, name)
        assert any(name in names.split() for names in study.HOMES.values())


# The model.


def forms_of_a_model(tmp_path):
    out = small()
    graph = af.Graph.of(out)
    graph.save(tmp_path / "net.aneforge")
    (tmp_path / "net.py").write_text(NET)
    compiled = af.compile(out, target="m1")
    return [out, [out], graph, compiled, str(tmp_path / "net.aneforge"), tmp_path / "net.aneforge",
            f"{tmp_path / 'net.py'}:out"]  # fmt: skip


def test_every_form_of_a_model_is_taken_by_every_question(tmp_path):
    for model in forms_of_a_model(tmp_path):
        assert af.check(model, "m1").ok
        assert af.compile(model, target="m1").n_ops == 2
        assert af.compile_all(model, "m1").ok
        assert af.estimate(model, target="m1") == af.estimate(small(), target="m1")
        assert af.partition(model, "m1").whole
        assert af.risks(model, "m1").ok
        assert list(af.diverges(model, "m1,m5")) == ["m5"]
        assert list(af.compare(model, "m1,m5").pairs) == ["m5"]
        assert af.run(model, "m1").outputs["y"].shape == (1, 4, 6, 6)


def test_a_compiled_model_stands_for_its_chip():
    model = af.compile(small(), target="m5", opt=0)
    assert list(af.run(model)) == list(af.risks(model)) == list(af.partition(model)) == ["h17"]
    assert list(af.run(small())) == ["m1"]
    assert af.estimate(model) == af.estimate(small(), target="m5")
    assert af.compile(model).target is model.target
    assert list(af.run(model, "m1")) == ["m1"]


def test_symbolic_dimensions_and_functions_are_for_files():
    with pytest.raises(ArgumentError, match="dims: it is for model files"):
        af.check(small(), "m1", dims={"batch": 1})
    with pytest.raises(ArgumentError, match="function: it is for model files"):
        af.run(small(), "m1", function="main")
    encoder = Path(__file__).resolve().parents[1] / "examples" / "tiny_encoder.onnx"
    assert af.partition(encoder, "m1", dims={"batch": 1}).eligible > 0
    with pytest.raises(AneforgeError, match=r"net\.onnx: no such file"):
        graph_of("net.onnx")


def test_chips_are_named_as_on_the_command_line():
    m1, m5 = af.target("m1"), af.target("m5")
    assert chips_of("m1,m5") == {"m1": m1, "m5": m5}
    assert list(chips_of("m1..m3")) == ["m1", "m2", "m3"]
    assert chips_of(["m1,m5", m5, 2]) == {"m1": m1, "m5": m5, "h17": m5, "h13": m1}
    assert list(chips_of(None)) == ["m1", "m2", "m3", "m4", "m5", "m6"]
    assert list(chips_of(None, first=True)) == ["m1"]
    with pytest.raises(ArgumentError, match="the list is empty"):
        chips_of([])
    for function in (af.compile, af.estimate, af.tune, af.precision_risk):
        with pytest.raises(AneforgeError, match="target takes one chip, but 'm1,m5' names 2; choose one: m1, m5"):
            function(small(), target="m1,m5")


# The reports.

COMMANDS = {
    "check": (af.check, {"target": "m1,h12"}, ()),
    "partition": (af.partition, {"target": "m1,m5"}, ()),
    "risks": (af.risks, {"target": "m1", "max_abs": 4.0}, ("--max-abs", "4")),
    "diverges": (af.diverges, {"target": "m1,m5,m6"}, ()),
    "compile": (af.compile_all, {"target": "m1,h20"}, ()),
    "run": (af.run, {"target": "m1", "seed": 3}, ("--seed", "3")),
    "compare": (af.compare, {"target": "m1,m5", "samples": 3}, ("--samples", "3")),
    "estimate": (af.estimate_all, {"target": "m1,h20"}, ()),
    "probe": (lambda _, target: af.probe(target), {"target": "m1"}, ()),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_the_report_of_its_function(net, name):
    function, settings, options = COMMANDS[name]
    report = function(net, **settings)
    words = [name, *([] if name == "probe" else [net]), "--target", settings["target"], *options]
    printed = CliRunner().invoke(app, [*words, "-q"])
    assert printed.exit_code in (0, 1), printed.output
    assert printed.stdout == f"{report}\n"
    told = CliRunner().invoke(app, [*words, "-q", "--json"])
    assert json.loads(told.stdout) == json.loads(json.dumps(report.to_json(), default=list))


@pytest.mark.parametrize("name", ["risks", "probe", "compile", "check", "partition", "diverges", "run", "estimate"])
def test_json_has_one_shape_for_one_chip_and_for_several(net, name, monkeypatch):
    monkeypatch.setattr("aneforge.study.probes.readings", lambda chip: [])
    chips = ("m1,m5", "m1,m5,m6") if name == "diverges" else ("m1", "m1,m5")
    one, several = (
        json.loads(
            CliRunner()
            .invoke(app, [name, *([] if name == "probe" else [net]), "--target", asked, "--json", "-q"])
            .stdout
        )
        for asked in chips
    )
    assert isinstance(one, dict)
    assert set(one) == set(several)
    by_chip = {"compile": "programs", "estimate": "estimates"}.get(name, "targets")
    assert len(one[by_chip]) == 1
    assert len(several[by_chip]) == 2
    first = next(iter(one[by_chip]))
    assert set(one[by_chip][first]) == set(several[by_chip][first])


def test_a_report_of_several_chips_is_read_by_chip():
    report = af.partition(small(), "m1,m5")
    assert list(report) == ["m1", "m5"]
    assert report["m5"].target is af.target("m5")
    with pytest.raises(AneforgeError, match=r"results of 2 chips\. Choose one: m1, m5"):
        _ = report.only
    with pytest.raises(AttributeError, match="regions"):
        _ = report.regions
    with pytest.raises(KeyError, match="m6: this chip was not asked for"):
        _ = report["m6"]
    alone = af.partition(small(), "m1")
    assert alone.regions is alone.only.regions is alone["m1"].regions


def test_a_run_gives_arrays_and_several_chips_a_comparison():
    data = np.random.default_rng(0).normal(size=(3, 1, 4, 6, 6)).astype(np.float16)
    alone = af.run(small(), "m1", {"x": data[0]})
    np.testing.assert_array_equal(
        alone.outputs["y"], af.compile(small(), target="m1").run({"x": data[0]}).outputs["y"]
    )
    both = af.run(small(), "m1,m5", {"x": data})
    assert both.samples == 3
    assert both.seed is None
    np.testing.assert_array_equal(both["m1"].outputs["y"], alone.outputs["y"])
    assert both.comparison is not None
    assert both.comparison.to_json()["pairs"] == af.compare(small(), "m1,m5", {"x": data}).to_json()["pairs"]
    batch = af.run(small(), "m1", {"x": data}, batch=True)
    np.testing.assert_array_equal(batch.outputs["y"][0], alone.outputs["y"])
    assert batch.only.batch == 3


def test_inputs_are_drawn_read_or_given(tmp_path):
    graph = af.Graph.of(small())
    data = np.ones((2, 1, 4, 6, 6), np.float16)
    np.savez(tmp_path / "x.npz", x=data)
    assert len(list(samples_of(graph, str(tmp_path / "x.npz")))) == 2
    assert len(list(samples_of(graph, tmp_path / "x.npz", samples=1))) == 1
    assert len(list(samples_of(graph, samples=5))) == 5
    assert len(list(samples_of(graph, [{"x": data[0]}, {"x": data[1]}], samples=1))) == 1
    one, other = (next(samples_of(graph, seed=seed))["x"] for seed in (0, 1))
    assert not np.array_equal(one, other)
    for settings, told in (
        ({"inputs": data[0], "seed": 1}, "seed: it draws the inputs"),
        ({"inputs": data[0], "samples": 2}, "samples: 2 were asked for, and inputs holds 1"),
        ({"seed": 1.5}, "seed: 1.5 is not a seed"),
        ({"samples": True}, "samples: True is not a count"),
    ):
        with pytest.raises(ArgumentError, match=told):
            list(samples_of(graph, **settings))


# Words.


def test_a_word_has_one_meaning():
    """``mode`` is the speed setting, ``fidelity`` how far a number can be trusted, ``route`` how a program reaches a
    chip: no public function has a parameter or a result that says otherwise."""
    for name in af.__all__:
        thing = getattr(af, name)
        if inspect.isfunction(thing):
            assert "fidelity" not in inspect.signature(thing).parameters, name
    assert af.compile(small(), target="m1", mode="fast").mode == "fast"
    assert af.compare(small(), "m1,m5", mode="fast").to_json()["mode"] == "fast"
    assert af.check(small(), "m1").route == af.compile(small(), target="m1").route == "conversion"
    with pytest.raises(ArgumentError, match="mode: 'quick' is not a mode; choose one: exact, fast"):
        af.run(small(), "m1", mode="quick")


def test_the_command_line_names_the_option_that_is_wrong(net, capsys, monkeypatch):
    from aneforge.cli import main

    for words, told in (
        (["run", net, "--mode", "quick"], "aneforge: --mode: 'quick' is not a mode; choose one: exact, fast."),
        (["run", net, "--seed", "-1"], "aneforge: --seed: -1 is not a seed; give a whole number, 0 or more."),
        (["check", net, "--fail-on", "x"], "aneforge: --fail-on: 'x' is not a list of outcomes. Choose from: reject"),
    ):
        monkeypatch.setattr("sys.argv", ["aneforge", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert capsys.readouterr().err.startswith(told)


def test_doctor_lists_every_variable_that_is_read():
    package = Path(af.__file__).parent
    read = set()
    for file in package.rglob("*.py"):
        if file.name != "settings.py":
            read |= set(re.findall(r"[\"'](ANEFORGE_[A-Z_]*[A-Z])[\"']", file.read_text(encoding="utf-8")))
            read |= set(re.findall(r"environ\.get\(\"([A-Z_]+)\"", file.read_text(encoding="utf-8")))
    assert {"ANEFORGE_TARGET", "ANEFORGE_TRACEBACK", "ANEFORGE_THREADS", "NO_COLOR"} <= read
    limits = {name for name in SETTINGS if name.startswith("ANEFORGE_MAX_")}
    assert set(SETTINGS) - limits == read
    from aneforge.files import LIMITS

    assert limits == {f"ANEFORGE_MAX_{name.upper()}" for name in LIMITS}
    told = CliRunner().invoke(app, ["doctor"]).stdout
    assert all(name in told for name in SETTINGS)


def test_install_hints_name_the_distribution():
    """The bare name in the package index is another project's."""
    tomllib = pytest.importorskip("tomllib")

    from aneforge.errors import DISTRIBUTION, install_hint

    root = Path(af.__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION == "aneforge-compiler"
    assert project["scripts"] == dict.fromkeys(("aneforge", DISTRIBUTION), "aneforge.cli:main")
    assert install_hint("onnx") == "pip install 'aneforge-compiler[onnx]'"
    hints = 0
    for file in (root / "aneforge").rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        if file.name != "errors.py":
            assert "pip install" not in source, file
        for extra in re.findall(r"install_hint\('([\w-]+)'\)", source):
            assert extra in project["optional-dependencies"], file
            hints += 1
    assert hints == 18

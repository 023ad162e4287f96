"""The package as it is taken home: its wheels, the other project's package beside it, and the files for CI, run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import wheels
from onnx import TensorProto, helper
from packaging.requirements import Requirement

import hatch_build
from aneforge.cli import doctor
from aneforge.errors import DISTRIBUTION, foreign_package
from aneforge.sim.native import library

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parent.parent
CI = ROOT / "examples" / "ci"


# Wheels.


def test_the_build_and_the_package_name_the_kernel_alike():
    assert hatch_build.library_name() == library.library_name()
    assert hatch_build.SOURCES == library._SOURCES
    assert not re.search(r"3\.?\d+|cp3", hatch_build.library_name())  # every Python of the machine loads it


@pytest.mark.parametrize(
    ("name", "tag"),
    [("linux-x86_64", "linux_x86_64"), ("macosx-11.0-arm64", "macosx_11_0_arm64"), ("win-amd64", "win_amd64")],
)
def test_a_wheel_is_for_every_python_of_a_platform(monkeypatch, name, tag):
    monkeypatch.setattr("sysconfig.get_platform", lambda: name)
    assert hatch_build.platform_tag() == tag


def test_a_wheel_is_for_the_processor_it_was_compiled_on(monkeypatch):
    monkeypatch.setattr("sysconfig.get_platform", lambda: "macosx-11.0-universal2")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert hatch_build.platform_tag() == "macosx_11_0_arm64"


def test_the_oldest_and_the_newest_python_are_tried():
    found = wheels.pythons()
    assert 1 <= len(found) <= 2
    assert all(Path(place).exists() or place.startswith("python") for place in found)


@pytest.mark.long
def test_wheels_install_into_empty_environments():
    wheels.build()
    names = [file.name for file in (ROOT / "dist").glob("*.whl")]
    assert sum("-py3-none-any" in name for name in names) == 1
    for name in names:
        with zipfile.ZipFile(ROOT / "dist" / name) as archive:
            files = archive.namelist()
        assert "aneforge/py.typed" in files
        assert any("/_mac." in file for file in files) == ("-any" not in name)
    wheels.attempt()


# The other project's package.


def test_a_foreign_package_in_the_same_folder_is_told_once_at_import(tmp_path):
    (tmp_path / "aneforge").symlink_to(ROOT / "aneforge")
    (tmp_path / "aneforge-0.4.0.dist-info").mkdir()
    (tmp_path / "aneforge_compiler-0.1.0.dist-info").mkdir()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import aneforge; import aneforge.errors"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr.count("the package aneforge 0.4.0 of another project is installed") == 1
    assert f"pip uninstall aneforge, then pip install --force-reinstall {DISTRIBUTION}" in done.stderr
    (tmp_path / "aneforge-0.4.0.dist-info").rmdir()
    quiet = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert not quiet.stderr
    assert not foreign_package(str(tmp_path / "nowhere"))


def test_doctor_sees_a_foreign_package(tmp_path, monkeypatch):
    record = tmp_path / "aneforge-0.4.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: aneforge\nVersion: 0.4.0\n")
    assert "other package" not in {row.what for row in doctor.examine()["versions"]}
    monkeypatch.syspath_prepend(tmp_path)
    (row,) = [row for row in doctor.examine()["versions"] if row.what == "other package"]
    assert (row.value, row.ok) == ("aneforge 0.4.0", False)
    assert "one environment for each" in row.why


# Files for CI, run as a runner would: pip and gh are stand-ins that write down what they were asked.


def model(path, extra=False):
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="act")]
    nodes += [helper.make_node("TopK", ["a", "k"], ["y", "i"], name="best")] if extra else []
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 16))]
    outs = [helper.make_tensor_value_info("y" if extra else "a", TensorProto.FLOAT, None)]
    weights = [onnx.numpy_helper.from_array(np.array([5]), "k")] if extra else []
    graph = helper.make_graph(nodes, "g", ports, outs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with a model at its first commit, and a PATH with stand-ins."""
    for name in ("pip", "gh"):
        stand_in = tmp_path / "bin" / name
        stand_in.parent.mkdir(exist_ok=True)
        stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/{name}.txt"\n')
        stand_in.chmod(0o755)
    place = tmp_path / "repository"
    place.mkdir()
    monkeypatch.chdir(place)
    places = (tmp_path / "bin", Path(sys.executable).parent, os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, places)))
    model(place / "model.onnx")
    for words in ("init -q -b main", "add .", "-c user.name=a -c user.email=a@b commit -q -m first"):
        subprocess.run(["git", *words.split()], check=True)
    return place


def shell(command, **environ):
    return subprocess.run(
        ["bash", "-e", "-c", command], capture_output=True, text=True, check=False, env={**os.environ, **environ}
    )


def test_the_workflow_runs(repository):
    workflow = yaml.safe_load((CI / "aneforge.yml").read_text())
    commands = [step["run"] for step in workflow["jobs"]["aneforge"]["steps"] if "run" in step]
    assert shell("aneforge ci record model.onnx --target m1,m5 -q").returncode == 0
    environ = {name: str(value) for name, value in workflow["env"].items()}
    for command in commands:
        done = shell(command, **environ)
        assert done.returncode == 0, done.stderr
    asked = (repository.parent / "pip.txt").read_text().split()
    assert asked[0] == "install"
    assert Requirement(asked[1]).name == DISTRIBUTION
    assert (repository / "aneforge.sarif").exists()
    model(repository / "model.onnx", extra=True)
    assert shell(commands[-1], **environ).returncode == 1


def test_the_action_compares_and_comments(repository):
    action = yaml.safe_load((CI / "action.yml").read_text())
    steps = [step for step in action["runs"]["steps"] if "run" in step]
    assert {step["shell"] for step in steps} == {"bash"}
    model(repository / "model.onnx", extra=True)
    environ = {"MODELS": "model.onnx", "TARGET": "m1,m5", "BASE": "HEAD", "NUMBER": "7", "GH_TOKEN": "none"}
    environ |= {"REQUIREMENT": action["inputs"]["requirement"]["default"], "GITHUB_STEP_SUMMARY": "summary.md"}
    for step in steps:
        assert set(step.get("env", {})) <= set(environ)
        done = shell(step["run"], **environ)
        assert done.returncode == 0, done.stderr
    assert Requirement((repository.parent / "pip.txt").read_text().split()[1]).name == DISTRIBUTION
    said = (repository.parent / "gh.txt").read_text().split()
    assert said[:3] == ["pr", "comment", "7"]
    comment = (repository / said[said.index("--body-file") + 1]).read_text()
    assert "(topk): rejected" in comment
    assert comment == (repository / "summary.md").read_text()


def test_the_hooks_run(repository):
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    for hook in hooks.values():
        assert re.search(hook["files"], "a/model.onnx")
        assert hook["language"] == "python"
    entry = hooks["aneforge-compare"]["entry"]
    model(repository / "model.onnx", extra=True)
    done = shell(f"{entry} model.onnx")
    assert done.returncode == 0, done.stderr
    assert "(topk): rejected" in done.stdout
    check = hooks["aneforge-check"]["entry"]
    assert shell(f"{check} model.onnx").returncode == 2  # no baseline yet
    shell("git checkout -q model.onnx && aneforge ci record model.onnx --target m1 -q")
    assert shell(f"{check} model.onnx").returncode == 0
    model(repository / "model.onnx", extra=True)
    assert shell(f"{check} model.onnx").returncode == 1


def test_a_comparison_with_a_commit(repository):
    model(repository / "new.onnx")
    done = shell("aneforge ci compare new.onnx model.onnx --target m1")
    assert done.stdout.startswith("`new.onnx` is new since HEAD.")
    assert shell("aneforge ci compare model.onnx --base nowhere").returncode == 2
    assert "--base nowhere: not a commit" in shell("aneforge ci compare model.onnx --base nowhere").stderr
    assert "--base --output=x: not a commit" in shell("aneforge ci compare model.onnx --base=--output=x").stderr
    assert "not a file" in shell("aneforge ci compare absent.onnx").stderr
    assert '"model.onnx"' in shell("aneforge ci compare model.onnx --target m1 --json").stdout


def test_what_pages_install_is_this_distribution():
    """The bare name is another project's."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *CI.glob("*.yml")]:
        text = page.read_text(encoding="utf-8")
        for quoted in re.findall(r"pip install (?:-\S+ )*['\"]([a-z][\w.-]*)(?=[\['\"])", text):
            assert quoted in (DISTRIBUTION, "torch"), f"{page.name}: {quoted}"
        assert not re.search(r"pip install aneforge\b(?!-)", text), page.name

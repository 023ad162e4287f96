"""Which models a sweep is of: paths, patterns, folders and manifests."""

from __future__ import annotations

from pathlib import Path

import pytest
import sweep_kit

from aneforge.errors import AneforgeError
from aneforge.reports.sweep.plan import models_of

EXAMPLES = sweep_kit.ROOT / "examples"
CHIPS = "m1,m5"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_models_come_from_paths_patterns_folders_and_manifests(home):
    for name in ("a.onnx", "b.mlmodel", "deep/c.pt2", "deep/d.aneforge", "deep/notes.txt", "deep/run.py"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text("x")
    (home / "deep" / "e.mlpackage" / "Data").mkdir(parents=True)
    (home / "deep" / "e.mlpackage" / "Data" / "inner.mlmodel").write_text("x")

    def paths(*named):
        return [model.path for model in models_of(named)]

    assert paths("a.onnx", "b.mlmodel", "a.onnx") == ["a.onnx", "b.mlmodel"]
    assert paths("*.onnx") == ["a.onnx"]
    assert paths("**/*.pt2") == ["deep/c.pt2"]
    assert paths("deep") == ["deep/c.pt2", "deep/d.aneforge", "deep/e.mlpackage"]  # and no Python file
    assert paths("deep/e.mlpackage") == ["deep/e.mlpackage"]
    assert paths("*") == ["a.onnx", "b.mlmodel", "deep/c.pt2", "deep/d.aneforge", "deep/e.mlpackage"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("zoo.json", '[{"path": "a.onnx", "revision": 7, "dims": {"n": 2, "m": 3}}, "b.onnx"]'),
        ("zoo.json", '{"models": [{"path": "a.onnx", "revision": "7", "sizes": "m=3,n=2"}, {"path": "b.onnx"}]}'),
        ("zoo.jsonl", '{"path": "a.onnx", "revision": "7", "dims": {"n": 2, "m": 3}}\n\n{"path": "b.onnx"}\n'),
        ("zoo.csv", 'path,revision,dims\na.onnx,7,"n=2,m=3"\nb.onnx,,\n'),
        ("zoo.csv", "\ufeffpath,revision,sizes\na.onnx,7,n=2;m=3\nb.onnx,,\n"),
    ],
)
def test_a_manifest_has_paths_revisions_and_sizes(home, name, text):
    (home / "lists").mkdir()
    (home / "lists" / name).write_text(text, encoding="utf-8")
    first, second = models_of([f"lists/{name}"])
    assert (first.path, first.revision, first.dims, first.sizes) == ("a.onnx", "7", {"n": 2, "m": 3}, "m=3,n=2")
    assert (second.path, second.revision, second.dims) == ("b.onnx", "", {})
    assert first.file == Path("lists/a.onnx")  # relative to the manifest
    assert models_of([f"lists/{name}"], {"k": 1})[1].dims == {"k": 1}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("zoo.json", '["a.onnx",\n\n 1]', "zoo.json:3: expected a record such as"),
        (
            "zoo.json",
            "{}",
            "zoo.json: not a manifest (expected a list of models, or a record with one",
        ),
        ("zoo.json", '{"models": 3}', "zoo.json: not a manifest (expected a list of models)"),
        ("zoo.json", '[\n{"path": "a",}]', "zoo.json:2: not a manifest"),
        ("zoo.json", '{"a": [1],\n"models": [{},\n{}]}', "zoo.json:2: key 'path' is missing"),
        ("zoo.json", '[{"path": "a"},\n{"path": "a", "color": "red"}]', "zoo.json:2: key 'color' is not known"),
        ("zoo.json", '[{"path": 3}]', "zoo.json:1: key 'path' is 3; expected text"),
        ("zoo.json", '[{"path": "a", "function": 3}]', "zoo.json:1: key 'function' is 3; expected text"),
        ("zoo.json", '[{"path": "a", "revision": null}]', "zoo.json:1: key 'revision' is null; expected text or"),
        ("zoo.json", '[{"path": "a", "dims": {"n": 0}}]', "zoo.json:1: key 'dims' is {\"n\": 0}; expected sizes"),
        ("zoo.json", '[{"path": "a", "dims": "n=1", "sizes": "n=2"}]', "keys 'dims' and 'sizes' mean the same"),
        ("zoo.csv", 'path,dims\n"a\nb",n=1\na,n=x\n', "zoo.csv:4: key 'dims' is \"n=x\"; expected sizes by name"),
        ("zoo.csv", "path,dims\na,n=1,m=2\n", "zoo.csv:2: more cells than the first line has columns"),
        ("zoo.csv", "path,color\na,red\n", "zoo.csv:2: key 'color' is not known"),
        ("zoo.jsonl", '{"path": "a"}\n\n{"path": }\n', "zoo.jsonl:3: not a manifest (Expecting value)"),
        ("zoo.jsonl", '{"path": "a"}\n[]', "zoo.jsonl:2: expected a record"),
        ("zoo.jsonl", "[" * 200_000, "zoo.jsonl: not a manifest"),
    ],
)
def test_a_wrong_manifest_tells_file_line_and_key(home, name, text, message):
    (home / name).write_text(text)
    with pytest.raises(AneforgeError) as told:
        models_of([name])
    assert message in str(told.value)


def test_a_manifest_that_is_a_folder_is_one_line(home):
    (home / "zoo.json").mkdir()
    with pytest.raises(AneforgeError, match=r"zoo.json: the manifest cannot be read \(Is a directory\)"):
        models_of(["zoo.json"])


def test_names_that_stand_for_no_models_are_refused(home):
    (home / "empty").mkdir()
    refused = (("*.onnx", "matches no file"), ("empty", "has no model files"), ("zoo.csv", "No such file"))
    for name, told in refused:
        with pytest.raises(AneforgeError, match=told):
            models_of([name])

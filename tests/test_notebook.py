"""What a notebook shows: the example notebook cell by cell, results as tables and frames, pictures; typed names."""

from __future__ import annotations

import doctest
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import aneforge as af
from aneforge import frames

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def cells():
    document = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == "code"]


def shown(code, scope):
    """Run a cell as a notebook does: the value of the last expression is shown."""
    *lines, last = code.rstrip().split("\n")
    try:
        compile(last, "cell", "eval")
    except SyntaxError:
        exec(code, scope)  # noqa: S102 - the notebook is ours
        return None
    exec("\n".join(lines), scope)  # noqa: S102
    return eval(last, scope)  # noqa: S307


class Page(HTMLParser):
    """The tags of a fragment, which must be closed in order."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.rows = [], [], 0
        self.feed(source)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_cell_of_the_example_runs_and_shows_something(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("ci"))
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "__main__"}
    values = [shown(code, scope) for code in cells()]
    pages = [value._repr_html_() for value in values if hasattr(value, "_repr_html_")]
    assert len(pages) >= 6
    for page in pages:
        Page(page)
    pictures = [value._repr_svg_() for value in values if hasattr(value, "_repr_svg_")]
    assert len(pictures) == 2
    assert all(ElementTree.fromstring(picture).tag.endswith("svg") for picture in pictures)  # noqa: S314 - ours
    assert (tmp_path / "timeline.svg").read_text() == scope["timeline"].svg
    assert len(scope["frame"]) == len(scope["times"])


def small():
    return (af.input((1, 8, 16, 16), name="x", max_abs=300).square() * 4.0).mean((2, 3))


def test_a_report_is_its_page_in_a_frame():
    report = af.report(small(), "m1", changes=0)
    (frame,) = Page(report._repr_html_()).tags
    assert frame[0] == "iframe"
    (page,) = report.written("html", Path("x.html")).values()
    assert frame[1]["srcdoc"] == page
    assert frame[1]["title"].startswith("report of ")


def results():
    out = small()
    return {
        "check": af.check(out, "m1,m5"),
        "estimates": af.estimate_all(out, "m1,m5", changes=0),
        "estimate": af.compile(out, target="m1").estimate(),
        "compare": af.compare(out, "m1,m5"),
        "risks": af.risks(out, "m1,m5"),
        "program": af.compile(out, target="m1").program,
        "report": af.report(out, "m1", changes=0),
    }


def test_results_are_tables_and_frames():
    pyarrow = pytest.importorskip("pyarrow")
    for name, result in results().items():
        records = result.records()
        assert records, name
        assert all(list(record) == list(records[0]) for record in records)
        table = result.to_frame("pyarrow")
        assert isinstance(table, pyarrow.Table)
        assert (table.num_rows, table.column_names) == (len(records), list(records[0]))
        tags = [tag for tag, _ in Page(result._repr_html_()).tags]
        if name != "report":
            assert tags.count("tr") == len(records) + 1


def test_a_table_says_the_numbers_of_the_result():
    out = small()
    (row,) = af.estimate_all(out, "m1", changes=0).records()
    assert row["us"] == af.estimate_all(out, "m1", changes=0)["m1"].us
    assert af.check(out, "m1").records()[0]["verdict"] == af.check(out, "m1").verdicts["m1"]
    program = af.compile(out, target="m1").program
    assert [row["op"] for row in program.records()] == [layer.op for layer in program.layers]


def test_frames_of_pandas_where_it_is_installed():
    pandas = pytest.importorskip("pandas")
    frame = af.check(small(), "m1,m5").to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["chip"]) == ["M1", "M5"]


def test_no_library_of_frames_is_one_clear_message(monkeypatch):
    monkeypatch.setattr(frames, "find_spec", lambda name: None)
    with pytest.raises(af.AneforgeError, match=r"pandas or pyarrow is not installed\. Install it, or use records\(\)"):
        af.check(small(), "m1").to_frame()
    with pytest.raises(af.AneforgeError, match="'polars' is unknown; choose one: pandas, pyarrow"):
        af.check(small(), "m1").to_frame("polars")


def test_names_of_strangers_cannot_act_in_a_notebook():
    bad = "<script>alert(1)</script>\x1b[31m"
    page = frames.html_of(bad, [{"node": bad, "us": 1.5, "none": None}])
    assert "<script" not in page
    assert "\x1b" not in page
    Page(page)
    many = frames.html_of("t", [{"n": number} for number in range(frames.MOST_ROWS + 7)])
    assert many.count("<tr>") == frames.MOST_ROWS + 1
    assert "and 7 more rows" in many


def test_pictures_are_objects(tmp_path):
    picture = af.plot(small(), "roofline", "m1,m5")
    assert picture.save(tmp_path / "roof.svg").read_text() == picture.svg
    assert "M5" in picture.svg
    with pytest.raises(af.AneforgeError, match=r"pictures are SVG; give a name that ends in \.svg"):
        picture.save(tmp_path / "roof.png")
    with pytest.raises(ValueError, match="'pie' is not a kind of picture; choose one: roofline, timeline, chips"):
        af.plot(small(), "pie")


def test_examples_of_docstrings_give_what_they_say():
    names = [name for name in af.__all__ if inspect.isfunction(getattr(af, name))]
    with_examples = {name for name in names if ">>>" in (inspect.getdoc(getattr(af, name)) or "")}
    assert with_examples >= {"check", "compare", "compile_all", "estimate_all", "partition", "plot", "risks", "run"}
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    for name in sorted(with_examples):
        for test in finder.find(getattr(af, name), f"af.{name}"):
            assert runner.run(test).failed == 0, name


TYPED = """
import aneforge as af

x = af.input((1, 2))
reveal_type(af.check(x, "m1"))
reveal_type(af.report(x))
reveal_type(af.conv(x, 0).relu())
reveal_type(af.ops.maximum(x, x))
reveal_type(af.autograd.Trainer)
reveal_type(af.plot(x))
"""


def test_type_checkers_see_the_public_names(tmp_path):
    assert (ROOT / "aneforge" / "py.typed").exists()
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(file)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )
    messages = [entry["message"] for entry in json.loads(done.stdout)["generalDiagnostics"]]
    kinds = [re.search(r'is "(.*)"$', message)[1] for message in messages]
    assert kinds == ["Check", "Report", "Tensor", "Tensor", "type[Trainer]", "Picture"]

"""Inputs that may have several shapes: every one that a file lists, both ends of a range, and where answers change."""

from __future__ import annotations

import numpy as np
import pytest
from cli_kit import run

from aneforge.errors import AneforgeError
from aneforge.formats.shapes import shapes_of
from aneforge.study.shapes import check_shapes, open_shapes

ct = pytest.importorskip("coremltools")
ROWS = (4, 128, 20000)
# The converter keeps a temporary package, whose removal warns when the interpreter clears it late.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def package(path, shape):
    """A linear layer and a relu over rows of eight features."""
    from coremltools.converters.mil import Builder, get_new_symbol

    @Builder.program(input_specs=[Builder.TensorSpec((get_new_symbol(), 8))], opset_version=ct.target.iOS17)
    def program(x):
        return Builder.relu(x=Builder.linear(x=x, weight=np.ones((16, 8), np.float32)), name="y")

    inputs = [ct.TensorType(name="x", shape=shape)]
    settings = {"minimum_deployment_target": ct.target.iOS17, "skip_model_load": True}
    ct.convert(program, inputs=inputs, compute_precision=ct.precision.FLOAT16, **settings).save(str(path))
    return str(path)


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    shapes = ct.EnumeratedShapes([[rows, 8] for rows in ROWS], default=[4, 8])
    return package(tmp_path_factory.mktemp("listed") / "listed.mlpackage", shapes)


@pytest.fixture(scope="module")
def ranged(tmp_path_factory):
    shape = ct.Shape((ct.RangeDim(1, 20000, default=4), 8))
    return package(tmp_path_factory.mktemp("ranged") / "ranged.mlpackage", shape)


def test_every_listed_shape_is_judged_and_the_worst_decides(listed):
    report = check_shapes(listed, "m1,m5")
    verdicts = {point.sizes["x[0]"]: check.verdicts for point, check in report.checks}
    both = {"m1": "yes", "m5": "yes"}
    assert verdicts == {4: both, 128: both, 20000: {"m1": "no", "m5": "yes"}}
    assert not report.ok
    assert [shape["sizes"] for shape in report.to_json()["shapes"]] == [{"x[0]": rows} for rows in ROWS]


def test_the_command_says_no_for_the_largest_shape(listed, monkeypatch, capsys):
    status, text, _ = run(f"check {listed} --target m1", monkeypatch, capsys)
    assert status == 1
    assert "20000" in text
    assert "16384" in text


def test_both_ends_of_a_range_and_the_limit_inside(ranged):
    report = check_shapes(ranged, "m1")
    assert {point.role for point, _ in report.checks} == {"default", "smallest", "largest"}
    (boundary,) = report.boundaries
    assert (boundary.name, boundary.last, boundary.verdict, boundary.then) == ("x[0]", 16384, "yes", "no")


def test_a_range_that_is_asked_for_is_judged_at_its_ends(ranged):
    report = check_shapes(ranged, "m1", dims={"x[0]": (1, 512)})
    assert {point.sizes["x[0]"] for point, _ in report.checks} == {1, 4, 512}
    assert report.ok
    assert report.boundaries == []


def test_one_size_is_one_shape(listed):
    assert open_shapes(listed, {"x[0]": 128}, None) is None


@pytest.mark.parametrize("dims", [{"x[0]": (1, 30000)}, {"y": (1, 2)}])
def test_a_shape_outside_the_file_is_refused_in_one_line(ranged, dims):
    with pytest.raises(AneforgeError) as refused:
        check_shapes(ranged, "m1", dims=dims)
    assert "\n" not in str(refused.value)


def test_the_header_says_which_shapes_there_are(listed, ranged):
    assert shapes_of(listed).kind == "enumerated"
    assert shapes_of(ranged).kind == "range"

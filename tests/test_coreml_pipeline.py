# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Pipelines of Core ML: several models in one file."""

from __future__ import annotations

import numpy as np
import pytest
from coreml_kit import ct, mb, package

import aneforge as af
from aneforge.errors import LoadError


def stage(folder, build, name, output, shape=(1, 3, 4, 4)):
    folder = folder / output
    folder.mkdir()
    place = package(folder, lambda x: build(x=x, name=output), [np.zeros(shape, np.float32)])
    specification = ct.utils.load_spec(str(place))
    ct.utils.rename_feature(specification, "x", name, rename_outputs=False)
    return specification


def pipeline(folder, *stages):
    whole = ct.proto.Model_pb2.Model()
    whole.specificationVersion = max(each.specificationVersion for each in stages)
    whole.description.input.extend(stages[0].description.input)
    whole.description.output.extend(stages[-1].description.output)
    for each in stages:
        whole.pipeline.models.add().CopyFrom(each)
    whole.pipeline.names.extend(["first", "second"][: len(stages)])
    path = folder / "pipeline.mlmodel"
    path.write_bytes(whole.SerializeToString())
    return path


def two_stages(folder):
    return pipeline(folder, stage(folder, mb.relu, "image", "middle"), stage(folder, mb.sigmoid, "middle", "score"))


def test_stages_that_are_networks_are_one_graph(tmp_path):
    path = pipeline(
        tmp_path, stage(tmp_path, mb.relu, "image", "middle"), stage(tmp_path, mb.sigmoid, "middle", "score")
    )
    graph = af.load(path)
    assert [port.name for port in graph.inputs] == ["image"]
    assert [output.name for output in graph.outputs] == ["score"]
    data = np.linspace(-2, 2, 48).reshape(1, 3, 4, 4)
    np.testing.assert_allclose(af.evaluate(graph.outputs[0], [data]), 1 / (1 + np.exp(-np.maximum(data, 0))))


@pytest.mark.parametrize("which", ["second", "1"])
def test_one_stage_can_be_chosen(tmp_path, which):
    path = pipeline(
        tmp_path, stage(tmp_path, mb.relu, "image", "middle"), stage(tmp_path, mb.sigmoid, "middle", "score")
    )
    assert [node.op for node in af.load(path, function=which).operations] == ["sigmoid"]
    with pytest.raises(LoadError, match=r"no stage 'third'; choose one: 'first' \(mlProgram\), 'second'"):
        af.load(path, function="third")


def test_a_stage_that_no_engine_runs_is_named(tmp_path):
    last = ct.proto.Model_pb2.Model()
    last.specificationVersion = 4
    last.nonMaximumSuppression.SetInParent()
    path = pipeline(tmp_path, stage(tmp_path, mb.relu, "image", "middle"), last)
    with pytest.raises(LoadError, match=r"not a network \('second'\).*function='first'"):
        af.load(path)
    assert [node.op for node in af.load(path, function="first").operations] == ["relu"]


def test_stages_must_fit(tmp_path):
    wrong = stage(tmp_path, mb.sigmoid, "middle", "score", (1, 3, 4, 5))
    path = pipeline(tmp_path, stage(tmp_path, mb.relu, "image", "middle"), wrong)
    with pytest.raises(LoadError, match="'middle' leaves one stage as"):
        af.load(path)


def test_sizes_and_values_that_no_stage_has_are_refused(tmp_path):
    path = two_stages(tmp_path)
    with pytest.raises(LoadError, match="no stage of the pipeline has an input for 'nothing'"):
        af.load(path, fixed={"nothing": np.zeros(1)})

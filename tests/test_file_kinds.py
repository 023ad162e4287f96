# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
"""Files as people have them: compiled models, parts of packages, and files that are refused with what to do."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coreml_kit import mb, numbers, package

import aneforge as af
from aneforge.errors import LoadError
from aneforge.formats.kinds import REFUSED

X = numbers(1, 4, 6, 8)
INNER = "Data/com.apple.CoreML"

COMPILED = """program(1.0)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-component-MIL", "5.33.5"}, {"coremltools-version",
"9.0"}})]
{
    func main<ios17>(tensor<fp16, [1, 4, 6, 8]> x) {
            tensor<int32, [2]> st = const()[name = tensor<string, []>("st"), val = tensor<int32, [2]>([1, 1])];
            tensor<fp16, [32, 4, 3, 3]> w = const()[name = tensor<string, []>("w"), val = tensor<fp16, [32, 4, 3, 3]>(
            BLOBFILE(path = tensor<string, []>("@model_path/weights/weight.bin"), offset = tensor<uint64, []>(64)))];
            tensor<string, []> pt = const()[name = tensor<string, []>("pt"), val = tensor<string, []>("valid")];
            tensor<fp16, [1, 32, 4, 6]> y = conv(pad_type = pt, strides = st, weight = w, x = x)[name = tensor<string,
                []>("y")];
    } -> (y);
}
"""


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A package with a weight file, of which ``COMPILED`` is the program."""

    def build(x: Any) -> Any:
        return mb.conv(x=x, weight=numbers(32, 4, 3, 3).astype(np.float16), pad_type="valid", name="y")

    return package(tmp_path, lambda x: build(mb.cast(x=x, dtype="fp16")), [X])


def answer(model: Path) -> np.ndarray:
    return af.evaluate(af.load(model), [X])[0]


def test_a_compiled_model_is_read_like_its_package(whole: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "net.mlmodelc"
    shutil.copytree(whole / INNER / "weights", compiled / "weights")
    (compiled / "coremldata.bin").write_bytes(b"\0" * 64)
    (compiled / "model.mil").write_text(COMPILED)
    np.testing.assert_array_equal(answer(compiled), answer(whole))
    renamed = compiled.rename(tmp_path / "dropped")
    assert af.load(renamed).outputs[0].shape == (1, 32, 4, 6)
    (renamed / "weights/weight.bin").unlink()
    with pytest.raises(LoadError, match=r"^dropped: w \(const, line 7\): weight file .* does not exist"):
        af.load(renamed)


def test_a_compiled_model_without_a_program_says_what_it_is(tmp_path: Path) -> None:
    compiled = tmp_path / "net.mlmodelc"
    compiled.mkdir()
    with pytest.raises(LoadError, match=r"net.mlmodelc: not a compiled ML program \(no model.mil\). Give the"):
        af.load(compiled)
    (compiled / "coremldata.bin").write_bytes(b"")
    (compiled / "model.espresso.net").write_text("{}")
    with pytest.raises(LoadError, match=r"a compiled neural network, .* not published. Give the .mlmodel"):
        af.load(compiled)
    (compiled / "model0").mkdir()
    (compiled / "model0/coremldata.bin").write_bytes(b"")
    with pytest.raises(LoadError, match=r"a compiled pipeline of 1 models, .* one stage: net.mlmodelc/model0"):
        af.load(compiled)
    (compiled / "model.mil").symlink_to(__file__)
    with pytest.raises(LoadError, match=r"model.mil is a link out of the folder"):
        af.load(compiled)


def test_parts_of_a_package_are_known_by_what_is_in_them(whole: Path, tmp_path: Path) -> None:
    expected = answer(whole)
    np.testing.assert_array_equal(answer(whole / INNER), expected)
    np.testing.assert_array_equal(answer(whole / "Data"), expected)
    np.testing.assert_array_equal(answer(whole / INNER / "model.mlmodel"), expected)
    bare = whole.rename(tmp_path / "dropped")
    np.testing.assert_array_equal(answer(bare), expected)
    (bare / "Manifest.json").unlink()
    np.testing.assert_array_equal(answer(bare), expected)
    np.testing.assert_array_equal(answer(bare.rename(tmp_path / "again.mlpackage")), expected)


def test_a_model_file_reads_weights_beside_it_and_nothing_else(whole: Path, tmp_path: Path) -> None:
    inner = whole / INNER
    (inner / "weights").rename(inner / "other")
    (inner / "weights").mkdir()
    specification = inner / "model.mlmodel"
    specification.write_bytes(specification.read_bytes().replace(b"weights/weight.bin", b"./other/weight.bin"))
    with pytest.raises(LoadError, match=r"points outside the model"):
        af.load(specification)


@pytest.mark.parametrize("ending", sorted(REFUSED))
def test_files_that_are_not_read_say_what_to_do(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"model{ending}"
    file.write_bytes(b"\x80\x02stranger")
    with pytest.raises(LoadError, match=rf"^model{ending}: ") as caught:
        af.load(file)
    message = str(caught.value)
    assert "\n" not in message
    assert any(word in message for word in ("export", "Convert", "Give", "give"))
    if ending in (".pt", ".pth", ".safetensors"):
        assert "torch.export.save(torch.export.export(module.eval(), (example,)), 'model.pt2')" in message


def test_a_saved_graph_may_have_any_name(tmp_path: Path) -> None:
    af.Graph([af.input((2, 3), name="x").relu()]).save(tmp_path / "model.bin")
    assert af.load(tmp_path / "model.bin").outputs[0].shape == (2, 3)


def test_folders_that_are_no_model(tmp_path: Path) -> None:
    compiled = tmp_path / "net.aimodelc"
    compiled.mkdir()
    with pytest.raises(LoadError, match=r"compiled for one device; its format is not published, .* Give the .aimodel"):
        af.load(compiled)
    cache = tmp_path / "com.apple.e5rt.e5bundlecache" / "25G5028f"
    cache.mkdir(parents=True)
    with pytest.raises(LoadError, match=r"25G5028f: a cache that macOS keeps .* another system does not use it. Give"):
        af.load(cache)
    hugging = tmp_path / "bert"
    hugging.mkdir()
    with pytest.raises(LoadError, match=r"bert: is a folder, and no model was found in it; a model that is a folder"):
        af.load(hugging)
    (hugging / "config.json").write_text("{}")
    with pytest.raises(LoadError, match=r"bert: a folder of Hugging Face: .*torch.export.save"):
        af.load(hugging)

"""Damaged files of every kind: a reader answers or refuses with one line. ``make fuzz`` tries many more."""

from __future__ import annotations

import json
import random
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from fuzzing.campaign import campaign
from fuzzing.damage import _fields, _joined, damaged
from fuzzing.readers import READERS

import aneforge as af
from aneforge.codegen.anec import read_anec
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.decoding import decode
from aneforge.codegen.emission import emit
from aneforge.engine.ir import AnecError
from aneforge.engine.text import parse
from aneforge.errors import LoadError

FILES = 6


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_no_damaged_file_is_a_fault_of_ours(reader, monkeypatch):
    if reader.needs:
        pytest.importorskip(reader.needs)
    outcome = campaign(reader, 7, FILES)
    assert outcome.files > FILES
    assert not outcome.findings, [(finding.command, finding.what) for finding in outcome.findings]


def test_what_a_campaign_has_found_is_refused_by_what_is_wrong(tmp_path):
    onnx = pytest.importorskip("onnx")
    weight = onnx.numpy_helper.from_array(np.ones(4, np.float32), "w")
    ports = [onnx.helper.make_tensor_value_info(name, 1, [4]) for name in ("x", "y")]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weight]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("abcdefgh", 17)])
    file = tmp_path / "m.onnx"
    file.write_bytes(model.SerializeToString().replace(b"abcdefgh", b"\xff" * 8))
    with pytest.raises(LoadError, match="the domain of an opset import must be UTF-8 text"):
        af.load(file)
    model.opset_import[0].domain = ""
    model.graph.initializer[0].data_type = 65535
    file.write_bytes(model.SerializeToString())
    with pytest.raises(LoadError, match="weight 'w': element type 65535 is not in ONNX"):
        af.load(file)

    x = af.input((1, 8, 8, 8))
    program = af.compile(x + x, target="m1").program
    with pytest.raises(AnecError, match="a tensor type of 5,020 characters; 400 is the most"):
        parse(str(program.module).replace("8x8x8", f"{'9' * 5000}x8x8", 1))

    driver = read_anec(emit(program).to_anec())
    rows = [size if place % 6 != 2 else 0 for place, size in enumerate(driver.shapes)]
    with pytest.raises(ContainerError, match="an extent is below 1"):
        decode(replace(driver, shapes=tuple(rows)))


def test_damage_is_drawn_from_its_seed():
    document = json.dumps({"rows": [{"us": 1.5, "name": "a"}] * 5}).encode()
    one, other = ([damaged(document, random.Random(3)) for _ in range(20)] for _ in range(2))  # noqa: S311
    assert one == other
    assert len({*one, document}) > 1


def test_damage_to_messages_keeps_their_form():
    inner = _joined([(1, 0, 300), (2, 2, b"text"), (3, 5, b"1234")])
    message = _joined([(7, 2, inner), (8, 0, 2**64 - 1)])
    assert _fields(message) == [(7, 2, inner), (8, 0, 2**64 - 1)]
    assert _fields(b"\xff\xff") == []
    chance = random.Random(0)  # noqa: S311
    changed = [damaged(message, chance) for _ in range(300)]
    assert sum(bool(_fields(data)) for data in changed) > 100


def test_damage_to_archives_can_say_that_an_entry_is_encrypted(tmp_path):
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"x" * 40)
    chance, flags = random.Random(1), set()  # noqa: S311
    for _ in range(200):
        file.write_bytes(damaged(file.read_bytes() if zipfile.is_zipfile(file) else b"PK", chance))
        if zipfile.is_zipfile(file):
            try:
                with zipfile.ZipFile(file) as archive:
                    flags |= {info.flag_bits & 1 for info in archive.infolist()}
            except (zipfile.BadZipFile, OSError, ValueError):
                continue
    assert flags

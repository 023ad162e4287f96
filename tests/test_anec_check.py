"""Files of the Linux driver: every field that the driver reads against the tasks, and the buffers of tensors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from container_kit import NAMES, assembled
from test_emit import compiled, halves, image

import aneforge as af
from aneforge.codegen.anec import anec_of, read_anec
from aneforge.codegen.anec_check import check_fields, driver_lines
from aneforge.codegen.emission import emit
from aneforge.errors import AneforgeError, ArgumentError


def program(header=0x1000):
    x = image()
    y = (af.conv(x, halves(16, 16, 3, 3), pad=1).relu() + x).named("y")
    return anec_of(emit(compiled(y).program), False, header)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("h13")])
def test_published_programs_agree(name):
    assert all(check.agrees for check in check_fields(anec_of(assembled(name)))), name


@pytest.mark.parametrize("header", [0x1000, 0x800])
def test_both_headers_are_read_back(header):
    ours = program(header)
    data = ours.to_bytes()
    assert len(data) == header + len(ours.text) + len(ours.padding) + len(ours.constants)
    again = read_anec(data)
    assert (again.header_bytes, again.to_bytes()) == (header, data)
    (line,) = driver_lines(again)
    assert line.startswith("driver: all ")


def test_a_header_of_another_size_is_refused():
    with pytest.raises(AneforgeError, match="a header of 0x900 bytes"):
        program(0x900)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda a: {"first_task_bytes": a.first_task_bytes - 4}, None),
        (lambda a: {"tiles": (*a.tiles[:4], 0, *a.tiles[5:])}, "output in BAR 4: tiles: 0, expected 1 or more"),
        (lambda a: {"tiles": (0, *a.tiles[1:])}, "tiles of the program: 0, expected 1"),
        (lambda a: {"outputs": 0, "inputs": 1}, "task 1 writes BAR 4: input, expected output or scratch"),
        (
            lambda a: {"shapes": (*a.shapes[: 6 * 5 + 5], 8, *a.shapes[6 * 5 + 6 :])},
            "input in BAR 5: row of 8 halves: 8, expected 16 or more",
        ),
    ],
)
def test_a_field_that_does_not_agree_is_named(change, field):
    ours = program()
    changed = replace(ours, **change(ours))
    if field is None:
        with pytest.raises(AneforgeError):
            check_fields(changed)
        return
    assert field in [str(check) for check in check_fields(changed) if not check.agrees]
    assert any(field in line for line in driver_lines(changed))


def test_tensors_lie_in_their_strides():
    (_, source) = program().ports
    values = np.arange(16 * 64).astype(np.float16).reshape(source.shape)
    data = source.pack(values)
    assert len(data) == source.tiles * 0x4000
    halves_of = np.frombuffer(data, np.float16)
    assert halves_of[source.plane_bytes // 2 + source.row_bytes // 2 + 3] == values[0, 1, 1, 3]
    assert source.unpack(data).tobytes() == values.tobytes()
    with pytest.raises(ArgumentError, match="takes float16"):
        source.pack(values.astype(np.float32))
    with pytest.raises(ArgumentError, match="bytes, not 4"):
        source.unpack(b"1234")


def test_the_command_says_whether_the_fields_agree(tmp_path):
    out = tmp_path / "net.anec"

    def run(*words, status=0):
        command = [sys.executable, "-m", "aneforge", *map(str, words)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert result.returncode == status, result.stderr
        return result

    model = tmp_path / "net.py"
    model.write_text(
        "import aneforge as af\nx = af.input((1, 16, 8, 8), name='x')\nout = (x + x.sigmoid()).named('y')\n"
    )
    wrote = run("compile", model, "--target", "m1", "--out", out, "--driver-header", "0x800")
    assert "driver: all " in wrote.stderr
    assert read_anec(out).header_bytes == 0x800
    assert "driver: all " in run("inspect", out).stdout
    refused = run(
        "compile", model, "--target", "m1", "--out", tmp_path / "net.hwx", "--driver-header", "0x800", status=2
    )
    assert "--driver-header" in refused.stderr

"""``aneforge inspect`` as a user types it, and what it says of published programs."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from container_kit import NAMES, assembled, indexed, small_file

from aneforge.codegen.container import read_container
from aneforge.codegen.describe import differences, task_in_full, tree

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(*words: object, status: int = 0) -> str:
    command = [sys.executable, "-m", "aneforge", "inspect", *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == status, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr if status == 2 else result.stdout


@pytest.mark.parametrize("name", NAMES)
def test_the_tree_names_what_the_network_has(name):
    container = assembled(name)
    lines = list(tree(container))
    text = "\n".join(lines)
    assert lines[0].startswith(f"program for {container.generation}: ")
    for port in container.ports:
        assert f"{port.role} {port.name}: float16 {' x '.join(map(str, port.shape))}" in text
        assert any(line.startswith("  source:") or line.startswith("  second:") for line in lines)
        assert f"({port.name})" in text, "a task names the buffers that it reads and writes"
    assert ("planar engine" in text) == ("add" in name)
    wanted = {"add": "operation add", "conv": "convolution", "matmul": "result transposed", "sigmoid": "lookup table"}
    assert next(words for key, words in wanted.items() if key in name) in text
    if "conv" in name or "matmul" in name:
        assert "kernels: 16 streams" in text
    if "conv" in name:
        assert "kernel 3 x 3, stride 1 x 1, padding 1 above, 1 left" in text


@pytest.mark.parametrize("name", NAMES)
def test_a_task_in_full_shows_every_word(name):
    container = assembled(name)
    for number, task in enumerate(container.tasks):
        text = "\n".join(task_in_full(container, number))
        for address, value in task.writes:
            assert f"{address:#07x} {value:#010x}" in text
        for word in task.header_words:
            assert f"{word:#010x}" in text


def test_words_without_a_map_are_shown():
    container = read_container(small_file("h12", 1).to_bytes())
    assert "3 words without a known meaning" in "\n".join(tree(container))
    assert "not in the published map" in "\n".join(task_in_full(container, 0))


def test_a_task_in_full_shows_what_commands_add():
    text = "\n".join(task_in_full(assembled("h16__binary_add_1x3x224x224"), 0))
    assert "Src1BaseAddrLo" in text
    assert text.count("is added") == 6, "three addresses and three configurations"
    spare = indexed(0x40, [5])
    spare[0] |= 1 << 30
    odd = read_container(small_file("h16", 1, body=spare).to_bytes())
    assert "command bits 0x40000000 belong to no published field" in "\n".join(task_in_full(odd, 0))
    assert odd.tasks[0].words[-2:] == spare


def test_engines_are_named_where_they_are_known():
    lines = {name: list(tree(read_container(small_file(name, 1).to_bytes()))) for name in ("h11", "h12", "h13")}
    tasks = {name: next(line for line in found if line.startswith("task 0")) for name, found in lines.items()}
    assert ", MAC engine" in tasks["h11"]
    assert "engine" not in tasks["h12"]
    assert ", planar engine" in tasks["h13"]


def test_differences_are_named_and_only_they():
    one, other = (read_container(assembled("h16__binary_add_1x3x224x224").to_bytes()) for _ in range(2))
    assert differences(one, other) == []
    task = other.tasks[0]
    changed = next(command for command in task.commands if command.bar == 6)
    changed.bar = 7
    task.header_words[1] += 1
    cycles = one.tasks[0].header["ExeCycles"]
    assert differences(one, other) == [
        ("task 0 header ExeCycles", cycles, cycles + 1),
        (f"task 0 BAR added at {changed.address:#x}", 6, 7),
    ]
    spare = read_container(assembled("h16__binary_add_1x3x224x224").to_bytes())
    section = spare.section("__const", "__TEXT")
    assert section is not None
    spare.replace_contents(section, b"\1" + bytes(section.size - 1))
    ((name, left, right),) = differences(one, spare)
    assert name == "constants"
    assert left != right


def test_bytes_without_a_name_are_not_called_equal():
    data = assembled("h16__binary_add_1x3x224x224").to_bytes()
    place = read_container(data).text.offset - 8  # padding in front of the text
    other = data[:place] + b"\1" + data[place + 1 :]
    ((name, _, _),) = differences(read_container(data), read_container(other))
    assert name.startswith("bytes without a name")


def test_the_command_shows_a_program(tmp_path):
    file = tmp_path / "net.hwx"
    file.write_bytes(assembled("h13__conv_k3_c64_n64_s8_bias0").to_bytes())
    assert "kernel 3 x 3" in run(file)
    assert "Common" in run(file, "--task", 0)
    document = json.loads(run(file, "--json"))
    assert document["generation"] == "h13"
    assert document["tasks"][0]["registers"]["Common.InDim.Win"] == 8
    assert {row["confidence"] for row in document["tasks"][0]["writes"]} >= {"printer"}
    words = [word for line in run(file, "--raw").splitlines()[1:] for word in line.split()[1:]]
    assert [int(word, 16) for word in words] == read_container(file).tasks[0].words
    anec = tmp_path / "net.anec"
    anec.write_bytes(read_container(file).to_anec())
    assert "ANEC program for h13: 1 task" in run(anec)
    assert run(file, "--compare", file).strip() == "the programs are the same"
    assert "header ExeCycles" in run(file, "--compare", EXAMPLES / "add.hwx", status=1)
    changed = json.loads(run(file, "--compare", EXAMPLES / "add.hwx", "--json", status=1))["differences"]
    assert {"name", "left", "right", "rule"} == set(changed[0])


def test_mistakes_are_one_line(tmp_path):
    file = tmp_path / "net.hwx"
    file.write_bytes(assembled("h14__conv_k3_c64_n64_s8_bias0").to_bytes())
    assert "the program has 1 task" in run(file, "--task", 7, status=2)
    assert "leave out" in run(file, "--raw", "--json", status=2)
    assert "nowhere.hwx" in run(tmp_path / "nowhere.hwx", status=2)
    cut = tmp_path / "cut.hwx"
    cut.write_bytes(file.read_bytes()[:700])
    assert "cut.hwx: offset 0x" in run(cut, status=2)
    assert "cut.hwx: offset 0x" in run(file, "--compare", cut, status=2)
    assert "not a container" in run(EXAMPLES / "detector.onnx", status=2)


def test_names_of_strangers_are_not_obeyed(tmp_path):
    file = tmp_path / "net.hwx"
    file.write_bytes(small_file("h13", 1, ports=[("\x1b[31mred\nline", 1, (1, 1, 1, 1))]).to_bytes())
    text = run(file)
    assert "\x1b" not in text
    assert "input \\x1b[31mred\\nline: float16" in text


def test_the_examples_are_what_their_script_writes(tmp_path):
    script = runpy.run_path(str(EXAMPLES / "write_programs.py"))
    assert script["program"]("h13__binary_add_1x64x8x8", ("x", "z")) == (EXAMPLES / "add.hwx").read_bytes()
    assert script["program"]("h13__conv_k3_c64_n64_s8_bias0", ("x",)) == (EXAMPLES / "conv.hwx").read_bytes()

"""``aneforge mcp`` from the side of a client: eight tools over stdio, bounded answers, files of one folder only."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the server needs the package of the protocol")

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from aneforge.cli.app import app
from aneforge.cli.commands import FRONT
from aneforge.cli.mcp_server import bounded

ROOT = Path(__file__).resolve().parent.parent
MOST = 8000


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """One session: what the server lists, and what it answers."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("detector.onnx", "small.py"):
        shutil.copy(ROOT / "examples" / name, folder / name)
    asked = {
        "check": ("check", {"model": "detector.onnx", "target": "m1,m5"}),
        "fails": ("check", {"model": "nope.onnx"}),
        "outside": ("check", {"model": "../secret.onnx"}),
        "absolute": ("check", {"model": str(ROOT / "examples" / "detector.onnx")}),
        "option": ("check", {"model": "--help"}),
        "python": ("check", {"model": "small.py:out"}),
        "estimate": ("estimate", {"model": "detector.onnx", "target": "m1", "changes": 0}),
        "compare": ("compare", {"model": "detector.onnx", "target": "m2,m5", "any_input": True}),
        "risks": ("risks", {"model": "detector.onnx", "target": "m2"}),
        "compress": ("compress", {"model": "detector.onnx", "target": "m1", "encodings": "int8"}),
        "record": ("ci", {"model": "detector.onnx", "action": "record", "target": "m5"}),
        "ci": ("ci", {"model": "detector.onnx"}),
        "unknown": ("ci", {"model": "detector.onnx", "action": "delete"}),
        "report": ("report", {"model": "detector.onnx", "target": "m1"}),
        "page": ("report", {"model": "detector.onnx", "target": "m1", "page": "report.html"}),
        "model as page": ("report", {"model": "detector.onnx", "target": "m1", "page": "detector.onnx"}),
        "serve": ("serve", {"target": "m1"}),
    }
    found = {}

    async def talk():
        command = ["-m", "aneforge", "mcp", str(folder), "--max-answer", str(MOST)]
        transport = stdio_client(StdioServerParameters(command=sys.executable, args=command, cwd=folder))
        async with Client(transport) as client:
            found["tools"] = (await client.list_tools()).tools
            for name, (tool, arguments) in asked.items():
                result = await client.call_tool(tool, arguments)
                (content,) = result.content
                found[name] = content.text

    anyio.run(talk)
    return found, folder


def answer(answers, name):
    return json.loads(answers[0][name])


def test_the_eight_commands_in_front_are_tools(answers):
    tools = {tool.name: tool for tool in answers[0]["tools"]}
    assert list(tools) == list(FRONT)
    for tool in tools.values():
        assert len(tool.description) > 40
        properties = tool.input_schema["properties"]
        assert "target" in properties
        assert ("model" in properties) == (tool.name != "serve")


def test_answers_are_the_documents_of_the_commands(answers):
    found = answer(answers, "check")
    assert found["exit_status"] == 1
    assert found["verdicts"]["m5"] == "yes"
    assert found["verdicts"]["m1"].startswith("in part")
    assert answer(answers, "estimate")["estimates"]["m1"]["us"] > 0
    assert answer(answers, "compare")["exit_status"] == 0
    assert answer(answers, "risks")["targets"]["m2"]["risks"]
    assert answer(answers, "compress")["exit_status"] == 0
    assert answer(answers, "record")["exit_status"] == 0
    assert answer(answers, "ci")["exit_status"] == 0
    assert answer(answers, "serve")["url"].startswith("http://127.0.0.1:")


def test_answers_are_bounded_and_say_what_they_leave_out(answers):
    for name, text in answers[0].items():
        assert name == "tools" or len(text) <= MOST, name
    report = answer(answers, "report")
    assert report["chips"][0]["verdict"].startswith("in part")
    assert report["left_out"]
    assert "left_out" not in answer(answers, "check")


def test_files_are_those_of_the_folder(answers):
    for name in ("outside", "absolute"):
        assert "outside the folder of this server" in answer(answers, name)["error"]["message"]
    assert "Python files are run, not read" in answer(answers, "python")["error"]["message"]
    assert answer(answers, "fails")["error"]["problem"] == "no such file"
    assert answer(answers, "option")["error"]["problem"] == "no such file"
    assert answer(answers, "unknown")["error"]["do"] == "Choose one: record, check, update."
    assert answer(answers, "page") == {"exit_status": 0, "wrote": "report.html"}
    assert (answers[1] / "report.html").read_text().startswith("<!doctype html>")
    assert "is not a page" in answer(answers, "model as page")["error"]["message"]
    assert (answers[1] / "detector.onnx").read_bytes() == (ROOT / "examples" / "detector.onnx").read_bytes()


def test_long_lists_lose_their_ends():
    document = {"rows": [{"names": ["name"] * 50}] * 400, "ok": True}
    text = bounded(document, 4000)
    assert len(text) <= 4000
    cut = json.loads(text)
    kept = len(cut["rows"])
    assert cut["ok"]
    assert cut["left_out"]["rows[]"] == 400 - kept
    assert bounded({"ok": True}, 4000) == '{"ok": true}'
    assert (
        "Ask for fewer chips"
        in json.loads(bounded({f"part{number}": "x" * 150 for number in range(60)}, 4000))["error"]["do"]
    )


@pytest.mark.parametrize(
    ("words", "message"), [(("nowhere",), "no such folder"), ((".", "--max-answer", "5"), "too few characters")]
)
def test_what_cannot_be_served_is_refused(words, message):
    from typer.testing import CliRunner

    result = CliRunner().invoke(app, ["mcp", *words])
    assert message in str(result.exception)

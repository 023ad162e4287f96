"""``aneforge mcp``: the commands in front as tools of the Model Context Protocol, for coding agents.

Each tool runs a command in a process of its own, so that a model file can neither keep the server busy for ever nor
end it, and answers with the document that ``--json`` prints.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import MCPServer
from pydantic import Field

from aneforge.errors import AneforgeError, error_document
from aneforge.version import __version__

INSTRUCTIONS = (
    "Answers what the Apple Neural Engine of each chip does with a model file: whether it runs, why not, how long it "
    "takes, what numbers it gives, and what to change. Start with check. Chips are named m1, m1,m5, m1..m6, macs, "
    "phones or all. Files are paths below the folder of the server."
)
Model = Annotated[
    str, Field(description="A model file below the folder: .onnx, .mlpackage, .mlmodel, .pt2 and so on.")
]
Target = Annotated[str | None, Field(description="Chips: m1, m1,m5, m1..m6, macs, phones or all.")]
MaxAbs = Annotated[float | None, Field(description="The largest magnitude of any input, if it is known.")]
_PAGES = (".html", ".md")
# How many entries of a list are kept, and how deep: the mildest cut that makes an answer short enough.
_LONG, _LEAST = 200, 32  # letters of a text for each entry of a list, and entries of a mapping that always stay
_CUTS = (*((most, 99) for most in (300, 100, 30, 10, 5, 3)), *((3, deep) for deep in (7, 6, 5, 4, 3, 2)))


class Tools:
    """The tools of one server: what they run, in which folder, and how much they may answer."""

    def __init__(self, folder: Path, most: int, seconds: float, python: bool) -> None:
        self.folder, self.most, self.seconds, self.python = folder.resolve(), most, seconds, python
        self.pages: list[subprocess.Popen[str]] = []

    def file(self, name: str) -> str:
        """A file of the folder, as commands take it."""
        path, _, node = name.partition(".py:")
        place = (self.folder / (f"{path}.py" if node else name)).resolve()
        if not place.is_relative_to(self.folder):
            raise AneforgeError(f"{name}: outside the folder of this server. Give a file below it.")
        if place.suffix == ".py" and not self.python:
            raise AneforgeError(f"{name}: Python files are run, not read. Start the server with --allow-python.")
        relative = str(place.relative_to(self.folder)) + (f":{node}" if node else "")
        return f"./{relative}" if relative.startswith("-") else relative  # a file, and no option of the command

    async def answer(self, verb: str, *words: str, **options: Any) -> str:
        """What a command prints as JSON, with its exit status, in at most so many characters."""
        files = ("compare_model", "baseline", "page", "model")
        try:
            given = {name: self.file(value) if name in files else value for name, value in options.items() if value}
        except AneforgeError as error:
            return json.dumps(error_document(str(error), 2))
        positional = [given.pop("model")] if "model" in given else []
        command = [sys.executable, "-m", "aneforge", verb, *words, *positional]
        for name, value in given.items():
            flag = {"compare_model": "--compare", "page": "--out"}.get(name, f"--{name.replace('_', '-')}")
            command += [flag] if value is True else [flag, str(value)]
        try:
            with anyio.fail_after(self.seconds):
                done = await anyio.run_process(
                    [*command, *([] if "page" in given else ["--json"]), "-q"],
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    check=False,
                )
        except TimeoutError:
            message = f"{verb}: it took more than {self.seconds:g} s. Ask for fewer chips, or raise --max-seconds."
            return json.dumps(error_document(message, 2))
        if "page" in given and not done.returncode:
            return json.dumps({"exit_status": 0, "wrote": given["page"]})
        try:
            document = json.loads(done.stdout)
        except ValueError:
            said = done.stderr.decode("utf-8", "replace").strip().removeprefix("aneforge: ")
            document = error_document(said or f"{verb}: it ended with status {done.returncode}.", done.returncode)
        return bounded({"exit_status": done.returncode, **document}, self.most)

    # The tools. Their docstrings and types are what an agent reads.

    async def report(
        self,
        model: Model,
        target: Target = "m1..m6",
        compare: Annotated[str | None, Field(description="Another model file to compare with.")] = None,
        page: Annotated[str | None, Field(description="Write a page (.html) or Markdown (.md) here instead.")] = None,
    ) -> str:
        """Everything about a model on each chip: verdicts, reasons, program, times, memory, risks, what would help."""
        if page is not None and Path(page).suffix not in _PAGES:  # another ending could be that of a model there
            return json.dumps(error_document(f"page: {page!r} is not a page. End it in .html or .md.", 2))
        return await self.answer("report", model=model, target=target, compare_model=compare, page=page)

    async def check(self, model: Model, target: Target = "m1..m6", max_abs: MaxAbs = None) -> str:
        """What each chip does with a model: native, decomposed, rejected, too large or risky, and why."""
        return await self.answer("check", model=model, target=target, max_abs=max_abs)

    async def estimate(self, model: Model, target: Target = "m1..m6", changes: int = 3) -> str:
        """How long a call takes on each chip, as an interval, where the time goes and which changes help most."""
        return await self.answer("estimate", model=model, target=target, changes=str(changes))

    async def compare(
        self,
        model: Model,
        target: Target = "m1,m5",
        any_input: Annotated[bool, Field(description="Run nothing: what can differ for any input.")] = False,
        max_abs: MaxAbs = None,
    ) -> str:
        """Where the numbers of chips differ, node by node: simulated on drawn inputs, or for any input by rule."""
        return await self.answer("compare", model=model, target=target, any_input=any_input, max_abs=max_abs)

    async def risks(self, model: Model, target: Target = "m1..m6", max_abs: MaxAbs = None) -> str:
        """What a chip can lose: overflows, clamps and cancellation, each with its range and a cure."""
        return await self.answer("risks", model=model, target=target, max_abs=max_abs)

    async def compress(
        self,
        model: Model,
        target: Target = "m1,m5",
        encodings: Annotated[str | None, Field(description="Some of int8, int4, lut6, sparse, blockwise.")] = None,
    ) -> str:
        """How to store the weights: bytes, time and error of each encoding, and which one is recommended."""
        return await self.answer("compress", model=model, target=target, encodings=encodings)

    async def ci(
        self,
        model: Model,
        action: Annotated[str, Field(description="record a baseline, check against it, or update it.")] = "check",
        target: Target = None,
        baseline: Annotated[str | None, Field(description="The file of the baseline.")] = None,
    ) -> str:
        """Guard a model: record what is true of it on each chip, check that it stays so, or update the record."""
        if action not in ("record", "check", "update"):
            message = f"action: {action!r} is unknown. Choose one: record, check, update."
            return json.dumps(error_document(message, 2))
        return await self.answer("ci", action, model=model, target=target, baseline=baseline)

    async def serve(self, target: Target = "m1..m6") -> str:
        """Start a local page where a person drops a model and reads its report; answers with its address."""
        command = [sys.executable, "-m", "aneforge", "serve", "--port", "0", "--target", target or "m1..m6", "--json"]
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        page = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self.folder, **quiet)  # noqa: S603
        self.pages.append(page)
        assert page.stdout is not None
        line = await anyio.to_thread.run_sync(page.stdout.readline)
        if not line:
            return json.dumps(error_document("serve: the page did not start. Look at the chips that you named.", 2))
        return json.dumps({"exit_status": 0, **json.loads(line)})

    def close(self) -> None:
        """End the pages that were started."""
        for page in self.pages:
            page.terminate()
            page.wait(timeout=30)


def bounded(document: dict[str, Any], most: int) -> str:
    """A document as text of at most so many characters: its long lists lose their ends, and then its deepest parts
    their content. ``left_out`` says of which list how many entries, and which parts."""
    text = json.dumps(document, ensure_ascii=False)
    for entries, deep in _CUTS:
        if len(text) <= most:
            return text
        left_out: dict[str, int] = {}
        cut = {name: _cut(part, entries, deep, name, left_out) for name, part in document.items()}
        left_out = dict(sorted(left_out.items(), key=lambda entry: -entry[1])[:_LEAST])  # the largest parts
        text = json.dumps({**cut, "left_out": left_out}, ensure_ascii=False)
    if len(text) <= most:
        return text
    message = f"answer: it has {len(text):,} characters at the least; the limit is {most:,}. Ask for fewer chips."
    return json.dumps(error_document(message, 2))


def _cut(value: Any, entries: int, deep: int, path: str, left_out: dict[str, int]) -> Any:
    if isinstance(value, (dict, list)) and value and not deep:
        left_out[path] = left_out.get(path, 0) + len(value)
        return None
    if isinstance(value, str) and len(value) > _LONG * entries:
        left_out[path] = left_out.get(path, 0) + len(value) - _LONG * entries
        return value[: _LONG * entries]
    if isinstance(value, dict):
        kept = list(value.items())[: max(entries, _LEAST)]
        if len(value) > len(kept):
            left_out[f"{path}.*"] = left_out.get(f"{path}.*", 0) + len(value) - len(kept)
        return {name: _cut(part, entries, deep - 1, f"{path}.{name}", left_out) for name, part in kept}
    if isinstance(value, list):
        if len(value) > entries:
            left_out[f"{path}[]"] = left_out.get(f"{path}[]", 0) + len(value) - entries
        return [_cut(part, entries, deep - 1, f"{path}[]", left_out) for part in value[:entries]]
    return value


def serve_tools(folder: Path, most: int, seconds: float, python: bool) -> None:
    """Answer on stdin and stdout until the client goes away."""
    tools = Tools(folder, most, seconds, python)
    server = MCPServer("aneforge", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR")
    for tool in (
        *(tools.report, tools.check, tools.estimate, tools.compare),
        *(tools.risks, tools.compress, tools.ci, tools.serve),
    ):
        server.add_tool(tool, structured_output=False)
    try:
        server.run("stdio")
    finally:
        tools.close()

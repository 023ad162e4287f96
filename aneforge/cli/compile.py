"""``aneforge compile``: a model as a program for one chip, as programs for many, or as programs of its regions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.chips.names import chip_list
from aneforge.cli import say
from aneforge.cli.notes import warnings_on_stderr, working
from aneforge.cli.options import ModelFile, require_file
from aneforge.codegen.anec import anec_of
from aneforge.codegen.anec_check import check_fields, driver_lines
from aneforge.codegen.emission import emit
from aneforge.compiler.compile import write_build
from aneforge.compiler.refusal import CompileError
from aneforge.cost.estimate import DispatchFloorWarning
from aneforge.errors import AneforgeError
from aneforge.files import write_whole
from aneforge.formats.arguments import graph_of
from aneforge.study.chain import PARTS
from aneforge.study.loading import PROGRAM_FILES
from aneforge.study.model import Model, build, warn_of
from aneforge.study.model import compile as compile_model
from aneforge.study.partition import Partition
from aneforge.study.programs import Programs, compile_all, program_text, regions_text, write_regions


def run(
    model: str | ModelFile,
    chips: str,
    explain: str | None,
    show: str | None,
    out: str | None,
    validate: bool,
    as_json: bool,
    route: str | None = None,
    allow_text: bool = False,
    driver_header: str | None = None,
) -> int:
    """Print the program, its way through the phases, the story of a node, or the table of all targets; 1 if a target
    refuses the model."""
    file, parts = ModelFile.of(model), _parts(show)
    names = chip_list(chips)
    if _is_program_file(out):
        require_file(out)
    with working(f"reading {file.name}"):
        graph = graph_of(file.path, **file.options)
    doing = f"compiling {file.name} for {chips}"
    if len(names) > 1:
        if explain or parts or out or validate:
            raise AneforgeError(
                "--explain, --show, --out and --validate: they take one chip. Name one, as in --target m1."
            )
        with working(doing):
            programs = compile_all(graph, chips, route)
    else:
        try:
            with warnings_on_stderr(DispatchFloorWarning), working(doing):  # times are for aneforge estimate
                compiled = compile_model(graph, validate=validate, target=names[0], route=route)
                if out is not None and not _is_program_file(out):
                    write_build(compiled.program, out)
        except CompileError as error:  # as with several targets: nothing was wrong with what was asked
            with working(doing):
                programs = compile_all(graph, chips, route)
            if not programs.ok:
                say.line(f"aneforge: {error}")
                if as_json:
                    print(text.as_json(programs.to_json()))
                return 1
            return _in_regions(programs, explain, parts, out, validate, as_json)
        if out is not None and _is_program_file(out):
            _save(compiled, out, allow_text, driver_header)
        if explain:
            story = compiled.explain(None if explain == "all" else explain)
            print(text.as_json(story.to_json()) if as_json else str(story).rstrip())
            return 0
        if parts:
            chain = compiled.chain()
            print(text.as_json(chain.to_json(parts)) if as_json else chain.text(parts))
            return 0
        name = compiled.target.name
        programs = Programs({name: compiled.program})
    print(text.as_json(programs.to_json()) if as_json else programs)
    return 0 if programs.ok else 1


def _parts(show: str | None) -> list[str]:
    """The parts of a program's way that ``--show`` names, in their order."""
    named = [] if show is None else [part.strip() for part in show.split(",")]
    unknown = [part for part in named if part not in (*PARTS, "all")]
    if unknown:
        raise AneforgeError(f"--show {unknown[0]}: unknown; choose from {', '.join(PARTS)} or all")
    return [part for part in PARTS if part in named or "all" in named]


def _is_program_file(out: str | None) -> bool:
    return out is not None and Path(out).suffix.casefold() in PROGRAM_FILES


_HEADERS = ("0x1000", "0x800")
_DRIVER_FILE = ".anec"
"""What the open Linux driver of the M1 loads."""


def _save(compiled: Model, out: str, allow_text: bool, driver_header: str | None) -> None:
    """Write the program to a file; what its tasks rest on is told on stderr."""
    ending = Path(out).suffix.casefold()
    if driver_header not in (None, *_HEADERS):
        raise AneforgeError(f"--driver-header {driver_header}: choose one: {', '.join(_HEADERS)}")
    if driver_header is not None and ending != _DRIVER_FILE:
        raise AneforgeError(f"--driver-header: {out} is not for the driver; give --out NAME{_DRIVER_FILE}")
    if ending in (".hwx", _DRIVER_FILE):
        with working(f"writing {out}"):
            container = emit(compiled.program)
            lines = [f"wrote {out}: {container.record}"]
            if ending == _DRIVER_FILE:
                program = anec_of(container, allow_text, int(driver_header or _HEADERS[0], 16))
                wrong = [check for check in check_fields(program) if not check.agrees]
                if wrong and not allow_text:
                    raise AneforgeError(f"{out}: the driver would read other sizes than the tasks have; {wrong[0]}")
                write_whole(out, program.to_bytes())
                lines += driver_lines(program)
            else:
                container.write(out)
        say.note("\n".join(lines))
        return
    with working(f"writing {out}"):
        compiled.save(out)
    say.note(f"wrote {out}")


def _in_regions(
    programs: Programs, explain: str | None, parts: list[str], out: str | None, validate: bool, as_json: bool
) -> int:
    """The programs of the engine regions of a model that one chip does not take whole."""
    split = next(iter(programs.split.values()))
    if parts:
        chains = {f"region {number}": model.chain() for number, model in split.models.items()}
        documents = {name: chain.to_json(parts) if as_json else chain.text(parts) for name, chain in chains.items()}
        print(text.as_json(documents) if as_json else "\n".join(f"{name}\n{documents[name]}" for name in documents))
        return 0
    if explain:
        stories = _stories(split, explain)
        print(text.as_json([story.to_json() for story in stories]) if as_json else _joined(stories))
        return 0
    with warnings_on_stderr(DispatchFloorWarning):
        for model in split.models.values():
            warn_of(model, times=False)
    if validate:
        with working("validating regions") as progress:
            for done, number in enumerate(split.programs):
                if progress is not None:
                    progress(done, len(split.programs), f"validating region {number}")
                build(split.graph_of(number), split.target, route=split.cut.route, validate=True)
    if _is_program_file(out):
        raise AneforgeError(
            f"--out {out}: the chip takes the model in {len(split.programs)} regions, and the file holds one program. "
            "Give a folder, or cut the model with aneforge partition."
        )
    if out is not None:
        folders = write_regions(split, out)
        say.note(f"wrote {', '.join(folders)} and partition.txt to {out}")
    if as_json:
        print(text.as_json(programs.to_json()))
        return 0
    print(regions_text(split))
    for number, program in split.programs.items():
        print(f"\nregion {number}\n{program_text(program)}")
    return 0


def _stories(split: Partition, node: str) -> list[Any]:
    """Why nodes became what they are: of all regions, or of the one that holds the node."""
    if node == "all":
        return [model.explain() for model in split.models.values()]
    on_host = {split.names[uid]: why for uid, why in split.reasons.items()}
    if node in on_host:
        raise AneforgeError(f"{node}: on the host, so no pass changes it: {on_host[node]}")
    for model in split.models.values():
        if node in model.graph.names().values():
            return [model.explain(node)]
    raise AneforgeError(f"{node}: not a node of the model. Run aneforge compile with --explain all to see them.")


def _joined(stories: list[Any]) -> str:
    return "\n\n".join(str(story).rstrip() for story in stories)

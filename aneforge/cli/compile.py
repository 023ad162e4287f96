"""``aneforge compile``: a model as a program for one chip, or as programs for many."""

from __future__ import annotations

import sys

from aneforge.arguments import graph_of
from aneforge.cli.library_warnings import warnings_on_stderr
from aneforge.cli.model_file import ModelFile
from aneforge.compiler.compile import Compiled
from aneforge.compiler.refusal import CompileError
from aneforge.cost.estimate import DispatchFloorWarning
from aneforge.errors import AneforgeError
from aneforge.model import compile as compile_model
from aneforge.output import text
from aneforge.programs import Programs, compile_all
from aneforge.targets.listed import chip_list


def run(
    model: str | ModelFile,
    chips: str,
    explain: str | None,
    out: str | None,
    validate: bool,
    as_json: bool,
    route: str | None = None,
) -> int:
    """Print the program, the story of a node, or the table of all targets; 1 if a target refuses the model."""
    file = ModelFile.of(model)
    names = chip_list(chips)
    graph = graph_of(file.path, **file.options)
    if len(names) > 1:
        if explain or out or validate:
            raise AneforgeError("--explain, --out and --validate: they take one chip. Name one, as in --target m1.")
        programs = compile_all(graph, chips, route)
    else:
        try:
            with warnings_on_stderr(DispatchFloorWarning):  # times are for aneforge estimate
                compiled = compile_model(graph, build_dir=out, validate=validate, target=names[0], route=route)
        except CompileError as error:  # as with several targets: nothing was wrong with what was asked
            print(f"aneforge: {error}", file=sys.stderr)
            if as_json:
                print(text.as_json(compile_all(graph, chips, route).to_json()))
            return 1
        if explain:
            story = compiled.explain(None if explain == "all" else explain)
            print(text.as_json(story.to_json()) if as_json else str(story).rstrip())
            return 0
        name = compiled.target.name
        programs = Programs.of(Compiled({name: compiled.program}, {}, [name]))
    print(text.as_json(programs.to_json()) if as_json else programs)
    return 0 if programs.ok else 1

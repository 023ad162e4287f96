"""``aneforge split``: a large model as programs that load."""

from __future__ import annotations

from dataclasses import dataclass

from aneforge import text
from aneforge.advice.split.apply import require_new_folder
from aneforge.advice.split.runner import drawn, load_split, outputs_text
from aneforge.advice.split.splitting import split_study
from aneforge.chips.names import chip_list
from aneforge.cli.notes import warnings_on_stderr, working
from aneforge.cli.options import ModelFile
from aneforge.errors import AneforgeError
from aneforge.files import write_arrays
from aneforge.sim.compare import Summary
from aneforge.sim.inputs import read_arrays
from aneforge.study.study import Study


@dataclass(frozen=True)
class SplitOptions:
    """What the command was asked beside the model and the chips."""

    context: int | None = None
    weights: str | None = None
    apply: str | None = None
    as_json: bool = False


def run(model: str | ModelFile, chips: str, options: SplitOptions) -> int:
    """Print the plan, and write its programs where that was asked for; 1 where the programs of a chip would not
    load."""
    file = ModelFile.of(model)
    if options.apply is not None:
        require_new_folder(options.apply)
        if len(chip_list(chips)) > 1:
            raise AneforgeError("--apply: it writes the programs of one chip. Name one, for instance --target m4.")
    with warnings_on_stderr(), working(f"cutting {file.name} for {chips}") as progress:
        study = Study(file.path, chips, **file.options)
        plan = split_study(study, options.context, options.weights, progress)
        applied = None if options.apply is None else plan.apply(options.apply)
    if options.as_json:
        written = {} if applied is None else {"applied": applied.to_json()}
        print(text.as_json({**plan.to_json(), **written}))
    else:
        print(plan if applied is None else f"{plan}\n\n{applied}")
    return 0 if plan.loads else 1


def run_folder(folder: str, inputs: str | None, out: str | None, kind: str | None, as_json: bool) -> None:
    """Run the programs in a folder one after the other, and print what the model gives."""
    chain = load_split(folder)
    with warnings_on_stderr(), working(f"running the programs of {folder}"):
        wanted = chain.inputs(kind)
        feeds = read_arrays(inputs) if inputs is not None else drawn(wanted)
        outputs = chain.run(feeds, kind)
    if out is not None:
        write_arrays(out, outputs)
    if as_json:
        print(text.as_json({name: Summary(value).to_json() for name, value in outputs.items()}))
        return
    print(f"{chain}\n{outputs_text(outputs)}")

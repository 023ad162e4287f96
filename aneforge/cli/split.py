"""``aneforge split``: a large model as programs that load."""

from __future__ import annotations

from dataclasses import dataclass

from aneforge import text
from aneforge.advice.split.splitting import split_study
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile
from aneforge.study.study import Study


@dataclass(frozen=True)
class SplitOptions:
    """What the command was asked beside the model and the chips."""

    context: int | None = None
    weights: str | None = None
    apply: str | None = None
    as_json: bool = False


def run(model: str | ModelFile, chips: str, options: SplitOptions) -> int:
    """Print the plan; 1 where the programs of a chip would not load."""
    file = ModelFile.of(model)
    with working(f"cutting {file.name} for {chips}") as progress:
        study = Study(file.path, chips, **file.options)
        plan = split_study(study, options.context, options.weights, progress)
    print(text.as_json(plan.to_json()) if options.as_json else plan)
    return 0 if plan.loads else 1

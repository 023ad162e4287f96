"""One question about a model file at every shape that it allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aneforge import text
from aneforge.cli.options import ModelFile
from aneforge.study.shapes import ShapedStudies, open_shapes


def at_each_shape(
    file: ModelFile, chips: str, ask: Callable[..., Any], show: Callable[[Any], str], as_json: bool
) -> str:
    """The answers of ``ask`` as text or JSON: at the file's only shape, at the one that ``--dim`` names, or at every
    listed shape and both ends of a range."""
    shapes = open_shapes(file.path, file.asked, file.function)
    if shapes is None:
        answer = ask(file.path, chips, **file.options)
        return text.as_json(answer.to_json()) if as_json else show(answer)
    studies = ShapedStudies(file.path, shapes, chips, file.asked, file.function)
    answers = [(point, ask(study)) for point, study in studies]
    if as_json:
        rows = [{"sizes": dict(point.sizes), "role": point.role, **answer.to_json()} for point, answer in answers]
        return text.as_json({"flexible": shapes.to_json(), "shapes": rows})
    sections = [f"at {point.label} ({point.role}):\n{show(answer)}" for point, answer in answers]
    return "\n\n".join([text.wrapped(f"{len(answers)} shapes: {shapes}"), *sections])

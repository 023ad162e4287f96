"""``aneforge measure kit``: this package beside what a kit measured, and the profile of the machine."""

from __future__ import annotations

from pathlib import Path

from aneforge import text
from aneforge.cli import say
from aneforge.cli.notes import working
from aneforge.cli.options import require_file
from aneforge.files import write_whole
from aneforge.reports.kit.profile import profile_of
from aneforge.reports.kit.results import read_results
from aneforge.reports.kit.score import scored


def run(file: str, profile: str | None, as_json: bool) -> None:
    """Print the score, and write the profile where one is asked for."""
    if profile is not None:
        require_file(profile)
    with working(f"scoring {file}"):
        results = read_results(file)
        score = scored(results)
        machine = None if profile is None else profile_of(results)
    if profile is not None and machine is not None:
        write_whole(Path(profile), f"{text.as_json(machine.to_json())}\n")
    print(text.as_json(score.to_json()) if as_json else score)
    if machine is not None:
        say.note(f"wrote {profile}; use it: aneforge estimate MODEL --target {machine.target} --machine {profile}")

"""Gather the pages of the documentation site in ``build/pages``, for ``make site``.

On a code host the pages link to files outside ``docs/``. A site has no such files, so the pages of the root come along
under ``develop/``, and every other file that a page links is copied to ``files/``. Nothing else is changed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["ROOT_PAGES", "SiteError", "gather", "relinked"]

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"

ROOT_PAGES = {"CONTRIBUTING.md": "develop/contributing.md", "CHANGELOG.md": "develop/changes.md"}
"""Pages of the root, and where the site has them."""

_CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?=[)#])")


class SiteError(Exception):
    """A link that the site cannot follow."""


def _place(file: Path, root: Path) -> str:
    """Where the site has a file of the repository."""
    name = file.relative_to(root).as_posix()
    return ROOT_PAGES.get(name) or (name.removeprefix("docs/") if name.startswith("docs/") else f"files/{name}")


def relinked(text: str, page: Path, root: Path = ROOT, linked: Callable[[Path], object] = lambda file: None) -> str:
    """A page with its links as the site needs them; ``linked`` is told each file that a link leads to."""
    folder = Path(_place(page, root)).parent

    def link(match: re.Match[str]) -> str:
        file = (page.parent / match["path"]).resolve()
        if not file.is_file() or not file.is_relative_to(root):
            raise SiteError(
                f"{page.relative_to(root)}: link to {match['path']}, which is not a file of the repository"
            )
        linked(file)
        return Path(os.path.relpath(_place(file, root), folder)).as_posix()

    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]  # code stands at the odd places
    return "".join(parts)


def gather(pages: Path = PAGES, root: Path = ROOT) -> list[Path]:
    """Write the pages of the site into a folder, which is emptied first; returns the files that came along."""
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(root / "docs", pages)
    others: set[Path] = set()
    for page in (*sorted((root / "docs").rglob("*.md")), *(root / name for name in ROOT_PAGES)):
        place = pages / _place(page, root)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(relinked(page.read_text(encoding="utf-8"), page, root, others.add), encoding="utf-8")
    copied = sorted(file for file in others if _place(file, root).startswith("files/"))
    for file in copied:
        place = pages / _place(file, root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    return copied


def main() -> int:
    try:
        copied = gather()
    except SiteError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"pages in {PAGES.relative_to(ROOT)}, with {len(copied)} files that they link")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The documentation site: its navigation has every page, links work there too, and it builds without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import gallery
import pytest
import site_pages

ROOT = site_pages.ROOT
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def listed() -> list[str]:
    """The pages of the navigation, which is the last part of the file."""
    _, _, nav = CONFIG.partition("\nnav:\n")
    return re.findall(r"([\w./-]+\.md)$", nav, re.MULTILINE)


def test_the_navigation_lists_every_page_once_and_no_other():
    docs = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert Counter(listed()) == Counter(docs | set(site_pages.ROOT_PAGES.values()))


def test_the_site_takes_nothing_from_a_network():
    """Fonts, icons and the helper of the plug-in ``offline`` would come from other machines."""
    assert "font: false" in CONFIG
    assert not re.search(r"https?:|^ +- offline", CONFIG, re.MULTILINE)


def repository(folder: Path) -> Path:
    for name, text in {
        "docs/index.md": "[a](guide/a.md#top) [rules](../CONTRIBUTING.md) `[code](../code.py)`",
        "docs/guide/a.md": "[file](../../code.py)\n\n```text\n[left](as/it.is)\n```\n[out](https://example.org)",
        "CONTRIBUTING.md": "[a](docs/guide/a.md)",
        "CHANGELOG.md": "Nothing.",
        "code.py": "x = 1\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_links_out_of_the_docs_lead_to_pages_and_copies_of_the_site(tmp_path):
    root, pages = repository(tmp_path / "repository"), tmp_path / "pages"
    assert site_pages.gather(pages, root) == [root / "code.py"]
    text = {page.relative_to(pages).as_posix(): page.read_text(encoding="utf-8") for page in pages.rglob("*.md")}
    assert text["index.md"] == "[a](guide/a.md#top) [rules](develop/contributing.md) `[code](../code.py)`"
    assert text["guide/a.md"].startswith("[file](../files/code.py)\n\n```text\n[left](as/it.is)\n```\n[out](https:")
    assert text["develop/contributing.md"] == "[a](../guide/a.md)"
    assert (pages / "files" / "code.py").read_text(encoding="utf-8") == "x = 1\n"


def test_a_link_to_nothing_is_an_error_that_names_it(tmp_path):
    root = repository(tmp_path)
    (root / "docs" / "index.md").write_text("[gone](guide/b.md)", encoding="utf-8")
    with pytest.raises(site_pages.SiteError, match=r"docs/index\.md: link to guide/b\.md, which is not a file"):
        site_pages.gather(tmp_path / "pages", root)


def test_the_gallery_writes_a_report_for_each_row_and_links_it(tmp_path):
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if "`aneforge report" in line]
    named = [row["model"] for row in gallery.ROW.finditer(text)]
    assert len(named) == len(rows) >= 5
    assert all((ROOT / name).is_file() for name in named)
    (tmp_path / "gallery.md").write_text("\n".join(row for row in rows if "attention.plist" in row), encoding="utf-8")
    (file,) = gallery.write(tmp_path)
    assert file.stat().st_size > 10_000
    assert '<a href="gallery/attention.html">' in (tmp_path / "gallery.md").read_text(encoding="utf-8")


class Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {value for value in (given.get("id"), given.get("name")) if value}
        self.links += [given[name] for name in ("href", "src") if given.get(name)]


def zensical() -> str | None:
    """The command in the environment of ``make site``, in this one, or anywhere."""
    places = [ROOT / ".venv-site" / "bin", Path(sys.executable).parent]
    return next((found for place in places if (found := shutil.which("zensical", path=str(place)))), None) or (
        shutil.which("zensical")
    )


@pytest.mark.skipif(zensical() is None, reason="make site installs zensical")
def test_the_site_builds_strictly_and_every_link_leads_to_a_page_and_a_heading(tmp_path):
    site_pages.gather(tmp_path / "build" / "pages")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    built = subprocess.run(
        [str(zensical()), "build", "--clean", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "site"
    pages = {file.resolve(): Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    assert {file.relative_to(site).with_suffix(".md").as_posix() for file in pages} == set(listed())
    wrong = []
    for file, page in pages.items():
        for link in page.links:
            path, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z]+:", link) or link.startswith("//"):
                wrong += [f"{file.name}: {link} loads from a network"] if "unpkg" in link else []
                continue
            other = (file.parent / path).resolve() if path else file
            if not other.exists() or (anchor and other in pages and anchor not in pages[other].anchors):
                wrong.append(f"{file.relative_to(site)}: {link}")
    assert not wrong

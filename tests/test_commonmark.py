"""Nothing in a model file is obeyed by a page that renders our Markdown: read by a renderer of CommonMark."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import aneforge as af
from aneforge.errors import AneforgeError, shortened, shown
from aneforge.reports.against import compare_reports
from aneforge.reports.against_text import markdown as comparison_markdown
from aneforge.reports.commonmark import code, inert, table_row
from aneforge.reports.gather import report
from aneforge.reports.markdown import markdown

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
TRICKS = (
    "a`b", "``", "`![x](https://example.org/x.png)`", "![x](https://example.org/x.png)", "[x](javascript:alert(1))",
    "<img src=x onerror=alert(1)>", "<https://example.org>", "https://example.org", "www.example.org", "@everyone",
    "a | b", "**bold**", "__init__", "~~gone~~", "$x$", "&lt;b&gt;", "# head", "line\n# head", "\\`", "#12", "x`",
    "| --- |",
)  # fmt: skip
MARKS = ("<a", "<img", "<h1", "<strong", "<em", "<s>", "<script", "<td>b", "<br")


def parts(text: str) -> str:
    """The words that a reader sees."""
    tokens = [child for token in RENDERER.parse(text) for child in token.children or ()]
    assert {token.type for token in tokens} <= {"text", "code_inline", "text_special"}, tokens
    return "".join(token.content for token in tokens)


@pytest.mark.parametrize("trick", TRICKS)
def test_text_is_shown_as_it_is(trick):
    line = f"- words {inert(trick)} words"
    assert not any(mark in RENDERER.render(line) for mark in MARKS)
    assert parts(line).replace("\u200b", "") == f"words {shown(trick)} words"
    html = RENDERER.render(table_row(["a", "b"]) + "\n| --- | --- |\n" + table_row([inert(trick), code(trick)]))
    assert html.count("<td>") == 2
    assert not any(mark in html for mark in MARKS)


def test_addresses_and_mentions_are_no_links_on_pages_that_look_for_them():
    for trick in ("https://example.org", "www.example.org", "@everyone", "#12"):
        assert "\u200b" in inert(trick)
    assert inert("the chip's 3 layers, 1:2") == "the chip's 3 layers, 1:2"


@given(st.text(alphabet=st.sampled_from("`*_~|<>[]()!\\@#&;: ab1\n\u202e"), max_size=24))
def test_a_name_in_a_span_of_code_is_shown_as_it_is(name):
    line = f"- words {code(name)} words"
    tokens = [child for token in RENDERER.parse(line) for child in token.children or ()]
    spans = [token.content for token in tokens if token.type == "code_inline"]
    if name.strip():
        assert [span.strip() for span in spans] == [shown(name).replace("|", "\\|").strip()]
    assert "<a" not in RENDERER.render(line)


@given(st.text(alphabet=st.sampled_from("`*_~|<>[]()!\\@#&;:/ ab1.w"), max_size=24))
def test_any_text_has_the_words_it_had(text):
    words = f"x {text} x"
    assert " ".join(parts(f"- {inert(words)}").replace("\u200b", "").split()) == " ".join(words.split())


@pytest.fixture(scope="module")
def reports():
    x = af.input((1, 4), name="x", max_abs=3e4)
    trick = "`![x](https://example.org/x.png)` @everyone <b>"
    y = af.topk(x * np.full((1, 4), 2.0), 2).named(trick)
    return [report(af.Graph([y]), target, changes=0) for target in ("m1", "m5")]


def test_a_report_and_a_comparison_obey_no_name(reports):
    for text in (markdown(reports[0]), comparison_markdown(compare_reports(*reports))):
        html = RENDERER.render(text)
        assert "everyone" in html
        assert "<img" not in html
        assert "<a " not in html
        assert "<b>" not in html


def test_a_message_keeps_the_beginning_and_the_end_of_a_long_name():
    name = "x" * 3_000_000
    message = str(AneforgeError(f"{name}: not a chip; choose one: m1"))
    assert len(message) == 4000
    assert message.endswith("choose one: m1")
    assert shortened("short") == "short"

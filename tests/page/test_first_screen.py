"""The first screen of the report's page: what to do is in view, for anybody, on any screen; and what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from aneforge.reports.answer import answers

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
PAGES = ("report.html", "unbounded.html", "encoder.html", "attention.html", "convnet.html", "empty.html")
COMPARED = "against.html"
OPEN_ALL = "for (const one of document.querySelectorAll('details')) one.open = true"
pytestmark = pytest.mark.filterwarnings("ignore")


def violations(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    return [(one["id"], node["target"]) for one in found for node in one["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (820, 1180), (1280, 900)])
@pytest.mark.parametrize("name", [*PAGES, COMPARED])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(opened, shots, name, width, height, scheme):
    page = opened(name, width=width, height=height, scheme=scheme)
    page.screenshot(path=str(shots / f"first-{name.partition('.')[0]}-{width}-{scheme}.png"))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    page.evaluate(f"{OPEN_ALL}; location.hash = '#op-0'")
    assert violations(page) == []


@pytest.mark.parametrize(("width", "height"), [(390, 844), (820, 1180), (1280, 900)])
def test_the_answer_and_the_three_numbers_are_in_view_without_scrolling(opened, reports, width, height):
    page = opened(width=width, height=height)
    first = next(iter(answers(reports[1])))
    assert page.locator("p.answer").inner_text() == first.sentence
    for element in (page.locator("p.answer"), *page.locator(".card .big").all()):
        box = element.bounding_box()
        assert box["y"] + box["height"] <= height
    assert len(page.locator(".card .big").all_inner_texts()) == 3


def test_every_chip_and_group_has_its_sentence(opened, reports):
    page = opened()
    for answer in answers(reports[1]):
        page.select_option("#chip-select", answer.key)
        assert page.locator("p.answer").inner_text() == answer.sentence
        chip = next(chip for chip in reports[1].chips if chip.name == answer.chip)
        assert page.locator(".card .big").first.inner_text() == f"{chip.us:,.0f} µs"
        assert page.locator("tr.chosen").get_attribute("id").endswith(chip.name.lower().replace(" ", "-"))


def test_the_chip_selector_stays_in_view(opened):
    page = opened()
    page.evaluate("document.getElementById('provenance').scrollIntoView()")
    page.wait_for_timeout(600)
    box = page.locator("#chip-select").bounding_box()
    assert 0 <= box["y"] < 60


def test_definitions_are_reached_by_keyboard_and_leave_with_escape(opened):
    page = opened()
    mark = page.locator("#cards .term").first
    mark.focus()
    tip = page.locator("#tip")
    assert tip.is_visible()
    assert mark.get_attribute("aria-describedby") == "tip"
    assert "estimated" in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    page.locator("#verdicts .term").first.hover()
    assert "Four answers" in tip.inner_text()


def test_the_reason_and_the_change_are_one_click_away(opened):
    page = opened()
    page.get_by_role("link", name="the reason").click()
    page.wait_for_selector("details.finding[open]")
    page.get_by_role("link", name="the change").click()
    page.wait_for_selector("tr.target-flash")
    assert re.fullmatch(r"#change-\d+", page.evaluate("location.hash"))


def test_where_the_time_goes_adds_up_to_the_call(opened, reports):
    page = opened()
    for chip in reports[1].chips[::6]:
        page.select_option("#chip-select", chip.name)
        widths = page.locator(".stack .piece").evaluate_all("all => all.map((one) => parseFloat(one.style.width))")
        assert sum(widths) == pytest.approx(100, abs=0.1)
        bars = page.locator("#placed-lanes .bar-of").evaluate_all(
            "all => all.map((one) => [parseFloat(one.style.left), parseFloat(one.style.width)])"
        )
        assert all(left + width <= 100.5 for left, width in bars)
        assert bars[0][0] == 0


def test_numbers_without_a_range_ask_for_it(opened):
    page = opened("unbounded.html")
    ask = page.locator("#range")
    assert "How large are the inputs?" in ask.inner_text()
    page.fill("#range-input", "255")
    assert page.locator("#range-command").inner_text() == "aneforge report detector.onnx --max-abs 255"
    assert page.locator("#numbers .badge.reject:visible").count() == 0
    assert opened("report.html").locator("#range").is_hidden()  # it was given


def test_a_strange_name_is_one_word_of_a_command(opened):
    """What is copied into a shell runs nothing that stands in the name."""
    page = opened("strange.html")
    words = shlex.split(page.locator("#range-command").inner_text())
    assert words == ["aneforge", "report", "it's $(rm -r x).onnx", "--max-abs", "1"]


def test_the_matrix_is_folded_to_what_differs(opened, reports):
    page = opened()
    differing = [op.name for op in reports[1].ops if set(op.statuses) != {"n"}]
    shown = page.locator("#matrix-grid .row .name").all_inner_texts()
    assert shown == differing
    page.uncheck("#matrix-differs")
    assert page.locator("#matrix-count").inner_text() == "22 of 22 operations"
    columns = {tuple(op.statuses[at] for op in reports[1].ops) for at in range(len(reports[1].chips))}
    assert page.locator("#matrix-grid .head-row .broad, #matrix-grid .head-row .slanted").count() >= len(columns)
    assert page.locator("#matrix-grid .head-row .broad").count() < len(reports[1].chips)


def test_regions_are_a_graph_with_two_kinds_of_causes(opened, reports):
    page = opened()
    page.select_option("#chip-select", "M1")
    assert page.locator("#map-view .box-of").count() == 3
    assert page.locator("#map-view .direct").count() == 1
    assert page.locator("#map-view .edge").count() >= 2
    assert "Core ML would likely keep 5 more there" in page.locator("#map-summary").inner_text()
    page.locator("#map-view .direct").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel:not([hidden])")
    assert "Region 1 on the CPU" in page.locator("#panel-title").inner_text()
    page.select_option("#chip-select", "M5")
    assert page.locator("#map-view .box-of").count() == 0


def test_what_is_on_the_cpu_only_as_a_consequence_is_told_apart(opened):
    page = opened("beside.html")
    page.select_option("#chip-select", "m1")
    assert "1 that the chip refuses, 1 as a consequence" in page.locator("#map-summary").inner_text()
    assert "1 as a consequence" in page.locator("#map-view .direct").text_content()
    page.locator("#map-view .direct").click()
    page.wait_for_selector("#panel:not([hidden])")
    assert page.locator("#panel .badge").all_inner_texts() == ["consequence", "refused"]
    assert violations(page) == []


WORDS = {
    r"nothing more is told": "riddle",
    r"one chip of each arithmetic": "riddle",
    r"softplus breaks": "of another model",
    r"starts at family": "a family that reads like a chip",
    r"\b1 (rows|operations|chips|layers|measurements|reasons|programs|regions|segments|groups|ways|ops)\b": "plural",
    r"\b(\d{2,}|[2-9]) (row|operation|chip|layer|measurement|reason|program|region|segment|change|op)\b": "singular",
    r"\bh1[0-9][a-z]?\b": "name of the compiler",
    r"\b[UGSCLTN]\d{2,3}\b": "key of evidence",
    r"\b0x[0-9a-f]+": "address",
    r"\\n": "line break that was written out",
    r"undefined|NaN|\[object": "fault of the script",
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_speaks_plainly_until_something_is_opened(opened, name):
    page = opened(name)
    for key in page.locator("#chip-select option").evaluate_all("all => all.map((one) => one.value)")[::5]:
        page.select_option("#chip-select", key)
        text = page.evaluate("document.body.innerText")
        for pattern, why in WORDS.items():
            found = re.search(pattern, text)
            assert found is None, f"{why}: {text[max(0, found.start() - 60) : found.end() + 30]!r}"

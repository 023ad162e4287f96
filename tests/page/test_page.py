"""The report's page in a real browser: what a reader does with it, by mouse, by keyboard and on a phone."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from aneforge.chips.names import chip_label, chip_list
from aneforge.reports.trace import trace_json

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
UNNAMED = (
    "all => all.filter((one) => !(one.labels?.length || one.textContent.trim() || one.title)).map((one) => one.id)"
)
pytestmark = pytest.mark.filterwarnings("ignore")


def rows(page, grid):
    return page.locator(f"#{grid} .row")


def test_it_loads_with_a_row_for_each_chip(opened, reports, shots):
    page = opened()
    labels = page.locator("#chips tbody th a").all_inner_texts()
    assert sorted(labels) == sorted(map(chip_label, chip_list("macs,phones")))  # every engine that is sold
    assert {"M1", "M6", "A20 Pro"} <= set(labels)
    lines = page.locator("#chips tbody.line th").all_inner_texts()
    assert lines[:2] == ["Macs", "iPhones"]
    assert page.get_by_role("link", name="A13 Bionic", exact=True).is_hidden()  # an old phone is folded
    page.get_by_role("button", name="2 older").click()
    assert page.get_by_role("link", name="A13 Bionic", exact=True).is_visible()
    beside = page.locator("#chips tbody .also").all_inner_texts()
    assert "also M2 Pro, M2 Max, M2 Ultra" in beside
    assert beside.count("also A18") == 1  # with the A18 Pro, not with the M5 of the same engine
    page.get_by_text("Which engine each product has").click()
    assert page.get_by_text("M4 Pro is h16g [inferred").is_visible()
    page.screenshot(path=str(shots / "report-light.png"), full_page=True)


def test_the_matrix_filters_by_name_and_by_status(opened):
    page = opened()
    page.fill("#matrix-query", "relu")
    count = page.locator("#matrix-count").inner_text()
    shown = int(count.split()[0])
    assert 0 < shown < 22
    assert rows(page, "matrix-grid").count() == shown
    assert all("relu" in text for text in rows(page, "matrix-grid").all_inner_texts())
    page.fill("#matrix-query", "")
    for box in page.locator("#matrix-statuses label").all():
        if "rejected" not in box.inner_text():
            box.locator("input").uncheck()
    assert rows(page, "matrix-grid").count() == 2  # the refused TopK, and the softmax that the oldest lack


def test_chips_sort_both_ways(opened):
    page = opened()

    def first_two():
        return page.locator("#chips tbody tr th a").all_inner_texts()[:2]

    as_given = first_two()
    page.click("#chips [data-sort=us]")
    fastest = first_two()
    page.click("#chips [data-sort=us]")
    assert page.locator("#chips th:has([data-sort=us])").get_attribute("aria-sort") == "descending"
    assert fastest not in (as_given, first_two())


def test_a_click_on_an_operation_tells_its_way_through_the_passes(opened, shots):
    page = opened()
    page.fill("#matrix-query", "upsample")
    rows(page, "matrix-grid").first.locator(".name").click()
    panel = page.locator("#panel")
    assert panel.is_visible()
    assert "Pass by pass" in panel.inner_text()
    facts = panel.locator("details", has_text="of the chip that it reads")
    facts.first.locator("summary").click()
    assert re.search(r"\[(measured|decoded|predicted|inferred)", facts.first.inner_text())
    page.screenshot(path=str(shots / "panel.png"))
    panel.locator("button.name", has_text=re.compile(r"^\d+ (NE|PE|TE|DMA) ")).first.click()  # a layer that it became
    assert page.locator("#panel-title").inner_text().startswith("Layer ")
    panel.get_by_role("button", name="up", exact=True).click()  # and back
    assert page.locator("#panel-title").inner_text() == "up"
    page.keyboard.press("Escape")
    assert panel.is_hidden()


def test_the_fact_that_decided_is_named(opened, reports):
    _, told = reports
    place = next(op.number for op in told.ops if op.op == "upsample_bilinear")
    page = opened("report.html")
    page.select_option("#chip-select", "M2")
    page.evaluate(f"location.hash = '#op-{place}'")
    page.wait_for_selector("#panel:not([hidden])")
    text = page.locator("#panel").inner_text()
    assert re.search(r"decided by.*texture_engine \(0x81d\): 1 here, 0 on M1", text)
    assert "max_tensor_width (0x138):" not in text  # it differs too, and not with the outcome


def test_a_model_without_operations_has_a_page(opened, reports):
    page = opened("empty.html")
    assert "all 17 chips" in page.locator("p.answer").first.inner_text()
    assert page.locator("#placed-count").inner_text() == "2 of 2 rows"  # the call and its copies


def test_the_drawings_are_those_of_plot(opened, reports, shots):
    from aneforge.reports.plots import roofline_svg

    told = reports[1]
    page = opened()
    page.select_option("#chip-select", "M2")
    chip = next(chip for chip in told.chips if chip.name == "M2")
    own_words = (
        "all => all.map((one) => [...one.childNodes].filter((part) => part.data).map((part) => part.data).join(''))"
    )
    words = page.locator("#roofline-drawn svg text").evaluate_all(own_words)
    drawn = roofline_svg({chip.label: told.estimates["M2"]}, "Layers by what bounds them")
    assert len(words) > 10
    assert [word for word in words if word not in unescape(drawn)] == []
    assert page.locator("#timeline-drawn svg .bar, #timeline-drawn svg rect").count() > len(chip.layer_us) / 2
    page.locator("#limits").screenshot(path=str(shots / "limits.png"))


def test_a_chip_whose_name_has_a_space_has_a_link(opened):
    page = opened("report.html#chip-m1-pro")
    assert page.locator("#chip-m1-pro").get_attribute("class") == "chosen"
    assert page.locator("#chip-select option:checked").inner_text() == "M1 Pro"


def test_a_deep_link_opens_its_reason(opened, reports):
    finding = next(row for row in reports[1].findings if row.rule == "op-route")
    page = opened(f"report.html#finding-{finding.id}")
    card = page.locator(f"[id='finding-{finding.id}']")
    assert card.get_attribute("open") is not None
    assert finding.rule in card.inner_text()
    assert opened(f"report.html#op-{finding.nodes[0]}").locator("#panel").is_visible()


def test_what_ifs_are_those_of_the_chosen_chip(opened, reports, shots):
    _, told = reports
    page = opened()
    (cut,) = [place for place, row in enumerate(told.changes) if row.name == "likely cut"]
    for name in ("M1", "M2"):
        page.locator(f"#chip-{name.lower()}").click()
        here = [place for place, row in enumerate(told.changes) if name in row.us]
        listed = page.locator("#help-list > table tbody tr").evaluate_all("all => all.map((row) => row.id)")
        assert set(listed) == {f"change-{place}" for place in here}
        saved = [told.changes[int(row.partition("-")[2])].saved[name] for row in listed]
        assert saved == sorted(saved, reverse=True)
    page.locator("#help-kinds label", has_text="cut").locator("input").uncheck()
    assert page.locator(f"#change-{cut}").count() == 0
    page.locator("#help").screenshot(path=str(shots / "what-if.png"))


def test_the_weights_are_shown_in_every_form(opened, reports, shots):
    _, told = reports
    page = opened()
    page.locator("#chip-m2").click()
    shown = page.locator("#stored-list tbody tr")
    assert shown.count() == len(told.stored)
    for place, row in enumerate(told.stored):
        text = shown.nth(place).inner_text()
        assert row.name in text
        assert f"{row.us['M2']:,.0f} µs" in text
    page.locator("#weights").screenshot(path=str(shots / "weights.png"))


def test_a_link_to_a_risk_opens_it(opened, reports):
    _, told = reports
    row = told.risks[0]
    page = opened(f"report.html#risk-{row.id}")
    card = page.locator(f"#risk-{row.id}")
    assert card.get_attribute("open") is not None
    assert told.ops[row.nodes[0]].name in card.inner_text()


def test_another_chip_shows_another_program(opened, reports):
    page = opened()
    summaries = set()
    for chip in reports[1].chips[::9]:
        page.select_option("#chip-select", chip.name)
        summaries.add(page.locator("#placed-summary").inner_text())
        label = chip.label
        assert set(page.locator(".of-chip").all_inner_texts()) == {label}
    assert len(summaries) > 1


def test_the_times_of_the_page_are_those_of_the_trace(opened, reports):
    """Both add the layers up; this holds them together."""
    told = reports[1]
    page = opened()
    chip = next(place for place, chip in enumerate(told.chips) if chip.program is not None)
    page.select_option("#chip-select", told.chips[chip].name)
    shown = page.locator("#placed-lanes .row").evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    events = json.loads(trace_json(told))["traceEvents"]
    slots = [event for event in events if event["pid"] == 1 + chip and event["ph"] in "Xi"]
    starts = [float(re.search(r"from ([\d.,]+) µs on", words)[1].replace(",", "")) for words in shown]  # type: ignore[index]
    assert len(starts) > 10
    assert starts == pytest.approx([event["ts"] for event in slots][: len(starts)], rel=1e-2, abs=1e-2)
    last = slots[-1]
    assert last["ts"] + last.get("dur", 0.0) == pytest.approx(told.chips[chip].us, rel=1e-3)


def test_keys_move_in_lists(opened):
    page = opened()
    box = page.locator("#ops-grid .rows")
    box.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert box.get_attribute("aria-activedescendant") == "ops-grid-2"
    page.keyboard.press("End")
    assert page.locator("#ops-grid [aria-selected=true]").get_attribute("aria-posinset") == "22"
    page.keyboard.press("Enter")
    assert page.locator("#panel").is_visible()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.classList.contains('rows')")  # back where it was
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "matrix-query"


def test_what_rests_on_inference_can_be_hidden_everywhere(opened, reports, shots):
    page = opened()
    inferred = [row for row in reports[1].findings if row.confidence in ("predicted", "inferred", "unknown")]
    page.locator("#rewrites > summary").click()
    page.check("#measured-only")
    assert page.locator("#why-list details:not(#rewrites):visible").count() == len(reports[1].findings) - len(inferred)
    law = next(chip for chip in reports[1].chips if chip.us is not None and not chip.basis_measured)
    slug = law.name.lower().replace(" ", "-")
    assert page.locator(f"#chip-{slug}").is_hidden()
    hidden = sum(not chip.basis_measured for chip in reports[1].chips)
    assert page.locator("#hidden-note").inner_text() == f"{hidden} chips hidden: nobody measured them."
    assert set(page.locator(".of-chip").all_inner_texts()) <= {
        each.label for each in reports[1].chips if each.basis_measured
    }
    page.screenshot(path=str(shots / "without-inference.png"))
    page.uncheck("#measured-only")
    assert page.locator("#why-list details:not(#rewrites):visible").count() == len(reports[1].findings)


def test_the_schedule_is_saved_as_text(opened, reports):
    page = opened()
    page.click("#listing > summary")
    with page.expect_download() as saved:
        page.click("#listing-save")
    text = saved.value.path().read_text(encoding="utf-8")
    assert saved.value.suggested_filename.endswith(".txt")
    assert "convolution" in text
    assert len(text.splitlines()) > 15


def test_what_a_mac_says_is_beside_the_prediction(opened):
    page = opened()
    assert "22 of 22 operations are on the predicted device" in page.locator("#measured-summary").inner_text()
    assert "nothing in it was measured" in page.locator("#measured-summary").inner_text()
    page.check("#measured-differs")
    assert rows(page, "measured-grid").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_of_aa(opened, scheme):
    """Every visible text against the ground behind it: 4.5, or 3 where it is large."""
    page = opened(scheme=scheme)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.evaluate(CONTRAST) == []
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.evaluate(CONTRAST) == []
    rows(page, "matrix-grid").first.click()
    page.locator("#panel ol.passes details summary").first.click()
    assert page.evaluate(CONTRAST) == []
    page.keyboard.press("Escape")
    page.check("#measured-only")
    assert page.evaluate(CONTRAST) == []
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") != scheme


def test_pictures_and_lists_have_words(opened):
    page = opened()
    assert page.locator("svg:not([aria-label])").count() == 0
    assert page.locator(".row:not([aria-label])").count() == 0
    for kind in ("input", "select", "button"):
        assert page.locator(kind).evaluate_all(UNNAMED) == [], kind


@pytest.mark.parametrize("name", ["report.html", "against.html"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_in_one_direction(opened, shots, name, scheme):
    page = opened(name, width=390, height=844, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.screenshot(path=str(shots / f"phone-{name.partition('.')[0]}-{scheme}.png"), full_page=True)


def test_dark_looks_dark(opened, shots):
    page = opened(scheme="dark")
    red, green, blue = map(
        int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]
    )
    assert red + green + blue < 150
    page.screenshot(path=str(shots / "report-dark.png"), full_page=True)


def test_a_comparison_shows_both_sides(opened, shots):
    page = opened("against.html")
    assert "M1" in page.locator("h1").inner_text()
    assert page.locator("#chips tbody tr").count() == 1
    assert page.locator("#findings details").count() >= 1
    page.locator("#findings summary").first.click()
    page.screenshot(path=str(shots / "against.png"), full_page=True)

"""Pictures of estimates, read back from the SVG: marks against the numbers, words against each other and the sheet."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import combinations
from math import isclose, log10
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import aneforge as af
from aneforge.chips.names import chip_label
from aneforge.cli import plot
from aneforge.cost.constants import basis_of
from aneforge.errors import AneforgeError
from aneforge.reports.plots import chips_svg, roofline_svg, timeline_svg
from aneforge.svg import Linear, Log, nice_step, shortened, text_width, wrapped

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
BOUNDS = ("compute", "weights", "activations", "dispatch")
# Advance widths of DejaVu Sans, from space to tilde, in thousandths of the size: the widest of the common fonts.
WIDTHS = (
    "318 401 460 838 636 950 780 275 390 390 500 838 318 361 318 337 636 636 636 636 636 636 636 636 636 636 337 337 "
    "838 838 838 531 1000 684 686 698 770 632 575 775 752 295 295 656 557 863 748 787 603 787 695 635 611 732 684 989 "
    "685 611 685 390 337 390 838 500 500 613 635 550 635 615 352 635 634 278 278 579 278 974 634 612 635 635 411 521 "
    "392 634 592 818 592 592 525 636 337 636 838"
)
ADVANCE = {chr(32 + number): int(word) / 1000 for number, word in enumerate(WIDTHS.split())}


@cache
def real():
    x = af.input((1, 16, 32, 32), name="x")
    y = af.conv(x, np.full((64, 16, 3, 3), 0.01), pad=1).relu().named("stem")
    return af.compile(y.mean((2, 3)).reshape(1, 64).linear(np.full((10, 64), 0.01)), target="m5").estimate()


def made(times, call=100.0, names=None, places=None, bounds=BOUNDS, chip="m5"):
    """An estimate with given times; ``places`` are operations and bytes of each layer."""
    layers = tuple(
        replace(
            real().layers[0],
            number=number,
            op="convolution",
            sources=(names[number] if names else f"conv_{number}",),
            us=us,
            bound=bounds[number % len(bounds)],
            flops=places[number][0] if places else 1e6 * (number + 1),
            traffic=places[number][1] if places else 1e4,
        )
        for number, us in enumerate(times)
    )
    us = sum(times) + call
    return replace(real(), us=us, interval=(us * 0.8, us * 1.3), layers=layers, basis=basis_of(chip), copies_us=0.0)


def scattered(count, seed=0):
    draw = np.random.default_rng(seed)
    places = [(float(10 ** draw.uniform(3, 9)), float(10 ** draw.uniform(3, 6))) for _ in range(count)]
    return made([float(us) for us in draw.lognormal(1, 1.5, count)], places=places)


# Reading a picture.


class Picture:
    def __init__(self, svg):
        self.root = ElementTree.fromstring(svg)  # noqa: S314 - our own file
        self.box = tuple(float(word) for word in self.root.get("viewBox").split())

    def marks(self, kind, tag=None):
        found = [each for each in self.root if each.get("class") == kind]
        return [each for each in found if tag is None or local(each) == tag]

    def words(self, kind=None):
        return [each.text for each in self.root if local(each) == "text" and kind in (None, each.get("class"))]

    def scale(self, kind, axis, log=False, sign="", lines=None):
        """Pixels to values, by the ticks that the picture prints: nothing of the program's own scale."""
        pixels = [at(each, axis) for each in self.marks(lines or kind)]
        ticks = list(zip(pixels, [value_of(words.removeprefix(sign)) for words in self.words(kind)], strict=True))
        (p0, v0), (p1, v1) = ticks[0], ticks[-1]
        if log:
            return lambda pixel: 10 ** (log10(v0) + (pixel - p0) * (log10(v1) - log10(v0)) / (p1 - p0))
        return lambda pixel: v0 + (pixel - p0) * (v1 - v0) / (p1 - p0)

    def text_boxes(self):
        for each in self.root:
            if local(each) == "text":
                yield each.text, box_of(each)


def local(each):
    return each.tag.rpartition("}")[2]


def at(each, name):
    return float(each.get(name))


def value_of(words):
    digits = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    raised = re.fullmatch("10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", words)
    return 10.0 ** int(raised[1].translate(digits)) if raised else float(words.replace(",", ""))


def hover(each):
    return next((child.text for child in each if local(child) == "title"), "")


def box_of(text):
    size = at(text, "font-size")
    width = size * sum(ADVANCE.get(letter, 0.8) for letter in text.text or "")
    width *= 1.12 if text.get("font-weight") == "bold" else 1
    x, y = at(text, "x"), at(text, "y")
    left = x - {None: 0, "middle": width / 2, "end": width}[text.get("text-anchor")]
    if text.get("transform"):
        assert text.get("transform").startswith("rotate(-90 ")
        return x - 0.8 * size, y - width / 2, x + 0.2 * size, y + width / 2
    return left, y - 0.75 * size, left + width, y + 0.2 * size


def check_words(svg):
    """All words lie on the sheet, and none on others."""
    picture = Picture(svg)
    boxes = list(picture.text_boxes())
    _, _, width, height = picture.box
    for words, (left, top, right, bottom) in boxes:
        assert left >= 0, words
        assert top >= 0, words
        assert right <= width, words
        assert bottom <= height, words
    for (one, a), (other, b) in combinations(boxes, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, (one, other)
    return picture


# The drawing layer.


def test_scales_and_their_ticks():
    straight = Linear(200.0, 10.0, 110.0)
    assert (straight(0), straight(50), straight(200)) == (10.0, 35.0, 110.0)
    assert list(straight.ticks(4)) == [(0, "0"), (50, "50"), (100, "100"), (150, "150"), (200, "200")]
    assert [words for _, words in Linear(0.3, 0, 1).ticks(3)] == ["0", "0.1", "0.2", "0.3"]
    assert [words for _, words in Linear(5000, 0, 1).ticks(3)] == ["0", "2,000", "4,000"]
    assert [nice_step(least) for least in (0.9, 1, 1.1, 3, 6, 40)] == [1, 1, 2, 5, 10, 50]
    decades = Log(0.01, 1000.0, 0.0, 100.0)
    assert [decades(value) for value in (0.01, 1, 1000)] == pytest.approx([0, 40, 100])
    assert [words for _, words in decades.ticks()] == ["0.01", "0.1", "1", "10", "100", "1,000"]
    assert [words for _, words in Log(3, 40, 0, 1).ticks()] == ["5", "10", "20"]
    assert [words for _, words in Log(1e-8, 1e2, 0, 1).ticks(5)] == ["10⁻⁸", "10⁻⁶", "0.0001", "0.01", "1", "100"]


def test_text_is_measured_wide_and_cut_to_fit():
    for words in ("conv_0 and 12 more", "MATMUL/Wq:0", "1,234 + 5%", "<a & b>"):
        assert text_width(words, 10) >= 10 * sum(ADVANCE[letter] for letter in words)
    assert shortened("short", 10, 100) == "short"
    assert shortened("encoder/layer/0/query", 10, 70) == "encoder/l…"  # 8 letters of 6.4, one of 3.4
    assert shortened("encoder/layer/0/query", 10, 70, keep="end").startswith("…")
    assert shortened("encoder/layer/0/query", 10, 70, keep="end").endswith("/query")
    lines = wrapped("one two three four five " + 40 * "long", 10, 80)
    assert all(text_width(line, 10) <= 80 for line in lines)
    assert lines[0].startswith("one two")
    assert lines[-1].endswith("…")


# The roofline.


def test_dots_are_where_the_estimate_says():
    found = scattered(60)
    picture = Picture(roofline_svg(found, "sixty"))
    intensity, rate = (picture.scale("tick-x", "x", log=True), picture.scale("tick-y", "y1", log=True, lines="grid-y"))
    dots = {int(re.match(r"layer (\d+):", hover(each))[1]): each for each in picture.marks("dot")}
    assert sorted(dots) == list(range(60))
    for layer in found.layers:
        dot = dots[layer.number]
        assert isclose(intensity(at(dot, "cx")), layer.flops / layer.traffic, rel_tol=0.01)
        # Operations per microsecond are millionths of TFLOP/s.
        assert isclose(rate(at(dot, "cy")), layer.flops / layer.us / 1e6, rel_tol=0.01)
    (ridge,) = picture.marks("ridge")
    assert isclose(intensity(at(ridge, "cx")), found.roof.ridge, rel_tol=0.01)
    assert isclose(rate(at(ridge, "cy")), found.roof.peak / 1e6, rel_tol=0.01)
    assert f"ridge {found.roof.ridge:,.3g}" in picture.words()


def test_the_area_of_a_dot_is_time_and_its_colour_the_bound():
    picture = Picture(roofline_svg(made([10.0, 40.0, 90.0, 160.0]), "four"))
    dots = sorted(picture.marks("dot"), key=lambda each: at(each, "r"))
    assert [at(each, "r") ** 2 / at(dots[-1], "r") ** 2 for each in dots] == pytest.approx(
        [10 / 160, 40 / 160, 90 / 160, 1], rel=0.02
    )
    assert len({each.get("fill") for each in dots}) == 4
    assert picture.words("legend") == [f"bound by {bound}" for bound in BOUNDS]


@pytest.mark.parametrize("count", [1, 12, 150])
def test_labels_stay_in_their_frames(count):
    chips = {name: scattered(count, seed) for seed, name in enumerate(("m1", "m2", "m5", "m6"))}
    picture = check_words(roofline_svg(chips, "four"))
    frames = [(at(each, "x"), at(each, "y"), at(each, "width"), at(each, "height")) for each in picture.marks("frame")]
    labels = picture.marks("label")
    assert len(labels) >= 4 * min(count + 1, 4)  # the ridge's, and of the longest layers
    for each in labels:
        left, top, right, bottom = box_of(each)
        assert any(
            x <= left and right <= x + wide and y <= top and bottom <= y + tall for x, y, wide, tall in frames
        ), each.text


def test_layers_in_one_place_share_a_label():
    picture = Picture(roofline_svg(made([5.0] * 9, places=[(1e6, 1e4)] * 9), "nine"))
    assert len(picture.marks("dot")) == 9
    assert "conv_0 and 8 more" in picture.words("label")


def test_chips_are_panels_with_the_same_axes():
    chips = {"M1": made([5.0, 9.0], chip="m1"), "M5": made([1.0, 2.0]), "M6": made([0.5, 0.7], chip="m6")}
    picture = check_words(roofline_svg(chips, "three"))
    frames = picture.marks("frame")
    assert len(frames) == len(picture.marks("ridge")) == 3
    assert all(name in picture.words() for name in chips)
    first, second = ([at(each, "x") - at(frame, "x") for each in picture.marks("tick-x") if within(each, frame)]
                     for frame in frames[:2])  # fmt: skip
    assert first == pytest.approx(second, abs=0.02)
    for dot in picture.marks("dot"):
        assert sum(
            at(frame, "x") <= at(dot, "cx") <= at(frame, "x") + at(frame, "width")
            and at(frame, "y") <= at(dot, "cy") <= at(frame, "y") + at(frame, "height")
            for frame in frames
        ) == 1  # fmt: skip
    with pytest.raises(AneforgeError, match="one to 4 chips, not 5"):
        roofline_svg({str(number): real() for number in range(5)}, "five")


def within(tick, frame):
    below = at(tick, "y") - at(frame, "y") - at(frame, "height")
    return 0 < below < 30 and -1 <= at(tick, "x") - at(frame, "x") <= at(frame, "width") + 1


def test_layers_without_a_place_are_counted():
    picture = Picture(roofline_svg(made([5.0, 0.0, 3.0], places=[(1e6, 1e4), (1e6, 1e4), (0.0, 1e4)]), "one dot"))
    assert len(picture.marks("dot")) == 1
    assert any("2 layers without operations or time have no place." in words for words in picture.words())


# The timeline.


@pytest.mark.parametrize("count", [1, 10, 47])
def test_few_layers_have_a_row_each(count):
    times = [float(3 + number % 7) for number in range(count)]
    picture = check_words(timeline_svg(made(times, call=50.0), "few"))
    bars, time = picture.marks("bar"), picture.scale("tick-x", "x")
    assert [time(at(bar, "x")) for bar in bars] == pytest.approx(
        [0.0, *(50.0 + sum(times[:number]) for number in range(count))], abs=0.02
    )
    assert [time(at(bar, "x") + at(bar, "width")) - time(at(bar, "x")) for bar in bars] == pytest.approx(
        [50.0, *times], abs=0.02
    )
    assert picture.words("label") == ["the call", *(f"conv_{number}" for number in range(count))]
    assert len({at(bar, "y") for bar in bars}) == count + 1
    assert bars[0].get("fill") not in {bar.get("fill") for bar in bars[1:]}


@pytest.mark.parametrize("count", [60, 200, 1400])
def test_many_layers_lie_end_to_end_on_lines(count):
    found = scattered(count, seed=count)
    picture = check_words(timeline_svg(found, "many"))
    starts = {at(each, "y"): value_of(each.text) for each in picture.marks("tick-y")}
    along = picture.scale("tick-x", "x", sign="+")
    taken, end = {}, 0.0
    for bar in picture.marks("bar"):
        line = min(starts, key=lambda y: abs(y - at(bar, "y")))
        start = starts[line] + along(at(bar, "x"))
        assert isclose(start, end, abs_tol=1e-4 * found.us)  # no gap, no overlap, across lines too
        end = starts[line] + along(at(bar, "x") + at(bar, "width"))
        name = hover(bar).split(":")[0]
        taken[name] = taken.get(name, 0.0) + end - start
    assert isclose(end, found.us, rel_tol=1e-4)
    assert taken["starting the call"] == pytest.approx(100.0, abs=1e-4 * found.us)
    assert len(taken) == count + 1
    for layer in found.layers:
        assert taken[f"layer {layer.number}"] == pytest.approx(layer.us, abs=1e-4 * found.us)
    longest = max(found.layers, key=lambda layer: layer.us)
    assert longest.sources[0] in picture.words("label")


def test_copies_are_a_piece_of_the_call():
    found = replace(made([30.0, 10.0]), copies_us=25.0)
    assert [(span.kind, span.us) for span in found.spans()][:2] == [("call", 75.0), ("copies", 25.0)]
    assert sum(span.us for span in found.spans()) == pytest.approx(found.us)
    assert Picture(timeline_svg(found, "copies")).words("label") == ["the call", "copies", "conv_0", "conv_1"]


def test_a_long_time_has_room_for_its_ticks():
    check_words(timeline_svg(made([4e5] * 60), "half a minute"))


def test_the_caption_tells_the_totals():
    words = " ".join(Picture(timeline_svg(made([30.0, 0.0, 10.0], bounds=("compute", "weights")), "t")).words())
    for wanted in (
        "140 µs a call (112 to 182)",
        "100 µs around the engine (coreml_call)",
        "40.0 µs on it in 3 layers, 1 of which takes no time",
        "compute 40.0 µs (100%)",
    ):
        assert wanted in words, words


def test_chips_share_the_time_scale():
    picture = check_words(timeline_svg({"M1": made([80.0, 40.0]), "M5": made([20.0, 10.0], call=10.0)}, "two"))
    widths = [at(bar, "width") for bar in picture.marks("bar")]
    per_us = widths[0] / 100.0
    assert widths == pytest.approx([per_us * us for us in (100, 80, 40, 10, 20, 10)], abs=0.02)


# Chips beside each other.


def test_bars_and_whiskers_are_the_numbers():
    fitted = replace(basis_of("m1"), fitted=True, rows=7)
    extrapolated = replace(basis_of("m4"), fitted=False, taken_from="M1")
    chips = {
        "m1": replace(made([400.0]), basis=fitted),
        "m4": replace(made([150.0]), basis=extrapolated),
        "m5": replace(made([60.0]), basis=replace(fitted, rows=1)),
        "m6": AneforgeError("no"),
    }
    picture = check_words(chips_svg(chips, "four"))
    time = picture.scale("tick-x", "x")
    found = [each for each in chips.values() if not isinstance(each, AneforgeError)]
    bars = picture.marks("bar")
    assert [time(at(bar, "x")) for bar in bars] == pytest.approx([0, 0, 0], abs=0.02)
    ends = [time(at(bar, "x") + at(bar, "width")) for bar in bars]
    assert ends == pytest.approx([500, 250, 160], rel=1e-3)
    for whisker, each in zip(picture.marks("whisker"), found, strict=True):
        assert (time(at(whisker, "x1")), time(at(whisker, "x2"))) == pytest.approx(each.interval, rel=1e-3)
    assert picture.words("value") == ["500 µs", "250 µs", "160 µs"]
    assert picture.words("label") == ["m1", "m4", "m5", "m6"]
    assert bars[0].get("fill") == bars[2].get("fill") != bars[1].get("fill")
    assert [at(bar, "y") for bar in bars] == sorted(at(bar, "y") for bar in bars)
    assert picture.words("basis") == ["7 measurements", "factors of M1", "1 measurement"]
    (refused,) = picture.marks("refused")
    assert (refused.text, hover(refused)) == ("no program", "m6: no")


@pytest.mark.parametrize("count", [1, 28, 60])
def test_any_number_of_chips_reads(count):
    chips = {f"h{number} (Some Chip)": made([1.0 + 977 * number], chip="m5") for number in range(count)}
    picture = check_words(chips_svg(chips, "all"))
    assert picture.words("label") == list(chips)
    assert picture.box[2:] == (900, pytest.approx(130 + 22 * count, abs=40))


def test_only_refusals_and_no_chips_at_all():
    assert Picture(chips_svg({"m1": AneforgeError("too wide")}, "none")).words("refused") == ["no program"]
    assert "No chip was asked for." in Picture(chips_svg({}, "empty")).words()


def test_labels_name_the_chip():
    assert chip_label("h17") == "M5"
    assert chip_label("m5 max") == "M5 Max"
    assert chip_label("u1") == "u1"  # no product carries it


# All of them.

PICTURES = {
    "roofline": roofline_svg,
    "timeline": timeline_svg,
    "chips": lambda each, title: chips_svg({"m5": each}, title),
}
draws = pytest.mark.parametrize("draw", PICTURES.values(), ids=list(PICTURES))


@draws
@pytest.mark.parametrize("seed", range(4))
def test_words_never_lie_on_words(draw, seed):
    check_words(draw(scattered(30 * (seed + 1), seed), "scattered"))


@draws
@pytest.mark.parametrize(
    "times",
    [[], [0.0], [0.0, 0.0], [1e-4], [3e7], [1e-4, 3e7]],
    ids=["none", "zero", "zeros", "short", "long", "both"],
)
@pytest.mark.parametrize("call", [0.0, 100.0])
def test_extreme_times(draw, times, call):
    svg = draw(made(times, call=call), "extreme")
    assert "nan" not in svg
    assert "inf" not in svg.replace("information", "")
    check_words(svg)


@draws
def test_the_form_of_the_file(draw):
    svg = draw(real(), "a & b")
    picture = Picture(svg)
    assert svg.isascii()
    assert local(picture.root) == "svg"
    assert picture.root.get("role") == "img"
    assert [local(each) for each in picture.root][:2] == ["title", "desc"]
    assert picture.root[0].text == "a & b"
    assert picture.root[1].text
    assert svg == draw(real(), "a & b")


@draws
@pytest.mark.parametrize(
    "name",
    ['<b>&"quoted"', "a]]>b", "\x00\x1b[31m\ud800\ufffe", "层归一化_0", "a/" * 400 + "end", "", " ", "-->", "%s{0}"],
)
def test_odd_names_are_only_words(draw, name):
    svg = draw(made([30.0, 20.0], names=[name, "plain"]), f"title {name}")
    picture = check_words(svg)
    assert picture.root[0].text.startswith("title ")
    if name.isprintable() and "a/" not in name:
        assert picture.root[0].text == f"title {name}"
    assert check_words(chips_svg({name: real(), "m1": AneforgeError(name)}, name)).marks("refused")


def test_long_names_keep_their_end():
    (_, label, _) = Picture(timeline_svg(made([30.0, 20.0], names=["a/" * 90 + "query", "b"]), "long")).words("label")
    assert label.startswith("…")
    assert label.endswith("/query")


def test_a_layer_without_a_name_is_called_by_its_op():
    assert Picture(timeline_svg(made([30.0, 20.0], names=["", "b"]), "t")).words("label")[1:] == ["convolution", "b"]


@draws
def test_two_thousand_layers_stay_small(draw):
    svg = draw(scattered(2000), "large")
    assert len(svg) < 2_000_000
    check_words(svg)


def test_a_bound_nobody_has_heard_of_has_a_colour():
    picture = Picture(roofline_svg(made([3.0, 4.0, 5.0], bounds=("compute", "tea", "weather")), "new"))
    assert len({each.get("fill") for each in picture.marks("dot")}) == 3
    assert "bound by tea" in picture.words("legend")


# The command.


def test_the_command_writes_a_file(tmp_path, capsys):
    file = tmp_path / "resnet.svg"
    plot.run(str(EXAMPLES / "resnet.py"), "roofline", "m1,m5", "coreml_call", str(file))
    assert capsys.readouterr().out == f"wrote {file}\n"
    check_words(file.read_text(encoding="utf-8"))
    assert [each.name for each in tmp_path.iterdir()] == ["resnet.svg"]
    plot.run(str(EXAMPLES / "resnet.py"), "timeline", None, "direct_call", str(file))
    picture = check_words(file.read_text(encoding="utf-8"))
    assert "M1" in picture.words()
    assert any("(direct_call)" in words for words in picture.words())


def test_the_command_prints_and_tells_refusals_apart(capsys):
    plot.run(str(EXAMPLES / "vit.py"), "chips", None, "coreml_call", "-")
    told = capsys.readouterr()
    picture = check_words(told.out)
    assert "partly on the host with A12 Bionic," in told.err
    split = picture.marks("host")
    assert split
    assert all("on the host: " in hover(each) for each in split)
    assert len(picture.marks("bar")) > len(split)  # newer chips take it whole
    assert len(picture.words("label")) == len(picture.marks("bar"))


@pytest.mark.parametrize(
    ("kind", "chips", "scope", "out", "message"),
    [
        ("pie", "m1", "coreml_call", "x.svg", "pie: not a kind of picture; choose one: roofline, timeline, chips"),
        ("chips", "m1", "coreml_call", "x.png", "pictures are SVG"),
        ("chips", "m1", "coreml_call", "x", "pictures are SVG"),
        ("chips", "m1", "coreml_call", "nowhere/x.svg", "the folder .*nowhere does not exist"),
        ("chips", "m1", "coreml_call", "folder.svg", "this is a folder"),
        ("roofline", "m1,m2,m4,m5,m6", "coreml_call", "x.svg", "one to 4 chips, not 5"),
        ("timeline", "all", "coreml_call", "x.svg", "a timeline shows one to 4 chips"),
        ("chips", "m1", "dream", "x.svg", "'dream' is not a scope"),
        ("chips", "m77", "coreml_call", "x.svg", "m77"),
    ],
)
def test_what_cannot_be_drawn_is_refused_and_nothing_is_written(tmp_path, kind, chips, scope, out, message):
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(AneforgeError, match=message):
        plot.run(str(EXAMPLES / "resnet.py"), kind, chips, scope, str(tmp_path / out))
    assert [each.name for each in tmp_path.iterdir()] == ["folder.svg"]


def test_no_chip_runs_anything_of_the_model(tmp_path):
    """A top-k alone, which an M1 does not have."""
    file = tmp_path / "net.py"
    lines = ["import numpy as np", "import aneforge as af", "x = af.input((4, 64))", "out = af.topk(x, 8)"]
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(AneforgeError, match=r"nothing of it runs on the engine of M1\. .*TopK passes its validator"):
        plot.run(str(file), "roofline", "m1", "coreml_call", str(tmp_path / "x.svg"))


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    file = tmp_path / "old.svg"
    file.write_text("old", encoding="utf-8")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(AneforgeError, match="cannot be written"):
        plot.run(str(EXAMPLES / "resnet.py"), "chips", "m1", "coreml_call", str(file))
    assert file.read_text(encoding="utf-8") == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["old.svg"]


def test_the_bytes_do_not_depend_on_the_process():
    def drawn(seed):
        words = (str(EXAMPLES / "resnet.py"), "roofline", "m5", "coreml_call", "-")
        code = f"from aneforge.cli import plot; plot.run(*{words!r})"
        environment = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": "C"}
        return subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment).stdout

    assert drawn("1") == drawn("2")

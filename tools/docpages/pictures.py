"""The pictures: the estimates of a ResNet-18, as ``aneforge plot`` draws them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from aneforge.advice.estimates import Estimates, estimate_all
from aneforge.reports.plots import chips_svg, roofline_svg, timeline_svg

__all__ = ["chips_picture", "roofline_picture", "timeline_picture"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@cache
def _resnet() -> Estimates:
    return estimate_all(str(EXAMPLES / "resnet.py"), "macs,phones", "coreml_call")


def roofline_picture() -> str:
    chips = {name: dict(_resnet())[name] for name in ("M1", "M5")}
    return roofline_svg(chips, "ResNet-18: layers and roofline")


def timeline_picture() -> str:
    return timeline_svg(_resnet()["M1"], "ResNet-18: estimated time by layer")


def chips_picture() -> str:
    return chips_svg(_resnet().in_order(), "ResNet-18: estimated time of one call")

"""Pictures of estimates: layers under the roofline, layers along time, and chips beside each other.

Each is the text of an SVG file; the same estimates give the same bytes. A picture shows what an estimate says and
adds nothing to it.
"""

from __future__ import annotations

from aneforge.reports.plots.chips import MOST_PANELS, chips_svg
from aneforge.reports.plots.roofline import roofline_svg
from aneforge.reports.plots.timeline import timeline_svg

__all__ = ["MOST_PANELS", "chips_svg", "roofline_svg", "timeline_svg"]

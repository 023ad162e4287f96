"""The simulator: the numbers that the engine gives, bit for bit where measurements on chips say how."""

from __future__ import annotations

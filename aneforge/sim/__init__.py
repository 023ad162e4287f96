"""The numbers the engine gives: its arithmetic, bit for bit where silicon says so."""

from __future__ import annotations

"""A local page where a model file is dropped and its report appears. Every model is read in a process of its own."""

from __future__ import annotations

from aneforge.reports.serve.server import Server

__all__ = ["Server"]

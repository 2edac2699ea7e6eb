"""Folders of the repository that tests read."""

from __future__ import annotations

from pathlib import Path

__all__ = ["ROOT", "TESTS"]

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent

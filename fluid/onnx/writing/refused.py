"""What cannot be said in ONNX, with the reasons."""

from __future__ import annotations

__all__ = ["REFUSED"]

REFUSED: dict[str, str] = {}
"""Op type -> why it, and its gradient, is not written."""

"""A stand-in for cupy that refuses what cupy refuses, for machines without a CUDA device.

Its arrays are numpy's underneath. The interface is cupy 14.2's: names, signatures and loops of ufuncs come from api.txt, which
make_cupy_api.py writes; the behaviour besides is that of cupy's documentation, and what a GPU showed. Where several values are
written to one element, the first stays; a GPU leaves any of them.
"""

from .namespace import cupy

__all__ = ["cupy"]

"""`ParallelExecutor`, where Fluid 1.x has it."""

from .compiler import ParallelExecutor

__all__ = ["ParallelExecutor"]

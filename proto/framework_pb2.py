"""The messages of Paddle's programs, under the name that the protobuf compiler gives their module."""

from . import BlockDesc, OpDesc, ProgramDesc, TensorDesc, VarDesc

__all__ = ["BlockDesc", "OpDesc", "ProgramDesc", "TensorDesc", "VarDesc"]

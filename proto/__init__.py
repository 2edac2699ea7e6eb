"""The wire schema: message classes for framework.proto, made from its checked-in descriptor.

They live in a descriptor pool of their own, so nothing that another package registers can collide with them, and are
built the same way by every protobuf runtime from 3.20 on, whatever compiler generated code would have asked for.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["BlockDesc", "OpDesc", "ProgramDesc", "TensorDesc", "VarDesc"]


def _load() -> dict[str, Any]:
    """Message name -> class."""
    files = descriptor_pb2.FileDescriptorSet.FromString(resources.files(__name__).joinpath("framework.bin").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    names = [message.name for message in files.file[0].message_type]
    descriptors = {name: pool.FindMessageTypeByName(f"fluid.proto.{name}") for name in names}
    if hasattr(message_factory, "GetMessageClass"):
        return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in descriptors.items()}
    factory: Any = message_factory.MessageFactory(pool)  # protobuf before 4.22
    return {name: factory.GetPrototype(descriptor) for name, descriptor in descriptors.items()}


_messages = _load()
BlockDesc: Any = _messages["BlockDesc"]
OpDesc: Any = _messages["OpDesc"]
ProgramDesc: Any = _messages["ProgramDesc"]
TensorDesc: Any = _messages["TensorDesc"]
VarDesc: Any = _messages["VarDesc"]

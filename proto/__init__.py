"""The wire schema: message classes for framework.proto, made from its checked-in descriptor.

They live in a descriptor pool of their own, so nothing that another package registers can collide with them, and are
built the same way by every protobuf runtime from 3.20 on, whatever compiler generated code would have asked for.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["BlockDesc", "OpDesc", "ProgramDesc", "ProgramFrame", "TensorDesc", "VarDesc"]


def _load() -> dict[str, Any]:
    """Message name -> class."""
    files = descriptor_pb2.FileDescriptorSet.FromString(resources.files(__name__).joinpath("framework.bin").read_bytes())
    files.file.append(_frames(files.file[0]))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    names = [message.name for file in files.file for message in file.message_type]
    descriptors = {name: pool.FindMessageTypeByName(f"fluid.proto.{name}") for name in names}
    if hasattr(message_factory, "GetMessageClass"):
        return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in descriptors.items()}
    factory: Any = message_factory.MessageFactory(pool)  # protobuf before 4.22
    return {name: factory.GetPrototype(descriptor) for name, descriptor in descriptors.items()}


def _frames(file: Any) -> Any:
    """The messages of programs and blocks again, as ``ProgramFrame`` and ``BlockFrame``, with variables and ops left as bytes."""
    frames = descriptor_pb2.FileDescriptorProto(name="fluid/frames.proto", package=file.package, dependency=[file.name])
    for message in file.message_type:
        if message.name in ("ProgramDesc", "BlockDesc"):
            frame = frames.message_type.add()
            frame.CopyFrom(message)
            frame.name = message.name.replace("Desc", "Frame")
            for field in frame.field:
                if field.name in ("vars", "ops"):
                    field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
                    field.ClearField("type_name")
                elif field.name == "blocks":
                    field.type_name = f".{file.package}.BlockFrame"
    return frames


_messages = _load()
BlockDesc: Any = _messages["BlockDesc"]
OpDesc: Any = _messages["OpDesc"]
ProgramDesc: Any = _messages["ProgramDesc"]
ProgramFrame: Any = _messages["ProgramFrame"]
TensorDesc: Any = _messages["TensorDesc"]
VarDesc: Any = _messages["VarDesc"]

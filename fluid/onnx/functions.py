"""A model's functions, and ONNX's definitions of ops as functions."""

from __future__ import annotations

from typing import Any


def body_of_op(domain: str, proto: Any, opset: int, types: list[bytes]) -> Any:
    """ONNX's definition of an op as a `FunctionProto`, for a node and its input types; None if there is none."""
    import onnx

    try:
        schema = onnx.defs.get_schema(proto.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    if not schema.has_function and not schema.has_context_dependent_function:
        return None
    if schema.has_context_dependent_function:
        versions = [version for version in schema.context_dependent_function_opset_versions if version <= opset]
        data = schema.get_context_dependent_function_with_opset_version(
            max(versions or schema.context_dependent_function_opset_versions), proto.SerializeToString(), types
        )
    else:
        versions = [version for version in schema.function_opset_versions if version <= opset]
        data = schema.get_function_with_opset_version(max(versions or schema.function_opset_versions))
    if not data:
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(data)
    for attribute in schema.attributes.values():
        if attribute.default_value.name and attribute.name not in {declared.name for declared in body.attribute_proto}:
            body.attribute_proto.append(attribute.default_value)
    return body


def attributes_bound(node: Any, call: Any, function: Any, absent: set[str]) -> Any:
    """Bind a node of a function to a call: its attribute references become values, its absent inputs become ""."""
    if not any(name in absent for name in node.input) and not _refers(node):
        return node
    import onnx

    values = {attribute.name: attribute for attribute in function.attribute_proto}
    values.update((attribute.name, attribute) for attribute in call.attribute)
    bound = onnx.NodeProto()
    bound.CopyFrom(node)
    for place, name in enumerate(bound.input):
        if name in absent:
            bound.input[place] = ""
    _bind(bound, values)
    return bound


def _refers(node: Any) -> bool:
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return True
        if attribute.HasField("g") and any(_refers(inner) for inner in attribute.g.node):
            return True
    return False


def _bind(node: Any, values: dict[str, Any]) -> None:
    """Replace a node's references to attributes of the function by their values; a reference without a value is removed."""
    bound = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            value = values.get(attribute.ref_attr_name)
            if value is None:
                continue
            name = attribute.name
            attribute.CopyFrom(value)
            attribute.name = name
        elif attribute.HasField("g"):
            for inner in attribute.g.node:
                _bind(inner, values)
        bound.append(attribute)
    if len(bound) < len(node.attribute):
        copies = [type(message).FromString(message.SerializeToString()) for message in bound]
        del node.attribute[:]
        node.attribute.extend(copies)

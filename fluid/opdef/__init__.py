"""The language that defines ops: signatures, attributes, inference, gradient rules. The ops are in `fluid.ops`."""

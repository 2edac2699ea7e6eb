"""The language in which ops are defined: signatures, attributes, inference, gradient rules. The ops are in `fluid.ops`."""

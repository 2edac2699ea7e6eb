"""Eager mode: tensors on which ops run at once, and the engine that goes back over what was recorded."""

"""Programs as ONNX files. `import fluid` does not load this package, and nothing but it needs the package ``onnx``."""

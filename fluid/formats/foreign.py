"""Files of other programs, told by their first bytes, with advice for people who open them as models."""

from __future__ import annotations

_PICTURE = "a picture; a model takes it as an array of pixels, float32[1, channels, height, width] mostly"
_STARTS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes; export the model to ONNX (tf2onnx), which fluid.load_model reads"),
    (4, b"TFL3", "a model of TensorFlow Lite; export the original model to ONNX (tf2onnx), which fluid.load_model reads"),
    (0, b"\x89PNG\r\n\x1a\n", _PICTURE),
    (0, b"\xff\xd8\xff", _PICTURE),
    (0, b"GIF8", _PICTURE),
    (0, b"BM", _PICTURE),
    (0, b"GGUF", "weights for llama.cpp, in part quantized; take the .safetensors of the same model"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x1f\x8b", "compressed by gzip; unpack it first"),
    (0, b"<!DOCTYPE", "a web page: the download did not give the file"),
    (0, b"<html", "a web page: the download did not give the file"),
    (0, b"version https://git-lfs", "a pointer of Git LFS: git lfs pull gets the file itself"),
)  # fmt: skip


def foreign_file(path: str, head: bytes) -> str:
    """Name the kind of a file that Fluid does not read as a model, and say what to do; "" for any other file.

    Args:
        path: its path.
        head: its first bytes.
    """
    for at, start, text in _STARTS:
        if head[at : at + len(start)] == start:
            return f"{path} is {text}"
    if path.endswith((".pt", ".pth", ".ckpt.pt")):
        return f"{path} has weights of PyTorch, and no program; fluid.load_weights(layer_or_program, path) sets weights by name"
    if path.endswith((".h5", ".keras", ".tflite", ".mlmodel", ".caffemodel", ".pb")) and not head.startswith(b"\n"):
        return f"{path} is a model of another framework, by its name; export it to ONNX, which fluid.load_model reads"
    return ""

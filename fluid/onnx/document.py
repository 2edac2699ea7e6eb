"""Writes ``docs/onnx_ops_in.md``, the table of ONNX ops that can be read: ``python -m fluid.onnx.document``.

The file is checked in; a test keeps it current.
"""

from __future__ import annotations

import os

from . import ops_in  # noqa: F401  fills the table
from .table import IMPORTS

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "docs", "onnx_ops_in.md")

_HEAD = """# ONNX ops that can be read

The ops that `fluid.load_model("m.onnx")` builds programs from. Do not edit: `python -m fluid.onnx.document` writes this file
from the table in `fluid/onnx/ops_in/`.

*Train* says whether gradients flow through the op and were compared with differences
(`tests/onnx_models/test_gradients.py`). *Forms* lists the opsets that change the meaning of an op, as far as that matters. If an
op is not listed and ONNX defines it as a function (`Attention`, `RotaryEmbedding`, `NegativeLogLikelihoodLoss`, `CenterCropPad`,
`SequenceMap`, ...), this function is read, and trains as its ops do. So are ops of com.microsoft, which onnxruntime writes. Ops
on strings, `ImageDecoder`, and ops of other domains are not read, unless the model has functions for them. Of
ai.onnx.ml, trees and linear models are read; support vectors and dictionaries are not.

| op | train | forms | limits |
|---|---|---|---|
"""

_STATIC = "known when the program is built"

LIMITS = {
    "ai.onnx.ml::LinearClassifier": "labels that are integers; a row of coefficients for each",
    "ai.onnx.ml::TreeEnsemble": "no tests of membership",
    "ai.onnx.ml::TreeEnsembleClassifier": "labels that are integers; of two classes that have weights, the greater score",
    "ai.onnx.ml::ZipMap": "refused: programs hold no dictionaries",
    "com.microsoft::Attention": "no rotary embedding; masks of 1 to 3 dimensions",
    "com.microsoft::FusedMatMul": "no transposed batches",
    "com.microsoft::MatMulNBits": "weights known when the program is built, of 2, 4 or 8 bits; no `g_idx`",
    "com.microsoft::MultiHeadAttention": "keys and values of 3 dimensions; no past ones",
    "com.microsoft::QLinearSoftmax": "of opset 13 or later",
    "BitCast": "types that Fluid holds as they are, or integers",
    "ConvTranspose": "with `auto_pad` or `output_shape`, sizes " + _STATIC,
    "CumSum": f"the axis {_STATIC}",
    "CumProd": f"the axis {_STATIC}",
    "DFT": f"length and axis {_STATIC}; at most 4096 elements",
    "STFT": f"lengths {_STATIC}",
    "Dropout": f"ratio and training mode {_STATIC}",
    "EyeLike": f"the shape {_STATIC}",
    "GridSample": f"cubic, or of other than two dimensions: channels and sizes of images {_STATIC}",
    "If": "no optionals, and sequences of one length, from both branches; a single number is `[1]` where one branch gives it so",
    "Loop": "what is carried keeps its type and number of dimensions",
    "MaxPool": f"with dilations or indices, sizes {_STATIC}",
    "AveragePool": f"with dilations or `ceil_mode`, sizes {_STATIC}",
    "NonMaxSuppression": f"limits, and numbers of boxes and classes {_STATIC}",
    "OneHot": f"the depth {_STATIC}",
    "Reshape": "the number of dimensions " + _STATIC,
    "Resize": f"with `tf_crop_and_resize`, scales and sizes {_STATIC}",
    "Upsample": f"scales {_STATIC}",
    "RoiAlign": f"with `sampling_ratio` 0, or sizes of images not {_STATIC}: averages, whose gradients do not flow to regions",
    "Scan": "of opset 8, sequences of one length",
    "Slice": f"axes and steps {_STATIC}; where bounds are not, steps of 1",
    "SplitToSequence": f"sizes {_STATIC}",
    "Squeeze": f"axes {_STATIC}",
    "Unsqueeze": f"axes {_STATIC}",
    "TensorScatter": f"sizes {_STATIC}",
    "TfIdfVectorizer": f"integers, in rows of a length {_STATIC}",
    "Trilu": f"the diagonal {_STATIC}",
}
"""Op -> the only forms that are read."""


def render() -> str:
    """The text of the document."""
    rows = []
    for op_type, versions in sorted(IMPORTS.items()):
        forms = ", ".join(str(version.since) for version in versions if version.since > 1)
        trains = "yes" if versions[-1].trains else ""
        limit = LIMITS.get(op_type, "")
        if op_type.startswith("Reduce"):
            limit = f"axes {_STATIC}"
        rows.append(f"| `{op_type}` | {trains} | {forms} | {limit} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(render())

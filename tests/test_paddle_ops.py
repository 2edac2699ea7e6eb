"""`docs/paddle_ops.md` lists what Paddle has and Fluid lacks."""

from __future__ import annotations

import re
from pathlib import Path

from fluid.opdef import registry
from fluid.transform.op_versions import known_ops

DOCUMENT = Path(__file__).parents[1] / "docs" / "paddle_ops.md"
LISTED = re.findall(r"`([a-z0-9_]+)`", DOCUMENT.read_text(encoding="utf-8"))
BEING_WRITTEN = """
allclose angle as_complex as_real as_strided assert atan2 bincount bitwise_and bitwise_not bitwise_or bitwise_xor
broadcast_tensors cholesky cholesky_solve complex conj cummax cummin cumprod determinant diag_embed digamma dirichlet
eig eigh eigvals eigvalsh elementwise_fmax elementwise_fmin elementwise_heaviside empty equal_all erfinv exponential
fft_c2c fft_c2r fft_r2c fill_any fill_diagonal fill_diagonal_tensor frame full_int_array gaussian_inplace grad_add
graph_khop_sampler graph_reindex graph_sample_neighbors graph_send_recv graph_send_ue_recv graph_send_uv gumbel_softmax
histogram i0 i0e i1 i1e imag index_add index_put index_select_strided inverse isclose kthvalue lgamma logcumsumexp logit
logspace lstsq lu lu_unpack matrix_power matrix_rank mode multi_dot nanmedian nextafter overlap_add partial_concat
partial_sum poisson polygamma qr real renorm repeat_interleave rrelu searchsorted segment_pool shuffle_batch
slogdeterminant solve stft svd tensor_unfold top_p_sampling triangular_solve tril_indices triu_indices trunc
uniform_random_inplace unique_consecutive view_dtype view_shape viterbi_decode warprnnt weighted_sample_neighbors
"""
"""Of mathematics; what is here need not be named."""


def is_gradient(op_type: str) -> bool:
    return bool(re.search(r"_grad$|_grad2$|_grad_grad$", op_type))


def test_what_is_listed_is_paddles_and_not_here() -> None:
    assert len(LISTED) == len(set(LISTED))
    here = registry.all_ops()
    assert [op_type for op_type in LISTED if op_type in here or op_type not in known_ops("paddle-2.6")] == []


def test_what_is_not_here_is_listed() -> None:
    here = {*registry.all_ops(), *LISTED, *BEING_WRITTEN.split()}
    assert [op_type for op_type in sorted(known_ops("paddle-2.6") - here) if not is_gradient(op_type)] == []


def test_gradients_are_here_where_their_ops_are() -> None:
    """Of those that Paddle's training programs hold; the ops of a pass for inference have none there."""
    here, missing = registry.all_ops(), []
    for op_type in known_ops("paddle-2.6") - set(here):
        base = re.sub(r"(_grad|_double|_triple)*_grad2?$", "", op_type)
        if is_gradient(op_type) and base in here:
            missing.append(op_type)
    assert sorted(missing) == ["fused_elemwise_activation_grad", "fused_elemwise_add_activation_grad"]

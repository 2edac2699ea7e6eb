"""Ops that ONNX cannot express, with the reasons."""

from __future__ import annotations

_BY_REASON = {
    "it draws numbers in a way that ONNX has no op for": (
        "seed random_crop nce sample_logits dirichlet poisson top_p_sampling shuffle_batch weighted_sample_neighbors "
        "graph_sample_neighbors graph_khop_sampler"
    ),
    "it keeps the rows of a table that are stored, which ONNX has no type for": (
        "get_tensor_from_selected_rows merge_selected_rows select_rows_like"
    ),
    "it reaches outside of the model: files, the screen, Python": (
        "load load_combine save save_combine print py_func py_func_backward"
    ),
    "it makes or reads more than one level of sequences": (
        "beam_search beam_search_decode chunk_eval detection_map generate_mask_labels"
    ),
    "it computes with unsigned integers of 64 bits that wrap around": "hash",
    "it is of arrays of Paddle 3": "fill_array_like insert_into_array pop_from_array",
    "it stops a run, which ONNX has no op for": "assert",
    "it reads the bits of numbers, which ONNX has no op for before its newest opset": (
        "lookup_table_dequant nextafter signbit view_dtype"
    ),
    "it shifts the bits of signed integers, which ONNX has no op for": "bitwise_left_shift bitwise_right_shift",
    "it speaks to other workers": (
        "allreduce barrier c_allgather c_allreduce_max c_allreduce_min c_allreduce_prod c_allreduce_sum c_broadcast "
        "c_comm_init c_comm_init_all c_gen_nccl_id c_reduce_sum c_reducescatter c_sync_calc_stream c_sync_comm_stream "
        "c_allreduce_sum_coalesced c_join_parts c_lookup_rows c_send_rows c_take_part sync_batch_norm"
    ),
    "it computes with complex numbers, which most of ONNX's ops do not take": (
        "angle as_complex as_real complex conj real imag fft_c2c fft_c2r fft_r2c fft_r2c_adjoint double_inner stft"
    ),
    "it decomposes matrices step by step until numbers settle, which ONNX has no op for": (
        "eig eigh eigvals eigvalsh lstsq lu lu_unpack matrix_rank qr svd"
    ),
    "only plans of the executor contain it: no saved program does": "pad_sequences active_ids max_rows",
}

REFUSED: dict[str, str] = {op_type: reason for reason, op_types in _BY_REASON.items() for op_type in op_types.split()}
"""Op type -> why it and its gradient are not written."""

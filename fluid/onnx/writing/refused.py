"""What cannot be said in ONNX, or is not written yet, with the reasons."""

from __future__ import annotations

__all__ = ["REFUSED"]

_BY_REASON = {
    "it draws numbers in a way that ONNX has no op for": (
        "multinomial randperm sampling_id seed truncated_gaussian_random random_crop nce sample_logits "
        "dirichlet exponential gaussian_inplace gumbel_softmax poisson top_p_sampling shuffle_batch rrelu "
        "uniform_random_inplace weighted_sample_neighbors graph_sample_neighbors graph_khop_sampler dropout_nd"
    ),
    "it keeps the rows of a table that are stored, which ONNX has no type for": (
        "get_tensor_from_selected_rows merge_selected_rows select_rows_like"
    ),
    "it reaches outside of the model: files, the screen, Python": (
        "load load_combine save save_combine print py_func py_func_backward"
    ),
    "it makes or reads more than one level of sequences": "beam_search beam_search_decode detection_map chunk_eval",
    "it computes with unsigned integers of 64 bits that wrap around": "hash",
    "it chooses or matches boxes one after the other; it is not written yet": (
        "bipartite_match mine_hard_examples target_assign collect_fpn_proposals distribute_fpn_proposals generate_mask_labels "
        "generate_proposal_labels generate_proposals generate_proposals_v2 retinanet_detection_output retinanet_target_assign "
        "rpn_target_assign locality_aware_nms matrix_nms multiclass_nms multiclass_nms2 multiclass_nms3"
    ),
    "it speaks to other workers": (
        "allreduce barrier c_allgather c_allreduce_max c_allreduce_min c_allreduce_prod c_allreduce_sum c_broadcast "
        "c_comm_init c_comm_init_all c_gen_nccl_id c_reduce_sum c_reducescatter c_sync_calc_stream c_sync_comm_stream "
        "join_flat split_flat sync_batch_norm"
    ),
    "it computes with complex numbers, which most of ONNX's ops do not take": (
        "angle as_complex as_real complex conj real imag fft_c2c fft_c2r fft_r2c double_inner stft"
    ),
    "it solves or decomposes matrices, which ONNX has no op for": (
        "cholesky cholesky_solve eig eigh eigvals eigvalsh inverse lstsq lu lu_unpack matrix_power matrix_rank qr "
        "slogdeterminant solve svd triangular_solve determinant"
    ),
    "it is made of ops that are not written yet": (
        "fused_embedding_fc_lstm fusion_gru fusion_lstm fusion_seqpool_cvm_concat multi_gru warprnnt"
    ),
    "there is no function that writes it yet": (
        "allclose as_strided assert atan2 bincount bitwise_and bitwise_not bitwise_or bitwise_xor broadcast_tensors "
        "conditional_block_infer cummax cummin cumprod dequantize_log diag_embed digamma elementwise_fmax "
        "elementwise_fmin elementwise_heaviside empty equal_all erfinv fill_any fill_diagonal fill_diagonal_tensor frame "
        "frame_like full_int_array grad_add graph_reindex graph_send_recv graph_send_ue_recv graph_send_uv histogram i0 "
        "i0e i1 i1e index_add index_put index_select_strided interleaved_sum isclose kthvalue lgamma logcumsumexp logit "
        "logspace lookup_table_dequant mode multi_dot nanmedian nextafter nms overlap_add overlap_like partial_concat "
        "partial_sum picked_sum polygamma quantize renorm repeat_interleave repeat_like rnnt_places searchsorted "
        "segment_like segment_pool strided_sum tensor_unfold tril_indices triu_indices trunc unique_consecutive "
        "view_dtype view_shape viterbi_decode "
        "auc mean_iou positive_negative_pair precision_recall average_accumulates box_clip "
        "box_decoder_and_assign ctc_align edit_distance cvm filter_by_instag row_of_each rows_of_tagged "
        "deform_columns deform_image deform_mask deformable_conv deformable_conv_v1 deformable_psroi_pooling moved_parts "
        "moved_parts_back precise_parts precise_parts_back prroi_pool psroi_pool psroi_pool_back roi_align roi_align_back "
        "roi_perspective_transform roi_pick roi_place roi_pool shift_of_parts straightened_back sum_of_shifts "
        "fake_quantize_range_abs_max moving_average_abs_max_scale gather_tree region_sum set_value hierarchical_sigmoid "
        "tree_path similarity_focus yolo_box yolo_terms yolov3_loss"
    ),
}

REFUSED: dict[str, str] = {op_type: reason for reason, op_types in _BY_REASON.items() for op_type in op_types.split()}
"""Op type -> why it, and its gradient, is not written."""

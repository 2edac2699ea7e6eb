"""What cannot be said in ONNX, or is not written yet, with the reasons."""

from __future__ import annotations

__all__ = ["REFUSED"]

_BY_REASON = {
    "it draws numbers in a way that ONNX has no op for": (
        "multinomial randperm sampling_id seed truncated_gaussian_random random_crop nce sample_logits"
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
    "there is no function that writes it yet": (
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

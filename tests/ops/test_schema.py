"""Slots, attributes and defaults of our ops against Paddle's: what makes programs interchangeable."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from checks import Checks, each
from paths import TESTS

from fluid.opdef import registry
from fluid.opdef.registry import PADDLE_SLOTS, REGION, ZERO_GRADIENT, OpDef, Rule
from fluid.ops import higher_orders

SCHEMAS: dict[str, Any] = json.loads((TESTS / "golden" / "op_schemas.json").read_text(encoding="utf-8"))
ALL = registry.all_ops()
FORWARD = sorted(op_type for op_type, definition in ALL.items() if definition.forward is None)

OURS = {
    "shard_index_by_floor": "shard_index of files of Paddle 1.6",
    "uncorrected_lamb": "lamb of files of Paddle 1.x",
    "nadam": "an optimizer that Paddle 1 and 2 lack",
    "radam": "an optimizer that Paddle 1 and 2 lack",
    "lion": "an optimizer that Paddle lacks",
    "rint": "ONNX's Round, which rounds halves to even",
    "fake_quantize_affine": "ONNX's QuantizeLinear and DequantizeLinear, one after the other",
    "fake_quantize_by_range": "ONNX's DynamicQuantizeLinear and DequantizeLinear",
    "matmul_integer": "ONNX's MatMulInteger",
    "dynamic_quantize_lstm": "one direction of onnxruntime's DynamicQuantizeLSTM",
    "conv2d_integer": "ONNX's ConvInteger",
    "tree_leaves": "ONNX's ensembles of trees",
    "conv2d_backprop_input": "transposes of conv2d, of which gradients of every order are made",
    "conv2d_backprop_filter": "transposes of conv2d, of which gradients of every order are made",
    "pool2d_index": "part of the gradient of pool2d",
    "pool2d_average_back": "transpose of pool2d",
    "conv3d_backprop_input": "as of conv2d",
    "conv3d_backprop_filter": "as of conv2d",
    "pool3d_index": "as of pool2d",
    "pool3d_average_back": "as of pool2d",
    "unpool_back": "transpose of unpool",
    "unpool3d_back": "transpose of unpool3d",
    "depth_to_space": "transpose of space_to_depth",
    "temporal_unshift": "transpose of temporal_shift",
    "fold_like": "transpose of unfold",
    "uncrop": "transpose of crop",
    "crop_like": "transpose of uncrop",
    "grid_gather": "grid_sampler and its derivatives by the grid",
    "grid_scatter": "transpose of grid_gather",
    "roi_align_back": "transpose of roi_align",
    "psroi_pool_back": "transpose of psroi_pool",
    "precise_parts": "prroi_pool and its derivatives by the edges of regions",
    "precise_parts_back": "transpose of precise_parts",
    "straightened_back": "transpose of roi_perspective_transform",
    "moved_parts": "deformable_psroi_pooling and its derivatives by places",
    "moved_parts_back": "transpose of moved_parts",
    "sum_of_shifts": "part of the gradient of moved_parts",
    "shift_of_parts": "transpose of sum_of_shifts",
    "row_of_each": "part of the gradient of cvm",
    "masked_fill": "an op of Paddle 3",
    "bitwise_left_shift": "an op of Paddle 3",
    "bitwise_right_shift": "an op of Paddle 3",
    "signbit": "a function of the array API standard",
    "median": "an op of Paddle 3",
    "patches_of_sequences": "part of what var_conv_2d means",
    "sequence_pairs": "part of the gradient of match_matrix_tensor",
    "rows_of_tagged": "part of the gradient of filter_by_instag",
    "roi_place": "gradient of roi_pool",
    "roi_pick": "transpose of roi_place",
    "focal_weights": "part of the gradient of sigmoid_focal_loss",
    "yolo_terms": "part of the gradient of yolov3_loss",
    "deform_columns": "what a deformable_conv reads, as part of its gradients",
    "deform_image": "transpose of deform_columns",
    "deform_mask": "transpose of deform_columns",
    "places_like": "part of the gradient of affine_grid",
    "spectral_vectors": "part of the gradient of spectral_norm",
    "sum_to": "undoes broadcasting",
    "expand_to": "broadcasts, with an axis",
    "expand_reduced": "transpose of reduce_sum",
    "reshape_like": "transpose of reshape",
    "unreshape": "transpose of reshape2",
    "split_like": "transpose of concat",
    "interp_like": "transpose of uninterp",
    "uninterp": "transpose of bilinear_interp and its like",
    "undiagonal": "transpose of diagonal",
    "unkron": "transpose of kron",
    "pad_by": "transpose of unpad_by",
    "unpad_by": "transpose of pad2d and pad3d, where they copy elements",
    "unslice": "transpose of slice",
    "strided_unslice": "transpose of strided_slice",
    "scatter_add_like": "transpose of gather",
    "scatter_rows_like": "transpose of lookup_table_v2",
    "pick": "elements by index, as in cross entropies",
    "place": "transpose of pick",
    "untile": "transpose of tile",
    "tile_like": "transpose of untile",
    "take_rows": "moves rows of sequences",
    "add_rows": "transpose of take_rows",
    "take_at_most": "transpose of place_at_most",
    "place_at_most": "gradient of sequence_pool by maximum",
    "patch_index": "where im2sequence takes its numbers from",
    "sequence_ids": "which sequence a row is in",
    "sequence_lengths": "lengths of sequences",
    "sequence_ends": "where sequences end",
    "sequence_context": "rows around a row",
    "sequence_margins": "rows around a row",
    "sequence_reversed": "mirrored rows",
    "sequence_positions": "rows as sequence_pad lays them out",
    "sequence_expanded": "rows as sequence_expand repeats them",
    "sequence_concatenated": "rows as sequence_concat orders them",
    "sequence_sliced": "rows as sequence_slice keeps them",
    "sequence_scattered": "elements as sequence_scatter names them",
    "resize_rows": "transpose of shrink_rnn_memory",
    "pad_sequences": "sequences as plain tensors, for loops in native code",
    "active_ids": "rows of sequences that are not over, for loops in native code",
    "max_rows": "maxima of rows by index, for softmax in loops in native code",
    "repeat_first_row": "the padding rows of shrink_rnn_memory in native code",
    "new_array": "what an array in a loop starts from",
    "stack_array": "recurrent as a loop",
    "unstack_array": "recurrent as a loop",
    "stack_array_like": "recurrent as a loop",
    "split_array": "transpose of tensor_array_to_tensor",
    "join_array": "transpose of split_array",
    "pop_from_array": "array_pop of Paddle 3",
    "insert_into_array": "transpose of pop_from_array",
    "fill_array_like": "create_array_like of Paddle 3",
    "concat_like": "concat with the axis in a tensor, as part of its gradients",
    "einsum_like": "transposes of einsum",
    "gather_like": "gather with the axis in a tensor, as part of its gradients",
    "masked_pick": "transpose of masked_place",
    "masked_place": "transpose of masked_select",
    "py_func_backward": "gradient of py_func, which no file can hold",
    "region_sum": "transpose of set_value",
    "padded_positions": "rows as lengths tell them",
    "crf_counts": "part of what linear_chain_crf means",
    "ctc_states": "part of what warpctc means",
    "rnnt_places": "part of what warprnnt means",
    "held": "where the gradient of warpctc is no derivative",
    "is_label": "part of the gradient of nce",
    "tree_path": "part of the gradient of hierarchical_sigmoid",
    "select_rows_like": "rows of a parameter that a sparse gradient has: decay",
    "c_join_parts": "updated parts of parameters, whose optimizer's state is divided among workers",
    "c_lookup_rows": "an embedding whose table is divided among workers, without parameter servers",
    "c_send_rows": "transpose of c_lookup_rows",
    "c_take_part": "a worker's part of a parameter",
    "c_allreduce_sum_coalesced": "a bucket of gradients, which Paddle's coalesce_tensor makes by sharing memory",
    "slice_like": "transpose of unslice",
    "picked_sum": "transpose of index_put",
    "segment_like": "part of the gradient of segment_pool",
    "interleaved_sum": "transpose of repeat_interleave",
    "repeat_like": "transpose of interleaved_sum",
    "strided_sum": "transpose of as_strided",
    "double_inner": "part of the gradient of fft_c2r",
    "fft_r2c_adjoint": "the gradient of fft_r2c",
    "overlap_like": "transpose of frame",
    "frame_like": "transpose of overlap_add",
    "strided_slice_like": "transpose of strided_unslice",
}
"""Ops that Paddle does not have -> what for. They are in programs only where gradients of gradients are."""
OLD = ["flatten", "gaussian_random_batch_size_like", "isfinite", "lstm_unit", "lstmp", "one_hot", "squeeze", "unsqueeze"]
OLD += ["center_loss", "cos_sim", "diag", "expand_as", "margin_rank_loss", "mean_iou", "smooth_l1_loss", "squared_l2_distance"]
"""Ops of Paddle 1.x that 2.6, from which the schemas are, no longer has."""
OLD += [
    "conditional_block_grad",
    "recurrent_grad",
    "reorder_lod_tensor_by_rank_grad",
    "while_grad",
    "fused_elemwise_activation_grad",
    "fused_elemwise_add_activation_grad",
]  # it has them, but tells no schemas of them

OLD += ["filter_by_instag", "prroi_pool", "roi_perspective_transform", "sigmoid_focal_loss", "target_assign"]
OLD += ["pad_constant_like", "random_crop", "sample_logits", "space_to_depth"]
OLD += ["conv_shift", "proximal_adagrad", "rnn_memory_helper"]
OLD += ["conv2d_fusion"]  # it became fused_conv2d_add_act
OLD += [op_type for op_type, definition in ALL.items() if definition.module == higher_orders.__name__]  # as of gradients
OLD += ["allreduce", "c_gen_nccl_id", "sync_batch_norm"]

OLD_ATTRIBUTES = {
    "gather": ["overwrite"],
    "lookup_table_v2": ["is_distributed", "is_sparse", "remote_prefetch"],
    "relu6": ["threshold"],
    "swish": ["beta"],
}
"""Attributes that these ops have in Paddle 1.x only. (Random ops lose theirs from the schemas too, see below.)"""

NEW_INPUTS = {"adadelta": ["LearningRate"], "where": ["X", "Y"]}
"""Inputs that these ops must have in Paddle 2.6, and have not in Paddle 1.x."""

OUR_INPUTS = {"unpool": ["OutputSize"], "unpool3d": ["OutputSize"]}
"""Inputs of ours: variables that Paddle names in an attribute, for `unpool`."""
OUR_ATTRIBUTES = {
    "write_to_array": ["clears"],
    **{f"c_allreduce_{kind}": ["nranks"] for kind in ("sum", "max", "min", "prod")},
    **{name: ["round_type"] for name in ALL if name.startswith("fake_") and "round_type" in ALL[name].attrs},
}
"""Attributes that Paddle does not have, and passes over; or, as `round_type`, reads but does not tell of."""

OUR_GRADIENTS = [
    *("fake_quantize_abs_max", "fake_quantize_range_abs_max", "fake_quantize_moving_average_abs_max"),
    *("fake_channel_wise_quantize_abs_max", "fake_dequantize_max_abs", "fake_channel_wise_dequantize_max_abs"),
    *("quantize_linear", "dequantize_linear"),
    *(f"c_allreduce_{kind}" for kind in ("sum", "max", "min", "prod")),
    *("c_allgather", "c_broadcast", "c_reduce_sum", "c_reducescatter", "c_sync_calc_stream", "c_sync_comm_stream", "barrier"),
    *("diag_embed", "elementwise_mod", "bincount", "fill_constant", "linspace", "logspace", "nextafter", "range"),
]
"""Ops that have a gradient only here: in Paddle, a pass puts them into a program after the backward part, or none is written."""

MORE_GRADIENTS = {
    "sequence_conv": {"PaddingData@GRAD"},  # in Paddle, too, where paddingTrainable is set
    "bce_loss": {"Label@GRAD"},
    "hinge_loss": {"Labels@GRAD"},
    "modified_huber_loss": {"Y@GRAD"},
    "teacher_student_sigmoid_loss": {"Label@GRAD"},
    "kldiv_loss": {"Target@GRAD"},
    "label_smooth": {"PriorDist@GRAD"},
    "rank_loss": {"Label@GRAD"},
    "cross_entropy": {"Label@GRAD"},
    "cudnn_lstm": {"W@GRAD"},
    "lerp": {"Weight@GRAD"},
    "stft": {"Window@GRAD"},
    "fill_diagonal_tensor": {"Y@GRAD"},
    "log_loss": {"Labels@GRAD"},
    "sigmoid_cross_entropy_with_logits": {"Label@GRAD", "pos_weight@GRAD"},
    "softmax_with_cross_entropy": {"Label@GRAD"},
}
"""Labels that are probabilities have a gradient too, and so has a weight, which is written where it is wanted, and that of
all layers in one, as 1.x has it; Paddle 2.6 has none of them."""

MORE_INPUTS = {"sequence_pool": {"MaxIndex"}}
"""What Paddle's gradient op reads with some values of an attribute only (of sequence_pool, where it takes maxima)."""

FEWER_GRADIENTS = {
    "data_norm": {"BatchSize", "BatchSum", "BatchSquareSum", "BatchSize@GRAD", "BatchSum@GRAD", "BatchSquareSum@GRAD"},
    "yolov3_loss": {"GTBox@GRAD", "GTLabel@GRAD"},
}
"""What these gradient ops of Paddle write and ours do not: those of data_norm are no gradients but sums over the batch, those of
what is labelled are nothing."""


def slots_of(definition: OpDef) -> dict[str, dict[str, Any]]:
    return {"inputs": definition.inputs, "outputs": definition.outputs}


def check_origin(op_type: str) -> None:
    """An op is Paddle's, or said to be ours."""
    listed = [op_type in ops for ops in (SCHEMAS, OURS, OLD)]
    assert any(listed), f"{op_type} is not in golden/op_schemas.json: run make_op_schemas.py, or say in OURS what it is for"
    assert sum(listed) == 1, f"{op_type} is in golden/op_schemas.json, so it is not ours alone"


def test_nothing_is_listed_that_is_gone() -> None:
    for op_type in [
        *SCHEMAS,
        *OURS,
        *OLD,
        *OLD_ATTRIBUTES,
        *MORE_GRADIENTS,
        *MORE_INPUTS,
        *OUR_INPUTS,
        *FEWER_GRADIENTS,
        *OUR_GRADIENTS,
    ]:
        assert op_type in ALL, f"{op_type} is no op (any more); run make_op_schemas.py or take it from the lists here"


def check_slots(op_type: str) -> None:
    """Our slots are Paddle's, with Paddle's flags; Paddle's that must be filled are ours."""
    for side, ours in slots_of(ALL[op_type]).items():
        theirs = SCHEMAS[op_type][side]
        ours = {PADDLE_SLOTS.get((op_type, name), name): slot for name, slot in ours.items()}
        for name, slot in ours.items():
            if name in OUR_INPUTS.get(op_type, ()):
                continue
            assert name in theirs, f"Paddle's {op_type} has no slot {name} among its {side}"
            many = "duplicable" in theirs[name] and (op_type, name) != ("while", "Condition")  # a loop has one condition
            assert slot.many == many, f"{name} should{' not' * slot.many} hold many"
            if side == "inputs":
                optional = "dispensable" in theirs[name] or slot.many or name in NEW_INPUTS.get(op_type, ())
                assert slot.optional <= optional, f"{name} is not optional"
            else:
                assert slot.intermediate == ("intermediate" in theirs[name]), f"{name} is {theirs[name]}"
        for name, flags in theirs.items():
            assert name in ours or "dispensable" in flags or "intermediate" in flags, f"the slot {name} is missing"


def check_attributes(op_type: str) -> None:
    """Our attributes are Paddle's, with their kinds and, where known, defaults."""
    theirs = SCHEMAS[op_type]
    for name, attr in ALL[op_type].attrs.items():
        if name in (*OLD_ATTRIBUTES.get(op_type, ()), *OUR_ATTRIBUTES.get(op_type, ())) or (
            name in ("seed", "fix_seed") and name not in theirs["attrs"]
        ):
            continue
        assert name in theirs["attrs"], f"Paddle's {op_type} has no attribute {name}"
        assert attr.kind == theirs["attrs"][name], f"{name} is of kind {theirs['attrs'][name]}"
        if name in theirs["defaults"]:
            default = theirs["defaults"][name]
            assert not attr.required, f"{name} has the default {default!r}"
            same = np.float32(attr.default) == np.float32(default) if attr.kind == "float" else attr.default == default
            assert same, f"the default of {name} is {default!r}, not {attr.default!r}"


def check_gradient(op_type: str) -> None:
    """Our gradient op has the slots of Paddle's; where Paddle writes an ordinary op instead, so do we."""
    definition, theirs = ALL[op_type], SCHEMAS[op_type]["grad"]
    if definition.rule is REGION or op_type == "py_func":  # what py_func's gradient is depends on its attributes
        return
    is_differentiable = isinstance(definition.rule, Rule)
    if theirs is None and (op_type in OUR_GRADIENTS or (definition.composition is not None and is_differentiable)):
        assert definition.inline_grad, f"the gradient of {op_type} should be of ops that Paddle has"
        return
    if theirs is None:
        assert not is_differentiable, f"Paddle's {op_type} has no gradient"
        return
    if definition.rule is ZERO_GRADIENT:
        assert not theirs["type"].startswith(op_type + "_grad"), f"Paddle's {op_type} has a gradient op"
        return
    assert is_differentiable, f"Paddle's {op_type} has a gradient, {theirs['type']}"
    if definition.inline_grad:
        ordinary = "_grad" not in theirs["type"] or ALL[theirs["type"]].forward is None
        assert ordinary, f"Paddle's gradient of {op_type} is a {theirs['type']} op"
        return
    assert definition.grad_type == theirs["type"], f"Paddle's gradient of {op_type} is a {theirs['type']} op"
    ours = ALL[definition.grad_type]
    optional = {name for name, flags in SCHEMAS[op_type]["inputs"].items() if "dispensable" in flags}
    inputs = {PADDLE_SLOTS.get((definition.grad_type, name), name): slot for name, slot in ours.inputs.items()}
    # A cotangent that may be absent is on the wire only where it is there.
    read = {name for name, slot in inputs.items() if not slot.optional} - MORE_INPUTS.get(op_type, set())
    assert read <= set(theirs["inputs"])
    assert set(theirs["inputs"]) <= set(inputs) | optional
    unread = {name for name in optional - set(theirs["inputs"]) if name + "@GRAD" in theirs["outputs"]}
    assert not unread & set(inputs), "Paddle's gradient op does not have what its gradient is computed from here"
    assert set(ours.outputs) - MORE_GRADIENTS.get(op_type, set()) <= set(theirs["outputs"])
    left_out = {name + "@GRAD" for name in optional} | FEWER_GRADIENTS.get(op_type, set())
    assert set(theirs["outputs"]) - left_out <= set(ours.outputs)


@each("op_type", FORWARD)
def test_op(op_type: str) -> None:
    with Checks() as check:
        with check(f"{op_type}, origin"):
            check_origin(op_type)
        if op_type in SCHEMAS:
            with check(f"{op_type}, slots"):
                check_slots(op_type)
            with check(f"{op_type}, attributes"):
                check_attributes(op_type)
            if "grad" in SCHEMAS[op_type]:
                with check(f"{op_type}, gradient"):
                    check_gradient(op_type)

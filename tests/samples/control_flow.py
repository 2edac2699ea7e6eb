"""Ops of `fluid.ops.control_flow` own blocks or handle arrays of tensors; other tests cover them."""

from __future__ import annotations

from .base import structural

structural("test_exported_models.py", "conditional_block_infer")
structural("test_random_programs.py", "while", "conditional_block", "recurrent", "select_input", "select_output")
structural("test_random_programs.py", "new_array", "write_to_array", "read_from_array")
structural("test_random_programs.py", "stack_array", "stack_array_like", "unstack_array")
structural("test_backward_control_flow.py", "tensor_array_to_tensor", "split_array", "join_array")
structural("test_backward_control_flow.py", "pop_from_array", "insert_into_array", "fill_array_like")
structural("golden/backward/array_entries_that_nobody_reads.txt", "lod_array_length")
structural("test_io.py", "feed", "fetch")

"""Write a program, as it is or for inference, as an ONNX file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluid.errors import FluidError, ProgramError, how_to_install
from fluid.ir.program import Program
from fluid.opdef.registry import EMPTY
from fluid.values.types import VarType

from .program import Signature, contents_of, signature_of
from .serializing import write_contents

OLDEST, DEFAULT = 13, 18
"""The oldest opset that can be written, and the default one."""


def NEWEST() -> int:
    """The newest opset that the installed package ``onnx`` knows."""
    return int(_onnx().defs.onnx_opset_version())


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise FluidError(
            f"ONNX models are written with the package onnx, which is not installed: {how_to_install('onnx')}"
        ) from None
    return onnx


def results_of(program: Program) -> list[str]:
    """The results of a program without fetch ops: its losses, and every value of block 0 that no op reads.

    Persistable variables (parameters, state) do not count, nor do outputs that only an op's own gradient reads.
    """
    block = program.global_block()
    read = {name for inner_block in program.blocks for op in inner_block.ops for name in op.input_arg_names}
    outputs = {name: None for op in block.ops for name in op.output_arg_names}
    results: dict[str, None] = {}
    for op in block.ops:
        definition = op.definition
        loss = op.output_arg_names[0].removesuffix("@GRAD") if op.type == "fill_constant" and op.output_arg_names else ""
        if loss in outputs and op.output_arg_names[0] != loss:
            results[loss] = None
        for slot, names in op.outputs.items():
            slot_def = definition.outputs.get(slot) if definition is not None else None
            if definition is None or slot_def is None or slot_def.intermediate:
                continue
            if slot_def.optional and definition.forward is None:
                continue
            for name in names:
                var = block.find_var(name)
                is_value = var is not None and not var.persistable and var.type is VarType.LOD_TENSOR
                if name != EMPTY and name not in read and is_value:
                    results[name] = None
    return [name for name in outputs if name in results]


def signature_of_model(program: Program) -> Signature:
    """The inputs and outputs of a program's model.

    With fetch ops, the program is for inference, and its parameters are constants. Without, parameters and state are inputs and
    outputs.
    """
    block = program.global_block()
    feeds = _columns(program, "feed", "Out") or [
        name
        for name, var in block.vars.items()
        if var.is_data and any(name in op.input_arg_names for b in program.blocks for op in b.ops)
    ]
    fetches = _columns(program, "fetch", "X")
    if fetches:
        return signature_of(program, feeds, fetches, with_state=False)
    fetches = results_of(program)
    signature = signature_of(program, feeds, fetches, with_state=True)
    if not fetches and not signature.updated:
        raise ProgramError("the program computes nothing: it has no op whose result is left, and updates no variable")
    return signature


def _columns(program: Program, op_type: str, slot: str) -> list[str]:
    ops = [op for op in program.global_block().ops if op.type == op_type]
    slots = [(op.attrs.get("col", 0), (op.outputs if slot == "Out" else op.inputs)[slot][0]) for op in ops]
    return [name for _, name in sorted(slots)]


def write_model(
    path: str, program: Program, value_of: Callable[[str], Any], opset: int | None = None, external: bool | None = None
) -> list[str]:
    """Write a program to an ONNX file; returns the files.

    Args:
        value_of: the (first) value of a persistable variable, as an array.
        opset: the version of ONNX's ops, `DEFAULT` if None.
        external: whether arrays go into a separate file; if None, only where the model is too large for one file.

    Raises:
        ProgramError: ONNX cannot express the program; all ops known to fail are listed.
    """
    newest = NEWEST()
    opset = DEFAULT if opset is None else opset
    if not OLDEST <= opset <= newest:
        raise FluidError(
            f"{path}: opset {opset} cannot be written; from {OLDEST} to {newest}, which onnx {_onnx().__version__} knows"
        )
    contents = contents_of(program, signature_of_model(program), value_of, opset)
    return write_contents(path, contents, external)

"""``.pdiparams.info``: Paddle 2.x's notes beside the parameters of an exported model. Only the list of trained ones is used here.

A pickle of variable name -> ``{"structured_name": ..., "stop_gradient": ..., "trainable": ...}``. Buffers of a layer, such as a
table of positions, have no ``trainable``.
"""

from __future__ import annotations

from ..errors import FormatError
from ..formats.commits import is_saved
from ..formats.pickles import read_pickle
from ..ir.program import Parameter, Program, Variable


def note_what_is_trained(program: Program, params: str) -> None:
    """Make the variables of a program parameters, trained or not, or buffers, as the file beside its parameters says, if any.

    Raises:
        FormatError: there is such a file, and it is damaged.
    """
    path = params + ".info"
    if not is_saved(path):
        return
    notes = read_pickle(path)
    if not isinstance(notes, dict) or not all(isinstance(note, dict) for note in notes.values()):
        raise FormatError(f"{path}: it should hold a dict of properties for each parameter")
    root = program.global_block()
    for name, note in notes.items():
        var = root.vars.get(name)
        if not isinstance(var, Parameter):
            continue
        if "trainable" in note:
            var.trainable = bool(note["trainable"])
        else:
            root.vars[name] = _as_buffer(var)


def _as_buffer(var: Parameter) -> Variable:
    buffer = Variable(
        var.block, type=var.type, name=var.name, shape=var._shape, dtype=var._dtype, lod_level=var.lod_level, persistable=True
    )
    buffer._stop_gradient = var.stop_gradient
    buffer.wire = var.wire
    return buffer

"""Writes the names and signatures of cupy's interface, which tests/support/strict_cupy holds kernels to.

    python tests/support/make_cupy_api.py > tests/support/strict_cupy/api.txt

needs cupy (the file is of 14.2), but no CUDA device. A line is the kind, the name and the parameters of a function; for a ufunc,
the numbers of inputs and outputs, the operation of its `at`, and its loops.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import cupy

_TYPED = re.compile(r"\b(?:int|bool|tuple|Py_ssize_t|_ndarray_base) (?=\w)")
"""The type of a parameter, as Cython shows it."""
_MODULES = {"linalg": cupy.linalg, "fft": cupy.fft, "lib.stride_tricks": cupy.lib.stride_tricks}


def parameters_of(function: Any) -> str:
    """The parameters of a function, without types; empty if they are not known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        shown = re.search(r"^[\w.]+\((.*?)\)(?: ->|$)", (function.__doc__ or "").partition("\n")[0])
        return "" if shown is None else _TYPED.sub("", shown[1])
    parameters = [item.replace(annotation=item.empty) for item in signature.parameters.values()]
    text = str(signature.replace(parameters=parameters, return_annotation=signature.empty))[1:-1]
    return re.sub(r"<class '(?:numpy\.)?(\w+)'>", r"\1", text)


def lines() -> Iterator[str]:
    for name, value in sorted(vars(cupy).items()):
        if isinstance(value, cupy.ufunc):
            yield f"ufunc {name} {value.nin} {value.nout} {value._scatter_op or '-'} {' '.join(value.types)}"
        elif not name.startswith("_") and not isinstance(value, type) and callable(value):
            yield f"function {name}({parameters_of(value)})"
    for module, namespace in _MODULES.items():
        for name, value in sorted(vars(namespace).items()):
            if not name.startswith("_") and not isinstance(value, type) and callable(value):
                yield f"function {module}.{name}({parameters_of(value)})"
    for kind, owner in (("method", cupy.ndarray), ("draw", cupy.random.Generator)):
        for name in sorted(dir(owner)):
            if not name.startswith("_") and callable(getattr(owner, name)):
                yield f"{kind} {name}({parameters_of(getattr(owner, name))})"


if __name__ == "__main__":
    print(*lines(), sep="\n")

"""Which of ONNX's writers a run of tests uses: ``pytest -n 0 -p used_writers tests/onnx_models/test_writing_models.py ...``.

At the end it lists the ops with a function under `exports` that no program of these tests needed. Leave out
tests/onnx_models/test_writing_samples.py and test_gradients.py, which write each op's own samples.
"""

from __future__ import annotations

from typing import Any

import pytest

from fluid.opdef.parameters import OpFunction

_used: set[str] = set()


@pytest.fixture(autouse=True, scope="session")
def _record_writers() -> Any:
    from fluid.onnx.writing.exporting import EXPORTS

    entries = {id(entry): op_type for op_type, entry in EXPORTS.items()}
    results = OpFunction.results

    def recorded(self: OpFunction, definition: Any, arguments: Any) -> Any:
        if id(self) in entries:
            _used.add(entries[id(self)])
        return results(self, definition, arguments)

    OpFunction.results = recorded  # type: ignore[method-assign]
    yield
    OpFunction.results = results  # type: ignore[method-assign]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    import fluid.onnx.writing  # noqa: F401
    from fluid.onnx.writing.exporting import EXPORTS

    unused = sorted(set(EXPORTS) - _used)
    terminalreporter.write_sep("=", f"{len(unused)} of {len(EXPORTS)} writers of ONNX are not used")
    terminalreporter.write_line(" ".join(unused))

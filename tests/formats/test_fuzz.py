"""Thousands of damaged models, in every form: each is read or refused with a reason. See `fuzzing` and benchmarks/fuzz.py."""

from __future__ import annotations

import collections
import tracemalloc
from pathlib import Path

import pytest
from checks import MORE
from fuzzing import Base, Contract, corpus, make_case, onnx_corpus, op_corpus, run_case

CASES = 150 * MORE
WATCHED = 8 * MORE
"""Cases whose memory is watched, which makes them slow."""


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> list[Base]:
    return corpus(tmp_path_factory.mktemp("bases")) + op_corpus()


@pytest.mark.filterwarnings("ignore")
def test_good_files_are_read(bases: list[Base], tmp_path: Path) -> None:
    for base in [base for base in bases if base.kind != "op"] + op_corpus(["conv2d", "rnn", "sequence_pool"]):
        case = make_case(0, 0, [base])
        case.data = base.data
        expected = ("refused",) if base.name == "nested.pdparams" else ("loaded", "compiled", "ran")  # it has no array by name
        assert run_case(case, tmp_path) in expected, base.name


@pytest.mark.random
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(4))
def test_damaged_files_end_in_a_model_or_an_error_of_ours(bases: list[Base], tmp_path: Path, part: int) -> None:
    ends: collections.Counter[str] = collections.Counter()
    for number in range(part * CASES // 4, (part + 1) * CASES // 4):
        case = make_case(0, number, bases)
        try:
            ends[run_case(case, tmp_path)] += 1
        except Exception as error:
            pytest.fail(
                f"case {number}, of {case.base.name}: {type(error).__name__}: {error}", pytrace=not isinstance(error, Contract)
            )
    assert min(ends["refused"], ends["ran"], ends["parsed"] + ends["loaded"]) > CASES // 400, ends


@pytest.mark.random
@pytest.mark.filterwarnings("ignore")
def test_damaged_onnx_models_end_in_a_model_or_an_error_of_ours(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    bases = onnx_corpus()
    ends: collections.Counter[str] = collections.Counter()
    for base in bases:
        case = make_case(0, 0, [base])
        case.data = base.data
        assert run_case(case, tmp_path) in ("compiled", "ran"), base.name
    for number in range(CASES // 2):
        case = make_case(0, number, bases)
        try:
            ends[run_case(case, tmp_path)] += 1
        except Exception as error:
            pytest.fail(f"case {number}, of {case.base.name}: {type(error).__name__}: {error}", pytrace=False)
    assert min(ends[how] for how in ("refused", "ran")) > 0, ends


@pytest.mark.numpy_alone
@pytest.mark.random
@pytest.mark.filterwarnings("ignore")
def test_memory_is_bounded_by_the_size_of_the_file(bases: list[Base], tmp_path: Path) -> None:
    for base in {base.kind: base for base in bases}.values():  # what is imported and cached counts for no case
        run_case(make_case(0, 0, [base]), tmp_path)
    tracemalloc.start()
    try:
        for number in range(WATCHED):
            case = make_case(2, number, bases)
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            run_case(case, tmp_path)
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak < (64 << 20) + 10 * len(case.data), f"case {number}, of {case.base.name}, takes {peak} bytes"
    finally:
        tracemalloc.stop()

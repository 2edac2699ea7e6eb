"""Reports of tests with many checks: they name each failed check."""

from __future__ import annotations

import pytest
from paths import TESTS

pytest_plugins = ["pytester"]

CASES = """
import pytest
from checks import each

@each("number", [1, 2, 3, 4], ids=["one", "two", "three", "four"])
@each("name", ["a"])
def test_small_numbers(name, number, tmp_path):
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    if number == 3:
        pytest.skip("three is left out")
    assert number < 2, f"{number} is not small"
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(TESTS))
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addoption('--case', default='')\n")
    pytester.makepyfile(CASES)
    return lambda *args: pytester.runpytest("-p", "no:xdist", *args)


def test_each_case_that_fails_is_told(run) -> None:  # type: ignore[no-untyped-def]
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*a-two: 2 is not small*", "*a-four: 4 is not small*"])
    assert "a-one" not in result.stdout.str()


def test_cases_are_chosen_by_name(run) -> None:  # type: ignore[no-untyped-def]
    run("--case", "one").assert_outcomes(passed=1)
    run("--case", "three").assert_outcomes(skipped=1)
    run("--case", "four").assert_outcomes(failed=1)
    run("--case", "five").assert_outcomes(skipped=1)

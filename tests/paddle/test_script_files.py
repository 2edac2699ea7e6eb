"""Complete programs as users wrote them for Fluid 1.6, in `tests/scripts`: each trains, and the tests look at the results."""

from __future__ import annotations

import importlib.util
import math
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from checks import Checks, fresh_programs
from paths import TESTS

SCRIPTS = TESTS / "scripts"

STEPS: dict[str, tuple[int, float]] = {
    "eager_dqn": (40, 0.5),
    "eager_gan": (60, 1.1),
    "eager_maml": (60, 0.8),
    "eager_mnist": (25, 0.3),
    "eager_ocr_attention": (16, 0.8),
    "eager_policy_gradient": (80, 0.6),
    "eager_ptb_lstm": (40, 0.8),
    "eager_resnet": (20, 0.3),
    "eager_transformer": (40, 0.85),
    "ptb_both_ways": (60, 0.6),
    "static_bert": (60, 0.5),
    "static_ctr": (50, 0.9),
    "static_gradient_accumulation": (40, 0.5),
    "static_lac": (30, 0.3),
    "static_ocr_attention": (120, 0.5),
    "static_ocr_ctc": (50, 0.4),
    "static_resnet": (20, 0.3),
    "static_se_resnext": (25, 0.8),
    "static_siamese": (60, 0.3),
    "static_ssd": (80, 0.8),
    "static_transformer": (50, 0.9),
    "static_translation": (150, 0.2),
    "static_wgan": (200, 0.8),
    "static_wide_deep": (60, 0.9),
    "static_word2vec": (60, 0.95),
}
"""Script -> for how many steps it trains, and below which part of the first losses the last ones should be."""
QUICK = ("eager_transformer", "static_resnet", "static_siamese")
"""Those of the default run."""
LOOKED_INTO = ("eager_dqn", "eager_maml", "eager_policy_gradient", "ptb_both_ways")
"""Those with a test of their own, below."""


def script(name: str) -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location(f"scripts_{name}", SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trains(name: str) -> Any:
    """Run a script, and check that its losses fall; returns its other results."""
    steps, part = STEPS[name]
    with fresh_programs():
        losses, result = script(name).main(steps)
    assert len(losses) == steps and all(map(math.isfinite, losses))
    tenth = max(steps // 10, 1)
    first, last = np.mean(losses[:tenth]), np.mean(losses[-tenth:])
    assert last < first * part, f"losses begin at {first:.3f} and end at {last:.3f}"
    return result


def test_scripts_learn() -> None:
    with Checks() as check:
        for name in QUICK:
            with check(name):
                trains(name)


@pytest.mark.slow
def test_longer_scripts_learn() -> None:
    with Checks() as check:
        for name in sorted(STEPS.keys() - {*QUICK, *LOOKED_INTO}):
            with check(name):
                trains(name)


def test_updates_once_in_several_batches_are_those_of_one_large_batch() -> None:
    assert trains("static_gradient_accumulation") < 1e-5


def test_a_generator_and_a_critic_take_turns_in_branches() -> None:
    """The branch that runs changes its own parameters alone, and the critic's stay within their bounds."""
    with fresh_programs():
        _, (turns, largest) = script("static_wgan").main(12)
    assert [whose for whose, _ in turns] == [step % 5 == 0 for step in range(1, 13)]
    assert all(moved == [whose, not whose] for whose, moved in turns) and largest <= np.float32(0.1)


@pytest.mark.slow
def test_what_is_read_translated_and_ranked_is_right() -> None:
    with Checks() as check:
        for name, least in (("static_ocr_attention", 0.7), ("static_siamese", 0.95), ("static_wide_deep", 0.8)):
            with check(name):
                assert trains(name) >= least
        with check("static_translation"):
            assert min(trains("static_translation")) >= 0.9


def test_agents_learn_which_way_to_go() -> None:
    values, probabilities = trains("eager_dqn"), trains("eager_policy_gradient")
    assert all(right > left for left, right in values[:-1])
    assert all(right > left for left, right in probabilities[:-1])


def test_meta_learning_goes_through_the_gradient_of_a_step() -> None:
    by_backward, by_difference = trains("eager_maml")
    np.testing.assert_allclose(by_backward, by_difference, rtol=1e-3)


def test_a_language_model_has_the_same_losses_eagerly_and_as_a_program() -> None:
    with warnings.catch_warnings(record=True) as caught, fresh_programs():
        warnings.simplefilter("default")
        losses, in_program = script("ptb_both_ways").main(STEPS["ptb_both_ways"][0])
    np.testing.assert_allclose(losses, in_program, rtol=1e-4)
    assert losses[-1] < losses[0] * 0.6
    assert {"an earlier backward freed" in str(warning.message) for warning in caught} == {True}


@pytest.mark.slow
def test_a_search_in_a_loop_writes_what_was_learned() -> None:
    with fresh_programs():
        _, right = script("static_transformer").main(600)
    assert sum(right) >= 2


def test_every_script_is_run() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} == set(STEPS)

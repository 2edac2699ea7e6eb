"""The data sets in the package: contents, splits, and equal results of readers and arrays."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources

import numpy as np
import pytest
from checks import each

import fluid.dataset
from fluid.dataset import diabetes, digits

SETS = {"digits": digits, "diabetes": diabetes}


@each("name", SETS)
def test_parts_are_disjoint_and_complete(name):
    everything, train, test = (SETS[name].arrays(part) for part in ("all", "train", "test"))
    for whole, known, unseen in zip(everything, train, test, strict=True):
        assert len(known) + len(unseen) == len(whole)
        assert np.array_equal(unseen, whole[4::5])
        assert np.array_equal(known, np.delete(whole, np.s_[4::5], axis=0))


@each("name", SETS)
@each("part", ["train", "test"])
def test_readers_give_the_arrays_each_time_they_are_called(name, part):
    rows, targets = SETS[name].arrays(part)
    reader = getattr(SETS[name], part)()
    for _ in range(2):
        samples = list(reader())
        assert len(samples) == len(rows)
        assert np.array_equal(np.stack([sample[0] for sample in samples]), rows.reshape(len(rows), -1))
        assert np.array_equal(np.stack([np.ravel(sample[1]) for sample in samples]), targets)


def test_digits_are_the_uci_images():
    images, labels = digits.arrays()
    assert images.shape == (1797, 1, 8, 8) and images.dtype == np.float32
    assert labels.shape == (1797, 1) and labels.dtype == np.int64
    assert (images.min(), images.max()) == (-1, 1)
    assert np.bincount(labels[:, 0]).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    zero = [[0, 0, 5, 13, 9, 1, 0, 0], [0, 0, 13, 15, 10, 15, 5, 0]]  # the two upper rows of the first line of UCI's file
    assert labels[0] == 0 and np.array_equal((images[0, 0, :2] + 1) * 8, zero)
    sample, label = next(digits.train()())
    assert sample.shape == (64,) and sample.dtype == np.float32 and type(label) is int


def test_diabetes_is_standardised_by_its_training_rows():
    features, targets = diabetes.arrays("train")
    assert features.shape == (354, 10) and features.dtype == targets.dtype == np.float32
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(features.std(axis=0), 1, atol=1e-5)
    features, targets = diabetes.arrays()
    assert features.shape == (442, len(diabetes.FEATURES)) and targets.shape == (442, 1)
    assert (targets.min(), targets.max()) == (25, 346) and targets[:5, 0].tolist() == [151, 75, 141, 206, 135]


@each("name", SETS)
def test_attribution_ships_with_the_data(name):
    text = resources.files(fluid.dataset).joinpath(f"{name}.txt").read_text()
    for heading in ("Creators", "Source", "Licence", "Changes"):
        assert heading in text
    assert resources.files(fluid.dataset).joinpath(f"{name}.npz").stat().st_size < 100_000


def test_unknown_parts_and_sets_are_named():
    with pytest.raises(ValueError, match="'train', 'test' or 'all', not 'valid'"):
        digits.arrays("valid")
    with pytest.raises(AttributeError, match="'flowers'; the data sets are cifar, diabetes, digits, imdb, mnist"):
        fluid.dataset.flowers  # noqa: B018


def test_sets_are_found_as_attributes_and_loaded_only_then():
    code = """
import sys, fluid.dataset
assert "fluid.dataset.digits" not in sys.modules
assert len(fluid.dataset.digits.arrays("test")[0]) == 359
"""
    subprocess.run([sys.executable, "-c", code], check=True)

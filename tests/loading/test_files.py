"""Data sets of files: folders of pictures, tables, MNIST, CIFAR and IMDB; and random changes of pictures."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest

import fluid
from fluid.errors import DataError, FormatError, ProgramError
from fluid.io import transforms

RNG = np.random.default_rng(0)


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    for kind, value in (("dog", 9), ("cat", 0)):
        (tmp_path / kind / "deep").mkdir(parents=True)
        for number in range(3):
            np.save(tmp_path / kind / f"{number}.npy", np.full([4, 5, 3], value, "uint8"))
        np.save(tmp_path / kind / "deep" / "x.npy", np.full([4, 5, 3], value, "uint8"))
        (tmp_path / kind / "notes.txt").write_text("no picture")
    folder = fluid.io.ImageFolder(tmp_path, transforms.Compose([transforms.RandomCrop(3), transforms.ToFloat()]))
    assert folder.classes == ["cat", "dog"] and len(folder) == 8
    loader = fluid.io.DataLoader(folder, 8, seed=1, feed_list=["image", "label"])
    (batch,) = loader
    assert batch["image"].shape == (8, 3, 3, 3) and batch["label"].ravel().tolist() == [0] * 4 + [1] * 4
    assert fluid.io.ImageFolder(tmp_path)[7][0].max() == 9
    with pytest.raises(FormatError, match="there is no folder"):
        fluid.io.ImageFolder(tmp_path / "nothing")
    with pytest.raises(FormatError, match=r"should have a folder for each class, with pictures in it; it has deep, notes\.txt"):
        (tmp_path / "empty" / "deep").mkdir(parents=True)
        (tmp_path / "empty" / "notes.txt").write_text("")
        fluid.io.ImageFolder(tmp_path / "empty")


def test_pictures_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"no picture")
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(DataError, match=r"x\.png: pictures are read by Pillow, which is not installed: pip install pillow"):
        fluid.io.read_image(str(path))
    np.save(tmp_path / "objects.npy", np.array([object()], object))
    with pytest.raises(DataError, match="the picture cannot be read"):
        fluid.io.read_image(str(tmp_path / "objects.npy"))


def test_pictures_by_pillow(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = RNG.integers(0, 256, (6, 5, 3)).astype("uint8")
    image.fromarray(pixels).save(tmp_path / "x.png")
    np.testing.assert_array_equal(fluid.io.read_image(str(tmp_path / "x.png")), pixels)
    (tmp_path / "y.png").write_bytes(b"\x89PNG")
    with pytest.raises(DataError, match="the picture cannot be read"):
        fluid.io.read_image(str(tmp_path / "y.png"))


TABLE = """\ufeffage, city ,note,rich
31,Rome,"a, b",no
,Oslo,c,yes
45.5,Rome,c,no
"""


def test_a_table(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(TABLE, encoding="utf-8")
    people = fluid.io.CSVDataset(path, label="rich", types={"note": "leave out"})
    assert people.columns == ["age", "city=Oslo", "city=Rome"] and people.categories == {
        "city": ["Oslo", "Rome"],
        "rich": ["no", "yes"],
    }
    np.testing.assert_array_equal(people.features, np.array([[31, 0, 1], [np.nan, 1, 0], [45.5, 0, 1]], "float32"))
    assert people.labels.ravel().tolist() == [0, 1, 0] and people.labels.dtype == np.int64
    ages = fluid.io.CSVDataset(path, label="age", types={"note": "leave out", "rich": "leave out"})
    assert ages.labels.dtype == np.float32 and ages.columns == ["city=Oslo", "city=Rome"] and len(ages[0]) == 2
    assert len(fluid.io.CSVDataset(path)[0]) == 1
    assert fluid.io.CSVDataset(path, types={"age": "category"}).columns[:3] == ["age=", "age=31", "age=45.5"]
    (batch,) = fluid.io.DataLoader(people, 3, feed_list=["x", "y"])
    assert batch["x"].shape == (3, 3) and batch["y"].shape == (3, 1)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (TABLE, {"label": "poor"}, r"has no column 'poor'; it has age, city, note, rich"),
        (TABLE, {"label": "ritch"}, r"has no column 'ritch'; did you mean rich\?"),
        (TABLE, {"types": {"city": "number"}}, "row 2 of the column city holds 'Rome', which is no number"),
        (TABLE, {"types": {"city": "text"}}, "the type of city should be 'number', 'category' or 'leave out', not 'text'"),
        ("a,b\n1,2\n3\n", {}, r"row 3 of .* has 1 cells, and the first has 2"),
        ("a,b\n", {}, "should have a row of names, and rows below it; it has 1 in all"),
        ("a,a\n1,2\n", {}, "has two columns of one name"),
    ],
)
def test_tables_that_do_not_fit(text: str, options: dict[str, object], said: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    with pytest.raises((FormatError, ProgramError), match=said):
        fluid.io.CSVDataset(tmp_path / "x.csv", **options)  # type: ignore[arg-type]


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape) + array.tobytes()


def test_mnist(tmp_path: Path) -> None:
    images, labels = RNG.integers(0, 256, (5, 28, 28)).astype("uint8"), np.arange(5, dtype="uint8")
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images))
    with gzip.open(tmp_path / "train-labels-idx1-ubyte.gz", "wb") as file:
        file.write(idx(labels))
    found, numbers = fluid.dataset.mnist.arrays(tmp_path)
    np.testing.assert_allclose(found[:, 0], images / 255, rtol=1e-6)
    assert numbers.ravel().tolist() == [0, 1, 2, 3, 4] and found.dtype == np.float32
    with pytest.raises(FormatError, match=r"there is no .*t10k-images-idx3-ubyte, nor .*\.gz"):
        fluid.dataset.mnist.arrays(tmp_path, "test")
    for data, said in (
        (idx(images)[:-1], "an array .* has 3920 bytes, and the file has"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "bytes, and the file has 16"),
        (b"PNG!", "is no IDX file"),
        (gzip.compress(idx(images)[:-9]), "ends early"),
        (gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12), "ends early"),
        (gzip.compress(idx(images))[:-20], "cannot be read|ends early"),
    ):
        (tmp_path / "train-images-idx3-ubyte").write_bytes(data)
        with pytest.raises(FormatError, match=said):
            fluid.dataset.mnist.arrays(tmp_path)


def test_cifar(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (2, 3072)).astype("uint8")
    for number in range(1, 6):
        (tmp_path / f"data_batch_{number}.bin").write_bytes(np.hstack([[[number], [9]], pixels]).astype("uint8").tobytes())
    images, labels = fluid.dataset.cifar.arrays(tmp_path)
    assert images.shape == (10, 3, 32, 32) and labels.ravel().tolist() == [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]
    np.testing.assert_allclose(images[0].ravel(), pixels[0] / 255, rtol=1e-6)
    (tmp_path / "test.bin").write_bytes(np.hstack([[[7, 55]], pixels[:1]]).astype("uint8").tobytes())
    assert fluid.dataset.cifar.arrays(tmp_path, "test")[1].tolist() == [[55]]
    (tmp_path / "test.bin").write_bytes(b"x")
    with pytest.raises(FormatError, match="are no records of 3074 bytes"):
        fluid.dataset.cifar.arrays(tmp_path, "test")
    (tmp_path / "py").mkdir()
    with pytest.raises(FormatError, match=r"has neither test_batch\.bin"):
        fluid.dataset.cifar.arrays(tmp_path / "py", "test")
    (tmp_path / "py" / "batches.meta").write_bytes(pickle.dumps({}))
    with pytest.raises(FormatError, match="which is pickled; take the binary version"):
        fluid.dataset.cifar.arrays(tmp_path / "py", "test")


def test_imdb(tmp_path: Path) -> None:
    for kind, words in (("neg", "dull"), ("pos", "great")):
        (tmp_path / "train" / kind).mkdir(parents=True)
        for number in range(2):
            (tmp_path / "train" / kind / f"{number}_1.txt").write_text(f"{words} {number}", encoding="utf-8")
    texts, labels = fluid.dataset.imdb.texts(tmp_path)
    assert texts == ["dull 0", "dull 1", "great 0", "great 1"] and labels.ravel().tolist() == [0, 0, 1, 1]
    with pytest.raises(FormatError, match="there are no reviews in"):
        fluid.dataset.imdb.texts(tmp_path, "test")


# ------------------------------------------------------------------------------------------------------------- transforms
@pytest.mark.parametrize("kind", ["uint8", "float32", "bool"])
def test_turns_by_quarters_are_exact(kind: str) -> None:
    image = (
        RNG.uniform(size=(6, 6, 2)) * (255 if kind == "uint8" else 1) > 0.5 if kind == "bool" else RNG.uniform(size=(6, 6, 2))
    ).astype(kind)
    for degrees, quarters in ((90, 1), (180, 2), (-90, 3), (0, 0)):
        turned = transforms.RandomRotation((degrees, degrees))(image, RNG)
        np.testing.assert_allclose(turned.astype(float), np.rot90(image, quarters).astype(float), atol=1e-5)
        assert turned.dtype == image.dtype
    grey = transforms.RandomRotation(45, value=7)(np.zeros((5, 5)), RNG)
    assert grey.shape == (5, 5) and 0 <= grey.min() and grey.max() <= 7


def test_a_turned_image_has_the_value_outside() -> None:
    turned = transforms.RandomRotation((45, 45), value=9)(np.full((8, 8), 1.0), RNG)
    assert turned[0, 0] == 9 and turned[4, 4] == pytest.approx(1)


def test_random_resized_crops() -> None:
    image = np.arange(20 * 30).reshape(20, 30).astype("float32")
    crop = transforms.RandomResizedCrop((4, 6))
    draws = [crop(image, np.random.default_rng(seed)) for seed in range(20)]
    assert {draw.shape for draw in draws} == {(4, 6)} and len({draw.tobytes() for draw in draws}) > 15
    for draw in draws:
        assert image.min() <= draw.min() and draw.max() <= image.max() and (np.diff(draw, axis=1) >= 0).all()
    assert transforms.RandomResizedCrop(3)(np.zeros((1, 50, 3)), RNG).shape == (3, 3, 3)  # no proportions fit
    assert transforms.RandomResizedCrop(3)(np.zeros((50, 1, 3)), RNG).shape == (3, 3, 3)
    for wrong in ({"scale": (0.5, 2.0)}, {"scale": (0.9, 0.1)}, {"ratio": (0.0, 1.0)}):
        with pytest.raises(ProgramError, match="should be two numbers above 0"):
            transforms.RandomResizedCrop(3, **wrong)


def test_changes_of_colour() -> None:
    image = RNG.integers(0, 256, (5, 4, 3)).astype("uint8")
    np.testing.assert_array_equal(transforms.ColorJitter()(image, RNG), image)

    class Least:
        def uniform(self, least: float, greatest: float) -> float:
            return least

    dark = transforms.ColorJitter(brightness=0.5)(image, Least())
    np.testing.assert_array_equal(dark, np.rint(image * np.float32(0.5)).astype("uint8"))
    flat = transforms.ColorJitter(contrast=1.0)(image, Least())
    assert np.ptp(flat) == 0
    grey = transforms.ColorJitter(saturation=1.0)(image, Least())
    assert (grey == grey[..., :1]).all()
    np.testing.assert_allclose(grey[..., 0], image @ np.array([0.299, 0.587, 0.114]), atol=0.51)
    for wrong in ({"brightness": 2}, {"contrast": -1}):
        with pytest.raises(ProgramError, match="should be from 0 to 1"):
            transforms.ColorJitter(**wrong)

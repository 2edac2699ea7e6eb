"""Transforms of samples, for `Dataset.map`: of images and of texts. Each is a function of a value, made with its settings::

    transforms = fluid.io.transforms
    augmented = transforms.Compose([transforms.RandomCrop(32, margin=4), transforms.RandomFlip(), transforms.ToFloat()])
    training = fluid.io.TensorDataset(images, labels).map(augmented, field=0)

Images are arrays of height, width and channels, or of height and width, until `ToFloat` puts the channels first. Transforms that
draw random numbers get a `numpy.random.Generator` from the reader of the samples, which is reproducible in a loader; called by
hand, they take one.
"""

from ...not_here import names_here
from .composition import Compose, random
from .images import (
    CenterCrop,
    ColorJitter,
    Normalize,
    Pad,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    RandomRotation,
    Resize,
    ToFloat,
)
from .texts import Tokenize, Vocabulary

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "Normalize", "Pad", "RandomCrop", "RandomFlip", "RandomResizedCrop", "RandomRotation",
    "Resize", "ToFloat", "Tokenize", "Vocabulary", "random",
]  # fmt: skip

__dir__ = names_here(__name__)

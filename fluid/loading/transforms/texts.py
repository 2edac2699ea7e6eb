"""Changes of texts: into words, and these into numbers."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from ...errors import FluidTypeError, FormatError, ProgramError
from ...formats.writing import write_file


class Tokenize:
    """The words of a text, in small letters; each sign of punctuation is a word.

    Args:
        pattern: a regular expression that matches a word.
        lower: whether to turn capitals into small letters.

    >>> fluid.io.transforms.Tokenize()("The plot wasn't dull!")
    ['the', 'plot', "wasn't", 'dull', '!']
    """

    def __init__(self, pattern: str = r"\w+(?:'\w+)*|[^\w\s]", lower: bool = True) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise ProgramError(f"Tokenize: pattern should be a regular expression; {pattern!r} is none: {error}") from None
        self._lower = lower

    def __call__(self, text: str) -> list[str]:
        if not isinstance(text, str):
            raise FluidTypeError(f"Tokenize takes a text, not {text!r}")
        return self._pattern.findall(text.lower() if self._lower else text)


class Vocabulary:
    """The numbers of words; called with words, it gives an int64 array of their numbers.

    Args:
        words: the words in the order of their numbers, each once. A word that is none of them has the number of `unknown`.
        unknown: the word that stands for unknown ones; None: they are an error.

    Raises:
        ProgramError: a word is there twice, or `unknown` is none of them.

    >>> words = fluid.io.transforms.Vocabulary.of([["the", "plot"], ["the", "cast"]], first=["<pad>", "<unk>"])
    >>> words(["the", "camera"]), len(words), words.words[2]
    (array([2, 1]), 5, 'the')
    """

    def __init__(self, words: Iterable[str], unknown: str | None = None) -> None:
        self.words = list(words)
        self._numbers = {word: number for number, word in enumerate(self.words)}
        if len(self._numbers) < len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise ProgramError(f"Vocabulary: {twice!r} is there twice")
        if unknown is not None and unknown not in self._numbers:
            raise ProgramError(f"Vocabulary: unknown should be one of the words, not {unknown!r}")
        self.unknown = unknown

    @classmethod
    def of(
        cls,
        texts: Iterable[Iterable[str]],
        most: int | None = None,
        least_count: int = 1,
        first: Sequence[str] = (),
        unknown: str | None = "<unk>",
    ) -> Vocabulary:
        """Build the vocabulary of texts: the most frequent words first, equally frequent ones in alphabetical order.

        Args:
            texts: lists of words.
            most: the largest number of words, including `first`.
            least_count: how often a word occurs at least.
            first: words that come before, such as one to pad with, and `unknown`.
            unknown: stands for words that are not there; put first if it is not in `first`. None: these are an error.
        """
        head = list(first) if unknown is None or unknown in first else [unknown, *first]
        counts = Counter(word for text in texts for word in text)
        ranked = sorted((word for word, count in counts.items() if count >= least_count), key=lambda word: (-counts[word], word))
        words = head + [word for word in ranked if word not in set(head)]
        return cls(words[:most], unknown)

    def __len__(self) -> int:
        return len(self.words)

    def __call__(self, words: Iterable[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        if isinstance(words, str):
            raise FluidTypeError(f"a Vocabulary takes a list of words, not the text {words[:40]!r}; Tokenize() makes one of it")
        default = self._numbers[self.unknown] if self.unknown is not None else None
        numbers = [self._numbers.get(word, default) for word in words]
        if None in numbers:
            raise ProgramError(f"the vocabulary has no {list(words)[numbers.index(None)]!r}, and no word for unknown ones")
        return np.array(numbers, np.int64)

    def text(self, numbers: Iterable[int]) -> list[str]:
        """The words of these numbers."""
        return [self.words[number] for number in numbers]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the words to a file, as JSON."""
        content = json.dumps({"words": self.words, "unknown": self.unknown}, ensure_ascii=False)
        write_file(os.fspath(path), [content.encode()])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """Read a vocabulary that `save` wrote; a `FormatError` for other files."""
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            words, unknown = content["words"], content["unknown"]
            if not all(isinstance(word, str) for word in words) or not isinstance(unknown, str | None):
                raise ValueError("words should be texts")
            return cls(words, unknown)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise FormatError(f"{os.fspath(path)}: it should hold a Vocabulary: {error}") from None

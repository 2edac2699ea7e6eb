"""Random numbers of traced programs: numpy's generators over jax's keys."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import numpy as np

from ..runtime.calls import Source
from ..runtime.random import RANDOM, draw_of_stream, is_entropy, seed_of
from .arrays import wrap
from .ufuncs import stored


def key_of_seed(seed: Any) -> Any:
    """Make a jax key from a seed of up to 64 bits, known or traced."""
    if isinstance(seed, (int, np.integer)):
        return jax.random.wrap_key_data(np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32))
    return jax.random.key(seed.reshape(()))


class Generator:
    """Draws from a jax key; offers the methods of numpy's generators that kernels use."""

    def __init__(self, key: Any) -> None:
        self._key = key
        self._draws = 0

    def _next(self) -> Any:
        self._draws += 1
        return self._key if self._draws == 1 else jax.random.fold_in(self._key, self._draws)

    def words(self) -> Any:
        """The next key as ``uint32[2]``, a seed for a generator of numpy."""
        return jax.random.key_data(self._next())

    def random(self, size: Any = None, dtype: Any = "float64", out: Any = None) -> Any:
        return stored(jax.random.uniform(self._next(), _shape(size, out), np.dtype(dtype)), out)

    def standard_normal(self, size: Any = None, dtype: Any = "float64", out: Any = None) -> Any:
        return stored(jax.random.normal(self._next(), _shape(size, out), np.dtype(dtype)), out)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        return wrap(jax.random.uniform(self._next(), _shape(size, None), np.float64, low, high))

    def integers(self, low: Any, high: Any = None, size: Any = None, dtype: Any = "int64", endpoint: bool = False) -> Any:
        low, high = (0, low) if high is None else (low, high)
        return wrap(jax.random.randint(self._next(), _shape(size, None), low, high + endpoint, np.dtype(dtype)))

    def truncated_normal(self, low: float, high: float, size: Any, dtype: Any) -> Any:
        """Draw from the standard normal distribution truncated to two bounds."""
        return wrap(jax.random.truncated_normal(self._next(), low, high, tuple(size), np.dtype(dtype)))

    def dirichlet(self, alpha: Any) -> Any:
        """Draw points of a simplex with these concentrations; returns a jax value."""
        return jax.random.dirichlet(self._next(), alpha)

    def poisson(self, rates: Any, size: Any) -> Any:
        """Draw counts with these means; returns a jax value."""
        return jax.random.poisson(self._next(), rates, size)

    def permutation(self, count: Any) -> Any:
        return wrap(jax.random.permutation(self._next(), count))


def _shape(size: Any, out: Any) -> tuple[int, ...]:
    if out is not None:
        return tuple(out.shape)
    return () if size is None else tuple(size) if isinstance(size, (tuple, list)) else (int(size),)


class KeyStreams:
    """The random streams of a traced program; `RandomStreams` is the counterpart on numpy.

    A key derives from the name of an op's output and the number of the draw in the run. The seed and the number of the run are
    arguments of the compiled function.

    Attributes:
        draws: stream -> number of draws so far; a traced value after a loop that draws.
        is_used: whether an op draws by the seed of the program, or the number of the run.
    """

    def __init__(self) -> None:
        self._words: Any = None
        self.draws: dict[Hashable, Any] = {}
        self.is_used = False

    def begin(self, words: Any) -> None:
        """Start tracing; `words` come from `words_of_run`, possibly as a traced value."""
        self._words, self.is_used = words, False
        self.draws.clear()

    def source(self, name: str, op_seed: int, drawer: Hashable = None, op_type: str = "") -> Source:
        """The source of generators for the op that writes `name`; see `RandomStreams.source`."""
        if draw := draw_of_stream(name):
            return _Fixed(_words_of(*draw) if draw.key else _words_of(draw.seed, draw.number))
        return _Fixed(_words_of(op_seed)) if op_seed else _ByName(self, name, drawer, slice(0, 2))

    def first_values(self, name: str, op_seed: int, name_from_zero: str) -> Source:
        """The source of generators for the initial values of a parameter; see `RandomStreams.first_values`."""
        return _Fixed(_words_of(op_seed)) if op_seed else _ByName(self, name_from_zero, None, slice(2, 4))

    def key_of_draw(self, name: str, drawer: Hashable, part: slice) -> Any:
        """The key of the next draw of a stream."""
        number = self.draws.get((name, drawer), 0)
        self.draws[name, drawer] = number + 1
        self.is_used = True
        key = jax.random.fold_in(jax.random.wrap_key_data(self._words[part]), np.uint32(zlib.crc32(name.encode())))
        return jax.random.fold_in(key, number)


def _words_of(*numbers: int) -> Any:
    return np.random.SeedSequence([number & 2**64 - 1 for number in numbers]).generate_state(2, np.uint32)


def words_of_run(program_seed: int, run: int) -> Any:
    """The random words of a run, as ``uint32[4]``: two words for all draws, and two for the initial values of parameters. With a
    seed, the latter do not depend on the run."""
    if RANDOM.is_shared:
        words = _words_of(*RANDOM.next_draw_of("run"))
        return np.concatenate([words, words])
    seed = seed_of(program_seed)
    words = _words_of(seed, run)
    return np.concatenate([words, words if is_entropy(seed) else _words_of(seed)])


class WordsOnDevice:
    """The random words of the runs in a scope, which lie on the device before a run starts.

    A run that sends the device four numbers takes as long as two small ones on a GPU. So the words of the next runs are sent
    together, once the runs of a seed follow each other.

    Args:
        unstack: puts the rows of a table on the device, as one array each.
    """

    _COUNT = 64
    """The number of runs whose words are sent together."""
    _MOST_BETWEEN = 8
    """The most runs of other programs between two runs that follow each other, such as of tests between training steps."""

    def __init__(self, unstack: Callable[[np.ndarray[Any, Any]], Sequence[Any]]) -> None:
        self._unstack = unstack
        self._seed: int | None = None
        self._last = self._first = 0
        self._rows: Sequence[Any] = ()

    def of_run(self, program_seed: int, run: int) -> Any:
        """The words of a run, as `words_of_run` gives them; on the host if the run does not follow the last one."""
        if RANDOM.is_shared:
            return words_of_run(program_seed, run)
        seed, last = seed_of(program_seed), self._last
        is_same, self._seed, self._last = seed == self._seed, seed, run
        if not is_same:
            self._rows = ()
        elif not 0 <= run - self._first < len(self._rows) and 0 < run - last <= self._MOST_BETWEEN:
            self._first = run
            self._rows = self._unstack(np.stack([words_of_run(program_seed, run + number) for number in range(self._COUNT)]))
        position = run - self._first
        return self._rows[position] if 0 <= position < len(self._rows) else words_of_run(program_seed, run)


class _Drawn(Source):
    """Makes generators from keys."""

    __slots__ = ()

    def key(self) -> Any:
        raise NotImplementedError

    def __call__(self) -> Generator:
        return Generator(self.key())


class _Fixed(_Drawn):
    """Draws the same numbers each time."""

    __slots__ = ("_words",)

    def __init__(self, words: Any) -> None:
        self._words = words

    def key(self) -> Any:
        return jax.random.wrap_key_data(self._words)


class _ByName(_Drawn):
    """Draws from the stream of a name."""

    __slots__ = ("_drawer", "_name", "_part", "_streams")

    def __init__(self, streams: KeyStreams, name: str, drawer: Hashable, part: slice) -> None:
        self._streams, self._name, self._drawer, self._part = streams, name, drawer, part

    def key(self) -> Any:
        return self._streams.key_of_draw(self._name, self._drawer, self._part)

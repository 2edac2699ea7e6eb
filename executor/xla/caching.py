"""Has jax store compiled programs on disk, so that later processes need not compile them again."""

from __future__ import annotations

import os
from functools import cache

import jax
from jax.experimental.compilation_cache import compilation_cache

from ..runtime.cache_folder import CacheFolder

FOLDER = CacheFolder("FLUID_XLA_CACHE", "xla", "programs that XLA compiled")


@cache
def keep_compiled() -> None:
    """Have jax store compiled programs in a folder, unless the user has configured jax's cache."""
    if jax.config.jax_compilation_cache_dir is not None or "JAX_ENABLE_COMPILATION_CACHE" in os.environ:
        return
    path = FOLDER.path()
    if path is not None:
        jax.config.update("jax_compilation_cache_dir", path)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # small programs are worth it, too
        compilation_cache.reset_cache()  # earlier compilations made jax decide that there is no cache

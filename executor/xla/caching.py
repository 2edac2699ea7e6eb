"""What XLA compiled is kept on disk by jax, so that another process need not compile it again."""

from __future__ import annotations

import os
from functools import cache

import jax
from jax.experimental.compilation_cache import compilation_cache

from ..runtime.cache_folder import CacheFolder

__all__ = ["FOLDER", "keep_compiled"]

FOLDER = CacheFolder("FLUID_XLA_CACHE", "xla", "programs that XLA compiled")


@cache
def keep_compiled() -> None:
    """Have jax keep what it compiles in a folder, unless the user of jax has said where, or that it should not."""
    if jax.config.jax_compilation_cache_dir is not None or "JAX_ENABLE_COMPILATION_CACHE" in os.environ:
        return
    path = FOLDER.path()
    if path is not None:
        jax.config.update("jax_compilation_cache_dir", path)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # small programs are worth it, too
        compilation_cache.reset_cache()  # what was compiled before has settled that there is none

"""Native code: plans as tables of compiled kernels, made with llvmlite (the extra ``native``)."""

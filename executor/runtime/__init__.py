"""Services shared by all runs: scopes, random streams, threads, calls of kernels, timing."""

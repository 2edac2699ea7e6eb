"""What every run needs: scopes, random streams, threads, calls of kernels, timing."""

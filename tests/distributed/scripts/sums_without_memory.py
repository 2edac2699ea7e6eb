"""`sums.py` where worker 1 finds /dev/shm full or read-only, or MPI gives it no window."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

from mpi4py import MPI

from fluid.distributed import communicator, shared_memory

fault = sys.argv[1]
state = os.statvfs("/")
if communicator().rank == 1:
    if fault == "refused":

        def refuse(*arguments, **named):
            MPI.Win.Allocate_shared(*arguments, **named)  # all workers of a machine have to take part
            raise MPI.Exception(MPI.ERR_NO_MEM)

        window = SimpleNamespace(Allocate_shared=refuse)
        communicator()._shared._mpi = SimpleNamespace(Win=window, Exception=MPI.Exception)
    else:
        free = {"full": 0, "read-only": state.f_blocks}[fault]
        fake = SimpleNamespace(f_bavail=free, f_frsize=4096, f_flag=os.ST_RDONLY if fault == "read-only" else 0)
        shared_memory.os = SimpleNamespace(statvfs=lambda path: fake, path=os.path, ST_RDONLY=os.ST_RDONLY)
runpy.run_path(str(Path(__file__).with_name("sums.py")), run_name="__main__")

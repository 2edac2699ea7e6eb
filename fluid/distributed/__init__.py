"""Training by several processes: their ranks, their communication, and their launcher (`fluid.distributed.launch`)."""

from ..not_here import names_here
from .communicator import Alone, Communicator, Traffic
from .environment import Worker, worker_of
from .process import communicator, use_communicator

__all__ = ["Alone", "Communicator", "Traffic", "Worker", "communicator", "use_communicator", "worker_of"]

__dir__ = names_here(__name__)

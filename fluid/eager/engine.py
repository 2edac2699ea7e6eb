"""The engine: runs the nodes of recorded graphs, each as soon as all of its incoming gradients are there.

A call makes a `GraphTask`. It counts the gradients that each node will receive, collects them in an `InputBuffer` per node, and
puts nodes that have all of theirs into a `ReadyQueue` per device: leaves first, then the nodes recorded last.

The calling thread serves the CPU's queue; every other device has a thread that serves its queue. Where nodes have enough work,
further threads help with the CPU's queue.

Results do not depend on threads: gradients of one value are added in the order of the nodes that they come from. A pass that is
recorded (``create_graph``) runs in the calling thread, so that its order of nodes is fixed as well.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from queue import SimpleQueue
from typing import Any

import numpy as np

from ..errors import BackwardError, FluidError, FluidTypeError, ProgramError
from ..executor.binding.array_types import CPU, DEVICES, array_of, ones_like
from ..executor.binding.halves import added
from ..executor.runtime import timing
from ..executor.runtime.random import RANDOM
from ..executor.runtime.threads import HAS_THREADS, OnNumpy, checked_count
from ..ir.collector import collector_paused
from ..ir.frames import warn_user
from ..values.types import is_complex
from . import anomaly
from .graph import NO_GRAPH, Hooks, Node, accumulate, leaf_edge
from .mode import state
from .profiling import timed_node
from .tensor import Tensor, make

_MAX_DEPTH = 24
"""How many backward passes may be nested in one thread; the next one runs in a new thread."""
_Edge = tuple[Node, int]
_HANDED_OVER = 5
"""The number of nodes that threads hand over to each other in the time of a node of `LARGE` work (26 and 130 microseconds)."""


# ------------------------------------------------------------------------------------------------------------- buffers
class InputBuffer:
    """The incoming gradients of a node; several for one of its inputs are summed.

    The first is stored without a copy. The first sum is a new array; further gradients are added to it in place. With
    `ordered`, gradients are kept until all are there, and then added in the order of their sources.
    """

    __slots__ = ("_owned", "_parts", "values")

    def __init__(self, size: int, ordered: bool = False) -> None:
        self.values: list[Any] = [None] * size
        self._owned: set[int] | None = None
        self._parts: list[tuple[int, tuple[int, int], Any]] | None = [] if ordered else None

    def add(self, number: int, value: Any, source: tuple[int, int] = (0, 0)) -> None:
        """Add a gradient for input `number`; sums with `ordered` follow the order of `source`."""
        if self._parts is not None:
            self._parts.append((number, source, value))
        else:
            self._sum(number, value)

    def _sum(self, number: int, value: Any) -> None:
        before = self.values[number]
        if before is None:
            self.values[number] = value
            return
        if self._owned is None:
            self._owned = set()
        if isinstance(before, np.ndarray) and isinstance(value, np.ndarray):
            if number in self._owned:
                added(before, value, before)
                return
            total = added(before, value, np.empty_like(before))
        else:
            total = before + value
        self.values[number] = total
        self._owned.add(number)

    def take(self) -> list[Any]:
        """The sum for each input; None where no gradient came."""
        if self._parts is not None:
            for number, _, value in sorted(self._parts, key=lambda part: part[1]):
                self._sum(number, value)
            self._parts = []
        return self.values


class ReadyQueue:
    """The nodes of one device that are ready to run: leaves first, then those recorded last."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, GraphTask, Node]] = []
        self._changed = threading.Condition()

    def push(self, task: GraphTask, node: Node) -> None:
        with self._changed:
            heappush(self._heap, (-node.sequence_nr, id(task), task, node))
            self._changed.notify()

    def pop(self) -> tuple[GraphTask, Node]:
        """Wait for the next node; its pass, and itself."""
        with self._changed:
            while not self._heap:
                self._changed.wait()
            return heappop(self._heap)[2:]


# ---------------------------------------------------------------------------------------------------------------- a pass
class GraphTask:
    """One backward pass through a graph.

    Args:
        targets: the only edges that gradients are wanted for; by default, all leaves.
        into_leaves: add the gradients of leaves among the targets to their `grad`; only other targets are captured.

    Attributes:
        captures: node -> {input: index in `captured`}: the requested gradients, taken before the node runs.
        callbacks: functions to call once at the end of the pass.
    """

    def __init__(
        self,
        roots: Sequence[_Edge],
        seeds: Sequence[Any],
        keep_graph: bool,
        create_graph: bool,
        targets: Sequence[_Edge] | None = None,
        blocked: frozenset[_Edge] = frozenset(),
        into_leaves: bool = False,
    ) -> None:
        self.keep_graph, self.create_graph = keep_graph, create_graph
        self.callbacks: list[Callable[[], Any]] = []
        self.roots = roots
        self.captured: list[Any] = [None] * len(targets or ())
        self.captures: dict[Node, dict[int, int]] = {}
        leaves = {node for node, _ in targets or () if into_leaves and node.is_leaf}
        for place, (node, number) in enumerate(targets or ()):
            if node not in leaves:
                self.captures.setdefault(node, {})[number] = place
        self._blocked = blocked
        self._needed = None if targets is None else self._between(roots, set(targets)) | leaves
        self._dependencies = self._count(roots)
        self._devices = frozenset({CPU, *state.devices})
        # Recorded nodes get their sequence numbers as they run, so one thread runs them all.
        self.parallel = not create_graph and state.tracer is None and self._is_parallel()
        self._buffers: dict[Node, InputBuffer] = {}
        self._ready: list[tuple[int, Node]] = []
        # Shared by the threads:
        self._changed = threading.Condition()
        self._outstanding = 0
        self._failed = False
        self._errors: list[BaseException] = []
        for position, ((node, number), seed) in enumerate(zip(roots, seeds, strict=True)):
            if node not in self._dependencies:
                continue
            self._buffer(node).add(number, seed, (-(2**63), position))
        for node in dict.fromkeys(node for node, _ in roots):
            if self._dependencies.get(node) == 0:
                self._push(node)

    # -- choice of nodes
    def _between(self, roots: Sequence[_Edge], targets: set[_Edge]) -> set[Node]:
        """Nodes on paths from the roots to the targets."""
        blocked = self._blocked
        lowest = min((node.topological_nr for node, _ in targets), default=0)
        seen: set[Node] = set()
        stack = [node for node, _ in roots]
        while stack:
            node = stack.pop()
            if node in seen or node.topological_nr <= lowest:
                continue
            seen.add(node)
            stack += [edge[0] for edge in node._edges if edge is not None and edge not in blocked]
        between: set[Node] = set()
        for node in sorted(seen, key=_sequence):
            if any(e is not None and e not in blocked and (e in targets or e[0] in between) for e in node._edges):
                between.add(node)
        return between

    def _count(self, roots: Sequence[_Edge]) -> dict[Node, int]:
        """How many gradients each node of the pass will receive from other nodes."""
        counts: dict[Node, int] = {}
        needed, captures, blocked = self._needed, self.captures, self._blocked
        stack = []
        for node, _ in roots:
            if node not in counts and (needed is None or node in needed or node in captures):
                counts[node] = 0
                stack.append(node)
        while stack:
            node = stack.pop()
            if needed is not None and node not in needed:
                continue
            for edge in node._edges:
                if edge is None or (blocked and edge in blocked):
                    continue
                child = edge[0]
                if child._saved is None and child._keepers is not None and needed is None:
                    _end_before(node, child)
                elif child in counts:
                    counts[child] += 1
                elif needed is None or child in needed or child in captures:
                    counts[child] = 1
                    stack.append(child)
        return counts

    def _is_parallel(self) -> bool:
        """Whether other threads than the caller's run nodes too."""
        if len(DEVICES) > 1 and any(node.device not in self._devices for node in self._dependencies):
            return True
        if engine.threads == 1:
            return False
        large, nodes = sum([node.large for node in self._dependencies]), len(self._dependencies)
        return (large - 1) * _HANDED_OVER > nodes and (large - self._most_in_a_row()) * _HANDED_OVER > nodes

    def _most_in_a_row(self) -> int:
        """The number of large nodes on the longest path: these run one after another even with several threads."""
        above = dict.fromkeys(self._dependencies, 0)
        most = 0
        for node in sorted(self._dependencies, key=_sequence, reverse=True):
            count = above[node] + node.large
            most = max(most, count)
            for edge in node._edges:
                if edge is not None and above.get(edge[0], count) < count:
                    above[edge[0]] = count
        return most

    def _buffer(self, node: Node) -> InputBuffer:
        buffer = self._buffers.get(node)
        if buffer is None:
            buffer = self._buffers[node] = InputBuffer(len(node.kinds), self.parallel)
        return buffer

    def _push(self, node: Node) -> None:
        """Queue a node that has all of its gradients."""
        if self.parallel:
            self._outstanding += 1
            if node.device not in self._devices:
                engine.queue_of(node.device).push(self, node)
                return
        heappush(self._ready, (-node.sequence_nr, node))

    # -- running
    def run(self) -> list[Any]:
        """Run all nodes, and return the captured gradients."""
        before = state.task, state.recording
        state.task, state.recording = self, self.create_graph
        try:
            if self.parallel:
                self._run_parallel()
            else:
                self._run_here()
            for callback in self.callbacks:  # a callback may add others
                callback()
        finally:
            state.task, state.recording = before
        if not self.keep_graph and self._needed is None:
            self._free()
        return self.captured

    def _free(self) -> None:
        """Free what the nodes recorded inside a guard have saved: as in Fluid 1.6, later passes end at them."""
        for node in self._dependencies:
            if node._keepers is not None:
                node._saved = None

    def _run_here(self) -> None:
        ready, buffers, counts, keep = self._ready, self._buffers, self._dependencies, self.keep_graph
        limited = self._needed is not None or bool(self._blocked)
        plain = not (limited or self.create_graph or anomaly.is_enabled() or timing.current is not None)
        while ready:
            node = heappop(ready)[1]
            if plain and node._hooks is None:
                keepers = node._keepers
                if keepers is not None and (isinstance(keepers, dict) or keepers() is not None):
                    self._keep(node, buffers[node].values)
                try:
                    grads = node.apply(buffers.pop(node).values, None, keep)
                except Exception as error:
                    raise located(error, node) from error.__cause__
            else:
                grads = self._evaluate(node, buffers.pop(node).values)
            for edge, value in zip(node._edges, grads):  # noqa: B905  (a captured node returns none)
                if edge is None:
                    continue
                child, number = edge
                if limited and (child not in counts or edge in self._blocked):
                    continue
                buffer = buffers.get(child)
                if buffer is None:
                    buffer = buffers[child] = InputBuffer(len(child.kinds))
                if buffer.values[number] is None:
                    buffer.values[number] = value
                elif value is not None:
                    buffer.add(number, value)
                left = counts[child] - 1
                if left:
                    counts[child] = left
                else:
                    heappush(ready, (-child.sequence_nr, child))

    def _evaluate(self, node: Node, grads: list[Any]) -> Sequence[Any]:
        """Run a node with its hooks on its incoming gradients."""
        try:
            if node._hooks is not None:
                grads = self._before(node, grads)
            elif node._keepers is not None:
                self._keep(node, grads)
            wanted = None
            if self._needed is not None or self._blocked:
                if node in self.captures:
                    for number, place in self.captures[node].items():
                        self.captured[place] = grads[number]
                if self._needed is not None and node not in self._needed:
                    if anomaly.is_enabled():
                        anomaly.check(node, grads, (), self)
                    return ()
                counts, blocked = self._dependencies, self._blocked
                wanted = tuple([e is not None and e[0] in counts and e not in blocked for e in node._edges])
            gradients = self._apply(node, grads, wanted)
            if anomaly.is_enabled():
                anomaly.check(node, grads, gradients, self)
            if node._hooks is not None and node._hooks.after:
                gradients = self._after(node, grads, gradients)
            return gradients
        except Exception as error:
            raise located(error, node) from error.__cause__

    def _apply(self, node: Node, grads: list[Any], wanted: Sequence[bool] | None) -> Sequence[Any]:
        """The gradients of a node's inputs."""
        if self.create_graph:
            return node.apply_recorded(grads, wanted, self.keep_graph)
        with timed_node(node):
            return node.apply(grads, wanted, self.keep_graph)

    # -- hooks
    def _unwrapped(self, value: Any) -> Any:
        """Convert a hook's tensor for the rest of the pass: a private copy, or a tensor if recording."""
        return value if value is None or self.create_graph else value._array.copy()

    def _hooked(self, hooks: Hooks, grad: Any) -> Any:
        """A tensor's gradient after the tensor's hooks."""
        if grad is None:
            return None
        tensor = _wrapped(grad)
        for hook in list(hooks.values()):
            replaced = hook(tensor)
            if replaced is not None:
                tensor = _checked(replaced, tensor, "a hook")
        return self._unwrapped(tensor)

    def _before(self, node: Node, grads: list[Any]) -> list[Any]:
        hooks = node._hooks
        assert hooks is not None
        grads = list(grads)
        for number, of_tensor in hooks.of_tensor.items():
            if of_tensor:
                grads[number] = self._hooked(of_tensor, grads[number])
        for number, reference in hooks.retained.items():
            tensor = reference()
            if tensor is not None and grads[number] is not None:
                accumulate(tensor, self._unwrapped(_wrapped(grads[number])))
        if node._keepers is not None:
            self._keep(node, grads)
        for hook in list(hooks.before.values()):
            tensors = tuple([_wrapped(grad) for grad in grads])
            replaced = hook(tensors)
            if replaced is not None:
                grads = [self._unwrapped(grad) for grad in _all_checked(replaced, tensors, "a prehook")]
        return grads

    def _keep(self, node: Node, grads: Sequence[Any]) -> None:
        """Add gradients to the `grad` of tensors that were computed inside a guard and still exist."""
        if self._needed is not None or node._keepers is None:  # other tensors' gradients are asked for
            return
        keepers = node._keepers if isinstance(node._keepers, dict) else {0: node._keepers}
        for number, reference in keepers.items():
            tensor, grad = reference(), grads[number]
            if tensor is not None and grad is not None and tensor._edge == (node, number) and not tensor.retains_grad:
                accumulate(tensor, self._unwrapped(_wrapped(grad)))

    def _after(self, node: Node, received: Sequence[Any], gradients: Sequence[Any]) -> Sequence[Any]:
        assert node._hooks is not None
        for hook in list(node._hooks.after.values()):
            tensors = tuple([_wrapped(grad) for grad in gradients])
            replaced = hook(tensors, tuple([_wrapped(grad) for grad in received]))
            if replaced is not None:
                gradients = [self._unwrapped(grad) for grad in _all_checked(replaced, tensors, "a hook of a node")]
        return gradients

    # -- in several threads
    def _run_parallel(self) -> None:
        for _ in range(engine.threads - 1):
            engine.ask_for_help(self)
        self.serve()
        error, self._errors = self._errors, []
        if error:
            raise error.pop(0)  # popped, as a reference from here would keep the pass and its graph alive

    def serve(self) -> None:
        """Run nodes of this pass until it ends."""
        while True:
            with self._changed:
                while not self._ready and self._outstanding and not self._failed:
                    self._changed.wait()
                if self._failed or not self._outstanding:
                    return
                node = heappop(self._ready)[1]
            self.run_one(node)

    def run_one(self, node: Node) -> None:
        """Run a node, and pass its gradients on."""
        before = state.task, state.recording
        state.task, state.recording = self, self.create_graph
        try:
            with self._changed:
                grads = self._buffers.pop(node).take()
            gradients = self._evaluate(node, grads)
            with self._changed:
                self._deliver(node, gradients)
        except BaseException as error:  # raised again in the calling thread
            with self._changed:
                if not self._failed:
                    self._failed = True
                    self._errors.append(error)
        finally:
            state.task, state.recording = before
            with self._changed:
                self._outstanding -= 1
                self._changed.notify_all()

    def _deliver(self, node: Node, gradients: Sequence[Any]) -> None:
        for position, (edge, value) in enumerate(zip(node._edges, gradients, strict=False)):
            if edge is None or edge[0] not in self._dependencies or edge in self._blocked:
                continue
            child, number = edge
            buffer = self._buffer(child)
            if value is not None:
                buffer.add(number, value, (-node.sequence_nr, position))
            self._dependencies[child] -= 1
            if self._dependencies[child] == 0:
                self._push(child)


class InnerTask(GraphTask):
    """A pass inside a node of another pass, through the graph that this node stands for."""

    def _before(self, node: Node, grads: list[Any]) -> list[Any]:
        # The outer pass calls the hooks of captured values, with their whole gradients.
        return grads if node in self.captures else super()._before(node, grads)


_sequence = attrgetter("sequence_nr")


def _end_before(node: Node, freed: Node) -> None:
    """Remove the edges of a node to one that an earlier pass freed, so that its graph is not kept alive; warn of it."""
    node._edges = tuple([None if edge is not None and edge[0] is freed else edge for edge in node._edges])
    warn_user(
        f"an earlier backward freed {freed.name}, recorded at {freed.where}, so no gradient flows through it; detach() says that "
        "this is meant, and backward(retain_graph=True) before lets it flow"
    )


def _wrapped(grad: Any) -> Any:
    """Wrap a gradient for hooks: a tensor, or None."""
    return grad if grad is None or isinstance(grad, Tensor) else Tensor._of(grad)


def _checked(grad: Any, replaced: Any, giver: str) -> Tensor:
    if not isinstance(grad, Tensor):
        raise FluidTypeError(f"{giver} should give a Tensor or None, not {type(grad).__name__}")
    if replaced is not None and (grad.shape, grad.dtype) != (replaced.shape, replaced.dtype):
        raise BackwardError(f"{giver} gave a gradient of {grad._kind} in place of one of {replaced._kind}")
    return grad


def _all_checked(grads: Any, replaced: Sequence[Any], giver: str) -> list[Any]:
    items = list(grads) if isinstance(grads, (tuple, list)) else [grads]
    if len(items) != len(replaced):
        raise BackwardError(f"{giver} gave {len(items)} gradients in place of {len(replaced)}")
    return [None if item is None else _checked(item, old, giver) for item, old in zip(items, replaced, strict=True)]


def located(error: Exception, node: Node) -> Exception:
    """The error with the node that raised it, and the line that recorded the node."""
    if getattr(error, "_located", False):
        return error
    place = f"in the backward pass, in {node.name}" + ("" if node._line is None else f", recorded at: {node.where}")
    if isinstance(error, FluidError):
        if "recorded at: " not in str(error):
            error.restate(f"{error}\n  {place}")
    elif hasattr(error, "add_note"):
        error.add_note(place)
    else:
        error.args = (*error.args[:-1], f"{error.args[-1]}\n  {place}") if error.args else (place,)
    error._located = True  # type: ignore[attr-defined]
    return error


# ---------------------------------------------------------------------------------------------------------------- threads
class BackwardEngine:
    """Runs backward passes; the process has one, `engine`."""

    def __init__(self) -> None:
        self.threads = min(os.cpu_count() or 1, 4) if HAS_THREADS else 1
        self._lock = threading.Lock()
        self._queues: dict[str, ReadyQueue] = {}
        self._calls: SimpleQueue[GraphTask] = SimpleQueue()
        self._helpers = 0

    def set_num_threads(self, threads: int) -> None:
        """Set how many threads share the CPU's nodes of one pass; results are the same for any number."""
        self.threads = checked_count(threads) if HAS_THREADS else 1

    def queue_of(self, device: str) -> ReadyQueue:
        """The queue of a device other than the CPU; starts the thread that serves it if there is none yet."""
        with self._lock:
            queue = self._queues.get(device)
            if queue is None:
                queue = self._queues[device] = ReadyQueue()
                threading.Thread(target=_serve_device, args=(device, queue), name=f"fluid {device}", daemon=True).start()
            return queue

    def ask_for_help(self, task: GraphTask) -> None:
        """Let one more thread run nodes of a pass, as soon as one is free."""
        with self._lock:
            if self._helpers < self.threads - 1:
                self._helpers += 1
                threading.Thread(target=_help, args=(self._calls,), name="fluid backward", daemon=True).start()
        self._calls.put(task)

    def queue_callback(self, callback: Callable[[], Any]) -> None:
        """Call a function once at the end of the running pass of this thread; for use in hooks."""
        if state.task is None:
            raise BackwardError("queue_callback is for hooks and the backward of a PyLayer: no backward pass is running here")
        state.task.callbacks.append(callback)

    def execute(self, task_of: Callable[[], GraphTask]) -> list[Any]:
        """Make and run a pass, in this thread, or in a new one if too many passes are nested here."""
        if state.depth >= _MAX_DEPTH:
            return self._elsewhere(task_of)
        state.depth += 1
        try:
            with collector_paused():
                return quietly_run(task_of)
        finally:
            state.depth -= 1

    def _elsewhere(self, task_of: Callable[[], GraphTask]) -> list[Any]:
        results: list[Any] = []
        errors: list[BaseException] = []
        recording, devices = state.recording, state.devices
        if not HAS_THREADS:
            raise BackwardError(
                f"{_MAX_DEPTH} backward passes are running inside of each other; more need threads, and there are none"
            )

        def work() -> None:
            state.recording, state.devices = recording, devices
            try:
                results.append(self.execute(task_of))
            except BaseException as error:  # raised again in the waiting thread
                errors.append(error)

        thread = threading.Thread(target=work, name="fluid reentrant backward")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]  # type: ignore[no-any-return]


def quietly_run(task_of: Callable[[], GraphTask]) -> list[Any]:
    with OnNumpy():  # gradients may be infinite or NaN
        return task_of().run()


def _serve_device(device: str, queue: ReadyQueue) -> None:
    state.devices = frozenset({device})
    while True:
        task, node = queue.pop()
        with np.errstate(all="ignore"):
            task.run_one(node)
        del task, node


def _help(calls: SimpleQueue[GraphTask]) -> None:
    while True:
        task = calls.get()
        with np.errstate(all="ignore"):
            task.serve()
        del task


engine = BackwardEngine()


# ---------------------------------------------------------------------------------------------------------- public interface
def set_num_threads(threads: int) -> None:
    """Set how many threads share the CPU's part of one backward pass; results have the same bits for any number.

    >>> dygraph.set_num_threads(1)
    >>> dygraph.get_num_threads()
    1
    """
    engine.set_num_threads(threads)


def get_num_threads() -> int:
    """The number of threads that share the CPU's part of one backward pass.

    >>> dygraph.set_num_threads(1)
    >>> dygraph.get_num_threads()
    1
    """
    return engine.threads


def queue_callback(callback: Callable[[], Any]) -> None:
    """Call a function once at the end of the running backward pass; for use in hooks.

    >>> x = dygraph.Tensor([1.0], stop_gradient=False)
    >>> handle = x.register_hook(lambda grad: dygraph.queue_callback(lambda: print("done")))
    >>> (x * x).backward()
    done
    """
    engine.queue_callback(callback)


def _listed(value: Any, label: str) -> list[Any]:
    tensors = list(value) if isinstance(value, (list, tuple)) else [value]
    for item in tensors:
        if not isinstance(item, Tensor):
            raise FluidTypeError(f"{label} should be a Tensor or a list of them, not {type(item).__name__}")
    return tensors


def _no_duplicates(tensors: Sequence[Tensor], label: str) -> None:
    seen: dict[int, int] = {}
    for number, tensor in enumerate(tensors):
        first = seen.setdefault(id(tensor), number)
        if first != number:
            raise ProgramError(f"{label} {first} and {number} are the same tensor, {tensor.name}; name each tensor once")


def edge_of(tensor: Tensor) -> _Edge:
    return tensor._edge or leaf_edge(tensor)


def _roots(tensors: Sequence[Tensor], label: str) -> list[_Edge]:
    for number, tensor in enumerate(tensors):
        if tensor._stop:
            raise BackwardError(f"{label} {number}, {tensor.name} ({tensor._kind}), {NO_GRAPH}")
        if tensor._edge is not None and tensor._edge[0]._saved is None:
            raise tensor._edge[0]._released()
    return [edge_of(tensor) for tensor in tensors]


def _seeds(tensors: Sequence[Tensor], weights: Any, name: str, create_graph: bool) -> list[Any]:
    """The gradients that a pass starts with: arrays, or tensors under `create_graph`."""
    grads = [None] * len(tensors) if weights is None else list(weights) if isinstance(weights, (list, tuple)) else [weights]
    if len(grads) != len(tensors):
        raise ProgramError(f"{name} should hold one gradient for each of {len(tensors)} tensors, not {len(grads)}")
    seeds: list[Any] = []
    for tensor, grad in zip(tensors, grads, strict=True):
        kind = tensor._kind
        if grad is None:
            if is_complex(kind.dtype):
                raise BackwardError(f"{tensor.name} is {kind}, and only a real number has a gradient that is 1; give its own")
            value = make(ones_like(kind), kind)
            if state.tracer is not None:
                state.tracer.constant(value, 1.0)
        else:
            value = (
                grad if isinstance(grad, Tensor) else Tensor._of(array_of(grad, None if hasattr(grad, "dtype") else kind.dtype))
            )
        if value.shape != kind.shape:
            raise ProgramError(
                f"{name}: the gradient of {tensor.name} should have its shape {list(kind.shape)}, not {list(value.shape)}"
            )
        if value.dtype is not kind.dtype:
            raise FluidTypeError(
                f"{name}: the gradient of {tensor.name} should be of {kind.dtype.text}, not of {value.dtype.text}"
            )
        seeds.append(
            value if create_graph else value._array.copy() if grad is not None and tensor._edge is None else value._array
        )
    return seeds


def backward(
    tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = False, create_graph: bool = False, inputs: Any = None
) -> None:
    """Add gradients to the `grad` of the leaves that `tensors` were computed from.

    Args:
        tensors: a tensor, or a list of them, whose sum is differentiated.
        grad_tensors: weights of the elements, one tensor for each of `tensors`, of its shape and element type; None, also in the
            list, for ones.
        retain_graph: keep the values that the recorded ops saved, so that backward can run again.
        create_graph: record the computation of the gradients, so that they can be differentiated; this keeps the graph. A leaf's
            `grad` then references the graph, which references the leaf: clear the gradient after use, or call `grad`, which
            makes no such cycle.
        inputs: the only tensors whose `grad` is added to, leaves or not.

    Raises:
        BackwardError: a tensor has no graph, the graph was freed before, or a node fails.
        ProgramError: a tensor appears twice, or a gradient has another shape or element type than its tensor.

    >>> x = dygraph.Tensor([1.0, 2.0], stop_gradient=False)
    >>> dygraph.backward([x * x, x], [dygraph.Tensor([1.0, 1.0]), dygraph.Tensor([1.0, 10.0])])
    >>> x.gradient()
    array([ 3., 14.], dtype=float32)
    """
    outputs = _listed(tensors, "backward: tensors")
    if state.tracer is not None:
        state.tracer.backward(outputs, grad_tensors, retain_graph, create_graph, inputs)
        return
    _no_duplicates(outputs, "backward: tensors")
    roots = _roots(outputs, "backward: tensor")
    keep = create_graph if retain_graph is None else bool(retain_graph or create_graph)
    if inputs is None:
        seeds = _seeds(outputs, grad_tensors, "backward: grad_tensors", create_graph)
        engine.execute(lambda: GraphTask(roots, seeds, keep, create_graph))
        RANDOM.end_run()
        return
    wanted = _listed(inputs, "backward: inputs")
    if not wanted:
        raise ProgramError("backward: inputs is empty; leave it out to add to the grad of all leaves")
    gradients = _gradients(outputs, wanted, grad_tensors, keep, create_graph, (), "backward", into_leaves=True)
    for tensor, value in zip(wanted, gradients, strict=True):
        if value is not None:
            accumulate(tensor, value if create_graph else value.copy())
    RANDOM.end_run()


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool = False,
    no_grad_vars: Any = None,
    backward_strategy: Any = None,
) -> list[Tensor | None]:
    """Gradients of the sum of `outputs` with respect to `inputs`; no tensor's `grad` changes.

    Args:
        outputs, inputs: a tensor or a list of them.
        grad_outputs: weights of the elements, one tensor for each output; None, also in the list, for ones.
        retain_graph: keep the values that the recorded ops saved, so that backward can run again; by default as `create_graph`.
        create_graph: record the computation of the gradients, so that they can be differentiated.
        only_inputs: True; gradients of other leaves are not computed.
        allow_unused: return None for an input that no output depends on, instead of an error.
        no_grad_vars: a tensor, or an iterable of tensors, through which no gradient flows, as if they were constant.
        backward_strategy: accepted as in Fluid 1.8; the order of sums is always the same here.

    Raises:
        BackwardError: an input is not reached, an output has no graph, the graph was freed before, or a node fails.
        ProgramError: a tensor appears twice, or a gradient has another shape or element type than its output.

    >>> x = dygraph.Tensor([1.0, 2.0], stop_gradient=False)
    >>> (first,) = dygraph.grad((x * x * x).sum(), x, create_graph=True)
    >>> (second,) = dygraph.grad(first.sum(), x)
    >>> first.numpy(), second.numpy()
    (array([ 3., 12.], dtype=float32), array([ 6., 12.], dtype=float32))
    """
    if not only_inputs:
        raise ProgramError("grad: only_inputs=False is not supported; backward() adds to the grad of all leaves")
    output_list, input_list = _listed(outputs, "grad: outputs"), _listed(inputs, "grad: inputs")
    if not input_list:
        raise ProgramError("grad: inputs is empty; name the tensors to differentiate by")
    cut = state.tracer is not None and not create_graph  # in a trace, gradients are computed by ops on tensors
    create_graph = create_graph or cut
    keep = create_graph if retain_graph is None else retain_graph
    if no_grad_vars is not None and not isinstance(no_grad_vars, Tensor) and isinstance(no_grad_vars, Iterable):
        no_grad_vars = list(no_grad_vars)
    constant = () if no_grad_vars is None else _listed(no_grad_vars, "grad: no_grad_vars")
    _no_duplicates(output_list, "grad: outputs")
    values = _gradients(output_list, input_list, grad_outputs, keep, create_graph, constant, "grad")
    for number, (tensor, value) in enumerate(zip(input_list, values, strict=True)):
        if value is None and not allow_unused:
            raise BackwardError(
                f"grad: no output depends on input {number}, {tensor.name} ({tensor._kind}); with allow_unused=True its gradient "
                "is None"
            )
    if cut:
        return [value if value is None else value.detach() for value in values]
    return [value if value is None or isinstance(value, Tensor) else Tensor._of(value) for value in values]


def _gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    grad_outputs: Any,
    keep: bool,
    create_graph: bool,
    constant: Iterable[Tensor],
    label: str,
    into_leaves: bool = False,
) -> list[Any]:
    _no_duplicates(inputs, f"{label}: inputs")
    roots = _roots(outputs, f"{label}: output")
    for number, tensor in enumerate(inputs):
        if tensor._stop:
            raise BackwardError(
                f"{label}: input {number}, {tensor.name} ({tensor._kind}), has stop_gradient set; set it to False first"
            )
    blocked = frozenset(edge_of(tensor) for tensor in constant if not tensor._stop)
    open_roots = [root not in blocked for root in roots]
    seeds = _seeds(outputs, grad_outputs, "grad_outputs" if label == "grad" else "grad_tensors", create_graph)
    kept_roots = [root for root, is_open in zip(roots, open_roots, strict=True) if is_open]
    kept_seeds = [seed for seed, is_open in zip(seeds, open_roots, strict=True) if is_open]
    targets = [edge_of(tensor) for tensor in inputs]
    return engine.execute(lambda: GraphTask(kept_roots, kept_seeds, keep, create_graph, targets, blocked, into_leaves))

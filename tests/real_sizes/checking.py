"""Checks programs by their seeds, in processes of their own, as wrong native code may end a process; shrinks what fails."""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .cases import Case, Unfit, script_of
from .choices import Choices, shrink
from .control import make_control
from .judging import Problem, judge
from .nets import make_net
from .ops import make_op
from .running import ENGINES

__all__ = ["GENERATORS", "Answer", "Failure", "check", "choices_of", "find_failure", "in_a_process"]

GENERATORS: dict[str, Callable[[Choices], Case]] = {"ops": make_op, "nets": make_net, "control": make_control}
"""Kind of program -> what makes a case of choices."""

SECONDS = 180
"""What a check may take of the processor; after ten times as long it is taken to hang."""
MEMORY = 8 << 30
"""Bytes of addresses of a process that checks: programs are small, so more of them are a fault."""


@dataclass
class Answer:
    """The outcome of one case.

    Attributes:
        unfit: why the choices make no program; empty if they do.
        text: what is wrong, in words.
        kind: which engine does what wrong, in a word; empty if nothing is.
        drawn, spans: the choices.
        title: what the program is.
    """

    unfit: str = ""
    kind: str = ""
    text: str = ""
    script: str = ""
    title: str = ""
    drawn: list[int] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    distances: dict[str, float] = field(default_factory=dict)
    is_undecided: bool = False


@dataclass
class Failure:
    """A program that some engine runs wrongly, as small as it could be made in some time."""

    seed: int
    generator: str
    first: Answer
    smallest: Answer

    def __str__(self) -> str:
        parts = [
            f"{self.generator}, seed {self.seed} ({self.first.title}): {self.first.text}",
            f"The smallest program found that fails alike, of choices {self.smallest.drawn}:",
            self.smallest.text,
            self.smallest.script,
        ]
        return "\n\n".join(parts)


def choices_of(seed: int) -> Choices:
    return Choices(seed)


def check(generator: str, choices: Choices, engines: Sequence[str] = ENGINES) -> Answer:
    """Run a case on the engines, in this process."""
    try:
        case = GENERATORS[generator](choices)
    except Unfit as error:
        return Answer(unfit=str(error), drawn=choices.drawn, spans=choices.spans)
    answer = Answer(title=case.title, drawn=choices.drawn, spans=choices.spans)
    try:
        verdict = judge(case, tuple(engines))
        problems, answer.distances, answer.is_undecided = verdict.problems, verdict.distances, verdict.is_undecided
    except Unfit as error:
        answer.unfit = str(error)
        return answer
    except Exception:
        problems = [Problem("float64", "error", traceback.format_exc())]
    if problems:
        answer.kind = f"{problems[0].engine}: {problems[0].kind}"
        answer.text = "\n".join(map(str, problems[:6]))
        answer.script = script_of(case)
    return answer


def in_a_process(function: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Call a function in a new process; returns its result, or an `Answer` if the process fails."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reader)
            faulthandler.disable()  # whoever waits says how the process ended
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.setitimer(signal.ITIMER_PROF, seconds)
            signal.alarm(int(10 * seconds))
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(function(), pipe)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        is_late = name in ("SIGALRM", "SIGPROF")
        text = f"it took more than {seconds} s of the processor, or hangs" if is_late else f"the process ended by {name}"
        return Answer(kind="process: late" if is_late else f"process: {name}", text=text)
    return pickle.loads(data) if data else Answer(kind="process: error", text="the process ended without an answer")


def check_in_a_process(generator: str, choices: Callable[[], Choices], engines: Sequence[str]) -> Answer:
    """As `check`; if the process ends, the answer has the choices and the script all the same."""
    answer: Answer = in_a_process(lambda: check(generator, choices(), engines))
    if answer.kind.startswith("process:") and not answer.drawn:
        built: Answer = in_a_process(lambda: _built(generator, choices()))
        answer.drawn, answer.spans, answer.script, answer.title = built.drawn, built.spans, built.script, built.title
    return answer


def _built(generator: str, choices: Choices) -> Answer:
    case = GENERATORS[generator](choices)
    return Answer(script=script_of(case), title=case.title, drawn=choices.drawn, spans=choices.spans)


def find_failure(generator: str, seed: int, engines: Sequence[str] = ENGINES, seconds: float = 90) -> Failure | None:
    """Check program number `seed` again, and shrink it for so many seconds if it fails."""
    first = check_in_a_process(generator, lambda: choices_of(seed), engines)
    if not first.kind:
        return None
    engine = first.kind.partition(":")[0].partition(",")[0]
    fewer = [engine] if engine in ENGINES and engine != "numpy" else list(engines)
    fewer = list(dict.fromkeys([*fewer, "numpy"])) if engine != "process" else list(engines)
    best = first

    def attempt(replayed: Sequence[int]) -> Choices | None:
        nonlocal best
        answer = check_in_a_process(generator, lambda: Choices(replayed=replayed), fewer)
        if answer.kind != first.kind:
            return None
        best = answer
        return _recorded(answer)

    shrunk = shrink(_recorded(first), attempt, seconds)
    return Failure(seed, generator, first, best if best.drawn == shrunk.drawn else first)


def _recorded(answer: Answer) -> Choices:
    choices = Choices(replayed=answer.drawn)
    choices.drawn, choices.spans = list(answer.drawn), list(answer.spans)
    return choices

"""Numbers of a training in files: written as CSV, or for TensorBoard, and read back."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ..errors import FluidError, FluidTypeError, FormatError, ProgramError, how_to_install
from ..formats.writing import write_file

Curves = dict[str, tuple[Any, Any]]


class _Log:
    """Base class of logs: it checks numbers, and a ``with`` closes the log."""

    def write(self, step: int, **numbers: Any) -> None:
        """Log numbers of a step.

        Args:
            step: the number of the step, or of the epoch, at least 0.
            numbers: each a number, or an array or tensor of one element.

        Raises:
            FluidTypeError: one is no number.
            ProgramError: the step is none.
        """
        if not isinstance(step, (int, np.integer)) or isinstance(step, bool) or step < 0:
            raise ProgramError(f"{type(self).__name__}.write: step should be a number of a step, at least 0, not {step!r}")
        self._write(int(step), {name: number_of(value, f"write: {name}") for name, value in numbers.items()})

    def _write(self, step: int, numbers: Mapping[str, float]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Close the log's file. A CSV file is complete at any time, TensorBoard's only after this."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def number_of(value: Any, where: str) -> float:
    """A number, or the only element of an array or tensor, as a float."""
    try:
        array = np.asarray(value if not hasattr(value, "numpy") else value.numpy())
        if array.size != 1 or array.dtype.kind not in "biuf":
            raise TypeError
        return float(array.reshape(()))
    except (TypeError, ValueError):
        raise FluidTypeError(f"{where} should be a number, or an array of one element, not {value!r}") from None


class CSVLog(_Log):
    """A log that spreadsheets read: a line for each step, a column for each name.

    A name that is new in a later step gets a column; where a step has no number, its cell is empty. Each line is in the file as
    soon as it is written. `read_log` reads the file, and `fluid.plots.curves` draws it.

    Args:
        path: the file; folders that lack are made.
        first_step: drop the file's records from this step on, keep earlier ones. So 0 begins anew, and the step
            of a checkpoint goes on from there.

    Raises:
        FormatError: there is a file, and it is not such a log.
        FluidError: the file cannot be written.

    >>> with fluid.training.CSVLog("training.csv") as log:
    ...     log.write(1, loss=0.5)
    ...     log.write(2, loss=0.25, accuracy=0.9)
    >>> print(open("training.csv").read())
    step,loss,accuracy
    1,0.5,
    2,0.25,0.9
    <BLANKLINE>
    """

    def __init__(self, path: str | os.PathLike[str], first_step: int = 0) -> None:
        self._path = Path(path)
        rows = [row for row in _rows(self._path) if row[0] < first_step] if self._path.exists() and first_step > 0 else []
        self._names = list(dict.fromkeys(name for _, numbers in rows for name in numbers))
        self._file: Any = None
        self._start(rows)

    def _start(self, rows: list[tuple[int, dict[str, float]]]) -> None:
        """Rewrite the file with these rows and the present names, and continue at its end."""
        self.close()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["step", *self._names])
        writer.writerows(self._cells(*row) for row in rows)
        write_file(os.fspath(self._path), [text.getvalue().encode()])
        self._file = self._path.open("a", encoding="utf-8", newline="")

    def _cells(self, step: int, numbers: Mapping[str, float]) -> list[Any]:
        return [step, *(repr(numbers[name]) if name in numbers else "" for name in self._names)]

    def _write(self, step: int, numbers: Mapping[str, float]) -> None:
        if self._file is None:
            raise ProgramError(f"the log {self._path} has been closed")
        new = [name for name in numbers if name not in self._names]
        if new:
            rows = list(_rows(self._path))
            self._names += new
            self._start(rows)
        csv.writer(self._file, lineterminator="\n").writerow(self._cells(step, numbers))
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


class TensorBoardLog(_Log):
    """A log that TensorBoard shows, written by tensorboardX (``pip install ".[tensorboard]"``).

    Args:
        folder: where the files of events lie, made if it lacks.
        first_step: TensorBoard and `read_log` skip the records of earlier logs in the folder from this step on.

    Attributes:
        writer: the `tensorboardX.SummaryWriter`, for images, histograms and so on.

    Raises:
        FluidError: tensorboardX is not installed.

    ::

        with fluid.training.TensorBoardLog("runs/first") as log:
            log.write(1, loss=0.5, accuracy=0.8)
    """

    def __init__(self, folder: str | os.PathLike[str], first_step: int = 0) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise FluidError(f"TensorBoardLog needs tensorboardX: {how_to_install('tensorboard')}") from None
        earlier = len(_event_files(Path(folder)))
        suffix = f".{earlier:04}"  # names differ by seconds alone otherwise
        self.writer: Any = SummaryWriter(os.fspath(folder), purge_step=first_step, filename_suffix=suffix)

    def _write(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


# --------------------------------------------------------------------------------------------------------------- reading
def read_log(path: str | os.PathLike[str]) -> Curves:
    """Read a log back: the steps and values of each name.

    Args:
        path: a file of `CSVLog`, or a folder of `TensorBoardLog`.

    Returns:
        name -> (steps, values), two arrays of the same length, int64 and float64.

    Raises:
        FormatError: it is neither, or damaged.
        FluidError: it is TensorBoard's, and tensorboardX is not installed.

    >>> with fluid.training.CSVLog("training.csv") as log:
    ...     log.write(1, loss=0.5)
    ...     log.write(2, loss=0.25, accuracy=0.9)
    >>> steps, losses = fluid.training.read_log("training.csv")["loss"]
    >>> print(steps, losses)
    [1 2] [0.5  0.25]
    """
    where = Path(path)
    rows = _events(where) if where.is_dir() else _rows(where)
    points: dict[str, list[tuple[int, float]]] = {}
    for step, numbers in rows:
        for name, value in numbers.items():
            points.setdefault(name, []).append((step, value))
    return {
        name: (np.array([step for step, _ in pairs], np.int64), np.array([value for _, value in pairs], np.float64))
        for name, pairs in points.items()
    }


def _rows(path: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """The steps of a file of `CSVLog`, each with its numbers."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file)
            head = next(lines, [])
            if head[:1] != ["step"] or len(set(head)) != len(head):
                raise FormatError(f"{path}: its first line should be step,name,name,... as fluid.training.CSVLog writes it")
            for cells in lines:
                try:
                    step, numbers = int(cells[0]), zip(head[1:], cells[1:], strict=True)
                    if not 0 <= step < 1 << 63:
                        raise ValueError
                    yield step, {name: float(cell) for name, cell in numbers if cell}
                except (ValueError, IndexError):
                    shown = ",".join(cells)[:80]
                    wanted = f"a step and {len(head) - 1} numbers"
                    raise FormatError(f"{path}, line {lines.line_num}: it should hold {wanted}, not {shown!r}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"{path}: the log cannot be read: {error}") from None


def _event_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.tfevents.*")) if folder.is_dir() else []


def _events(folder: Path) -> list[tuple[int, dict[str, float]]]:
    """The numbers in a folder of TensorBoard's events; each session counts up to the first step of the next."""
    try:
        from tensorboardX.proto.event_pb2 import Event, SessionLog
    except ImportError:
        raise FluidError(f"logs of TensorBoard are read with tensorboardX: {how_to_install('tensorboard')}") from None
    files = _event_files(folder)
    if not files:
        raise FormatError(f"{folder}: there are no files of TensorBoard's events in this folder")
    rows: list[tuple[int, dict[str, float]]] = []
    for path in files:
        for record in _records(path):
            try:
                event = Event.FromString(record)
            except Exception as error:  # protobuf's DecodeError; its class differs between versions
                raise FormatError(f"{path}: an event is damaged: {error}") from None
            if event.session_log.status == SessionLog.START:
                rows = [row for row in rows if row[0] < event.step]
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    rows.append((event.step, {value.tag: value.simple_value}))
    return rows


def _records(path: Path) -> Iterator[bytes]:
    """The records of a file. Each has a length of 8 bytes, 4 bytes of checksum, the record, and 4 bytes of checksum."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: the log cannot be read: {error}") from None
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 8], "little")
        if position + 16 + size > len(data):
            return  # one that is being written, or was when its process died
        yield data[position + 12 : position + 12 + size]
        position += 16 + size

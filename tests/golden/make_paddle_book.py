"""Writes book/*.npz: the tiny programs of tests/support/book.py, as files, with feeds and results of Paddle 2.6.2.

    python tests/golden/make_paddle_book.py PADDLE_PYTHON [CASE ...]

PADDLE_PYTHON is the interpreter of an environment of its own that has paddlepaddle==2.6.2 and numpy<2. Whole training programs
are run, with the gradients that Fluid wrote. Paddle no longer has cos_sim, which is written here with other ops; what else it
cannot run is in fluid/transform/README.md ("What Paddle can run of what Fluid writes").
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent


def write(folder, names):
    """Each program that Fluid builds as a file, with the first values of its variables and its feed."""
    sys.path.insert(0, str(HERE.parent))
    import book

    import fluid

    fluid.layers.cos_sim = book.cos_sim
    for name in names or book.CASES:
        with (
            fluid.program_guard(fluid.Program(), fluid.Program()),
            fluid.unique_name.guard(),
            fluid.scope_guard(fluid.Scope()),
        ):
            case = book.CASES[name]()
            arrays = {"first." + key: value for key, value in book.prepare(case).items()}
            record = {"steps": case.steps, "grads": case.grads, "lods": {}}
            record["fetch"] = [var.name for var in case.fetch]
            record["parameters"] = [var.name for var in case.main.all_parameters()]
            for key, value in case.feed.items():
                arrays["feed." + key] = np.array(value)
                record["lods"][key] = value.lod() if hasattr(value, "lod") else []
            (folder / f"{name}.program").write_bytes(case.main.serialize_to_string())
            np.savez(folder / f"{name}.npz", record=np.array(json.dumps(record)), **arrays)


def run(folder, path):
    """One of these programs in Paddle."""
    import paddle

    paddle.enable_static()
    core = paddle.base.core
    given = np.load(path)
    record = json.loads(str(given["record"]))
    program = paddle.static.Program.parse_from_string(path.with_suffix(".program").read_bytes())
    scope, place = core.Scope(), paddle.CPUPlace()
    feed = {}
    for key in given.files:
        kind, _, name = key.partition(".")
        if kind == "first":
            scope.var(name).get_tensor().set(given[key], place)
        elif kind == "feed":
            feed[name] = core.LoDTensor()
            feed[name].set(given[key], place)
            feed[name].set_lod(record["lods"][name])
    results = {key: given[key] for key in given.files if key.startswith("feed.")}
    executor = paddle.static.Executor(place)
    with paddle.static.scope_guard(scope):
        for step in range(record["steps"]):
            fetch = record["fetch"] + (record["grads"] if step == 0 else [])
            last = record["parameters"] if step and step == record["steps"] - 1 else []
            found = executor.run(program, feed=feed, fetch_list=fetch + last, return_numpy=False)
            for name, value in zip(fetch, found, strict=False):
                results[f"step{step}.{name}"] = np.array(value)
                record["lods"][f"step{step}.{name}"] = value.lod()
            for name, value in zip(last, found[len(fetch) :], strict=True):
                results[f"last.{name}"] = np.array(value)
    np.savez_compressed(folder / path.name, record=np.array(json.dumps(record)), **results)
    print(path.stem, "steps:", *(results[f"step{i}.{record['fetch'][0]}"].reshape(-1)[:8] for i in range(record["steps"])))


def main():
    if sys.argv[1] == "run":
        run(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    python, *names = sys.argv[1:]
    (HERE / "book").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        write(Path(temporary), names)
        paths = sorted(Path(temporary).glob("*.npz"))
        failed = [path.stem for path in paths if subprocess.run([python, __file__, "run", HERE / "book", path]).returncode]
    sys.exit(f"failed: {failed}" if failed else 0)


if __name__ == "__main__":
    main()

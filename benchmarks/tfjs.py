"""Training steps in WebAssembly beside tfjs, in node: an MLP and LeNet with Adam, by turns, in time of the processor.

npm install @tensorflow/tfjs @tensorflow/tfjs-backend-wasm
python benchmarks/tfjs.py --modules FOLDER     # the folder of node_modules
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fluid
from fluid import layers


def mlp(image: Any) -> Any:
    return layers.fc(layers.fc(layers.fc(image, 256, act="relu"), 128, act="relu"), 10)


def lenet(image: Any) -> Any:
    h = layers.pool2d(layers.conv2d(layers.reshape(image, [-1, 1, 28, 28]), 6, 5, padding=2, act="relu"), 2, "max", 2)
    h = layers.pool2d(layers.conv2d(h, 16, 5, act="relu"), 2, "max", 2)
    return layers.fc(layers.fc(layers.fc(h, 120, act="relu"), 84, act="relu"), 10)


NETS: dict[str, Callable[[Any], Any]] = {"mlp": mlp, "lenet": lenet}


def compile_net(name: str, rows: int, folder: str) -> None:
    """Write ``net.wasm`` and ``net.js`` to a folder."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image, label = fluid.data("image", [rows, 784]), fluid.data("label", [rows, 1], "int64")
        loss = layers.mean(layers.softmax_with_cross_entropy(NETS[name](image), label))
        fluid.optimizer.Adam(0.001).minimize(loss)
    fluid.compile_program(main, fetches={"loss": loss}, startup=startup, target="wasm32", output=f"{folder}/net")
    Path(folder, "package.json").write_text('{"type": "module"}')


def measured(name: str, rows: int, modules: Path) -> dict[str, Any]:
    """Milliseconds of a step, and what cannot run."""
    script = Path(__file__).with_suffix(".mjs")
    with tempfile.TemporaryDirectory() as folder:
        compile_net(name, rows, folder)
        command = ["node", str(script), folder, str(modules), name, str(rows)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", type=Path, default=Path(), help="the folder of node_modules (%(default)s)")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32], help="images in a batch")
    args = parser.parse_args()
    for name in NETS:
        for rows in args.rows:
            results = measured(name, rows, args.modules)
            ours = results["medians"]["fluid"]
            others = {key: time for key, time in results["medians"].items() if key != "fluid"}
            parts = [f"{key} {time:.2f} ms ({ours / time:.2f})" for key, time in others.items()]
            parts += [f"{key}: {error}" for key, error in results["refused"].items()]
            print(f"{name}, {rows} rows: {ours:.2f} ms; {'; '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()

"""Make `fluid/formats/pir/ops.txt`: how ops of Paddle 2.x and ops of PIR, Paddle 3's programs, correspond.

Run it by a Python that has paddlepaddle 3.3.1: ``python tests/support/make_pir_table.py all_schemas.json``, with the file that
`make_op_schemas.py` describes. For each op, and its gradient op, Paddle translates a program of nothing else. What an operand
or an attribute of the result stands for is seen from what it is called and from what changes when one attribute changes.

A line of the table says ``op_of_2.x op_of_pir operand... { attribute... } result...``:

==================  ==================================================================================
``x=X``             the operand x is the variable in slot X; ``x=X*``, all variables in it, combined
``a=axis@i64``      the operand a is an array of constants, the attribute axis; ``@f32``: one number
``a=axis@i64|Axis`` the same, unless the slot Axis holds a variable, or several (``Axis*``)
``x=``              nothing
``a=axis:i32``      the attribute a is the attribute axis; its type is that of PIR
``a=#1:i32``        the attribute a is this constant, as JSON
==================  ==================================================================================
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import paddle
from paths import ROOT

CORE = paddle.base.core
KINDS = CORE.VarDesc.VarType
FP32, FP64 = 5, 6

MARK = 1000
"""The size of a dimension by which results are told from each other."""

FIRST: dict[str, Any] = {
    "int": 3, "long": 3, "float": 0.25, "float64": 0.25, "string": "", "bool": False, "ints": [1, 2], "longs": [1, 2],
    "floats": [0.25, 0.5], "float64s": [0.25, 0.5], "strings": ["a", "b"], "bools": [False, True],
    "scalar": 1.0, "scalars": [1.0],
}  # fmt: skip
OTHER: dict[str, Any] = {
    "int": 5, "long": 5, "float": 0.75, "float64": 0.75, "string": "other", "bool": True, "ints": [7, 2], "longs": [7, 2],
    "floats": [0.75, 0.5], "float64s": [0.75, 0.5], "strings": ["c", "b"], "bools": [True, True],
}  # fmt: skip
MISSING = re.compile(r"attribute: (\w+) is not pir::(Int32|Int64|Float|Double|Bool|Str)Attribute")
NAMES = {"Int32": "int", "Int64": "long", "Float": "float", "Double": "float64", "Bool": "bool", "Str": "string"}
EXTRA: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]] = {
    "adam": (("Moment2Max",), ("Moment2MaxOut",), {"amsgrad": "bool"}),
    "adamw": (("Moment2Max",), ("Moment2MaxOut",), {"amsgrad": "bool"}),
    "dropout": ((), (), {"fix_seed": "bool", "seed": "int"}),
    "lookup_table_v2": ((), (), {"is_sparse": "bool", "is_distributed": "bool", "remote_prefetch": "bool"}),
    "thresholded_relu": ((), (), {"value": "float"}),
}
"""Inputs, outputs and attributes that Paddle asks for, and that the schemas leave out."""
STRINGS = {"data_format": ("NCHW", "NHWC"), "data_layout": ("NCHW", "NHWC"), "dtype": ("float32", "float64")}
"""What attributes of these names have to be, if they are strings."""


def translated(type_: str, inputs: dict[str, Any], outputs: dict[str, Any], attrs: dict[str, Any]) -> list[dict[str, Any]]:
    """The ops, as JSON, of the translation of a program of one op; names of their operands and results are in it."""
    with paddle.pir_utils.OldIrGuard():
        program = paddle.static.Program()
        block = program.desc.block(0)
        shapes = {name: 3 for names in inputs.values() for name in names}
        shapes.update((name, MARK + i) for i, names in enumerate(outputs.values()) for name in names)
        for name in shapes:
            var = block.var(name.encode())
            var.set_type(KINDS.DENSE_TENSOR)
            var.set_dtype(KINDS.FP32)
            var.set_shape([2, shapes[name]])
        op = block.append_op()
        op.set_type(type_)
        for slot, names in inputs.items():
            op.set_input(slot, names)
        for slot, names in outputs.items():
            op.set_output(slot, names)
        for name, value in attrs.items():
            op._set_attr(name, value)
        pir = paddle.pir.translate_to_pir(program.desc)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.json")
        CORE.serialize_pir_program(pir, path, True, False, True)
        ops: list[dict[str, Any]] = json.loads(Path(path).read_text())["program"]["regions"][0]["blocks"][0]["ops"]
    for op, written in zip(pir.global_block().ops, ops, strict=True):
        if op.name().startswith("pd_op."):
            written["operands"], written["results"] = op.get_input_names(), op.get_output_names()
    return ops


class Probe:
    """One op of 2.x: its slots and attributes, and what Paddle makes of it."""

    def __init__(self, type_: str, inputs: dict[str, Any], outputs: dict[str, Any], attrs: dict[str, str], defaults: Any) -> None:
        self.type = type_
        more_inputs, more_outputs, more_attrs = EXTRA.get(type_.removesuffix("_grad"), ((), (), {}))
        if not type_.endswith("_grad"):
            inputs = inputs | {slot: ["dispensable"] for slot in more_inputs}
            outputs = outputs | {slot: [] for slot in more_outputs}
        attrs = attrs | more_attrs
        self.attrs = {name: kind for name, kind in attrs.items() if kind not in ("block", "blocks")}
        self.inputs = inputs
        self.outputs = {slot: [f"{slot}>"] + ([f"{slot}>1"] if "duplicable" in flags else []) for slot, flags in outputs.items()}
        self.defaults = defaults

    def names(self, optional: bool) -> dict[str, list[str]]:
        return {
            slot: [slot, f"{slot}+1"][: 1 + ("duplicable" in flags)] if optional or "dispensable" not in flags else []
            for slot, flags in self.inputs.items()
        }

    def run(self, optional: bool, changed: str = "") -> list[dict[str, Any]]:
        """The result of converting an op, with or without its optional inputs, and with one changed attribute."""
        attrs = dict(self.start)
        if changed:
            attrs[changed] = self.other(changed)
        return translated(self.type, self.names(optional), self.outputs, attrs)

    def first(self, name: str) -> Any:
        kind = self.attrs[name]
        if kind == "string" and name in STRINGS:
            return STRINGS[name][0]
        return FP32 if kind == "int" and "dtype" in name else FIRST[kind]

    def other(self, name: str) -> Any:
        kind = self.attrs[name]
        if kind == "string" and name in STRINGS:
            return STRINGS[name][1]
        if kind == "int" and "dtype" in name:
            return FP64
        return OTHER[kind]

    def line(self) -> str:
        """The line of the table, with attributes that Paddle asks for although the schema lacks them, or has them otherwise."""
        while True:
            try:
                return self._line()
            except ValueError as error:
                missing = MISSING.search(str(error))
                if missing is None or self.attrs.get(missing[1]) == NAMES[missing[2]]:
                    raise
                self.attrs[missing[1]] = NAMES[missing[2]]
                self.defaults = {name: value for name, value in self.defaults.items() if name != missing[1]}

    def _line(self) -> str:
        """The line of the table; `ValueError` if Paddle makes no op of PIR of it."""
        starts = [
            {name: self.first(name) for name in self.attrs},
            {name: self.defaults.get(name, self.first(name)) for name in self.attrs},
        ]
        plain: dict[str, Any] = {}
        full: dict[str, Any] = {}
        reasons = []
        for start in starts:
            self.start = start
            for optional in (False, True):
                try:
                    ops = self.run(optional)
                except Exception as error:
                    reasons.append(str(error).strip().split("\n")[-1 if "Hint" not in str(error) else -2][:150])
                    continue
                if optional:
                    full = full or Translation(ops).found
                else:
                    plain = plain or Translation(ops).found
            if plain or full:
                break
        base = plain or full
        if not base:
            raise ValueError(reasons[0] if reasons else "nothing comes of it")
        depends: dict[str, list[str]] = {}
        for name in self.attrs:
            try:
                varied = Translation(self.run(not plain, name)).found
            except Exception:
                continue
            if not varied or varied["op"] != base["op"]:
                continue
            for side in ("operands", "attrs"):
                for key, value in base[side].items():
                    if varied[side].get(key) != value:
                        depends.setdefault(f"{side} {key}", []).append(name)
        if full and full["op"] == base["op"]:
            for key, value in full["operands"].items():
                if value is not None and isinstance(value, str) and value != base["operands"].get(key):
                    depends.setdefault(f"operands {key}", []).append("|" + value)
        words = [self.type, base["op"]]
        for key, value in base["operands"].items():
            reasons_of = depends.get(f"operands {key}", [])
            slots = "".join(source for source in reasons_of if source.startswith("|"))
            attrs = self.chosen(key, [source for source in reasons_of if not source.startswith("|")])
            if isinstance(value, dict):
                text = json.dumps(value["value"], separators=(",", ":"))
                words.append(f"{key}={attrs or '#' + text}@{value['type']}{slots}")
            else:
                words.append(f"{key}={value or ''}{slots if value != slots[1:] else ''}")
        words.append("{")
        for key, value in base["attrs"].items():
            if not value["type"]:
                continue  # none
            source = self.chosen(key, depends.get(f"attrs {key}", []))
            text = json.dumps(value["value"], separators=(",", ":"))
            words.append(f"{key}={source or '#' + text}:{value['type']}")
        words.append("}")
        slots = list(self.outputs)
        marked = {at for at, _ in base["results"].values()}
        left = [slot for at, slot in enumerate(slots) if at not in marked]
        if len(left) != sum(at is None for at, _ in base["results"].values()):
            left = []  # else, what has a shape of its own is told by its position
        for key, (at, many) in base["results"].items():
            words.append(f"{key}={slots[at] if at is not None else left.pop(0) if left else ''}{many}")
        return " ".join(words)

    @staticmethod
    def chosen(key: str, sources: list[str]) -> str:
        """Of several attributes that change one, the one with its name, else the first that is no flag of all."""
        if len(sources) > 1:
            sources = [one for one in sources if one == key] or [one for one in sources if one != "reduce_all"]
        return sources[0] if sources else ""


class Translation:
    """The op of interest in a translated program: the last one of the dialect that is no constant."""

    def __init__(self, ops: list[dict[str, Any]]) -> None:
        self.values: dict[int, Any] = {0: None}
        self.found: dict[str, Any] = {}
        results: dict[int, str] = {}
        for op in ops:
            name, attrs = op["#"], {one["N"]: one["AT"] for one in op.get("A", ())} if op["#"] != "p" else {}
            operands = [self.values[one["%"]] for one in op.get("I", ())]
            outs = [one["%"] for one in (op["O"] if isinstance(op["O"], list) else [op["O"]])]
            if name == "1.data":
                self.values[outs[0]] = attrs["name"]["D"]
            elif name == "0.combine":
                self.values[outs[0]] = operands[0] + "*" if operands and isinstance(operands[0], str) else None
            elif name in ("0.split", "1.fetch", "1.shadow_output", "0.shadow_output"):
                pass
            elif name in ("1.full_int_array", "1.full") and op is not ops[-1] and not self.used_by_name(op, ops):
                value = attrs["value"]["D"]
                value = [one["D"] for one in value] if name == "1.full_int_array" else value
                dtype = attrs["dtype"]["D"]
                self.values[outs[0]] = {"value": value, "type": ("" if name == "1.full" else "[]") + dtype}
            elif name.startswith(("1.", "0.")) and "operands" in op:
                if self.found:
                    raise ValueError("it becomes several ops")
                self.found = {
                    "op": name.removeprefix("1."),
                    "operands": dict(zip(op["operands"], operands, strict=True)),
                    "attrs": {key: self.plain(value) for key, value in attrs.items()},
                    "results": {},
                }
                results = dict(zip(outs, op["results"], strict=True))
                self.found["results"] = {results[one["%"]]: self.marked(one["TT"]) for one in op["O"]}
                for out in outs:
                    self.values[out] = results[out]
            else:
                raise ValueError(f"it becomes {name}")

    @staticmethod
    def marked(kind: dict[str, Any]) -> tuple[int | None, str]:
        """The number of the output that a result is, with a star for a list."""
        many = "*" if kind["#"] == "0.t_vec" else ""
        while many and kind["#"] == "0.t_vec":
            if not kind["D"]:
                return None, many
            kind = kind["D"][0]
        sizes = [size for size in kind["D"][1] if isinstance(size, int) and size >= MARK] if kind["#"] == "0.t_dtensor" else []
        return (sizes[0] - MARK if sizes else None), many

    @staticmethod
    def used_by_name(op: dict[str, Any], ops: list[dict[str, Any]]) -> bool:
        """Whether nothing reads the op's result: then it is the translation itself."""
        out = op["O"][0]["%"]
        return not any(one["%"] == out for other in ops for one in other.get("I", ()))

    @staticmethod
    def plain(value: dict[str, Any]) -> dict[str, Any]:
        kind = value["#"].partition("a_")[2]
        if kind != "array":
            return {"type": kind, "value": value.get("D")}
        kinds = {one["#"].partition("a_")[2] for one in value["D"]} or {"?"}
        return {"type": f"[{'|'.join(kinds)}]", "value": [one["D"] for one in value["D"]]}


HEAD = "# Ops of Paddle 2.x and of PIR, made by tests/support/make_pir_table.py, which says how to read it.\n"


def gradient(schema: dict[str, Any]) -> list[dict[str, Any]]:
    grad = schema.get("grad")
    return [one for one in grad if isinstance(one, dict)] if isinstance(grad, list) else []


def main(source: str) -> None:
    paddle.enable_static()
    schemas = json.loads(Path(source).read_text(encoding="utf-8"))
    probes: dict[str, Probe] = {}
    for type_, schema in sorted(schemas.items()):
        probes[type_] = Probe(type_, schema["inputs"], schema["outputs"], schema["attrs"], schema["defaults"])
        for grad in gradient(schema):
            flags = {**schema["inputs"], **schema["outputs"]}

            def of(slots: dict[str, Any], flags: dict[str, Any] = flags) -> dict[str, Any]:
                return {slot: flags.get(slot.removesuffix("@GRAD"), []) for slot in slots}

            if grad["type"] in schemas:
                continue
            probes[grad["type"]] = Probe(
                grad["type"], of(grad["inputs"]), of(grad["outputs"]), schema["attrs"], schema["defaults"]
            )
    lines, failed = [], []
    for type_, probe in sorted(probes.items()):
        reader, writer = os.pipe()
        child = os.fork()  # Paddle ends the process over some ops
        if not child:
            os.close(reader)
            try:
                answer = "+" + probe.line()
            except BaseException as error:
                answer = f"-{type(error).__name__}: {error}"
            os.write(writer, answer.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read().decode()
        os.waitpid(child, 0)
        if answer.startswith("+"):
            lines.append(answer[1:])
        else:
            failed.append(f"{type_}: {answer[1:] or 'the process ended'}")
    target = ROOT / "fluid" / "formats" / "pir" / "ops.txt"
    target.write_text(HEAD + "".join(line + "\n" for line in lines), encoding="ascii")
    print(f"{len(lines)} ops in {target}; no one op of PIR for these {len(failed)}:")
    print("\n".join(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])

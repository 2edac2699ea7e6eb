"""The module of JavaScript that loads a library in WebAssembly, and its types for TypeScript."""

from __future__ import annotations

import json
from collections.abc import Mapping
from string import Template
from typing import Any

_ARRAYS = {
    "float32": "Float32Array",
    "float64": "Float64Array",
    "int32": "Int32Array",
    "int64": "BigInt64Array",
    "bool": "Uint8Array",
}

_SCRIPT = Template("""\
/* Loads $name.wasm, which Fluid compiled. In a browser:
 *
 *     import { load } from "./$name.js";
 *     const net = await load();
 *
 * Elsewhere, load takes the bytes of $name.wasm. Each net has memory of its own. */
const ABOUT = $about;
const ARRAYS = { float32: Float32Array, float64: Float64Array, int32: Int32Array, int64: BigInt64Array, bool: Uint8Array };
const align = (bytes) => Math.ceil(bytes / 64) * 64;

class Net {
  constructor(exports) {
    this.exports = exports;
    this.memory = exports.memory;
    this.end = align(exports.heap.value);
    this.stateAt = this.take(ABOUT.state_bytes);
    this.arenaAt = this.take(ABOUT.arena_bytes);
    for (const [name, { feeds, fetches }] of Object.entries(ABOUT.functions)) {
      const pointers = [feeds, fetches].map((parts) => this.take(4 * Object.keys(parts).length));
      const places = [feeds, fetches].map((parts) => Object.values(parts).map((part) => this.take(part.bytes)));
      places.forEach((addresses, i) => new Uint32Array(this.memory.buffer, pointers[i], addresses.length).set(addresses));
      this[name] = (values) => this.call(name, values, places, pointers);
    }
    this.init();
  }

  take(bytes) {
    const at = this.end;
    this.end += align(bytes);
    const missing = this.end - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(Math.ceil(missing / 65536));
    return at;
  }

  view({ dtype, bytes }, at) {
    const type = ARRAYS[dtype];
    return new type(this.memory.buffer, at, bytes / type.BYTES_PER_ELEMENT);
  }

  call(name, values, [fedAt, fetchedAt], pointers) {
    const { feeds, fetches } = ABOUT.functions[name];
    Object.entries(feeds).forEach(([key, part], i) => {
      const view = this.view(part, fedAt[i]);
      const value = values[key];
      const length = value?.length;
      if (length !== view.length) throw new RangeError(`$${name}: $${key} has $${view.length} elements, not $${length}`);
      view.set(part.dtype === "int64" && !(value instanceof BigInt64Array) ? Array.from(value, BigInt) : value);
    });
    const code = this.exports["${name}_" + name](this.stateAt, this.arenaAt, ...pointers);
    if (code) throw new RangeError(ABOUT.errors[code - 1]);
    return Object.fromEntries(Object.entries(fetches).map(([key, part], i) => [key, this.view(part, fetchedAt[i]).slice()]));
  }

  init() {
    this.exports.${name}_init(this.stateAt);
  }

  get state() {
    return new Uint8Array(this.memory.buffer, this.stateAt, ABOUT.state_bytes).slice();
  }

  set state(bytes) {
    const size = ABOUT.state_bytes;
    if (bytes.length !== size) throw new RangeError(`the state has $${size} bytes, not $${bytes.length}`);
    new Uint8Array(this.memory.buffer, this.stateAt, size).set(bytes);
  }

  variable(name) {
    const part = ABOUT.state[name];
    if (!part) throw new RangeError(`there is no variable $${name}`);
    return this.view(part, this.stateAt + part.offset).slice();
  }
}

export async function load(source = new URL("./$name.wasm", import.meta.url)) {
  const bytes = source instanceof URL || typeof source === "string" ? await (await fetch(source)).arrayBuffer() : source;
  return new Net((await WebAssembly.instantiate(bytes)).instance.exports);
}
""")

_TYPES = Template("""\
/** A library that Fluid compiled, with memory of its own. */
export interface Net {
$functions
  /** Set all variables to their first values. */
  init(): void;
  /** A copy of all variables, as bytes. Setting it continues from there. */
  state: Uint8Array;
  /** A copy of a variable. */
  variable(name: string): $all;
}

/** Load the library: by default from $name.wasm beside this file. */
export function load(source?: URL | string | BufferSource): Promise<Net>;
""")


def javascript_of(description: Mapping[str, Any]) -> str:
    """The module of JavaScript.

    Args:
        description: the contents of the library's JSON file.
    """
    parts = {key: description[key] for key in ("state_bytes", "arena_bytes", "functions", "errors", "state")}
    return _SCRIPT.substitute(name=description["name"], about=json.dumps(parts))


def typescript_of(description: Mapping[str, Any]) -> str:
    """The types of the module of JavaScript."""
    functions = "\n".join(
        f"  {name}(feeds: {_members(part['feeds'], ' | ArrayLike<number>')}): {_members(part['fetches'], '')};"
        for name, part in description["functions"].items()
    )
    return _TYPES.substitute(name=description["name"], functions=functions, all=" | ".join(_ARRAYS.values()))


def _members(parts: Mapping[str, Mapping[str, Any]], more: str) -> str:
    """The type of an object of arrays, with their shapes in comments."""
    return "{ " + "; ".join(f"{key}: {_ARRAYS[part['dtype']]}{more} /* {part['shape']} */" for key, part in parts.items()) + " }"

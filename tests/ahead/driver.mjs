/* Trains net.wasm with the batches of a file, and writes each loss and then the state; tries wrong arguments, too. */
import { readFileSync, writeFileSync } from "node:fs";
import { load } from "./net.js";

const { feeds } = JSON.parse(readFileSync("net.json")).functions.step;
const types = { float32: Float32Array, float64: Float64Array, int64: BigInt64Array };
const data = readFileSync("batches.bin");
const bytes = feeds.x.bytes + feeds.label.bytes;
const part = (key, at) => new types[feeds[key].dtype](data.buffer.slice(data.byteOffset + at, data.byteOffset + at + feeds[key].bytes));
const net = await load(readFileSync("net.wasm"));
const results = [];
let last;
for (let at = 0; at < data.length; at += bytes) {
  last = { x: part("x", at), label: part("label", at + feeds.x.bytes) };
  results.push(net.step(last).loss);
}
const state = net.state;
results.push(state);
writeFileSync("results.bin", Buffer.concat(results.map((array) => Buffer.from(array.buffer))));
for (const label of [[0, 1, 2, 3, 0, 0], [1, 2]]) {
  try {
    net.step({ ...last, label });
  } catch (error) {
    console.log(String(error));
  }
}
const { prediction } = net.predict_6(last);
net.init();
net.state = state;
if (String(net.predict_6(last).prediction) !== String(prediction)) throw new Error("the state is another one");
if (net.state.some((byte, i) => byte !== state[i])) throw new Error("wrong arguments changed the state");

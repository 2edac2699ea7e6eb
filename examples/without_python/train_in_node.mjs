/* Trains the net of digits.py in node: node train_in_node.mjs */
import { readFileSync } from "node:fs";
import { load } from "./net.js";
import { accuracy, epoch, samplesOf } from "./train.js";

const net = await load(readFileSync("net.wasm"));
const data = readFileSync("digits.bin");
const samples = samplesOf(data.buffer.slice(data.byteOffset, data.byteOffset + data.length));
for (let i = 1; i <= 8; i++) {
  const losses = epoch(net, samples);
  const mean = losses.reduce((a, b) => a + b) / losses.length;
  console.log(`epoch ${i}: loss ${mean.toFixed(4)}, accuracy ${accuracy(net, samples).toFixed(3)}`);
}
process.exit(accuracy(net, samples) > 0.93 ? 0 : 2);

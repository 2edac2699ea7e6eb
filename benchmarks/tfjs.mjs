/* Times training steps of net.wasm, which tfjs.py compiled, and of tfjs: node tfjs.mjs FOLDER MODULES NET ROWS. Prints JSON. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, modules, net, rows] = process.argv.slice(2);
const require = createRequire(join(resolve(modules), "any.js"));
console.warn = () => {}; // tfjs advises its package for node, which is not WebAssembly
const tf = require("@tensorflow/tfjs");
const wasm = require("@tensorflow/tfjs-backend-wasm");
wasm.setWasmPaths(dirname(require.resolve("@tensorflow/tfjs-backend-wasm")) + "/");

const count = Number(rows);
const image = Float32Array.from({ length: count * 784 }, (_, i) => Math.sin(i * i) * 0.5);
const label = Int32Array.from({ length: count }, (_, i) => i % 10);

async function ours() {
  const { load } = await import(pathToFileURL(join(resolve(folder), "net.js")));
  const library = await load(readFileSync(join(folder, "net.wasm")));
  return () => library.step({ image, label }).loss[0];
}

const parameter = (...shape) => tf.variable(tf.randomNormal(shape, 0, 0.1));
const layer = (inputs, outputs) => [parameter(inputs, outputs), tf.variable(tf.zeros([outputs]))];
const dense = (x, [weight, bias]) => tf.add(tf.matMul(x, weight), bias);

const NETS = {
  mlp() {
    const [first, second, third] = [layer(784, 256), layer(256, 128), layer(128, 10)];
    return (x) => dense(tf.relu(dense(tf.relu(dense(x, first)), second)), third);
  },
  lenet() {
    const [small, large] = [parameter(5, 5, 1, 6), parameter(5, 5, 6, 16)];
    const [first, second, third] = [layer(400, 120), layer(120, 84), layer(84, 10)];
    return (x) => {
      let h = tf.maxPool(tf.relu(tf.conv2d(tf.reshape(x, [count, 28, 28, 1]), small, 1, "same")), 2, 2, "valid");
      h = tf.maxPool(tf.relu(tf.conv2d(h, large, 1, "valid")), 2, 2, "valid");
      return dense(tf.relu(dense(tf.relu(dense(tf.reshape(h, [count, 400]), first)), second)), third);
    };
  },
};

async function theirs(backend) {
  await tf.setBackend(backend);
  const [x, y] = [tf.tensor(image, [count, 784]), tf.oneHot(tf.tensor1d(label, "int32"), 10)];
  const [logits, adam] = [NETS[net](), tf.train.adam(0.001)];
  return async () => {
    await tf.setBackend(backend);
    const loss = adam.minimize(() => tf.mean(tf.losses.softmaxCrossEntropy(y, logits(x))), true);
    const value = loss.dataSync()[0];
    loss.dispose();
    return value;
  };
}

const steps = { fluid: await ours() };
const refused = {};
for (const backend of ["wasm", "cpu"]) {
  const step = await theirs(backend);
  try {
    await step();
    steps[`tfjs ${backend}`] = step;
  } catch (error) {
    refused[`tfjs ${backend}`] = String(error.message).split("\n")[0];
  }
}
const microseconds = () => Object.values(process.cpuUsage()).reduce((a, b) => a + b); // others may use the processor, too
const times = Object.fromEntries(Object.keys(steps).map((name) => [name, []]));
const losses = {};
for (let turn = 0; turn < 8; turn++) {
  for (const [name, step] of Object.entries(steps)) {
    const repeats = name === "tfjs cpu" ? 1 : turn ? 20 : 3; // the first turn warms up
    const start = microseconds();
    for (let i = 0; i < repeats; i++) losses[name] = await step();
    if (turn) times[name].push((microseconds() - start) / 1e3 / repeats);
  }
}
const median = (numbers) => numbers.sort((a, b) => a - b)[numbers.length >> 1];
const medians = Object.fromEntries(Object.entries(times).map(([name, numbers]) => [name, median(numbers)]));
console.log(JSON.stringify({ medians, losses, refused, version: tf.version_core }));

/* Trains the net of digits.py: for page.html, and for node. */
const ROWS = 32, PIXELS = 64, TRAIN = 1438;

/** The samples of digits.bin: each 64 float32, and its label as int32. */
export function samplesOf(buffer) {
  const bytes = 4 * PIXELS + 4;
  return Array.from({ length: buffer.byteLength / bytes }, (_, i) => ({
    image: new Float32Array(buffer, i * bytes, PIXELS),
    label: new Int32Array(buffer, i * bytes + 4 * PIXELS, 1)[0],
  }));
}

/** Train on all images once, in random order; returns the loss of each step. */
export function epoch(net, samples) {
  const order = Array.from({ length: TRAIN }, (_, i) => i);
  for (let i = TRAIN - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  const image = new Float32Array(ROWS * PIXELS), label = new BigInt64Array(ROWS);
  const losses = [];
  for (let start = 0; start + ROWS <= TRAIN; start += ROWS) {
    for (let row = 0; row < ROWS; row++) {
      const sample = samples[order[start + row]];
      image.set(sample.image, row * PIXELS);
      label[row] = BigInt(sample.label);
    }
    losses.push(net.step({ image, label }).loss[0]);
  }
  return losses;
}

/** The digit of an image of 64 numbers from -1 to 1. */
export function guess(net, image) {
  const { prediction } = net.predict_1({ image });
  return prediction.indexOf(Math.max(...prediction));
}

/** The share of unseen images that are recognised. */
export function accuracy(net, samples) {
  const unseen = samples.slice(TRAIN);
  return unseen.filter(({ image, label }) => guess(net, image) === label).length / unseen.length;
}

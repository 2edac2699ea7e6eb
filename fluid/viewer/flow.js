// Where values flow: what lies between two of them.

// Ops whose every output depends on each input only as their blocks say; others are taken to mix all that they read.
const REGIONS = new Set(['while', 'conditional_block', 'while_grad', 'conditional_block_grad']);

// Values that a value leads to (or, backwards, that lead to it), itself included, and the nodes between.
function reach(start, backwards) {
  const values = new Set([start]);
  const nodes = new Set();
  const waiting = [start];
  const add = (value) => {
    if (!values.has(value)) {
      values.add(value);
      waiting.push(value);
    }
  };
  const cross = (node, value) => {
    const others = backwards ? node.reads : node.writes;
    if (REGIONS.has(node.type) && node.owned.length) {
      nodes.add(node);
      others.filter((other) => other.var === value.var).forEach(add);
    } else if (!nodes.has(node)) {
      nodes.add(node);
      others.forEach(add);
    }
  };
  while (waiting.length) {
    const value = waiting.pop();
    (backwards ? value.from : value.to).forEach(add);
    if (!backwards) value.readers.forEach((node) => cross(node, value));
    else if (value.node) cross(value.node, value);
  }
  return { values, nodes };
}

// All that lies on ways from one value to another: null if there is none.
function between(start, end) {
  const ahead = reach(start, false);
  if (!ahead.values.has(end)) return null;
  const behind = reach(end, true);
  const both = (a, b) => new Set([...a].filter((item) => b.has(item)));
  const values = both(ahead.values, behind.values);
  // A loop is on the way if what enters it and what leaves it are.
  const nodes = new Set([...both(ahead.nodes, behind.nodes)].filter(
    (node) => node.reads.some((value) => values.has(value)) && node.writes.some((value) => values.has(value)),
  ));
  if (start.node && start.node.isInput) nodes.add(start.node);
  return { values, nodes };
}

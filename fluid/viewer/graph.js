// The program: what Python wrote into the page, with objects in place of numbers.

const KINDS = ['forward', 'backward', 'optimizer'];

function readGraph(data) {
  const text = (place) => data.once[place];
  const blocks = data.blocks.map((entry, id) => ({ ...entry, id, owner: null, nodes: [], depth: 0, sheet: null }));
  const vars = data.vars.map((entry, id) => ({ ...entry, id, values: [] }));
  const values = data.values.map(([variable, version, block, node, source], id) => {
    const found = { id, var: vars[variable], version, block: blocks[block], node: null, source: null, readers: [], from: [], to: [] };
    found.var.values.push(found);
    return Object.assign(found, { makerNumber: node, sourceNumber: source });
  });
  const nodes = data.nodes.map((entry, id) => {
    const slots = (pairs) => {
      const found = new Map();
      for (const [slot, number] of pairs) {
        const name = text(slot);
        if (!found.has(name)) found.set(name, []);
        found.get(name).push(number < 0 ? null : values[number]);
      }
      return found;
    };
    const node = {
      id, block: blocks[entry.block], kind: entry.kind, index: entry.index, isInput: entry.type === undefined,
      type: entry.type === undefined ? '' : text(entry.type), roles: entry.roles === undefined ? '' : text(entry.roles),
      attrs: (entry.attrs || []).map(text), frames: (entry.frames || []).map(text), unknown: Boolean(entry.unknown),
      inputs: slots(entry.reads), outputs: slots(entry.writes), subs: (entry.subs || []).map((number) => blocks[number]),
      from: null, gradients: [], fromNumber: entry.from === undefined ? -1 : entry.from, owned: [], open: false,
    };
    node.writes = [...node.outputs.values()].flat().filter(Boolean);
    const updates = (entry.updates || []).map((number) => values[number]);
    node.reads = [...new Set([...[...node.inputs.values()].flat().filter(Boolean), ...updates])];
    node.block.nodes.push(node);
    return node;
  });
  for (const node of nodes) {
    if (node.fromNumber >= 0) {
      node.from = nodes[node.fromNumber];
      node.from.gradients.push(node);
    }
    for (const value of node.reads) value.readers.push(node);
  }
  for (const value of values) {
    if (value.makerNumber >= 0) value.node = nodes[value.makerNumber];
    if (value.sourceNumber >= 0) value.source = values[value.sourceNumber];
  }
  for (const [from, to] of data.links) {
    values[from].to.push(values[to]);
    values[to].from.push(values[from]);
  }
  data.owner.forEach((number, id) => {
    if (number < 0) return;
    blocks[id].owner = nodes[number];
    nodes[number].owned.push(blocks[id]);
  });
  for (const block of blocks) {
    let depth = 0;
    for (let up = block; up.owner; up = up.owner.block) depth += 1;
    block.depth = depth;
  }
  const sheets = data.sheets.map(({ columns, rows }) => ({
    columns: columns.map(([block, kind]) => ({ block: blocks[block], kind })), rows, depth: blocks[columns[0][0]].depth,
  }));
  for (const sheet of sheets) for (const column of sheet.columns) column.block.sheet = sheet;
  return { nodes, values, vars, blocks, sheets, loss: data.loss >= 0 ? values[data.loss] : null };
}

// The node that makes a value, in this block or around it.
function makerOf(value) {
  while (!value.node && value.source) value = value.source;
  return value.node;
}

function label(value) {
  return value.version > 1 || (value.version === 1 && value.var.values.some((other) => other.version === 0 && other.block === value.block))
    ? `${value.var.name} (${value.version})` : value.var.name;
}

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

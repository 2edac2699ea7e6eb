// The program: what Python wrote into the page, with objects in place of numbers.

const KINDS = ['forward', 'backward', 'optimizer'];

function readGraph(data) {
  const text = (place) => data.once[place];
  // What is drawn inside of one box; those of blocks come first, under the same numbers.
  const areas = data.areas.map((_, id) => ({
    id, owner: null, nodes: [], inputs: new Map(), depth: 0, sheet: null, isBlock: id < data.blocks.length,
  }));
  const blocks = data.blocks.map((entry, id) => ({ ...entry, id, area: areas[id] }));
  const vars = data.vars.map(([name, spec, flags, size], id) => ({ id, name, spec: text(spec), flags: text(flags), size, values: [] }));
  const values = data.values.map(([variable, version, block], id) => {
    const value = { id, var: vars[variable], version, block: blocks[block], node: null, source: null, readers: [], from: [], to: [] };
    value.var.values.push(value);
    return value;
  });
  const nodes = data.nodes.map((entry, id) => readNode(entry, id, text, { areas, blocks, values }));
  data.nodes.forEach((entry, id) => joinNode(nodes[id], entry, nodes));
  data.values.forEach(([, , , node, source], id) => {
    if (node >= 0) values[id].node = nodes[node];
    if (source >= 0) values[id].source = values[source];
  });
  for (const [from, to] of data.links) {
    values[from].to.push(values[to]);
    values[to].from.push(values[from]);
  }
  data.areas.forEach((owner, id) => {
    if (owner < 0) return;
    areas[id].owner = nodes[owner];
    nodes[owner].owned.push(areas[id]);
  });
  for (const area of areas) for (let up = area; up.owner; up = up.owner.area) area.depth += 1;
  for (const node of nodes) finishNode(node);
  if (data.measured) addMeasures(data.measured, nodes, values);
  const sheets = data.sheets.map(({ columns, rows }) => ({
    columns: columns.map(([area, kind]) => ({ area: areas[area], kind })), rows, depth: areas[columns[0][0]].depth,
  }));
  for (const sheet of sheets) for (const column of sheet.columns) column.area.sheet = sheet;
  const isCompared = data.blocks.some((block) => block.program > 0);
  const loss = data.loss >= 0 ? values[data.loss] : null;
  return { isCompared, isMeasured: Boolean(data.measured), nodes, values, vars, blocks, areas, sheets, loss };
}

// A node by itself: an op, which has a type, a box, which has a name, or an input.
function readNode(entry, id, text, { areas, blocks, values }) {
  const { block = 0, kind = 0, difference = 0, index } = entry;
  const slots = (pairs = []) => {
    const bySlot = new Map();
    for (let i = 0; i < pairs.length; i += 2) {
      const slot = text(pairs[i]);
      if (!bySlot.has(slot)) bySlot.set(slot, []);
      bySlot.get(slot).push(pairs[i + 1] < 0 ? null : values[pairs[i + 1]]);
    }
    return bySlot;
  };
  const [isOp, isBox] = [entry.type !== undefined, entry.name !== undefined];
  const [inputs, outputs] = [slots(entry.reads), slots(entry.writes)];
  const all = (bySlot) => [...bySlot.values()].flat().filter(Boolean);
  const node = {
    id, index, kind, difference, isOp, isBox, isInput: !isOp && !isBox, inputs, outputs,
    block: blocks[block], area: areas[entry.area ?? block],
    type: isOp ? text(entry.type) : '', name: isBox ? text(entry.name) : '', roles: entry.roles === undefined ? '' : text(entry.roles),
    attrs: isOp ? text(entry.attrs).map(text) : [], frames: isOp ? text(entry.frames).map(text) : [], unknown: Boolean(entry.unknown),
    subs: (entry.subs || []).map((number) => blocks[number]), owned: [], open: false, seconds: null, bytes: 0,
    writes: all(outputs), reads: [...new Set([...all(inputs), ...(entry.updates || []).map((number) => values[number])])],
    from: null, gradients: [], twin: null, alike: [], first: null,
  };
  node.area.nodes.push(node);
  return node;
}

// What a node has to do with others.
function joinNode(node, { from, twin, alike }, nodes) {
  if (from !== undefined) {
    node.from = nodes[from];
    node.from.gradients.push(node);
  }
  if (twin !== undefined) node.twin = nodes[twin];
  if (alike !== undefined) {
    node.first = nodes[alike];
    node.first.alike.push(node);
  }
  if (node.isOp) for (const value of node.reads) value.readers.push(node);
}

// What follows when all nodes are joined: the first in a row of the same structure, the place in the program, inputs of areas.
function finishNode(node) {
  if (node.isBox && node.from && node.from.first) {
    node.first = node.from.first.gradients.find((one) => one.kind === node.kind && one.block === node.block);
  }
  node.first ??= node;
  node.place = node.isInput ? -1 : node.isBox ? opsIn(node).reduce((least, op) => Math.min(least, op.id), Infinity) : node.id;
  const value = node.isInput ? node.writes[0] : null;
  if (value && value.node !== node) node.area.inputs.set(value, node);
}

// What a run has told: seconds of ops, and numbers of values.
function addMeasures(measured, nodes, values) {
  for (const [number, seconds] of measured.seconds) nodes[number].seconds = seconds;
  for (const [number, [kind, bytes, least, mean, most, nans, infinities]] of measured.values) {
    values[number].stats = { kind, bytes, least, mean, most, nans, infinities };
    values[number].node.bytes += bytes;
  }
  for (const box of nodes.filter((node) => node.isBox)) {
    const ops = opsIn(box);
    box.bytes = ops.reduce((sum, op) => sum + op.bytes, 0);
    if (ops.some((op) => op.seconds !== null)) box.seconds = ops.reduce((sum, op) => sum + op.seconds, 0);
  }
}

// The node that makes a value, in this block or around it.
function makerOf(value) {
  while (!value.node && value.source) value = value.source;
  return value.node;
}

// The nodes, and all that is around them.
function withBoxes(nodes) {
  const found = new Set();
  for (const node of nodes) for (let up = node; up && !found.has(up); up = up.area.owner) found.add(up);
  return found;
}

// The node of an area that stands for what makes a value: the op, a box around it, or an input of the area; else null.
function shownIn(value, area) {
  let node = value.node;
  while (node && node.area !== area && !node.area.isBlock) node = node.area.owner;
  return node && node.area === area ? node : area.inputs.get(value) || null;
}

// The ops of an area, also those in its boxes.
function opsOf(area) {
  return area.nodes.flatMap((node) => (node.isBox ? opsIn(node) : node.isOp ? [node] : []));
}

// The ops inside of a box, at any depth.
function opsIn(node) {
  return node.owned.flatMap(opsOf);
}

// Short texts about nodes and values.

function many(count, what) {
  return `${count.toLocaleString('en')} ${what}${count === 1 ? '' : 's'}`;
}

// A large number in few letters: 25.6M.
function short(number, units = ['', 'k', 'M', 'G', 'T'], step = 1000) {
  let unit = 0;
  for (; Math.abs(number) >= step && unit < units.length - 1; unit += 1) number /= step;
  return `${unit && Math.abs(number) < 100 ? number.toFixed(1) : Math.round(number)}${units[unit]}`;
}

function label(value) {
  return value.version > 1 || (value.version === 1 && value.var.values.some((other) => other.version === 0 && other.block === value.block))
    ? `${value.var.name} (${value.version})` : value.var.name;
}

// What a node is called: an op by its type, what feeds or fetches by the variable.
function nameOf(node) {
  const fed = node.type === 'feed' ? node.writes[0] : node.type === 'fetch' ? node.reads[0] : null;
  if (fed) return `${node.type} ${label(fed)}`;
  return node.isInput ? label(node.writes[0]) : node.isBox ? node.name : node.type;
}

function whereIs(node) {
  if (node.isInput) return node.writes[0].node === node && node.writes[0].var.flags.includes('data') ? 'fed' : 'from outside';
  const side = node.twin || node.difference ? `, ${sideOf(node)}` : '';
  return node.isBox ? `${many(opsIn(node).length, 'op')}${side}` : `op ${node.index} of block ${node.block.number}${side}`;
}

// What a screen reader says of a node.
function sayingOf(node) {
  return [nameOf(node), KINDS[node.kind], whereIs(node)].join(', ');
}

// Of two programs, the one that a node is of.
function sideOf(node) {
  return node.block.program ? 'after' : 'before';
}

function secondsText(seconds) {
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds >= 1e-3 ? `${(1e3 * seconds).toFixed(2)} ms` : `${(1e6 * seconds).toFixed(1)} µs`;
}

function bytesText(bytes) {
  return short(bytes, [' B', ' kB', ' MB', ' GB', ' TB']);
}

// A number with as many digits as tell something.
function digits(number) {
  return number === null ? '-' : String(Number(number.toPrecision(6)));
}

function isBad(stats) {
  return Boolean(stats && (stats.nans || stats.infinities));
}

// What is odd about a value's elements, or nothing.
function badText({ nans, infinities }) {
  const counts = [[nans, 'NaN'], [infinities, 'infinite']].filter(([count]) => count);
  return counts.map(([count, what]) => `${count.toLocaleString('en')} ${what}`).join(', ');
}

function parametersOf(ops) {
  const read = new Set(ops.flatMap((node) => node.reads.map((value) => value.var)));
  return [...read].filter((variable) => variable.flags.includes('parameter'));
}

// What a box holds, in a line; where it is only boxes of the same structure, how many of them.
function insideOf(node) {
  const ops = opsIn(node);
  const weights = node.kind === 0 ? parametersOf(ops).reduce((sum, variable) => sum + (variable.size || 0), 0) : 0;
  const inner = node.owned.flatMap((area) => area.nodes.filter((one) => !one.isInput));
  const areAlike = inner.length > 1 && inner.every((one) => one.isBox && one.first === inner[0].first);
  const count = areAlike ? `${inner.length.toLocaleString('en')} × ${many(opsIn(inner[0]).length, 'op')}` : many(ops.length, 'op');
  return count + (weights ? ` · ${short(weights)} weights` : '');
}

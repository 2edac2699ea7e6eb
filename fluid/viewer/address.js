// Links to what is selected: the part of the page's address behind the #.

function addressOf(item) {
  if (!item.reads) return `#value-${item.block.id}-${item.version}-${encodeURIComponent(item.var.name.toWellFormed())}`;
  if (item.isInput) return addressOf(item.writes[0]);
  return item.isBox ? `#box-${item.id}` : `#op-${item.block.id}-${item.index}`;
}

// The item that an address names, or null.
function itemAt(address, graph) {
  const match = /^#(?:op-(?<block>\d+)-(?<op>\d+)|box-(?<box>\d+)|value-(?<home>\d+)-(?<version>\d+)-(?<name>.*))$/su.exec(address);
  if (!match) return null;
  const { block, op, box, home, version } = match.groups;
  if (op) return graph.nodes.find((node) => node.isOp && node.block.id === Number(block) && node.index === Number(op)) || null;
  if (box) return graph.nodes[box] && graph.nodes[box].isBox ? graph.nodes[box] : null;
  const isMeant = (value) => value.block.id === Number(home) && value.version === Number(version) && addressOf(value) === address;
  return graph.values.find(isMeant) || null;
}

// Whether the page has an address of its own; one within another page, as in a notebook, has none.
function hasAddress() {
  return window.location.protocol !== 'about:';
}

// Let the address follow the selection, without a step in the history.
function showAddress(item) {
  if (hasAddress()) window.history.replaceState(null, '', item ? addressOf(item) : window.location.pathname + window.location.search);
}

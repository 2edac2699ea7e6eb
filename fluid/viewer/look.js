// How nodes look: their colours, texts and marks, from what is selected, found, on a path, compared or measured.

const COLOURS = [
  'back', 'panel', 'text', 'faint', 'line', 'box', 'forward', 'backward', 'optimizer', 'input', 'parameter', 'mark', 'found', 'path',
];

class Look {
  constructor(graph) {
    this.selected = null; // a node or a value
    this.marked = new Set(); // values at the selected node
    this.found = new Set(); // what a search has found, with the boxes around
    this.path = null; // what lies between two values
    this.onPath = new Set(); // its nodes, with the boxes around
    this.once = false; // whether one box stands for all in a row of the same structure
    this.readColours();
    this.colourings = colouringsOf(graph, this);
    [this.colouring] = this.colourings;
    this.bad = withBoxes(graph.values.filter((value) => isBad(value.stats)).map((value) => value.node));
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    this.isDark = style.colorScheme === 'dark';
    this.colour = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  select(item) {
    this.selected = item;
    this.marked = new Set(!item ? [] : item.reads ? [...item.reads, ...item.writes] : [item]);
    this.atSelected = item ? withBoxes(item.reads ? [item] : [item.node].filter(Boolean)) : new Set();
  }

  setPath(path) {
    this.path = path;
    this.onPath = withBoxes(path ? path.nodes : []);
  }

  repeats(node) {
    return this.once && node.first === node ? Math.max(1, this.siblings(node)) : 1;
  }

  siblings(node) {
    return (node.from && node.isBox ? node.from : node).alike.length;
  }

  title(node) {
    const times = this.repeats(node);
    return times > 1 ? `${node.title} × ${times}` : node.title;
  }

  // The second line of a box.
  spec(node) {
    return this.colouring.text(node) || node.spec;
  }

  tint(node) {
    return this.colouring.tint(node);
  }

  edge(node) {
    return this.colouring.edge(node);
  }

  // How strongly a box is filled with its colour.
  strength(node) {
    return this.colouring.strength(node);
  }

  isFaded(node) {
    return Boolean(this.path && !this.onPath.has(node) && !(node.from && this.onPath.has(node.from)));
  }

  isMarked(node) {
    return Boolean(this.selected || this.path || this.found.has(node) || this.bad.has(node));
  }

  // Whether a node goes with what is selected: its gradient or twin, or who reads it.
  isBeside(node) {
    const { selected } = this;
    if (!selected.reads) return selected.readers.includes(node);
    return selected.from === node || selected.twin === node || selected.gradients.includes(node);
  }

  // Rings around a box: colour, width, distance.
  rings(node) {
    const { colour, selected } = this;
    const rings = [];
    if (this.path && this.onPath.has(node)) rings.push([colour.path, 2.4, 1]);
    if (this.bad.has(node) && !node.open) rings.push([colour.path, 3, 1]);
    if (this.found.has(node) && !node.open) rings.push([colour.found, 3, 3]);
    if (!selected) return rings;
    if (selected === node || selected.node === node || (this.atSelected.has(node) && !node.open)) rings.push([colour.mark, 3.4, 2]);
    else if (this.isBeside(node)) rings.push([colour.mark, 1.8, 2]);
    return rings;
  }
}

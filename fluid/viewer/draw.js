// Drawing: what is in view, as detailed as the zoom allows.

const FONTS = { title: '600 13px system-ui, sans-serif', small: '11px system-ui, sans-serif', head: '600 15px system-ui, sans-serif' };
const COLOURS = [
  'back', 'panel', 'text', 'faint', 'line', 'box', 'forward', 'backward', 'optimizer', 'input', 'parameter', 'mark', 'found', 'path',
];
const SLICE = 600; // ways are looked up by slices of the page this high

class Painter {
  constructor(canvas, map, graph) {
    this.canvas = canvas;
    this.map = map;
    this.graph = graph;
    this.context = canvas.getContext('2d');
    this.view = { x: 0, y: 0, scale: 1 };
    this.selected = null; // a node or a value
    this.found = new Set(); // nodes that a search has found
    this.path = null; // what lies between two values
    this.drawn = { nodes: [], segments: [], frames: 0 };
    this.widths = new Map();
    this.waiting = false;
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    this.colour = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.mapImage = null;
  }

  measure(text, font) {
    const key = `${font} ${text}`;
    if (!this.widths.has(key)) {
      this.context.font = FONTS[font];
      this.widths.set(key, this.context.measureText(text.slice(0, 200)).width);
    }
    return this.widths.get(key);
  }

  // The text, or as much of it as fits.
  fit(text, font, width) {
    const key = `${font} ${Math.round(width)} ${text}`;
    let found = this.widths.get(key);
    if (found === undefined) {
      found = text;
      if (this.measure(text, font) > width) {
        let [low, high] = [0, Math.min(text.length, 200)];
        while (low < high) {
          const middle = (low + high + 1) >> 1;
          if (this.measure(`${text.slice(0, middle)}…`, font) <= width) low = middle;
          else high = middle - 1;
        }
        found = `${text.slice(0, low)}…`;
      }
      this.widths.set(key, found);
    }
    return found;
  }

  use(layout) {
    this.layout = layout;
    this.slices = new Map();
    layout.segments.forEach((segment) => {
      const [from, to] = [Math.min(segment.y0, segment.y3), Math.max(segment.y0, segment.y3)];
      for (let slice = Math.floor(from / SLICE); slice <= Math.floor(to / SLICE); slice += 1) {
        if (!this.slices.has(slice)) this.slices.set(slice, []);
        this.slices.get(slice).push(segment);
      }
    });
    // Outer boxes first, so that the blocks in them are drawn on them; rows are sorted from top to bottom.
    this.nodes = this.graph.nodes.filter((node) => node.visible).sort((a, b) => a.block.depth - b.block.depth || a.y - b.y);
    this.mapImage = null;
    this.ask();
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.map]) {
      const { width, height } = canvas.getBoundingClientRect();
      canvas.width = Math.max(1, Math.round(width * ratio));
      canvas.height = Math.max(1, Math.round(height * ratio));
    }
    this.width = this.canvas.width / ratio;
    this.height = this.canvas.height / ratio;
    this.ratio = ratio;
    this.mapImage = null;
    this.ask();
  }

  ask() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  toPage(x, y) {
    return { x: (x - this.view.x) / this.view.scale, y: (y - this.view.y) / this.view.scale };
  }

  draw() {
    const { context: c, view, colour } = this;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = colour.back;
    c.fillRect(0, 0, this.width, this.height);
    c.setTransform(this.ratio * view.scale, 0, 0, this.ratio * view.scale, this.ratio * view.x, this.ratio * view.y);
    const corner = this.toPage(0, 0);
    const window_ = { x0: corner.x, y0: corner.y, x1: corner.x + this.width / view.scale, y1: corner.y + this.height / view.scale };
    const inView = (x0, y0, x1, y1) => x1 >= window_.x0 && x0 <= window_.x1 && y1 >= window_.y0 && y0 <= window_.y1;
    this.drawn.nodes = this.nodes.filter((node) => inView(node.x, node.y, node.x + node.w, node.y + node.h));
    const segments = new Set();
    for (let slice = Math.floor(window_.y0 / SLICE); slice <= Math.floor(window_.y1 / SLICE); slice += 1) {
      for (const segment of this.slices.get(slice) || []) segments.add(segment);
    }
    this.drawn.segments = [...segments].filter(
      (s) => inView(Math.min(s.x0, s.x1), Math.min(s.y0, s.y3), Math.max(s.x0, s.x1), Math.max(s.y0, s.y3)),
    );
    this.drawn.crossing = this.layout.crossing.filter(({ from, to }) => inView(
      Math.min(from.x, to.x), Math.min(from.y, to.y), Math.max(from.x + from.w, to.x + to.w), Math.max(from.y + from.h, to.y + to.h),
    ));
    const open = this.drawn.nodes.filter((node) => node.open);
    for (const node of open) this.drawOpen(node);
    this.drawWays();
    const fine = view.scale >= 0.32;
    for (const node of this.drawn.nodes) if (!node.open) this.drawNode(node, fine);
    for (const node of open) this.drawMarks(node);
    this.drawTitles();
    this.drawMap();
    this.drawn.frames += 1;
  }

  marked() {
    const { selected } = this;
    if (!selected) return new Set();
    return new Set(selected.reads ? [...selected.reads, ...selected.writes] : [selected]);
  }

  drawWays() {
    const { context: c, colour, view } = this;
    const marked = this.marked();
    const onPath = this.path ? this.path.values : null;
    const near = { forward: [], backward: [], optimizer: [] };
    const bold = [];
    const path = [];
    for (const segment of this.drawn.segments) {
      if (marked.has(segment.value)) bold.push(segment);
      else if (onPath && onPath.has(segment.value) && (!segment.to || this.path.nodes.has(segment.to))) path.push(segment);
      else near[KINDS[segment.kind]].push(segment);
    }
    c.lineWidth = Math.min(1.2 / Math.min(view.scale, 1), 4);
    c.globalAlpha = onPath ? 0.25 : 0.55;
    for (const kind of KINDS) this.stroke(near[kind], colour[kind], view.scale > 0.25);
    c.globalAlpha = onPath ? 0.08 : 0.22;
    const plain = [];
    const boldCrossing = [];
    for (const edge of this.drawn.crossing) {
      const mine = marked.has(edge.value) && (!this.selected.reads || edge.from === this.selected || edge.to === this.selected);
      if (mine) boldCrossing.push([edge, colour.mark]);
      else if (onPath && onPath.has(edge.value) && this.path.nodes.has(edge.from) && this.path.nodes.has(edge.to)) boldCrossing.push([edge, colour.path]);
      else if (edge.near) plain.push(edge);
    }
    if (view.scale > 0.2) this.strokeCrossing(plain, colour.line);
    c.globalAlpha = 1;
    c.lineWidth = Math.min(2.6 / Math.min(view.scale, 1), 9);
    this.stroke(path, colour.path, true);
    this.stroke(bold, colour.mark, true);
    for (const [edge, stroke] of boldCrossing) this.strokeCrossing([edge], stroke);
  }

  trace(s) {
    const { context: c } = this;
    const bend = (s.y2 - s.y1) * 0.5;
    c.moveTo(s.x0, s.y0);
    c.lineTo(s.x0, s.y1);
    c.bezierCurveTo(s.x0, s.y1 + bend, s.x1, s.y2 - bend, s.x1, s.y2);
    c.lineTo(s.x1, s.y3);
  }

  stroke(segments, colour, arrows) {
    const { context: c } = this;
    if (!segments.length) return;
    c.strokeStyle = colour;
    c.fillStyle = colour;
    c.beginPath();
    segments.forEach((segment) => this.trace(segment));
    c.stroke();
    if (!arrows) return;
    c.beginPath();
    for (const s of segments) {
      if (!s.to) continue;
      const back = s.y3 > s.y2 || s.y2 > s.y1 ? -6 : 6;
      c.moveTo(s.x1, s.y3);
      c.lineTo(s.x1 - 3.5, s.y3 + back);
      c.lineTo(s.x1 + 3.5, s.y3 + back);
    }
    c.fill();
  }

  // From side to side of the boxes.
  strokeCrossing(edges, colour) {
    const { context: c } = this;
    if (!edges.length) return;
    c.strokeStyle = colour;
    c.beginPath();
    for (const { from, to } of edges) {
      const right = from.x + from.w / 2 <= to.x + to.w / 2;
      const x0 = right ? from.x + from.w : from.x;
      const x1 = right ? to.x : to.x + to.w;
      const y0 = from.y + Math.min(from.h, 40) / 2;
      const y1 = to.y + Math.min(to.h, 40) / 2;
      const bend = Math.max(20, Math.abs(x1 - x0) / 2) * (right ? 1 : -1);
      c.moveTo(x0, y0);
      c.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    }
    c.stroke();
  }

  tint(node) {
    return node.isInput ? this.colour.input : this.colour[KINDS[node.kind]];
  }

  box(node, radius) {
    const { context: c } = this;
    c.beginPath();
    c.roundRect(node.x, node.y, node.w, node.h, Math.min(radius, node.h / 2));
  }

  faded(node) {
    return this.path && !this.path.nodes.has(node) && !(node.from && this.path.nodes.has(node.from));
  }

  drawOpen(node) {
    const { context: c } = this;
    c.globalAlpha = 0.07;
    c.fillStyle = this.tint(node);
    this.box(node, 10);
    c.fill();
    c.globalAlpha = this.faded(node) ? 0.3 : 1;
    c.lineWidth = 1.4;
    c.strokeStyle = this.tint(node);
    c.stroke();
    if (this.view.scale >= 0.2) {
      c.fillStyle = this.colour.text;
      c.font = FONTS.title;
      c.textAlign = 'left';
      c.textBaseline = 'middle';
      c.fillText(this.fit(`▾ ${node.title}`, 'title', node.w - 24), node.x + 12, node.y + 18);
    }
    c.globalAlpha = 1;
  }

  drawNode(node, fine) {
    const { context: c, colour } = this;
    c.globalAlpha = this.faded(node) ? 0.28 : 1;
    this.box(node, node.isInput ? 21 : 7);
    if (!fine) {
      c.fillStyle = this.tint(node);
      c.fill();
    } else {
      c.fillStyle = colour.box;
      c.fill();
      c.save();
      c.clip();
      c.globalAlpha *= 0.14;
      c.fillStyle = this.tint(node);
      c.fill();
      c.restore();
      c.lineWidth = node.roles.includes('loss') ? 3 : 1.3;
      c.strokeStyle = this.tint(node);
      if (node.unknown) c.setLineDash([5, 3]);
      c.stroke();
      c.setLineDash([]);
      const x = node.x + node.w / 2;
      c.textAlign = 'center';
      c.textBaseline = 'middle';
      c.fillStyle = colour.text;
      c.font = FONTS.title;
      c.fillText(this.fit(node.owned.length ? `▸ ${node.title}` : node.title, 'title', node.w - 14), x, node.y + 14);
      c.font = FONTS.small;
      c.fillStyle = colour.faint;
      c.fillText(this.fit(node.spec, 'small', node.w - 14), x, node.y + 30);
      if (node.owned.length) {
        const inside = node.owned.reduce((sum, block) => sum + block.nodes.filter((one) => !one.isInput).length, 0);
        c.fillText(`${inside} ops inside`, x, node.y + 45);
      } else if (node.params) {
        c.fillStyle = colour.parameter;
        c.fillText(this.fit(node.params, 'small', node.w - 14), x, node.y + 45);
      }
    }
    this.drawMarks(node);
    c.globalAlpha = 1;
  }

  drawMarks(node) {
    const { context: c, colour, selected } = this;
    const ring = (stroke, width, outset) => {
      c.globalAlpha = 1;
      c.strokeStyle = stroke;
      c.lineWidth = width / Math.min(this.view.scale, 1);
      c.beginPath();
      c.roundRect(node.x - outset, node.y - outset, node.w + 2 * outset, node.h + 2 * outset, 9);
      c.stroke();
    };
    if (this.path && this.path.nodes.has(node)) ring(colour.path, 2.4, 1);
    if (this.found.has(node)) ring(colour.found, 3, 3);
    if (!selected) return;
    if (selected === node || selected.node === node) ring(colour.mark, 3.4, 2);
    else if (selected.reads && (selected.from === node || selected.gradients.includes(node))) ring(colour.mark, 1.8, 2);
    else if (!selected.reads && selected.readers.includes(node)) ring(colour.mark, 1.8, 2);
  }

  drawTitles() {
    const { context: c } = this;
    if (this.view.scale < 0.08) return;
    for (const title of this.layout.titles) {
      c.font = FONTS.head;
      c.textAlign = title.kind < 0 ? 'left' : 'center';
      c.textBaseline = 'middle';
      c.fillStyle = title.kind < 0 ? this.colour.text : this.colour[KINDS[title.kind]];
      c.fillText(title.text, title.x, title.y);
    }
  }

  // ------------------------------------------------------------------------------------------------------- overview
  // The whole program in a strip at the side, however long it is, with what is in view.
  get isTall() {
    return this.layout.bounds.h > 2 * this.height;
  }

  drawMap() {
    const { map } = this;
    map.hidden = !this.isTall;
    if (map.hidden) return;
    const c = map.getContext('2d');
    if (!map.width || map.width === 1) this.resize();
    const { bounds } = this.layout;
    const [width, height] = [map.width, map.height];
    const x = (value) => ((value - bounds.x) / bounds.w) * (width - 8) + 4;
    const y = (value) => (value / bounds.h) * (height - 8) + 4;
    if (!this.mapImage) {
      this.mapImage = document.createElement('canvas');
      Object.assign(this.mapImage, { width, height });
      const image = this.mapImage.getContext('2d');
      image.fillStyle = this.colour.panel;
      image.fillRect(0, 0, width, height);
      for (const node of this.nodes) {
        image.fillStyle = this.tint(node);
        image.globalAlpha = node.open ? 0.15 : 0.75;
        image.fillRect(x(node.x), y(node.y), Math.max(2, (node.w / bounds.w) * width), Math.max(1, (node.h / bounds.h) * height));
      }
    }
    c.drawImage(this.mapImage, 0, 0);
    const special = [
      [this.path ? this.path.nodes : [], this.colour.path], [this.found, this.colour.found],
      [this.selected ? [this.selected.reads ? this.selected : this.selected.node].filter(Boolean) : [], this.colour.mark],
    ];
    for (const [nodes, colour] of special) {
      c.fillStyle = colour;
      for (const node of nodes) if (node.visible) c.fillRect(x(node.x) - 1, y(node.y) - 1, Math.max(4, (node.w / bounds.w) * width), 3);
    }
    const from = this.toPage(0, 0);
    const to = this.toPage(this.width, this.height);
    c.strokeStyle = this.colour.text;
    c.lineWidth = this.ratio;
    const top = Math.max(2, y(from.y));
    const left = Math.max(2, x(from.x));
    c.strokeRect(left, top, Math.max(4, Math.min(width - 2, x(to.x)) - left), Math.max(3, Math.min(height - 2, y(to.y)) - top));
  }

  // -------------------------------------------------------------------------------------------------------- pointing
  nodeAt(x, y) {
    const at = this.toPage(x, y);
    const { nodes } = this.drawn;
    for (let i = nodes.length - 1; i >= 0; i -= 1) {
      const node = nodes[i];
      if (at.x >= node.x && at.x <= node.x + node.w && at.y >= node.y && at.y <= node.y + node.h) return node;
    }
    return null;
  }

  valueAt(x, y) {
    const at = this.toPage(x, y);
    let best = 6 / this.view.scale;
    let found = null;
    for (const s of this.drawn.segments) {
      for (let i = 0; i <= 12; i += 1) {
        const t = i / 12;
        const bend = t * t * (3 - 2 * t);
        const d = Math.hypot(s.x0 + (s.x1 - s.x0) * bend - at.x, s.y1 + (s.y2 - s.y1) * t - at.y);
        if (d < best) [best, found] = [d, s.value];
      }
      if (Math.abs(at.x - s.x0) < best && (at.y - s.y0) * (at.y - s.y1) < 0) [best, found] = [Math.abs(at.x - s.x0), s.value];
      if (Math.abs(at.x - s.x1) < best && (at.y - s.y2) * (at.y - s.y3) < 0) [best, found] = [Math.abs(at.x - s.x1), s.value];
    }
    return found;
  }

  // ---------------------------------------------------------------------------------------------------------- view
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const { view } = this;
    const scale = Math.min(Math.max(view.scale * factor, this.least()), 4);
    view.x = x - ((x - view.x) * scale) / view.scale;
    view.y = y - ((y - view.y) * scale) / view.scale;
    view.scale = scale;
    this.ask();
  }

  least() {
    const { bounds } = this.layout;
    return Math.min(0.2, (0.8 * this.height) / bounds.h, (0.8 * this.width) / bounds.w);
  }

  pan(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this.ask();
  }

  // All of the program, or only its width from the top.
  show(whole) {
    const { bounds } = this.layout;
    const edge = this.isTall ? 120 : 20;
    const room = { w: this.width - this.covered() - edge - 20, h: this.height - 40 };
    const across = room.w / bounds.w;
    const scale = Math.min(whole ? Math.min(across, room.h / bounds.h) : Math.max(across, 0.45), 1);
    const top = whole ? Math.max(20, (this.height - bounds.h * scale) / 2) : 20;
    this.view = { scale, x: edge + Math.max(0, room.w - bounds.w * scale) / 2 - bounds.x * scale, y: top };
    this.ask();
  }

  goTo(node) {
    const scale = Math.max(this.view.scale, 0.75);
    const width = this.width - this.covered();
    const y = node.open ? node.y + 40 : node.y + node.h / 2;
    this.view = { scale, x: width / 2 - (node.x + node.w / 2) * scale, y: this.height / 2 - y * scale };
    this.ask();
  }

  covered() {
    const panel = document.getElementById('panel');
    return panel.hidden ? 0 : panel.getBoundingClientRect().width;
  }
}

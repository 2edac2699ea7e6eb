// Draws what is in view, as detailed as the zoom allows.

const SLICE = 600; // ways are looked up by slices of the page this high

class Painter {
  constructor(canvas, overview, camera, look, graph, texts) {
    Object.assign(this, { canvas, overview, camera, look, graph });
    this.context = canvas.getContext('2d');
    this.boxes = new Boxes(texts);
    this.ways = new Ways();
    this.drawn = { nodes: [], segments: [], frames: 0, spent: 0 };
    this.waiting = false;
    this.ratio = 1;
  }

  use(layout) {
    this.layout = layout;
    this.camera.bounds = layout.bounds;
    this.slices = new Map();
    for (const segment of layout.segments) {
      const [from, to] = [Math.min(segment.y0, segment.y3), Math.max(segment.y0, segment.y3)];
      for (let slice = Math.floor(from / SLICE); slice <= Math.floor(to / SLICE); slice += 1) {
        if (!this.slices.has(slice)) this.slices.set(slice, []);
        this.slices.get(slice).push(segment);
      }
    }
    // Outer boxes first, so that what is in them is drawn on them; rows are sorted from top to bottom.
    this.nodes = this.graph.nodes.filter((node) => node.visible).sort((a, b) => a.area.depth - b.area.depth || a.y - b.y);
    this.overview.forget();
    this.ask();
  }

  resize() {
    const { canvas, camera } = this;
    const ratio = window.devicePixelRatio || 1;
    const { width, height } = canvas.getBoundingClientRect();
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.max(1, Math.round(height * ratio));
    Object.assign(camera, { width: canvas.width / ratio, height: canvas.height / ratio });
    this.ratio = ratio;
    this.overview.resize(ratio);
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

  draw() {
    const { camera, context: c, drawn } = this;
    const start = performance.now();
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = this.look.colour.back;
    c.fillRect(0, 0, camera.width, camera.height);
    const scale = this.ratio * camera.scale;
    c.setTransform(scale, 0, 0, scale, this.ratio * camera.x, this.ratio * camera.y);
    Object.assign(drawn, this.paint(c, camera.window(), camera.scale));
    this.overview.draw(this.nodes);
    drawn.frames += 1;
    drawn.spent = performance.now() - start;
  }

  // Draw what lies in a window of the page; says what that is.
  paint(c, window_, scale) {
    const inView = (x0, y0, x1, y1) => x1 >= window_.x0 && x0 <= window_.x1 && y1 >= window_.y0 && y0 <= window_.y1;
    const nodes = this.nodes.filter((node) => inView(node.x, node.y, node.x + node.w, node.y + node.h));
    const segments = this.segmentsIn(window_).filter(
      (s) => inView(Math.min(s.x0, s.x1), Math.min(s.y0, s.y3), Math.max(s.x0, s.x1), Math.max(s.y0, s.y3)),
    );
    const crossing = this.layout.crossing.filter(({ from, to }) => inView(
      Math.min(from.x, to.x), Math.min(from.y, to.y), Math.max(from.x + from.w, to.x + to.w), Math.max(from.y + from.h, to.y + to.h),
    ));
    for (const node of nodes) if (node.open) this.boxes.drawOpen(c, node, scale, this.look, window_);
    this.ways.draw(c, segments, crossing, scale, this.look);
    this.boxes.draw(c, nodes, scale, this.look);
    if (scale >= 0.08) this.drawTitles(c, scale);
    return { nodes, segments, crossing };
  }

  segmentsIn({ y0, y1 }) {
    if (y1 - y0 > this.layout.bounds.h / 2) return this.layout.segments;
    const segments = new Set();
    for (let slice = Math.floor(y0 / SLICE); slice <= Math.floor(y1 / SLICE); slice += 1) {
      for (const segment of this.slices.get(slice) || []) segments.add(segment);
    }
    return [...segments];
  }

  drawTitles(c, scale) {
    const size = Math.min(Math.max(15, 11 / scale), 28);
    for (const title of this.layout.titles) {
      c.font = `600 ${size.toFixed(1)}px system-ui, sans-serif`;
      c.textAlign = title.kind < 0 ? 'left' : 'center';
      c.textBaseline = 'middle';
      c.fillStyle = title.kind < 0 ? this.look.colour.text : this.look.colour[KINDS[title.kind]];
      c.fillText(title.text, title.x, title.y);
    }
  }

  // -------------------------------------------------------------------------------------------------------- pointing
  nodeAt(x, y) {
    const at = this.camera.toPage(x, y);
    const { nodes } = this.drawn;
    for (let i = nodes.length - 1; i >= 0; i -= 1) {
      const node = nodes[i];
      if (at.x >= node.x && at.x <= node.x + node.w && at.y >= node.y && at.y <= node.y + node.h) return node;
    }
    return null;
  }

  valueAt(x, y) {
    return this.ways.valueAt(this.drawn.segments, this.camera.toPage(x, y), this.camera.scale);
  }
}

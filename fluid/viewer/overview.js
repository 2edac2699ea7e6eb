// The whole program in a strip at the side, however long it is, with what is in view.

class Overview {
  constructor(canvas, camera, look) {
    Object.assign(this, { canvas, camera, look, image: null });
  }

  x(at) {
    const { bounds } = this.camera;
    return ((at - bounds.x) / bounds.w) * (this.canvas.width - 8) + 4;
  }

  y(at) {
    return (at / this.camera.bounds.h) * (this.canvas.height - 8) + 4;
  }

  // The place on the page for a height in the strip.
  toPage(y) {
    return (y / this.canvas.clientHeight) * this.camera.bounds.h;
  }

  forget() {
    this.image = null;
  }

  resize(ratio) {
    const { width, height } = this.canvas.getBoundingClientRect();
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    this.ratio = ratio;
    this.forget();
  }

  draw(nodes) {
    const { canvas, camera, look } = this;
    const wasHidden = canvas.hidden;
    canvas.hidden = !camera.isTall;
    if (canvas.hidden) return;
    if (wasHidden) this.resize(this.ratio);
    if (!this.image) this.image = this.paint(nodes);
    const c = canvas.getContext('2d');
    c.drawImage(this.image, 0, 0);
    const { selected } = look;
    const special = [
      [look.onPath, look.colour.path], [look.found, look.colour.found],
      [selected ? [selected.reads ? selected : selected.node].filter(Boolean) : [], look.colour.mark],
    ];
    for (const [marked, colour] of special) {
      c.fillStyle = colour;
      for (const node of marked) {
        if (node.visible && !node.open) c.fillRect(this.x(node.x) - 1, this.y(node.y) - 1, Math.max(4, this.wide(node)), 3);
      }
    }
    this.frame(c);
  }

  wide(node) {
    return (node.w / this.camera.bounds.w) * this.canvas.width;
  }

  paint(nodes) {
    const image = document.createElement('canvas');
    Object.assign(image, { width: this.canvas.width, height: this.canvas.height });
    const c = image.getContext('2d');
    c.fillStyle = this.look.colour.panel;
    c.fillRect(0, 0, image.width, image.height);
    for (const node of nodes) {
      c.fillStyle = this.look.tint(node);
      c.globalAlpha = node.open ? 0.15 : 0.75;
      c.fillRect(this.x(node.x), this.y(node.y), Math.max(2, this.wide(node)), Math.max(1, (node.h / this.camera.bounds.h) * image.height));
    }
    return image;
  }

  // What is in view.
  frame(c) {
    const { x0, y0, x1, y1 } = this.camera.window();
    const [top, left] = [Math.max(2, this.y(y0)), Math.max(2, this.x(x0))];
    const [right, bottom] = [Math.min(this.canvas.width - 2, this.x(x1)), Math.min(this.canvas.height - 2, this.y(y1))];
    c.strokeStyle = this.look.colour.text;
    c.lineWidth = this.ratio;
    c.strokeRect(left, top, Math.max(4, right - left), Math.max(3, bottom - top));
  }
}

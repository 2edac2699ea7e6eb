// What part of the page is in view, and how large.

const READABLE = 0.4; // at this scale titles of boxes can still be read
const COMFORTABLE = 0.75; // at this one all their lines can

class Camera {
  constructor(redraw) {
    this.redraw = redraw;
    Object.assign(this, { x: 0, y: 0, scale: 1, width: 1, height: 1, bounds: { x: 0, y: 0, w: 1, h: 1 } });
  }

  toPage(x, y) {
    return { x: (x - this.x) / this.scale, y: (y - this.y) / this.scale };
  }

  window() {
    const corner = this.toPage(0, 0);
    return { x0: corner.x, y0: corner.y, x1: corner.x + this.width / this.scale, y1: corner.y + this.height / this.scale };
  }

  get isTall() {
    return this.bounds.h > 2 * this.height;
  }

  pan(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.redraw();
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const { bounds } = this;
    const least = Math.min(0.2, (0.8 * this.height) / bounds.h, (0.8 * this.width) / bounds.w);
    const scale = Math.min(Math.max(this.scale * factor, least), 4);
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.redraw();
  }

  // All of the program; only its width, from the top; or all as far as it can be read.
  show(what) {
    const { bounds } = this;
    const edge = this.isTall ? 100 : 16;
    const room = { w: this.width - edge - 16, h: this.height - 24 };
    const across = room.w / bounds.w;
    const whole = Math.min(across, room.h / bounds.h);
    const readable = whole >= READABLE ? whole : Math.max(Math.min(across, COMFORTABLE), READABLE);
    const scale = Math.min({ whole, width: Math.max(across, READABLE), readable }[what], 1);
    this.scale = scale;
    this.x = edge + Math.max(0, room.w - bounds.w * scale) / 2 - bounds.x * scale;
    this.y = Math.max(12, (this.height - bounds.h * scale) / 2);
    if (bounds.h * scale > room.h) this.y = 12;
    this.redraw();
  }

  goTo(node) {
    const scale = Math.max(this.scale, 0.75);
    const y = node.open ? node.y + 40 : node.y + node.h / 2;
    Object.assign(this, { scale, x: this.width / 2 - (node.x + node.w / 2) * scale, y: this.height / 2 - y * scale });
    this.redraw();
  }

  // Bring a node into view, and move no more than that needs.
  follow(node) {
    const margin = 60;
    const [left, top] = [node.x * this.scale + this.x, node.y * this.scale + this.y];
    const [right, bottom] = [left + node.w * this.scale, top + Math.min(node.h * this.scale, this.height / 2)];
    if (left < margin || right > this.width - margin) this.x += this.width / 2 - (left + right) / 2;
    if (top < margin || bottom > this.height - margin) this.y += this.height / 2 - (top + bottom) / 2;
    this.redraw();
  }
}

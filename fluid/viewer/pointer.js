// Mouse and touch on the graph: a drag moves it, a wheel or two fingers zoom, a click selects.

const AGAIN = 400; // milliseconds between the clicks of a double click

class Pointer {
  constructor(viewer) {
    this.viewer = viewer;
    this.down = new Map(); // where each finger is
    this.moved = false;
    this.last = null; // the box that was clicked
    const { canvas } = viewer;
    const listen = (name, act) => canvas.addEventListener(name, act);
    listen('pointerdown', (event) => this.press(event));
    listen('pointermove', (event) => this.move(event));
    listen('pointerup', (event) => this.release(event));
    listen('pointercancel', (event) => this.down.delete(event.pointerId));
    listen('pointerleave', () => viewer.hideTip());
    window.addEventListener('pointerdown', (event) => this.pressAgain(event), { capture: true });
    canvas.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    this.listenToMap();
  }

  press(event) {
    if (event.button) return;
    this.viewer.hideTip();
    if (!this.down.size) this.moved = false;
    this.down.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.viewer.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    const last = this.down.get(event.pointerId);
    if (!last) {
      this.hover(event);
      return;
    }
    const [dx, dy] = [event.clientX - last.x, event.clientY - last.y];
    if (!this.moved && Math.hypot(dx, dy) < 4) return;
    this.moved = true;
    const { camera, canvas } = this.viewer;
    canvas.classList.add('moving');
    if (this.down.size === 1) {
      camera.pan(dx, dy);
    } else {
      const other = [...this.down].find(([id]) => id !== event.pointerId)[1];
      const box = canvas.getBoundingClientRect();
      const before = Math.hypot(last.x - other.x, last.y - other.y) || 1;
      camera.zoom(Math.hypot(event.clientX - other.x, event.clientY - other.y) / before, other.x - box.x, other.y - box.y);
    }
    this.down.set(event.pointerId, { x: event.clientX, y: event.clientY });
  }

  release(event) {
    this.viewer.canvas.classList.remove('moving');
    if (this.down.delete(event.pointerId) && !this.moved) this.click(event);
  }

  // A second click at the same place folds or unfolds, even where the panel has come to stand there.
  pressAgain(event) {
    const { last } = this;
    this.last = null;
    if (!last || event.timeStamp - last.time > AGAIN || Math.hypot(event.clientX - last.x, event.clientY - last.y) > 6) return;
    event.preventDefault();
    event.stopPropagation();
    this.viewer.toggle(last.node);
  }

  click(event) {
    const { viewer } = this;
    const node = viewer.painter.nodeAt(event.offsetX, event.offsetY);
    this.last = node && node.owned.length ? { node, time: event.timeStamp, x: event.clientX, y: event.clientY } : null;
    const at = viewer.camera.toPage(event.offsetX, event.offsetY);
    const inHead = node && node.open && at.y < node.y + GAP.header;
    if (node && inHead && at.x < node.x + 30) viewer.toggle(node);
    else if (node && (!node.open || inHead)) viewer.select(node);
    else viewer.select(viewer.painter.valueAt(event.offsetX, event.offsetY) || node);
  }

  hover(event) {
    const { viewer } = this;
    const node = viewer.painter.nodeAt(event.offsetX, event.offsetY);
    const value = node && !node.open ? null : viewer.painter.valueAt(event.offsetX, event.offsetY);
    const text = value ? this.lineOf(value) : node && !node.open ? this.hint(node) : '';
    viewer.canvas.classList.toggle('over', Boolean(text || (node && node.open)));
    viewer.showTip(text, event.offsetX, event.offsetY);
  }

  lineOf(value) {
    const { stats } = value;
    const numbers = stats && stats.least !== null ? `, from ${digits(stats.least)} to ${digits(stats.most)}` : '';
    return `${label(value)}: ${stats ? stats.kind : value.var.spec}${numbers}${isBad(stats) ? `, ${badText(stats)}` : ''}`;
  }

  hint(node) {
    const title = node.isBox ? `${node.name}, ${whereIs(node)}` : '';
    const outputs = node.writes.slice(0, 4).map((value) => this.lineOf(value));
    return [title, this.viewer.look.colouring.text(node), ...outputs, node.frames[0]].filter(Boolean).join('\n');
  }

  wheel(event) {
    event.preventDefault();
    const { camera } = this.viewer;
    const unit = event.deltaMode === 1 ? 20 : 1;
    this.viewer.hideTip();
    if (event.shiftKey) camera.pan(-(event.deltaY || event.deltaX) * unit, 0);
    else camera.zoom(Math.exp((-event.deltaY * unit) / 500), event.offsetX, event.offsetY);
  }

  listenToMap() {
    const { overview, camera } = this.viewer;
    const map = overview.canvas;
    const move = (event) => camera.pan(0, camera.height / 2 - overview.toPage(event.offsetY) * camera.scale - camera.y);
    map.addEventListener('pointerdown', (event) => {
      map.setPointerCapture(event.pointerId);
      if (camera.scale < READABLE) camera.show('width');
      move(event);
    });
    map.addEventListener('pointermove', (event) => { if (event.buttons & 1) move(event); });
  }
}

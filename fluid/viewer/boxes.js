// Draws the boxes of nodes on a canvas, or on what records them for a file.

const FONT = { title: '600 13px system-ui, sans-serif', small: '11px system-ui, sans-serif' };
const FINE = 0.7; // from this scale on, boxes show all their lines, below only their titles
const COARSE = 0.2; // below, they are bare rectangles

class Texts {
  constructor() {
    this.context = document.createElement('canvas').getContext('2d');
    this.known = new Map();
  }

  measure(text, font) {
    const key = `${font} ${text}`;
    let width = this.known.get(key);
    if (width === undefined) {
      this.context.font = FONT[font];
      width = this.context.measureText(text.slice(0, 200)).width;
      this.known.set(key, width);
    }
    return width;
  }

  // The text, or as much of it as fits.
  fit(text, font, width) {
    const key = `${font} ${Math.round(width)} ${text}`;
    let fitting = this.known.get(key);
    if (fitting === undefined) {
      fitting = text;
      if (this.measure(text, font) > width) {
        let [low, high] = [0, Math.min(text.length, 200)];
        while (low < high) {
          const middle = (low + high + 1) >> 1;
          if (this.measure(`${text.slice(0, middle)}…`, font) <= width) low = middle;
          else high = middle - 1;
        }
        fitting = `${text.slice(0, low)}…`;
      }
      this.known.set(key, fitting);
    }
    return fitting;
  }
}

// `look` has the colours, what is marked, and how ops are tinted.
class Boxes {
  constructor(texts) {
    this.texts = texts;
  }

  draw(c, nodes, scale, look) {
    const open = nodes.filter((node) => node.open);
    const closed = nodes.filter((node) => !node.open);
    if (scale < COARSE) this.drawBare(c, closed, scale, look);
    else for (const node of closed) this.drawClosed(c, node, scale, look);
    for (const node of open) if (look.isMarked(node)) this.drawMarks(c, node, scale, look);
    for (const node of closed) if (look.isMarked(node)) this.drawMarks(c, node, scale, look);
  }

  outline(c, node, radius) {
    c.beginPath();
    c.roundRect(node.x, node.y, node.w, node.h, Math.min(radius, node.h / 2));
  }

  // An open box, of which only what is near the window is drawn: it may be as long as the program.
  drawOpen(c, node, scale, look, window_) {
    const margin = 20;
    const [x0, y0] = [Math.max(node.x, window_.x0 - margin), Math.max(node.y, window_.y0 - margin)];
    const [x1, y1] = [Math.min(node.x + node.w, window_.x1 + margin), Math.min(node.y + node.h, window_.y1 + margin)];
    const tint = look.tint(node);
    c.globalAlpha = 0.07;
    c.fillStyle = tint;
    c.beginPath();
    c.roundRect(x0, y0, x1 - x0, y1 - y0, 10);
    c.fill();
    c.globalAlpha = (look.isFaded(node) ? 0.3 : 1) * (node.isBox ? 0.55 : 1);
    c.lineWidth = 1.4;
    c.strokeStyle = look.edge(node);
    c.stroke();
    c.globalAlpha = 1;
    if (scale < COARSE) return;
    c.fillStyle = look.colour.text;
    c.textAlign = 'left';
    c.textBaseline = 'middle';
    const size = Math.min(Math.max(13, 11 / scale), 21);
    c.font = `600 ${size.toFixed(1)}px system-ui, sans-serif`;
    c.fillText(this.texts.fit(`▾ ${look.title(node)}`, 'title', ((node.w - 20) * 13) / size), node.x + 10, node.y + 18);
  }

  // By colour, since a change of it costs more than a box; of boxes that fall on one pixel, the first.
  drawBare(c, nodes, scale, look) {
    const byTint = new Map();
    const least = 1 / scale;
    for (const node of nodes) {
      const style = look.isFaded(node) ? 0.28 : 1;
      const key = `${style} ${look.tint(node)}`;
      if (!byTint.has(key)) byTint.set(key, { style, tint: look.tint(node), lowest: new Map(), boxes: [] });
      const { lowest, boxes } = byTint.get(key);
      const column = Math.round(node.x * scale);
      if (node.y - lowest.get(column) < least) continue;
      lowest.set(column, node.y);
      boxes.push(node);
    }
    for (const { style, tint, boxes } of byTint.values()) {
      c.globalAlpha = style;
      c.fillStyle = tint;
      for (const node of boxes) c.fillRect(node.x, node.y, node.w, Math.max(node.h, least));
    }
    c.globalAlpha = 1;
  }

  drawClosed(c, node, scale, look) {
    const { colour } = look;
    const tint = look.tint(node);
    const alpha = look.isFaded(node) ? 0.28 : 1;
    if (node.isBox) this.drawStack(c, node, alpha, look);
    c.globalAlpha = alpha;
    this.outline(c, node, node.isInput ? 21 : 7);
    c.fillStyle = colour.box;
    c.fill();
    c.globalAlpha = alpha * look.strength(node);
    c.fillStyle = tint;
    c.fill();
    c.globalAlpha = alpha;
    c.lineWidth = node.roles.includes('loss') ? 3 : 1.3;
    c.strokeStyle = look.edge(node);
    if (node.unknown) c.setLineDash([5, 3]);
    c.stroke();
    c.setLineDash([]);
    const title = `${node.owned.length ? '▸ ' : ''}${look.title(node)}`;
    const x = node.x + node.w / 2;
    c.textAlign = 'center';
    c.textBaseline = 'middle';
    c.fillStyle = colour.text;
    if (scale >= FINE) {
      c.font = FONT.title;
      const lines = [look.spec(node), node.below].filter(Boolean);
      const top = node.y + node.h / 2 - (lines.length * 15.5) / 2;
      c.fillText(this.texts.fit(title, 'title', node.w - 14), x, top);
      c.font = FONT.small;
      const quiet = look.strength(node) > 0.5 ? colour.text : colour.faint;
      const namesParameters = node.isOp && !node.owned.length;
      lines.forEach((line, i) => {
        c.fillStyle = line === node.below && namesParameters && quiet === colour.faint ? colour.parameter : quiet;
        c.fillText(this.texts.fit(line, 'small', node.w - 14), x, top + 16 + 15 * i);
      });
    } else {
      this.drawLarge(c, node, title, scale);
    }
    c.globalAlpha = 1;
  }

  // A second edge below and beside a box of several ops, and a third if it stands for others of the same structure.
  drawStack(c, node, alpha, look) {
    const sheets = look.repeats(node) > 1 ? 2 : 1;
    c.strokeStyle = look.edge(node);
    c.fillStyle = look.colour.box;
    c.lineWidth = 1;
    for (let sheet = sheets; sheet > 0; sheet -= 1) {
      const shift = 3 * sheet;
      c.globalAlpha = alpha * 0.7;
      c.beginPath();
      c.roundRect(node.x + shift, node.y + shift, node.w, node.h, 7);
      c.fill();
      c.stroke();
    }
  }

  // Only the title, as large as the box allows, for small scales.
  drawLarge(c, node, title, scale) {
    const wide = this.texts.measure(title, 'title') / 13; // for each pixel of the font's height
    const least = 8.5 / scale;
    const size = Math.min(12 / scale, node.h * 0.62, Math.max((node.w - 10) / wide, least));
    if (size * scale < 5.5) return;
    const fitting = this.texts.fit(title, 'title', ((node.w - 8) * 13) / size);
    c.font = `600 ${size.toFixed(1)}px system-ui, sans-serif`;
    c.fillText(fitting, node.x + node.w / 2, node.y + node.h / 2);
  }

  drawMarks(c, node, scale, look) {
    const far = 1 / Math.min(scale, 1);
    c.globalAlpha = 1;
    for (const [stroke, width, outset] of look.rings(node)) {
      c.strokeStyle = stroke;
      c.lineWidth = width * far;
      c.beginPath();
      c.roundRect(node.x - outset, node.y - outset, node.w + 2 * outset, node.h + 2 * outset, 9);
      c.stroke();
    }
  }
}

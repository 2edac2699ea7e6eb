// Pictures of what is drawn: PNG, and SVG by a canvas that writes down what is drawn on it.

const LARGEST = 8000; // pixels to a side of a PNG, which browsers still make
const NOT_XML = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g; // characters that XML has no place for
const SVG = 'http://www.w3.org/2000/svg';

// As much of a canvas's context as boxes and ways use.
class SvgContext {
  constructor({ x, y, w, h }) {
    this.root = document.createElementNS(SVG, 'svg');
    this.root.setAttribute('viewBox', `${x} ${y} ${w} ${h}`);
    Object.assign(this, { globalAlpha: 1, fillStyle: '', strokeStyle: '', lineWidth: 1, font: '', textAlign: 'left', dash: '', steps: [] });
  }

  add(tag, attributes) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== '') made.setAttribute(name, value);
    this.root.append(made);
    return made;
  }

  beginPath() { this.steps = []; }

  step(letter, ...numbers) { this.steps.push(letter + numbers.map((number) => Math.round(number * 10) / 10).join(' ')); }

  moveTo(...at) { this.step('M', ...at); }

  lineTo(...at) { this.step('L', ...at); }

  bezierCurveTo(...at) { this.step('C', ...at); }

  roundRect(x, y, w, h, r) {
    this.step('M', x + r, y);
    this.step('h', w - 2 * r);
    this.step('a', r, r, 0, 0, 1, r, r);
    this.step('v', h - 2 * r);
    this.step('a', r, r, 0, 0, 1, -r, r);
    this.step('h', 2 * r - w);
    this.step('a', r, r, 0, 0, 1, -r, -r);
    this.step('v', 2 * r - h);
    this.step('a', r, r, 0, 0, 1, r, -r);
    this.steps.push('z');
  }

  fillRect(x, y, width, height) { this.add('rect', { x, y, width, height, fill: this.fillStyle, 'fill-opacity': this.globalAlpha }); }

  fill() { this.add('path', { d: this.steps.join(''), fill: this.fillStyle, 'fill-opacity': this.globalAlpha }); }

  stroke() {
    this.add('path', {
      d: this.steps.join(''), fill: 'none', stroke: this.strokeStyle,
      'stroke-width': this.lineWidth, 'stroke-opacity': this.globalAlpha, 'stroke-dasharray': this.dash,
    });
  }

  setLineDash(lengths) { this.dash = lengths.join(' '); }

  fillText(text, x, y) {
    const anchor = this.textAlign === 'center' ? 'middle' : 'start';
    const [, weight, size, family] = /^(\d+ )?([\d.]+)px (.*)$/.exec(this.font);
    const made = this.add('text', {
      x, y, fill: this.fillStyle, 'fill-opacity': this.globalAlpha, 'text-anchor': anchor, 'dominant-baseline': 'central',
      'font-family': family, 'font-size': size, 'font-weight': (weight || '').trim(),
    });
    made.textContent = text.toWellFormed().replace(NOT_XML, '\ufffd');
  }
}

function frameOf({ x, y, w, h }) {
  const edge = 24;
  return { x: x - edge, y: y - edge, w: w + 2 * edge, h: h + 2 * edge };
}

function toSvg(painter) {
  const frame = frameOf(painter.layout.bounds);
  const c = new SvgContext(frame);
  c.fillStyle = painter.look.colour.back;
  c.fillRect(frame.x, frame.y, frame.w, frame.h);
  painter.paint(c, { x0: frame.x, y0: frame.y, x1: frame.x + frame.w, y1: frame.y + frame.h }, 1);
  return new Blob([new XMLSerializer().serializeToString(c.root)], { type: 'image/svg+xml' });
}

function toPng(painter) {
  const frame = frameOf(painter.layout.bounds);
  const scale = Math.min(2, LARGEST / frame.w, LARGEST / frame.h);
  const canvas = document.createElement('canvas');
  Object.assign(canvas, { width: Math.ceil(frame.w * scale), height: Math.ceil(frame.h * scale) });
  const c = canvas.getContext('2d');
  c.setTransform(scale, 0, 0, scale, -frame.x * scale, -frame.y * scale);
  c.fillStyle = painter.look.colour.back;
  c.fillRect(frame.x, frame.y, frame.w, frame.h);
  painter.paint(c, { x0: frame.x, y0: frame.y, x1: frame.x + frame.w, y1: frame.y + frame.h }, scale);
  return new Promise((resolve) => { canvas.toBlob(resolve, 'image/png'); });
}

function download(blob, name) {
  const link = element('a', { download: name, href: URL.createObjectURL(blob) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

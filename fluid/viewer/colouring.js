// What the colours of boxes tell: the kind of op, a comparison, or a run.

// Text can be read on all of these.
const HEAT = { light: ['#fff4d6', '#ffd08a', '#f59b4c', '#e8603c'], dark: ['#2b2620', '#5a3d1c', '#8f4a1d', '#b8431f'] };

function mix(from, to, share) {
  const parts = [1, 3, 5].map((at) => {
    const [a, b] = [from, to].map((text) => parseInt(text.slice(at, at + 2), 16));
    return Math.round(a + (b - a) * share).toString(16).padStart(2, '0');
  });
  return `#${parts.join('')}`;
}

// A colour for a share from 0 to 1.
function heat(share, isDark) {
  const stops = HEAT[isDark ? 'dark' : 'light'];
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  return mix(stops[low], stops[low + 1], at - low);
}

// Each way to colour says the tint of a node, its edge, how strongly it fills the box, a text for it, and what the legend shows.
class ByKind {
  constructor(graph, look) {
    Object.assign(this, { graph, look, name: 'kind' });
  }

  tint(node) {
    return node.isInput ? this.look.colour.input : this.look.colour[KINDS[node.kind]];
  }

  edge(node) {
    return this.tint(node);
  }

  strength() {
    return 0.14;
  }

  text() {
    return '';
  }

  legend() {
    const ops = this.graph.nodes.filter((node) => node.isOp);
    const kinds = KINDS.filter((kind, number) => ops.some((node) => node.kind === number));
    const boxes = this.graph.nodes.some((node) => node.isBox) ? [['box', 'several ops']] : [];
    const entries = [...kinds.map((kind) => [kind, kind]), ['input', 'fed, or from outside'], ...boxes];
    return entries.map(([kind, text]) => element('span', {}, swatch(kind), text));
  }
}

class ByDifference extends ByKind {
  constructor(graph, look) {
    super(graph, look);
    this.name = 'difference';
  }

  colourOf(node) {
    return ['faint', 'found', node.block.program ? 'optimizer' : 'path'][node.difference];
  }

  tint(node) {
    return this.look.colour[this.colourOf(node)];
  }

  strength(node) {
    return node.difference ? 0.34 : 0.05;
  }

  legend() {
    const counts = new Map();
    for (const node of this.graph.nodes) if (node.isOp) counts.set(this.colourOf(node), (counts.get(this.colourOf(node)) || 0) + 1);
    const texts = [['faint', 'the same'], ['found', 'changed'], ['path', 'only before'], ['optimizer', 'only after']];
    return texts.map(([colour, text]) => {
      const count = (counts.get(colour) || 0) / (colour === 'faint' || colour === 'found' ? 2 : 1);
      return element('span', {}, swatch(colour), `${many(count, 'op')} ${text}`);
    });
  }
}

// By the share that an op has of what all ops take; `measureOf` says how much one takes, `show` how that is written.
class ByMeasure extends ByKind {
  constructor(graph, look, name, measureOf, show) {
    super(graph, look);
    Object.assign(this, { name, measureOf, show });
    const ops = graph.nodes.filter((node) => node.isOp).map(measureOf);
    this.total = ops.reduce((sum, measure) => sum + measure, 0) || 1;
    this.most = graph.nodes.filter((node) => !node.isInput).reduce((most, node) => Math.max(most, measureOf(node)), Number.MIN_VALUE);
  }

  tint(node) {
    const measure = node.isInput ? 0 : this.measureOf(node);
    return measure ? heat(Math.sqrt(measure / this.most), this.look.isDark) : this.look.colour.faint;
  }

  edge() {
    return this.look.colour.line;
  }

  strength(node) {
    return node.isInput || !this.measureOf(node) ? 0.05 : 1;
  }

  text(node) {
    const measure = this.measureOf(node);
    return measure ? `${this.show(measure)} · ${((100 * measure) / this.total).toFixed(1)} %` : '';
  }

  legend() {
    const steps = [0, 0.25, 0.5, 0.75, 1].map((share) => {
      const step = swatch('heat');
      step.style.background = heat(share, this.look.isDark);
      return step;
    });
    const entries = [['0 ', ...steps, ` ${this.show(this.most)}`], [`${this.show(this.total)} in all`], [swatch('path'), 'NaN or infinite']];
    return entries.map((entry) => element('span', {}, ...entry));
  }
}

// The ways there are for a program; the first is what one sees at first.
function colouringsOf(graph, look) {
  const colourings = [new ByKind(graph, look)];
  if (graph.isMeasured) {
    colourings.unshift(
      new ByMeasure(graph, look, 'time', (node) => node.seconds || 0, secondsText),
      new ByMeasure(graph, look, 'memory', (node) => node.bytes || 0, bytesText),
    );
  }
  if (graph.isCompared) colourings.unshift(new ByDifference(graph, look));
  return colourings;
}

// Mouse, keys and search.

const MANY = 60; // search results shown
const LARGE = 3000; // from so many ops on, blocks are folded at first

class Viewer {
  constructor() {
    this.graph = readGraph(JSON.parse(document.getElementById('data').textContent));
    this.byId = (id) => document.getElementById(id);
    this.canvas = this.byId('canvas');
    this.painter = new Painter(this.canvas, this.byId('map'), this.graph);
    this.panel = new Panel(this.byId('panel'), this);
    this.target = this.graph.loss;
    const { nodes } = this.graph;
    for (const node of nodes) node.open = node.owned.length > 0 && nodes.length < LARGE;
    this.layout = new Layout(this.graph, (text, font) => this.painter.measure(text, font));
    this.painter.use(this.layout);
    this.describe();
    this.listen();
    this.painter.resize();
    this.painter.show(!this.painter.isTall);
    this.index();
  }

  describe() {
    const ops = this.graph.nodes.filter((node) => !node.isInput);
    const counts = KINDS.map((kind, number) => [ops.filter((node) => node.kind === number).length, kind]).filter(([count]) => count);
    const blocks = this.graph.blocks.length;
    const parts = counts.length > 1 ? ` (${counts.map(([count, kind]) => `${count} ${kind}`).join(', ')})` : '';
    this.byId('summary').textContent = `${ops.length} op${ops.length === 1 ? '' : 's'}${parts}, ${blocks} block${blocks === 1 ? '' : 's'}`;
    const legend = [...counts.map(([, kind]) => [kind, kind]), ['input', 'what is fed or comes from outside']];
    this.byId('legend').replaceChildren(...legend.map(([kind, text]) => element('span', {}, element('i', { class: kind }), text)));
    const keys = [
      ['/', 'search'], ['Enter', 'next result'], ['drag, wheel', 'move, zoom'], ['arrows, + -', 'move, fold and unfold'], ['0, 1', 'whole program, width'],
      ['click', 'op, or line of a variable'], ['double click', 'fold or unfold a block'], ['p', 'paths of the variable to the loss'], ['t', 'dark or light'],
      ['Esc', 'clear'],
    ];
    this.byId('help').replaceChildren(element('table', {}, ...keys.map(([key, text]) => element('tr', {}, element('th', {}, key), element('td', {}, text)))));
  }

  // ------------------------------------------------------------------------------------------------------ selecting
  select(item) {
    const { painter } = this;
    painter.selected = item;
    if (!item) painter.path = null;
    if (item) this.panel.show(item);
    else this.panel.clear();
    painter.ask();
  }

  // Select, and bring into view.
  visit(item) {
    const node = item.reads ? item : this.nodesOf(item)[0] || item.readers[0];
    if (node) this.reveal(node);
    this.select(item);
    if (node) this.painter.goTo(node);
  }

  // Where a value is to be seen: where it is made, or else where it is read.
  nodesOf(value) {
    const maker = makerOf(value);
    return maker ? [maker] : value.readers.filter((node) => node.kind === 0);
  }

  reveal(node) {
    let changed = false;
    for (let { owner } = node.block; owner; owner = owner.block.owner) {
      changed = changed || !owner.open;
      owner.open = true;
    }
    if (changed) this.place();
  }

  gradientsOf(value) {
    const names = [`${value.var.name}@GRAD`, `grad/${value.var.name}@GRAD`, `grad/grad/${value.var.name}@GRAD`];
    return names.flatMap((name) => this.byName.get(name) || []).map((variable) => variable.values[variable.values.length - 1]);
  }

  setTarget(value) {
    this.target = value;
    this.painter.path = null;
    this.select(value);
  }

  // Highlight all ways from a value to the loss, or say that there is none.
  showPath(value) {
    const { painter, target } = this;
    const starts = [value, ...value.var.values.filter((other) => other !== value).sort((a, b) => a.version - b.version)];
    const path = starts.reduce((found, start) => found || (start === target ? null : between(start, target)), null);
    painter.path = path;
    if (!path) {
      this.panel.answer(value === target ? 'This is where paths end.' : `No value flows from here to ${label(target)}.`, []);
    } else {
      for (const node of path.nodes) this.reveal(node);
      const ops = [...path.nodes].filter((node) => !node.isInput).sort((a, b) => a.id - b.id);
      this.panel.answer(`${ops.length} op${ops.length === 1 ? '' : 's'} on the way to ${label(target)}:`, ops);
    }
    painter.mapImage = null;
    painter.ask();
  }

  // -------------------------------------------------------------------------------------------------------- folding
  place() {
    this.layout.run();
    this.painter.use(this.layout);
  }

  // Fold or unfold the blocks of an op, which stays where it is on the screen.
  toggle(node) {
    const { view } = this.painter;
    const [x, y] = [node.x, node.y];
    node.open = !node.open;
    this.place();
    view.x += (x - node.x) * view.scale;
    view.y += (y - node.y) * view.scale;
    if (this.painter.selected === node) this.panel.show(node);
  }

  foldAll(open) {
    for (const node of this.graph.nodes) node.open = open && node.owned.length > 0;
    this.place();
    this.painter.show(!this.painter.isTall);
  }

  // ---------------------------------------------------------------------------------------------------------- search
  index() {
    this.byName = new Map();
    this.entries = [];
    for (const variable of this.graph.vars) {
      if (!variable.values.length) continue;
      if (!this.byName.has(variable.name)) this.byName.set(variable.name, []);
      this.byName.get(variable.name).push(variable);
      this.entries.push({ text: variable.name, key: variable.name.toLowerCase(), item: variable.values[0], what: variable.spec });
    }
    for (const node of this.graph.nodes) {
      if (node.isInput) continue;
      const what = `op ${node.index} of block ${node.block.id}`;
      this.entries.push({ text: node.type, key: node.type.toLowerCase(), item: node, what });
    }
  }

  find(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const rank = ({ key }) => (key === words[0] ? 0 : key.startsWith(words[0]) ? 1 : 2);
    const fits = ({ key, what }) => words.every((word, i) => key.includes(word) || (i && what.toLowerCase().includes(word)));
    return this.entries.filter(fits).map((entry, i) => ({ entry, i, rank: rank(entry) })).sort((a, b) => a.rank - b.rank || a.i - b.i).map(({ entry }) => entry);
  }

  search(query) {
    const list = this.byId('results');
    const found = this.find(query);
    this.results = found;
    this.current = -1;
    this.painter.found = new Set(found.flatMap(({ item }) => (item.reads ? [item] : this.nodesOf(item))));
    this.painter.ask();
    list.replaceChildren(...found.slice(0, MANY).map((entry, i) => element(
      'li', { role: 'option', id: `result-${i}`, click: () => this.choose(i) },
      element('i', { class: entry.item.reads ? KINDS[entry.item.kind] : 'input' }), entry.text, element('small', {}, ` ${entry.what}`),
    )));
    if (query.trim()) {
      const more = found.length > MANY ? `${found.length} found, the first ${MANY} shown` : `${found.length} found`;
      list.append(element('li', { class: 'count', role: 'presentation' }, more));
    }
    this.openList(Boolean(query.trim()));
  }

  openList(open) {
    this.byId('results').hidden = !open;
    this.byId('search').setAttribute('aria-expanded', String(open));
  }

  choose(i) {
    if (!this.results || !this.results.length) return;
    const count = Math.min(this.results.length, MANY);
    this.current = (i + count) % count;
    const list = this.byId('results');
    [...list.children].forEach((child, place) => child.setAttribute('aria-selected', String(place === this.current)));
    list.children[this.current].scrollIntoView({ block: 'nearest' });
    this.byId('search').setAttribute('aria-activedescendant', `result-${this.current}`);
    this.visit(this.results[this.current].item);
  }

  // ------------------------------------------------------------------------------------------------------- listening
  listen() {
    const { canvas, painter } = this;
    let pressed = null;
    canvas.addEventListener('pointerdown', (event) => {
      if (event.button) return;
      pressed = { x: event.clientX, y: event.clientY, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!pressed) {
        this.hover(event);
        return;
      }
      const [dx, dy] = [event.clientX - pressed.x, event.clientY - pressed.y];
      if (!pressed.moved && Math.hypot(dx, dy) < 4) return;
      Object.assign(pressed, { x: event.clientX, y: event.clientY, moved: true });
      canvas.classList.add('moving');
      painter.pan(dx, dy);
    });
    canvas.addEventListener('pointerup', (event) => {
      canvas.classList.remove('moving');
      if (pressed && !pressed.moved) this.click(event);
      pressed = null;
    });
    canvas.addEventListener('pointercancel', () => { pressed = null; });
    canvas.addEventListener('pointerleave', () => { this.byId('tip').hidden = true; });
    canvas.addEventListener('dblclick', (event) => {
      const node = painter.nodeAt(event.offsetX, event.offsetY);
      if (node && node.owned.length) this.toggle(node);
    });
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 20 : 1;
      if (event.shiftKey) painter.pan(-event.deltaY * unit, 0);
      else painter.zoom(Math.exp((-event.deltaY * unit) / 500), event.offsetX, event.offsetY);
    }, { passive: false });
    const map = this.byId('map');
    const move = (event) => {
      const { bounds } = this.layout;
      const at = (event.offsetY / map.clientHeight) * bounds.h;
      painter.view.y = painter.height / 2 - at * painter.view.scale;
      painter.ask();
    };
    map.addEventListener('pointerdown', (event) => {
      map.setPointerCapture(event.pointerId);
      if (painter.view.scale < 0.3) painter.show(false);
      move(event);
    });
    map.addEventListener('pointermove', (event) => { if (event.buttons & 1) move(event); });
    window.addEventListener('resize', () => painter.resize());
    document.addEventListener('keydown', (event) => this.key(event));
    const box = this.byId('search');
    box.addEventListener('input', () => this.search(box.value));
    box.addEventListener('focus', () => { if (box.value.trim()) this.openList(true); });
    box.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' || event.key === 'ArrowDown') this.choose(this.current + 1);
      else if (event.key === 'ArrowUp') this.choose(this.current - 1);
      else return;
      event.preventDefault();
    });
    document.addEventListener('pointerdown', (event) => { if (!this.byId('finder').contains(event.target)) this.openList(false); });
    const act = (id, action) => this.byId(id).addEventListener('click', action);
    act('fit', () => painter.show(true));
    act('width', () => painter.show(false));
    act('fold', () => this.foldAll(false));
    act('unfold', () => this.foldAll(true));
    act('theme', () => this.turn());
    act('keys', () => { this.byId('help').hidden = !this.byId('help').hidden; });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      painter.readColours();
      painter.ask();
    });
  }

  turn() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    this.painter.readColours();
    this.painter.ask();
  }

  click(event) {
    const node = this.painter.nodeAt(event.offsetX, event.offsetY);
    const inHead = node && node.open && this.painter.toPage(0, event.offsetY).y < node.y + GAP.header;
    if (node && inHead && this.painter.toPage(event.offsetX, 0).x < node.x + 30) this.toggle(node);
    else if (node && (!node.open || inHead)) this.select(node);
    else this.select(this.painter.valueAt(event.offsetX, event.offsetY) || node);
  }

  hover(event) {
    const tip = this.byId('tip');
    const node = this.painter.nodeAt(event.offsetX, event.offsetY);
    const value = node && !node.open ? null : this.painter.valueAt(event.offsetX, event.offsetY);
    const text = value ? `${label(value)}: ${value.var.spec}` : node && !node.open ? this.hint(node) : '';
    this.canvas.classList.toggle('over', Boolean(text || (node && node.open)));
    tip.hidden = !text;
    tip.textContent = text;
    tip.style.left = `${Math.min(event.offsetX + 14, this.painter.width - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.offsetY + 18}px`;
  }

  hint(node) {
    if (node.isInput) return `${label(node.writes[0])}: ${node.writes[0].var.spec}`;
    const made = node.frames.length ? `\n${node.frames[0]}` : '';
    return `${node.writes.slice(0, 4).map((value) => `${label(value)}: ${value.var.spec}`).join('\n')}${made}`;
  }

  key(event) {
    const { painter } = this;
    const box = this.byId('search');
    if (event.key === 'Escape') {
      box.value = '';
      box.blur();
      this.byId('help').hidden = true;
      this.search('');
      this.select(null);
      return;
    }
    if (event.target === box || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = 80;
    const actions = {
      '/': () => { box.focus(); box.select(); },
      0: () => painter.show(true), 1: () => painter.show(false), '+': () => this.foldAll(true), '-': () => this.foldAll(false),
      t: () => this.turn(), '?': () => this.byId('keys').click(),
      ArrowLeft: () => painter.pan(step, 0), ArrowRight: () => painter.pan(-step, 0),
      ArrowUp: () => painter.pan(0, step), ArrowDown: () => painter.pan(0, -step),
      PageUp: () => painter.pan(0, painter.height * 0.9), PageDown: () => painter.pan(0, -painter.height * 0.9),
      p: () => {
        const { selected } = painter;
        if (!selected || !this.target) return;
        const value = selected.reads ? selected.writes[0] : selected;
        if (!value) return;
        this.select(value);
        this.showPath(value);
      },
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

const viewer = new Viewer();
window.fluidViewer = viewer; // for the console, and for tests
document.documentElement.dataset.ready = 'yes';

// Puts the parts of the page together.

const LARGE = 300; // with more ops, boxes are folded at first

class Viewer {
  constructor(data) {
    this.graph = readGraph(data);
    this.byId = (id) => document.getElementById(id);
    this.canvas = this.byId('canvas');
    this.ops = this.graph.nodes.filter((node) => node.isOp);
    this.byName = new Map();
    for (const variable of this.graph.vars) this.byName.set(variable.name, [...(this.byName.get(variable.name) || []), variable]);
    this.target = this.graph.loss;
    this.fold(this.ops.length <= LARGE);
    const texts = new Texts();
    this.look = new Look(this.graph);
    this.camera = new Camera(() => this.painter.ask());
    this.overview = new Overview(this.byId('map'), this.camera, this.look);
    this.painter = new Painter(this.canvas, this.overview, this.camera, this.look, this.graph, texts);
    this.panel = new Panel(this.byId('panel'), this);
    this.layout = new Layout(this.graph, this.look, (text, font) => texts.measure(text, font));
    this.painter.use(this.layout);
    this.search = new Search(this.byId('search'), this.byId('results'), this);
    this.list = new List(this.byId('list'), this);
    this.describe();
    this.pointer = new Pointer(this);
    this.keys = new Keys(this);
    this.listen();
    this.painter.resize();
    this.camera.show('readable');
    this.followAddress();
  }

  // The line of facts, the legend and the keys.
  describe() {
    const { ops, graph } = this;
    const counts = KINDS.map((kind, number) => [ops.filter((node) => node.kind === number).length, kind]).filter(([count]) => count);
    const parts = counts.length > 1 ? ` (${counts.map(([count, kind]) => `${count} ${kind}`).join(', ')})` : '';
    this.byId('summary').textContent = `${many(ops.length, 'op')}${parts}, ${many(graph.blocks.length, 'block')}`;
    this.explainColours();
    this.byId('colouring').replaceChildren(...this.look.colourings.map(({ name }) => element('option', {}, name)));
    this.byId('colours').hidden = this.look.colourings.length < 2;
    this.byId('next').hidden = !graph.isCompared;
    this.byId('help').replaceChildren(element('table', {}, ...KEYS.map(([key, text]) => row(key, text))));
    this.byId('once').hidden = !graph.nodes.some((node) => node.alike.length);
    this.byId('fold').hidden = !graph.areas.some((area) => area.owner);
    this.byId('unfold').hidden = this.byId('fold').hidden;
  }

  explainColours() {
    this.byId('legend').replaceChildren(...this.look.colouring.legend());
  }

  colourBy(name) {
    this.look.colouring = this.look.colourings.find((colouring) => colouring.name === name);
    this.recolour();
  }

  // ------------------------------------------------------------------------------------------------------ selecting
  select(item) {
    this.hideTip();
    this.look.select(item);
    if (item) this.panel.show(item);
    else this.panel.clear();
    const said = item && (item.reads ? `${sayingOf(item)}, ${item.spec}` : `${label(item)}, ${item.var.spec}`);
    this.byId('said').textContent = said || '';
    showAddress(item);
    this.resized();
  }

  // Select, and bring into view.
  visit(item) {
    const node = item.reads ? item : this.nodesOf(item)[0] || item.readers[0];
    if (node) this.reveal([node]);
    this.select(item);
    if (node) this.camera.goTo(node);
  }

  // Where a value is to be seen: where it is made, or else where it is read.
  nodesOf(value) {
    const maker = makerOf(value);
    return maker ? [maker] : value.readers.filter((node) => node.kind === 0);
  }

  // Open what is around nodes.
  reveal(nodes) {
    const around = nodes.flatMap((node) => [...withBoxes([node])].filter((box) => box !== node));
    const hidden = this.look.once && around.concat(nodes).some((node) => node.first !== node);
    if (hidden) this.setOnce(false);
    if (!hidden && around.every((box) => box.open)) return;
    for (const box of around) for (const one of this.together(box)) one.open = true;
    this.place();
  }

  gradientsOf(value) {
    const names = [`${value.var.name}@GRAD`, `grad/${value.var.name}@GRAD`, `grad/grad/${value.var.name}@GRAD`];
    const variables = names.flatMap((name) => this.byName.get(name) || []);
    return variables.filter((variable) => variable.values.length).map((variable) => variable.values.at(-1));
  }

  // The next op, or the one before, that is not the same in both programs.
  visitDifference(step) {
    const differing = this.ops.filter((node) => node.difference && !(node.block.program && node.twin));
    if (!differing.length) return;
    const { selected } = this.look;
    const at = differing.findIndex((node) => selected && (node === selected || node.twin === selected));
    this.visit(differing[(Math.max(at, step < 0 ? 0 : -1) + step + differing.length) % differing.length]);
  }

  followAddress() {
    const item = itemAt(window.location.hash, this.graph);
    if (item) this.visit(item);
  }

  // ----------------------------------------------------------------------------------------------------------- paths
  setTarget(value) {
    this.target = value;
    this.look.setPath(null);
    this.select(value);
  }

  // Highlight all ways from a value to the loss, or say that there is none.
  showPath(value) {
    const { look, target } = this;
    const starts = [value, ...value.var.values.filter((other) => other !== value).sort((a, b) => a.version - b.version)];
    const path = starts.reduce((ways, start) => ways || (start === target ? null : between(start, target)), null);
    look.setPath(path);
    if (!path) {
      this.panel.answer(value === target ? 'This is where paths end.' : `No value flows from here to ${label(target)}.`, []);
    } else {
      const ops = [...path.nodes].filter((node) => node.isOp).sort((a, b) => a.id - b.id);
      this.panel.answer(`${many(ops.length, 'op')} on the way to ${label(target)}:`, ops);
    }
    this.overview.forget();
    this.painter.ask();
  }

  showPathOfSelected() {
    const { selected } = this.look;
    const value = selected && (selected.reads ? selected.writes[0] : selected);
    if (!value || !this.target) return;
    this.select(value);
    this.showPath(value);
  }

  // -------------------------------------------------------------------------------------------------------- folding
  place() {
    this.layout.run();
    this.painter.use(this.layout);
  }

  // A box opens with those of its gradients and updates beside it.
  together(node) {
    const body = node.isBox && node.from ? node.from : node;
    const bodies = [body, ...(body.twin ? [body.twin] : [])];
    return bodies.flatMap((one) => (one.isBox ? [one, ...one.gradients] : [one]));
  }

  // Fold or unfold what is in a box, which stays where it is on the screen.
  toggle(node) {
    const { camera } = this;
    const [x, y] = [node.x, node.y];
    const open = !node.open;
    for (const one of this.together(node)) one.open = open;
    this.hideTip();
    this.place();
    camera.x += (x - node.x) * camera.scale;
    camera.y += (y - node.y) * camera.scale;
    if (this.look.selected === node) this.panel.show(node);
  }

  fold(open) {
    for (const node of this.graph.nodes) node.open = open && node.owned.length > 0;
  }

  foldAll(open) {
    this.fold(open);
    this.hideTip();
    this.place();
    this.camera.show('readable');
  }

  setOnce(once) {
    this.look.once = once;
    this.byId('once').setAttribute('aria-pressed', String(once));
  }

  // Show one box for all in a row of the same structure.
  showOnce(once) {
    this.setOnce(once);
    this.hideTip();
    this.place();
    this.camera.show('readable');
  }

  // ------------------------------------------------------------------------------------------------------- listening
  listen() {
    const { painter, camera } = this;
    window.addEventListener('resize', () => this.resized());
    window.addEventListener('hashchange', () => this.followAddress());
    document.addEventListener('pointerdown', (event) => {
      if (!this.byId('finder').contains(event.target)) this.search.openList(false);
    });
    const act = (id, action) => this.byId(id).addEventListener('click', action);
    act('fit', () => camera.show('readable'));
    act('width', () => camera.show('width'));
    act('fold', () => this.foldAll(false));
    act('unfold', () => this.foldAll(true));
    act('once', () => this.showOnce(!this.look.once));
    act('list-button', () => this.list.show(this.list.root.hidden));
    act('svg', () => download(toSvg(painter), `${document.title}.svg`));
    act('png', async () => download(await toPng(painter), `${document.title}.png`));
    act('next', () => this.visitDifference(1));
    this.byId('colouring').addEventListener('change', (event) => this.colourBy(event.target.value));
    act('theme', () => this.turn());
    act('keys', () => this.showHelp());
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.recolour());
  }

  resized() {
    this.painter.resize();
  }

  recolour() {
    this.look.readColours();
    this.explainColours();
    this.overview.forget();
    this.painter.ask();
  }

  turn() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    this.recolour();
  }

  showHelp() {
    this.byId('help').hidden = !this.byId('help').hidden;
  }

  // Escape: the last thing that was opened closes, one at a time.
  stepBack() {
    const { look, search } = this;
    const help = this.byId('help');
    const tip = this.byId('tip');
    if (!tip.hidden) this.hideTip();
    else if (!help.hidden) help.hidden = true;
    else if (search.isOpen) search.openList(false);
    else if (look.path) this.clearPath();
    else if (look.selected) this.select(null);
    else if (search.box.value) search.clear();
    else if (!this.list.root.hidden) this.list.show(false);
    else this.canvas.focus();
  }

  clearPath() {
    this.look.setPath(null);
    this.panel.answer('', []);
    this.overview.forget();
    this.painter.ask();
  }

  // ----------------------------------------------------------------------------------------------------------- saying
  showTip(text, x, y) {
    const tip = this.byId('tip');
    tip.hidden = !text;
    tip.textContent = text;
    tip.style.left = `${Math.max(4, Math.min(x + 14, this.camera.width - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.min(y + 18, this.camera.height - tip.offsetHeight - 8)}px`;
  }

  hideTip() {
    this.byId('tip').hidden = true;
  }
}

window.fluidViewer = new Viewer(JSON.parse(document.getElementById('data').textContent)); // for the console, and for tests
document.documentElement.dataset.ready = 'yes';

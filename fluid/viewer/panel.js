// What is said about the box, op or variable that is selected.

// Attributes that one looks for before all others.
const FIRST = ['strides', 'paddings', 'dilations', 'groups', 'ksize', 'pooling_type', 'shape', 'axis', 'dim'];

class Panel {
  constructor(root, viewer) {
    this.root = root;
    this.viewer = viewer;
  }

  clear() {
    this.root.hidden = true;
    this.root.replaceChildren();
  }

  show(item) {
    this.root.hidden = false;
    this.root.replaceChildren(
      element('button', { class: 'close', title: 'Close (Esc)', 'aria-label': 'Close', click: () => this.viewer.select(null) }, '×'),
      ...(item.isBox ? this.box(item) : item.isOp ? this.op(item) : this.value(item.isInput ? item.writes[0] : item)).filter(Boolean),
    );
    this.root.scrollTop = 0;
  }

  section(title, ...content) {
    return element('section', {}, element('h3', {}, title), ...content);
  }

  nodeLink(node) {
    return element(
      'button', { class: `link ${node.isInput ? 'input' : KINDS[node.kind]}`, 'data-node': node.id, click: () => this.viewer.visit(node) },
      nameOf(node), small(whereIs(node)),
    );
  }

  valueLink(value) {
    if (!value) return element('span', { class: 'faint' }, 'nothing');
    return element(
      'button', { class: 'link value', 'data-value': value.id, click: () => this.viewer.visit(value) },
      label(value), small(value.var.spec),
    );
  }

  links(items, link) {
    const shown = items.slice(0, 60).map((item) => element('div', {}, link.call(this, item)));
    if (items.length > shown.length) shown.push(element('div', { class: 'faint' }, `... ${items.length - shown.length} more`));
    return shown;
  }

  slots(slots) {
    const rows = [];
    for (const [slot, values] of slots) {
      rows.push(element('tr', {}, element('th', {}, slot), element('td', {}, ...this.links(values, this.valueLink))));
    }
    return rows.length ? element('table', {}, ...rows) : element('p', { class: 'faint' }, 'none');
  }

  heading(node, ...pills) {
    return [
      element('h2', {}, nameOf(node)),
      element(
        'p', {}, element('span', { class: `pill ${KINDS[node.kind]}` }, KINDS[node.kind]), ...pills,
        this.address(node, whereIs(node)),
      ),
    ];
  }

  address(item, text) {
    if (!hasAddress()) return element('span', { class: 'faint' }, text);
    return element('a', { class: 'faint', id: 'address', href: addressOf(item), title: 'Copy this link to come back here' }, text);
  }

  facts(rows) {
    const shown = rows.filter(([, content]) => content);
    return shown.length ? element('table', { id: 'facts' }, ...shown.map(([name, content]) => row(name, content))) : null;
  }

  weights(ops) {
    const weights = parametersOf(ops);
    const count = weights.reduce((sum, variable) => sum + (variable.size || 0), 0);
    return weights.length ? `${count.toLocaleString('en')} in ${many(weights.length, 'parameter')}` : '';
  }

  foldButton(node) {
    return element('button', { id: 'toggle', click: () => this.viewer.toggle(node) }, node.open ? 'Fold' : 'Unfold');
  }

  box(node) {
    const ops = opsIn(node);
    const counts = new Map();
    for (const op of ops) counts.set(op.type, (counts.get(op.type) || 0) + 1);
    const types = [...counts].sort((a, b) => b[1] - a[1]).map(([type, count]) => `${type} × ${count}`);
    const inside = node.owned.flatMap((area) => area.nodes.filter((inner) => !inner.isInput)).sort((a, b) => a.id - b.id);
    const alike = (node.from || node).first.alike.filter((one) => one !== node);
    return [
      ...this.heading(node),
      this.facts([['Weights', node.kind === 0 ? this.weights(ops) : ''], ...this.measures(node), ['Ops', types.slice(0, 12).join(', ')]]),
      element('p', { class: 'actions' }, this.foldButton(node)),
      ...this.linked('In the other program', node.twin ? [node.twin] : [], this.nodeLink),
      ...this.linked('Differing', ops.filter((op) => op.difference), this.nodeLink),
      ...this.linked('Of the same structure', alike, this.nodeLink),
      ...this.linked('Gradient of', node.kind === 1 && node.from ? [node.from] : [], this.nodeLink),
      ...this.linked('Beside it', node.gradients, this.nodeLink),
      ...this.linked('Inputs', node.reads, this.valueLink),
      ...this.linked('Outputs', node.writes, this.valueLink),
      ...this.linked('Inside', inside, this.nodeLink),
    ];
  }

  // A section of links, if there are any.
  linked(title, items, link) {
    return items.length ? [this.section(title, ...this.links(items, link))] : [];
  }

  op(node) {
    const pills = [];
    if (node.roles) pills.push(element('span', { class: 'pill' }, node.roles));
    if (node.unknown) pills.push(element('span', { class: 'pill warning' }, 'not defined here'));
    const weights = node.kind === 0 ? this.weights([node]) : '';
    return [
      ...this.heading(node, ...pills),
      this.facts([['Makes', node.spec], ['Weights', weights], ...this.measures(node)]),
      ...this.linked('In the other program', node.twin ? [node.twin] : [], this.nodeLink),
      ...(node.difference ? [this.section('Differences', this.differences(node))] : []),
      this.section('Attributes', ...this.attributes(node)),
      this.section('Inputs', this.slots(node.inputs)),
      this.section('Outputs', this.slots(node.outputs)),
      ...this.blocks(node),
      ...this.linked('Gradient of', node.from ? [node.from] : [], this.nodeLink),
      ...this.linked('Its gradient', node.gradients, this.nodeLink),
      ...this.lines(node),
    ];
  }

  blocks(node) {
    if (node.owned.length) {
      const numberOf = (area) => this.viewer.graph.blocks[area.id].number;
      const blocks = node.owned.map((area) => `block ${numberOf(area)}: ${many(opsOf(area).length, 'op')}`);
      return [this.section('Blocks', element('p', {}, blocks.join('; ')), this.foldButton(node))];
    }
    const numbers = node.subs.map((block) => block.number).join(', ');
    return numbers ? [this.section('Blocks', element('p', {}, `block ${numbers}, drawn elsewhere`))] : [];
  }

  // The lines of code that made an op.
  lines(node) {
    if (!node.frames.length) return [];
    const [first, ...others] = node.frames;
    const line = element('code', { class: 'frame', id: 'line' }, first);
    return [this.section('Made at', line, ...others.map((frame) => element('code', { class: 'frame faint' }, frame)))];
  }

  measures(node) {
    return [
      ['Time', node.seconds === null ? '' : secondsText(node.seconds)],
      ['Made', node.bytes ? bytesText(node.bytes) : ''],
    ];
  }

  // What an op and its twin say differently: attributes, and what they read and make.
  differences(node) {
    if (!node.twin) return element('p', {}, `Only the program ${sideOf(node)} has it.`);
    const [before, after] = (node.block.program ? [node.twin, node] : [node, node.twin]).map((op) => this.sayings(op));
    const names = [...new Set([...before.keys(), ...after.keys()])].filter((name) => before.get(name) !== after.get(name));
    if (!names.length) return element('p', {}, 'It reads what other ops make.');
    const rows = names.map((name) => row(name, ...[before, after].map((side) => side.get(name) ?? 'nothing')));
    return element('table', { id: 'differences' }, row('', 'before', 'after'), ...rows);
  }

  sayings(node) {
    const said = new Map(node.attrs.filter(([, , usual]) => usual < 2).map(([name, value]) => [name, value]));
    for (const slots of [node.inputs, node.outputs]) {
      for (const [slot, values] of slots) said.set(slot, values.map((value) => (value ? value.var.spec : 'nothing')).join(', '));
    }
    return said;
  }

  // What shapes the result, what was chosen, then what is as usual; what says nothing of the result is folded away.
  attributes(node) {
    const rows = (attrs, id) => element('table', { id }, ...attrs.map(([name, value, usual]) => element(
      'tr', usual ? { class: 'usual', title: 'as usual' } : {}, element('th', {}, name), element('td', {}, value),
    )));
    const rank = ([name, , usual]) => (FIRST.includes(name) ? FIRST.indexOf(name) - FIRST.length : usual);
    const telling = node.attrs.filter(([, , usual]) => usual < 2).sort((a, b) => rank(a) - rank(b));
    const others = node.attrs.filter(([, , usual]) => usual === 2);
    const shown = [telling.length ? rows(telling, 'attributes') : element('p', { class: 'faint' }, 'none')];
    if (others.length) {
      const summary = element('summary', { class: 'faint' }, `${others.length} about how it runs`);
      shown.push(element('details', {}, summary, rows(others, 'others')));
    }
    return shown;
  }

  value(value) {
    const { viewer } = this;
    const { target } = viewer;
    const others = value.var.values.filter((other) => other !== value);
    const gradients = viewer.gradientsOf(value);
    const where = `block ${value.block.number}`;
    const kind = value.version ? `written by op ${value.node ? value.node.index : '?'} of ${where}` : `what ${where} finds`;
    const { stats } = value;
    const size = value.var.size ? `${value.var.size.toLocaleString('en')} elements` : '';
    const content = [
      element('h2', {}, label(value)),
      element('p', { class: 'spec' }, value.var.spec),
      element(
        'p', {}, this.address(value, kind), ' ',
        ...value.var.flags.map((flag) => element('span', { class: 'pill' }, flag)),
      ),
      this.facts([['Size', size], ...(stats ? [
        ['In the run', stats.kind], ['Least', digits(stats.least)], ['Mean', digits(stats.mean)], ['Most', digits(stats.most)],
        ['Takes', bytesText(stats.bytes)],
        ['Odd', isBad(stats) ? element('span', { class: 'warning' }, badText(stats)) : ''],
      ] : [])]),
      element(
        'p', { class: 'actions' },
        target ? element('button', { id: 'path', click: () => viewer.showPath(value) }, `Paths to ${label(target)}`) : null,
        element('button', { id: 'target', click: () => viewer.setTarget(value) }, 'Let paths end here'),
      ),
      element('p', { id: 'answer', role: 'status' }),
    ];
    const maker = makerOf(value);
    content.push(
      ...this.linked('Made by', maker && maker.isOp ? [maker] : [], this.nodeLink),
      ...this.linked('Read by', value.readers, this.nodeLink),
      ...this.linked('Its gradient', gradients, this.valueLink),
      ...this.linked('Comes from', value.from, this.valueLink),
      ...this.linked('Goes on as', value.to, this.valueLink),
      ...this.linked('Under the same name', others, this.valueLink),
    );
    return content;
  }

  answer(text, nodes) {
    const place = document.getElementById('answer');
    if (!place) return;
    place.replaceChildren(text, ...this.links(nodes, this.nodeLink));
  }
}

// What is said about the op or variable that was clicked. All text comes from files: it only ever becomes text nodes.

function element(tag, attributes, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'click') found.addEventListener('click', value);
    else found.setAttribute(name, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) found.append(child);
  return found;
}

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
      ...(item.reads && !item.isInput ? this.node(item) : this.value(item.isInput ? item.writes[0] : item)),
    );
    this.root.scrollTop = 0;
  }

  section(title, ...content) {
    return element('section', {}, element('h3', {}, title), ...content);
  }

  nodeLink(node) {
    const where = node.isInput ? 'what the block finds' : `op ${node.index} of block ${node.block.id}`;
    return element(
      'button', { class: `link ${node.isInput ? 'input' : KINDS[node.kind]}`, 'data-node': node.id, click: () => this.viewer.visit(node) },
      node.isInput ? label(node.writes[0]) : node.type, element('small', {}, ` ${where}`),
    );
  }

  valueLink(value) {
    if (!value) return element('span', { class: 'faint' }, 'nothing');
    return element(
      'button', { class: 'link value', 'data-value': value.id, click: () => this.viewer.visit(value) },
      label(value), element('small', {}, ` ${value.var.spec}`),
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

  node(node) {
    const pills = [element('span', { class: `pill ${KINDS[node.kind]}` }, KINDS[node.kind])];
    if (node.roles) pills.push(element('span', { class: 'pill' }, node.roles));
    if (node.unknown) pills.push(element('span', { class: 'pill warning' }, 'not defined here'));
    const found = [
      element('h2', {}, node.type), element('p', {}, `op ${node.index} of block ${node.block.id} `, ...pills),
    ];
    if (node.frames.length) {
      found.push(this.section(
        'Made at',
        element('code', { class: 'frame', id: 'line' }, node.frames[0]),
        ...node.frames.slice(1).map((frame) => element('code', { class: 'frame faint' }, frame)),
      ));
    }
    if (node.from) found.push(this.section('Gradient of', ...this.links([node.from], this.nodeLink)));
    if (node.gradients.length) found.push(this.section('Its gradient', ...this.links(node.gradients, this.nodeLink)));
    if (node.owned.length) {
      found.push(this.section(
        'Blocks', element('p', {}, node.owned.map((block) => `block ${block.id}: ${block.nodes.filter((one) => !one.isInput).length} ops`).join('; ')),
        element('button', { id: 'toggle', click: () => this.viewer.toggle(node) }, node.open ? 'Fold' : 'Unfold'),
      ));
    } else if (node.subs.length) {
      found.push(this.section('Blocks', element('p', {}, `block ${node.subs.map((block) => block.id).join(', ')}, drawn elsewhere`)));
    }
    found.push(this.section('Inputs', this.slots(node.inputs)), this.section('Outputs', this.slots(node.outputs)));
    const attrs = [...node.attrs].sort((a, b) => a[2] - b[2]);
    found.push(this.section(
      'Attributes',
      attrs.length
        ? element('table', { id: 'attributes' }, ...attrs.map(([name, value, usual]) => element(
          'tr', usual ? { class: 'usual', title: 'as usual' } : {}, element('th', {}, name), element('td', {}, value),
        )))
        : element('p', { class: 'faint' }, 'none'),
    ));
    return found;
  }

  value(value) {
    const { viewer } = this;
    const { target } = viewer;
    const others = value.var.values.filter((other) => other !== value);
    const gradients = viewer.gradientsOf(value);
    const kind = value.version ? `written by op ${value.node ? value.node.index : '?'} of block ${value.block.id}` : `what block ${value.block.id} finds`;
    const found = [
      element('h2', {}, label(value)),
      element('p', { class: 'spec' }, value.var.spec),
      element('p', {}, `${kind} `, ...value.var.flags.map((flag) => element('span', { class: 'pill' }, flag))),
      element(
        'p', { class: 'actions' },
        target ? element('button', { id: 'path', click: () => viewer.showPath(value) }, `Paths to ${label(target)}`) : null,
        element('button', { id: 'target', click: () => viewer.setTarget(value) }, 'Let paths end here'),
      ),
      element('p', { id: 'answer', role: 'status' }),
    ];
    const maker = makerOf(value);
    if (maker && !maker.isInput) found.push(this.section('Made by', ...this.links([maker], this.nodeLink)));
    if (value.readers.length) found.push(this.section('Read by', ...this.links(value.readers, this.nodeLink)));
    if (gradients.length) found.push(this.section('Its gradient', ...this.links(gradients, this.valueLink)));
    if (value.from.length) found.push(this.section('Comes from', ...this.links(value.from, this.valueLink)));
    if (value.to.length) found.push(this.section('Goes on as', ...this.links(value.to, this.valueLink)));
    if (others.length) found.push(this.section('Under the same name', ...this.links(others, this.valueLink)));
    return found;
  }

  answer(text, nodes) {
    const place = document.getElementById('answer');
    if (!place) return;
    place.replaceChildren(text, ...this.links(nodes, this.nodeLink));
  }
}

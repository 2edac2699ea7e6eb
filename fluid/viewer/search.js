// Finds ops, boxes and variables by words.

const MANY = 60; // results shown

class Search {
  constructor(box, list, viewer) {
    Object.assign(this, { box, list, viewer, results: [], current: -1 });
    this.entries = this.index(viewer.graph);
    box.addEventListener('input', () => this.run(box.value));
    box.addEventListener('focus', () => { if (box.value.trim()) this.openList(true); });
    box.addEventListener('keydown', (event) => this.key(event));
  }

  index({ nodes, vars }) {
    const entry = (text, item, what) => ({ text, item, what, key: text.toLowerCase() });
    return [
      ...nodes.filter((node) => node.isBox && node.kind === 0).map((node) => entry(node.name, node, `group of ${whereIs(node)}`)),
      ...vars.filter((variable) => variable.values.length).map((variable) => entry(variable.name, variable.values[0], variable.spec)),
      ...nodes.filter((node) => node.isOp).map((node) => entry(node.type, node, whereIs(node))),
    ];
  }

  find(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const rank = ({ key }) => (key === words[0] ? 0 : key.startsWith(words[0]) ? 1 : 2);
    const fits = ({ key, what }) => words.every((word, i) => key.includes(word) || (i && what.toLowerCase().includes(word)));
    const ranked = this.entries.filter(fits).map((entry, i) => ({ entry, i, rank: rank(entry) }));
    return ranked.sort((a, b) => a.rank - b.rank || a.i - b.i).map(({ entry }) => entry);
  }

  run(query) {
    const { viewer } = this;
    this.results = this.find(query);
    this.current = -1;
    viewer.look.found = withBoxes(this.results.flatMap(({ item }) => (item.reads ? [item] : viewer.nodesOf(item))));
    viewer.painter.ask();
    this.list.replaceChildren(...this.results.slice(0, MANY).map((entry, i) => element(
      'li', { role: 'option', id: `result-${i}`, 'aria-selected': 'false', click: () => this.choose(i) },
      swatch(entry.item.reads ? KINDS[entry.item.kind] : 'input'), entry.text, small(entry.what),
    )));
    if (query.trim()) {
      const count = this.results.length;
      const more = count > MANY ? `${count} found, the first ${MANY} shown` : `${count} found`;
      this.list.append(element('li', { class: 'count', role: 'presentation' }, more));
    }
    this.openList(Boolean(query.trim()));
  }

  get isOpen() {
    return !this.list.hidden;
  }

  openList(open) {
    this.list.hidden = !open;
    this.box.setAttribute('aria-expanded', String(open));
    if (!open) this.box.removeAttribute('aria-activedescendant');
  }

  clear() {
    this.box.value = '';
    this.run('');
  }

  // Mark a result in the list.
  mark(i) {
    const count = Math.min(this.results.length, MANY);
    if (!count) return;
    this.current = (i + count) % count;
    [...this.list.children].forEach((child, place) => child.setAttribute('aria-selected', String(place === this.current)));
    this.list.children[this.current].scrollIntoView({ block: 'nearest' });
    this.box.setAttribute('aria-activedescendant', `result-${this.current}`);
  }

  // Go to a result, and be done with the list.
  choose(i) {
    if (!this.results.length) return;
    this.mark(i);
    this.openList(false);
    this.viewer.visit(this.results[this.current].item);
    this.viewer.canvas.focus();
  }

  key(event) {
    const { key } = event;
    if (key === 'ArrowDown') this.mark(this.current + 1);
    else if (key === 'ArrowUp') this.mark(Math.max(this.current, 0) - 1);
    else if (key === 'Enter') this.choose(Math.max(this.current, 0));
    else return;
    event.preventDefault();
    if (key !== 'Enter') this.openList(true);
  }
}

// All ops as a tree of text, for screen readers and for who prefers it; branches are filled when they are opened.

const SOME = 500; // items of a branch shown at first

class List {
  constructor(root, viewer) {
    Object.assign(this, { root, viewer });
    this.button = document.getElementById('list-button');
    root.addEventListener('keydown', (event) => this.key(event));
  }

  show(open) {
    this.root.hidden = !open;
    this.button.setAttribute('aria-expanded', String(open));
    if (open) {
      if (!this.tree) this.fill();
      (this.tree.querySelector('[tabindex="0"]') || this.tree).focus();
    } else {
      this.viewer.canvas.focus();
    }
    this.viewer.painter.resize();
  }

  fill() {
    this.tree = element('ul', { role: 'tree', 'aria-label': 'All ops' });
    const roots = this.viewer.graph.areas.filter((area) => !area.owner);
    this.tree.append(...roots.flatMap((area) => this.items(area)));
    if (this.tree.firstElementChild) this.tree.firstElementChild.tabIndex = 0;
    this.root.replaceChildren(element('h2', {}, 'Ops'), this.tree);
  }

  items(area, from = 0) {
    const nodes = [...area.nodes].filter((node) => !node.isInput || area.isBlock).sort((a, b) => a.kind - b.kind || a.place - b.place);
    const shown = nodes.slice(from, from + SOME).map((node) => this.item(node));
    if (nodes.length > from + SOME) {
      const more = element('li', { role: 'treeitem', tabindex: '-1' }, `${nodes.length - from - SOME} more`);
      more.open = () => more.replaceWith(...this.items(area, from + SOME));
      more.addEventListener('click', more.open);
      shown.push(more);
    }
    return shown;
  }

  item(node) {
    const text = element('span', {}, swatch(node.isInput ? 'input' : KINDS[node.kind]), nameOf(node), small(whereIs(node)));
    const item = element('li', { role: 'treeitem', tabindex: '-1', 'aria-label': sayingOf(node) }, text);
    if (node.owned.length) item.setAttribute('aria-expanded', 'false');
    item.node = node;
    item.addEventListener('click', (event) => {
      event.stopPropagation();
      if (event.target.closest('[role="treeitem"]') !== item) return;
      this.focus(item);
      this.go(node);
      if (node.owned.length) this.expand(item, item.getAttribute('aria-expanded') !== 'true');
    });
    return item;
  }

  expand(item, open) {
    item.setAttribute('aria-expanded', String(open));
    const inner = item.querySelector('ul');
    if (!open) inner?.remove();
    else if (!inner) item.append(element('ul', { role: 'group' }, ...item.node.owned.flatMap((area) => this.items(area))));
  }

  // Go to an op; on a phone, where the list covers the graph, the list goes.
  go(node) {
    if (this.root.offsetWidth === document.body.offsetWidth) this.show(false);
    this.viewer.visit(node);
  }

  focus(item) {
    this.tree.querySelector('[tabindex="0"]')?.setAttribute('tabindex', '-1');
    item.tabIndex = 0;
    item.focus();
  }

  key(event) {
    const item = event.target.closest('[role="treeitem"]');
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    const items = [...this.tree.querySelectorAll('[role="treeitem"]')];
    const at = items.indexOf(item);
    const open = item.getAttribute('aria-expanded');
    const to = (other) => { if (other) this.focus(other); };
    const actions = {
      ArrowDown: () => to(items[at + 1]), ArrowUp: () => to(items[at - 1]), Home: () => to(items[0]), End: () => to(items.at(-1)),
      ArrowRight: () => (open === 'false' ? this.expand(item, true) : to(item.querySelector('[role="treeitem"]'))),
      ArrowLeft: () => (open === 'true' ? this.expand(item, false) : to(item.parentElement.closest('[role="treeitem"]'))),
      Enter: () => (item.node ? this.go(item.node) : item.open()),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }
}

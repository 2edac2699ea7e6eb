// The keyboard: from op to op, and what else there is.

const KEYS = [
  ['/', 'search; arrows choose, Enter goes there'],
  ['n, N', 'next and previous result'],
  ['arrows', 'to the op above, below, beside'],
  ['Enter', 'unfold or fold'],
  ['Shift + arrows, Page up, down', 'move the page'],
  ['+, -', 'unfold, fold all'],
  ['r', 'repeats once'],
  ['0, 1, f', 'whole program, its width, fit'],
  ['l', 'list of all ops'],
  ['p', 'paths of the variable to the loss'],
  ['d, D', 'next and previous difference of two programs'],
  ['t', 'dark or light'],
  ['Esc', 'one step back'],
  ['click', 'op, or line of a variable'],
  ['double click', 'fold or unfold'],
  ['drag, wheel', 'move, zoom'],
];

class Keys {
  constructor(viewer) {
    this.viewer = viewer;
    document.addEventListener('keydown', (event) => this.key(event));
  }

  key(event) {
    const { viewer } = this;
    if (event.key === 'Escape') {
      viewer.stepBack();
      return;
    }
    if (event.target.matches('input, select, summary, [role="treeitem"]') || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Enter' && event.target !== viewer.canvas && event.target !== document.body) return;
    const action = this.actionOf(event);
    if (!action) return;
    event.preventDefault();
    viewer.hideTip();
    action();
  }

  actionOf({ key, shiftKey }) {
    const { viewer } = this;
    const { camera, search } = viewer;
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (arrows[key]) {
      const [dx, dy] = arrows[key];
      return shiftKey ? () => camera.pan(-80 * dx, -80 * dy) : () => this.step(dx, dy);
    }
    const actions = {
      '/': () => { search.box.focus(); search.box.select(); },
      0: () => camera.show('whole'), 1: () => camera.show('width'), f: () => camera.show('readable'),
      '+': () => viewer.foldAll(true), '-': () => viewer.foldAll(false), r: () => viewer.showOnce(!viewer.look.once),
      t: () => viewer.turn(), l: () => viewer.list.show(viewer.list.root.hidden), '?': () => viewer.showHelp(),
      PageUp: () => camera.pan(0, camera.height * 0.9), PageDown: () => camera.pan(0, -camera.height * 0.9),
      d: () => viewer.visitDifference(1), D: () => viewer.visitDifference(-1),
      n: () => search.choose(search.current + 1), N: () => search.choose(search.current - 1),
      p: () => viewer.showPathOfSelected(),
      Enter: () => { if (viewer.look.selected?.owned?.length) viewer.toggle(viewer.look.selected); },
    };
    return Object.hasOwn(actions, key) ? actions[key] : null;
  }

  // Select the nearest box in a direction; the first one if none is selected.
  step(dx, dy) {
    const { viewer } = this;
    const { selected } = viewer.look;
    const boxes = viewer.painter.nodes.filter((node) => !node.open || node === selected);
    const from = selected && selected.reads ? selected : selected && selected.node && selected.node.visible ? selected.node : null;
    if (!from || !from.visible) {
      const inView = viewer.painter.drawn.nodes.filter((node) => !node.open);
      const [first] = (inView.length ? inView : boxes).sort((a, b) => a.y - b.y || a.x - b.x);
      if (first) this.go(first);
      return;
    }
    const middle = (node) => [node.x + node.w / 2, node.y + Math.min(node.h, 56) / 2];
    const [x, y] = middle(from);
    let [best, least] = [null, Infinity];
    for (const node of boxes) {
      if (node === from) continue;
      const [nx, ny] = middle(node);
      const ahead = (nx - x) * dx + (ny - y) * dy;
      const aside = Math.abs((nx - x) * dy) + Math.abs((ny - y) * dx);
      const cost = ahead + 3 * aside;
      if (ahead > 4 && ahead >= aside * 0.3 && cost < least) [best, least] = [node, cost];
    }
    if (best) this.go(best);
  }

  go(node) {
    this.viewer.select(node);
    this.viewer.camera.follow(node);
  }
}

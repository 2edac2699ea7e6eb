// Places: boxes for nodes, and the ways of values between them. Python has put nodes into rows, in order; how wide and high
// they are, and so where they stand, depends on the font and on which blocks are open.

const GAP = { row: 34, item: 22, pass: 14, column: 70, inside: 18, header: 30, title: 44 };
const ROOM = 1.25; // titles grow as one zooms out, and boxes leave them some room
const SWEEPS = 8;
const STRETCH = 8; // rows to each side
const MAIN = ['Out', 'Y', 'Output', 'ParamOut', 'Loss', 'X@GRAD', 'Input@GRAD']; // slots of what an op is mainly for

// Places nearest to what is wanted, in the given order, `apart` from each other at least: isotonic regression in linear time.
function settle(wanted, weights, apart) {
  const offsets = [0];
  for (let i = 1; i < wanted.length; i += 1) offsets.push(offsets[i - 1] + apart[i - 1]);
  const groups = [];
  for (let i = 0; i < wanted.length; i += 1) {
    let group = { mean: wanted[i] - offsets[i], weight: weights[i], count: 1 };
    while (groups.length && groups[groups.length - 1].mean >= group.mean) {
      const last = groups.pop();
      const weight = last.weight + group.weight;
      group = { mean: (last.mean * last.weight + group.mean * group.weight) / weight, weight, count: last.count + group.count };
    }
    groups.push(group);
  }
  const found = [];
  for (const group of groups) for (let i = 0; i < group.count; i += 1) found.push(group.mean + offsets[found.length]);
  return found;
}

// Rows that lie side by side pull each other along: take out what a whole stretch of rows has moved from the middle.
function straighten(rows) {
  const sums = [0];
  for (const row of rows) {
    const [first, last] = [row[0], row[row.length - 1]];
    sums.push(sums[sums.length - 1] + (first.x - first.w / 2 + last.x + last.w / 2) / 2);
  }
  rows.forEach((row, i) => {
    const [from, to] = [Math.max(0, i - STRETCH), Math.min(rows.length, i + STRETCH + 1)];
    const drift = (sums[to] - sums[from]) / (to - from);
    for (const item of row) item.x -= drift;
  });
}

class Layout {
  constructor(graph, look, measure) {
    Object.assign(this, { graph, look, measure });
    for (const node of graph.nodes) this.describe(node);
    this.run();
  }

  // The lines of text of a node's box.
  describe(node) {
    node.title = nameOf(node);
    node.spec = this.specOf(node);
    const kept = node.kind === 0 && node.isOp ? parametersOf([node]) : [];
    node.below = node.owned.length ? insideOf(node) : kept.map((variable) => variable.name).join(', ');
    const title = ROOM * (this.measure(node.title, 'title') + (node.owned.length ? 18 : 0));
    const widest = Math.max(title, this.measure(node.spec, 'small'), this.measure(node.below, 'small')) + 20;
    node.plainWidth = Math.ceil(Math.min(Math.max(widest, node.isBox ? 150 : 84), node.isBox ? 320 : 280));
    node.plainHeight = node.below ? 56 : 42;
  }

  // What a node mainly makes: a box its last result, and nothing for boxes of gradients and updates, which make many.
  specOf(node) {
    if (node.isBox) return node.kind === 0 && node.writes.length ? node.writes.at(-1).var.spec : '';
    const slot = MAIN.find((name) => node.outputs.has(name));
    const first = (slot ? node.outputs.get(slot) : node.writes).find(Boolean);
    return first ? first.var.spec : '';
  }

  run() {
    const { graph } = this;
    for (const node of graph.nodes) {
      node.visible = false;
      node.w = node.plainWidth;
      node.h = node.plainHeight;
    }
    this.segments = [];
    this.crossing = [];
    this.titles = [];
    const shown = graph.sheets.filter((sheet) => sheet.columns.some((column) => this.isShown(column.area)));
    shown.sort((a, b) => b.depth - a.depth);
    for (const sheet of shown) this.place(sheet);
    shown.reverse();
    let bottom = 0;
    for (const sheet of shown) {
      const roots = [...new Set(sheet.columns.map((column) => column.area))].filter((area) => !area.owner);
      for (const area of roots) this.settle(sheet, area, 0, bottom + GAP.title);
      if (roots.length) {
        this.entitle(sheet, graph.blocks[roots[0].id], bottom);
        bottom += sheet.height + GAP.title + 60;
      }
      // What is inside comes later: it lies deeper.
      for (const column of sheet.columns) {
        for (const item of column.items) {
          if (item.node && item.node.visible && item.node.open) this.settleInside(item.node);
        }
      }
    }
    this.join(shown);
    this.bounds = this.measureAll();
  }

  // What stands over the columns of a block, or over the block, if no op owns it.
  entitle(sheet, block, top) {
    if (block.number) {
      this.titles.push({ text: `Block ${block.number}, which no op owns`, x: 0, y: top + 10, kind: -1 });
    } else if (sheet.columns.length > 1) {
      for (const column of sheet.columns) {
        const side = this.graph.isCompared ? `${this.graph.blocks[column.area.id].program ? 'after' : 'before'}: ` : '';
        const x = column.offset + (column.left + column.right) / 2;
        this.titles.push({ text: `${side}${KINDS[column.kind]}`, x, y: top + 12, kind: column.kind });
      }
    }
  }

  isShown(area) {
    for (let up = area; up.owner; up = up.owner.area) if (!up.owner.open) return false;
    return true;
  }

  // Rows and columns of a sheet, from its own corner; the sheets of open blocks inside have been placed.
  place(sheet) {
    for (const column of sheet.columns) column.items = [];
    const rows = sheet.rows.map((cells) => cells.map((cell) => cell.map((number) => this.itemOf(number)).filter(Boolean)));
    sheet.isGone = sheet.rows.map((cells, row) => {
      const [had, has] = [cells.flat().some((number) => number >= 0), rows[row].flat().some((item) => item.node)];
      return had && !has;
    });
    const items = rows.map((cells, row) => cells.map((cell, place) => {
      const kept = sheet.isGone[row] ? [] : cell;
      for (const item of kept) item.row = row;
      sheet.columns[place].items.push(...kept);
      return kept;
    }));
    const heights = items.map((cells) => Math.max(0, ...cells.flat().map((item) => item.h)));
    sheet.tops = [];
    let y = 0;
    heights.forEach((height, row) => {
      sheet.tops.push(y);
      if (!sheet.isGone[row]) y += height + GAP.row;
    });
    sheet.heights = heights;
    sheet.height = Math.max(0, y - GAP.row);
    sheet.columns.forEach((column, place) => {
      column.rows = items.map((cells) => cells[place]);
      this.link(column, sheet);
      this.placeColumn(column);
    });
    let offset = 0;
    sheet.columns.forEach((column, place) => {
      const isNew = place && column.area !== sheet.columns[place - 1].area;
      if (isNew) offset = column.area.owner ? 0 : offset + 2 * GAP.column; // of two programs, one stands beside the other
      column.offset = offset - column.left;
      offset += column.right - column.left + GAP.column;
      column.area.contentWidth = offset - GAP.column;
    });
  }

  // A node, or a value on its way; null for a node that another stands for.
  itemOf(number) {
    const node = number >= 0 ? this.graph.nodes[number] : null;
    if (node && this.standIn(node) !== node) return null;
    if (node && node.open) this.sizeOpen(node);
    const size = node ? { w: node.w, h: node.h } : { w: 2, h: 0 };
    const item = { node, value: node ? null : this.graph.values[-1 - number], ...size, x: 0, up: [], down: [] };
    if (node) node.item = item;
    return item;
  }

  standIn(node) {
    return this.look.once ? node.first : node;
  }

  // Join each item to those above and below that the same value leads to: the stretches of its way.
  link(column, sheet) {
    column.stretches = [];
    column.far = [];
    const passing = new Map();
    for (const item of column.items) {
      if (item.value) {
        if (!passing.has(item.value)) passing.set(item.value, new Map());
        passing.get(item.value).set(item.row, item);
      }
    }
    const inside = new Set(column.items.map((item) => item.node));
    const joined = new Set();
    for (const node of column.area.nodes) {
      const to = this.standIn(node);
      if (!inside.has(to)) continue;
      for (const value of node.reads) {
        const maker = shownIn(value, column.area);
        const from = maker && this.standIn(maker);
        if (!from || !inside.has(from) || from === to || joined.has(`${value.id} ${to.id}`)) continue;
        joined.add(`${value.id} ${to.id}`);
        const way = this.wayOf(from.item, to.item, passing.get(value), sheet.isGone);
        if (way) this.addStretches(column, value, way);
        else column.far.push({ value, from, to });
      }
    }
  }

  // The items from one to another, row by row; null if they lie in the same row, or if the value has no place between.
  wayOf(start, end, passes, isGone) {
    const step = Math.sign(end.row - start.row);
    if (!step) return null;
    const way = [start];
    for (let row = start.row + step; row !== end.row; row += step) {
      if (isGone[row]) continue;
      if (!passes || !passes.has(row)) return null;
      way.push(passes.get(row));
    }
    return [...way, end];
  }

  addStretches(column, value, way) {
    const step = Math.sign(way[way.length - 1].row - way[0].row);
    for (let i = 1; i < way.length; i += 1) {
      const [a, b] = [way[i - 1], way[i]];
      if (b.value && b.fed) continue;
      b.fed = true;
      column.stretches.push({ value, a, b, step });
      (step > 0 ? a.down : a.up).push(b);
      (step > 0 ? b.up : b.down).push(a);
    }
  }

  placeColumn(column) {
    const rows = column.rows.filter((row) => row.length);
    const gap = (a, b) => (a.w + b.w) / 2 + (a.value || b.value ? GAP.pass : GAP.item);
    const apart = rows.map((row) => row.slice(1).map((item, i) => gap(row[i], item)));
    const weights = rows.map((row) => row.map((item) => (item.value ? 2 : 1)));
    rows.forEach((row, i) => {
      const width = apart[i].reduce((sum, gap) => sum + gap, 0);
      let x = -width / 2;
      row.forEach((item, j) => {
        item.x = x;
        x += apart[i][j] || 0;
      });
    });
    const mean = (items) => items.reduce((sum, item) => sum + item.x, 0) / items.length;
    for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
      const last = sweep >= SWEEPS - 2;
      for (let k = 0; k < rows.length; k += 1) {
        const i = sweep % 2 ? rows.length - 1 - k : k;
        const row = rows[i];
        const wanted = row.map((item) => {
          const near = last ? [...item.up, ...item.down] : sweep % 2 ? item.down : item.up;
          return near.length ? mean(near) : item.x;
        });
        settle(wanted, weights[i], apart[i]).forEach((x, j) => { row[j].x = x; });
      }
    }
    straighten(rows);
    column.left = Math.min(0, ...column.items.map((item) => item.x - item.w / 2));
    column.right = Math.max(0, ...column.items.map((item) => item.x + item.w / 2));
    for (const item of column.items) {
      if (!item.node) continue;
      for (const side of [item.up, item.down]) side.sort((a, b) => a.x - b.x);
    }
  }

  sizeOpen(node) {
    const areas = node.owned.filter((area) => area.sheet && area.sheet.columns[0].items);
    const width = areas.reduce((sum, area) => sum + (area.contentWidth || 0) + GAP.inside, 0) - GAP.inside;
    const height = Math.max(0, ...areas.map((area) => area.sheet.height));
    node.w = Math.max(node.plainWidth, width + 2 * GAP.inside);
    node.h = height + GAP.header + 2 * GAP.inside;
  }

  settleInside(node) {
    let x = node.x + GAP.inside;
    for (const area of node.owned) {
      if (!area.sheet || !area.sheet.columns[0].items) continue;
      this.settle(area.sheet, area, x, node.y + GAP.header + GAP.inside);
      x += area.contentWidth + GAP.inside;
    }
  }

  // Give the items of an area their places on the page.
  settle(sheet, area, x, y) {
    for (const column of sheet.columns) {
      if (column.area !== area) continue;
      for (const item of column.items) {
        item.pageX = x + column.offset + item.x;
        item.top = y + sheet.tops[item.row];
        item.bottom = item.top + sheet.heights[item.row];
        if (item.node) Object.assign(item.node, { x: item.pageX - item.w / 2, y: item.top, visible: true });
      }
    }
  }

  // Curves for the stretches of a column's values, and what is drawn straight from node to node: from column to column, or far.
  join(sheets) {
    for (const sheet of sheets) {
      for (const column of sheet.columns) {
        if (!this.isShown(column.area)) continue;
        const port = (item, other, side) => {
          if (item.value) return item.pageX;
          const ends = item[side];
          const spread = Math.min(12, (item.w - 24) / Math.max(ends.length, 1));
          return item.pageX + (ends.indexOf(other) - (ends.length - 1) / 2) * spread;
        };
        for (const { value, a, b, step } of column.stretches) {
          const down = step > 0;
          const into = port(b, a, down ? 'up' : 'down');
          const aEnd = a.value ? (down ? a.top : a.bottom) : down ? a.node.y + a.node.h : a.node.y;
          const bEnd = b.value ? (down ? b.bottom : b.top) : down ? b.node.y : b.node.y + b.node.h;
          this.segments.push({
            value, kind: column.kind, x0: a.pageX, y0: aEnd, y1: down ? a.bottom : a.top, x1: into, y2: down ? b.top : b.bottom, y3: bEnd,
            to: b.node,
          });
        }
        this.crossing.push(...column.far.map((edge) => ({ ...edge, near: false })));
      }
    }
    for (const node of this.graph.nodes) {
      if (node.visible && !(node.isBox && node.open)) this.joinAcross(node);
    }
  }

  // From other columns and boxes to a node, in the order of what it reads; once from each.
  joinAcross(node) {
    const seen = new Set();
    for (const value of node.reads) {
      let maker = makerOf(value);
      while (maker && !maker.visible) maker = maker.area.owner;
      if (!maker || maker === node || maker.open || seen.has(maker)) continue;
      if (maker.area === node.area && maker.kind === node.kind) continue;
      if (node.kind === 0 && node.area.inputs.has(value)) continue;
      seen.add(maker);
      const near = maker.area.sheet === node.area.sheet && Math.abs(maker.item.row - node.item.row) <= 2;
      this.crossing.push({ value, from: maker, to: node, near });
    }
  }

  measureAll() {
    const nodes = this.graph.nodes.filter((node) => node.visible);
    if (!nodes.length) return { x: 0, y: 0, w: 200, h: 200 };
    let [left, right, bottom] = [Infinity, -Infinity, -Infinity];
    for (const node of nodes) {
      left = Math.min(left, node.x);
      right = Math.max(right, node.x + node.w);
      bottom = Math.max(bottom, node.y + node.h);
    }
    return { x: left, y: 0, w: right - left, h: bottom };
  }
}

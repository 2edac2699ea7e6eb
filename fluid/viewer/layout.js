// Places: boxes for nodes, and the ways of values between them. Python has put nodes into rows, in order; how wide and high
// they are, and so where they stand, depends on the font and on which blocks are open.

const GAP = { row: 34, item: 22, pass: 14, column: 70, inside: 18, header: 30, title: 44 };
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
  constructor(graph, measure) {
    this.graph = graph;
    this.measure = measure;
    for (const node of graph.nodes) this.describe(node);
    this.run();
  }

  // The lines of text of a node's box.
  describe(node) {
    const slot = MAIN.find((name) => node.outputs.has(name));
    const first = (slot ? node.outputs.get(slot) : node.writes).find(Boolean);
    node.title = node.isInput ? label(first) : node.type;
    node.spec = first ? first.var.spec : '';
    const kept = node.kind === 0 ? node.reads.filter((value) => value.var.flags.includes('parameter')) : [];
    node.params = kept.map((value) => value.var.name).join(', ');
    const widest = Math.max(
      this.measure(node.title, 'title') + (node.owned.length ? 22 : 0), this.measure(node.spec, 'small'), this.measure(node.params, 'small'),
    );
    node.plainWidth = Math.ceil(Math.min(Math.max(widest + 22, 84), 280));
    node.plainHeight = node.params || node.owned.length ? 56 : 42;
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
    const shown = graph.sheets.filter((sheet) => this.isShown(sheet.columns[0].block) || sheet.columns.some((c) => this.isShown(c.block)));
    shown.sort((a, b) => b.depth - a.depth);
    for (const sheet of shown) this.place(sheet);
    shown.reverse();
    let bottom = 0;
    for (const sheet of shown) {
      const block = sheet.columns[0].block;
      if (!block.owner) {
        if (block.id) this.titles.push({ text: `Block ${block.id}, which no op owns`, x: 0, y: bottom + 10, kind: -1 });
        this.settleBlock(sheet, block, 0, bottom + (block.id ? 40 : GAP.title));
        if (!block.id) {
          for (const column of sheet.columns) {
            const mid = column.offset + (column.left + column.right) / 2;
            if (sheet.columns.length > 1) this.titles.push({ text: KINDS[column.kind], x: mid, y: bottom + 12, kind: column.kind });
          }
        }
        bottom += sheet.height + GAP.title + 60;
      }
      // Blocks inside come later: they lie deeper.
      for (const column of sheet.columns) {
        for (const item of column.items) {
          if (item.node && item.node.visible && item.node.open) this.openBlocks(item.node);
        }
      }
    }
    this.join(shown);
    this.bounds = this.measureAll();
  }

  isShown(block) {
    for (let up = block; up.owner; up = up.owner.block) if (!up.owner.open) return false;
    return true;
  }

  // Rows and columns of a sheet, from its own corner; the sheets of open blocks inside have been placed.
  place(sheet) {
    for (const column of sheet.columns) column.items = [];
    const items = sheet.rows.map((cells, row) => cells.map((cell, place) => cell.map((number) => {
      const node = number >= 0 ? this.graph.nodes[number] : null;
      if (node && node.open) this.sizeOpen(node);
      const item = {
        node, value: node ? null : this.graph.values[-1 - number], row, w: node ? node.w : 2, h: node ? node.h : 0, x: 0, up: [], down: [],
      };
      if (node) node.item = item;
      sheet.columns[place].items.push(item);
      return item;
    })));
    const heights = items.map((cells) => Math.max(0, ...cells.flat().map((item) => item.h)));
    sheet.tops = [];
    let y = 0;
    for (const height of heights) {
      sheet.tops.push(y);
      y += height + GAP.row;
    }
    sheet.heights = heights;
    sheet.height = Math.max(0, y - GAP.row);
    sheet.columns.forEach((column, place) => {
      column.rows = items.map((cells) => cells[place]);
      this.link(column);
      this.placeColumn(column);
    });
    let offset = 0;
    sheet.columns.forEach((column, place) => {
      if (place && column.block !== sheet.columns[place - 1].block) offset = 0;
      column.offset = offset - column.left;
      offset += column.right - column.left + GAP.column;
      column.block.contentWidth = offset - GAP.column;
    });
  }

  // Join each item to those above and below that the same value leads to: the stretches of its way.
  link(column) {
    column.stretches = [];
    column.far = [];
    const passing = new Map();
    for (const item of column.items) {
      if (item.value) {
        if (!passing.has(item.value)) passing.set(item.value, new Map());
        passing.get(item.value).set(item.row, item);
      }
    }
    const inside = new Set(column.items.filter((item) => item.node).map((item) => item.node));
    for (const item of column.items) {
      if (!item.node) continue;
      for (const value of item.node.reads) {
        if (!value.node || !inside.has(value.node) || value.node === item.node) continue;
        const start = value.node.item;
        const step = Math.sign(item.row - start.row);
        const passes = passing.get(value);
        const way = [start];
        for (let row = start.row + step; step && row !== item.row; row += step) way.push(passes && passes.get(row));
        way.push(item);
        if (!step || way.some((part) => !part)) {
          column.far.push({ value, from: value.node, to: item.node });
          continue;
        }
        for (let i = 1; i < way.length; i += 1) {
          const [a, b] = [way[i - 1], way[i]];
          if (b.value && b.fed) continue;
          b.fed = true;
          column.stretches.push({ value, a, b, step });
          (step > 0 ? a.down : a.up).push(b);
          (step > 0 ? b.up : b.down).push(a);
        }
      }
    }
  }

  placeColumn(column) {
    const rows = column.rows.filter((row) => row.length);
    const apart = rows.map((row) => row.slice(1).map((item, i) => (item.w + row[i].w) / 2 + (item.value || row[i].value ? GAP.pass : GAP.item)));
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
    const blocks = node.owned.filter((block) => block.sheet && block.sheet.columns[0].items);
    const width = blocks.reduce((sum, block) => sum + (block.contentWidth || 0) + GAP.inside, 0) - GAP.inside;
    const height = Math.max(0, ...blocks.map((block) => block.sheet.height));
    node.w = Math.max(node.plainWidth, width + 2 * GAP.inside);
    node.h = height + GAP.header + 2 * GAP.inside;
  }

  openBlocks(node) {
    let x = node.x + GAP.inside;
    for (const block of node.owned) {
      if (!block.sheet || !block.sheet.columns[0].items) continue;
      this.settleBlock(block.sheet, block, x, node.y + GAP.header + GAP.inside);
      x += block.contentWidth + GAP.inside;
    }
  }

  // Give the items of a block their places on the page.
  settleBlock(sheet, block, x, y) {
    block.placed = { x, y };
    for (const column of sheet.columns) {
      if (column.block !== block) continue;
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
        if (!this.isShown(column.block)) continue;
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
      if (!node.visible) continue;
      for (const value of node.reads) {
        const maker = makerOf(value);
        if (!maker || !maker.visible || maker === node) continue;
        if (maker.block === node.block && maker.kind === node.kind) continue;
        const near = maker.block.sheet === node.block.sheet && Math.abs(maker.item.row - node.item.row) <= 2;
        this.crossing.push({ value, from: maker, to: node, near });
      }
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

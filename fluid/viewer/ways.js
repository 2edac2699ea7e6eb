// Draws the ways of values, from box to box.

const STRAIGHT = 0.2; // below this scale, ways are straight, and those of a pixel or two are left out

class Ways {
  // The segments of a column's values, and what runs from side to side of boxes.
  draw(c, segments, crossing, scale, look) {
    const { colour } = look;
    const near = { forward: [], backward: [], optimizer: [] };
    const [bold, path] = [[], []];
    const least = scale < STRAIGHT ? 3 / scale : 0;
    for (const segment of segments) {
      if (look.marked.has(segment.value)) bold.push(segment);
      else if (look.path && look.path.values.has(segment.value) && (!segment.to || look.onPath.has(segment.to))) path.push(segment);
      else if (Math.abs(segment.y3 - segment.y0) + Math.abs(segment.x1 - segment.x0) > least) near[KINDS[segment.kind]].push(segment);
    }
    c.lineWidth = Math.min(1.2 / Math.min(scale, 1), 4);
    c.globalAlpha = look.path ? 0.25 : 0.55;
    for (const kind of KINDS) this.stroke(c, near[kind], colour[kind], scale);
    this.drawCrossing(c, crossing, scale, look);
    c.lineWidth = Math.min(2.6 / Math.min(scale, 1), 9);
    this.stroke(c, path, colour.path, scale);
    this.stroke(c, bold, colour.mark, scale);
    c.globalAlpha = 1;
  }

  drawCrossing(c, crossing, scale, look) {
    const plain = [];
    const bold = [];
    for (const edge of crossing) {
      const ends = [edge.from, edge.to];
      if (look.marked.has(edge.value) && (!look.selected.reads || ends.includes(look.selected))) bold.push([edge, look.colour.mark]);
      else if (look.path?.values.has(edge.value) && ends.every((node) => look.onPath.has(node))) bold.push([edge, look.colour.path]);
      else if (edge.near) plain.push(edge);
    }
    c.globalAlpha = look.path ? 0.08 : 0.22;
    if (scale > STRAIGHT) this.strokeCrossing(c, plain, look.colour.line);
    c.globalAlpha = 1;
    c.lineWidth = Math.min(2.6 / Math.min(scale, 1), 9);
    for (const [edge, colour] of bold) this.strokeCrossing(c, [edge], colour);
  }

  trace(c, s) {
    const bend = (s.y2 - s.y1) * 0.5;
    c.moveTo(s.x0, s.y0);
    c.lineTo(s.x0, s.y1);
    c.bezierCurveTo(s.x0, s.y1 + bend, s.x1, s.y2 - bend, s.x1, s.y2);
    c.lineTo(s.x1, s.y3);
  }

  stroke(c, segments, colour, scale) {
    if (!segments.length) return;
    c.strokeStyle = colour;
    c.fillStyle = colour;
    c.beginPath();
    if (scale < STRAIGHT) {
      for (const s of segments) {
        c.moveTo(s.x0, s.y0);
        c.lineTo(s.x1, s.y3);
      }
      c.stroke();
      return;
    }
    for (const segment of segments) this.trace(c, segment);
    c.stroke();
    c.beginPath();
    for (const s of segments) if (s.to) this.traceArrow(c, s);
    c.fill();
  }

  traceArrow(c, s) {
    const back = s.y3 > s.y2 || s.y2 > s.y1 ? -6 : 6;
    c.moveTo(s.x1, s.y3);
    c.lineTo(s.x1 - 3.5, s.y3 + back);
    c.lineTo(s.x1 + 3.5, s.y3 + back);
  }

  strokeCrossing(c, edges, colour) {
    if (!edges.length) return;
    c.strokeStyle = colour;
    c.beginPath();
    for (const { from, to } of edges) {
      const right = from.x + from.w / 2 <= to.x + to.w / 2;
      const x0 = right ? from.x + from.w : from.x;
      const x1 = right ? to.x : to.x + to.w;
      const y0 = from.y + Math.min(from.h, 40) / 2;
      const y1 = to.y + Math.min(to.h, 40) / 2;
      const bend = Math.max(20, Math.abs(x1 - x0) / 2) * (right ? 1 : -1);
      c.moveTo(x0, y0);
      c.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    }
    c.stroke();
  }

  // The value whose way passes near a place, among segments.
  valueAt(segments, at, scale) {
    let best = 6 / scale;
    let nearest = null;
    for (const s of segments) {
      for (let i = 0; i <= 12; i += 1) {
        const t = i / 12;
        const bend = t * t * (3 - 2 * t);
        const d = Math.hypot(s.x0 + (s.x1 - s.x0) * bend - at.x, s.y1 + (s.y2 - s.y1) * t - at.y);
        if (d < best) [best, nearest] = [d, s.value];
      }
      if (Math.abs(at.x - s.x0) < best && (at.y - s.y0) * (at.y - s.y1) < 0) [best, nearest] = [Math.abs(at.x - s.x0), s.value];
      if (Math.abs(at.x - s.x1) < best && (at.y - s.y2) * (at.y - s.y3) < 0) [best, nearest] = [Math.abs(at.x - s.x1), s.value];
    }
    return nearest;
  }
}

// Outlines of masks in a plane, along the edges of the voxels: exact at any zoom. Also crosshair, region and letters.
(() => {
  "use strict";
  const B = window.berdiff;
  const LETTERS = [["R", "L", "A", "P"], ["R", "L", "S", "I"], ["A", "P", "S", "I"]]; // left, right, top, bottom of the plane

  // One plane of an array in a box as paths in edges: its outline, and its marked voxels to be filled. `place` is along
  // `axis`; null where nothing is marked.
  function traced(mask, box, { axis, h, v }, place) {
    const sides = B.sides(box), strides = [sides[1] * sides[2], sides[2], 1], inside = place - box[axis][0];
    if (inside < 0 || inside >= sides[axis]) return null;
    const across = sides[h], down = sides[v], [h0] = box[h], [v0] = box[v], start = inside * strides[axis];
    const at = (i, j) => i >= 0 && j >= 0 && i < across && j < down && mask[start + i * strides[h] + j * strides[v]] > 0;
    const outline = new Path2D(), area = new Path2D();
    let any = false;
    const runs = (lines, length, holds, draw) => {
      for (let line = 0; line <= lines; line++) for (let i = 0, from = -1; i <= length; i++) {
        const on = i < length && holds(line, i);
        if (on && from < 0) from = i;
        if (!on && from >= 0) { draw(line, from, i); from = -1; any = true; }
      }
    };
    const line = (x, y, toX, toY) => { outline.moveTo(h0 + x, v0 + y); outline.lineTo(h0 + toX, v0 + toY); };
    runs(down, across, (j, i) => at(i, j) !== at(i, j - 1), (j, a, b) => line(a, j, b, j));
    runs(across, down, (i, j) => at(i, j) !== at(i - 1, j), (i, a, b) => line(i, a, i, b));
    runs(down, across, (j, i) => at(i, j), (j, a, b) => area.rect(h0 + a, v0 + j, b - a, 1));
    return any ? { outline, area } : null;
  }

  class Outlines {
    constructor(canvas, view) {
      this.canvas = canvas;
      this.view = view;
      this.layers = []; // {key, mask, box, colour, width, dash, fill}
      this.cache = new Map();
    }

    cached(layer, tile, place) {
      const key = `${layer.key}/${tile.axis}/${place}`;
      if (!this.cache.has(key)) {
        if (this.cache.size > 400) this.cache.clear();
        this.cache.set(key, traced(layer.mask, layer.box, tile, place));
      }
      return this.cache.get(key);
    }

    draw() {
      const { canvas, view } = this, gl = view.canvas;
      if (canvas.width !== gl.width || canvas.height !== gl.height) Object.assign(canvas, { width: gl.width, height: gl.height });
      const context = canvas.getContext("2d");
      context.clearRect(0, 0, canvas.width, canvas.height);
      if (!view.picture) return;
      const dpr = gl.width / gl.clientWidth || 1, voxel = view.voxel;
      for (const tile of view.tiles()) {
        context.save();
        context.beginPath();
        context.rect(tile.left, tile.top, tile.width, tile.height);
        context.clip();
        const place = voxel[tile.axis];
        const turn = new DOMMatrix([tile.sx, 0, 0, tile.sy, tile.x0, tile.y0]);
        for (const layer of this.layers) this.drawLayer(context, layer, tile, place, turn, dpr);
        this.drawRegion(context, tile, place, turn, dpr);
        this.drawCrosshair(context, tile, voxel, dpr);
        this.drawWords(context, tile, dpr);
        context.restore();
      }
    }

    drawLayer(context, layer, tile, place, turn, dpr) {
      const found = this.cached(layer, tile, place);
      if (!found) return;
      const moved = (path) => { const to = new Path2D(); to.addPath(path, turn); return to; };
      if (layer.fill) {
        context.globalAlpha = layer.fill;
        context.fillStyle = layer.colour;
        context.fill(moved(found.area));
        context.globalAlpha = 1;
      }
      const path = moved(found.outline), width = layer.width * Math.min(1, Math.max(0.55, Math.abs(tile.sx) / dpr / 5)); // thin where voxels are small
      context.lineCap = "square";
      context.setLineDash([]);
      context.strokeStyle = "rgb(0 0 0 / 0.45)"; // a dark rim: seen on bright ground too
      context.lineWidth = (width + 1.4) * dpr;
      context.stroke(path);
      context.setLineDash((layer.dash || []).map((length) => length * dpr));
      if (layer.dash) context.lineCap = "butt";
      context.strokeStyle = layer.colour;
      context.lineWidth = width * dpr;
      context.stroke(path);
      context.setLineDash([]);
    }

    drawRegion(context, tile, place, turn, dpr) {
      const region = this.view.picture.region;
      if (!region || place < region[tile.axis][0] || place >= region[tile.axis][1]) return;
      const [[a, b], [c, d]] = [region[tile.h], region[tile.v]];
      const from = turn.transformPoint(new DOMPoint(a, c)), to = turn.transformPoint(new DOMPoint(b, d));
      context.lineCap = "butt"; // whatever was drawn before
      context.setLineDash([2 * dpr, 5 * dpr]);
      context.strokeStyle = "rgb(255 255 255 / 0.5)";
      context.lineWidth = dpr;
      context.strokeRect(from.x, from.y, to.x - from.x, to.y - from.y);
      context.setLineDash([]);
    }

    drawCrosshair(context, tile, voxel, dpr) {
      const x = tile.x0 + tile.sx * (voxel[tile.h] + 0.5), y = tile.y0 + tile.sy * (voxel[tile.v] + 0.5);
      const gap = 14 * dpr, { left, top, width, height } = tile;
      context.strokeStyle = "rgb(120 220 160 / 0.55)";
      context.lineWidth = dpr;
      context.beginPath();
      for (const [x1, y1, x2, y2] of [
        [left, y, x - gap, y], [x + gap, y, left + width, y], [x, top, x, y - gap], [x, y + gap, x, top + height],
      ]) if (x2 > x1 || y2 > y1) { context.moveTo(x1, y1); context.lineTo(x2, y2); }
      context.stroke();
    }

    drawWords(context, tile, dpr) {
      const { picture } = this.view, { left, top, width, height } = tile, high = height > 80 * dpr; // else words would cover it
      context.font = `${12 * dpr}px system-ui, sans-serif`;
      context.fillStyle = "rgb(255 255 255 / 0.75)";
      context.shadowColor = "black";
      context.shadowBlur = 3 * dpr;
      context.textBaseline = "middle";
      const write = (text, x, y, align) => { context.textAlign = align; context.fillText(text, x, y); };
      if (picture.json.placed) {
        const [west, east, north, south] = LETTERS[tile.axis], turned = tile.axis === 2 && tile.sx < 0;
        write(turned ? east : west, left + 6 * dpr, top + height / 2, "left");
        write(turned ? west : east, left + width - 6 * dpr, top + height / 2, "right");
        if (high) write(north, left + width / 2, top + 10 * dpr, "center");
        if (high) write(south, left + width / 2, top + height - 10 * dpr, "center");
      }
      if (picture.knownSpacing && high) this.drawRuler(context, tile, dpr, write);
      context.shadowBlur = 0;
    }

    // a bar of a round length, about a fifth of the plane
    drawRuler(context, tile, dpr, write) {
      const pixelsPerMm = Math.abs(tile.sx) / this.view.picture.spacing[tile.h];
      const length = [1, 2, 5, 10, 20, 50, 100, 200].filter((mm) => mm * pixelsPerMm < tile.width / 4).pop();
      if (!length) return;
      const x = tile.left + 12 * dpr, y = tile.top + tile.height - 12 * dpr;
      context.fillRect(x, y, length * pixelsPerMm, 2 * dpr);
      write(`${length} mm`, x, y - 9 * dpr, "left");
    }
  }

  B.Outlines = Outlines;
})();

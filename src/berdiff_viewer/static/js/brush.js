// A brush to correct a mask on the shown slice. Strokes can be taken back; the mask is saved as another rater's, with
// the slices that this person looked at: those that were painted or erased in, and those marked as looked at.
(() => {
  "use strict";
  const B = window.berdiff, { $ } = B;
  const MAX_STROKES = 50; // that can be taken back

  class Brush {
    constructor(save) {
      Object.assign(this, { save, active: false, erase: false, strokes: [], version: 0 });
      $("brush-start").onclick = () => this.begin();
      $("brush-off").onclick = () => this.leave();
      $("brush-paint").onclick = () => this.setErase(false);
      $("brush-erase").onclick = () => this.setErase(true);
      $("brush-looked").onclick = () => this.look();
      $("brush-undo").onclick = () => this.undo();
      $("brush-save").onclick = () => this.save(this);
      $("brush-size").oninput = () => this.showSize();
      const canvas = $("lines");
      canvas.addEventListener("pointerdown", (event) => this.down(event));
      canvas.addEventListener("pointermove", (event) => this.stroke && this.paintAt(event));
      for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => this.up());
      canvas.addEventListener("wheel", (event) => { // slices, as without the brush
        if (!event.ctrlKey) { const [z, y, x] = B.view.voxel; B.view.voxel = [z - Math.sign(event.deltaY), y, x]; }
      }, { passive: true });
      this.showSize();
    }

    showSize() { $("brush-size").parentElement.querySelector("output").textContent = `${$("brush-size").value} px`; }

    get target() { return Math.max(0, B.state.target); }

    // from the mask that is shown; where none is, from the majority, or from nothing
    begin() {
      const { picture, state } = B, { json } = picture;
      this.box = picture.shape.map((side) => [0, side]);
      this.mask = new Uint8Array(B.volume(this.box));
      const shown = json.samples && (state.mask ? B.shownMask() : { m: json.majority });
      if (shown) B.paste(picture.mask(shown.m, this.target), picture.maskBox, this.mask, this.box);
      this.sample = shown ? shown.sample : undefined; // its number, for the note of what was corrected
      Object.assign(this, { active: true, strokes: [], slices: new Set() });
      this.k = this.target;
      if (picture.json.volume && state.view !== "axial") B.setView("axial");
      this.changed();
    }

    leave() {
      this.active = false;
      this.mask = null;
      this.changed();
    }

    setErase(erase) {
      this.erase = erase;
      $("brush-paint").setAttribute("aria-pressed", !erase);
      $("brush-erase").setAttribute("aria-pressed", erase);
    }

    down(event) {
      if (!this.active || event.button !== 0) return;
      $("lines").setPointerCapture(event.pointerId);
      this.stroke = { before: new Map(), slices: [] }; // place -> the value before; slices that it is the first in
      this.last = null;
      this.paintAt(event);
    }

    up() {
      if (this.stroke && this.stroke.before.size) this.strokes = [...this.strokes, this.stroke].slice(-MAX_STROKES);
      this.stroke = null;
    }

    paintAt(event) {
      const found = B.view.voxelAt(...B.pixel(event));
      if (!found || found.tile.axis !== 0) return;
      const [z, y, x] = found.voxel, [, py, px] = this.last && this.last[0] === z ? this.last : found.voxel;
      const steps = Math.max(1, Math.abs(y - py), Math.abs(x - px));
      for (let i = 0; i <= steps; i++) this.dab(z, Math.round(py + ((y - py) * i) / steps), Math.round(px + ((x - px) * i) / steps));
      this.last = found.voxel;
      this.changed();
    }

    // a disc `size` pixels across
    dab(z, y, x) {
      const [, height, width] = B.picture.shape, size = Number($("brush-size").value), r = (size - 1) / 2;
      for (let dy = -Math.ceil(r); dy <= r; dy++) for (let dx = -Math.ceil(r); dx <= r; dx++) {
        const row = y + dy, column = x + dx;
        if (dy * dy + dx * dx > r * r + 0.25 || row < 0 || column < 0 || row >= height || column >= width) continue;
        const at = (z * height + row) * width + column, value = this.erase ? 0 : 1;
        if (this.mask[at] === value) continue;
        if (!this.stroke.before.has(at)) this.stroke.before.set(at, this.mask[at]);
        if (!this.slices.has(z)) this.stroke.slices.push(z);
        this.slices.add(z);
        this.mask[at] = value;
      }
    }

    undo() {
      const stroke = this.strokes.pop();
      if (!stroke) return;
      for (const [at, value] of stroke.before) this.mask[at] = value;
      for (const z of stroke.slices) this.slices.delete(z);
      this.changed();
    }

    // The shown slice: looked at, or after all not
    look() {
      const [z] = B.view.voxel;
      const painted = this.strokes.some((stroke) => stroke.slices.includes(z)); // undo takes it back, not this
      if (!painted && !this.slices.delete(z)) this.slices.add(z);
      this.refresh();
    }

    refresh() {
      if (!this.active) return;
      $("brush-slices").hidden = !B.picture.json.volume;
      $("brush-looked").setAttribute("aria-pressed", this.slices.has(B.view.voxel[0]));
      $("brush-count").textContent = `${this.slices.size} of ${B.picture.shape[0]} slices`;
    }

    changed() {
      this.version++;
      $("lines").classList.toggle("brush", this.active);
      $("brush-tools").hidden = $("brush-off").hidden = !this.active;
      $("brush-start").hidden = this.active;
      this.refresh();
      B.redraw(false);
    }

    layer() {
      const key = `brush/${this.version}`; // a new key: what was drawn before is forgotten with the cache
      return { key, mask: this.mask, box: this.box, colour: "#ff6bd6", width: 2.2, fill: 0.22, words: "your mask" };
    }
  }

  B.Brush = Brush;
})();

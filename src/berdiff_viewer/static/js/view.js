// NiiVue behind a small door: the image and one coloured layer in planes and in 3D, and where a voxel is on the canvas.
(() => {
  "use strict";
  const B = window.berdiff;
  const { Niivue, NVImage, SLICE_TYPE, DRAG_MODE } = window.niivue;
  const VIEWS = {
    axial: SLICE_TYPE.AXIAL, coronal: SLICE_TYPE.CORONAL, sagittal: SLICE_TYPE.SAGITTAL,
    all: SLICE_TYPE.MULTIPLANAR, "3d": SLICE_TYPE.RENDER,
  };
  // The array's axes across and down an axial, a coronal, a sagittal plane, which cuts across the axis 0, 1, 2
  const HORIZONTAL = [2, 2, 1], VERTICAL = [1, 0, 0];

  class View {
    constructor(canvas) {
      this.canvas = canvas;
      this.afterDraw = () => {};
      this.nv = new Niivue({
        logLevel: "silent", dragAndDropEnabled: false, loadingText: "", backColor: [0, 0, 0, 1], crosshairWidth: 0,
        isOrientationTextVisible: false, isRadiologicalConvention: true, isForceMouseClickToVoxelCenters: true,
        isColorbar: false,
        viewModeHotKey: "", clipPlaneHotKey: "", cycleClipPlaneHotKey: "", isAntiAlias: true, show3Dcrosshair: false,
        mouseEventConfig: {
          leftButton: { primary: DRAG_MODE.crosshair, withShift: DRAG_MODE.pan, withCtrl: DRAG_MODE.windowing },
          rightButton: DRAG_MODE.windowing, centerButton: DRAG_MODE.pan,
        },
      });
    }

    async start() {
      await this.nv.attachToCanvas(this.canvas);
      const draw = this.nv.drawScene.bind(this.nv);
      this.nv.drawScene = () => {
        if (this.hold) return ""; // while much changes: it is drawn once, at the end
        if (this.name === "all") this.nv.customLayout = this.layout();
        const words = draw();
        this.afterDraw();
        return words;
      };
    }

    // Another picture or channel, with an empty layer over it. What is shown already is not loaded again.
    async show(picture, channel, window) {
      const same = this.picture && this.picture.channels === picture.channels && channel === this.channel;
      Object.assign(this, { picture, channel });
      const keep = same ? 1 : 0;
      while (this.nv.volumes.length > keep) this.nv.removeVolume(this.nv.volumes[this.nv.volumes.length - 1]);
      if (!same) {
        this.base = await this.load(picture.channels[channel], picture.box, picture.top > 255 ? "uint16" : "uint8");
        Object.assign(this.base, { cal_min: window[0] * picture.top, cal_max: window[1] * picture.top });
        this.nv.addVolume(this.base);
      }
      this.layer = null;
      if (picture.counts) {
        this.layer = await this.load(new Uint8Array(4 * B.volume(picture.layerBox)), picture.layerBox, "rgba");
        this.nv.addVolume(this.layer);
      }
    }

    load(array, box, type) {
      return NVImage.new(B.nifti(array, box, this.picture.spacing, type), "image.nii", "gray", 1);
    }

    // rgba (z, y, x, 4) of the layer's box
    setLayer(rgba) {
      this.layer.img.set(rgba);
      this.nv.refreshLayers(this.layer, 1);
      this.nv.drawScene();
    }

    // [low, high] as shares of the image's range
    setWindow([low, high]) {
      Object.assign(this.base, { cal_min: low * this.picture.top, cal_max: high * this.picture.top });
      this.nv.refreshLayers(this.base, 0);
      if (this.layer) this.nv.refreshLayers(this.layer, 1);
      this.nv.drawScene();
    }

    get window() { return [this.base.cal_min / this.picture.top, this.base.cal_max / this.picture.top]; }

    setView(name) {
      this.name = name;
      this.nv.customLayout = name === "all" ? this.layout() : null;
      this.nv.setSliceType(VIEWS[name]);
    }

    // The axial plane large; the others and 3D beside it, or in a high window below it
    layout() {
      const { clientWidth: width, clientHeight: height } = this.canvas, wide = width > height;
      const [big, third, gap] = [0.64, 1 / 3, 0.006];
      const small = (sliceType, i) => {
        const [along, across] = [i * third + (i ? gap : 0), third - (i ? gap : 0)];
        return { sliceType, position: wide ? [big + gap, along, 1 - big - gap, across] : [along, big + gap, across, 1 - big - gap] };
      };
      const axial = { sliceType: SLICE_TYPE.AXIAL, position: wide ? [0, 0, big, 1] : [0, 0, 1, big] };
      return [axial, ...[SLICE_TYPE.CORONAL, SLICE_TYPE.SAGITTAL, SLICE_TYPE.RENDER].map(small)];
    }

    setSmooth(smooth) {
      if (this.nv.opts.isNearestInterpolation === smooth) this.nv.setInterpolation(!smooth);
    }

    // relative, around the crosshair; 0 takes it back
    zoom(factor) {
      if (!factor) return this.nv.setPan2Dxyzmm([0, 0, 0, 1]);
      const [z, y, x] = this.voxel, [dz, dy, dx] = this.picture.spacing, [px, py, pz, now] = this.nv.scene.pan2Dxyzmm;
      const next = Math.min(20, Math.max(0.5, now * factor));
      const kept = (pan, at) => pan + at * (now - next); // at: mm of the crosshair on NiiVue's grid
      return this.nv.setPan2Dxyzmm([kept(px, -dx * x), kept(py, -dy * y), kept(pz, dz * z), next]);
    }

    // --- voxels (slice, row, column) of the whole image, and the canvas in its own pixels -----------------------------

    get sides() { return B.sides(this.picture.box); }

    get voxel() {
      return this.edges([...this.nv.scene.crosshairPos]).map((e, axis) => {
        const [first, last] = this.picture.box[axis];
        return Math.min(last - 1, Math.max(first, Math.floor(e + 1e-6)));
      });
    }

    set voxel(voxel) {
      const [z, y, x] = voxel.map((v, axis) => Math.min(this.sides[axis] - 1, Math.max(0, v - this.picture.box[axis][0])));
      const [nz, ny, nx] = this.sides;
      this.nv.scene.crosshairPos = [1 - (x + 0.5) / nx, 1 - (y + 0.5) / ny, (z + 0.5) / nz];
      this.nv.drawScene();
    }

    // NiiVue's fractions (to the right, to the front, up) -> edges of the array: voxel v lies from v to v + 1
    edges([fx, fy, fz]) {
      const [nz, ny, nx] = this.sides, [[z], [y], [x]] = this.picture.box;
      return [z + fz * nz, y + (1 - fy) * ny, x + (1 - fx) * nx];
    }

    // The planes on the canvas: which one, where, and the straight way from edges to pixels
    tiles() {
      return this.nv.screenSlices.flatMap((slice, i) => {
        if (slice.axCorSag > 2 || !slice.leftTopWidthHeight[2]) return [];
        let [left, top, width, height] = slice.leftTopWidthHeight;
        if (width < 0) [left, width] = [left + width, -width];
        const point = (f) => {
          const frac = this.nv.screenXY2TextureFrac(left + f * width, top + f * height, i, false);
          return this.edges(frac);
        };
        const a = point(0.25), b = point(0.75), axis = slice.axCorSag;
        const h = HORIZONTAL[axis], v = VERTICAL[axis];
        const sx = (0.5 * width) / (b[h] - a[h]), sy = (0.5 * height) / (b[v] - a[v]);
        const x0 = left + 0.25 * width - sx * a[h], y0 = top + 0.25 * height - sy * a[v];
        return [{ axis, h, v, left, top, width, height, sx, sy, x0, y0 }];
      });
    }

    // pixels of the canvas -> {voxel, tile}, null outside of the image
    voxelAt(x, y) {
      const over = (t) => x >= t.left && x < t.left + t.width && y >= t.top && y < t.top + t.height;
      const tile = this.picture && this.tiles().find(over);
      if (!tile) return null;
      const edges = this.voxel.map((v) => v + 0.5);
      edges[tile.h] = (x - tile.x0) / tile.sx;
      edges[tile.v] = (y - tile.y0) / tile.sy;
      const inside = edges.every((e, axis) => e >= this.picture.box[axis][0] && e < this.picture.box[axis][1]);
      return inside ? { voxel: edges.map(Math.floor), tile } : null;
    }

    // the middle of a voxel in one of the planes, in pixels of the canvas
    canvasOf(voxel, axis = 0) {
      const tile = this.tiles().find((t) => t.axis === axis);
      return tile && [tile.x0 + tile.sx * (voxel[tile.h] + 0.5), tile.y0 + tile.sy * (voxel[tile.v] + 0.5)];
    }
  }

  B.View = View;
})();

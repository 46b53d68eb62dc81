// A document as arrays: the image, the counts behind the saliency, and the masks, which stay bits until one is shown.
// Axes are those of the array, (slice, row, column); a 2D image has one slice. Places are voxels of the whole image.
window.berdiff = {};
(() => {
  "use strict";
  const B = window.berdiff;
  const MAX_UNPACKED = 2 ** 27; // bytes
  const TYPES = { uint8: Uint8Array, uint16: Uint16Array };

  async function bytesOf(text) {
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  }

  B.packBytes = async (bytes) => {
    const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream("gzip"));
    const packed = new Uint8Array(await new Response(stream).arrayBuffer());
    let text = "";
    for (let i = 0; i < packed.length; i += 32768) text += String.fromCharCode(...packed.subarray(i, i + 32768));
    return btoa(text);
  };

  const three = (list, first) => (list.length === 3 ? list : [first, ...list]);
  const sides = (box) => box.map(([first, last]) => last - first);
  const volume = (box) => sides(box).reduce((a, b) => a * b, 1);

  // The rows of an array of `box` into one of a larger box; `n` values per voxel
  B.paste = (part, [[z0, z1], [y0, y1], [x0, x1]], whole, within, n = 1) => {
    const [, height, width] = sides(within), [[az], [ay], [ax]] = within, row = n * (x1 - x0);
    for (let z = z0, from = 0; z < z1; z++) for (let y = y0; y < y1; y++, from += row) {
      whole.set(part.subarray(from, from + row), n * (((z - az) * height + y - ay) * width + x0 - ax));
    }
    return whole;
  };

  class Picture {
    constructor(json) {
      this.json = json;
      this.shape = three(json.shape, 1);
      this.spacing = three(json.spacing_mm, 1).map((mm) => mm || 1);
      this.knownSpacing = json.spacing_mm.every((mm) => mm !== null);
      this.start = three(json.start, 0);
      this.region = json.region && three(json.region, [0, 1]);
      this.box = json.image && three(json.image.box, [0, 1]);
      this.maskBox = three(json.masks.box, [0, 1]);
      // of the coloured layer: one empty voxel around the masks' box, as graphics cards repeat an edge up to the image's end
      this.layerBox = this.maskBox.map(([first, last], axis) => [Math.max(0, first - 1), Math.min(this.shape[axis], last + 1)]);
      this.unpacked = new Map();
    }

    // `like` is the picture on the page, whose image a document without one shows
    static async open(json, like) {
      const picture = new Picture(json);
      if (json.image) {
        const values = new TYPES[json.image.dtype](await bytesOf(json.image.data));
        const size = volume(picture.box);
        picture.top = json.image.top;
        picture.channelNames = json.image.channels;
        picture.channels = json.image.channels.map((_, c) => values.subarray(c * size, (c + 1) * size));
      } else {
        Object.assign(picture, { box: like.box, top: like.top, channels: like.channels, channelNames: like.channelNames });
      }
      picture.bits = new Uint8Array(await bytesOf(json.masks.data));
      if (json.saliency) {
        const counts = new TYPES[json.saliency.dtype](await bytesOf(json.saliency.data));
        const size = volume(picture.maskBox);
        picture.counts = json.targets.map((_, k) => counts.subarray(k * size, (k + 1) * size));
      }
      return picture;
    }

    get targets() { return this.json.targets || []; }

    // 0 and 1 in the masks' box
    mask(m, k) {
      return this.remembered(`${m}/${k}`, (size) => {
        const from = (m * this.json.masks.targets + k) * Math.ceil(size / 8), mask = new Uint8Array(size);
        for (let i = 0; i < size; i++) mask[i] = (this.bits[from + (i >> 3)] >> (7 - (i & 7))) & 1;
        return mask;
      });
    }

    // where more than this share of the samples mark target k
    levelMask(k, level) {
      const most = level * this.json.saliency.of + 1e-9;
      return this.remembered(`level/${k}/${level}`, () => Uint8Array.from(this.counts[k], (count) => (count > most ? 1 : 0)));
    }

    // of many masks the last ones: memory is bounded
    remembered(key, make) {
      const size = volume(this.maskBox);
      if (!this.unpacked.has(key)) {
        if (this.unpacked.size >= Math.max(8, MAX_UNPACKED / size)) this.unpacked.clear();
        this.unpacked.set(key, make(size));
      }
      return this.unpacked.get(key);
    }

    // the value at a voxel of an array of `box`; 0 outside
    at(array, box, [z, y, x]) {
      const [[z0, z1], [y0, y1], [x0, x1]] = box;
      if (z < z0 || z >= z1 || y < y0 || y >= y1 || x < x0 || x >= x1) return 0;
      return array[((z - z0) * (y1 - y0) + (y - y0)) * (x1 - x0) + (x - x0)];
    }

    share(k, voxel) { return this.at(this.counts[k], this.maskBox, voxel) / this.json.saliency.of; }

    // (slice, row, column) -> mm; null where that is not known
    mm([z, y, x]) {
      const affine = this.json.affine;
      return affine && affine.slice(0, 3).map(([a, b, c, d]) => a * x + b * y + c * z + d);
    }
  }

  // A NIfTI file whose axes are (column, row, slice): to the patient's left, to the back, up, as the arrays are. The true
  // place in space is the document's own matter, so that no viewer's idea of an oblique scan turns the picture.
  B.nifti = (array, box, spacing, type) => {
    const [z, y, x] = sides(box);
    const [dz, dy, dx] = spacing;
    const file = new Uint8Array(352 + array.byteLength);
    const head = new DataView(file.buffer);
    head.setInt32(0, 348, true);
    [3, x, y, z, 1, 1, 1, 1].forEach((n, i) => head.setInt16(40 + 2 * i, n, true));
    const [code, bitsPerVoxel] = { uint8: [2, 8], uint16: [512, 16], rgba: [2304, 32] }[type];
    head.setInt16(70, code, true);
    head.setInt16(72, bitsPerVoxel, true);
    [1, dx, dy, dz, 1, 1, 1, 1].forEach((mm, i) => head.setFloat32(76 + 4 * i, mm, true));
    head.setFloat32(108, 352, true);
    head.setFloat32(112, 1, true);
    head.setUint8(123, 2);
    head.setInt16(254, 1, true); // an s-form
    const rows = [[-dx, 0, 0, -dx * box[2][0]], [0, -dy, 0, -dy * box[1][0]], [0, 0, dz, dz * box[0][0]]];
    rows.flat().forEach((value, i) => head.setFloat32(280 + 4 * i, value, true));
    [0x6e, 0x2b, 0x31].forEach((byte, i) => head.setUint8(344 + i, byte));
    file.set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), 352);
    return file.buffer;
  };

  Object.assign(B, { Picture, sides, volume });
})();

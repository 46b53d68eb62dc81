// What is shown: the state, and from it the coloured layer, the outlines and the legend.
(() => {
  "use strict";
  const B = window.berdiff;
  const ALL = -1; // of targets
  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

  B.state = {
    target: 0, channel: 0, view: "all", window: [0, 1], smooth: true,
    saliency: true, level: 0.05, opacity: 0.55, contours: true,
    mask: false, sample: 1, representative: null, raters: [],
  };

  B.shownTargets = () => {
    const targets = B.picture.targets;
    return B.state.target === ALL ? targets.map((_, k) => k) : targets.length ? [B.state.target] : [];
  };

  // The number of the mask that is shown among all of the document's masks, and its words
  B.shownMask = () => {
    const { json } = B.picture, { representative, sample } = B.state;
    if (!json.samples) return null;
    if (representative !== null) {
      const found = json.representatives[representative];
      return { m: found.mask, sample: found.sample, words: `representative mask ${representative + 1}: ${found.words} of the samples are nearest to it` };
    }
    const known = json.samples.of === json.samples.pool; // else a chosen one, of another number among all
    return { m: sample - 1, sample: known ? sample : undefined, words: `sample ${sample} of ${json.samples.count}` };
  };

  const mixed = (colours, t) => {
    const place = t * (colours.length - 1), i = Math.min(colours.length - 2, Math.floor(place)), f = place - i;
    return colours[i].map((value, c) => Math.round((1 - f) * value + f * colours[i + 1][c]));
  };
  B.mixed = mixed;

  // The saliency as colours: one target by its share, several each in its own colour, one over the other
  function compose() {
    const { picture, state } = B, { of, colours } = picture.json.saliency;
    const rgba = new Uint8Array(4 * B.volume(picture.maskBox));
    const several = picture.targets.length > 1;
    for (const k of B.shownTargets()) {
      const own = rgb(picture.targets[k].colour), counts = picture.counts[k];
      const table = Array.from({ length: of + 1 }, (_, count) => {
        const share = count / of;
        const seen = count > 0 && share >= state.level - 1e-9;
        const alpha = seen ? state.opacity * (several ? 0.25 + 0.75 * share : 0.5 + 0.5 * share) : 0;
        return [...(several ? own : mixed(colours, 0.25 + 0.75 * share)), 255 * alpha];
      });
      for (let i = 0; i < counts.length; i++) {
        if (!counts[i]) continue;
        const [r, g, b, a] = table[counts[i]];
        if (!a) continue;
        const under = rgba[4 * i + 3] * (1 - a / 255), out = a + under;
        rgba[4 * i] = (r * a + rgba[4 * i] * under) / out;
        rgba[4 * i + 1] = (g * a + rgba[4 * i + 1] * under) / out;
        rgba[4 * i + 2] = (b * a + rgba[4 * i + 2] * under) / out;
        rgba[4 * i + 3] = out;
      }
    }
    return B.paste(rgba, picture.maskBox, new Uint8Array(4 * B.volume(picture.layerBox)), picture.layerBox, 4);
  }

  function outlines() {
    const { picture, state } = B, { json, maskBox: box } = picture, layers = [], targets = B.shownTargets();
    const several = picture.targets.length > 1;
    if (json.samples && state.contours) {
      for (const k of targets) {
        if (state.target === ALL) {
          const { name, colour } = picture.targets[k];
          layers.push({ key: `majority/${k}`, mask: picture.mask(json.majority, k), box, colour, width: 1.6, words: `${name}: majority` });
          continue;
        }
        json.levels.forEach((level, i) => {
          const mask = picture.levelMask(k, level);
          const colour = picture.targets[k].levels[i];
          layers.push({ key: `level/${k}/${i}`, mask, box, colour, width: 1.6, words: `more than ${100 * level} % of the samples` });
        });
      }
    }
    const shown = state.mask && B.shownMask();
    if (shown) {
      for (const k of targets) {
        const { name, mask: colour } = picture.targets[k], words = several ? `${name}: ${shown.words}` : shown.words;
        layers.push({ key: `mask/${shown.m}/${k}`, mask: picture.mask(shown.m, k), box, colour, width: 2.4, fill: 0.16, words });
      }
    }
    for (const r of state.raters) {
      const rater = json.raters[r];
      for (const k of picture.targets.length ? targets : [0]) {
        const colour = rater.colour || picture.targets[k].colour;
        layers.push({ key: `rater/${r}/${k}`, mask: picture.mask(rater.mask, k), box, colour, width: 2, dash: [5, 4], words: rater.name });
      }
    }
    return B.brush && B.brush.active ? [...layers, B.brush.layer()] : layers;
  }

  function legend(layers) {
    const words = [...new Map(layers.map((layer) => [`${layer.words}/${layer.colour}`, layer])).values()];
    const kind = ({ dash, fill }) => (dash ? "dashed" : fill ? "filled" : "line");
    B.$("legend").replaceChildren(...words.map((layer) => B.element("li", {}, B.swatch(layer.colour, kind(layer)), layer.words)));
  }

  // Draw anew what depends on the state. `layer`: the coloured layer too.
  B.redraw = (layer = true) => {
    if (!B.picture) return;
    const { state, view } = B;
    B.outlines.layers = outlines();
    legend(B.outlines.layers);
    if (layer && B.picture.counts) {
      const rgba = state.saliency ? compose() : new Uint8Array(4 * B.volume(B.picture.layerBox));
      view.setLayer(rgba);
    } else {
      view.nv.drawScene();
    }
  };

  B.ALL = ALL;
})();

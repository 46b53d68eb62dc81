// The keyboard, and the page that explains it.
(() => {
  "use strict";
  const B = window.berdiff, { $ } = B;

  const step = (by) => {
    const { count } = B.picture.json.samples || {};
    if (count) B.set({ sample: ((B.state.sample - 1 + by + count) % count) + 1, representative: null, mask: true }, false);
  };
  const slice = (by) => {
    const tile = { coronal: 1, sagittal: 2 }[B.state.view] || 0;
    const voxel = B.view.voxel;
    voxel[tile] += by;
    B.view.voxel = voxel;
  };
  const toggle = (name, layer) => B.picture.json.samples && B.set({ [name]: !B.state[name] }, layer);
  const target = () => {
    const count = B.picture.targets.length;
    if (count > 1) B.set({ target: B.state.target + 1 < count ? B.state.target + 1 : B.ALL });
  };
  const view = () => {
    const names = ["all", "axial", "coronal", "sagittal", "3d"];
    if (B.picture.json.volume) B.setView(names[(names.indexOf(B.state.view) + 1) % names.length]);
  };
  const raters = () => {
    const { raters: all } = B.picture.json;
    B.set({ raters: B.state.raters.length ? [] : all.map((_, r) => r) }, false);
  };
  const representative = (i) => {
    const found = (B.picture.json.representatives || [])[i];
    if (found) B.set({ representative: i, mask: true }, false);
  };

  const KEYS = [
    ["ArrowLeft", "←", "previous sample", () => step(-1)],
    ["ArrowRight", "→", "next sample", () => step(1)],
    ["ArrowUp", "↑", "next slice", () => slice(1)],
    ["ArrowDown", "↓", "previous slice", () => slice(-1)],
    ["s", "S", "saliency", () => toggle("saliency", true)],
    ["c", "C", "contours", () => toggle("contours", false)],
    ["m", "M", "mask", () => toggle("mask", false)],
    ["r", "R", "raters", raters],
    ["t", "T", "next target", target],
    ["v", "V", "next view of a volume", view],
    ["w", "W", "reset window and level", () => B.setWindow([0, 1])],
    ["i", "I", "smooth or single pixels", () => B.setSmooth(!B.state.smooth)],
    ["+", "+", "zoom in", () => B.view.zoom(1.25)],
    ["-", "-", "zoom out", () => B.view.zoom(0.8)],
    ["0", "0", "zoom back", () => B.view.zoom(0)],
    ["?", "?", "this help", () => help()],
  ];
  const MOUSE = [
    ["1 to 9", "representative mask"], ["click", "move the crosshair"], ["wheel", "slices"], ["Ctrl + wheel", "zoom"],
    ["Shift + drag", "move the image"], ["right drag", "window (across) and level (up)"], ["drag in 3D", "turn"],
  ];
  const LIVE = [
    ["Enter", "segment at the crosshair"], ["click", "segment there, where this is switched on"],
    ["Z", "undo a stroke of the brush"], ["L", "with the brush: this slice was looked at"],
  ];

  function help() {
    const dialog = $("help");
    if (dialog.open) return dialog.close();
    const rows = [...KEYS.map(([, key, words]) => [key, words]), ...MOUSE, ...(B.live ? LIVE : [])];
    $("keys").replaceChildren(...rows.flatMap(([key, words]) => {
      const term = B.element("dt", {}, B.element("kbd", { textContent: key }));
      return [term, B.element("dd", { textContent: words })];
    }));
    return dialog.showModal();
  }

  B.listenToKeys = () => {
    $("help-button").onclick = help;
    $("help-close").onclick = () => $("help").close();
    window.addEventListener("keydown", (event) => {
      const typing = event.target.matches("input:not([type=range]):not([type=checkbox]), select, textarea");
      if (typing || event.ctrlKey || event.metaKey || event.altKey || ($("help").open && event.key !== "?")) return;
      const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
      const found = KEYS.find(([name]) => name === key);
      const own = event.target.matches("input[type=range]") ? key.startsWith("Arrow") : key === "Enter" && event.target.matches("button, a");
      if (own) return; // a slider has its own arrows, and a button its Enter
      if (key === "?") help();
      else if (!B.picture) return;
      else if (found) found[3]();
      else if (/^[1-9]$/.test(key)) representative(Number(key) - 1);
      else if (!B.live || !B.live.key(key)) return;
      event.preventDefault();
      event.stopImmediatePropagation(); // NiiVue has keys of its own
    }, true);
  };
})();

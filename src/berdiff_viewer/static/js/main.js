// The page comes alive: read the document, show it, and keep canvas, controls and crosshair together.
(() => {
  "use strict";
  const B = window.berdiff, { $, state } = B;

  B.message = (words, good = false) => {
    $("message").textContent = words;
    $("message").classList.toggle("good", good);
    $("message").hidden = !words;
  };

  B.setWindow = (window) => {
    const [low, high] = window;
    state.window = high - low > 0.005 ? window : [low, low + 0.005];
    B.view.setWindow(state.window);
    B.panel.refresh();
  };
  B.setSmooth = (smooth) => { state.smooth = smooth; B.view.setSmooth(smooth); B.panel.refresh(); };
  B.setView = (name) => { state.view = name; B.view.setView(name); B.panel.refresh(); };
  // Many changes, drawn once
  const atOnce = async (change) => {
    B.view.hold = true;
    try {
      await change();
    } finally {
      B.view.hold = false;
    }
    B.redraw();
  };

  B.setChannel = async (channel) => {
    const voxel = B.view.voxel;
    state.channel = channel;
    await atOnce(async () => {
      await B.view.show(B.picture, channel, state.window);
      B.view.voxel = voxel;
    });
    B.panel.refresh();
  };

  // Another document. Of the image that is shown already, place, window and layers stay as they are.
  B.show = async (json) => {
    const before = B.picture, same = before && !json.image;
    const picture = await B.Picture.open(json, before);
    const voxel = same ? B.view.voxel : picture.start, targets = picture.targets.length;
    B.picture = picture;
    B.outlines.cache.clear();
    Object.assign(state, { sample: 1, representative: null, raters: [] });
    if (!same || !before.targets.length || state.target >= targets) state.target = targets > 1 ? B.ALL : 0;
    if (!same) Object.assign(state, { channel: json.channel, window: [0, 1], view: json.volume ? "all" : "axial", mask: false });
    await atOnce(async () => {
      await B.view.show(picture, state.channel, state.window);
      if (!same) {
        B.view.zoom(0);
        B.view.setView(state.view);
        B.view.setSmooth(state.smooth);
      }
      B.view.voxel = voxel;
      B.panel.build();
    });
  };

  // pixels of the canvas under the mouse
  B.pixel = (event) => {
    const box = B.view.canvas.getBoundingClientRect(), ratio = B.view.canvas.width / box.width;
    return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
  };

  function listenToMouse() {
    const frame = $("frame");
    frame.addEventListener("pointermove", (event) => {
      if (!B.picture) return;
      const found = B.view.voxelAt(...B.pixel(event));
      B.panel.refreshPlace(found && found.voxel);
    });
    frame.addEventListener("pointerleave", () => B.picture && B.panel.refreshPlace());
    frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey || !B.picture) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      B.view.zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1);
    }, { capture: true, passive: false });
  }

  async function begin() {
    B.view = new B.View($("gl"));
    B.outlines = new B.Outlines($("lines"), B.view);
    await B.view.start();
    B.view.afterDraw = () => {
      B.outlines.draw();
      if (B.picture) B.panel.refreshPlace();
      if (B.brush) B.brush.refresh();
    };
    B.view.nv.onIntensityChange = () => { // by the mouse
      state.window = B.view.window;
      B.panel.refresh();
    };
    B.panel.listen();
    B.listenToKeys();
    listenToMouse();
    const json = JSON.parse($("document").textContent);
    if (json.mode === "live") B.live = await B.startLive(json);
    if (json.image) await B.show(json);
    document.body.dataset.ready = "yes";
  }

  // For tests and for whoever scripts the page
  B.hooks = {
    voxel: () => B.view.voxel,
    moveTo: (voxel) => { B.view.voxel = voxel; },
    canvasOf: (voxel, axis = 0) => {
      const at = B.view.canvasOf(voxel, axis), box = B.view.canvas.getBoundingClientRect();
      const ratio = B.view.canvas.width / box.width;
      return at && [box.left + at[0] / ratio, box.top + at[1] / ratio];
    },
    voxelAt: (x, y) => {
      const found = B.view.voxelAt(...B.pixel({ clientX: x, clientY: y }));
      return found && found.voxel;
    },
    state: () => ({ ...state }),
    mask: (m, k = 0) => Array.from(B.picture.mask(m, k)),
  };

  begin().catch((error) => {
    B.message(window.WebGL2RenderingContext ? `The image cannot be shown: ${error.message}` : "The image cannot be shown: this browser has no WebGL 2.");
    document.body.dataset.ready = "failed";
  });
})();

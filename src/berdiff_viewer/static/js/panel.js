// The controls beside the image. Everything from the document becomes text, never markup.
(() => {
  "use strict";
  const B = window.berdiff;
  const $ = (id) => document.getElementById(id);
  const element = (tag, props = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), props);
    made.append(...children);
    return made;
  };
  const percent = (share) => `${Math.round(100 * share)} %`;
  const swatch = (colour, kind = "line") => {
    const made = element("i", { className: kind });
    made.style.setProperty("--colour", colour);
    return made;
  };

  // Change the state, then what follows from it
  B.set = (changes, layer = true) => {
    Object.assign(B.state, changes);
    B.redraw(layer);
    refresh();
  };

  function build() {
    const { json } = B.picture, result = Boolean(json.samples);
    Object.assign($("name"), { textContent: json.name || "berdiff viewer", title: json.name });
    $("about").textContent = json.settings;
    for (const id of ["saliency", "contour", "mask", "measurement"]) $(`${id}-section`).hidden = !result;
    $("image-section").hidden = false;
    $("rater-section").hidden = !json.raters.length;
    $("target-section").hidden = B.picture.targets.length < 2;
    $("views").hidden = $("slice-field").hidden = !json.volume;
    const [first, last] = B.picture.box[0];
    Object.assign($("slice"), { min: first, max: last - 1 });
    $("channel-field").hidden = B.picture.channelNames.length < 2;
    $("channel").replaceChildren(...B.picture.channelNames.map((name, c) => element("option", { value: c, textContent: name })));
    const warnings = (json.warnings || []).map((words) => element("li", { className: "warning", textContent: `Warning: ${words}` }));
    const details = Object.entries(json.details || {}).map(([what, text]) => `${what} ${text}`).join("; ");
    $("notes").replaceChildren(...warnings, ...[...notes(json), ...(details ? [details] : [])].map((note) => element("li", { textContent: note })));
    if (result) buildResult(json);
    $("raters").replaceChildren(...json.raters.map((rater, r) => {
      const box = element("input", { type: "checkbox" });
      box.dataset.rater = r;
      box.onchange = () => B.set({ raters: json.raters.map((_, i) => i).filter((i) => (i === r ? box.checked : B.state.raters.includes(i))) }, false);
      return element("li", {}, element("label", { className: "check" }, box, swatch(rater.colour || "#888888", "dashed"), rater.name));
    }));
    refresh();
  }

  function notes(json) {
    const parts = json.notes.map((note) => note[0].toUpperCase() + note.slice(1));
    const crop = B.picture.box.some(([first, last], axis) => last - first < B.picture.shape[axis]);
    if (crop) {
      const ranges = B.picture.box.map(([first, last]) => `${first} to ${last - 1}`);
      const [z, y, x] = ranges;
      parts.unshift(`A part of the image is shown: ${json.volume ? `slices ${z}, ` : ""}rows ${y}, columns ${x} of ${B.picture.shape.slice(json.volume ? 0 : 1).join(" x ")}`);
    }
    if (json.samples && json.samples.count < json.samples.of) {
      parts.push(`The first ${json.samples.count} of ${json.samples.of} masks are in this page; saliency and measurements are of all ${json.samples.pool}`);
    }
    return parts;
  }

  function buildResult(json) {
    const choices = json.targets.map((target, k) => [k, target.name, target.colour]);
    if (json.targets.length > 1) choices.unshift([B.ALL, "all", null]);
    $("targets").replaceChildren(...choices.map(([k, name, colour]) => {
      const button = element("button", { type: "button" }, ...(colour ? [swatch(colour, "filled")] : []), name);
      button.dataset.target = k;
      button.onclick = () => B.set({ target: k });
      return button;
    }));
    $("rule").textContent = json.kind ? `${json.kind}: ${json.rule}` : "";
    Object.assign($("sample"), { max: json.samples.count });
    $("representatives").replaceChildren(...json.representatives.map((found, i) => {
      const button = element("button", { type: "button", title: `Sample ${found.sample}; the nearest one to ${found.words} of all samples` },
        element("b", { textContent: found.words }), element("span", { textContent: `mask ${i + 1}` }), element("kbd", { textContent: i + 1 }));
      button.style.setProperty("--share", found.share);
      button.dataset.representative = i;
      button.onclick = () => B.set({ representative: B.state.mask && B.state.representative === i ? null : i, mask: true }, false);
      return button;
    }));
    const bar = $("scale-bar").getContext("2d");
    for (let x = 0; x < 256; x++) {
      bar.fillStyle = `rgb(${B.mixed(json.saliency.colours, 0.25 + (0.75 * x) / 255).join(" ")})`;
      bar.fillRect(x, 0, 1, 1);
    }
    $("scale").hidden = json.targets.length > 1;
  }

  function buildLevels(json) {
    const all = B.state.target === B.ALL;
    const rows = all
      ? json.targets.map((target) => [target.colour, target.name])
      : json.levels.map((level, i) => [json.targets[B.state.target].levels[i], `more than ${percent(level)}`]);
    $("level-words").textContent = !all ? "" : json.kind === "exclusive" ? "each where it is the likeliest class" : "each where more than half of the samples mark it";
    $("levels").replaceChildren(...rows.map(([colour, words]) => element("li", {}, swatch(colour), words)));
  }

  function buildMeasurements(json) {
    $("measurements").replaceChildren(...B.shownTargets().map((k) => {
      const { marked_by: markedBy, empty, raters_finding: found, rows } = json.measurements[k];
      const table = element("table", {}), raters = json.raters.length > 0;
      table.dataset.target = json.targets[k].name;
      if (json.targets.length > 1) table.append(element("caption", {}, swatch(json.targets[k].colour, "filled"), json.targets[k].name));
      const line = (tag, ...cells) => element("tr", {}, ...cells.map((text, i) => element(i ? tag : "th", { textContent: text })));
      table.append(line("td", "marked by", markedBy), line("td", "nothing by", empty), line("th", "among samples that mark it", "median", "5 %", "95 %"));
      for (const { what, unit, low, median, high } of rows) table.append(line("td", `${what}, ${unit}`, median, low, high));
      for (const row of [table.rows[0], table.rows[1]]) {
        row.className = "finding";
        row.cells[1].colSpan = 3;
      }
      if (!raters) return table;
      const own = rows.map(({ what, raters }) => `${what} ${raters.join(", ")}`).join("; ");
      return element("div", {}, table, element("p", { className: "hint", textContent: `Raters: marked by ${found}; ${own}.` }));
    }), element("p", { className: "hint", textContent: `Marked by: ${json.marked_means}.` }));
  }

  // What the controls say follows the state, whoever changed it
  function refresh() {
    const { state, picture } = B, { json } = picture;
    document.querySelectorAll("[data-view]").forEach((b) => b.setAttribute("aria-pressed", b.dataset.view === state.view));
    $("channel").value = state.channel;
    const [low, high] = state.window;
    slide("window-width", 100 * (high - low), percent(high - low));
    slide("window-level", 50 * (high + low), percent((high + low) / 2));
    $("smooth").checked = state.smooth;
    refreshPlace();
    const boxes = [...document.querySelectorAll("[data-rater]")];
    boxes.forEach((box) => { box.checked = state.raters.includes(Number(box.dataset.rater)); });
    Object.assign($("show-raters"), { checked: state.raters.length > 0, indeterminate: state.raters.length > 0 && state.raters.length < boxes.length });
    if (!json.samples) return;
    document.querySelectorAll("[data-target]").forEach((b) => b.setAttribute("aria-pressed", Number(b.dataset.target) === state.target));
    slide("level", 100 * state.level, percent(state.level));
    slide("opacity", 100 * state.opacity, percent(state.opacity));
    $("show-saliency").checked = state.saliency;
    $("show-contours").checked = state.contours;
    $("show-mask").checked = state.mask;
    $("sample").value = state.sample;
    $("sample-words").textContent = `sample ${state.sample} of ${json.samples.count}`;
    document.querySelectorAll("[data-representative]").forEach((b) =>
      b.setAttribute("aria-pressed", state.mask && Number(b.dataset.representative) === state.representative));
    buildLevels(json);
    buildMeasurements(json);
  }

  function slide(id, value, words) {
    $(id).value = value;
    $(id).parentElement.querySelector("output").textContent = words;
  }

  // The slice, and what is under the cursor (or under the crosshair, where the cursor is elsewhere)
  function refreshPlace(voxel) {
    const { picture, view } = B, { json } = picture, at = voxel || view.voxel;
    const number = (mm) => mm.toFixed(1);
    const mm = picture.mm(at), shown = json.volume ? at : at.slice(1), [first, last] = picture.box[0];
    if (json.volume) slide("slice", view.voxel[0], `${view.voxel[0]} (${first} to ${last - 1})`);
    const parts = [`${json.volume ? "slice, row, column" : "row, column"} ${shown.join(", ")}`];
    if (mm) parts.push(`${json.placed ? "R, A, S" : json.volume ? "x, y, z" : "x, y"} ${(json.volume || json.placed ? mm : mm.slice(0, 2)).map(number).join(", ")} mm`);
    parts.push(`value ${(picture.at(picture.channels[B.state.channel], picture.box, at) / picture.top).toFixed(2)}`);
    if (json.samples) for (const k of B.shownTargets()) {
      parts.push(`${picture.targets.length > 1 ? `${picture.targets[k].name} ` : "marked by "}${percent(picture.share(k, at))}`);
    }
    $("place").textContent = parts.join("  |  ");
    $("place").dataset.voxel = at.join(" ");
    $("place").dataset.mm = mm ? mm.join(" ") : "";
  }

  function listen() {
    const number = (id, name, layer = true) => { $(id).oninput = () => B.set({ [name]: Number($(id).value) / 100 }, layer); };
    const check = (id, name, layer) => { $(id).onchange = () => B.set({ [name]: $(id).checked }, layer); };
    number("level", "level");
    number("opacity", "opacity");
    check("show-saliency", "saliency", true);
    check("show-contours", "contours", false);
    check("show-mask", "mask", false);
    $("show-raters").onchange = () => B.set({ raters: $("show-raters").checked ? B.picture.json.raters.map((_, r) => r) : [] }, false);
    $("sample").oninput = () => B.set({ sample: Number($("sample").value), representative: null, mask: true }, false);
    $("slice").oninput = () => { const [, y, x] = B.view.voxel; B.view.voxel = [Number($("slice").value), y, x]; };
    $("channel").onchange = () => B.setChannel(Number($("channel").value));
    $("smooth").onchange = () => B.setSmooth($("smooth").checked);
    const windowed = () => {
      const width = $("window-width").value / 100, level = $("window-level").value / 100;
      B.setWindow([level - width / 2, level + width / 2]);
    };
    $("window-width").oninput = $("window-level").oninput = windowed;
    $("window-reset").onclick = () => B.setWindow([0, 1]);
    document.querySelectorAll("[data-view]").forEach((button) => { button.onclick = () => B.setView(button.dataset.view); });
  }

  Object.assign(B, { $, element, swatch, panel: { build, refresh, refreshPlace, listen } });
})();

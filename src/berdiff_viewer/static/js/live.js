// With a server: its images, a click that segments, progress, files to save, uploads, and a rater's mask by the brush.
(() => {
  "use strict";
  const B = window.berdiff, { $, element } = B;
  const POLL = 300; // ms between two looks at a job
  const CLICK = 4; // pixels: a press that moved farther was no click

  B.startLive = async ({ token }) => {
    const live = new Live(token);
    B.brush = new B.Brush((brush) => live.saveRater(brush));
    await live.attempt(() => live.loadState());
    live.listen();
    if (live.items.length) await live.open(live.items[0].id);
    return live;
  };

  class Live {
    constructor(token) {
      Object.assign(this, { token, items: [], models: [], item: null, job: null, shown: undefined });
    }

    // The answer's JSON. A refusal becomes an error with the server's sentence.
    async ask(path, method = "GET", body = undefined) {
      const headers = method === "GET" ? {} : { "X-Berdiff-Token": this.token };
      if (body && !(body instanceof FormData)) headers["Content-Type"] = "application/json";
      const content = body && !(body instanceof FormData) ? JSON.stringify(body) : body;
      let answer;
      try {
        answer = await fetch(path, { method, headers, body: content });
      } catch {
        throw new Error("The server does not answer; is it still running?");
      }
      const json = await answer.json().catch(() => ({}));
      if (!answer.ok) {
        const words = json.error || `The server refused: ${answer.status} ${answer.statusText}`;
        throw Object.assign(new Error(words), { status: answer.status });
      }
      return json;
    }

    // Whatever fails is one sentence on the page
    async attempt(action) {
      try {
        B.message("");
        return await action();
      } catch (error) {
        B.message(error.message);
        return undefined;
      }
    }

    async loadState() {
      const { models, items, corrections, limits = {} } = await this.ask("/api/state");
      Object.assign(this, { models, items, corrections });
      const chosen = $("model").value;
      $("model").replaceChildren(...models.map(({ name }) => element("option", { value: name, textContent: name })));
      if (models.some(({ name }) => name === chosen)) $("model").value = chosen;
      if (limits.samples) $("samples").max = limits.samples;
      this.chooseModel();
      this.listItems();
    }

    get model() { return this.models.find(({ name }) => name === $("model").value); }

    chooseModel() {
      const steps = this.model && this.model.sampler && this.model.sampler.steps;
      $("steps-field").hidden = !steps;
      $("steps").value = "";
      $("steps").placeholder = Array.isArray(steps) ? steps.length : steps || "";
    }

    listItems() {
      let group = "";
      $("items").replaceChildren(...this.items.flatMap((item) => {
        const heading = item.group && item.group !== group ? [element("li", { className: "group", textContent: item.group })] : [];
        group = item.group;
        const button = element("button", { type: "button", title: item.name }, item.title || item.name, element("small", { textContent: `${item.kind}, ${item.shape.join(" x ")}` }));
        button.dataset.item = item.id;
        button.onclick = () => this.open(item.id);
        button.setAttribute("aria-pressed", item.id === this.item);
        return [...heading, element("li", {}, button)];
      }));
      $("run").disabled = !this.item;
    }

    async open(id) {
      await this.attempt(async () => {
        const json = await this.ask(`/api/items/${encodeURIComponent(id)}/document`);
        await this.cancel();
        if (B.brush.active) B.brush.leave();
        Object.assign(this, { item: id, shown: undefined });
        await B.show(json);
        $("saves").hidden = true;
        $("one-slice-field").hidden = !json.volume;
        $("brush-section").hidden = false;
        this.listItems();
      });
    }

    // --- a job: asked for, watched, shown ------------------------------------------------------------------------------

    async segment(voxel) {
      if (!this.item) return;
      await this.attempt(async () => {
        await this.cancel();
        const number = (id) => ($(id).value === "" ? null : Number($(id).value));
        const body = {
          item: this.item, center: B.picture.json.volume ? voxel : voxel.slice(1), model: $("model").value,
          slice: B.picture.json.volume && $("one-slice").checked, samples: number("samples"), steps: $("steps-field").hidden ? null : number("steps"), seed: number("seed"), set: $("set").value,
        };
        for (const force of [false, true]) {
          const { id } = await this.ask("/api/jobs", "POST", { ...body, force });
          this.job = id;
          $("saves").hidden = true;
          try {
            return await this.watch(id);
          } catch (error) {
            const [sentence, advice] = error.message.split(' ("force": true');
            if (force || !advice || !window.confirm(`${sentence}. Segment it all the same?`)) throw error;
          } finally {
            if (this.job === id) this.endJob();
          }
        }
      });
    }

    async watch(id) {
      $("job").hidden = false;
      for (;;) {
        const job = await this.ask(`/api/jobs/${encodeURIComponent(id)}`);
        if (this.job !== id) return;
        if (job.state === "failed") throw new Error(job.error || "The segmentation failed");
        if (job.state === "cancelled") return;
        if (job.state === "done") break;
        const known = job.state === "running" && job.total > 0;
        if (known) $("progress").value = job.done / job.total;
        else $("progress").removeAttribute("value");
        const ahead = job.place ? `, ${job.place} before it` : "";
        $("job-words").textContent = job.state === "queued" ? `waiting${ahead}` : known ? `drawing masks: ${job.done} of ${job.total}` : "drawing masks";
        await new Promise((wake) => { setTimeout(wake, POLL); });
      }
      const json = await this.ask(`/api/jobs/${encodeURIComponent(id)}/document`);
      if (this.job !== id) return;
      if (B.brush.active) B.brush.leave();
      await B.show(json);
      this.shown = id; // the job whose masks are on the page
      document.querySelectorAll("#saves [data-kind]").forEach((link) => {
        link.href = `/api/jobs/${encodeURIComponent(id)}/files?kind=${link.dataset.kind}`;
      });
      $("saves").hidden = false;
    }

    endJob() {
      this.job = null;
      $("job").hidden = true;
    }

    async cancel() {
      const id = this.job;
      if (!id) return;
      this.endJob();
      await this.ask(`/api/jobs/${encodeURIComponent(id)}`, "DELETE");
    }

    // --- files in, a rater's mask out ----------------------------------------------------------------------------------

    async upload(files) {
      if (!files.length) return;
      await this.attempt(async () => {
        const form = new FormData();
        for (const file of files) form.append("files", file, file.webkitRelativePath || file.name);
        const known = new Set(this.items.map(({ id }) => id));
        $("drop").classList.add("busy");
        try {
          await this.ask("/api/items", "POST", form);
        } finally {
          $("drop").classList.remove("busy");
          $("upload").value = "";
        }
        await this.loadState();
        const added = this.items.find(({ id }) => !known.has(id));
        if (added) await this.open(added.id);
      });
    }

    async saveRater(brush) {
      await this.attempt(async () => {
        const names = B.picture.targets.length ? B.picture.targets.map(({ name }) => name) : (this.model || {}).targets || [""];
        const slices = B.picture.json.volume ? [...brush.slices].sort((a, b) => a - b) : null;
        if (slices && !slices.length) throw new Error("Paint in a slice, or mark the slices that you looked at (L)");
        const body = { name: $("brush-name").value.trim() || "corrected", target: names[brush.k] || names[0], mask: await B.packBytes(brush.mask), slices, job: this.shown, sample: brush.sample };
        const path = `/api/items/${encodeURIComponent(this.item)}/raters`;
        try {
          await this.ask(path, "POST", body);
        } catch (error) {
          if (error.status !== 409 || !this.corrections) throw error;
          if (!window.confirm(`New target '${body.target}': add it to the corrections?`)) return;
          await this.ask(path, "POST", { ...body, new_target: true });
        }
        brush.leave();
        B.message(`Saved as the mask of ${body.name}.`, true);
      });
    }

    key(key) {
      if (key === "Enter") this.segment(B.view.voxel);
      else if (key === "z" && B.brush.active) B.brush.undo();
      else if (key === "l" && B.brush.active && B.picture.json.volume) B.brush.look();
      else return false;
      return true;
    }

    listen() {
      $("model").onchange = () => this.chooseModel();
      $("run").onclick = () => this.segment(B.view.voxel);
      $("cancel").onclick = () => this.attempt(() => this.cancel());
      $("upload").onchange = () => this.upload([...$("upload").files]);
      let from = null;
      $("gl").addEventListener("pointerdown", (event) => { from = event.button === 0 && !event.shiftKey && !event.ctrlKey ? [event.clientX, event.clientY] : null; });
      $("gl").addEventListener("pointerup", (event) => {
        const click = from && Math.hypot(event.clientX - from[0], event.clientY - from[1]) < CLICK;
        const found = click && $("on-click").checked && B.view.voxelAt(...B.pixel(event));
        from = null;
        if (!found) return;
        B.view.voxel = found.voxel;
        this.segment(found.voxel);
      });
      for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
        window.addEventListener(name, (event) => {
          event.preventDefault();
          document.body.classList.toggle("dragging", name === "dragenter" || name === "dragover");
          if (name === "drop") this.upload([...event.dataTransfer.files]);
        });
      }
    }
  }
})();

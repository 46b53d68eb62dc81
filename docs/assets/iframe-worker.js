/* The search runs in a worker. Browsers allow none from file://, so there a hidden frame takes its place. */
if (location.protocol === "file:") {
  const load = (frame, url) => new Promise(done => {
    const script = frame.document.createElement("script")
    script.src = url
    script.onload = done
    frame.document.body.appendChild(script)
  })
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const element = document.createElement("iframe")
      element.hidden = true
      document.body.appendChild(element)
      this.frame = element.contentWindow
      this.frame.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.frame.importScripts = (...urls) => Promise.all(urls.map(one => load(this.frame, one)))
      this.ready = load(this.frame, url)
    }
    postMessage(data) {
      this.ready.then(() => this.frame.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}

// <cl-live chat stream name>: an answer that is being written, as it grows.

import { ROOT } from "./feed.js";

/** Text of a chunk, whatever form the writer gave it. @param {unknown} data @returns {string} */
function textOf(data) {
  if (typeof data === "string") return data;
  if (typeof data !== "object" || data === null) return "";
  const part = /** @type {Record<string, unknown>} */ (data);
  for (const name of ["text", "delta", "content"]) if (typeof part[name] === "string") return part[name];
  return "";
}

class ClLive extends HTMLElement {
  connectedCallback() {
    if (this.source) return;
    if (!this.firstElementChild) this.#build();
    const [chat, stream] = ["chat", "stream"].map((name) => encodeURIComponent(this.getAttribute(name) ?? ""));
    this.source = new EventSource(`${ROOT}/api/v1/chats/${chat}/live/${stream}/chunks`);
    this.source.onmessage = (message) => {
      this.said.append(textOf(JSON.parse(message.data).data));
    };
    this.source.addEventListener("end", (message) => {
      this.#stop();
      const { status } = JSON.parse(message.data);
      // What became a message comes by the feed; the rest is said.
      if (status === "committed" || status === "dropped") this.remove();
      else this.state.textContent = status;
    });
    // A browser that got an error for an answer gives up: the stream is gone.
    this.source.onerror = () => {
      if (this.source?.readyState === EventSource.CLOSED) this.remove();
    };
  }

  disconnectedCallback() {
    // It may have been moved to another place of the page.
    queueMicrotask(() => this.isConnected || this.#stop());
  }

  #stop() {
    this.source?.close();
    this.source = null;
  }

  #build() {
    const made = (tag, name, text = "") => Object.assign(document.createElement(tag), { className: name, textContent: text });
    const box = made("article", "message assistant growing");
    const header = document.createElement("header");
    this.state = made("span", "chip live", "writing");
    header.append(made("h2", "", this.getAttribute("name") ?? ""), this.state);
    this.said = made("p", "said");
    this.said.dir = "auto";
    box.append(header, this.said);
    this.append(box);
  }
}

customElements.define("cl-live", ClLive);

// Verifying with progress; without scripts the same form asks for a page that comes when it is over.

const form = document.querySelector("form[data-verify]");
if (form instanceof HTMLFormElement) form.addEventListener("submit", verify);

/** @param {SubmitEvent} event */
function verify(event) {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.currentTarget);
  const [button, bar, output] = ["button", "progress", "output"].map((name) => form.querySelector(name));
  if (!(button instanceof HTMLButtonElement && bar instanceof HTMLProgressElement && output)) return;
  button.disabled = true;
  bar.hidden = false;
  output.textContent = "Reading the log";

  const source = new EventSource(form.dataset.verify ?? "");
  const end = (text, verdict) => {
    source.close();
    button.disabled = false;
    bar.hidden = true;
    output.textContent = text;
    output.className = verdict;
  };
  source.addEventListener("progress", (message) => {
    const { done, of } = JSON.parse(message.data);
    bar.max = of;
    bar.value = done;
    output.textContent = `${done.toLocaleString("en")} of ${of.toLocaleString("en")}`;
  });
  source.addEventListener("result", (message) => {
    const found = JSON.parse(message.data);
    const [events, chats] = [found.event_count, found.chat_count].map((count) => count.toLocaleString("en"));
    end(`Sound. ${events} events were read, and the index equals them: ${chats} chats.`, "verdict good");
  });
  source.addEventListener("error", (message) => {
    const said = message instanceof MessageEvent ? JSON.parse(message.data).detail : "The connection was lost; try again.";
    end(message instanceof MessageEvent ? `Not sound. ${said}` : said, "verdict bad");
  });
}

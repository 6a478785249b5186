// What can be done: commands are copied, and nobody loses what they write in a form.

import { ask, notify } from "./frame.js";

const TYPED_MS = 200;

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element && event.target.closest("[data-copy]");
  const code = button && button.closest(".command")?.querySelector("pre, code");
  if (code) copy(code.textContent ?? "", code);
});

/**
 * Put a text on the clipboard.
 * @param {string} text
 * @param {Element} shown Where it stands on the page.
 */
export async function copy(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied");
  } catch {
    // Without https a page may not write to the clipboard: then it is selected, to be copied by a key.
    getSelection()?.selectAllChildren(shown);
    notify("Selected, to be copied");
  }
}

/**
 * Whether somebody writes in a form there, or has.
 * @param {Element | null} part
 */
export function isWritten(part) {
  if (!part) return false;
  for (const form of part.querySelectorAll("form[method=post]")) {
    if (form.contains(document.activeElement)) return true;
    for (const field of /** @type {HTMLFormElement} */ (form).elements) {
      if (field instanceof HTMLInputElement && field.checked !== field.defaultChecked) return true;
      if ((field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement) && field.value !== field.defaultValue) return true;
    }
  }
  return false;
}

// The commands say what is in the form, as it is typed.
let typing = 0;
document.addEventListener("input", ({ target }) => {
  const form = target instanceof Element && target.closest(".action > form");
  if (!(form instanceof HTMLFormElement)) return;
  clearTimeout(typing);
  typing = setTimeout(async () => {
    const body = new URLSearchParams(/** @type {any} */ (new FormData(form)));
    const answer = await ask(new URL(form.action).pathname.replace("/do/", "/commands/"), { method: "POST", body }).catch(() => null);
    if (!answer?.ok) return;
    const commands = await answer.json();
    for (const code of form.parentElement?.querySelectorAll("code[data-command]") ?? []) code.textContent = commands[code.getAttribute("data-command") ?? ""];
  }, TYPED_MS);
});

/** What takes something away for ever asks in a dialog, and is off until its id is typed. */
document.addEventListener("click", (event) => {
  const summary = event.target instanceof Element && event.target.closest(".action.grave > summary");
  const action = summary && summary.parentElement;
  if (!(action instanceof HTMLDetailsElement)) return;
  event.preventDefault();
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", summary.textContent ?? "");
  const title = document.createElement("h2");
  title.textContent = summary.textContent;
  const cancel = Object.assign(document.createElement("button"), { type: "button", textContent: "Cancel" });
  const parts = [...action.children].filter((part) => part !== summary);
  dialog.append(title, ...parts, cancel);
  dialog.classList.add("grave");
  document.body.append(dialog);
  const field = /** @type {HTMLInputElement | null} */ (dialog.querySelector('input[name="confirmed"]'));
  const button = dialog.querySelector("form > button");
  const wanted = dialog.querySelector("form")?.getAttribute("data-target");
  if (field && button instanceof HTMLButtonElement) {
    button.disabled = field.value !== wanted;
    field.addEventListener("input", () => {
      button.disabled = field.value !== wanted;
    });
  }
  cancel.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    action.append(...parts);
    dialog.remove();
  });
  dialog.showModal();
  field?.focus();
});

// What can be done: commands are copied, and nobody loses what they write in a form.

import { announce } from "./frame.js";

document.addEventListener("click", async (event) => {
  const button = event.target instanceof Element && event.target.closest("[data-copy]");
  const text = button && button.closest(".command")?.querySelector("code")?.textContent;
  if (!text) return;
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied");
  } catch {
    // Without https a page may not write to the clipboard: then it is selected, to be copied by a key.
    const range = document.createRange();
    range.selectNodeContents(/** @type {Element} */ (button.closest(".command")?.querySelector("code")));
    getSelection()?.removeAllRanges();
    getSelection()?.addRange(range);
    announce("Selected, to be copied");
  }
});

/**
 * Whether somebody writes in a form there, or has.
 * @param {Element | null} part
 */
export function isWritten(part) {
  if (!part) return false;
  for (const form of part.querySelectorAll("form[method=post]")) {
    if (form.contains(document.activeElement)) return true;
    for (const field of /** @type {HTMLFormElement} */ (form).elements) {
      if (field instanceof HTMLInputElement && field.type === "checkbox" && field.checked !== field.defaultChecked) return true;
      if ((field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement) && field.value !== field.defaultValue) return true;
    }
  }
  return false;
}

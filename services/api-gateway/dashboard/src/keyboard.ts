// Keys that work on every page.
import { signal } from "@preact/signals";
import { go } from "./router";

export const kPages: [string, string, string][] = [
  ["Overview", "/ui", "o"],
  ["Runs", "/ui/runs", "r"],
  ["Queue", "/ui/queue", "q"],
  ["Workers", "/ui/workers", "w"],
  ["Checkpoints", "/ui/checkpoints", "c"],
  ["Health", "/ui/health", "h"],
  ["Usage", "/ui/usage", "u"],
  ["Keys", "/ui/keys", "k"],
  ["Users", "/ui/users", "p"],
  ["Tenants", "/ui/tenants", "t"],
  ["Audit", "/ui/audit", "a"],
];

export const isHelpOpen = signal(false);

// True if the key belongs to a field or to a shortcut of the browser.
export function isTyping(event: KeyboardEvent): boolean {
  if (event.metaKey || event.ctrlKey || event.altKey) return true;
  const target = event.target;
  return target instanceof Element && target.closest("input:not([type=checkbox]), select, textarea, dialog") !== null;
}

export function listenToKeys(): void {
  const kPatienceMs = 1000;
  let wentAt = 0;
  addEventListener("keydown", (event) => {
    if (isTyping(event)) return;
    const isSecond = event.timeStamp - wentAt < kPatienceMs;
    wentAt = 0;
    const page = kPages.find(([, , letter]) => letter === event.key);
    if (isSecond && page !== undefined) {
      // The tables must not take the second key for one of theirs.
      event.stopImmediatePropagation();
      go(page[1]);
    } else if (event.key === "g") {
      wentAt = event.timeStamp;
    } else if (event.key === "?") {
      isHelpOpen.value = true;
    } else if (event.key === "/") {
      const field = document.querySelector<HTMLInputElement>('input[type="search"]');
      if (field !== null) {
        event.preventDefault();
        field.focus();
      }
    }
  });
}

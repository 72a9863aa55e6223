// The key that the page sends. It lives as long as the tab.
import { signal } from "@preact/signals";

const kName = "lathe.key";

export const key = signal<string>(sessionStorage.getItem(kName) ?? "");
// Why the page asks for a key again; empty: it never had one.
export const refusal = signal<string>("");

export function signIn(value: string): void {
  sessionStorage.setItem(kName, value);
  refusal.value = "";
  key.value = value;
}

export function signOut(why = ""): void {
  sessionStorage.removeItem(kName);
  refusal.value = why;
  key.value = "";
}

// Who looks at the page. The session is a cookie that no script can read; the page holds no key.
import { signal } from "@preact/signals";
import type { components } from "lathe-api";

export type Me = components["schemas"]["OwnSession"];

// Undefined: not known yet. Null: nobody is signed in.
export const me = signal<Me | null | undefined>(undefined);
// Why the page asks to sign in; empty: nobody was signed in.
export const refusal = signal<string>("");

export const kLogin = "/ui/login";

export const isAdmin = (): boolean => me.value?.role === "admin" || isOperator();
export const isOperator = (): boolean => me.value?.role === "operator";

// Returns the page to show after signing in: only one of this dashboard, and not the sign-in again.
export function nextOf(query: URLSearchParams): string {
  const next = query.get("next") ?? "";
  const isOurs = /^\/ui(\/[A-Za-z0-9._~/%:-]*)?(\?[^\\\s]*)?$/.test(next) && !/\/\/|\.\./.test(next.split("?")[0] ?? "");
  return isOurs && !next.startsWith(kLogin) ? next : "/ui";
}

export function signedOut(why = ""): void {
  refusal.value = why;
  me.value = null;
}

// The address bar as a signal. Every view is an address: a reload or a copied link shows the same.
import { signal } from "@preact/signals";

export interface Place {
  // Decoded segments after /ui.
  segments: string[];
  query: URLSearchParams;
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

function read(): Place {
  const segments = location.pathname.split("/").filter((part) => part !== "").slice(1);
  return { segments: segments.map(decoded), query: new URLSearchParams(location.search) };
}

export const place = signal<Place>(read());

export function go(address: string, { replace = false } = {}): void {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  place.value = read();
  if (!replace) scrollTo(0, 0);
}

// Sets one member of the query; an empty value removes it.
export function setQuery(name: string, value: string): void {
  const query = new URLSearchParams(location.search);
  if (value === "") query.delete(name);
  else query.set(name, value);
  const text = query.toString();
  go(location.pathname + (text === "" ? "" : `?${text}`), { replace: true });
}

export const runAddress = (id: string): string => `/ui/runs/${encodeURIComponent(id)}`;

// Turns clicks on links to /ui into changes of the address, without loading the page again.
export function listen(): void {
  addEventListener("popstate", () => { place.value = read(); });
  addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link === null || link.target !== "" || link.hasAttribute("download") || link.hasAttribute("data-leaves")) return;
    const isOurs = link.origin === location.origin && /^\/ui(\/|$)/.test(link.pathname);
    if (!isOurs || link.hash !== "") return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}

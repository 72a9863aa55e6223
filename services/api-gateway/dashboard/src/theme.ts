// Light, dark, or as the system has it.
import { effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";

const kName = "lathe.theme";
const isTheme = (text: string | null): text is Theme => text === "light" || text === "dark" || text === "auto";
const stored = localStorage.getItem(kName);

export const chosen = signal<Theme>(isTheme(stored) ? stored : "auto");
// What is on the screen. Charts draw again when it changes.
export const theme = signal<"light" | "dark">("light");

const isSystemDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = signal(isSystemDark.matches);
isSystemDark.addEventListener("change", (event) => { isDark.value = event.matches; });

effect(() => {
  localStorage.setItem(kName, chosen.value);
  if (chosen.value === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", chosen.value);
  theme.value = chosen.value === "auto" ? (isDark.value ? "dark" : "light") : chosen.value;
});

export function choose(value: string): void {
  if (isTheme(value)) chosen.value = value;
}

// What all canvases share: the page's colours, dashes and axes.
import type uPlot from "uplot";
import { number } from "../format";

export const kHeight = 180;
const kNumColours = 8;
const kDashes = [[], [], [], [], [6, 3], [2, 3], [8, 3, 2, 3], [1, 2]];

export const seriesToken = (index: number): string => `--series-${index % kNumColours + 1}`;
// From the fifth line on, dashes help to tell the lines apart.
export const dashOf = (index: number): number[] => kDashes[index % kNumColours] ?? [];

// The canvas does not know the page's variables, so an element resolves them.
export function colour(inside: Element, token: string): string {
  const probe = inside.appendChild(document.createElement("i"));
  probe.style.color = `var(${token})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// rgb(1, 2, 3) with an alpha.
export const faded = (rgb: string, alpha: number): string =>
  rgb.replace(/^rgb\((.*)\)$/, (_, channels: string) => `rgba(${channels}, ${alpha})`);

export interface AxisLook {
  isTime: boolean;
  showX?: ((value: number) => string) | undefined;
  showY?: ((value: number) => string) | undefined;
}

const shown = (show: (value: number) => string) =>
  // uPlot gives null for a tick of a logarithmic axis that needs no text.
  (_: uPlot, ticks: (number | null)[]): string[] => ticks.map((tick) => tick === null ? "" : show(tick));

export function axesOf(target: Element, { isTime, showX, showY = number }: AxisLook): uPlot.Axis[] {
  const axis = { stroke: colour(target, "--muted"), ticks: { show: false }, font: "11px Inter" };
  return [
    { ...axis, grid: { show: false }, size: isTime ? 42 : 28, ...(showX === undefined ? {} : { values: shown(showX) }) },
    { ...axis, grid: { stroke: colour(target, "--line"), width: 1 }, size: 56, values: shown(showY) },
  ];
}

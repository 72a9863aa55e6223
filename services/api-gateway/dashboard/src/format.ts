// Numbers, sizes and times as people read them.

const kThin = "\u202f";

// Three significant digits; whole numbers below 10,000 in full.
export function number(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 10_000) return String(value);
  const magnitude = Math.abs(value);
  if (magnitude !== 0 && (magnitude < 1e-3 || magnitude >= 1e15)) return value.toExponential(2);
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (magnitude >= size) return `${Number((value / size).toPrecision(3))}${kThin}${unit}`;
  }
  return String(Number(value.toPrecision(3)));
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let scaled = value;
  while (scaled >= 1000 && unit < units.length - 1) {
    scaled /= 1000;
    ++unit;
  }
  return `${Number(scaled.toPrecision(3))}${kThin}${units[unit]}`;
}

export function seconds(value: number): string {
  if (value === 0) return `0${kThin}s`;
  if (value < 1e-3) return `${number(value * 1e6)}${kThin}µs`;
  if (value < 1) return `${number(value * 1e3)}${kThin}ms`;
  if (value < 120) return `${number(value)}${kThin}s`;
  if (value < 7200) return `${Math.round(value / 60)}${kThin}min`;
  if (value < 172_800) return `${Math.round(value / 3600)}${kThin}h`;
  return `${Math.round(value / 86_400)}${kThin}d`;
}

// "3 min ago", "in 2 h".
export function relative(time: Date, now: Date): string {
  const passed = (now.getTime() - time.getTime()) / 1000;
  if (Math.abs(passed) < 5) return "now";
  const whole = seconds(Math.abs(passed) < 120 ? Math.round(Math.abs(passed)) : Math.abs(passed));
  return passed > 0 ? `${whole} ago` : `in ${whole}`;
}

export const plural = (count: number, one: string, many = `${one}s`): string =>
  `${number(count)} ${count === 1 ? one : many}`;

// A line of a few dozen values, as large as a word.
import { number } from "../format";

const kWidth = 96;
const kHeight = 24;
const kMargin = 3;

export interface SparklineProps {
  // What the values are of.
  name: string;
  values: (number | null)[];
}

interface Dot {
  x: number;
  y: number;
}

// Stretches between the gaps.
function stretchesOf(values: (number | null)[], low: number, high: number): Dot[][] {
  const width = Math.max(1, values.length - 1);
  const height = high === low ? 1 : high - low;
  const stretches: Dot[][] = [[]];
  values.forEach((value, place) => {
    if (value === null) {
      stretches.push([]);
      return;
    }
    const share = high === low ? 0.5 : (value - low) / height;
    stretches[stretches.length - 1]?.push({
      x: kMargin + (kWidth - 2 * kMargin) * place / width,
      y: kHeight - kMargin - (kHeight - 2 * kMargin) * share,
    });
  });
  return stretches.filter((stretch) => stretch.length > 0);
}

const pathOf = (stretch: Dot[]): string =>
  stretch.map(({ x, y }, place) => `${place === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

export function Sparkline({ name, values }: SparklineProps) {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return null;
  const low = known.reduce((a, b) => Math.min(a, b));
  const high = known.reduce((a, b) => Math.max(a, b));
  const words = `${name}, ${number(low)} to ${number(high)}`;
  const stretches = stretchesOf(values, low, high);
  const end = stretches[stretches.length - 1]?.at(-1);
  return <svg class="spark" width={kWidth} height={kHeight} viewBox={`0 0 ${kWidth} ${kHeight}`} role="img" aria-label={words}>
    <title>{words}</title>
    <path d={stretches.map(pathOf).join("")} />
    {end !== undefined && <circle cx={end.x} cy={end.y} r={2.5} />}
  </svg>;
}

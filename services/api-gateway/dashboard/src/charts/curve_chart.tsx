// Curves of one metric, drawn by uPlot: a band from least to largest value, the mean, and its end.
import type { Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { number, seconds } from "../format";
import { theme } from "../theme";
import { axesOf, colour, dashOf, faded, kHeight, seriesToken } from "./canvas";
import { type Look, stepsBetween, type Traced } from "./curves";

export interface CurveChartProps {
  // In words, for those who do not see the canvas.
  summary: string;
  lines: Traced[];
  // Colour of each line.
  places: number[];
  look: Look;
  // The x under the pointer, of whichever chart; undefined: none.
  cursor: Signal<number | undefined>;
  onZoom: (fromStep: number, toStep: number) => void;
}

const kBandAlpha = 0.16;
// Of several lines, so that their bands do not hide each other.
const kBandAlphaOfMany = 0.08;
const kRawAlpha = 0.25;
// Charts with the same kind of x move their cursors together.
const syncKey = ({ x }: Look): string => `curves-${x}`;

// The columns of a line: least and largest if they differ, unsmoothed if it is smoothed, and the
// one that counts.
function columnsOf({ xs, min, max, mean, smooth, hasBand }: Traced, { smoothing }: Look): uPlot.AlignedData {
  return [xs, ...(hasBand ? [min, max] : []), ...(smoothing > 0 ? [mean] : []), smooth] as uPlot.AlignedData;
}

function dataOf({ lines, look }: CurveChartProps): uPlot.AlignedData {
  if (lines.length === 0) return [[]];
  const tables = lines.map((line) => columnsOf(line, look));
  // Where a line has no x of another line it goes on; where it has null it has a gap.
  return tables.length === 1 ? tables[0] ?? [[]] : uPlot.join(tables);
}

// Places of a column that need a dot: the last value, and those without neighbours.
function dots(values: ArrayLike<number | null | undefined>): number[] {
  const found: number[] = [];
  let before: number | null = null;
  let beforeIt: number | null = null;
  let lastPlace = -1;
  for (let place = 0; place < values.length; ++place) {
    const value = values[place];
    if (value === undefined) continue;
    if (value === null && before !== null && beforeIt === null) found.push(lastPlace);
    beforeIt = before;
    before = value;
    if (value !== null) lastPlace = place;
  }
  if (lastPlace >= 0) found.push(lastPlace);
  return found;
}

function seriesOf(target: HTMLElement, { lines, places, look }: CurveChartProps): uPlot.Series[] {
  return lines.flatMap(({ hasBand }, index) => {
    const place = places[index] ?? index;
    const stroke = colour(target, seriesToken(place));
    const edge: uPlot.Series = { stroke: "transparent", width: 0, points: { show: false } };
    const raw: uPlot.Series = { stroke: faded(stroke, kRawAlpha), width: 1, points: { show: false } };
    return [...(hasBand ? [edge, edge] : []), ...(look.smoothing > 0 ? [raw] : []), {
      stroke,
      width: 1.75,
      dash: lines.length > 1 ? dashOf(place) : [],
      points: { show: true, size: 6, fill: stroke, width: 0,
        filter: (plot: uPlot, column: number) => dots(plot.data[column] ?? []) },
    }];
  });
}

function bandsOf(target: HTMLElement, { lines, places, look }: CurveChartProps): uPlot.Band[] {
  let low = 1;
  return lines.flatMap((line, index) => {
    const bounds: uPlot.Band.Bounds = [low + 1, low];
    low += columnsOf(line, look).length - 1;
    const fill = faded(colour(target, seriesToken(places[index] ?? index)), lines.length > 1 ? kBandAlphaOfMany : kBandAlpha);
    return line.hasBand ? [{ series: bounds, fill }] : [];
  });
}

// There is no step between 1 and 2.
const kWholeTicks = Array.from({ length: 13 }, (_, exponent) => [1, 2, 5].map((first) => first * 10 ** exponent)).flat();

const withWholeTicks = ({ x }: Look, [xAxis, ...others]: uPlot.Axis[]): uPlot.Axis[] =>
  [{ ...xAxis, ...(x === "step" ? { incrs: kWholeTicks } : {}) }, ...others];

function optionsOf(target: HTMLElement, props: CurveChartProps, newest: () => CurveChartProps): uPlot.Options {
  const { look, cursor } = props;
  return {
    width: target.clientWidth,
    height: kHeight,
    padding: [8, 12, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      points: { show: false },
      drag: { x: true, y: false, setScale: false, dist: 6 },
      // Only the movement: a range that is drawn in one chart must not be chosen by all of them.
      sync: { key: syncKey(look), scales: ["x", null], filters: { pub: (type) => /^mouse(move|leave)$/.test(type) } },
    },
    scales: { x: { time: look.x === "time" }, y: look.isLog ? { distr: 3, log: 10 } : {} },
    axes: withWholeTicks(look, axesOf(target, { isTime: look.x === "time", showX: look.x === "time" ? undefined : look.x === "step" ? number : seconds })),
    series: [{}, ...seriesOf(target, props)],
    bands: bandsOf(target, props),
    hooks: {
      setCursor: [(plot) => {
        const { left } = plot.cursor;
        cursor.value = left === undefined || left < 0 ? undefined : plot.posToVal(left, "x");
      }],
      setSelect: [(plot) => {
        const { left, width } = plot.select;
        if (width <= 0) return;
        const steps = stepsBetween(newest().lines, plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
        plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        if (steps !== undefined) newest().onZoom(...steps);
      }],
    },
  };
}

// Draws anew if lines come or go, and otherwise only moves them.
export function CurveChart(props: CurveChartProps) {
  const target = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const newest = useRef(props);
  // What the plot shows, so that nothing is drawn twice.
  const drawn = useRef<Traced[] | undefined>(undefined);
  newest.current = props;
  const { look, lines, places, summary } = props;
  const shape = JSON.stringify([look.x, look.isLog, look.smoothing > 0, places, lines.map(({ hasBand }) => hasBand)]);
  useEffect(() => {
    const element = target.current;
    if (element === null) return undefined;
    const made = new uPlot(optionsOf(element, newest.current, () => newest.current), dataOf(newest.current), element);
    plot.current = made;
    drawn.current = newest.current.lines;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: kHeight }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = undefined;
      newest.current.cursor.value = undefined;
    };
  }, [shape, theme.value]);
  useEffect(() => {
    if (drawn.current === lines) return;
    drawn.current = lines;
    plot.current?.setData(dataOf(newest.current));
  }, [lines]);
  return <div class="chart" ref={target} role="img" aria-label={summary} />;
}

// All metrics of one or more runs as charts, in groups by what their names begin with.
import { filterOf, LookControls, lookOf, rangeOf } from "../charts/look_controls";
import { number, plural } from "../format";
import { versionOf } from "../metric_loader";
import { byImportance, groupOf, type Head, type Metrics } from "../metrics";
import { place, setQuery } from "../router";
import { MetricCard, type MetricRun } from "./metric_card";

// Charts of the groups that are open at first.
const kNumOpen = 30;

export interface RunMetrics extends MetricRun {
  heads: Metrics<Head>;
}

export interface Metric {
  name: string;
  unit: string;
  // The runs that have it, with what is known of its end.
  of: { run: RunMetrics; head: Head }[];
}

export function metricsOf(runs: RunMetrics[]): Metric[] {
  const found = new Map<string, Metric>();
  for (const run of runs) {
    for (const head of run.heads.series) {
      const metric = found.get(head.name) ?? { name: head.name, unit: head.unit, of: [] };
      metric.of.push({ run, head });
      found.set(head.name, metric);
    }
  }
  return [...found.values()].sort((a, b) => byImportance(a.name, b.name));
}

interface Group {
  name: string;
  metrics: Metric[];
}

// The group of the most important metric comes first.
function groupsOf(metrics: Metric[]): Group[] {
  const groups = new Map<string, Group>();
  for (const metric of metrics) {
    const name = groupOf(metric.name);
    const group = groups.get(name) ?? { name, metrics: [] };
    group.metrics.push(metric);
    groups.set(name, group);
  }
  return [...groups.values()];
}

// A single run's charts differ in colour by name, so that a metric keeps its colour.
function placeOf(name: string): number {
  let hash = 0;
  for (const character of name) hash = (hash * 31 + (character.codePointAt(0) ?? 0)) % 7;
  return hash;
}

function GroupOfCharts({ group: { name, metrics }, isOpen, isOneRun }: { group: Group; isOpen: boolean; isOneRun: boolean }) {
  const { query } = place.value;
  const look = lookOf(query);
  const range = rangeOf(query);
  const runsOf = (metric: Metric): MetricRun[] => metric.of.map(({ run }) =>
    isOneRun ? { ...run, place: placeOf(groupOf(metric.name) || metric.name) } : run);
  return <details class="group" open={isOpen}>
    <summary><h2>{name === "" ? "Training" : name}</h2> <span class="muted">{plural(metrics.length, "metric")}</span></summary>
    <div class="grid">{metrics.map((metric) => <MetricCard key={metric.name} name={metric.name} unit={metric.unit}
      runs={runsOf(metric)} version={metric.of.map(({ head }) => versionOf(head)).join("\n")} look={look} range={range} />)}</div>
  </details>;
}

export function MetricGroups({ runs }: { runs: RunMetrics[] }) {
  const { query } = place.value;
  const all = metricsOf(runs);
  const shown = all.filter(({ name }) => filterOf(query)(name));
  let before = 0;
  return <>
    <LookControls />
    {shown.length < all.length && <p class="muted" role="status">{number(shown.length)} of {plural(all.length, "metric")}{" "}
      <button type="button" class="small" onClick={() => setQuery("m", "")}>Show all</button></p>}
    {runs.some(({ heads }) => heads.more_names) && <p class="muted">There are more metrics than one answer of the API names.</p>}
    {groupsOf(shown).map((group) => {
      const isOpen = before < kNumOpen;
      before += group.metrics.length;
      return <GroupOfCharts key={group.name} group={group} isOpen={isOpen} isOneRun={runs.length === 1} />;
    })}
  </>;
}

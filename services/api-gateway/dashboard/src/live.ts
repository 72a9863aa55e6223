// What the server tells by itself: one stream of events for the whole tab. Polling goes on without it,
// and is slower while it is there.
import { effect, signal } from "@preact/signals";
import { me } from "./session";

// Kinds of changes, or the points and changes of one run.
export type Topic = "runs" | "checkpoints" | "queue" | "workers";
export type Wake = Topic | { run: string };

// New points of one metric. `count` is the number of points since the beginning, with these.
export interface NewPoints {
  name: string;
  unit: string;
  count: number;
  steps: number[];
  times_ms: number[];
  values: number[];
}

export interface RunPoints {
  run_id: string;
  // Some points are missing and have to be read.
  is_incomplete: boolean;
  series: NewPoints[];
}

// True while changes come by themselves.
export const isLive = signal(false);
// What happened to the server while the page was open.
export const incident = signal<{ what: string; at: Date } | undefined>(undefined);

const kMaxRuns = 8;
const kMaxPauseMs = 30_000;
// A server writes at least a comment in 15 s.
const kSilenceMs = 40_000;
// A browser has six connections to a server, for all of its tabs.
const kHiddenMs = 10_000;
const kGatherMs = 50;

interface Listener {
  wakes: Wake[];
  onChange: () => void;
}

const listeners = new Set<Listener>();
const pointListeners = new Map<string, Set<(points: RunPoints | undefined) => void>>();

// Text of a stream up to the last event that is whole, as [name, data, id], and the rest.
export function eventsIn(text: string): { events: [string, string, string][]; rest: string } {
  const blocks = text.split("\n\n");
  const rest = blocks.pop() ?? "";
  const events = blocks.map((block): [string, string, string] => {
    const fields: Record<string, string> = {};
    for (const line of block.split("\n")) {
      const colon = line.indexOf(":");
      if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, "");
    }
    return [fields["event"] ?? "", fields["data"] ?? "", fields["id"] ?? ""];
  });
  return { events, rest };
}

function wakeAll(isOf: (wake: Wake) => boolean): void {
  for (const { wakes, onChange } of [...listeners]) if (wakes.some(isOf)) onChange();
}

// Everything may have changed.
function wakeEverybody(): void {
  wakeAll(() => true);
  for (const of of pointListeners.values()) for (const listener of [...of]) listener(undefined);
}

const kIncidents: Record<string, string> = {
  engine_restarted: "The engine was restarted",
  engine_unreachable: "The engine did not answer for a moment",
  gateway_restarted: "The gateway was restarted",
};

interface ChangedRuns {
  run_ids: string[];
  has_more: boolean;
}

function handle(name: string, data: string): void {
  const body: unknown = JSON.parse(data);
  if (name === "metrics") {
    const points = body as RunPoints;
    for (const listener of [...pointListeners.get(points.run_id) ?? []]) listener(points);
  } else if (name === "runs") {
    const { run_ids, has_more } = body as ChangedRuns;
    wakeAll((wake) => wake === "runs" || (typeof wake === "object" && (has_more || run_ids.includes(wake.run))));
  } else if (name === "checkpoints" || name === "queue" || name === "workers") {
    wakeAll((wake) => wake === name);
  } else if (name === "resync") {
    const what = kIncidents[(body as { reason: string }).reason];
    if (what !== undefined) incident.value = { what, at: new Date() };
    wakeEverybody();
  } else if (name === "engine") {
    // The questions that fail now say so on the page.
    wakeAll(() => true);
  }
}

class Connection {
  private stop = new AbortController();
  private timer = 0;
  private hiddenTimer = 0;
  private lastId = "";
  private failures = 0;
  private isOver = false;
  private runs = "";

  constructor() {
    document.addEventListener("visibilitychange", this.onVisibility);
    void this.run();
  }

  end(): void {
    this.isOver = true;
    document.removeEventListener("visibilitychange", this.onVisibility);
    clearTimeout(this.hiddenTimer);
    this.again();
    isLive.value = false;
  }

  // Connects again if other runs are wanted than the stream has.
  refresh(): void {
    if (wantedRuns() !== this.runs) this.again();
  }

  private readonly onVisibility = (): void => {
    clearTimeout(this.hiddenTimer);
    if (document.hidden) this.hiddenTimer = setTimeout(() => this.stop.abort(), kHiddenMs);
    else if (!isLive.value) this.again();
  };

  private again(): void {
    this.stop.abort();
    this.wake();
  }

  private wake = (): void => {};

  private async run(): Promise<void> {
    while (!this.isOver) {
      if (document.hidden) await new Promise<void>((resolve) => { this.wake = resolve; });
      if (this.isOver) break;
      this.stop = new AbortController();
      let pause = 0;
      try {
        pause = await this.read();
      } catch {
        pause = 0;
      }
      isLive.value = false;
      clearTimeout(this.timer);
      if (this.isOver) break;
      const wasAborted = this.stop.signal.aborted;
      if (wasAborted && !document.hidden) continue;
      pause = Math.max(pause, Math.min(kMaxPauseMs, 500 * 2 ** this.failures) * (0.5 + Math.random() / 2));
      ++this.failures;
      // What was open is polled again at once, and says so if the server is away.
      if (!wasAborted) wakeAll(() => true);
      await new Promise<void>((resolve) => {
        this.wake = resolve;
        if (!document.hidden) setTimeout(resolve, pause);
      });
    }
  }

  // Reads until the stream ends. Returns the time for which the server does not want to be asked.
  private async read(): Promise<number> {
    this.runs = wantedRuns();
    const headers: Record<string, string> = {};
    if (this.lastId !== "") headers["Last-Event-ID"] = this.lastId;
    const address = `/ui/api/v1/events?runs=${encodeURIComponent(this.runs)}`;
    this.watch();
    const response = await fetch(address, { headers, cache: "no-store", credentials: "same-origin", redirect: "error", signal: this.stop.signal });
    // A server that refuses is polled; a run that is not there makes it refuse.
    if (!response.ok || response.body === null) {
      return response.status === 503 || response.status === 0 ? 1000 * Number(response.headers.get("Retry-After") ?? 0) : kMaxPauseMs;
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return 0;
      this.watch();
      const found = eventsIn(rest + value);
      rest = found.rest;
      for (const [name, data, id] of found.events) {
        if (id !== "") this.lastId = id;
        if (name === "") continue;
        isLive.value = name !== "engine";
        this.failures = 0;
        handle(name, data);
      }
    }
  }

  private watch(): void {
    clearTimeout(this.timer);
    const { stop } = this;
    this.timer = setTimeout(() => stop.abort(), kSilenceMs);
  }
}

let connection: Connection | undefined;
let gathering = 0;

const wantedRuns = (): string => [...pointListeners.keys()].slice(0, kMaxRuns).sort().join(",");

// Views come and go together when a page does.
function gather(): void {
  clearTimeout(gathering);
  gathering = setTimeout(() => {
    const isWanted = Boolean(me.value) && (listeners.size > 0 || pointListeners.size > 0);
    if (!isWanted) {
      connection?.end();
      connection = undefined;
    } else if (connection === undefined) {
      connection = new Connection();
    } else {
      connection.refresh();
    }
  }, kGatherMs);
}

effect(() => {
  void me.value;
  // Another session sees other things.
  connection?.end();
  connection = undefined;
  gather();
});

// Calls `onChange` when one of these may have changed, until the returned function is called.
export function onChange(wakes: Wake[], call: () => void): () => void {
  const listener = { wakes, onChange: call };
  listeners.add(listener);
  gather();
  return () => {
    listeners.delete(listener);
    gather();
  };
}

// Calls `listener` with new points of a run; undefined: some may have been missed.
export function onPoints(runId: string, listener: (points: RunPoints | undefined) => void): () => void {
  const of = pointListeners.get(runId) ?? new Set();
  pointListeners.set(runId, of.add(listener));
  gather();
  return () => {
    of.delete(listener);
    if (of.size === 0 && pointListeners.get(runId) === of) pointListeners.delete(runId);
    gather();
  };
}

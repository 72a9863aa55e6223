// Data that is read again and again: when the server tells that it changes, now and then in any case,
// with growing pauses while the server is away, and not at all while nobody looks at the tab.
import { type Signal, signal, untracked, useSignal, useSignalEffect } from "@preact/signals";
import { useRef } from "preact/hooks";
import { ApiError } from "./api";
import { isLive, onChange, type Wake } from "./live";
import { me } from "./session";

export interface Polled<T> {
  // The newest answer. It stays while later questions fail.
  data: T | undefined;
  error: ApiError | undefined;
}

const kMaxPauseMs = 30_000;
// Changes come by themselves then, and this is for what they do not tell.
const kLivePeriods = 4;

// Views that wait for a server which does not answer.
export const numWaiting = signal(0);

// Half to all of the pause, so that many pages do not ask at the same moment.
const spread = (pause: number): number => pause * (0.5 + Math.random() / 2);

class Poll<T> {
  private timer = 0;
  private failures = 0;
  private isOver = false;
  private askedAt = 0;
  private isWoken = false;
  private readonly stopListening: () => void;
  private readonly onVisible = (): void => { if (!document.hidden) this.ask(); };

  constructor(
    private readonly load: () => Promise<T>,
    private readonly periodMs: number,
    private readonly state: Signal<Polled<T>>,
    private readonly wakes: Wake[],
  ) {
    this.stopListening = wakes.length === 0 ? () => {} : onChange(wakes, () => this.onWake());
    document.addEventListener("visibilitychange", this.onVisible);
    addEventListener("online", this.onVisible);
    this.ask();
  }

  stop(): void {
    this.isOver = true;
    clearTimeout(this.timer);
    this.stopListening();
    document.removeEventListener("visibilitychange", this.onVisible);
    removeEventListener("online", this.onVisible);
    this.count(0);
  }

  ask(): void {
    clearTimeout(this.timer);
    this.askedAt = Date.now();
    this.isWoken = false;
    void this.exchange();
  }

  // Asks at once after a change, and no more often than without such news.
  private onWake(): void {
    if (document.hidden || this.isWoken || this.failures > 0) return;
    this.isWoken = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), Math.max(0, this.askedAt + this.periodMs - Date.now()));
  }

  private async exchange(): Promise<void> {
    const before = this.failures;
    let pause = this.periodMs * (this.wakes.length > 0 && isLive.value ? kLivePeriods : 1);
    try {
      const data = await this.load();
      if (this.isOver) return;
      this.state.value = { data, error: undefined };
      this.count(0);
    } catch (thrown) {
      if (this.isOver) return;
      const error = thrown instanceof ApiError ? thrown : new ApiError(0, "page", String(thrown));
      this.state.value = { data: this.state.value.data, error };
      this.count(error.isPassing ? before + 1 : 0);
      // The answer to a wrong question stays the same.
      if (!error.isPassing) return;
      // A server that is away is asked sooner than one that refuses for its load.
      const first = error.status === 0 ? 1000 : this.periodMs;
      pause = Math.max(error.retryAfterMs, spread(Math.min(kMaxPauseMs, first * 2 ** before)));
    }
    if (document.hidden || (this.isWoken && this.failures === 0)) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), pause);
  }

  private count(failures: number): void {
    if ((failures > 0) !== (this.failures > 0)) numWaiting.value += failures > 0 ? 1 : -1;
    this.failures = failures;
  }
}

// Loads at once, every `periodMs`, and when `subject` changes. With `wakes`, after their changes, and
// else more seldom. The second result asks at once.
export function usePoll<T>(subject: string, load: () => Promise<T>,
    periodMs = 5000, wakes: Wake[] = []): [Polled<T>, () => void] {
  const state = useSignal<Polled<T>>({ data: undefined, error: undefined });
  const wanted = useSignal(subject);
  const loader = useRef(load);
  const poll = useRef<Poll<T> | undefined>(undefined);
  loader.current = load;
  wanted.value = subject;
  useSignalEffect(() => {
    // Another subject or session must not show the data of the one before.
    void wanted.value;
    if (!me.value) return undefined;
    state.value = { data: undefined, error: undefined };
    const made = untracked(() => new Poll<T>(() => loader.current(), periodMs, state, wakes));
    poll.current = made;
    return () => made.stop();
  });
  return [state.value, () => poll.current?.ask()];
}

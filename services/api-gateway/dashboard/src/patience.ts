// One pause for all questions about metrics: a server that is away or refuses for its load is asked
// by none of the charts for a while, and a tab that nobody looks at asks nothing.
import { ApiError } from "./api";

const kFirstPauseMs = 5000;
const kMaxPauseMs = 60_000;
const kHiddenPauseMs = 5000;

let failures = 0;
let notBefore = 0;

// Half to all of the pause, so that many pages do not ask at the same moment.
const spread = (pause: number): number => pause * (0.5 + Math.random() / 2);

// Time until a question may be asked.
export const pauseMs = (): number => document.hidden ? kHiddenPauseMs : Math.max(0, notBefore - Date.now());

export function noteSuccess(): void {
  failures = 0;
}

// Returns the error; an error that may pass makes all wait.
export function noteFailure(thrown: unknown): ApiError {
  const error = thrown instanceof ApiError ? thrown : new ApiError(0, "page", String(thrown));
  if (error.isPassing && notBefore <= Date.now()) {
    notBefore = Date.now() + Math.max(error.retryAfterMs, spread(Math.min(kMaxPauseMs, kFirstPauseMs * 2 ** failures)));
    ++failures;
  }
  return error;
}

// Asks as soon as it may, and again after errors that may pass, until the returned function is called.
export function askPatiently(ask: () => Promise<void>, onError: (error: ApiError) => void): () => void {
  let isOver = false;
  let timer = 0;
  const go = async (): Promise<void> => {
    const pause = pauseMs();
    if (pause > 0) {
      timer = setTimeout(() => void go(), pause);
      return;
    }
    try {
      await ask();
      noteSuccess();
    } catch (thrown) {
      const error = noteFailure(thrown);
      if (isOver) return;
      onError(error);
      if (error.isPassing) timer = setTimeout(() => void go(), pauseMs());
    }
  };
  void go();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}

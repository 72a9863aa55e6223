// Small parts that every page uses.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "../api";
import { relative } from "../format";

const kTickMs = 5000;
// Relative times follow this clock.
export const now = signal(new Date());
setInterval(() => { if (!document.hidden) now.value = new Date(); }, kTickMs);

export function Time({ at }: { at: string }) {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return <>{at}</>;
  return <time dateTime={at} title={time.toLocaleString()}>{relative(time, now.value)}</time>;
}

export type Mood = "ok" | "warn" | "bad" | "";

// A dot whose colour and shape repeat the word beside it.
export function State({ mood, children }: { mood: Mood; children: ComponentChildren }) {
  return <span class={`state ${mood}`}>{children}</span>;
}

export interface CardProps {
  title: string;
  note?: ComponentChildren;
  children: ComponentChildren;
}

export function Card({ title, note, children }: CardProps) {
  return <section class="card" aria-label={title}>
    <header><h2>{title}</h2>{note !== undefined && <span>{note}</span>}</header>
    {children}
  </section>;
}

export function Figures({ items }: { items: [string, ComponentChildren][] }) {
  return <dl class="figures">
    {items.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
  </dl>;
}

export function Facts({ items }: { items: [string, ComponentChildren][] }) {
  return <dl class="facts">
    {items.map(([name, value]) => [<dt key={`${name} name`}>{name}</dt>, <dd key={name}>{value}</dd>])}
  </dl>;
}

// Says what failed, with what to give to whoever runs the server. Over data, the bar's notice
// suffices for what passes by itself.
export function Problem({ error, isOverData = false }: { error: ApiError; isOverData?: boolean }) {
  if (isOverData && error.isPassing) return null;
  return <section class="card problem" role="alert">
    <h2>{error.isPassing ? "No answer for now" : "This cannot be shown"}</h2>
    <p>{error.message}</p>
    {error.hint !== "" && <p>{error.hint}</p>}
    {error.isPassing && <p class="muted">The page asks again by itself.</p>}
    {error.requestId !== "" && <p class="muted">Request <code>{error.requestId}</code></p>}
  </section>;
}

// Appears only if the answer takes long, so that fast pages do not flicker.
export function Loading() {
  const kPatienceMs = 300;
  const [isSlow, setSlow] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSlow(true), kPatienceMs);
    return () => clearTimeout(timer);
  }, []);
  return isSlow ? <p class="muted" role="status">Loading…</p> : null;
}

export function Copied({ text }: { text: string }) {
  const [word, setWord] = useState("Copy");
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setWord("Copied");
    } catch {
      // Browsers refuse without TLS, except on this machine.
      setWord("Refused");
    }
    setTimeout(() => setWord("Copy"), 1500);
  };
  return <div class="copied">
    <pre tabIndex={0} aria-label="Command">{text}</pre>
    <button type="button" class="small" onClick={() => void copy()} aria-live="polite">{word}</button>
  </div>;
}

export interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => { element.current?.showModal(); }, []);
  return <dialog ref={element} aria-label={title} onClose={onClose}>
    <div><h1>{title}</h1>{children}</div>
  </dialog>;
}

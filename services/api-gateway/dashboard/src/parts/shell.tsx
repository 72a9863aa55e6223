// What surrounds every page: the bar, the notice of a lost server, the list of keys.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, signOut } from "../api";
import { isHelpOpen, kPages } from "../keyboard";
import { numWaiting } from "../poll";
import { place } from "../router";
import { type Me, me } from "../session";
import { choose, chosen } from "../theme";
import { Dialog, Time } from "./basic";

// Who is signed in, and the way out.
function Who({ who }: { who: Me }) {
  const [refused, setRefused] = useState("");
  const name = who.user?.name || who.user?.email || (who.key === null ? "this machine" : who.key.name || `key ${who.key.key_id}`);
  const leave = async (): Promise<void> => {
    try {
      await signOut();
    } catch (error) {
      setRefused(error instanceof ApiError ? error.message : String(error));
    }
  };
  return <details class="who">
    <summary><bdi>{name}</bdi></summary>
    <div class="card">
      <p>{who.role} of tenant {who.tenant || who.tenant_id}</p>
      <p class="muted">Signed in until <Time at={who.expires_at} /></p>
      {refused !== "" && <p role="alert">{refused}</p>}
      <button type="button" onClick={() => void leave()}>Sign out</button>
    </div>
  </details>;
}
import { Incident } from "./incident";

function Bar() {
  const [first = ""] = place.value.segments;
  return <header class="bar"><div>
    <b>Lathe</b>
    <nav aria-label="Main">{me.value && kPages.map(([name, address]) => {
      const isHere = address === (first === "" ? "/ui" : `/ui/${first}`);
      return <a key={address} href={address} aria-current={isHere ? "page" : undefined}>{name}</a>;
    })}</nav>
    {me.value && <Who who={me.value} />}
    <select aria-label="Theme" value={chosen.value} onChange={(event) => choose(event.currentTarget.value)}>
      <option value="auto">Auto</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select>
  </div></header>;
}

function Help() {
  const keys: [string, string][] = [
    ...kPages.map(([name, , letter]): [string, string] => [`g ${letter}`, name]),
    ["/", "Filter"], ["j k", "Next and previous row"], ["Enter", "Open the row"], ["x", "Choose the run to compare"], ["?", "These keys"],
  ];
  return <Dialog title="Keys" onClose={() => { isHelpOpen.value = false; }}>
    <dl class="facts">{keys.map(([press, meaning]) => [
      <dt key={`${press} key`}>{press.split(" ").map((one) => <kbd key={one}>{one}</kbd>)}</dt>,
      <dd key={press}>{meaning}</dd>])}</dl>
    <form method="dialog"><button>Close</button></form>
  </Dialog>;
}

export function Shell({ title, children }: { title: string; children: ComponentChildren }) {
  const main = useRef<HTMLElement>(null);
  const address = place.value.segments.join("/");
  const isFirst = useRef(true);
  useEffect(() => { document.title = title === "" ? "Lathe" : `${title} · Lathe`; }, [title]);
  useEffect(() => {
    // A screen reader goes on at the new page.
    if (!isFirst.current) main.current?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [address]);
  return <>
    <a class="skip" href="#main">Skip to the page</a>
    <Bar />
    <div aria-live="polite">
      {numWaiting.value > 0 && <p class="notice">The server does not answer. What you see may be old; the page asks again.</p>}
    </div>
    <div aria-live="polite"><Incident /></div>
    <main id="main" ref={main} tabIndex={-1}>{children}</main>
    {isHelpOpen.value && <Help />}
  </>;
}

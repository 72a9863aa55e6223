// What surrounds every page: the bar, the notice of a lost server, the list of keys.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { isHelpOpen, kPages } from "../keyboard";
import { numWaiting } from "../poll";
import { place } from "../router";
import { key } from "../session";
import { choose, chosen } from "../theme";
import { Dialog } from "./basic";
import { Incident } from "./incident";

function Bar() {
  const [first = ""] = place.value.segments;
  return <header class="bar"><div>
    <b>Lathe</b>
    <nav aria-label="Main">{key.value !== "" && kPages.map(([name, address]) => {
      const isHere = address === (first === "" ? "/ui" : `/ui/${first}`);
      return <a key={address} href={address} aria-current={isHere ? "page" : undefined}>{name}</a>;
    })}</nav>
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

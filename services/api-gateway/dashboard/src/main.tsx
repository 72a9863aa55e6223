// Starts the dashboard: the address decides which page is shown.
import "./tokens.css";
import "./page.css";
import { effect } from "@preact/signals";
import { type ComponentChildren, render } from "preact";
import { listenToKeys } from "./keyboard";
import { numWaiting } from "./poll";
import { Card, Loading } from "./parts/basic";
import { Shell } from "./parts/shell";
import { Audit } from "./pages/audit";
import { Checkpoints } from "./pages/checkpoints";
import { Compare } from "./pages/compare";
import { Health } from "./pages/health";
import { Keys } from "./pages/keys";
import { Overview } from "./pages/overview";
import { Queue } from "./pages/queue";
import { Run } from "./pages/run";
import { Runs } from "./pages/runs";
import { SignIn } from "./pages/sign_in";
import { Tenants } from "./pages/tenants";
import { Usage } from "./pages/usage";
import { Users } from "./pages/users";
import { Workers } from "./pages/workers";
import { askMe } from "./api";
import { go, listen, place } from "./router";
import { kLogin, me } from "./session";

function NoPage() {
  return <><h1>No such page</h1><Card title="What there is"><p><a href="/ui">The overview</a> leads to every page.</p></Card></>;
}

// Title and contents of an address.
function pageAt([first = "", id, ...rest]: string[]): [string, ComponentChildren] {
  if (first === "login" || me.value === null) return ["Sign in", <SignIn />];
  if (me.value === undefined) return ["", <Loading />];
  if (first === "runs" && id !== undefined && rest.length === 0) return [`Run ${id}`, <Run key={id} id={id} />];
  if (id !== undefined) return ["No such page", <NoPage />];
  switch (first) {
    case "": return ["", <Overview />];
    case "runs": return ["Runs", <Runs />];
    case "compare": return ["Compare", <Compare />];
    case "checkpoints": return ["Checkpoints", <Checkpoints />];
    case "queue": return ["Queue", <Queue />];
    case "workers": return ["Workers", <Workers />];
    case "health": return ["Health", <Health />];
    case "key":
    case "keys": return ["Keys", <Keys />];
    case "tenants": return ["Tenants", <Tenants />];
    case "usage": return ["Usage", <Usage />];
    case "users": return ["Users", <Users />];
    case "audit": return ["Audit", <Audit />];
    default: return ["No such page", <NoPage />];
  }
}

function Page() {
  const [title, contents] = pageAt(place.value.segments);
  return <Shell title={title}>{contents}</Shell>;
}

// Leads whoever is not signed in to the sign-in, and from there back to this address.
effect(() => {
  const { pathname, search } = location;
  if (me.value !== null || pathname === kLogin) return;
  go(`${kLogin}?next=${encodeURIComponent(pathname + search)}`, { replace: true });
});

// Asks who is signed in until the server says.
async function findOut(): Promise<void> {
  const kPauseMs = 1000;
  try {
    me.value = await askMe();
    numWaiting.value = 0;
  } catch {
    numWaiting.value = 1;
    setTimeout(() => void findOut(), kPauseMs);
  }
}

const root = document.getElementById("page");
if (root !== null) {
  root.replaceChildren();
  listen();
  listenToKeys();
  render(<Page />, root);
  void findOut();
}

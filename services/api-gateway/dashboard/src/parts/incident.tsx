// What happened to the server while the page was open, until somebody has read it.
import { incident, isLive } from "../live";
import { Time } from "./basic";

export function Incident() {
  const happened = incident.value;
  if (happened === undefined) return null;
  return <p class="incident"><span>{happened.what} <Time at={happened.at.toISOString()} />. Accepted requests are not lost
    {isLive.value ? "; the page is up to date again." : "."}</span>{" "}
    <button type="button" class="small" onClick={() => { incident.value = undefined; }}>Dismiss</button></p>;
}

// The log of changes of one day, newest first.
import { type AuditEntry, searchAudit } from "../administration";
import { number, plural } from "../format";
import { NeedsAdmin, offsetOf, Pager, setFilter, TenantField } from "../parts/administration";
import { Card, Loading, Problem, State, Time } from "../parts/basic";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { place } from "../router";
import { isAdmin } from "../session";

const kPollMs = 15_000;
const kLookedAt = 10_000;
const today = (): string => new Date().toISOString().slice(0, 10);
const kKinds: [string, string][] = [["", "Every kind"], ["organizations", "Keys, tenants, users"], ["checkpoints", "Checkpoints"], ["projects", "Projects"]];

const detailsOf = ({ event_details }: AuditEntry): string => Object.entries(event_details)
  .filter(([name]) => !["actor", "object", "outcome"].includes(name))
  .map(([name, value]) => `${name} ${value}`).join(", ");

function Filters({ day }: { day: string }) {
  const { query } = place.value;
  const field = (name: string, label: string) => <input type="search" aria-label={label} placeholder={label}
    value={query.get(name) ?? ""} onChange={(event) => setFilter(name, event.currentTarget.value.trim())} />;
  return <div class="row" role="search">
    <label class="row">Day, UTC
      <input type="date" value={day} max={today()} onChange={(event) => setFilter("day", event.currentTarget.value)} /></label>
    <select aria-label="Kind" value={query.get("type") ?? ""} onChange={(event) => setFilter("type", event.currentTarget.value)}>
      {kKinds.map(([name, label]) => <option key={name} value={name}>{label}</option>)}
    </select>
    {field("object", "Object")}
    {field("actor", "Actor: id of a key, user:ID")}
    <TenantField />
  </div>;
}

function EntryTable({ entries }: { entries: AuditEntry[] }) {
  return <Table label="Audit" rows={entries.map((entry, index) => ({ entry, index }))} id={({ index }) => String(index)} columns={[
    { name: "When", show: ({ entry }) => <Time at={entry.timestamp} /> },
    { name: "Event", show: ({ entry }) => <code>{entry.event}</code> },
    { name: "Actor", show: ({ entry }) => entry.event_details["actor"] === "" ? "a person at the server"
      : <code>{entry.event_details["actor"]}</code> },
    { name: "Object", show: ({ entry }) => <code>{entry.event_details["object"]}</code> },
    { name: "Outcome", show: ({ entry }) => {
      const outcome = entry.event_details["outcome"] ?? "";
      return <State mood={outcome === "ok" ? "ok" : "bad"}>{outcome}</State>;
    } },
    { name: "Details", show: ({ entry }) => detailsOf(entry) },
  ]} />;
}

function Shown() {
  const { query } = place.value;
  const asked = {
    day: query.get("day") ?? today(), event_type: query.get("type") ?? "", tenant: query.get("tenant") ?? "",
    actor: query.get("actor") ?? "", object: query.get("object") ?? "", offset: offsetOf(query),
  };
  const [{ data, error }] = usePoll(JSON.stringify(asked), () => searchAudit(asked), kPollMs);
  return <>
    <Filters day={asked.day} />
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {data === undefined ? error === undefined && <Loading /> : <Card title="Changes" note={plural(data.total_count, "entry", "entries")}>
      {data.is_cut && <p role="status">The day has more than {number(kLookedAt)} entries of this kind; the newest were looked at.</p>}
      {data.entries.length === 0 ? <p class="muted">Nothing on this day fits. Another day or fewer filters may have it.</p>
        : <EntryTable entries={data.entries.toReversed()} />}
      <Pager total={data.total_count} later="Newer" earlier="Older" />
    </Card>}
  </>;
}

export function Audit() {
  return <>
    <h1>Audit</h1>
    {isAdmin() ? <Shown /> : <NeedsAdmin what="The log of changes" />}
  </>;
}

// The key that this page uses, and for administrators what the tenant's keys changed.
import { type AuditEntry, getOwnKey, listAudit, type OwnKey } from "../api";
import { Card, Copied, Facts, Loading, Problem, Time } from "../parts/basic";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { place, setQuery } from "../router";
import { signOut } from "../session";

const kPollMs = 15_000;
const today = (): string => new Date().toISOString().slice(0, 10);

function OwnKeyCard({ own }: { own: OwnKey }) {
  return <Card title="This key">
    <Facts items={[
      ["Name", own.name === "" ? "none" : own.name],
      ["Id", <code>{own.lathe_key_id}</code>],
      ["Tenant", own.details.org_details.name],
      ["Scopes", own.scopes.join(", ")],
      ["Made", <Time at={own.created_at} />],
      ["Ends", own.expires_at === null ? "when it is revoked" : <Time at={own.expires_at} />],
    ]} />
    <div class="row"><button type="button" onClick={() => signOut()}>Sign out of this tab</button></div>
  </Card>;
}

function Other() {
  return <Card title="Other keys">
    <p>The machine that runs the engine makes, lists and ends keys:</p>
    <Copied text="lathe keys create --tenant NAME --scope read --expires 30d" />
    <Copied text="lathe keys list" />
    <Copied text="lathe keys revoke KEY_ID" />
  </Card>;
}

const detailsOf = ({ event_details }: AuditEntry): string => Object.entries(event_details)
  .filter(([name]) => !["actor", "object", "outcome"].includes(name))
  .map(([name, value]) => `${name} ${value}`).join(", ");

function Audit() {
  const day = place.value.query.get("day") ?? today();
  const [{ data, error }] = usePoll(day, () => listAudit(day), kPollMs);
  return <Card title="Audit" note={<label class="row">Day, UTC
    <input type="date" value={day} max={today()} onChange={(event) => setQuery("day", event.currentTarget.value)} /></label>}>
    {error !== undefined && <p role="alert">{error.message}</p>}
    {data !== undefined && (data.length === 0 ? <p class="muted">Nothing was changed on this day.</p>
      : <Table label="Audit" rows={data.map((entry, number) => ({ entry, number }))} id={({ number }) => String(number)} columns={[
        { name: "When", show: ({ entry }) => <Time at={entry.timestamp} /> },
        { name: "Event", show: ({ entry }) => <code>{entry.event}</code> },
        { name: "Actor", show: ({ entry }) => <code>{entry.event_details["actor"]}</code> },
        { name: "Object", show: ({ entry }) => <code>{entry.event_details["object"]}</code> },
        { name: "Outcome", show: ({ entry }) => entry.event_details["outcome"] },
        { name: "Details", show: ({ entry }) => detailsOf(entry) },
      ]} />)}
  </Card>;
}

export function Key() {
  const [{ data, error }] = usePoll("key", getOwnKey, kPollMs);
  return <>
    <h1>Key</h1>
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {data === undefined ? error === undefined && <Loading /> : <>
      <div class="grid"><OwnKeyCard own={data} /><Other /></div>
      {data.scopes.includes("admin") && <Audit />}
      <p class="muted"><a href="/ui/licenses" target="_blank">Licences</a> of what this page is made of</p>
    </>}
  </>;
}

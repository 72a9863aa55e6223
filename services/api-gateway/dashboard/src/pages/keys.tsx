// Who is signed in, and for administrators the keys of the tenant.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { createKey, type KeyInfo, kScopes, listKeys, type NewKey, revokeKey, rotateKey } from "../administration";
import { plural } from "../format";
import { ChangeDialog, offsetOf, Pager, setFilter, TenantField } from "../parts/administration";
import { Card, Copied, Dialog, Facts, Loading, now, State, Time } from "../parts/basic";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { place } from "../router";
import { isAdmin, isOperator, type Me, me } from "../session";

const kPollMs = 15_000;
const kDay = 86_400;
const kLifetimes: [string, number][] = [
  ["Until it is revoked", 0], ["1 day", kDay], ["7 days", 7 * kDay], ["30 days", 30 * kDay], ["90 days", 90 * kDay], ["1 year", 365 * kDay],
];
const kOverlaps: [string, number][] = [["At once", 0], ["In 1 hour", 3600], ["In 1 day", kDay], ["In 7 days", 7 * kDay]];
const kUsualScopes = ["train", "sample", "read", "checkpoints:write"];

function Choice({ label, options, value, set }: { label: string; options: [string, number][]; value: number; set: (value: number) => void }) {
  return <label>{label}
    <select value={value} onChange={(event) => set(Number(event.currentTarget.value))}>
      {options.map(([name, seconds]) => <option key={seconds} value={seconds}>{name}</option>)}
    </select>
  </label>;
}

function OwnCard({ who }: { who: Me }) {
  return <Card title="You">
    <Facts items={[
      ...(who.user === null ? [] : [["Name", who.user.name], ["E-mail", who.user.email], ["Provider", who.user.issuer]] as [string, string][]),
      ...(who.key === null ? [] : [["Key", <>{who.key.name} <code>{who.key.key_id}</code></>]] as [string, ComponentChildren][]),
      ["Tenant", who.tenant || who.tenant_id],
      ["Role", who.role],
      ["Scopes", who.scopes.join(", ")],
      ["Signed in until", <Time at={who.expires_at} />],
    ]} />
  </Card>;
}

// The key is in this dialog only: nothing brings it back.
function MadeDialog({ made, onClose }: { made: NewKey; onClose: () => void }) {
  return <Dialog title="The new key" onClose={onClose}>
    <p>Copy it now. The server keeps only a hash of it, so it is shown this once.</p>
    <Copied text={made.api_key} />
    <p class="muted">Id <code>{made.key_id}</code>{made.expires_at !== null && <>, ends <Time at={made.expires_at} /></>}</p>
    <form method="dialog"><button class="main">I have it</button></form>
  </Dialog>;
}

function CreateDialog({ onMade, onClose }: { onMade: (made: NewKey) => void; onClose: () => void }) {
  const [name, setName] = useState("");
  const [tenant, setTenant] = useState("");
  const [scopes, setScopes] = useState(kUsualScopes);
  const [lifetime, setLifetime] = useState(90 * kDay);
  const toggle = (scope: string): void =>
    setScopes(scopes.includes(scope) ? scopes.filter((other) => other !== scope) : [...scopes, scope]);
  const make = async (): Promise<void> => onMade(await createKey({
    name, scopes: kScopes.filter((scope) => scopes.includes(scope)) as never,
    ...(tenant === "" ? {} : { tenant }), ...(lifetime === 0 ? {} : { expires_in_seconds: lifetime }),
  }));
  return <ChangeDialog title="Make a key" verb="Make it" mayGo={scopes.length > 0} change={make} onClose={onClose}>
    <label>Name
      <input value={name} maxLength={128} autocomplete="off" placeholder="what it is for" onInput={(event) => setName(event.currentTarget.value)} />
    </label>
    {isOperator() && <label>Tenant
      <input value={tenant} maxLength={64} autocomplete="off" spellcheck={false} placeholder="your own; a new name makes a tenant"
        onInput={(event) => setTenant(event.currentTarget.value.trim())} />
    </label>}
    <fieldset><legend>Scopes</legend>
      {kScopes.filter((scope) => isOperator() || scope !== "operator").map((scope) => <label key={scope} class="row">
        <input type="checkbox" checked={scopes.includes(scope)} onChange={() => toggle(scope)} />{scope}</label>)}
    </fieldset>
    <Choice label="Ends" options={kLifetimes} value={lifetime} set={setLifetime} />
  </ChangeDialog>;
}

function RotateDialog({ subject, isOwn, onMade, onClose }: { subject: KeyInfo; isOwn: boolean; onMade: (made: NewKey) => void; onClose: () => void }) {
  const [overlap, setOverlap] = useState(kDay);
  // This page must outlive the answer: it is the only place of the new key.
  const overlaps = kOverlaps.filter(([, seconds]) => !isOwn || seconds > 0);
  return <ChangeDialog title="Rotate this key" verb="Rotate" onClose={onClose}
    change={async () => onMade(await rotateKey(subject.key_id, overlap))}>
    <p>A new key gets the tenant, name, scopes and lifetime of <code>{subject.key_id}</code>. The old one then ends.</p>
    <Choice label="The old key ends" options={overlaps} value={overlap} set={setOverlap} />
    {isOwn && <p role="alert">You signed in with it: sign in with the new one before the old one ends.</p>}
  </ChangeDialog>;
}

function RevokeDialog({ subject, isOwn, onDone, onClose }: { subject: KeyInfo; isOwn: boolean; onDone: () => void; onClose: () => void }) {
  return <ChangeDialog title="Revoke this key" verb="Revoke" isDangerous onClose={onClose}
    change={async () => { await revokeKey(subject.key_id); onDone(); }}>
    <p><code>{subject.key_id}</code> {subject.name}</p>
    <p>Programs that use it are refused within 5 s, and links that it asked for end. This cannot be undone.</p>
    {isOwn && <p role="alert">You signed in with it: you will be signed out.</p>}
  </ChangeDialog>;
}

const hasEnded = (key: KeyInfo): boolean => key.expires_at !== null && Date.parse(key.expires_at) <= now.value.getTime();

function StateOf({ subject }: { subject: KeyInfo }) {
  if (subject.revoked) return <State mood="bad">revoked</State>;
  return hasEnded(subject) ? <State mood="warn">expired</State> : <State mood="ok">active</State>;
}

interface Open {
  kind: "create" | "rotate" | "revoke";
  subject?: KeyInfo;
}

function KeyTable({ keys, open }: { keys: KeyInfo[]; open: (dialog: Open) => void }) {
  const tenant = { name: "Tenant", show: (row: KeyInfo) => row.tenant };
  return <Table label="Keys" rows={keys} id={(row) => row.key_id} columns={[
    { name: "Name", show: (row) => <>{row.name === "" ? "none" : row.name}<small><code>{row.key_id}</code></small></> },
    ...(isOperator() ? [tenant] : []),
    { name: "Scopes", show: (row) => row.scopes.join(", ") },
    { name: "State", show: (row) => <StateOf subject={row} /> },
    { name: "Made", show: (row) => <Time at={row.created_at} /> },
    { name: "Ends", show: (row) => row.expires_at === null ? "when it is revoked" : <Time at={row.expires_at} /> },
    { name: "Change", show: (row) => row.revoked || hasEnded(row) ? "" : <span class="row">
      <button type="button" class="small" onClick={() => open({ kind: "rotate", subject: row })}>Rotate</button>
      <button type="button" class="small danger" onClick={() => open({ kind: "revoke", subject: row })}>Revoke</button>
    </span> },
  ]} />;
}

function Administered() {
  const { query } = place.value;
  const asked = { tenant: query.get("tenant") ?? "", withEnded: query.get("ended") !== null, offset: offsetOf(query) };
  const [{ data, error }, again] = usePoll(JSON.stringify(asked), () => listKeys(asked), kPollMs);
  const [dialog, open] = useState<Open | undefined>(undefined);
  const [made, setMade] = useState<NewKey | undefined>(undefined);
  const close = (): void => open(undefined);
  const finish = (fresh?: NewKey): void => { close(); setMade(fresh); again(); };
  const subject = dialog?.subject;
  return <Card title="Keys" note={<button type="button" class="main" onClick={() => open({ kind: "create" })}>Make a key</button>}>
    <div class="row" role="search">
      <TenantField />
      <label class="row"><input type="checkbox" checked={asked.withEnded}
        onChange={(event) => setFilter("ended", event.currentTarget.checked ? "1" : "")} />With ended ones</label>
    </div>
    {error !== undefined && <p role="alert">{error.message}</p>}
    {data === undefined ? error === undefined && <Loading /> : <>
      <p class="muted" role="status">{plural(data.cursor.total_count, "key")}</p>
      {data.keys.length === 0 ? <p class="muted">None here. "Make a key" makes one.</p>
        : <KeyTable keys={data.keys} open={open} />}
      <Pager total={data.cursor.total_count} later="Newer" earlier="Older" />
    </>}
    {dialog?.kind === "create" && <CreateDialog onMade={finish} onClose={close} />}
    {dialog?.kind === "rotate" && subject !== undefined && <RotateDialog subject={subject}
      isOwn={subject.key_id === me.value?.key?.key_id} onMade={finish} onClose={close} />}
    {dialog?.kind === "revoke" && subject !== undefined && <RevokeDialog subject={subject}
      isOwn={subject.key_id === me.value?.key?.key_id} onDone={() => finish()} onClose={close} />}
    {made !== undefined && <MadeDialog made={made} onClose={() => setMade(undefined)} />}
  </Card>;
}

function OtherKeys() {
  return <Card title="Other keys">
    <p>Administrators make, list and end them here. So does the machine that runs the engine:</p>
    <Copied text="lathe keys create --tenant NAME --scope read --expires 30d" />
    <Copied text="lathe keys list" />
    <Copied text="lathe keys revoke KEY_ID" />
  </Card>;
}

export function Keys() {
  return <>
    <h1>Keys</h1>
    <div class="grid">{me.value && <OwnCard who={me.value} />}{!isAdmin() && <OtherKeys />}</div>
    {isAdmin() && <Administered />}
    <p class="muted"><a href="/ui/licenses" target="_blank">Licences</a> of what this page is made of</p>
  </>;
}

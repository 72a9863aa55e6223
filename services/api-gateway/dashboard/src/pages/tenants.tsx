// Tenants with what they use and what limits them. Operators see all and set limits.
import { useState } from "preact/hooks";
import { listTenants, type Quota, setQuota, type TenantInfo } from "../administration";
import { bytes, number, plural } from "../format";
import { ChangeDialog, NeedsAdmin, offsetOf, Pager } from "../parts/administration";
import { Card, Copied, Loading, Problem, Time } from "../parts/basic";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { place } from "../router";
import { isAdmin, isOperator } from "../session";

const kPollMs = 15_000;

interface Limit {
  name: keyof Quota;
  label: string;
  show: (value: number) => string;
}

const kLimits: Limit[] = [
  { name: "requests_per_minute", label: "Requests a minute", show: number },
  { name: "tokens_per_minute", label: "Tokens a minute", show: number },
  { name: "queued_bytes", label: "Queued bytes", show: bytes },
  { name: "stored_bytes", label: "Stored bytes of checkpoints", show: bytes },
  { name: "adapters", label: "Live runs", show: number },
  { name: "sessions", label: "Sessions", show: number },
  { name: "samplers", label: "Samplers", show: number },
  { name: "unfetched_results", label: "Unfetched results", show: number },
  { name: "unfetched_bytes", label: "Bytes of unfetched results", show: bytes },
];

// What is used of a limit, in words and as a bar.
function Use({ used, limit, show }: { used: number; limit: number; show: (value: number) => string }) {
  if (limit === 0) return <>{show(used)}</>;
  const share = Math.min(100, 100 * used / limit);
  return <>{show(used)} of {show(limit)}
    <span class="stack" aria-hidden="true"><i style={{ width: `${share}%`, background: share >= 90 ? "var(--bad)" : "var(--accent)" }} /></span></>;
}

const rateOf = (limit: number): string => limit === 0 ? "any" : number(limit);

function QuotaDialog({ tenant, onDone, onClose }: { tenant: TenantInfo; onDone: () => void; onClose: () => void }) {
  const [typed, setTyped] = useState<Partial<Record<keyof Quota, string>>>({});
  const textOf = (name: keyof Quota): string => typed[name] ?? String(tenant.quota[name]);
  const wrong = kLimits.find(({ name }) => !/^\d{1,15}$/.test(textOf(name)));
  const change = async (): Promise<void> => {
    const changed = kLimits.filter(({ name }) => Number(textOf(name)) !== tenant.quota[name]);
    await setQuota(tenant.name, Object.fromEntries(changed.map(({ name }) => [name, Number(textOf(name))])));
    onDone();
  };
  return <ChangeDialog title={`Limits of ${tenant.name}`} verb="Set" mayGo={wrong === undefined} change={change} onClose={onClose}>
    <p>They hold at once. 0 lifts a limit. Use above a new limit stays, but for results that nobody fetched.</p>
    {kLimits.map(({ name, label }) => <label key={name}>{label}
      <input inputMode="numeric" value={textOf(name)} autocomplete="off" aria-invalid={wrong?.name === name}
        onInput={(event) => setTyped({ ...typed, [name]: event.currentTarget.value.trim() })} />
    </label>)}
    {wrong !== undefined && <p role="alert">{wrong.label} must be a whole number, at least 0.</p>}
  </ChangeDialog>;
}

function TenantTable({ tenants, change }: { tenants: TenantInfo[]; change: ((tenant: TenantInfo) => void) | undefined }) {
  const used = (name: keyof TenantInfo["use"], label: string, show: (value: number) => string) =>
    ({ name: label, show: ({ use, quota }: TenantInfo) => <Use used={use[name]} limit={quota[name]} show={show} /> });
  const setting = { name: "Change", show: (row: TenantInfo) =>
    <button type="button" class="small" onClick={() => change?.(row)}>Set limits</button> };
  return <Table label="Tenants" rows={tenants} id={({ name }) => name} columns={[
    { name: "Name", show: (row) => <>{row.name}<small>made <Time at={row.created_at} /></small></> },
    used("adapters", "Live runs", number),
    used("stored_bytes", "Checkpoints", bytes),
    used("sessions", "Sessions", number),
    used("samplers", "Samplers", number),
    used("unfetched_results", "Unfetched results", number),
    { name: "Requests a minute", isNumber: true, show: ({ quota }) => rateOf(quota.requests_per_minute) },
    { name: "Tokens a minute", isNumber: true, show: ({ quota }) => rateOf(quota.tokens_per_minute) },
    ...(change === undefined ? [] : [setting]),
  ]} />;
}

function Shown({ isOperator: maySet }: { isOperator: boolean }) {
  const offset = offsetOf(place.value.query);
  const [{ data, error }, again] = usePoll(`tenants ${offset}`, () => listTenants(offset), kPollMs);
  const [changed, change] = useState<TenantInfo | undefined>(undefined);
  return <>
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {data === undefined ? error === undefined && <Loading /> : <Card title="Tenants" note={plural(data.cursor.total_count, "tenant")}>
      <TenantTable tenants={data.tenants} change={maySet ? change : undefined} />
      <Pager total={data.cursor.total_count} later="Back" earlier="More" />
    </Card>}
    <Card title={maySet ? "Another tenant" : "Other limits"}>
      <p>{maySet ? <>A key for a new name makes a tenant: on <a href="/ui/keys">Keys</a>, or on the engine's machine.</>
        : <>A key with the scope <code>operator</code> sets limits here. So does the engine's machine:</>}</p>
      <Copied text={maySet ? "lathe keys create --tenant NAME" : "lathe tenants set-quota NAME --adapters 8"} />
    </Card>
    {changed !== undefined && <QuotaDialog tenant={changed} onClose={() => change(undefined)}
      onDone={() => { change(undefined); again(); }} />}
  </>;
}

export function Tenants() {
  return <>
    <h1>Tenants</h1>
    {isAdmin() ? <Shown isOperator={isOperator()} /> : <NeedsAdmin what="The list of tenants and their quotas" />}
  </>;
}

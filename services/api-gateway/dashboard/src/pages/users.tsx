// People who have signed in: their roles, their sessions, and whether they may come back.
import { useState } from "preact/hooks";
import { endUserSession, listUsers, listUserSessions, updateUser, type User, type UserSession } from "../administration";
import { plural } from "../format";
import { ChangeDialog, NeedsAdmin, offsetOf, Pager } from "../parts/administration";
import { Card, Copied, Dialog, Loading, Problem, State, Time } from "../parts/basic";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { place } from "../router";
import { isAdmin, isOperator, me } from "../session";

const kPollMs = 15_000;
const kRoles = ["viewer", "member", "admin", "operator"];

const nameOf = (user: User): string => user.name !== "" ? user.name : user.email !== "" ? user.email : user.subject;

function RoleDialog({ user, onDone, onClose }: { user: User; onDone: () => void; onClose: () => void }) {
  const [role, setRole] = useState(user.role_is_bound ? user.role : "mapped");
  return <ChangeDialog title={`Role of ${nameOf(user)}`} verb="Set" onClose={onClose}
    change={async () => { await updateUser(user.user_id, { role }); onDone(); }}>
    <p>The sessions of this user end; the role holds from the next sign-in on.</p>
    <label>Role
      <select value={role} onChange={(event) => setRole(event.currentTarget.value)}>
        <option value="mapped">As the role map says</option>
        {kRoles.filter((one) => isOperator() || one !== "operator").map((one) => <option key={one} value={one}>{one}</option>)}
      </select>
    </label>
  </ChangeDialog>;
}

function DisableDialog({ user, onDone, onClose }: { user: User; onDone: () => void; onClose: () => void }) {
  return <ChangeDialog title={user.disabled ? `Let ${nameOf(user)} in again` : `Disable ${nameOf(user)}`}
    verb={user.disabled ? "Enable" : "Disable"} isDangerous={!user.disabled} onClose={onClose}
    change={async () => { await updateUser(user.user_id, { disabled: !user.disabled }); onDone(); }}>
    <p>{user.disabled ? "The user may sign in again."
      : "All sessions of the user end within 5 s, and the user cannot sign in. API keys go on working: revoke them on the page Keys."}</p>
  </ChangeDialog>;
}

function SessionsDialog({ user, onClose }: { user: User; onClose: () => void }) {
  const [{ data, error }, again] = usePoll(`sessions ${user.user_id}`, () => listUserSessions(user.user_id), kPollMs);
  const [refused, setRefused] = useState("");
  const end = async (session: UserSession): Promise<void> => {
    try {
      await endUserSession(user.user_id, session.session_id);
      setRefused("");
    } catch (thrown) {
      setRefused(String((thrown as Error).message));
    }
    again();
  };
  return <Dialog title={`Sessions of ${nameOf(user)}`} onClose={onClose}>
    {error !== undefined && <p role="alert">{error.message}</p>}
    {refused !== "" && <p role="alert">{refused}</p>}
    {data === undefined ? <Loading /> : data.length === 0 ? <p>There are none.</p> : <Table label="Sessions" rows={data} id={(row) => row.session_id} columns={[
      { name: "Browser", show: (row) => <>{row.user_agent === "" ? "unknown" : row.user_agent}<small>{row.ip_prefix}</small></> },
      { name: "Begun", show: (row) => <Time at={row.created_at} /> },
      { name: "Ends", show: (row) => <Time at={row.expires_at} /> },
      { name: "Change", show: (row) => <button type="button" class="small danger" onClick={() => void end(row)}>End</button> },
    ]} />}
    <form method="dialog"><button>Close</button></form>
  </Dialog>;
}

interface Open {
  kind: "role" | "disable" | "sessions";
  user: User;
}

function UserTable({ users, open }: { users: User[]; open: (dialog: Open) => void }) {
  const tenant = { name: "Tenant", show: (row: User) => row.tenant };
  return <Table label="Users" rows={users} id={({ user_id }) => user_id} columns={[
    { name: "Name", show: (row) => <>{nameOf(row)}{row.user_id === me.value?.user?.user_id && " (you)"}<small>{row.email}</small></> },
    ...(isOperator() ? [tenant] : []),
    { name: "Role", show: (row) => <>{row.role}<small>{row.role_is_bound ? "given here" : "by the role map"}</small></> },
    { name: "State", show: (row) => row.disabled ? <State mood="bad">disabled</State> : <State mood="ok">may sign in</State> },
    { name: "Last signed in", show: (row) => <Time at={row.last_login_at} /> },
    { name: "Provider", show: (row) => <>{row.issuer}<small><code>{row.subject}</code></small></> },
    { name: "Change", show: (user) => <span class="row">
      <button type="button" class="small" onClick={() => open({ kind: "role", user })}>Role</button>
      <button type="button" class="small" onClick={() => open({ kind: "sessions", user })}>Sessions</button>
      <button type="button" class="small danger" onClick={() => open({ kind: "disable", user })}>{user.disabled ? "Enable" : "Disable"}</button>
    </span> },
  ]} />;
}

function Nobody() {
  return <Card title="Nobody has signed in yet">
    <p>Users appear when they first sign in at an identity provider. The gateway's configuration names it:</p>
    <Copied text={"auth:\n  oidc:\n    issuer: https://id.example\n    client_id: lathe"} />
    <p>Until then people use <a href="/ui/keys">keys</a>.</p>
  </Card>;
}

function Shown() {
  const offset = offsetOf(place.value.query);
  const [{ data, error }, again] = usePoll(`users ${offset}`, () => listUsers(offset), kPollMs);
  const [dialog, open] = useState<Open | undefined>(undefined);
  const close = (): void => open(undefined);
  const done = (): void => { close(); again(); };
  return <>
    {error !== undefined && <Problem error={error} isOverData={data !== undefined} />}
    {data === undefined ? error === undefined && <Loading /> : data.total_count === 0 ? <Nobody />
      : <Card title="Users" note={plural(data.total_count, "user")}>
        <UserTable users={data.users} open={open} />
        <Pager total={data.total_count} later="Back" earlier="More" />
      </Card>}
    {dialog?.kind === "role" && <RoleDialog user={dialog.user} onDone={done} onClose={close} />}
    {dialog?.kind === "disable" && <DisableDialog user={dialog.user} onDone={done} onClose={close} />}
    {dialog?.kind === "sessions" && <SessionsDialog user={dialog.user} onClose={close} />}
  </>;
}

export function Users() {
  return <>
    <h1>Users</h1>
    {isAdmin() ? <Shown /> : <NeedsAdmin what="The list of users" />}
  </>;
}

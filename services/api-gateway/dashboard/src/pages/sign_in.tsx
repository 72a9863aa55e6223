// Signing in: at the identity provider, or with an API key, which becomes a session at once.
import { useEffect, useState } from "preact/hooks";
import { ApiError, askMe, signInWithKey, type SignInMethods, signInMethods } from "../api";
import { Card, Copied, Loading } from "../parts/basic";
import { go, place } from "../router";
import { me, nextOf, refusal } from "../session";

// What happened, and what helps. The server's log has the particulars.
const kErrors: Record<string, [string, string]> = {
  denied: ["The provider refused.", "Sign in again and agree, or ask whoever runs the provider for access."],
  expired: ["The sign-in took too long.", "Sign in again; it must end within ten minutes."],
  state: ["This sign-in was begun elsewhere or is over.", "Sign in again in this tab. The browser must accept cookies of this server."],
  token: ["The provider's answer could not be verified.", "Sign in again. If it stays so, the engine's operator finds the reason in the gateway's log."],
  unmapped: ["You are known to the provider, but have no role here.", "Ask an administrator to map the subject below to a role (auth.role_map)."],
  disabled: ["An administrator has disabled you.", "Ask an administrator of this server."],
  provider: ["The identity provider does not answer.", "Try again in a minute. An API key works meanwhile."],
  busy: ["Too many people sign in at this moment.", "Try again in a minute."],
};

function Failure() {
  const { query } = place.value;
  const code = query.get("error") ?? "";
  const [what, remedy] = kErrors[code] ?? ["Signing in failed.", "Sign in again."];
  const subject = query.get("subject") ?? "";
  if (code === "") return refusal.value === "" ? null : <p role="alert">{refusal.value}</p>;
  return <div role="alert">
    <p>{what}</p>
    <p>{remedy}</p>
    {subject !== "" && <p>Subject: <code>{subject}</code></p>}
  </div>;
}

function KeyForm() {
  const [value, setValue] = useState("");
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (): Promise<void> => {
    setBusy(true);
    setError("");
    try {
      await signInWithKey(value.trim());
      refusal.value = "";
      const next = nextOf(place.value.query);
      const who = await askMe();
      if (who === null) {
        setError("The browser did not keep the cookie of the session. It needs https, or an address of this machine.");
      } else {
        me.value = who;
        go(next, { replace: true });
      }
    } catch (thrown) {
      setError(thrown instanceof ApiError && thrown.status === 401 ? "The server does not know this key, or it has ended."
        : thrown instanceof ApiError ? thrown.message : String(thrown));
    }
    setValue("");
    setBusy(false);
  };
  return <form onSubmit={(event) => { event.preventDefault(); if (value.trim() !== "" && !isBusy) void submit(); }}>
    <label>API key
      <input name="key" type="password" required autocomplete="off" spellcheck={false} value={value}
        onInput={(event) => setValue(event.currentTarget.value)} />
    </label>
    {error !== "" && <p role="alert">{error}</p>}
    <button class="main" disabled={isBusy}>Sign in with the key</button>
  </form>;
}

function Methods({ methods: { methods, provider } }: { methods: SignInMethods }) {
  const next = encodeURIComponent(nextOf(place.value.query));
  return <>
    {methods.includes("oidc") && <a class="button main" href={`/ui/auth/login?next=${next}`} data-leaves>
      Continue with {provider ?? "the identity provider"}</a>}
    {methods.includes("key") && <KeyForm />}
    {methods.includes("key") && <>
      <p class="muted">The key becomes a session of this browser and is not kept. <code>lathe up</code> prints a link
        that signs in, and the file that has a key; this makes another:</p>
      <Copied text="lathe keys create --tenant NAME" />
    </>}
  </>;
}

export function SignIn() {
  const [methods, setMethods] = useState<SignInMethods | undefined>(undefined);
  const [error, setError] = useState("");
  useEffect(() => {
    let isOver = false;
    let timer = 0;
    const ask = async (): Promise<void> => {
      const kPauseMs = 2000;
      try {
        const answer = await signInMethods();
        if (!isOver) setMethods(answer);
        if (!isOver) setError("");
      } catch (thrown) {
        if (isOver) return;
        setError(thrown instanceof ApiError ? thrown.message : String(thrown));
        timer = setTimeout(() => void ask(), kPauseMs);
      }
    };
    void ask();
    return () => { isOver = true; clearTimeout(timer); };
  }, []);
  return <div class="signin">
    <h1 class="hidden">Lathe</h1>
    <Card title="Sign in">
      <Failure />
      {error !== "" && <p role="alert">{error}; the page asks again by itself.</p>}
      {methods === undefined ? error === "" && <Loading /> : <Methods methods={methods} />}
    </Card>
  </div>;
}

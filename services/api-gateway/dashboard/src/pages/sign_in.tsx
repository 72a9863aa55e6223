// Asks for an API key. The address stays, so that a copied link leads on after it.
import { useState } from "preact/hooks";
import { Card, Copied } from "../parts/basic";
import { refusal, signIn } from "../session";

export function SignIn() {
  const [value, setValue] = useState("");
  return <div class="signin">
    <h1 class="hidden">Lathe</h1>
    <Card title="Sign in">
      <form onSubmit={(event) => { event.preventDefault(); if (value.trim() !== "") signIn(value.trim()); }}>
        <label>API key
          <input name="key" type="password" required autocomplete="off" spellcheck={false} value={value}
            onInput={(event) => setValue(event.currentTarget.value)} />
        </label>
        {refusal.value !== "" && <p role="alert">{refusal.value}</p>}
        <button class="main">Sign in</button>
      </form>
      <p class="muted">The key stays in this tab. <code>lathe up</code> prints the file that has one; this makes another:</p>
      <Copied text="lathe keys create --tenant NAME" />
    </Card>
  </div>;
}

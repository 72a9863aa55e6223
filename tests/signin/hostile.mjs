// A hostile identity provider for tests: oauth2-mock-server, whose answers a test spoils in one way.
//
//   node hostile.mjs       prints {"issuer": …} once it listens
//   POST /control          {variant, claims}: what is wrong from now on; "good": nothing
//   GET /control           how often each address was asked
import { createHmac, createPublicKey } from "node:crypto";
import { createServer } from "node:http";
import { OAuth2Server } from "oauth2-mock-server";

const kHugeBytes = 10_000_000;
const state = { variant: "good", claims: {} };
const asked = {};
const now = () => Math.floor(Date.now() / 1000);

// Claims that are wrong, but signed by the right key.
const payloads = {
  wrong_iss: (claims) => { claims.iss = "http://127.0.0.1:1"; },
  wrong_aud: (claims) => { claims.aud = "another-client"; },
  many_aud: (claims) => { claims.aud = ["lathe", "another-client"]; claims.azp = "another-client"; },
  wrong_nonce: (claims) => { claims.nonce = "of-another-sign-in"; },
  no_nonce: (claims) => { delete claims.nonce; },
  expired: (claims) => { claims.iat = now() - 7200; claims.exp = now() - 3600; },
  future_iat: (claims) => { claims.iat = now() + 3600; claims.exp = now() + 7200; },
  no_exp: (claims) => { delete claims.exp; },
  no_sub: (claims) => { delete claims.sub; },
  long_sub: (claims) => { claims.sub = "x".repeat(256); },
};

const encode = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");
const parts = (token) => token.split(".");
const claimsOf = (token) => JSON.parse(Buffer.from(parts(token)[1], "base64url"));

// Tokens that the right key did not sign as they stand.
const tokens = {
  alg_none: (token) => `${encode({ alg: "none", typ: "JWT" })}.${parts(token)[1]}.`,
  alg_none_signed: (token) => `${encode({ alg: "None", kid: kidOf(token) })}.${parts(token)[1]}.${parts(token)[2]}`,
  // The public key, which everybody has, as the secret of an HMAC.
  key_confusion: (token) => {
    const pem = createPublicKey({ key: publicKey(), format: "jwk" }).export({ type: "spki", format: "pem" });
    const signed = `${encode({ alg: "HS256", typ: "JWT", kid: kidOf(token) })}.${parts(token)[1]}`;
    return `${signed}.${createHmac("sha256", pem).update(signed).digest("base64url")}`;
  },
  changed_payload: (token) => {
    const [header, , signature] = parts(token);
    return `${header}.${encode({ ...claimsOf(token), groups: ["lathe-operators"] })}.${signature}`;
  },
  unknown_kid: (token) => `${encode({ alg: "RS256", typ: "JWT", kid: "absent" })}.${parts(token)[1]}.${parts(token)[2]}`,
  alg_list: (token) => `${encode({ alg: ["RS256", "none"], kid: kidOf(token) })}.${parts(token)[1]}.${parts(token)[2]}`,
  crit: (token) => `${encode({ alg: "RS256", kid: kidOf(token), crit: ["x"], x: 1 })}.${parts(token)[1]}.${parts(token)[2]}`,
  two_parts: (token) => parts(token).slice(0, 2).join("."),
  no_token: () => undefined,
};

// Its own listener is never started: the one below comes before its answers.
const { issuer, service } = new OAuth2Server();
const publicKey = () => issuer.keys.toJSON()[0];
const kidOf = (token) => JSON.parse(Buffer.from(parts(token)[0], "base64url")).kid;

service.on("beforeTokenSigning", (token) => {
  Object.assign(token.payload, state.claims);
  payloads[state.variant]?.(token.payload);
});
service.on("beforeResponse", (response) => {
  const change = tokens[state.variant];
  if (change !== undefined) response.body.id_token = change(response.body.id_token);
});
service.on("beforeAuthorizeRedirect", ({ url }) => {
  if (state.variant === "wrong_state") url.searchParams.set("state", "of-another-sign-in");
  if (state.variant === "mix_up") url.searchParams.set("iss", "http://127.0.0.1:1");
  if (state.variant === "denied") {
    url.searchParams.delete("code");
    url.searchParams.set("error", "access_denied");
  }
});

// Answers by which a provider holds up or leads away a careless client. Returns true if it answered.
function spoil(request, response, path) {
  const isDiscovery = path === "/.well-known/openid-configuration";
  const [kind, subject] = state.variant.split(":");
  const isSubject = { discovery: isDiscovery, jwks: path === "/jwks", token: path === "/token" }[subject];
  if (isSubject !== true) return false;
  if (kind === "slow") return true;
  if (kind === "redirect") response.writeHead(302, { Location: `${issuer.url}/elsewhere` }).end();
  if (kind === "garbage") response.writeHead(200, { "Content-Type": "application/json" }).end("{\"issuer\": ");
  if (kind === "huge") {
    response.writeHead(200, { "Content-Type": "application/json" }).end(`{"x": "${"x".repeat(kHugeBytes)}"}`);
  }
  if (kind === "other_host") {
    response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify({
      issuer: issuer.url, authorization_endpoint: `${issuer.url}/authorize`,
      token_endpoint: "http://169.254.169.254/token", jwks_uri: "http://169.254.169.254/jwks",
      response_types_supported: ["code"], id_token_signing_alg_values_supported: ["RS256"],
    }));
  }
  return true;
}

async function control(request, response) {
  if (request.method === "POST") {
    let text = "";
    for await (const piece of request) text += piece;
    Object.assign(state, JSON.parse(text));
  }
  response.setHeader("Content-Type", "application/json");
  response.end(JSON.stringify({ asked }));
}

await issuer.keys.generate("RS256");
const server = createServer((request, response) => {
  const path = new URL(request.url, "http://127.0.0.1").pathname;
  asked[path] = (asked[path] ?? 0) + 1;
  if (path === "/control") void control(request, response);
  else if (!spoil(request, response, path)) service.requestHandler(request, response);
});
server.listen(0, "127.0.0.1", () => {
  issuer.url = `http://127.0.0.1:${server.address().port}`;
  console.log(JSON.stringify({ issuer: issuer.url }));
});

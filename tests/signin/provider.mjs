// An identity provider for tests: oidc-provider, which signs in whom a test names.
//
//   node provider.mjs      prints {"issuer": …} once it listens
//   POST /control          {account, claims, deny, redirect_uris, rotate}; each member is optional
//   GET /control           how often each address was asked
import { createServer } from "node:http";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import Provider from "oidc-provider";

const kClientId = "lathe";
const kClientSecret = process.env.CLIENT_SECRET ?? "";
const state = { account: "ada", claims: {}, deny: false, redirect_uris: [], post_logout_redirect_uris: [] };
const asked = {};
let keys = [newKey()];
let provider;

function newKey() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: randomBytes(6).toString("hex") };
}

function make(issuer) {
  provider = new Provider(issuer, {
    clients: [{
      client_id: kClientId,
      ...(kClientSecret === "" ? { token_endpoint_auth_method: "none" } : { client_secret: kClientSecret }),
      redirect_uris: state.redirect_uris.length > 0 ? state.redirect_uris : ["http://127.0.0.1:1/unset"],
      post_logout_redirect_uris: state.post_logout_redirect_uris,
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
    }],
    jwks: { keys },
    cookies: { keys: [randomBytes(16).toString("hex")] },
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "groups"], groups: ["groups"] },
    scopes: ["openid", "offline_access", "email", "profile", "groups"],
    // The ID token has the claims itself.
    conformIdTokenClaims: false,
    pkce: { required: () => true, methods: ["S256"] },
    features: { devInteractions: { enabled: false }, rpInitiatedLogout: { enabled: true } },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, ...state.claims }) }),
    ttl: { Session: 600, Grant: 600, Interaction: 600, AccessToken: 600, IdToken: 600, RefreshToken: 600 },
  });
}

async function interact(request, response) {
  const { prompt, params } = await provider.interactionDetails(request, response);
  if (state.deny) {
    return provider.interactionFinished(request, response,
      { error: "access_denied", error_description: "the test says no" });
  }
  if (prompt.name === "login") {
    return provider.interactionFinished(request, response, { login: { accountId: state.account, remember: false } });
  }
  const grant = new provider.Grant({ accountId: state.account, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  return provider.interactionFinished(request, response,
    { consent: { grantId: await grant.save() } }, { mergeWithLastSubmission: true });
}

async function control(request, response, issuer) {
  if (request.method === "POST") {
    let text = "";
    for await (const piece of request) text += piece;
    const { rotate, ...rest } = JSON.parse(text);
    Object.assign(state, rest);
    if (rotate === true) keys = [newKey()];
    if (rotate === true || rest.redirect_uris !== undefined) make(issuer);
  }
  response.setHeader("Content-Type", "application/json");
  response.end(JSON.stringify({ asked, kids: keys.map(({ kid }) => kid) }));
}

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  make(issuer);
  server.on("request", (request, response) => {
    const path = new URL(request.url, issuer).pathname;
    asked[path] = (asked[path] ?? 0) + 1;
    const answer = path === "/control" ? control(request, response, issuer)
      : path.startsWith("/interaction/") ? interact(request, response) : provider.callback()(request, response);
    Promise.resolve(answer).catch((error) => {
      response.statusCode = 500;
      response.end(String(error));
    });
  });
  console.log(JSON.stringify({ issuer }));
});

"""Every route × who calls × whose object. The routes are those of /docs/openapi.json, which is made
of the route table: one without a row here fails."""

import itertools

import httpx
import pytest

from support.raw_api import ADAM, RawApi, RawModel

CHECKPOINT = "training_runs/{model}/checkpoints/weights/{name}"
ANY = {"train", "sample", "read", "checkpoints:write"}
TRAIN, SAMPLE, READ, WRITE = {"train"}, {"sample"}, {"read"}, {"checkpoints:write"}
ADMIN, OPERATOR = {"admin"}, {"operator"}
EXTERNAL = "training_runs/{model}/checkpoints/external_weights/{name}/external_weights_urls"
PROMPT = {"prompt": {"chunks": [{"type": "encoded_text", "tokens": [30]}]}, "num_samples": 1,
          "sampling_params": {"max_tokens": 1}}
LORA = {"rank": 4, "train_mlp": True}
BATCH = {"data": [], "loss_fn": "cross_entropy"}


NUMBERS = itertools.count(100)  # of models


class Row:
    """One request to a route. `path` and `body` name objects by {session}, {model}, {sampler},
    {future}, {name}, {key} and {tinker_path}; {own_session} is the caller's. `scopes`: a key with one of
    them passes; None: no key is needed."""

    def __init__(self, route, scopes, body=None, path=None, status=200,
                 ends_key=False):
        self.method, pattern = route.split(" ")
        self.pattern = pattern if pattern.startswith("/") else "/api/v1/" + pattern
        self.scopes, self.body, self.status = scopes, body, status
        self.path, self.ends_key = path or pattern, ends_key
        self.names_object = "{" in self.path + repr_names(body)

    def send(self, api, names):
        options = {} if self.body is None else {"json": filled(self.body, names)}
        return api.request(self.method, self.path.format(**names), **options)

    def __repr__(self):
        return f"{self.method} {self.path} {sorted(self.body or ())}"


def repr_names(body):
    if isinstance(body, dict):
        return "".join(map(repr_names, body.values()))
    return body if isinstance(body, str) else ""


def filled(body, names):
    if isinstance(body, dict):
        return {key: filled(value, names) for key, value in body.items()}
    return body.format(**names) if isinstance(body, str) else body


MATRIX = [
    # Before the others: a log also keeps what its tenant tried in vain, with the names it gave.
    Row("GET audit", ADMIN),
    Row("GET keys", ADMIN),
    Row("POST keys", ADMIN, {"name": "made"}),
    Row("POST keys/{key_id}/rotate", ADMIN, {"overlap_seconds": 60}, "keys/{key}/rotate"),
    Row("GET tenants", ADMIN),
    Row("PUT tenants/{tenant_name}/quota", OPERATOR, {"adapters": 1000}, "tenants/default/quota"),
    Row("POST client/config", ANY, {}),
    Row("POST client/dynamic_config", ANY, {}),
    Row("POST telemetry", ANY, {}),
    Row("GET healthz", None), Row("GET /livez", None), Row("GET /readyz", None),
    Row("GET get_server_capabilities", ANY),
    Row("POST create_session", TRAIN | SAMPLE | READ, {}),
    Row("POST session_heartbeat", ANY, {"session_id": "{session}"}),
    Row("GET sessions", READ),
    Row("GET sessions/{session_id}", READ, path="sessions/{session}"),
    Row("GET sessions/{session_id}/trace_export", READ, path="sessions/{session}/trace_export"),
    Row("POST create_model", TRAIN, {"session_id": "{session}", "model_seq_id": 5,
                                     "base_model": "tiny", "lora_config": LORA}),
    Row("POST get_info", ANY, {"model_id": "{model}"}),
    Row("POST forward_backward", TRAIN, {"model_id": "{model}", "seq_id": 20,
                                         "forward_backward_input": BATCH}),
    Row("POST forward", TRAIN, {"model_id": "{model}", "seq_id": 21, "forward_input": BATCH}),
    Row("POST optim_step", TRAIN, {"model_id": "{model}", "seq_id": 22, "adam_params": ADAM}),
    Row("POST create_custom_loss", ANY, {}, status=400),
    Row("POST save_weights_external", TRAIN, {"model_id": "{model}", "seq_id": 23,
                                              "path": "again"}),
    Row("POST copy_weights", WRITE, {"source_path": "{tinker_path}"}),
    Row("GET training_runs/{run_id}/checkpoints/external_weights/{name}/external_weights_urls",
        READ, None, EXTERNAL),
    Row("POST join_sampling_session", SAMPLE, {"sampling_session_id": "{sampler}"}),
    Row("POST cancel_future", SAMPLE, {"request_id": "unknown"}),
    Row("PUT sessions/{session_id}/project", TRAIN | SAMPLE, {"project_id": "p"},
        "sessions/{session}/project", 204),
    Row("GET training_runs", READ, path="training_runs?project_id=p"),
    Row("POST sessions/search", READ, {"owner": {"type": "accessible"}}),
    Row("GET billing/usage/events", READ, path="billing/usage/events"
        "?starting_on=2026-01-01T00:00:00Z&ending_before=2026-01-02T00:00:00Z"),
    Row("GET billing/usage/checkpoints/current", READ),
    Row("GET status", READ), Row("GET machine_metrics", READ),
    Row("GET events", READ, path="events?runs=absent", status=404),
    Row("GET groups/{group}/models", OPERATOR, path="groups/absent/models", status=404),
    Row("POST groups/{group}/drain", OPERATOR, None, "groups/absent/drain", 404),
    Row("POST groups/{group}/resume", OPERATOR, None, "groups/absent/resume", 404),
    Row("DELETE groups/{group}", OPERATOR, path="groups/absent", status=404),
    Row("PUT groups/{group}/models/{run_id}", OPERATOR, None, "groups/absent/models/absent:train:0", 404),
    Row("POST auth/token", ANY, {}),
    Row("GET auth/apikey/me", ANY),
    Row("POST save_weights", TRAIN, {"model_id": "{model}", "seq_id": 24, "path": "again"}),
    Row("POST save_weights_for_sampler", TRAIN, {"model_id": "{model}", "seq_id": 25,
                                                 "path": "again"}),
    Row("POST load_weights", TRAIN, {"model_id": "{model}", "seq_id": 26, "path": "{tinker_path}"}),
    Row("POST load_weights", TRAIN, {"session_id": "{session}", "model_seq_id": 6,
                                     "path": "{tinker_path}"}),
    Row("POST load_weights", TRAIN, {"session_id": "{own_session}", "model_seq_id": 7,
                                     "path": "{tinker_path}"}),
    Row("POST weights_info", ANY, {"tinker_path": "{tinker_path}"}),
    Row("POST create_sampling_session", SAMPLE, {
        "session_id": "{session}", "sampling_session_seq_id": 5, "base_model": "tiny"}),
    Row("POST create_sampling_session", SAMPLE, {
        "session_id": "{own_session}", "sampling_session_seq_id": 6,
        "model_path": "{tinker_path}"}),
    Row("POST asample", SAMPLE, {"sampling_session_id": "{sampler}", "seq_id": 5, **PROMPT}),
    Row("GET samplers/{sampling_session_id}", ANY, path="samplers/{sampler}"),
    Row("POST retrieve_future", ANY, {"request_id": "{future}"}),
    # Errors would end a client's sampling: an unknown session is one without samples.
    Row("POST retrieve_futures", ANY, {"target": {"sampling_session_id": "unknown"},
                                       "timeout": 0}),
    Row("GET training_runs", READ),
    Row("GET training_runs/{run_id}", READ, path="training_runs/{model}"),
    Row("GET training_runs/{run_id}/requests", READ, path="training_runs/{model}/requests"),
    Row("GET training_runs/{run_id}/metrics", READ, path="training_runs/{model}/metrics"),
    Row("POST training_runs/{run_id}/metrics", TRAIN, {"points": [{"name": "a", "value": 1, "step": 1}]},
        "training_runs/{model}/metrics"),
    Row("GET training_runs/{run_id}/checkpoints", READ, path="training_runs/{model}/checkpoints"),
    Row("GET checkpoints", READ),
    Row("PUT training_runs/{run_id}/checkpoints/{kind}/{name}/ttl", WRITE, {"ttl_seconds": 4000},
        CHECKPOINT + "/ttl", 204),
    Row("GET training_runs/{run_id}/checkpoints/{kind}/{name}/archive", READ, None,
        CHECKPOINT + "/archive", 302),
    Row("GET /archive/{token}", None, path="/archive/{token}"),
    Row("GET /traces/{token}", None, path="/traces/{trace_token}"),
    Row("POST training_runs/{run_id}/checkpoints/{kind}/{name}/publish", WRITE, None,
        CHECKPOINT + "/publish", 204),
    Row("DELETE training_runs/{run_id}/checkpoints/{kind}/{name}/publish", WRITE, None,
        CHECKPOINT + "/publish", 204),
    Row("GET /docs", None), Row("GET /docs/page.js", None), Row("GET /docs/page.css", None),
    Row("GET /docs/openapi.json", None),
    Row("GET /", None, path="/", status=303), Row("GET /ui", None), Row("GET /ui/{page}", None, path="/ui/runs"),
    Row("GET /ui/runs/{run_id}", None, path="/ui/runs/{model}"),
    Row("GET /ui/assets/{file}", None, path="/ui/assets/absent", status=404),
    Row("GET users", ADMIN),
    # No key makes a user, so there is none. tests/signin has the routes with users.
    Row("PATCH users/{user_id}", ADMIN, {"disabled": False}, "users/absent", 404),
    Row("GET users/{user_id}/sessions", ADMIN, None, "users/absent/sessions", 404),
    Row("DELETE users/{user_id}/sessions/{user_session_id}", ADMIN, None, "users/absent/sessions/absent", 404),
    Row("GET /ui/auth/methods", None), Row("POST /ui/auth/key", None, {}, status=400),
    Row("GET /ui/auth/login", None, status=404), Row("GET /ui/auth/callback", None, status=303),
    # These end the owner's objects, so they come last.
    Row("DELETE training_runs/{run_id}/checkpoints/{kind}/{name}", WRITE, None, CHECKPOINT, 204),
    Row("DELETE keys/{key_id}", ADMIN, None, "keys/{key}", 204),
    Row("POST unload_model", TRAIN, {"model_id": "{model}"}),
    Row("POST sessions/{session_id}/finish", ANY, {}, "sessions/{session}/finish"),
    Row("DELETE auth/apikey/me", ANY, ends_key=True),
]

# Routes for browsers, which no key opens.
WITH_SESSION = {("POST", "/ui/auth/logout"), ("GET", "/ui/api/v1/me")}

# Requests of a stranger with a second credential, a key of the owner. `scopes` are those that the
# second one needs.
WITH_TOKEN = [
    Row("POST load_weights", TRAIN, {
        "session_id": "{own_session}", "model_seq_id": "{number}", "path": "{tinker_path}",
        "weights_access_token": "{second}"}),
    Row("POST copy_weights", READ, {
        "source_path": "{tinker_path}", "weights_access_token": "{second}"}),
]

ABSENT = {"session": "absent", "model": "absent:train:0", "sampler": "absent:sample:0",
          "future": "req-00000000000000000000000000000000", "name": "kept", "token": "absent", "key": "aaaaaaaaaaaa",
          "trace_token": "absent",
          "tinker_path": "tinker://absent:train:0/weights/kept"}


class Tenant:
    """A key with everything a tenant can own."""

    def __init__(self, server, key=None):
        self.api = RawApi(server, key)
        model = RawModel(self.api)
        sampler = self.api.made("create_sampling_session", {
            "session_id": model.session_id, "sampling_session_seq_id": 0,
            "base_model": server.model_name})["sampling_session_id"]
        saved = self.api.made("save_weights", {"model_id": model.model_id, "seq_id": 1,
                                               "path": "kept"})
        self.api.result(self.api.made("save_weights_external", {
            "model_id": model.model_id, "seq_id": 2, "path": "kept"}))
        names = {"session": model.session_id, "model": model.model_id, "sampler": sampler,
                 "future": saved["request_id"], "name": "kept",
                 "key": self.api.made("keys", {"name": "spare"})["key_id"],
                 "tinker_path": self.api.result(saved)["path"]}
        link = self.api.get((CHECKPOINT + "/archive").format(**names)).headers["location"]
        trace = self.api.get(f"sessions/{model.session_id}/trace_export").json()["url"]
        self.names = {**names, "token": link.rsplit("/", 1)[1], "own_session": model.session_id,
                      "trace_token": trace.rsplit("/", 1)[1]}


@pytest.fixture(scope="module")
def owner(lathe):
    return Tenant(lathe, lathe.create_key("default", scopes=sorted(OPERATOR)))


@pytest.fixture(scope="module")
def stranger(lathe):
    return Tenant(lathe, lathe.create_key("stranger", scopes=sorted(ANY | ADMIN)))


def test_every_route_has_a_row(api):
    paths = api.get("/docs/openapi.json").json()["paths"]
    served = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    rows = {(row.method, row.pattern) for row in MATRIX} | WITH_SESSION
    assert served - rows == set(), "MATRIX of this file lacks a row for these routes"
    assert rows - served == set(), "MATRIX of this file has rows without a route"


@pytest.mark.parametrize("key", ["", "tml-wrong", "tml-" + "a" * 60])
def test_without_a_key_that_is_known(api, owner, key):
    with_key = RawApi(api.server, key)
    for row in MATRIX:
        answer = row.send(with_key, owner.names)
        assert (answer.status_code == 401) == (row.scopes is not None), (row, answer.text)


def test_no_key_is_a_session(api):
    for method, path in WITH_SESSION:
        assert api.request(method, path, json={} if method == "POST" else None).status_code == 401, path


@pytest.mark.parametrize("scope", sorted(ANY | ADMIN))
def test_a_key_does_what_its_scope_says(api, scope):
    with_scope = RawApi(api.server, api.server.create_key("default", scopes=[scope]))
    for row in MATRIX:
        answer = row.send(with_scope, {**ABSENT, "own_session": "absent"})
        allowed = row.scopes is None or scope in row.scopes or (scope == "admin" and row.scopes != OPERATOR)
        assert (answer.status_code == 403) != allowed, (row, answer.text)
        if not allowed:
            assert answer.json()["error"]["code"] == "missing_scope"


def test_what_belongs_to_another_is_like_what_does_not_exist(owner, stranger):
    own_session = {"own_session": stranger.names["session"]}
    for row in MATRIX:
        if row.scopes is None or row.ends_key:
            continue
        foreign = row.send(stranger.api, {**owner.names, **own_session})
        if row.scopes == OPERATOR:
            assert foreign.json()["error"]["code"] == "missing_scope", row
            continue
        if not row.names_object:
            assert foreign.status_code == row.status, (row, foreign.text)
            for name in ("session", "model", "sampler", "future", "tinker_path"):
                assert owner.names[name] not in foreign.text, row
            continue
        absent = row.send(stranger.api, {**ABSENT, **own_session})
        assert foreign.status_code == absent.status_code == 404, (row, foreign.text, absent.text)
        text = foreign.text
        for name in ("tinker_path", "model", "sampler", "session", "future", "key"):
            text = text.replace(owner.names[name], ABSENT[name])
        assert text == absent.text, row
        assert {name for name, _ in foreign.headers.items()} == set(absent.headers)


def test_the_right_key_finds_its_own(owner):
    """After all of the above: none of it changed anything of the owner's."""
    for row in MATRIX:
        if row.ends_key:
            continue
        answer = row.send(owner.api, owner.names)
        assert answer.status_code == row.status, (row, answer.text)


def test_a_published_checkpoint_is_read_by_others_and_changed_by_none(api, stranger):
    owner = Tenant(api.server)
    path = CHECKPOINT.format(**owner.names)
    assert owner.api.post(path + "/publish").status_code == 204
    info = {"tinker_path": owner.names["tinker_path"]}
    assert stranger.api.post("weights_info", info).status_code == 200
    assert stranger.api.post("create_sampling_session", {
        "session_id": stranger.names["session"], "sampling_session_seq_id": 9,
        "model_path": owner.names["tinker_path"]}).status_code == 200
    for method, suffix, body in (("DELETE", "", None), ("DELETE", "/publish", None),
                                 ("POST", "/publish", None), ("PUT", "/ttl", {"ttl_seconds": 4000})):
        answer = stranger.api.request(method, path + suffix, **({"json": body} if body else {}))
        assert answer.status_code == 404, (method, suffix, answer.text)
    assert owner.names["tinker_path"] not in stranger.api.get("checkpoints").text
    assert owner.api.request("DELETE", path + "/publish").status_code == 204
    assert stranger.api.post("weights_info", info).status_code == 404


def test_a_link_works_for_itself_alone(owner):
    server = owner.api.server
    token = owner.names["token"]
    for index in (0, len(token) // 2, len(token) - 2):
        changed = "a" if token[index] != "a" else "b"
        answer = httpx.get(f"{server.url}/archive/{token[:index]}{changed}{token[index + 1:]}")
        assert answer.status_code in (400, 403, 404), answer.text


def fields_of(document, operation):
    """Names of the fields of a route's JSON body."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    while "$ref" in schema:
        at = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            at = at[part]
        schema = at
    return set(schema.get("properties", {}))


def test_every_route_with_a_second_credential_has_a_row(api):
    document = api.get("/docs/openapi.json").json()
    taking = {(method.upper(), path) for path, methods in document["paths"].items()
              for method, operation in methods.items()
              if "weights_access_token" in fields_of(document, operation)}
    assert taking == {(row.method, row.pattern) for row in WITH_TOKEN}


@pytest.mark.parametrize("scope", sorted(ANY | ADMIN))
def test_a_second_credential_does_what_its_scope_says(api, stranger, scope):
    owner = Tenant(api.server)  # what the other one had is deleted above
    second = api.server.create_key("default", scopes=[scope])
    for row in WITH_TOKEN:
        names = {**owner.names, "own_session": stranger.names["session"], "second": second}
        body = filled(row.body, {**names, "number": ""})
        if "model_seq_id" in body:
            body["model_seq_id"] = next(NUMBERS)
        answer = stranger.api.post(row.path, body)
        if scope in row.scopes or scope in ADMIN:
            assert answer.status_code == 200, (row, answer.text)
        else:
            assert answer.status_code == 403, (row, answer.text)
            assert answer.json()["error"]["code"] == "missing_scope"
            assert answer.json()["error"]["param"] == "weights_access_token"

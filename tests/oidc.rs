//! Tokens of an OpenID Connect issuer: who they let in, and every way in which they must not.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

use crate::support::command::{command, sshjobs, told};
use crate::support::server::{Caller, Server};
use crate::support::{HOST, Sshd, eventually, exit_of};

const AUDIENCE: &str = "https://jobs.example.com";

/// An issuer in this process: its discovery document, its keys, and a key to sign with.
struct Issuer {
    url: String,
    key: EcdsaKeyPair,
    state: Arc<IssuerState>,
}

struct IssuerState {
    keys: Mutex<Vec<Value>>,
    /// Number of requests for its keys.
    fetches: AtomicUsize,
    /// Time before it answers a request for its keys.
    delay: Mutex<Duration>,
}

impl Issuer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let key = new_key();
        let state = Arc::new(IssuerState {
            keys: Mutex::new(vec![jwk("first", &key)]),
            fetches: AtomicUsize::new(0),
            delay: Mutex::default(),
        });
        let (served, base) = (Arc::clone(&state), url.clone());
        // Ends with the process: a blocked accept can't be interrupted.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (served, base) = (Arc::clone(&served), base.clone());
                std::thread::spawn(move || answer(&served, &base, stream));
            }
        });
        Self { url, key, state }
    }

    fn claims(&self) -> Value {
        json!({"iss": self.url, "sub": "repo:acme/shop", "aud": AUDIENCE, "exp": now() + 300,
            "repository": "acme/shop", "ref": "refs/heads/main"})
    }

    fn token(&self, claims: &Value) -> String {
        self.token_with(
            &json!({"alg": "ES256", "kid": "first", "typ": "JWT"}),
            claims,
        )
    }

    fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let random = SystemRandom::new();
        let signature = self.key.sign(&random, message.as_bytes()).unwrap();
        format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    fn fetches(&self) -> usize {
        self.state.fetches.load(Ordering::Relaxed)
    }
}

fn answer(state: &IssuerState, base: &str, mut stream: TcpStream) {
    let mut request = String::new();
    BufReader::new(&stream).read_line(&mut request).ok();
    let body = if request.contains("/.well-known/openid-configuration") {
        json!({"issuer": base, "jwks_uri": format!("{base}/keys")})
    } else {
        state.fetches.fetch_add(1, Ordering::Relaxed);
        let delay = *state.delay.lock().unwrap();
        std::thread::sleep(delay);
        json!({"keys": *state.keys.lock().unwrap()})
    };
    let body = body.to_string();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .ok();
}

fn new_key() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap()
}

fn jwk(id: &str, key: &EcdsaKeyPair) -> Value {
    let point = key.public_key().as_ref();
    let coordinate = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    json!({"kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "alg": "ES256",
        "x": coordinate(&point[1..33]), "y": coordinate(&point[33..])})
}

fn encode(value: &Value) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(value.to_string())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn configuration(issuer: &Issuer) -> String {
    format!(
        r#"
[[oidc.issuers]]
name = "ci"
issuer = "{}"
audiences = ["{AUDIENCE}"]
algorithms = ["ES256", "RS256"]

[[oidc.issuers.roles]]
role = "run"
hosts = ["{HOST}"]
claims = {{ repository = "acme/*", ref = "refs/heads/main" }}

[[oidc.issuers.roles]]
role = "read"
claims = {{ repository = "acme/*" }}
"#,
        issuer.url
    )
}

struct Fixture {
    sshd: Sshd,
    issuer: Issuer,
    server: Server,
}

impl Fixture {
    async fn start() -> Self {
        let sshd = Sshd::start().await;
        let issuer = Issuer::start();
        let server = serve(&sshd, &configuration(&issuer), &[]);
        Self {
            sshd,
            issuer,
            server,
        }
    }

    fn caller(&self, token: &str) -> Caller {
        Caller::new(&self.server.url, token)
    }

    /// The status and the message of a call with a token.
    fn listed(&self, token: &str) -> (u16, String) {
        let (status, reply) = self.caller(token).call("jobs", json!({}));
        (
            status,
            reply["message"].as_str().unwrap_or_default().to_owned(),
        )
    }
}

fn serve(sshd: &Sshd, configuration: &str, arguments: &[&str]) -> Server {
    fs::write(sshd.path("config.toml"), configuration).unwrap();
    let config = sshd.path("config.toml").display().to_string();
    Server::with(sshd, &[&["--config", &config], arguments].concat())
}

#[tokio::test]
async fn claims_of_a_token_name_its_caller_and_give_it_a_role() {
    let fixture = Fixture::start().await;
    let issuer = &fixture.issuer;
    let agent = fixture.caller(&issuer.token(&issuer.claims()));
    let reply = agent.ok("run", json!({"host": HOST, "command": "echo from CI"}));
    assert_eq!(reply["head"][0], "from CI", "{reply}");
    let jobs = agent.ok("jobs", json!({}));
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1, "{jobs}");

    let mut claims = issuer.claims();
    claims["ref"] = json!("refs/heads/other");
    claims["sub"] = json!("another");
    let reader = fixture.caller(&issuer.token(&claims));
    assert!(reader.ok("jobs", json!({}))["jobs"].as_array().unwrap().is_empty());
    let (status, refused) = reader.call("run", json!({"host": HOST, "command": "true"}));
    assert_eq!((status, &refused["code"]), (403, &json!("policy_denied")));
    assert!(
        refused["message"].as_str().unwrap().contains("ci|another"),
        "{refused}"
    );

    claims["repository"] = json!("evil/shop");
    let (status, message) = fixture.listed(&issuer.token(&claims));
    assert_eq!(
        (status, message.as_str()),
        (403, "the token's claims give no role on this server")
    );
    // Tokens of this program are accepted as before.
    assert_eq!(
        fixture.server.caller(&fixture.sshd, "static", &[]).call("jobs", json!({})).0,
        200
    );
}

/// Checks that each token is refused with a message that has this text.
#[track_caller]
fn assert_refused<const N: usize>(fixture: &Fixture, tokens: [(String, &str); N]) {
    for (token, expected) in tokens {
        let (status, message) = fixture.listed(&token);
        assert_eq!(status, 401, "{token}: {message}");
        assert!(
            message.contains(expected),
            "{token}: {message:?} lacks {expected:?}"
        );
        // Below the limit of failures of one address.
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[tokio::test]
async fn a_token_with_missing_or_other_claims_is_refused() {
    let fixture = Fixture::start().await;
    let issuer = &fixture.issuer;
    let with = |name: &str, value: Value| {
        let mut claims = issuer.claims();
        claims[name] = value;
        issuer.token(&claims)
    };
    let without = |name: &str| {
        let mut claims = issuer.claims();
        claims.as_object_mut().unwrap().remove(name);
        issuer.token(&claims)
    };
    let refused = [
        (with("aud", json!("https://other.example.com")), "audience"),
        (with("aud", json!([])), "audience"),
        (without("aud"), "aud"),
        (without("sub"), "sub"),
        (without("exp"), "exp"),
        (with("exp", json!(now() - 120)), "expired"),
        (with("exp", json!("never")), "the claim exp"),
        (with("nbf", json!(now() + 120)), "not valid yet"),
        (
            with("iss", json!("https://elsewhere.example.com")),
            "issuer",
        ),
        (with("sub", json!("")), "the claim sub"),
        (with("sub", json!("a b")), "the claim sub"),
        (with("sub", json!(["a", "b"])), "not a signed JWT"),
    ];
    assert_refused(&fixture, refused);

    // Within the accepted difference of clocks.
    assert_eq!(fixture.listed(&with("exp", json!(now() - 30))).0, 200);
    assert_eq!(fixture.listed(&with("nbf", json!(now() + 30))).0, 200);
    assert_eq!(fixture.listed(&with("aud", json!(["x", AUDIENCE]))).0, 200);
}

/// A token signed with the public key of an issuer, as if that were a shared secret.
fn signed_with_the_public_key(issuer: &Issuer) -> String {
    let header = json!({"alg": "HS256", "kid": "first"});
    let message = format!("{}.{}", encode(&header), encode(&issuer.claims()));
    let public = issuer.key.public_key().as_ref();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, public);
    let tag = ring::hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
}

#[tokio::test]
async fn a_token_with_another_algorithm_key_or_form_is_refused() {
    let fixture = Fixture::start().await;
    let issuer = &fixture.issuer;
    let header = |header: Value| issuer.token_with(&header, &issuer.claims());
    let good = issuer.token(&issuer.claims());
    let unsigned = good.rsplit_once('.').unwrap().0.to_owned();
    let mut changed = issuer.claims();
    changed["sub"] = json!("admin");
    let parts: Vec<&str> = good.split('.').collect();
    let forged = format!("{}.{}.{}", parts[0], encode(&changed), parts[2]);
    let stranger = Issuer {
        url: issuer.url.clone(),
        key: new_key(),
        state: Arc::clone(&issuer.state),
    };
    let refused = [
        (header(json!({"alg": "none"})), "algorithm"),
        (header(json!({"alg": "RS256", "kid": "first"})), "key"),
        (header(json!({"alg": "ES384", "kid": "first"})), "algorithm"),
        (
            header(json!({"alg": "ES256", "kid": "first", "crit": ["b64"]})),
            "not a signed JWT",
        ),
        (
            header(json!({"alg": "ES256", "kid": "first", "typ": "logout+jwt"})),
            "not a signed JWT",
        ),
        (signed_with_the_public_key(issuer), "algorithm"),
        (forged, "signature"),
        (stranger.token(&issuer.claims()), "signature"),
        (format!("{unsigned}."), "signature"),
        (unsigned, "not a signed JWT"),
        (format!("{good}.x"), "not a signed JWT"),
        (".".to_owned(), "not a signed JWT"),
        ("a.b.c".to_owned(), "not a signed JWT"),
        (format!("{}.x.y", "a".repeat(20_000)), "not a signed JWT"),
    ];
    assert_refused(&fixture, refused);

    assert_eq!(
        fixture.listed(&header(json!({"alg": "ES256"}))).0,
        200,
        "a token without kid"
    );
}

#[tokio::test]
async fn keys_are_fetched_once_for_any_number_of_unknown_ones() {
    let fixture = Fixture::start().await;
    let issuer = &fixture.issuer;
    assert_eq!(fixture.listed(&issuer.token(&issuer.claims())).0, 200);
    assert_eq!(issuer.fetches(), 1);
    for number in 0..10 {
        let header = json!({"alg": "ES256", "kid": format!("unknown{number}")});
        let (status, message) = fixture.listed(&issuer.token_with(&header, &issuer.claims()));
        assert_eq!(status, 401);
        assert!(
            message.contains("key that its issuer does not list"),
            "{message}"
        );
    }
    assert_eq!(issuer.fetches(), 1, "the last attempt was a moment ago");
}

#[tokio::test]
async fn an_issuer_that_hangs_delays_no_other_token() {
    let sshd = Sshd::start().await;
    let (hanging, fine) = (Issuer::start(), Issuer::start());
    *hanging.state.delay.lock().unwrap() = Duration::from_secs(60);
    let both = configuration(&hanging) + &configuration(&fine).replace("\"ci\"", "\"fine\"");
    let server = serve(&sshd, &both, &[]);
    let waits = {
        let caller = Caller::new(&server.url, &hanging.token(&hanging.claims()));
        std::thread::spawn(move || {
            let start = Instant::now();
            (caller.call("jobs", json!({})), start.elapsed())
        })
    };
    eventually("the keys are fetched", async || hanging.fetches() > 0).await;
    let start = Instant::now();
    let agent = Caller::new(&server.url, &fine.token(&fine.claims()));
    assert_eq!(agent.call("jobs", json!({})).0, 200);
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    let ((status, reply), elapsed) = waits.join().unwrap();
    assert_eq!(
        (status, &reply["code"]),
        (502, &json!("unreachable")),
        "{reply}"
    );
    assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
}

#[tokio::test]
async fn a_known_key_is_accepted_while_the_issuer_hangs_and_a_client_that_hangs_up_stops_no_fetch()
{
    let fixture = Fixture::start().await;
    let issuer = &fixture.issuer;
    *issuer.state.delay.lock().unwrap() = Duration::from_secs(2);
    // It sends a token and goes away while the keys are fetched for it.
    let token = issuer.token(&issuer.claims());
    let address = fixture.server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET /v1/jobs HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    .unwrap();
    eventually("keys are fetched", async || issuer.fetches() == 1).await;
    drop(stream);
    eventually("the keys are known", async || {
        fixture.listed(&token).0 == 200
    })
    .await;
    assert_eq!(issuer.fetches(), 1);

    *issuer.state.delay.lock().unwrap() = Duration::from_secs(60);
    let start = Instant::now();
    assert_eq!(fixture.listed(&token).0, 200);
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_token_signed_with_rsa_is_accepted_and_keys_of_unknown_kinds_are_ignored() {
    let fixture = Fixture::start().await;
    let issuer = &fixture.issuer;
    let pem = std::process::Command::new("openssl")
        .args([
            "genpkey",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
            "-outform",
            "DER",
        ])
        .output()
        .expect("`make test` installs openssl");
    let key = RsaKeyPair::from_der(&pem.stdout).unwrap();
    let public = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
    let number = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    issuer.state.keys.lock().unwrap().extend([
        json!({"kty": "RSA", "kid": "rsa", "n": number(&public.n), "e": number(&public.e)}),
        json!({"kty": "oct", "kid": "shared", "k": "c2VjcmV0"}),
        json!({"kty": "new-kind", "kid": "new"}),
        json!("no key"),
    ]);
    let header = json!({"alg": "RS256", "kid": "rsa", "typ": "at+jwt"});
    let message = format!("{}.{}", encode(&header), encode(&issuer.claims()));
    let mut signature = vec![0; key.public().modulus_len()];
    let random = SystemRandom::new();
    key.sign(
        &RSA_PKCS1_SHA256,
        &random,
        message.as_bytes(),
        &mut signature,
    )
    .unwrap();
    let token = format!("{message}.{}", number(&signature));
    assert_eq!(fixture.listed(&token).0, 200);
}

#[tokio::test]
async fn a_refused_client_learns_where_to_get_a_token() {
    let fixture = Fixture::start().await;
    let issuer = &fixture.issuer;
    let url = &fixture.server.url;
    let nobody = ureq::Agent::new_with_config(
        ureq::Agent::config_builder().http_status_as_error(false).build(),
    );
    let challenge = |response: &ureq::http::Response<ureq::Body>| {
        let value = response.headers().get("www-authenticate").expect("a challenge");
        value.to_str().unwrap().to_owned()
    };
    let metadata_url = format!("{url}/.well-known/oauth-protected-resource/mcp");
    let refused = nobody.post(format!("{url}/mcp")).send("{}").unwrap();
    assert_eq!(
        challenge(&refused),
        format!("Bearer scope=\"sshjobs:run\", resource_metadata=\"{metadata_url}\"")
    );
    let refused = nobody.get(format!("{url}/v1/jobs")).header("authorization", "Bearer x").call();
    assert!(challenge(&refused.unwrap()).starts_with("Bearer error=\"invalid_token\", scope="));
    let mut claims = issuer.claims();
    claims["ref"] = json!("other");
    let token = format!("Bearer {}", issuer.token(&claims));
    let lacking = nobody
        .post(format!("{url}/v1/run"))
        .header("authorization", &token)
        .header("content-type", "application/json")
        .send("{}")
        .unwrap();
    assert_eq!(lacking.status(), 403);
    assert!(
        challenge(&lacking)
            .starts_with("Bearer error=\"insufficient_scope\", scope=\"sshjobs:run\"")
    );

    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "ssh_run", "arguments": {"host": HOST, "command": "true"}}});
    let lacking = nobody
        .post(format!("{url}/mcp"))
        .header("authorization", &token)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .send(call.to_string())
        .unwrap();
    assert_eq!(lacking.status(), 403);
    assert!(challenge(&lacking).starts_with("Bearer error=\"insufficient_scope\""));

    for (path, resource) in [("/mcp", "/mcp"), ("", "")] {
        let at = format!("{url}/.well-known/oauth-protected-resource{path}");
        let mut response = nobody.get(at).call().unwrap();
        let metadata: Value =
            serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
        assert_eq!(metadata["resource"], format!("{url}{resource}"));
        assert_eq!(metadata["authorization_servers"], json!([issuer.url]));
        assert_eq!(
            metadata["scopes_supported"],
            json!([
                "sshjobs:read",
                "sshjobs:observe",
                "sshjobs:observe-output",
                "sshjobs:run",
                "sshjobs:admin"
            ])
        );
    }
}

#[tokio::test]
async fn metadata_of_a_server_with_a_prefix_and_a_public_url_are_where_clients_look() {
    let sshd = Sshd::start().await;
    let issuer = Issuer::start();
    let public = "https://jobs.example.com/ssh";
    let server = serve(
        &sshd,
        &configuration(&issuer),
        &["--prefix", "/ssh", "--public-url", public],
    );
    let origin = server.url.trim_end_matches("/ssh");
    let at = format!("{origin}/.well-known/oauth-protected-resource/ssh/mcp");
    let text = ureq::get(at).call().unwrap().body_mut().read_to_string().unwrap();
    let metadata: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(metadata["resource"], format!("{public}/mcp"));
}

#[tokio::test]
async fn scopes_give_roles_if_the_configuration_names_no_claims() {
    let sshd = Sshd::start().await;
    let issuer = Issuer::start();
    let configuration = configuration(&issuer);
    let without_roles = configuration.split("[[oidc.issuers.roles]]").next().unwrap();
    let server = serve(&sshd, without_roles, &[]);
    for (scope, runs, lists) in [
        ("sshjobs:read openid", 403, 200),
        ("openid sshjobs:run", 200, 200),
        ("openid", 403, 403),
    ] {
        let mut claims = issuer.claims();
        claims["scope"] = json!(scope);
        let caller = Caller::new(&server.url, &issuer.token(&claims));
        let run = caller.call("run", json!({"host": HOST, "command": "true"}));
        assert_eq!(
            (run.0, caller.call("jobs", json!({})).0),
            (runs, lists),
            "{scope} {}",
            run.1
        );
    }
}

#[tokio::test]
async fn rules_of_the_policy_look_at_claims() {
    let sshd = Sshd::start().await;
    let issuer = Issuer::start();
    let rules = r#"
[[rules]]
name = "the main branch of the shop"
callers = ["claim:ref=refs/heads/main"]
commands = "any"

[[tests]]
caller = "ci|repo:acme/shop"
claims = { ref = "refs/heads/main" }
host = "host"
expect = "allow"

[[tests]]
caller = "ci|repo:acme/shop"
claims = { ref = "refs/heads/other" }
host = "host"
expect = "deny"
"#;
    fs::write(sshd.path("policy.toml"), rules).unwrap();
    let policy = sshd.path("policy.toml").display().to_string();
    let tested = told(&sshjobs(&sshd, &["--policy", &policy, "policy", "test"]));
    assert!(tested.contains('2'), "{tested}");
    let anyone = configuration(&issuer).replace(", ref = \"refs/heads/main\"", "");
    let server = serve(&sshd, &anyone, &["--policy", &policy]);
    for (branch, expected) in [("refs/heads/main", 200), ("refs/heads/other", 403)] {
        let mut claims = issuer.claims();
        claims["ref"] = json!(branch);
        let caller = Caller::new(&server.url, &issuer.token(&claims));
        let (status, reply) = caller.call("run", json!({"host": HOST, "command": "true"}));
        assert_eq!(status, expected, "{branch} {reply}");
    }
}

#[tokio::test]
async fn a_configuration_that_would_trust_too_much_is_refused() {
    let sshd = Sshd::start().await;
    let issuer = Issuer::start();
    let good = configuration(&issuer);
    let hosts = format!("[\"{HOST}\"]");
    for (from, to, message) in [
        (
            "\"ES256\", \"RS256\"",
            "\"HS256\"",
            "algorithms has \"HS256\"",
        ),
        (
            issuer.url.as_str(),
            "http://issuer.example.com",
            "issuer must be a URL",
        ),
        (
            "[\"https://jobs.example.com\"]",
            "[]",
            "audiences must name",
        ),
        ("role = \"run\"", "role = \"root\"", "role must be one of"),
        (hosts.as_str(), "[\",\"]", "hosts has"),
        (hosts.as_str(), "[]", "hosts is empty"),
        (
            "{ repository = \"acme/*\" }",
            "{}",
            "claims must have at least one",
        ),
    ] {
        fs::write(sshd.path("bad.toml"), good.replace(from, to)).unwrap();
        let bad = sshd.path("bad.toml").display().to_string();
        let refused = sshjobs(&sshd, &["--config", &bad, "serve", "--http", "127.0.0.1:0"]);
        let why = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{why}");
        assert!(why.contains(message), "{why}");
    }
}

/// GitHub's endpoint for tokens: it answers one request with this token. Returns its URL, and the request's first line later.
fn github(token: String) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requested) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = String::new();
        BufReader::new(&stream).read_line(&mut request).unwrap();
        sender.send(request).unwrap();
        let body = json!({"count": 1, "value": token}).to_string();
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
    });
    (format!("http://{address}/token?api-version=2.0"), requested)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workflow_for_github_deploys_with_a_token_of_its_own() {
    let sshd = Sshd::start().await;
    let issuer = &Issuer::start();
    sshd.alias(["web1"]);
    let (endpoint, requested) = github(issuer.token(&issuer.claims()));
    let anywhere = configuration(issuer).replace(&format!("hosts = [\"{HOST}\"]\n"), "");
    let own = serve(&sshd, &anywhere, &[]);
    let mut job = crate::guide::workflow("deploy");
    job["env"]["SSHJOBS_SERVER"] = json!(own.url);
    job["env"]["AUDIENCE"] = json!(AUDIENCE);
    job["env"]["ACTIONS_ID_TOKEN_REQUEST_URL"] = json!(endpoint);
    job["env"]["ACTIONS_ID_TOKEN_REQUEST_TOKEN"] = json!("of-the-runner");

    let printed = crate::guide::run_steps(&job, (&sshd.path(""), &[]));

    assert!(printed.contains("Linux"), "{printed}");
    let asked = requested.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(asked.contains(&format!("&audience={AUDIENCE}")), "{asked}");
}

/// Performs the last step of action.yml with these inputs, as GitHub's runner does.
fn run_action(
    place: &std::path::Path,
    inputs: &[(&str, &str)],
    environment: &[(&str, &str)],
) -> Output {
    let action: Value = serde_saphyr::from_str(include_str!("../action.yml")).unwrap();
    let step = action["runs"]["steps"].as_array().unwrap().last().unwrap();
    let defaults = &action["inputs"];
    for (name, _) in inputs {
        assert!(
            defaults[name].is_object(),
            "action.yml lacks the input {name}"
        );
    }
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_sshjobs")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut command = std::process::Command::new("bash");
    command.args([
        "--noprofile",
        "--norc",
        "-eo",
        "pipefail",
        "-c",
        step["run"].as_str().unwrap(),
    ]);
    command.current_dir(place).env("PATH", path);
    for (name, value) in step["env"].as_object().unwrap() {
        let input = value.as_str().unwrap();
        let input = input.strip_prefix("${{ inputs.").unwrap().strip_suffix(" }}").unwrap();
        let given = inputs.iter().find(|(name, _)| *name == input).map(|(_, value)| *value);
        command.env(
            name,
            given.unwrap_or_else(|| defaults[input]["default"].as_str().unwrap()),
        );
    }
    command
        .env("XDG_STATE_HOME", place.join("state"))
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_action_runs_a_command_on_hosts_with_a_token_of_its_own() {
    let sshd = Sshd::start().await;
    let issuer = &Issuer::start();
    sshd.alias(["web1", "web2"]);
    let token = issuer.token(&issuer.claims());
    let (endpoint, requested) = github(token.clone());
    let anywhere = configuration(issuer).replace(&format!("hosts = [\"{HOST}\"]\n"), "");
    let own = serve(&sshd, &anywhere, &[]);
    let place = sshd.path("");

    let inputs = [
        ("hosts", "web1,web2"),
        ("command", "echo \"it's $((6*7))\"\nuname -s"),
        ("server", own.url.as_str()),
        ("audience", AUDIENCE),
        ("options", "--canary 1\n--junit results.xml\n"),
    ];
    let ran = run_action(
        &place,
        &inputs,
        &[
            ("ACTIONS_ID_TOKEN_REQUEST_URL", &endpoint),
            ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "of-the-runner"),
        ],
    );

    let printed = format!(
        "{}{}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
    assert!(ran.status.success(), "{printed}");
    assert!(
        printed.contains("web1 | it's 42") && printed.contains("web2 | Linux"),
        "{printed}"
    );
    let asked = requested.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(
        asked.to_lowercase().contains("&audience=https%3a%2f%2fjobs.example.com"),
        "{asked}"
    );
    let junit = fs::read_to_string(place.join("results.xml")).unwrap();
    assert!(junit.contains("tests=\"2\""), "{junit}");
    // Once, in the line that tells GitHub to hide it.
    assert_eq!(printed.matches(&token).count(), 1, "{printed}");
    assert!(printed.contains(&format!("::add-mask::{token}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_action_without_a_permission_says_which_one_it_needs() {
    let sshd = Sshd::start().await;
    let inputs = [
        ("hosts", "web1"),
        ("command", "true"),
        ("server", "http://127.0.0.1:1"),
    ];

    let ran = run_action(&sshd.path(""), &inputs, &[]);

    assert_eq!(ran.status.code(), Some(1));
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(
        told.contains("::error::") && told.contains("id-token: write"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_action_accepts_no_options_as_hosts_and_no_other_answer_as_a_token() {
    let sshd = Sshd::start().await;
    let place = sshd.path("");
    for hosts in [
        "--help",
        "@/etc/passwd",
        "web1,@/etc/passwd",
        "web1, @/etc/passwd",
    ] {
        let ran = run_action(&place, &[("hosts", hosts), ("command", "true")], &[]);
        let told = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(ran.status.code(), Some(1), "{told}");
        assert!(told.contains("::error::the input hosts"), "{told}");
    }

    let (endpoint, _requested) = github("x\n::error::injected".to_owned());
    let inputs = [
        ("hosts", "web1"),
        ("command", "true"),
        ("server", "http://127.0.0.1:1"),
    ];
    let environment = [
        ("ACTIONS_ID_TOKEN_REQUEST_URL", endpoint.as_str()),
        ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "of-the-runner"),
    ];
    let ran = run_action(&place, &inputs, &environment);
    let told = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(ran.status.code(), Some(1), "{told}");
    assert!(
        told.contains("has no OIDC token") && !told.contains("injected"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_action_without_a_server_runs_over_ssh_with_the_commands_exit_code() {
    let sshd = Sshd::start().await;
    let config = sshd.ssh_config().display().to_string();
    let inputs = [
        ("hosts", HOST),
        ("command", "echo ::error::of a host; exit 3"),
        ("ssh-config", config.as_str()),
    ];
    let run = || {
        let ran = run_action(&sshd.path(""), &inputs, &[]);
        assert_eq!(ran.status.code(), Some(3));
        String::from_utf8(ran.stdout).unwrap()
    };

    let told = run();

    let (first, rest) = told.split_once('\n').unwrap();
    let word = first.strip_prefix("::stop-commands::").expect(&told);
    assert!(
        word.len() == 32 && word.chars().all(|c| c.is_ascii_hexdigit()),
        "{told}"
    );
    assert_eq!(rest, "::error::of a host\n");
    assert!(!run().contains(word), "each run has a word of its own");
}

#[tokio::test]
async fn ctrl_c_ends_a_command_whose_token_has_expired_meanwhile() {
    let fixture = Fixture::start().await;
    let issuer = &fixture.issuer;
    let mut claims = issuer.claims();
    // Valid for four more seconds: clocks may differ by a minute.
    claims["exp"] = json!(now() - 56);
    let url = &fixture.server.url;
    let script = "echo started; sleep 61.37";
    let mut run = command(
        &fixture.sshd,
        &["--server", url, "run", "-n", HOST, "--", script],
    );
    let mut run = run
        .env("SSHJOBS_TOKEN", issuer.token(&claims))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut started = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut started).unwrap();
    assert_eq!(started, "started\n");
    eventually("the token has expired", async || {
        now() - claims["exp"].as_u64().unwrap() > 61
    })
    .await;

    let pid = nix::unistd::Pid::from_raw(run.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();

    assert_eq!(exit_of(&mut run).await, Some(130));
    let runs = || {
        let processes = std::process::Command::new("ps").args(["axww", "-o", "args"]).output();
        String::from_utf8_lossy(&processes.unwrap().stdout)
            .lines()
            .any(|line| line == "sleep 61.37")
    };
    eventually("the command has ended", async || !runs()).await;
}

//! `sshjobs serve --http`, and a client for it that is not ours (ureq).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::{Agent, Body};

use super::Sshd;
use super::command::{command, sshjobs, told};

/// A server of the built binary, on a random port and a socket. Killed when dropped.
pub struct Server {
    child: Child,
    pub url: String,
    pub socket: PathBuf,
    pub metrics: String,
    /// The rest of a cluster, if it is one. Only dropped.
    cluster: Option<Box<dyn std::any::Any + Send + Sync>>,
}

/// Writes a self-signed certificate for localhost with this common name, and its key. Returns both paths.
pub fn certificate(sshd: &Sshd, name: &str) -> (String, String) {
    let (certificate, key) = (sshd.path("cert.pem"), sshd.path("key.pem"));
    write_certificate(name, &certificate, &key);
    (certificate.display().to_string(), key.display().to_string())
}

/// The same, to these files.
pub fn write_certificate(name: &str, certificate: &Path, key: &Path) {
    let status = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"])
        .args(["-pkeyopt", "ec_paramgen_curve:P-256"])
        .args(["-subj", &format!("/CN={name}")])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(key)
        .arg("-out")
        .arg(certificate)
        .stderr(Stdio::null())
        .status();
    assert!(status.expect("openssl is installed").success());
}

/// A response: the status, and the body as JSON (null if it is not JSON).
pub type Answer = (u16, Value);

/// A caller of a server, with a token.
#[derive(Clone)]
pub struct Caller {
    pub url: String,
    pub token: String,
    agent: Agent,
    /// Whether it asks the server to answer at once, and not to wait for an approval.
    is_impatient: bool,
}

impl Server {
    /// One server. With `SSHJOBS_TEST_REPLICAS=N` instead N replicas of a cluster behind a proxy that
    /// gives each connection to the next replica; the rest of this value is that of the first replica.
    pub fn start(sshd: &Sshd) -> Self {
        if let Ok(count) = std::env::var("SSHJOBS_TEST_REPLICAS") {
            return super::balanced::start(sshd, count.parse().expect("a number"));
        }
        Self::with(sshd, &[])
    }

    /// The same behind a proxy, with what must live as long.
    pub fn behind(mut self, url: String, cluster: Box<dyn std::any::Any + Send + Sync>) -> Self {
        self.url = url;
        self.cluster = Some(cluster);
        self
    }

    pub fn with(sshd: &Sshd, arguments: &[&str]) -> Self {
        Self::at(sshd, "127.0.0.1:0", arguments)
    }

    /// On an address that is known.
    pub fn at(sshd: &Sshd, address: &str, arguments: &[&str]) -> Self {
        Self::in_environment(sshd, address, arguments, &[])
    }

    /// The same with more variables.
    pub fn in_environment(
        sshd: &Sshd,
        address: &str,
        arguments: &[&str],
        variables: &[(&str, &Path)],
    ) -> Self {
        let socket = sshd.path(&format!("server-{}.sock", rand_name()));
        let path = socket.display().to_string();
        let own = [
            "serve",
            "--http",
            address,
            "--socket",
            &path,
            "--metrics",
            "127.0.0.1:0",
        ];
        let mut child = command(sshd, &[&own, arguments].concat())
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        let mut before = String::new();
        while !line.contains("listening on") {
            before.push_str(&std::mem::take(&mut line));
            assert!(
                stderr.read_line(&mut line).expect("stderr") > 0,
                "the server does not start: {before}"
            );
        }
        // The server must never wait for a reader.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::stderr()));
        let words: Vec<&str> = line.split_whitespace().collect();
        let url = words.iter().find(|word| word.starts_with("http")).expect("a URL");
        let metrics = words.iter().find(|word| word.ends_with("/metrics")).expect("metrics");
        Self {
            url: (*url).to_owned(),
            metrics: (*metrics).to_owned(),
            socket,
            child,
            cluster: None,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The address, as `HOST:PORT`.
    pub fn address(&self) -> &str {
        self.url.split_once("://").expect("a URL").1
    }

    /// Waits until the server has ended by itself. Returns its exit code.
    pub async fn ended(mut self) -> Option<i32> {
        super::exit_of(&mut self.child).await
    }

    /// Stops it as a supervisor does, and waits. Returns its exit code.
    pub async fn stop(mut self) -> Option<i32> {
        kill(Pid::from_raw(self.pid().cast_signed()), Signal::SIGTERM).expect("it runs");
        super::exit_of(&mut self.child).await
    }

    /// Kilobytes that it has in memory.
    pub fn memory(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its size");
        line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
    }

    /// Calls that are being answered.
    pub fn calls(&self) -> u64 {
        let shown = ureq::get(&self.metrics).call().expect("metrics").into_body().read_to_string();
        let shown = shown.expect("text");
        let line = shown
            .lines()
            .find(|line| line.starts_with("sshjobs_calls_in_flight "))
            .expect("a gauge");
        line.rsplit(' ').next().expect("a value").parse().expect("a number")
    }

    /// A new caller.
    pub fn caller(&self, sshd: &Sshd, name: &str, options: &[&str]) -> Caller {
        Caller::new(&self.url, &token(sshd, name, options))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn rand_name() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:x}", RandomState::new().hash_one(0))
}

/// Makes a token.
pub fn token(sshd: &Sshd, name: &str, options: &[&str]) -> String {
    told(&sshjobs(sshd, &[&["token", "new", name], options].concat()))
        .trim()
        .to_owned()
}

impl Caller {
    pub fn new(url: &str, token: &str) -> Self {
        Self::with_patience(url, token, Duration::from_secs(120))
    }

    /// The same, with calls that are broken off after this time.
    pub fn leaving_after(self, patience: Duration) -> Self {
        Self {
            is_impatient: self.is_impatient,
            ..Self::with_patience(&self.url, &self.token, patience)
        }
    }

    fn with_patience(url: &str, token: &str, patience: Duration) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Each request may reach another replica.
            .max_idle_connections(if std::env::var_os("SSHJOBS_TEST_REPLICAS").is_some() {
                0
            } else {
                8
            })
            .timeout_global(Some(patience));
        Self {
            url: url.to_owned(),
            token: token.to_owned(),
            agent: config.build().into(),
            is_impatient: false,
        }
    }

    /// The same, with calls that don't wait for approvers.
    pub fn impatient(self) -> Self {
        Self {
            is_impatient: true,
            ..self
        }
    }

    /// `POST /v1/VERB`.
    pub fn call(&self, verb: &str, request: Value) -> Answer {
        self.try_call(verb, &request).expect("an answer")
    }

    /// The same. A server that refuses a long body answers before it has read all of it, and the
    /// rest may meet a closed connection.
    pub fn try_call(&self, verb: &str, request: &Value) -> Result<Answer, ureq::Error> {
        let path = format!("{}/v1/{verb}", self.url);
        let sent = self.agent.post(path).header("Authorization", format!("Bearer {}", self.token));
        let sent = if self.is_impatient {
            sent.header("Prefer", "wait=0")
        } else {
            sent
        };
        let sent = sent.header("Content-Type", "application/json").send(request.to_string())?;
        Ok(answer(sent))
    }

    /// The same; it must succeed.
    pub fn ok(&self, verb: &str, request: Value) -> Value {
        let (status, reply) = self.call(verb, request);
        assert_eq!(status, 200, "{reply}");
        reply
    }

    /// Starts a job and returns its id.
    pub fn spawn(&self, command: &str) -> String {
        let reply = self.ok("spawn", json!({"host": super::HOST, "command": command}));
        reply["job_id"].as_str().expect("an id").to_owned()
    }

    pub fn get(&self, path: &str) -> Response<Body> {
        self.get_with(path, &[])
    }

    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
        self.try_get(path, headers).expect("an answer")
    }

    pub fn try_get(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response<Body>, ureq::Error> {
        let request = self.agent.get(format!("{}{path}", self.url));
        let request = request.header("Authorization", format!("Bearer {}", self.token));
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.call()
    }

    /// A request of the newest revision of MCP, which knows no sessions, from a client that knows
    /// tasks; the body of its answer.
    pub fn modern(&self, method: &str, params: Value) -> String {
        self.modern_as(
            json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}),
            method,
            params,
        )
    }

    /// Like `modern`, from a client with these capabilities.
    pub fn modern_as(&self, capabilities: Value, method: &str, mut params: Value) -> String {
        const REVISION: &str = "2026-07-28";
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        let named = ["name", "taskId", "uri"].into_iter().find_map(|key| params[key].as_str());
        let name = named.unwrap_or_default().to_owned();
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut headers = vec![("MCP-Protocol-Version", REVISION), ("Mcp-Method", method)];
        if !name.is_empty() {
            headers.push(("Mcp-Name", &name));
        }
        self.mcp(message, &headers).into_body().read_to_string().expect("a body")
    }

    /// The result of such a request; null when there was an error.
    pub fn result(&self, method: &str, params: Value) -> Value {
        result_in(&self.modern(method, params))
    }

    /// Calls a tool so.
    pub fn tool(&self, name: &str, arguments: Value) -> String {
        self.modern("tools/call", json!({"name": name, "arguments": arguments}))
    }

    /// A message to `/mcp`; its answer.
    pub fn mcp(&self, message: Value, headers: &[(&str, &str)]) -> Response<Body> {
        let request = self.agent.post(format!("{}/mcp", self.url));
        let request = request
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.send(message.to_string()).expect("an answer")
    }
}

/// The result in the body of an answer to such a request; null when there was an error.
pub fn result_in(body: &str) -> Value {
    let messages = body.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
    let mut messages = messages.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    messages
        .find(|message| message["id"] == 1)
        .map_or(Value::Null, |message| message["result"].clone())
}

pub fn answer(mut response: Response<Body>) -> Answer {
    let status = response.status().as_u16();
    let body = response.body_mut().read_to_string().unwrap_or_default();
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

/// One server-sent event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    pub id: Option<u64>,
    pub name: String,
    pub data: Value,
}

/// The events of a response, as they come, to its end or break.
pub fn events(response: Response<Body>) -> impl Iterator<Item = Event> {
    let mut lines = BufReader::new(response.into_body().into_reader()).lines();
    std::iter::from_fn(move || {
        let mut event = Event::default();
        loop {
            let line = lines.next()?.ok()?;
            match line.split_once(':').map(|(field, value)| (field, value.trim_start())) {
                Some(("id", id)) => event.id = id.parse().ok(),
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).expect("JSON"),
                _ if line.is_empty() && event != Event::default() => return Some(event),
                _ => {}
            }
        }
    })
}

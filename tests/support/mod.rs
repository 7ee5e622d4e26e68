//! Foundations of the tests: a private OpenSSH sshd, or one started for them, and a service that
//! reaches it.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "each test file uses its own part of this"
)]

mod balanced;
pub mod command;
pub mod disk;
pub mod docker;
pub mod login_shell;
mod mcp_client;
mod namespace;
pub mod relay;
pub mod replicas;
pub mod server;
mod sshd;
pub mod tmux;

pub use mcp_client::McpClient;
pub use namespace::Namespace;
pub use sshd::{Sshd, keygen, ssh_keygen};

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sshjobs_core::jobs::{Access, Config, Limits};
use sshjobs_wire::{
    Error, Format, JobState, RunReply, RunRequest, Service, SpawnRequest, StreamArg, TailReply,
    TailRequest,
};

/// The name under which the tests' host is known.
pub const HOST: &str = "web1";

/// A host to run the contract against: the one that `SSHJOBS_TEST_SSH_CONFIG` leads to
/// (containers), else a private sshd. Stopped when dropped, whatever happens.
pub struct Target {
    pub service: Arc<Service>,
    pub ssh_config: PathBuf,
    sshd: Option<Sshd>,
}

impl Target {
    pub async fn start() -> Self {
        Self::with_limits(Limits::default()).await
    }

    pub async fn with_limits(limits: Limits) -> Self {
        let (sshd, ssh_config) = match std::env::var_os("SSHJOBS_TEST_SSH_CONFIG") {
            Some(file) => (None, PathBuf::from(file)),
            None => {
                let sshd = Sshd::start().await;
                let ssh_config = sshd.ssh_config();
                (Some(sshd), ssh_config)
            }
        };
        let service = Arc::new(service(&ssh_config, limits));
        Self {
            service,
            ssh_config,
            sshd,
        }
    }

    /// Runs a command to its end and returns its output.
    pub async fn output(&self, command: &str) -> String {
        run(&self.service, command).await.expect("the command runs").head.join("\n")
    }
}

/// A configuration under which nothing is stored: jobs live in their rings.
pub fn unstored() -> Config {
    Config {
        store: false,
        ..Config::default()
    }
}

/// A service whose hosts are those of `ssh_config`.
pub fn service(ssh_config: &std::path::Path, limits: Limits) -> Service {
    let config = Config {
        ssh_config: Some(ssh_config.to_owned()),
        limits,
        ..unstored()
    };
    Service::new(config, Access::Listed)
}

/// A service that stores in `state`.
pub fn stored_service(ssh_config: PathBuf, state: PathBuf, limits: Limits) -> Service {
    let config = Config {
        ssh_config: Some(ssh_config),
        state_dir: Some(state),
        limits,
        ..Config::default()
    };
    Service::new(config, Access::Listed)
}

/// A job that outlives its connection.
pub fn durable(command: &str) -> SpawnRequest {
    let mut request = SpawnRequest::new(HOST, command);
    request.durable = Some(true);
    request
}

pub async fn spawn(service: &Service, command: &str) -> String {
    service
        .spawn(SpawnRequest::new(HOST, command))
        .await
        .expect("the job starts")
        .job_id
}

pub fn run_request(command: &str) -> RunRequest {
    let mut request = RunRequest::new(HOST, command);
    request.options.max_bytes = Some(262_144);
    request
}

pub async fn run(service: &Service, command: &str) -> Result<RunReply, Error> {
    service.run(run_request(command)).await
}

/// A job's whole output as read by the canonical loop.
#[derive(Debug, Default)]
pub struct Story {
    pub lines: Vec<String>,
    pub numbers: Vec<u64>,
    pub dropped: u64,
    pub replies: usize,
    pub last: Option<TailReply>,
}

impl Story {
    pub fn state(&self) -> JobState {
        self.last.as_ref().expect("a reply").standing.state
    }

    pub fn status(&self) -> Option<u32> {
        self.last.as_ref().expect("a reply").standing.exit_status
    }

    pub fn signal(&self) -> Option<&str> {
        self.last.as_ref().expect("a reply").standing.exit_signal.as_deref()
    }
}

/// The loop that every agent is shown.
pub async fn canonical_loop(service: &Service, job_id: &str) -> Story {
    follow(service, job_id, StreamArg::Both, 5000).await
}

pub async fn follow(service: &Service, job_id: &str, stream: StreamArg, wait_ms: u64) -> Story {
    let mut story = Story::default();
    let mut cursor = 0;
    loop {
        let request = TailRequest {
            stream,
            format: Format::Records,
            ..TailRequest::new(job_id, cursor, wait_ms)
        };
        let reply = service.tail(request).await.expect("the job is known");
        for record in reply.records.iter().flatten() {
            story.lines.push(record.text.clone());
            story.numbers.push(record.line_no);
        }
        story.dropped += reply.dropped_lines;
        story.replies += 1;
        cursor = reply.last_line_no;
        let done = !reply.still_running;
        story.last = Some(reply);
        if done {
            return story;
        }
    }
}

/// Time limit for a state that a test waits for. It only has to be shorter than the limit of a
/// whole test: on a busy machine everything may take long.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until `look` returns true, at most for [`PATIENCE`].
pub async fn eventually<F: Future<Output = bool>>(what: &str, look: impl FnMut() -> F) {
    eventually_within(PATIENCE, what, look).await;
}

/// Waits until `look` returns true, at most for `limit`.
pub async fn eventually_within<F: Future<Output = bool>>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) {
    let deadline = tokio::time::Instant::now() + limit;
    while !look().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "it never came that {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Part of the reason in a reply for an ordinary user, who can't see whose job a hidden process
/// belongs to.
pub const HIDDEN: &str = "this account does not see all processes";

/// Asserts that the reply to a signal says that no visible process of the job is left.
#[track_caller]
pub fn assert_dead(reply: &serde_json::Value) {
    let is_hidden = reply["unverified"].as_str().is_some_and(|why| why.contains(HIDDEN));
    assert!(reply["confirmed_dead"] == true || is_hidden, "{reply}");
}

/// Whether the reply to a signal says that no visible process of the job is left.
pub fn is_dead(reply: &sshjobs_wire::SignalReply) -> bool {
    let is_hidden = reply.unverified.as_deref().is_some_and(|why| why.contains(HIDDEN));
    reply.confirmed_dead || is_hidden
}

/// Waits for the end of a process that we started; its exit code.
pub async fn exit_of(child: &mut std::process::Child) -> Option<i32> {
    let child = std::cell::RefCell::new(child);
    eventually("the process ends", async || {
        child.borrow_mut().try_wait().expect("our own child").is_some()
    })
    .await;
    child.into_inner().wait().expect("our own child").code()
}

//! The programs beside which we measure, and a job of our own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use russh::keys::{PrivateKeyWithHashAlg, PublicKeyOrCertificate, load_secret_key};
use russh::{ChannelMsg, client};
use sshjobs_core::jobs::{Access, Config, Limits};
use sshjobs_wire::{Service, SpawnRequest, TailRequest};

use crate::support::{HOST, Sshd};

/// A service without a store.
pub(crate) fn service(sshd: &Sshd, limits: Limits) -> Arc<Service> {
    let config = Config {
        ssh_config: Some(sshd.ssh_config()),
        limits,
        store: false,
        ..Config::default()
    };
    Arc::new(Service::new(config, Access::Listed))
}

/// Starts a job and reads it to its end; returns the time from the call to the end seen.
pub(crate) async fn one_job(service: &Service, command: &str) -> Duration {
    let start = Instant::now();
    let job = service.spawn(SpawnRequest::new(HOST, command)).await.unwrap().job_id;
    let mut cursor = 0;
    loop {
        let reply = service.tail(TailRequest::new(&job, cursor, 50_000)).await.unwrap();
        cursor = reply.last_line_no;
        if !reply.still_running {
            return start.elapsed();
        }
    }
}

/// Accepts the key of the server that this process has started.
pub(crate) struct AcceptOurs;

impl client::Handler for AcceptOurs {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        _key: &PublicKeyOrCertificate,
    ) -> Result<bool, russh::Error> {
        Ok(true)
    }
}

/// A connection of the SSH library alone, with the cipher that ours negotiates.
pub(crate) async fn bare_connection(sshd: &Sshd) -> client::Handle<AcceptOurs> {
    let mut preferred = russh::Preferred::DEFAULT;
    preferred.cipher = vec![russh::cipher::AES_256_GCM].into();
    let config = client::Config {
        nodelay: true,
        preferred,
        ..client::Config::default()
    };
    let mut handle = client::connect(Arc::new(config), ("127.0.0.1", sshd.port()), AcceptOurs)
        .await
        .unwrap();
    let key = load_secret_key(sshd.path("id"), None).unwrap();
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
    assert!(handle.authenticate_publickey(user.trim(), key).await.unwrap().success());
    handle
}

/// The time from opening a channel of the SSH library to its end.
pub(crate) async fn bare_job(handle: &client::Handle<AcceptOurs>, command: &str) -> Duration {
    let start = Instant::now();
    let mut channel = handle.channel_open_session().await.unwrap();
    channel.exec(true, command).await.unwrap();
    while let Some(message) = channel.wait().await {
        if matches!(message, ChannelMsg::Close) {
            break;
        }
    }
    start.elapsed()
}

/// `ssh` without output.
pub(crate) fn ssh(config: &Path) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.arg("-F").arg(config).stdin(Stdio::null()).stdout(Stdio::null());
    ssh
}

/// Ends a ControlMaster.
pub(crate) fn ssh_exit(sshd: &Sshd, socket: &Path) {
    ssh(&sshd.ssh_config())
        .arg("-S")
        .arg(socket)
        .args(["-O", "exit", HOST])
        .stderr(Stdio::null())
        .status()
        .unwrap();
}

//! An SSH server in the process, for the demo and for tests without sshd.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use russh::keys::{Algorithm, PrivateKey, PublicKey};
use russh::server::{self, Auth, Handle, Msg, Session, VerifiedPublicKey};
use russh::{ChannelId, MethodKind, MethodSet, Preferred, Sig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinSet;

use super::{HostConfig, Methods};

/// An SSH server inside this process, for the demo. It listens on a random loopback port, has a
/// generated host key, accepts one generated user key, and runs commands with `/bin/sh` as the
/// current user.
///
/// Dropping it closes its connections and kills running commands.
pub struct LoopbackServer {
    address: SocketAddr,
    directory: tempfile::TempDir,
    _tasks: JoinSet<()>,
}

impl LoopbackServer {
    /// Starts a server.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let host_key = new_key()?;
        let user_key = new_key()?;
        let directory = tempfile::Builder::new().prefix("sshjobs-demo").tempdir()?;
        write_keys(directory.path(), address.port(), &host_key, &user_key)?;
        let config = Arc::new(server::Config {
            keys: vec![host_key],
            methods: MethodSet::from(&[MethodKind::PublicKey][..]),
            preferred: Preferred::DEFAULT,
            nodelay: true,
            ..server::Config::default()
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, config, user_key.public_key().clone()));
        Ok(Self {
            address,
            directory,
            _tasks: tasks,
        })
    }

    /// Its configuration as a host called `name`.
    pub fn host_config(&self, name: &str) -> HostConfig {
        let address = self.address.ip().to_string();
        HostConfig {
            identity_files: vec![self.directory.path().join("id")],
            identities_only: true,
            methods: Methods {
                keyboard_interactive: false,
                password: false,
                ..Methods::default()
            },
            known_hosts: vec![self.directory.path().join("known_hosts")],
            ..HostConfig::new(name, &address, self.address.port(), "demo")
        }
    }
}

fn new_key() -> io::Result<PrivateKey> {
    PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519).map_err(io::Error::other)
}

fn write_keys(
    directory: &std::path::Path,
    port: u16,
    host_key: &PrivateKey,
    user_key: &PrivateKey,
) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let line = host_key.public_key().to_openssh().map_err(io::Error::other)?;
    std::fs::write(
        directory.join("known_hosts"),
        format!("[127.0.0.1]:{port} {line}\n"),
    )?;
    let pem = user_key
        .to_openssh(russh::keys::ssh_key::LineEnding::LF)
        .map_err(io::Error::other)?;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(directory.join("id"))?;
    io::Write::write_all(&mut file, pem.as_bytes())
}

async fn accept(listener: TcpListener, config: Arc<server::Config>, user_key: PublicKey) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let session = LoopbackShell {
            user_key: user_key.clone(),
            stdins: HashMap::new(),
            commands: JoinSet::new(),
        };
        let config = Arc::clone(&config);
        connections.spawn(async move {
            // The client reports why a connection fails.
            if let Ok(running) = server::run_stream(config, socket, session).await {
                drop(running.await);
            }
        });
        // Removes ended connections, so that the set does not grow without bound.
        while connections.try_join_next().is_some() {}
    }
}

/// The commands of one connection.
struct LoopbackShell {
    user_key: PublicKey,
    stdins: HashMap<ChannelId, ChildStdin>,
    commands: JoinSet<()>,
}

impl server::Handler for LoopbackShell {
    type Error = russh::Error;

    async fn auth_publickey(
        &mut self,
        _user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        if key.public_key.key_data() == self.user_key.key_data() {
            Ok(Auth::Accept)
        } else {
            Ok(Auth::reject())
        }
    }

    async fn channel_open_session(
        &mut self,
        _channel: russh::Channel<Msg>,
        reply: server::ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        match start(command) {
            Ok(mut child) => {
                session.channel_success(channel)?;
                if let Some(stdin) = child.stdin.take() {
                    self.stdins.insert(channel, stdin);
                }
                self.commands.spawn(run(child, channel, session.handle()));
            }
            Err(_) => session.channel_failure(channel)?,
        }
        Ok(())
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        // russh waits for this handler: a command that does not read blocks its whole connection.
        if let Some(stdin) = self.stdins.get_mut(&channel)
            && stdin.write_all(data).await.is_err()
        {
            self.stdins.remove(&channel);
        }
        Ok(())
    }

    async fn channel_eof(
        &mut self,
        channel: ChannelId,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        self.stdins.remove(&channel);
        Ok(())
    }
}

fn start(command: &[u8]) -> io::Result<Child> {
    let command = str::from_utf8(command).map_err(io::Error::other)?;
    Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Sends the command's output and exit status, then closes the channel. If the client has
/// disconnected, the results are dropped.
async fn run(mut child: Child, channel: ChannelId, handle: Handle) {
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    // First, because no data may follow the Eof below.
    tokio::join!(
        forward(stdout, ProcessOutput::Data, channel, handle.clone()),
        forward(stderr, ProcessOutput::ExtendedData, channel, handle.clone()),
    );
    if let Ok(status) = child.wait().await {
        tell_exit(status, channel, handle.clone()).await.ok();
    }
    handle.eof(channel).await.ok();
    handle.close(channel).await.ok();
}

enum ProcessOutput {
    Data,
    ExtendedData,
}

async fn forward(
    stream: Option<impl AsyncRead + Unpin>,
    output: ProcessOutput,
    channel: ChannelId,
    handle: Handle,
) {
    let Some(mut stream) = stream else { return };
    let mut buffer = vec![0; 32 << 10];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let bytes = buffer[..length].to_vec();
        let sent = match output {
            ProcessOutput::Data => handle.data(channel, bytes).await,
            ProcessOutput::ExtendedData => handle.extended_data(channel, 1, bytes).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn tell_exit(status: ExitStatus, channel: ChannelId, handle: Handle) -> Result<(), ()> {
    match (status.code(), status.signal()) {
        (Some(code), _) => handle.exit_status_request(channel, code.unsigned_abs()).await,
        (None, signal) => {
            let signal = match signal {
                Some(9) => Sig::KILL,
                Some(2) => Sig::INT,
                Some(15) => Sig::TERM,
                other => Sig::Custom(other.map_or_else(String::new, |number| number.to_string())),
            };
            handle
                .exit_signal_request(channel, signal, false, String::new(), String::new())
                .await
        }
    }
}

#[cfg(test)]
mod tests;

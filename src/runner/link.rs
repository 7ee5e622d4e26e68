use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::Traffic;
use crate::job::{LoginShell, Machine, Nonce, shell_probes};
use crate::ssh::{
    Channel, ChannelError, ChannelEvent, Connect, ConnectError, Connection, Connector, HostConfig, Pooled,
};

/// A connection, and what its far end runs commands with.
pub struct Link {
    /// The connection.
    pub connection: Connection,
    /// What exec strings are for there.
    pub shell: LoginShell,
    /// Which machine that is, and which start of it, if the host tells.
    pub machine: Option<Machine>,
    /// When it last did not answer.
    unanswered: Mutex<Option<Instant>>,
    /// How much comes over it.
    pub traffic: Traffic,
    ahead: Mutex<Ahead>,
}

/// A channel that was opened ahead while jobs come and go, so that the next command costs one round trip and not two. It is kept
/// for some seconds after the last of them.
#[derive(Default)]
struct Ahead {
    spare: Spare,
    /// How many jobs run on the connection.
    jobs: usize,
}

#[derive(Default)]
enum Spare {
    #[default]
    None,
    Opening,
    Ready(Channel),
    /// The server has refused one: it is not asked again.
    Refused,
}

/// A channel, and whether it was opened ahead: then it may have been closed unnoticed.
pub(super) struct Opened {
    pub(super) channel: Channel,
    pub(super) was_spare: bool,
}

impl Link {
    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_spare(&self) -> Option<Channel> {
        let spare = &mut self.ahead().spare;
        if !matches!(spare, Spare::Ready(_)) {
            return None;
        }
        match std::mem::take(spare) {
            Spare::Ready(channel) => Some(channel),
            Spare::None | Spare::Opening | Spare::Refused => None,
        }
    }

    /// Whether it answers: it has been heard of lately, or is now, when asked. Bounded in time.
    pub(super) async fn answers(&self) -> bool {
        self.answers_after(SILENT).await
    }

    /// The same, asked after so much silence.
    pub(super) async fn answers_after(&self, silence: Duration) -> bool {
        if self.connection.is_closed() || self.connection.is_held() {
            return false;
        }
        if self.connection.silent_for() < silence || self.connection.ping().await {
            return true;
        }
        self.suspect();
        false
    }

    /// Takes note that it does not answer.
    pub(super) fn suspect(&self) {
        *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether it has been silent for so long that it is asked for a sign of life before it is used.
    pub(super) fn is_silent(&self) -> bool {
        self.connection.silent_for() >= SILENT
    }

    /// A channel: the spare one, if it is still good, or a new one.
    pub(super) async fn open(&self) -> Result<Opened, ChannelError> {
        if let Some(mut channel) = self.take_spare()
            && !channel.is_closed()
        {
            return Ok(Opened { channel, was_spare: true });
        }
        Ok(Opened { channel: self.connection.open().await?, was_spare: false })
    }

    /// A job has begun: opens a channel for the next one, unless there is one. Must not be cancelled, or the server would keep a
    /// channel that nobody knows.
    pub(super) async fn refill(&self) {
        {
            let mut ahead = self.ahead();
            if !matches!(ahead.spare, Spare::None) {
                return;
            }
            ahead.spare = Spare::Opening;
        }
        let opened = self.connection.open().await;
        self.ahead().spare = match opened {
            Ok(channel) => Spare::Ready(channel),
            Err(ChannelError::OpenRefused) => Spare::Refused,
            // Whoever needs a channel next is told.
            Err(_) => Spare::None,
        };
    }

    pub(super) fn job_begins(&self) {
        self.ahead().jobs += 1;
    }

    /// A job has ended. Some seconds after the last one the spare channel goes; nobody needs to wait for that.
    pub(super) async fn job_ends(&self) {
        {
            let mut ahead = self.ahead();
            ahead.jobs -= 1;
            if ahead.jobs > 0 {
                return;
            }
        }
        sleep(SPARE_KEPT).await;
        let is_idle = self.ahead().jobs == 0;
        if is_idle && let Some(channel) = self.take_spare() {
            // A connection that is lost needs no closing.
            channel.close().await.ok();
        }
    }
}

/// Tells how to reach a host by its name.
pub trait Directory: Send + Sync + 'static {
    /// Resolves `name`.
    fn host(&self, name: &str) -> impl Future<Output = Result<HostConfig, ConnectError>> + Send;
}

/// A connection that has been silent for so long is asked for a sign of life before it is used.
const SILENT: Duration = Duration::from_secs(5);
/// The most that is kept of what a short command prints.
const ANSWER_LIMIT: usize = 64 << 10;
/// How long after the last job a spare channel is kept.
const SPARE_KEPT: Duration = Duration::from_secs(5);
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

impl Pooled for Arc<Link> {
    fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    fn is_heavy(&self) -> bool {
        self.traffic.is_heavy()
    }

    fn is_suspect(&self) -> bool {
        let unanswered = *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        self.connection.is_held() || unanswered.is_some_and(|at| at.elapsed() <= self.connection.silent_for())
    }
}

/// Makes links: resolve, connect, log in, find out about the login shell.
pub(super) struct Linker<D> {
    pub(super) directory: D,
    pub(super) connector: Connector,
}

impl<D: Directory> Connect for Linker<D> {
    type Connection = Arc<Link>;
    type Error = ConnectError;

    async fn connect(&self, host: &str) -> Result<Arc<Link>, ConnectError> {
        let config = self.directory.host(host).await?;
        let connection = self.connector.connect(&config).await?;
        let limit = config.connect_timeout * 2;
        let (shell, machine) =
            timeout(limit, login_shell(&connection)).await.unwrap_or((LoginShell::Bare, None));
        tracing::info!(host, ?shell, negotiated = ?connection.negotiated(), "connected");
        Ok(Arc::new(Link {
            connection,
            shell,
            machine,
            unanswered: Mutex::default(),
            traffic: Traffic::default(),
            ahead: Mutex::default(),
        }))
    }
}

/// Asks what runs exec strings, and on which machine. A host that does not answer as a shell would is given bare commands only.
async fn login_shell(connection: &Connection) -> (LoginShell, Option<Machine>) {
    let nonce = Nonce::new();
    for (command, shell) in shell_probes(&nonce) {
        let asked = async { ask(connection.open().await?, &command, PROBE_TIMEOUT).await };
        match asked.await {
            Ok(answer) if answer.contains(nonce.as_str()) => return (shell, Machine::parse(&answer)),
            Ok(_) => {}
            // A host that refuses the second probe after the first has no more to say.
            Err(error) => tracing::debug!(%error, "the login shell could not be asked"),
        }
    }
    (LoginShell::Bare, None)
}

/// Runs a short command of our own and returns what it printed, within `limit`. When the caller goes away it still comes to its
/// end, so that the channel is closed.
#[expect(clippy::disallowed_methods, reason = "it outlives its caller on purpose, and is bounded in time")]
pub(super) async fn ask(channel: Channel, command: &str, limit: Duration) -> Result<String, ChannelError> {
    let asking = tokio::spawn(ask_to_the_end(channel, command.to_owned(), limit));
    asking.await.unwrap_or(Err(ChannelError::ConnectionLost))
}

async fn ask_to_the_end(channel: Channel, command: String, limit: Duration) -> Result<String, ChannelError> {
    let (mut reader, writer) = channel.exec(&command).await?;
    writer.eof().await?;
    let mut answer = Vec::new();
    let reading = async {
        while let Some(event) = reader.next().await {
            if event == ChannelEvent::Close {
                break;
            }
            if let ChannelEvent::Data(bytes) = event
                && answer.len() < ANSWER_LIMIT
            {
                answer.extend_from_slice(&bytes);
            }
        }
    };
    let in_time = timeout(limit, reading).await;
    writer.close().await?;
    in_time.map_err(|_| ChannelError::TimedOut(limit))?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

impl<D: Directory> Directory for Arc<D> {
    async fn host(&self, name: &str) -> Result<HostConfig, ConnectError> {
        D::host(self, name).await
    }
}

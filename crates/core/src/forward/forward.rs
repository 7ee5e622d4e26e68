//! One forward: its connection and its streams.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::io::copy_bidirectional_with_sizes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::counters::Counters;
use super::error::ForwardError;
use super::lane::{FreeLane, Lane, MoreLanes};
use super::listener::{ForwardListener, Socket, connect};
use super::socks::{SocksReply, read_request, write_answer};
use super::spec::ForwardSpec;
use super::status::{ForwardId, ForwardState, ForwardStatus};
use crate::hosts::{HostRef, Hosts, Lease, Link, Script};
use sshjobs_base::lock::lock;
use sshjobs_job::quote;
use sshjobs_ssh::{DialError, Endpoint, Tunnel};

/// Options of a forward.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForwardOptions {
    /// Closes it when it had no stream for this time.
    pub idle: Option<Duration>,
}

/// Maximum streams of a forward at the same time.
const MOST_STREAMS: usize = 2048;
/// Streams from the host that wait to be connected.
const MOST_WAITING: usize = 64;
/// Time that a stream waits for a connection that is being made again, and for a SOCKS request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses before attempts to connect again; the last one is repeated.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(8),
    Duration::from_secs(15),
];
/// Bytes copied at a time.
const STEP: usize = 64 << 10;
/// Time limit for the removal of a socket on the host.
const REMOVAL_TIME: Duration = Duration::from_secs(5);
/// Pause after a failed accept, for example while there are no descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// One forward.
pub(super) struct Forward {
    id: ForwardId,
    hosts: Arc<Hosts>,
    host: HostRef,
    spec: ForwardSpec,
    options: ForwardOptions,
    counters: Counters,
    /// The connection, while there is one.
    lane: watch::Sender<Option<Arc<Lane>>>,
    /// Extra connections, used while a slow client blocks the first one.
    more_lanes: MoreLanes,
    since: Mutex<SystemTime>,
    pub(super) closing: CancellationToken,
}

/// A forward that was opened, with what its task needs.
pub(super) struct NewForward {
    pub(super) forward: Arc<Forward>,
    lease: Lease<Arc<Link>>,
    entrance: Entrance,
}

/// Where streams come from.
enum Entrance {
    Here(ForwardListener),
    There {
        tunnels: mpsc::Receiver<Tunnel>,
        sender: mpsc::Sender<Tunnel>,
    },
}

impl Forward {
    /// Connects and listens.
    pub(super) async fn open(
        id: ForwardId,
        hosts: Arc<Hosts>,
        host: HostRef,
        spec: ForwardSpec,
        options: ForwardOptions,
    ) -> Result<NewForward, ForwardError> {
        let requested = spec.listen().clone();
        // Before the login, which takes longer.
        let here = match &spec {
            ForwardSpec::Local { .. } | ForwardSpec::Dynamic { .. } => {
                Some(ForwardListener::bind(&requested).await?)
            }
            ForwardSpec::Remote { .. } => None,
        };
        let lease = hosts.pool().lease_new(&host).await?;
        let link = Arc::clone(lease.connection());
        let (listen, entrance) = match here {
            Some(listener) => (listener.endpoint(&requested), Entrance::Here(listener)),
            None => {
                let (sender, tunnels) = mpsc::channel(MOST_WAITING);
                let bound = link.connection.listen(&requested, sender.clone()).await;
                let bound = bound.map_err(|source| ForwardError::RemoteListen {
                    at: requested,
                    source,
                })?;
                (bound, Entrance::There { tunnels, sender })
            }
        };
        let forward = Arc::new(Self {
            id,
            hosts,
            host,
            spec: spec.bound_to(listen),
            options,
            counters: Counters::new(),
            lane: watch::Sender::new(Some(Arc::new(Lane::new(link)))),
            more_lanes: MoreLanes::default(),
            since: Mutex::new(SystemTime::now()),
            closing: CancellationToken::new(),
        });
        Ok(NewForward {
            forward,
            lease,
            entrance,
        })
    }

    pub(super) fn id(&self) -> &ForwardId {
        &self.id
    }

    pub(super) fn host(&self) -> &HostRef {
        &self.host
    }

    pub(super) fn status(&self) -> ForwardStatus {
        let state = if self.lane.borrow().is_some() {
            ForwardState::Open
        } else {
            ForwardState::Reconnecting
        };
        ForwardStatus {
            id: self.id.clone(),
            host: self.host.name.clone(),
            spec: self.spec.clone(),
            state,
            since: *lock(&self.since),
            open_streams: *self.counters.open.borrow(),
            streams: self.counters.streams.load(Relaxed),
            bytes_to_target: self.counters.bytes_to_target.load(Relaxed),
            bytes_from_target: self.counters.bytes_from_target.load(Relaxed),
            errors: self.counters.errors.load(Relaxed),
            last_error: self.counters.last_error(),
        }
    }

    /// The connection for a new stream, which may have to be made first.
    async fn lane(&self) -> Option<Arc<Lane>> {
        let mut lane = self.lane.subscribe();
        let present = timeout(PATIENCE, lane.wait_for(Option::is_some)).await;
        let first = present.ok()?.ok()?.clone()?;
        if !first.is_blocked() {
            return Some(first);
        }
        let room = match self.more_lanes.free() {
            FreeLane::Found(lane) => return Some(lane),
            FreeLane::None => return Some(first),
            FreeLane::MayConnect(room) => room,
        };
        // Not under the lock: a login that hangs must not keep other streams waiting.
        match timeout(PATIENCE, self.hosts.pool().lease_new(&self.host)).await {
            Ok(Ok(lease)) => {
                let lane = Arc::new(Lane::leased(lease));
                room.take(&lane);
                Some(lane)
            }
            Ok(Err(error)) => {
                self.counters.note_error(error.to_string());
                Some(first)
            }
            Err(_) => Some(first),
        }
    }

    /// Stores the new connection, or `None` when it was lost.
    fn note_link(&self, link: Option<Arc<Link>>) {
        *lock(&self.since) = SystemTime::now();
        self.lane.send_replace(link.map(|link| Arc::new(Lane::new(link))));
    }

    /// Makes the connection again whenever it is lost.
    async fn keep_connected(
        &self,
        mut lease: Lease<Arc<Link>>,
        tunnels: Option<mpsc::Sender<Tunnel>>,
    ) {
        loop {
            lease.connection().connection.lost().await;
            self.note_link(None);
            self.counters.note_error("the connection was lost");
            tracing::info!(forward = %self.id, host = self.host.name, "a forward has lost its connection");
            drop(lease);
            lease = self.reconnect(tunnels.as_ref()).await;
            self.note_link(Some(Arc::clone(lease.connection())));
            tracing::info!(forward = %self.id, host = self.host.name, "a forward is connected again");
        }
    }

    async fn reconnect(&self, tunnels: Option<&mpsc::Sender<Tunnel>>) -> Lease<Arc<Link>> {
        let last = PAUSES[PAUSES.len() - 1];
        for pause in PAUSES.into_iter().chain(std::iter::repeat(last)) {
            sleep(pause).await;
            match self.connect(tunnels).await {
                Ok(lease) => return lease,
                Err(error) => self.counters.note_error(error.to_string()),
            }
        }
        unreachable!("the pauses never end")
    }

    /// Connects and, for a forward from the host, makes it listen where it has listened before.
    async fn connect(
        &self,
        tunnels: Option<&mpsc::Sender<Tunnel>>,
    ) -> Result<Lease<Arc<Link>>, ForwardError> {
        let lease = self.hosts.pool().lease_new(&self.host).await?;
        if let Some(tunnels) = tunnels {
            let at = self.spec.listen();
            let link = lease.connection();
            let mut listening = link.connection.listen(at, tunnels.clone()).await;
            let is_socket = matches!(at, Endpoint::Unix(_));
            if is_socket && matches!(listening, Err(DialError::ListenRefused)) {
                // The socket of the lost connection may still be there.
                remove_socket(link, at).await;
                listening = link.connection.listen(at, tunnels.clone()).await;
            }
            listening.map_err(|source| ForwardError::RemoteListen {
                at: at.clone(),
                source,
            })?;
        }
        Ok(lease)
    }

    /// Returns when there was no stream for the configured time.
    async fn idle(&self) {
        let Some(limit) = self.options.idle else {
            return std::future::pending().await;
        };
        let mut open = self.counters.open.subscribe();
        loop {
            // The sender is a field of this, so that waiting does not fail.
            open.wait_for(|open| *open == 0).await.ok();
            if timeout(limit, open.wait_for(|open| *open > 0)).await.is_err() {
                return;
            }
        }
    }

    /// Connects a client of this machine to its target.
    async fn serve(&self, mut client: Box<dyn Socket>) {
        let _open = self.counters.open_stream();
        let target = match &self.spec {
            ForwardSpec::Local { target, .. } | ForwardSpec::Remote { target, .. } => {
                target.clone()
            }
            ForwardSpec::Dynamic { .. } => match timeout(PATIENCE, read_request(&mut client)).await
            {
                Ok(Ok(target)) => target,
                Ok(Err(error)) => return self.counters.note_error(error.to_string()),
                Err(_) => return self.counters.note_error("a client sends no request"),
            },
        };
        let Some(lane) = self.lane().await else {
            return self.counters.note_error("there was no connection in time");
        };
        let dialed = lane.link.connection.dial(&target).await;
        if let ForwardSpec::Dynamic { .. } = &self.spec {
            let answer = dialed.as_ref().err().map_or(SocksReply::Succeeded, SocksReply::of);
            if write_answer(&mut client, answer).await.is_err() {
                return;
            }
        }
        match dialed {
            Ok(tunnel) => self.relay(lane.watched(client), tunnel).await,
            Err(error) => self.counters.note_error(format!("{target}: {error}")),
        }
    }

    /// Connects a stream of the host to the target that this machine reaches.
    async fn serve_tunnel(&self, tunnel: Tunnel) {
        let _open = self.counters.open_stream();
        let Some(target) = self.spec.target() else { return };
        match connect(target).await {
            Ok(socket) => {
                let lane = self.lane.borrow().clone();
                match lane {
                    Some(lane) => self.relay(tunnel, lane.watched(socket)).await,
                    None => self.relay(tunnel, socket).await,
                }
            }
            Err(error) => self.counters.note_error(format!("{target}: {error}")),
        }
    }

    /// Copies both directions until both have ended.
    async fn relay(&self, client: impl Socket, mut target: impl Socket) {
        let mut client = self.counters.metered(client);
        let copied = copy_bidirectional_with_sizes(&mut client, &mut target, STEP, STEP).await;
        // A reset is how many clients end.
        if let Err(error) = copied
            && error.kind() != io::ErrorKind::ConnectionReset
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.counters.note_error(error.to_string());
        }
    }
}

impl NewForward {
    /// Forwards until it is closed.
    pub(super) async fn run(self) {
        let Self {
            forward,
            lease,
            entrance,
        } = self;
        let closing = forward.closing.clone();
        match entrance {
            Entrance::Here(listener) => tokio::select! {
                () = closing.cancelled() => {}
                () = forward.idle() => {}
                () = forward.keep_connected(lease, None) => {}
                () = accept(&forward, &listener) => {}
            },
            Entrance::There { tunnels, sender } => {
                tokio::select! {
                    () = closing.cancelled() => {}
                    () = forward.idle() => {}
                    () = forward.keep_connected(lease, Some(sender)) => {}
                    () = receive(&forward, tunnels) => {}
                }
                let lane = forward.lane.borrow().clone();
                if let Some(lane) = lane {
                    let at = forward.spec.listen();
                    lane.link.connection.stop_listening(at).await;
                    remove_socket(&lane.link, at).await;
                }
            }
        }
    }
}

/// Removes a socket on the host after a forward has listened there. By default sshd leaves it behind
/// (`StreamLocalBindUnlink no`), and then refuses to listen there again.
async fn remove_socket(link: &Link, listened_at: &Endpoint) {
    let Endpoint::Unix(path) = listened_at else { return };
    // A script may have another working directory than sshd.
    if !path.starts_with('/') {
        return;
    }
    let path = quote(path);
    let script = format!("[ -S {path} ] && [ -O {path} ] && rm -f {path}");
    let removed = link.run_script(Script::without_input(script), REMOVAL_TIME).await;
    if let Err(error) = removed {
        tracing::debug!(%error, path, "a socket may be left on the host");
    }
}

/// Accepts clients of this machine.
async fn accept(forward: &Arc<Forward>, listener: &ForwardListener) {
    let mut streams = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok(client) => {
                let forward = Arc::clone(forward);
                start(&mut streams, Arc::clone(&forward), async move {
                    forward.serve(client).await;
                });
            }
            Err(error) => {
                forward.counters.note_error(error.to_string());
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Receives streams from the host.
async fn receive(forward: &Arc<Forward>, mut tunnels: mpsc::Receiver<Tunnel>) {
    let mut streams = JoinSet::new();
    while let Some(tunnel) = tunnels.recv().await {
        let forward = Arc::clone(forward);
        start(&mut streams, Arc::clone(&forward), async move {
            forward.serve_tunnel(tunnel).await;
        });
    }
}

/// Starts the task of a stream, unless there are too many; then the stream is closed.
fn start(
    streams: &mut JoinSet<()>,
    forward: Arc<Forward>,
    serving: impl Future<Output = ()> + Send + 'static,
) {
    while streams.try_join_next().is_some() {}
    if streams.len() < MOST_STREAMS {
        streams.spawn(serving);
    } else {
        forward.counters.note_error(format!("{MOST_STREAMS} streams are open"));
    }
}

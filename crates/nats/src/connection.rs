//! The connection to NATS, and calls to it from threads that may block.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use async_nats::jetstream::{self, ErrorCode, kv, stream};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use secrecy::ExposeSecret;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::options::{NatsLogin, NatsOptions};
use sshjobs_store::StoreError;

/// A connection to NATS. It reconnects by itself.
///
/// It has a thread of its own, so that leases are renewed however busy the process is.
pub(super) struct NatsConnection {
    /// `None` once this value is being dropped.
    runtime: Option<Runtime>,
    pub(super) client: Client,
    pub(super) jetstream: jetstream::Context,
    pub(super) prefix: String,
    /// When the connection was lost, while there is none.
    outage: Arc<watch::Sender<Option<Instant>>>,
    /// Lifetime of a lease.
    pub(super) lease: Duration,
    /// Number of NATS servers that keep a copy of everything.
    copies: usize,
}

/// Time limit for the first connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Time limit for JetStream to be ready. Three servers that start at once need some seconds until each
/// knows the others.
const READY: Duration = Duration::from_secs(30);
/// Time limit for NATS to answer a call.
const ANSWER: Duration = Duration::from_secs(5);
/// Interval of checks whether the server still answers. The connection counts as lost after two that
/// it did not answer.
const PING: Duration = Duration::from_secs(3);
/// Time without a connection after which calls fail at once. The client needs much less to change to
/// another server of a NATS cluster.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest pause between two attempts to connect again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Longest message that NATS must take, in bytes: twice the longest message of output.
const LEAST_PAYLOAD: usize = 256 << 10;
/// Bucket of values that all replicas share.
pub(super) const SETTINGS: &str = "settings";
/// Number of copies in a NATS cluster: one server may fail.
const COPIES: usize = 3;

impl NatsConnection {
    /// Connects. Blocks the thread.
    pub(super) fn open(options: &NatsOptions) -> Result<Self, StoreError> {
        check_prefix(&options.prefix)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sshjobs-nats")
            .enable_all()
            .build()
            .map_err(failed)?;
        let entered = runtime.enter();
        let outage = Arc::new(watch::Sender::new(None));
        let client = futures_executor::block_on(connect(options, &outage))?;
        let longest = client.server_info().max_payload;
        if longest < LEAST_PAYLOAD {
            return Err(failed(format!(
                "it takes messages of up to {longest} bytes only: set its max_payload to {LEAST_PAYLOAD} or \
                 more"
            )));
        }
        let is_clustered = client.server_info().cluster.is_some();
        let copies = options.copies.unwrap_or(if is_clustered { COPIES } else { 1 });
        let jetstream =
            jetstream::context::ContextBuilder::new().timeout(ANSWER).build(client.clone());
        drop(entered);
        Ok(Self {
            runtime: Some(runtime),
            client,
            jetstream,
            prefix: options.prefix.clone(),
            outage,
            lease: options.lease,
            copies,
        })
    }

    /// Waits for a call to NATS, as [`reach`](Self::reach) does. Blocks the thread, whichever thread
    /// that is.
    pub(super) fn wait<T, E: From<OutOfReach>>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        // For the timers of the call. `Handle::block_on` would panic in a task.
        let _entered = self.handle().enter();
        // If the thread runs a task, the call must not use up that task's budget: it would then
        // wait for the task to yield, for ever.
        futures_executor::block_on(tokio::task::unconstrained(self.reach(call)))
    }

    /// Performs a call to NATS. Gives it up if there has been no connection for
    /// [`OUTAGE_TIMEOUT`]: otherwise each call during an outage would take [`ANSWER`].
    pub(super) async fn reach<T, E: From<OutOfReach>>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::select! {
            // A call that needs no connection succeeds.
            biased;
            answered = call => answered,
            () = self.out_of_reach() => Err(OutOfReach.into()),
        }
    }

    /// Resolves when there has been no connection for [`OUTAGE_TIMEOUT`].
    async fn out_of_reach(&self) {
        let mut outages = self.outage.subscribe();
        loop {
            // The client has the sender for as long as this value is there.
            let outage = outages.wait_for(Option::is_some).await.map(|began| *began);
            let Ok(Some(began)) = outage else { return };
            if timeout_at(began + OUTAGE_TIMEOUT, outages.wait_for(Option::is_none))
                .await
                .is_err()
            {
                return;
            }
        }
    }

    /// When the connection was lost, while there is none.
    pub(super) fn outages(&self) -> watch::Receiver<Option<Instant>> {
        self.outage.subscribe()
    }

    /// The connection's own runtime.
    pub(super) fn handle(&self) -> &Handle {
        self.runtime.as_ref().expect("it is there until it is dropped").handle()
    }

    /// Opens a bucket of keys and values. Creates a missing one. Values older than `max_age` are
    /// deleted, unless it is zero.
    pub(super) async fn bucket(
        &self,
        name: &str,
        max_age: Duration,
    ) -> Result<kv::Store, StoreError> {
        let config = kv::Config {
            bucket: format!("{}_{name}", self.prefix),
            history: 1,
            max_age,
            num_replicas: self.copies,
            ..kv::Config::default()
        };
        match self.jetstream.create_key_value(config.clone()).await {
            Ok(bucket) => Ok(bucket),
            // It may exist with other settings, such as another number of copies: those stay.
            Err(created) => {
                self.jetstream.get_key_value(config.bucket).await.map_err(|_| failed(created))
            }
        }
    }

    /// Opens a bucket. `None` if it does not exist.
    pub(super) async fn existing_bucket(
        &self,
        name: &str,
    ) -> Result<Option<kv::Store>, StoreError> {
        let bucket = format!("{}_{name}", self.prefix);
        // The error of `get_key_value` does not say whether the bucket is missing.
        if let Err(error) = self.jetstream.get_stream(format!("KV_{bucket}")).await {
            return if is_missing(&error) {
                Ok(None)
            } else {
                Err(failed(error))
            };
        }
        self.jetstream.get_key_value(bucket).await.map(Some).map_err(failed)
    }

    /// Repeats a call until it succeeds, at most for some time: the servers of a NATS cluster elect
    /// a leader when they start.
    pub(super) async fn until_ready<T>(
        &self,
        call: impl AsyncFn() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let deadline = Instant::now() + READY;
        loop {
            match call().await {
                Err(error) if Instant::now() < deadline => {
                    tracing::info!(%error, "NATS is not ready yet");
                    sleep(LONGEST_PAUSE).await;
                }
                called => return called,
            }
        }
    }

    /// The bucket of values that all replicas share.
    pub(super) async fn settings(&self) -> Result<kv::Store, StoreError> {
        self.bucket(SETTINGS, Duration::ZERO).await
    }

    /// Opens a stream of output. Creates a missing one.
    pub(super) async fn stream(
        &self,
        name: String,
        subjects: String,
    ) -> Result<stream::Stream, StoreError> {
        self.open_stream(stream::Config {
            name,
            subjects: vec![subjects],
            // A full NATS must refuse new output instead of deleting older output unnoticed.
            discard: stream::DiscardPolicy::New,
            allow_direct: true,
            ..stream::Config::default()
        })
        .await
    }

    /// Opens a stream, with the configured number of copies. Creates a missing one.
    pub(super) async fn open_stream(
        &self,
        config: stream::Config,
    ) -> Result<stream::Stream, StoreError> {
        let name = config.name.clone();
        let config = stream::Config {
            num_replicas: self.copies,
            ..config
        };
        match self.jetstream.create_stream(config).await {
            Ok(stream) => Ok(stream),
            Err(created) => self.jetstream.get_stream(name).await.map_err(|_| failed(created)),
        }
    }
}

impl Drop for NatsConnection {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // What the tasks drop may use the runtime.
            let handle = runtime.handle().clone();
            let _entered = handle.enter();
            // A task may drop this value, and must not wait.
            runtime.shutdown_background();
        }
    }
}

async fn connect(
    options: &NatsOptions,
    outage: &Arc<watch::Sender<Option<Instant>>>,
) -> Result<Client, StoreError> {
    let outage = Arc::clone(outage);
    let connecting = login(options)
        .await?
        .event_callback(move |event| {
            match event {
                Event::Connected => {
                    outage.send_replace(None);
                }
                Event::Disconnected => {
                    outage.send_replace(Some(Instant::now()));
                }
                // They change nothing about the connection.
                Event::Closed
                | Event::Draining
                | Event::LameDuckMode
                | Event::ServerError(_)
                | Event::ClientError(_)
                | Event::SlowConsumer(_) => {}
            }
            std::future::ready(())
        })
        .connect(&options.servers);
    // The part before `@` may be a password.
    let addresses = options.servers.iter().map(|url| url.rsplit('@').next().unwrap_or(url));
    let servers = addresses.collect::<Vec<_>>().join(", ");
    match tokio::time::timeout(CONNECT, connecting).await {
        Ok(connected) => connected.map_err(|error| {
            let why = format!("{servers}: {error}");
            match error.kind() {
                ConnectErrorKind::Dns
                | ConnectErrorKind::TimedOut
                | ConnectErrorKind::Io
                | ConnectErrorKind::MaxReconnects => StoreError::NatsAway(why),
                // These stay wrong.
                ConnectErrorKind::ServerParse
                | ConnectErrorKind::Authentication
                | ConnectErrorKind::AuthorizationViolation
                | ConnectErrorKind::Tls => failed(why),
            }
        }),
        Err(_) => Err(StoreError::NatsAway(format!(
            "{servers}: no connection within {CONNECT:?}"
        ))),
    }
}

async fn login(options: &NatsOptions) -> Result<ConnectOptions, StoreError> {
    let mut connect = match &options.login {
        NatsLogin::None => ConnectOptions::new(),
        NatsLogin::Credentials(file) => ConnectOptions::with_credentials_file(file)
            .await
            .map_err(|error| failed(format!("{}: {error}", file.display())))?,
        NatsLogin::Password { user, password } => ConnectOptions::with_user_and_password(
            user.clone(),
            password.expose_secret().to_owned(),
        ),
        NatsLogin::Token(token) => ConnectOptions::with_token(token.expose_secret().to_owned()),
    };
    if let Some(file) = &options.tls.authorities {
        connect = connect.add_root_certificates(file.clone());
    }
    if let Some((certificate, key)) = &options.tls.certificate {
        connect = connect.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(connect
        .require_tls(options.tls.is_required)
        .name("sshjobs")
        // Below the prefix, so that no other user of the account may listen to replies.
        .custom_inbox_prefix(format!("{}.inbox", options.prefix))
        .request_timeout(Some(ANSWER))
        .ping_interval(PING)
        .max_reconnects(None)
        .reconnect_delay_callback(|attempt| {
            let pause = Duration::from_millis(50).saturating_mul(1 << attempt.min(5));
            pause.min(LONGEST_PAUSE)
        }))
}

fn check_prefix(prefix: &str) -> Result<(), StoreError> {
    let mut characters = prefix.chars();
    if !prefix.is_empty() && characters.all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) {
        return Ok(());
    }
    Err(failed(format!(
        "the prefix {prefix:?} has other characters than letters, digits, `_` and `-`"
    )))
}

/// The connection to NATS is lost.
pub(super) struct OutOfReach;

impl std::fmt::Display for OutOfReach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection to NATS is lost")
    }
}

impl From<OutOfReach> for StoreError {
    fn from(error: OutOfReach) -> Self {
        failed(error)
    }
}

impl From<OutOfReach> for io::Error {
    fn from(error: OutOfReach) -> Self {
        io_failed(error)
    }
}

/// Whether NATS has no such stream.
pub(super) fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(refusal)
        if refusal.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// A failed call to NATS.
pub(super) fn failed(error: impl ToString) -> StoreError {
    StoreError::Nats(error.to_string())
}

/// The same as an error of input and output.
pub(super) fn io_failed(error: impl ToString) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        format!("NATS: {}", error.to_string()),
    )
}

//! Connections between the replicas of a cluster.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{HeaderMap, RequestErrorKind, Subscriber};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::cancelled_tasks::CancelledTasks;
use super::connection::{NatsConnection, failed};
use super::events::EventQueue;
use super::leases::{Holder, Leases, machine_name};
use super::options::subject_token;
use super::tunnel::{TunnelEnds, stream};
use sshjobs_base::lock::lock;
use sshjobs_job::JobId;
use sshjobs_store::{HostPlace, OwnStatus, PeerStream, Peers, StoreError, StoreEvent};

/// The other replicas, as this one reaches them.
pub(super) struct Replicas {
    connection: Arc<NatsConnection>,
    leases: Arc<Leases>,
    cancelled_tasks: CancelledTasks,
    /// Requests of other replicas to connect. Subscribed to when first needed.
    calls: tokio::sync::Mutex<Option<Subscriber>>,
    /// Tasks that move the bytes of streams. They end with this value.
    moving: Mutex<JoinSet<()>>,
}

/// Header with the name of a replica that asks for a host.
const BY: &str = "Sshjobs-By";
/// Time limit for another replica to hand a host over, and the pause before it is asked again.
const HAND_OVER: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Time limit for another replica to accept a connection, and the pause before one is asked again
/// that has just started.
const ACCEPT: Duration = Duration::from_secs(5);
const CONNECT_AGAIN: Duration = Duration::from_millis(50);
/// Maximum bytes of a host's name.
const LONGEST_HOST: usize = 255;
/// Pause before a failed subscription is tried again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(1);

/// Subject of messages about deleted output. The payload is the job's id.
pub(super) fn forgotten_subject(connection: &NatsConnection) -> String {
    format!("{}.output_forgotten", connection.prefix)
}

impl Replicas {
    pub(super) fn new(
        connection: Arc<NatsConnection>,
        leases: Arc<Leases>,
        cancelled_tasks: CancelledTasks,
    ) -> Self {
        Self {
            connection,
            leases,
            cancelled_tasks,
            calls: tokio::sync::Mutex::default(),
            moving: Mutex::default(),
        }
    }

    fn calls_subject(&self, replica: &str) -> String {
        format!(
            "{}.replica.{}",
            self.connection.prefix,
            subject_token(replica)
        )
    }

    fn gained_subject(&self, replica: &str) -> String {
        format!(
            "{}.gained.{}",
            self.connection.prefix,
            subject_token(replica)
        )
    }

    fn wanted_subject(&self, replica: &str) -> String {
        format!(
            "{}.wanted.{}",
            self.connection.prefix,
            subject_token(replica)
        )
    }

    /// Tells a replica that it was given a host. If the message is lost, it is sent again when the
    /// host's jobs still belong to this replica.
    pub(super) async fn tell_gained(&self, replica: &str, host: &str) {
        let gained = self.gained_subject(replica);
        let told = self.connection.client.publish(gained, host.to_owned().into()).await;
        if let Err(error) = told {
            tracing::debug!(%error, host, "the new holder of a host was not told");
        }
    }

    /// Receives requests for hosts, until it is dropped.
    pub(super) async fn receive_requests(self: Arc<Self>, events: EventQueue) {
        let subject = self.wanted_subject(self.leases.name());
        loop {
            let mut requests = self.subscribe(&subject).await;
            while let Some(message) = requests.next().await {
                let by = message.headers.as_ref().and_then(|headers| headers.get(BY));
                let Some(by) = by.map(|by| by.as_str().to_owned()) else { continue };
                let host = String::from_utf8_lossy(&message.payload).into_owned();
                events.send(StoreEvent::HostWanted { host, by });
            }
        }
    }

    /// Receives hosts that other replicas hand over, until it is dropped.
    pub(super) async fn receive_hosts(self: Arc<Self>, events: EventQueue) {
        let subject = self.gained_subject(self.leases.name());
        loop {
            let mut gained = self.subscribe(&subject).await;
            while let Some(message) = gained.next().await {
                let host = String::from_utf8_lossy(&message.payload).into_owned();
                match self.leases.take(&host).await {
                    Ok(Holder::Here(_)) => events.send(StoreEvent::HostGained(host)),
                    Ok(Holder::Other(_)) => {}
                    Err(error) => tracing::debug!(%error, host, "a host can't be taken over now"),
                }
            }
        }
    }

    /// Learns which output other replicas delete, until it is dropped.
    pub(super) async fn receive_forgotten(self: Arc<Self>, events: EventQueue) {
        let subject = forgotten_subject(&self.connection);
        let mut outages = self.connection.outages();
        loop {
            let mut forgotten = self.subscribe(&subject).await;
            loop {
                tokio::select! {
                    message = forgotten.next() => {
                        let Some(message) = message else { break };
                        let job = JobId::from(&*String::from_utf8_lossy(&message.payload));
                        events.send(StoreEvent::OutputForgotten(job));
                    }
                    // The connection, which `self` has, holds the sender.
                    _ = outages.changed() => {
                        if outages.borrow_and_update().is_none() {
                            events.send(StoreEvent::Reconnected);
                        }
                    }
                }
            }
        }
    }

    /// Subscribes to a subject, as often as it takes.
    async fn subscribe(&self, subject: &str) -> Subscriber {
        loop {
            match self.connection.client.subscribe(subject.to_owned()).await {
                Ok(messages) => return messages,
                Err(error) => {
                    tracing::warn!(%error, subject, "messages of other replicas are missed");
                    sleep(SUBSCRIBE_AGAIN).await;
                }
            }
        }
    }

    fn start(&self, incoming: Subscriber, outgoing: String) -> Box<dyn PeerStream> {
        let (stream, moving) = stream(TunnelEnds {
            client: self.connection.client.clone(),
            incoming,
            outgoing,
        });
        let mut tasks = lock(&self.moving);
        // A `JoinSet` keeps ended tasks until they are joined.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(moving);
        Box::new(stream)
    }

    async fn connect_to(&self, replica: &str) -> io::Result<Box<dyn PeerStream>> {
        let client = &self.connection.client;
        let own = client.new_inbox();
        // First, so that no message of the other side is missed.
        let incoming = client.subscribe(own.clone()).await.map_err(io::Error::other)?;
        let own = bytes::Bytes::from(own);
        let asking = async {
            loop {
                match client.request(self.calls_subject(replica), own.clone()).await {
                    // A replica that has just entered accepts connections within moments.
                    Err(error)
                        if error.kind() == RequestErrorKind::NoResponders
                            && self.is_other(replica) =>
                    {
                        sleep(CONNECT_AGAIN).await;
                    }
                    answered => return answered,
                }
            }
        };
        let answer = timeout(ACCEPT, asking)
            .await
            .map_err(|_| io::ErrorKind::TimedOut)?
            .map_err(io::Error::other)?;
        let outgoing = String::from_utf8(answer.payload.to_vec()).map_err(io::Error::other)?;
        Ok(self.start(incoming, outgoing))
    }

    async fn accept_next(&self) -> io::Result<Box<dyn PeerStream>> {
        let client = &self.connection.client;
        // Locked while this task waits: there is one that accepts.
        let mut calls = self.calls.lock().await;
        let calls = match &mut *calls {
            Some(calls) => calls,
            none => {
                let subject = self.calls_subject(self.leases.name());
                none.insert(client.subscribe(subject).await.map_err(io::Error::other)?)
            }
        };
        loop {
            let call = calls.next().await.ok_or(io::ErrorKind::BrokenPipe)?;
            let Some(reply) = call.reply else { continue };
            let Ok(outgoing) = String::from_utf8(call.payload.to_vec()) else { continue };
            let own = client.new_inbox();
            let incoming = client.subscribe(own.clone()).await.map_err(io::Error::other)?;
            client.publish(reply, own.into()).await.map_err(io::Error::other)?;
            return Ok(self.start(incoming, outgoing));
        }
    }
}

impl Peers for Replicas {
    fn own_name(&self) -> &str {
        self.leases.name()
    }

    fn own_machine(&self) -> String {
        machine_name()
    }

    fn place_of_host<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<HostPlace, StoreError>> {
        async move {
            // No host has such a name, which NATS would refuse: this replica says so.
            if host.len() > LONGEST_HOST {
                return Ok(HostPlace::Here);
            }
            let holder = self.connection.reach(self.leases.holder(host)).await?;
            Ok(match holder {
                Some(Holder::Here(_)) => HostPlace::Here,
                Some(Holder::Other(replica)) => HostPlace::At(replica),
                None => {
                    let preferred = self.leases.preferred(host);
                    if preferred == self.leases.name() {
                        HostPlace::Here
                    } else {
                        HostPlace::At(preferred)
                    }
                }
            })
        }
        .boxed()
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        self.leases.lost().boxed()
    }

    fn cancel_task<'a>(&'a self, task: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.connection.reach(self.cancelled_tasks.add(task)).boxed()
    }

    fn is_task_cancelled<'a>(&'a self, task: &'a str) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.connection.reach(self.cancelled_tasks.has(task)).boxed()
    }

    fn may_act(&self) -> bool {
        self.leases.is_valid()
    }

    fn holds(&self, host: &str) -> bool {
        self.leases.held(host).is_some()
    }

    fn own_status(&self) -> OwnStatus {
        self.leases.own_status()
    }

    fn misplaced_hosts(&self) -> Vec<String> {
        self.leases.misplaced()
    }

    fn prepare_to_leave(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.leases.prepare_to_leave().boxed()
    }

    fn hand_over<'a>(
        &'a self,
        host: &'a str,
        to: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        async move {
            let Some(to) = self.leases.give(host, to).await? else { return Ok(false) };
            self.tell_gained(&to, host).await;
            Ok(true)
        }
        .boxed()
    }

    fn ask_for_host<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<bool, StoreError>> {
        async move {
            let asking = async {
                loop {
                    let Holder::Other(holder) = self.leases.take(host).await? else {
                        return Ok(true);
                    };
                    let wanted = self.wanted_subject(&holder);
                    let mut own = HeaderMap::new();
                    own.insert(BY, self.leases.name());
                    let told = self.connection.client.publish_with_headers(
                        wanted,
                        own,
                        host.to_owned().into(),
                    );
                    told.await.map_err(failed)?;
                    sleep(ASK_AGAIN).await;
                }
            };
            timeout(HAND_OVER, self.connection.reach(asking)).await.unwrap_or(Ok(false))
        }
        .boxed()
    }

    fn others(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        async move {
            // One that has just entered may have the client.
            self.connection.reach(self.leases.look()).await?;
            Ok(self.leases.others())
        }
        .boxed()
    }

    fn is_other(&self, replica: &str) -> bool {
        self.leases.is_other(replica)
    }

    fn connect<'a>(&'a self, replica: &'a str) -> BoxFuture<'a, io::Result<Box<dyn PeerStream>>> {
        self.connect_to(replica).boxed()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn PeerStream>>> {
        self.accept_next().boxed()
    }
}

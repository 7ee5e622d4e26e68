//! Which replicas are alive, and which replica holds which host.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::kv;
use futures_util::TryStreamExt;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::connection::{NatsConnection, SETTINGS, failed};
use super::entries;
use super::events::EventQueue;
use super::lease_state::{
    Figures, HeldHosts, HostCheck, LeaseState, OtherReplicas, OwnLease, Replica, ReplicaPlan,
};
use super::options::{SECRET, subject_token, token_text};
use super::race::{RACE_PAUSE, is_undecided, lost_race};
use super::records::RecordBucket;
use sshjobs_base::lock::lock;
use sshjobs_store::{OwnStatus, StoreError, StoreEvent};

/// The lease of this replica, what it knows of other replicas, and the hosts that it holds.
///
/// Each replica has an entry in a bucket that deletes entries at the end of their lifetime, and
/// renews it at a third of that time. A host's entry names the replica that holds it. It stays
/// until another replica takes the host, which it may do when the holder has left or was not
/// seen. So a thousand hosts cost no more renewals than one.
///
/// The revision of a host's entry is the *fencing token*: each take-over has a higher one.
pub(super) struct Leases {
    connection: Arc<NatsConnection>,
    replicas: kv::Store,
    hosts: kv::Store,
    own: Own,
    lifetime: Duration,
    state: Mutex<LeaseState>,
    /// Notified when the held hosts must be compared with NATS.
    to_check: Notify,
    /// Whether NATS has lost the cluster's data.
    is_lost: watch::Sender<bool>,
    /// For the figures in the entry of this replica.
    records: Arc<RecordBucket>,
    /// Receives hosts that were lost.
    events: EventQueue,
}

/// This replica.
pub(super) struct Own {
    /// Its name.
    pub(super) name: String,
    /// Description of the process.
    pub(super) process: String,
    /// The secret that all replicas of the cluster share.
    pub(super) secret: [u8; 32],
}

/// The holder of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// This replica, with the fencing token.
    Here(u64),
    /// Another one.
    Other(String),
}

/// Part of the lifetime, as a divisor, that an attempt to renew the lease may take. A renewal is due
/// after a third of it, and work stops after two thirds, so that two attempts fit in between.
const ATTEMPTS: u32 = 6;
/// Time limit for an attempt to renew a long lease.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(5);
/// Part of the lifetime, as a divisor, after which a failed renewal is tried again.
const RETRIES: u32 = 30;
/// Checks in a row, one in each third of the lifetime, after which the cluster's data counts as lost.
const LOSSES: u32 = 3;

impl Leases {
    /// Opens the buckets. Others see this replica once [`enter`](Self::enter) was called.
    pub(super) async fn open(
        connection: &Arc<NatsConnection>,
        own: Own,
        records: Arc<RecordBucket>,
        events: EventQueue,
    ) -> Result<Self, StoreError> {
        let lifetime = connection.lease;
        let leases = Self {
            connection: Arc::clone(connection),
            replicas: connection.bucket("replicas", lifetime).await?,
            hosts: connection.bucket("hosts", Duration::ZERO).await?,
            own,
            to_check: Notify::new(),
            is_lost: watch::Sender::new(false),
            lifetime,
            state: Mutex::new(LeaseState {
                own: OwnLease {
                    revision: None,
                    renewed_at: None,
                    plan: ReplicaPlan::Stay,
                },
                others: OtherReplicas::default(),
                held: HeldHosts::default(),
            }),
            records,
            events,
        };
        leases.check_lifetime().await?;
        Ok(leases)
    }

    /// Enters this replica, which must be able to serve from now on: others choose it for hosts. Start
    /// [`keep`](Self::keep) next.
    pub(super) async fn enter(&self) -> Result<(), StoreError> {
        self.renew().await?;
        self.look().await
    }

    /// Whether this replica deletes jobs that exceed a limit: the first of those that stay does. Two
    /// replicas may both think so for some seconds, which does no harm.
    pub(super) fn is_sweeper(&self) -> bool {
        self.staying().into_iter().min().is_some_and(|first| first == self.own.name)
    }

    /// Checks that all replicas agree on the lifetime of a lease: the first one has set it.
    async fn check_lifetime(&self) -> Result<(), StoreError> {
        let known = self.replicas.status().await.map_err(failed)?.max_age();
        if known == self.lifetime {
            return Ok(());
        }
        Err(failed(format!(
            "the leases of this cluster have {known:?}, and here they have {:?}: set lease_s to the \
             same value for all replicas",
            self.lifetime
        )))
    }

    pub(super) fn name(&self) -> &str {
        &self.own.name
    }

    /// Renews the lease and looks at the other replicas until it is dropped.
    pub(super) async fn keep(self: Arc<Self>) {
        // At the same time: no other call that takes long may delay a renewal.
        tokio::join!(
            self.keep_renewed(),
            self.keep_checked(),
            self.keep_looking()
        );
    }

    /// Renews the lease, soon again if that fails: NATS does not answer a call that was on its way
    /// to a server that died.
    async fn keep_renewed(&self) {
        let mut tick = interval(self.lifetime / 3);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut has_failed = false;
        loop {
            tick.tick().await;
            let renewed = self.renew().await;
            match &renewed {
                Ok(()) if has_failed => {
                    tracing::info!("the lease of this replica is renewed again")
                }
                Ok(()) => {}
                // Once, and not with each attempt of an outage.
                Err(error) if !has_failed => {
                    tracing::warn!(%error, "the lease of this replica can't be renewed");
                }
                Err(error) => tracing::debug!(%error, "the lease of this replica can't be renewed"),
            }
            has_failed = renewed.is_err();
            if has_failed {
                tick.reset_after(self.lifetime / RETRIES);
            }
        }
    }

    /// Compares the held hosts with NATS whenever that is due.
    async fn keep_checked(&self) {
        loop {
            self.to_check.notified().await;
            while let Err(error) = self.check_hosts().await {
                tracing::debug!(%error, "the hosts of this replica can't be checked");
                sleep(self.lifetime / RETRIES).await;
            }
        }
    }

    /// Looks at the other replicas, and whether NATS still has the cluster's data.
    async fn keep_looking(&self) {
        let mut tick = interval(self.lifetime / 3);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut losses = 0;
        loop {
            tick.tick().await;
            self.check_loss(&mut losses).await;
            if let Err(error) = self.look().await {
                tracing::debug!(%error, "the other replicas can't be seen");
            }
        }
    }

    /// Counts checks that have found NATS without the cluster's data. Several are needed: a leader that
    /// has just been elected may lack something for a moment.
    async fn check_loss(&self, losses: &mut u32) {
        match self.has_lost().await {
            Ok(true) => *losses += 1,
            Ok(false) => *losses = 0,
            Err(error) => tracing::debug!(%error, "the settings of the cluster can't be read"),
        }
        if *losses == LOSSES && !self.is_lost.send_replace(true) {
            tracing::error!("NATS has lost the jobs, tokens and settings of this cluster");
        }
    }

    /// Whether NATS has lost the cluster's data, as with an empty disk: it has no settings, or those of a
    /// cluster that has begun since, with another secret. Asks the leader.
    async fn has_lost(&self) -> Result<bool, StoreError> {
        let Some(settings) = self.connection.existing_bucket(SETTINGS).await? else {
            return Ok(true);
        };
        let known = entries::exact(&settings, SECRET).await?;
        Ok(known.is_none_or(|known| known.value != self.own.secret.as_slice()))
    }

    /// Resolves when NATS has lost the cluster's data. This replica must end: its memory describes a
    /// cluster that exists no more.
    pub(super) async fn lost(&self) {
        // The sender is in this value, so it is not dropped meanwhile.
        self.is_lost.subscribe().wait_for(|is_lost| *is_lost).await.ok();
    }

    /// Renews the lease, or enters again if it has run out.
    async fn renew(&self) -> Result<(), StoreError> {
        let sent_at = Instant::now();
        let renewed = self.in_time(self.write_own_entry()).await;
        let mut state = lock(&self.state);
        match renewed {
            Ok(revision) => {
                state.own.revision = Some(revision);
                let before = state.own.renewed_at.replace(sent_at);
                if before.is_some_and(|before| before.elapsed() >= self.lifetime) {
                    state.held.note_lapse();
                }
                if state.held.check != HostCheck::Settled {
                    self.to_check.notify_one();
                }
                Ok(())
            }
            Err(error) => {
                // Perhaps NATS has stored it: the next renewal replaces it whatever it is.
                state.own.revision = None;
                // A full NATS takes no renewal of any replica.
                state.others.trust(sent_at + self.lifetime);
                Err(error)
            }
        }
    }

    /// Gives a call up in time for another attempt before the lease runs out.
    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let limit = (self.lifetime / ATTEMPTS).min(LONGEST_ATTEMPT);
        let answered = timeout(limit, call).await;
        answered.unwrap_or_else(|_| Err(failed(format!("no answer within {limit:?}"))))
    }

    /// After the lease had run out: finds held hosts that another replica has taken.
    async fn check_hosts(&self) -> Result<(), StoreError> {
        let (held, lapses) = {
            let state = lock(&self.state);
            if state.held.check == HostCheck::Settled {
                return Ok(());
            }
            (state.held.tokens.clone(), state.held.lapses)
        };
        for (host, token) in held {
            let entry = self.in_time(entries::exact(&self.hosts, &subject_token(&host))).await?;
            let is_ours = entry.is_some_and(|entry| {
                entry.value == self.own.name.as_bytes() && entry.revision == token
            });
            if !is_ours {
                tracing::warn!(host, "another replica has taken this host over");
                let mut state = lock(&self.state);
                // It may have been taken again meanwhile, with a higher token.
                if state.held.tokens.get(&host) != Some(&token) {
                    continue;
                }
                state.held.tokens.remove(&host);
                drop(state);
                self.events.send(StoreEvent::HostLost(host));
            }
        }
        lock(&self.state).held.note_check(lapses);
        Ok(())
    }

    async fn write_own_entry(&self) -> Result<u64, StoreError> {
        let (revision, plan, hosts) = {
            let state = lock(&self.state);
            (state.own.revision, state.own.plan, state.held.tokens.len())
        };
        let (jobs, newest_record) = {
            let index = self.records.index();
            let own = index.unfinished(|owner, _| owner == self.own.name);
            (own.len(), index.newest_change())
        };
        let entry = Replica {
            process: self.own.process.clone(),
            machine: machine_name(),
            plan,
            figures: Figures {
                hosts,
                jobs,
                newest_record,
            },
        };
        let value = serde_json::to_vec(&entry).map_err(failed)?;
        let key = subject_token(&self.own.name);
        if revision.is_none() && lock(&self.state).own.renewed_at.is_some() {
            // Whether the entry has run out since is unknown.
            lock(&self.state).held.note_lapse();
        }
        if let Some(revision) = revision {
            match self.replicas.update(&key, value.clone().into(), revision).await {
                Ok(renewed) => return Ok(renewed),
                // The entry has run out, although the clock of this machine may not say so: it stands
                // still while the machine sleeps.
                Err(error) if lost_race(&error) && !is_undecided(&error) => {
                    lock(&self.state).held.note_lapse();
                }
                Err(_) => {}
            }
        }
        // The entry has run out, or its revision is unknown. No other replica has this name.
        self.replicas.put(&key, value.into()).await.map_err(failed)
    }

    /// Looks which replicas are there.
    pub(super) async fn look(&self) -> Result<(), StoreError> {
        let looked = read_replicas(&self.replicas).await;
        let now = Instant::now();
        let mut state = lock(&self.state);
        let replicas = match looked {
            Ok(replicas) => replicas,
            Err(error) => {
                state.others.trust(now + self.lifetime);
                return Err(error);
            }
        };
        state.others.note_seen(replicas, now);
        Ok(())
    }

    /// Whether this replica may still act for its hosts. False when its lease was not renewed for
    /// two thirds of the lifetime, so that it stops before another one starts, and until the hosts that
    /// it held then were compared with NATS.
    pub(super) fn is_valid(&self) -> bool {
        let state = lock(&self.state);
        let is_fresh = state.own.renewed_at.is_some_and(|at| at.elapsed() < self.lifetime * 2 / 3);
        is_fresh && state.held.check != HostCheck::Due && !*self.is_lost.borrow()
    }

    /// Description of a replica. `None` if it has left or died.
    pub(super) fn alive(&self, name: &str) -> Option<String> {
        let mut state = lock(&self.state);
        if let Some(replica) = state.others.seen.get(name) {
            return (replica.plan != ReplicaPlan::Gone).then(|| replica.about(name));
        }
        let now = Instant::now();
        if state.others.trusted_until.is_some_and(|until| now < until) {
            return Some(format!("replica {name}"));
        }
        // A lease that is renewed late shows up at the next look.
        let missing_since = *state.others.missing.entry(name.to_owned()).or_insert(now);
        let is_gone = now.duration_since(missing_since) >= self.lifetime / 3;
        (!is_gone).then(|| format!("replica {name}"))
    }

    /// What this replica knows without a call.
    pub(super) fn own_status(&self) -> OwnStatus {
        let may_act = self.is_valid();
        let state = lock(&self.state);
        OwnStatus {
            replicas: state
                .others
                .seen
                .values()
                .filter(|replica| replica.plan != ReplicaPlan::Gone)
                .count(),
            hosts: state.held.tokens.len(),
            lease_age: state.own.renewed_at.map(|at| at.elapsed()),
            may_act,
        }
    }

    /// Whether another replica with this name was there at the last look. The name may be any text of a
    /// client.
    pub(super) fn is_other(&self, name: &str) -> bool {
        let state = lock(&self.state);
        let replica = state.others.seen.get(name);
        name != self.own.name && replica.is_some_and(|replica| replica.plan != ReplicaPlan::Gone)
    }

    /// Names of the other replicas that were there at the last look.
    pub(super) fn others(&self) -> Vec<String> {
        let state = lock(&self.state);
        let others =
            state.others.seen.iter().filter(|(name, replica)| {
                replica.plan != ReplicaPlan::Gone && **name != self.own.name
            });
        others.map(|(name, _)| name.clone()).collect()
    }

    /// Names of the replicas that hold hosts and take further ones.
    fn staying(&self) -> Vec<String> {
        let state = lock(&self.state);
        let others = state.others.seen.iter().filter(|(name, replica)| {
            // The own plan may be newer than the entry.
            replica.plan == ReplicaPlan::Stay && **name != self.own.name
        });
        let mut names: Vec<String> = others.map(|(name, _)| name.clone()).collect();
        if state.own.plan == ReplicaPlan::Stay {
            names.push(self.own.name.clone());
        }
        names
    }

    /// The fencing token of a host that this replica holds.
    pub(super) fn held(&self, host: &str) -> Option<u64> {
        lock(&self.state).held.tokens.get(host).copied()
    }

    /// Takes a host for this replica, unless a replica that is alive holds it.
    pub(super) async fn take(&self, host: &str) -> Result<Holder, StoreError> {
        if let Some(token) = self.held(host) {
            return Ok(Holder::Here(token));
        }
        let key = subject_token(host);
        let own: bytes::Bytes = self.own.name.clone().into();
        loop {
            let taken = match entries::exact(&self.hosts, &key).await? {
                Some(entry) => {
                    let holder = String::from_utf8_lossy(&entry.value).into_owned();
                    if holder != self.own.name && self.alive(&holder).is_some() {
                        return Ok(Holder::Other(holder));
                    }
                    self.hosts
                        .update(&key, own.clone(), entry.revision)
                        .await
                        .map_err(|error| (lost_race(&error), failed(error)))
                }
                None => self
                    .hosts
                    .create(&key, own.clone())
                    .await
                    .map_err(|error| (lost_race(&error), failed(error))),
            };
            match taken {
                Ok(token) => {
                    let mut state = lock(&self.state);
                    let held = state.held.tokens.entry(host.to_owned()).or_insert(token);
                    // Of two calls at once the older token may come last.
                    *held = token.max(*held);
                    return Ok(Holder::Here(*held));
                }
                // Another replica was faster.
                Err((true, _)) => sleep(RACE_PAUSE).await,
                Err((false, error)) => return Err(error),
            }
        }
    }

    /// The holder of a host, if one is alive.
    pub(super) async fn holder(&self, host: &str) -> Result<Option<Holder>, StoreError> {
        if let Some(token) = self.held(host) {
            return Ok(Some(Holder::Here(token)));
        }
        let entry = entries::recent(&self.hosts, &subject_token(host)).await?;
        let holder = entry.map(|name| String::from_utf8_lossy(&name).into_owned());
        Ok(holder.filter(|name| self.alive(name).is_some()).map(Holder::Other))
    }

    /// The replica that should hold a host that no replica holds: the same one for every replica
    /// that asks, and each replica for its share of the hosts (rendezvous hashing).
    pub(super) fn preferred(&self, host: &str) -> String {
        let best = self.staying().into_iter().max_by_key(|replica| weight(host, replica));
        best.unwrap_or_else(|| self.own.name.clone())
    }

    /// Hosts that this replica holds and another one should.
    pub(super) fn misplaced(&self) -> Vec<String> {
        let held: Vec<String> = lock(&self.state).held.tokens.keys().cloned().collect();
        held.into_iter().filter(|host| self.preferred(host) != self.own.name).collect()
    }

    /// Gives a host to a replica, or to the one that should hold it. Returns that replica; `None` if
    /// there is no other, or if this replica no longer holds the host.
    pub(super) async fn give(
        &self,
        host: &str,
        to: Option<&str>,
    ) -> Result<Option<String>, StoreError> {
        let to = to.map_or_else(|| self.preferred(host), str::to_owned);
        if to == self.own.name {
            return Ok(None);
        }
        let Some(token) = self.held(host) else { return Ok(None) };
        let given = self.hosts.update(subject_token(host), to.clone().into(), token).await;
        // Also if it was lost meanwhile.
        lock(&self.state).held.tokens.remove(host);
        match given {
            Ok(_) => Ok(Some(to)),
            Err(error) if lost_race(&error) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Notes that this replica hands its hosts over, so that no other one chooses it.
    pub(super) async fn prepare_to_leave(&self) -> Result<(), StoreError> {
        lock(&self.state).own.plan = ReplicaPlan::Leave;
        self.renew().await
    }

    /// Says that this replica has ended, so that others need not wait for its lease to run out.
    pub(super) async fn leave(&self) {
        lock(&self.state).own.plan = ReplicaPlan::Gone;
        if let Err(error) = self.write_own_entry().await {
            tracing::debug!(%error, "others see only later that this replica has ended");
        }
    }
}

/// Weight of a replica for a host. The replica with the highest should hold it (rendezvous hashing).
fn weight(host: &str, replica: &str) -> u64 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(host.as_bytes());
    sum.update(&[0]);
    sum.update(replica.as_bytes());
    // The low bits of a CRC of similar texts are similar.
    u64::from(sum.finalize()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Name of this machine.
pub(super) fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Reads the entries of all replicas.
pub(super) async fn read_replicas(
    bucket: &kv::Store,
) -> Result<BTreeMap<String, Replica>, StoreError> {
    let mut replicas = BTreeMap::new();
    let all = format!("{}>", bucket.prefix);
    let mut subjects = bucket.stream.info_with_subjects(all).await.map_err(failed)?;
    while let Some((subject, _)) = subjects.try_next().await.map_err(failed)? {
        let Some(key) = subject.strip_prefix(&bucket.prefix) else { continue };
        let Some(name) = token_text(key) else { continue };
        // It may have run out since.
        let Some(entry) = entries::exact(bucket, key).await? else { continue };
        if let Ok(replica) = serde_json::from_slice(&entry.value) {
            replicas.insert(name, replica);
        }
    }
    Ok(replicas)
}

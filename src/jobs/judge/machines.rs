//! Finds out which machine a name means, and under which other names it is known.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::hosts::{HostBook, Hosts};
use crate::job::Become;
use crate::jobs::excluded::look_up;
use crate::lock::lock;
use crate::policy::{Endpoint, Machine};
use crate::ssh::{Destination, HostConfig, canonical_host};

/// Where a call takes effect.
#[derive(Clone, Copy, Debug)]
pub(in crate::jobs) struct Place<'a> {
    /// The host, as the caller names it.
    pub(in crate::jobs) host: &'a str,
    /// Another user that it becomes there.
    pub(in crate::jobs) becomes: Option<&'a Become>,
}

/// The machines behind names.
pub(super) struct Machines {
    hosts: Arc<Hosts>,
    /// All listed hosts by their addresses. `None` until it is first needed.
    index: Mutex<Option<Indexed>>,
    /// Held while the index is built.
    building: tokio::sync::Mutex<()>,
    /// Machines that were found lately, by the name that a caller used.
    found: Mutex<HashMap<String, Found>>,
    /// The task that builds the index again.
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Clone)]
struct Indexed {
    built: Instant,
    index: Arc<Index>,
}

#[derive(Clone)]
struct Found {
    when: Instant,
    endpoint: Arc<Endpoint>,
}

/// Names of listed hosts by their addresses.
#[derive(Default)]
struct Index(HashMap<Address, BTreeSet<String>>);

/// A name or address in canonical form, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Address {
    host: String,
    port: u16,
}

/// Age at which the index is built again.
const INDEX_AGE: Duration = Duration::from_secs(30);
/// Time for which a machine is remembered. As long as a resolved name.
const FOUND_FOR: Duration = Duration::from_secs(2);
/// Maximum names resolved concurrently.
const AT_A_TIME: usize = 16;

impl Machines {
    pub(super) fn new(hosts: Arc<Hosts>) -> Self {
        Self {
            hosts,
            index: Mutex::default(),
            building: tokio::sync::Mutex::default(),
            found: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// The account and machine behind a name. A name that can't be resolved stands for itself: no
    /// connection to it is possible either.
    pub(super) async fn endpoint(self: &Arc<Self>, place: Place<'_>) -> Endpoint {
        let mut endpoint = Endpoint::clone(&*self.find(place.host).await);
        endpoint.users.extend(place.becomes.map(|becomes| becomes.user().to_owned()));
        endpoint
    }

    async fn find(self: &Arc<Self>, name: &str) -> Arc<Endpoint> {
        let found = lock(&self.found).get(name).cloned();
        if let Some(found) = found
            && found.when.elapsed() < FOUND_FOR
        {
            return found.endpoint;
        }

        let endpoint = Arc::new(self.look_up(name).await);
        let now = Instant::now();
        let mut all = lock(&self.found);
        all.retain(|_, found| found.when.elapsed() < FOUND_FOR);
        let found = Found {
            when: now,
            endpoint: Arc::clone(&endpoint),
        };
        all.insert(name.to_owned(), found);
        endpoint
    }

    async fn look_up(self: &Arc<Self>, name: &str) -> Endpoint {
        let book = self.hosts.book();
        let Ok(host) = book.resolve(name).await else {
            let destination = Destination::parse(name).ok();
            let user = destination.as_ref().and_then(|destination| destination.user.clone());
            let port = destination.as_ref().and_then(|destination| destination.port);
            let plain = destination.map_or_else(|| name.to_owned(), |destination| destination.host);
            let tags = book.tags(name).to_vec();
            return Endpoint {
                machine: Machine::new([plain.as_str()], port.unwrap_or(22), tags),
                users: user.into_iter().collect(),
                jumps: Vec::new(),
            };
        };
        let index = self.index().await;
        let mut jumps = Vec::new();
        let mut jump = host.jump.as_deref();
        while let Some(through) = jump {
            jumps.push(machine(book, &index, through).await);
            jump = through.jump.as_deref();
        }
        Endpoint {
            machine: machine(book, &index, &host).await,
            users: vec![host.user],
            jumps,
        }
    }

    /// The index. Waits for it only the first time; later it may be a little old.
    async fn index(self: &Arc<Self>) -> Arc<Index> {
        let known = lock(&self.index).clone();
        match known {
            Some(known) if known.built.elapsed() < INDEX_AGE => known.index,
            Some(known) => {
                self.build_in_background();
                known.index
            }
            None => {
                let _building = self.building.lock().await;
                // Another call may have built it meanwhile.
                let built = lock(&self.index).clone();
                match built {
                    Some(built) => built.index,
                    None => self.build().await,
                }
            }
        }
    }

    fn build_in_background(self: &Arc<Self>) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        if tasks.is_empty() {
            // Weak, because the task is in a set that this value owns.
            let machines = Arc::downgrade(self);
            tasks.spawn(async move {
                if let Some(machines) = machines.upgrade() {
                    machines.build().await;
                }
            });
        }
    }

    async fn build(&self) -> Arc<Index> {
        let book = self.hosts.book();
        // An unreadable ssh_config is reported when the host is resolved.
        let listed = book.listed().await.unwrap_or_default();
        let resolving = listed.into_keys().map(|name| {
            async move {
                let addresses = match book.resolve(&name).await {
                    Ok(host) => addresses(&host).await,
                    Err(_) => Vec::new(),
                };
                (name, addresses)
            }
            .boxed()
        });
        let resolving: Vec<_> = resolving.collect();
        let resolved: Vec<_> = stream::iter(resolving).buffer_unordered(AT_A_TIME).collect().await;
        let mut index = Index::default();
        for (name, addresses) in resolved {
            for address in addresses {
                index.0.entry(address).or_default().insert(name.clone());
            }
        }
        let index = Arc::new(index);
        *lock(&self.index) = Some(Indexed {
            built: Instant::now(),
            index: Arc::clone(&index),
        });
        index
    }
}

/// A machine with all of its names, addresses and tags.
async fn machine(book: &HostBook, index: &Index, host: &HostConfig) -> Machine {
    let addresses = addresses(host).await;
    let mut used: BTreeSet<String> = addresses.iter().map(|address| address.host.clone()).collect();
    // The name may be a destination with a user and a port.
    let name = Destination::parse(&host.name).map(|destination| destination.canonical_host());
    used.extend(name.ok());
    let same = addresses.iter().filter_map(|address| index.0.get(address)).flatten();
    let others: BTreeSet<String> = same.filter(|name| !used.contains(*name)).cloned().collect();
    let tags = tags(book, &others);
    Machine::new(&used, host.port, book.tags(&host.name).to_vec())
        .also_known_as(others, host.port, tags)
}

fn tags(book: &HostBook, names: &BTreeSet<String>) -> BTreeSet<String> {
    names.iter().flat_map(|name| book.tags(name)).cloned().collect()
}

/// The address in the configuration, and those that DNS has for it.
async fn addresses(host: &HostConfig) -> Vec<Address> {
    let mut addresses = vec![Address {
        host: canonical_host(&host.address),
        port: host.port,
    }];
    let looked_up = look_up(host).await.into_iter().map(|address| Address {
        host: address.ip().to_canonical().to_string(),
        port: address.port(),
    });
    addresses.extend(looked_up);
    addresses
}

//! Finds out which machine a name means, and under which other names it is known.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::excluded::look_up;
use crate::hosts::{HostBook, Hosts};
use sshjobs_base::host_pattern::canonical_host;
use sshjobs_base::lock::lock;
use sshjobs_job::Become;
use sshjobs_policy::{Machine, MachineAccount};
use sshjobs_ssh::{Destination, HostConfig};

/// Where a call takes effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPlace<'a> {
    /// The host, as the caller names it.
    pub(crate) host: &'a str,
    /// Another user that it becomes there.
    pub(crate) becomes: Option<&'a Become>,
}

/// The machines behind names.
pub(super) struct Machines {
    hosts: Arc<Hosts>,
    /// All listed hosts by their addresses. `None` until it is first needed.
    index: Mutex<Option<Indexed>>,
    /// Held while the index is built.
    building: tokio::sync::Mutex<()>,
    /// Machines that were found lately, by the name that a caller used.
    found: Mutex<HashMap<String, ResolvedName>>,
    /// Names in the policy that the index has besides the listed ones.
    watched: Mutex<Vec<String>>,
    /// The task that builds the index again.
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Clone)]
struct Indexed {
    built: Instant,
    index: Arc<Index>,
}

#[derive(Clone)]
struct ResolvedName {
    when: Instant,
    located: Located,
}

/// An account and a machine, and whether they are certain.
#[derive(Clone)]
pub(super) struct Located {
    pub(super) endpoint: MachineAccount,
    /// False if the name could not be resolved, so that it stands for itself. Nothing may act on it:
    /// the next attempt to resolve it may lead to a machine that a rule denies.
    pub(super) is_resolved: bool,
}

/// Names of listed hosts by their addresses.
#[derive(Default)]
struct Index(HashMap<MachineAddress, BTreeSet<String>>);

/// A name or address in canonical form, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MachineAddress {
    host: String,
    port: u16,
}

/// Age at which the index is built again.
const INDEX_AGE: Duration = Duration::from_secs(30);
/// Time for which a machine is remembered. Its name may have been resolved two seconds before, so a
/// change of ssh_config is noticed within four seconds.
const FOUND_FOR: Duration = Duration::from_secs(2);
/// Number of machines that are remembered before old ones are forgotten.
const MOST_FOUND: usize = 1024;
/// Maximum names resolved concurrently.
const AT_A_TIME: usize = 16;

impl Machines {
    pub(super) fn new(hosts: Arc<Hosts>) -> Self {
        Self {
            hosts,
            index: Mutex::default(),
            building: tokio::sync::Mutex::default(),
            found: Mutex::default(),
            watched: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// The account and machine behind a name.
    pub(super) async fn endpoint(self: &Arc<Self>, place: CallPlace<'_>) -> Located {
        let mut located = self.find(place.host).await;
        let becomes = place.becomes.map(|becomes| becomes.user().to_owned());
        located.endpoint.users.extend(becomes);
        located
    }

    /// Names in a policy whose machines have to be recognized, also if no configuration lists them.
    pub(super) fn watch_names(&self, names: Vec<String>) {
        let mut watched = lock(&self.watched);
        if *watched != names {
            *watched = names;
            *lock(&self.index) = None;
            lock(&self.found).clear();
        }
    }

    async fn find(self: &Arc<Self>, name: &str) -> Located {
        let found = lock(&self.found).get(name).cloned();
        if let Some(found) = found
            && found.when.elapsed() < FOUND_FOR
        {
            return found.located;
        }

        let located = self.look_up(name).await;
        let mut all = lock(&self.found);
        if all.len() >= MOST_FOUND {
            all.retain(|_, found| found.when.elapsed() < FOUND_FOR);
        }
        let found = ResolvedName {
            when: Instant::now(),
            located: located.clone(),
        };
        all.insert(name.to_owned(), found);
        located
    }

    async fn look_up(self: &Arc<Self>, name: &str) -> Located {
        let book = self.hosts.book();
        let Ok(host) = book.resolve(name).await else {
            let destination = Destination::parse(name).ok();
            let user = destination.as_ref().and_then(|destination| destination.user.clone());
            let port = destination.as_ref().and_then(|destination| destination.port);
            let plain = destination.map_or_else(|| name.to_owned(), |destination| destination.host);
            let tags = book.tags(name).to_vec();
            return Located {
                is_resolved: false,
                endpoint: MachineAccount {
                    machine: Machine::new([plain.as_str()], port.unwrap_or(22), tags),
                    users: user.into_iter().collect(),
                    jumps: Vec::new(),
                },
            };
        };
        let index = self.index().await;
        let mut jumps = Vec::new();
        let mut jump = host.jump.as_deref();
        while let Some(through) = jump {
            jumps.push(machine(book, &index, through).await);
            jump = through.jump.as_deref();
        }
        Located {
            is_resolved: true,
            endpoint: MachineAccount {
                machine: machine(book, &index, &host).await,
                users: vec![host.user],
                jumps,
            },
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
        let watched = lock(&self.watched).clone();
        let names: BTreeSet<String> = listed.into_keys().chain(watched.clone()).collect();
        let resolving = names.into_iter().map(|name| {
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
        // If a policy with other names was loaded meanwhile, the next call builds another one.
        let is_current = *lock(&self.watched) == watched;
        if is_current {
            *lock(&self.index) = Some(Indexed {
                built: Instant::now(),
                index: Arc::clone(&index),
            });
        }
        index
    }
}

/// A machine with all of its names, addresses and tags. Addresses of DNS count as other names: one name
/// may have several, and a rule that allows one of them must not allow all.
async fn machine(book: &HostBook, index: &Index, host: &HostConfig) -> Machine {
    let mut used = BTreeSet::from([canonical_host(&host.address)]);
    // The name may be a destination with a user and a port.
    let name = Destination::parse(&host.name).map(|destination| destination.canonical_host());
    used.extend(name.ok());
    let addresses = addresses(host).await;
    let same = addresses.iter().filter_map(|address| index.0.get(address)).flatten();
    let others = addresses.iter().map(|address| &address.host).chain(same);
    let others: BTreeSet<String> = others.filter(|name| !used.contains(*name)).cloned().collect();
    let tags = tags(book, &others);
    Machine::new(&used, host.port, book.tags(&host.name).to_vec())
        .also_known_as(others, host.port, tags)
}

fn tags(book: &HostBook, names: &BTreeSet<String>) -> BTreeSet<String> {
    names.iter().flat_map(|name| book.tags(name)).cloned().collect()
}

/// The address in the configuration, and those that DNS has for it.
async fn addresses(host: &HostConfig) -> Vec<MachineAddress> {
    let mut addresses = vec![MachineAddress {
        host: canonical_host(&host.address),
        port: host.port,
    }];
    let looked_up = look_up(host).await.into_iter().map(|address| MachineAddress {
        host: address.ip().to_canonical().to_string(),
        port: address.port(),
    });
    addresses.extend(looked_up);
    addresses
}

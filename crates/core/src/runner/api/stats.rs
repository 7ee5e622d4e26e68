use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use super::runner::Runner;
use crate::hosts::HostUsage;
use sshjobs_job::{Caller, Scope};
use sshjobs_store::OwnStatus;

/// Activity of this process, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of running jobs.
    pub running: usize,
    /// Number of finished jobs in memory.
    pub finished: usize,
    /// Number of jobs that this process has started or tried to start.
    pub started: u64,
    /// Bytes of output that have arrived.
    pub output_bytes: u64,
    /// Bytes of output that are not stored yet.
    pub store_queue_bytes: usize,
    /// Writes to the store that have failed.
    pub store_errors: u64,
    /// Bytes that are free on the store's disk, if known.
    pub store_free_bytes: Option<u64>,
    /// Whether nothing can be stored now.
    pub is_store_unusable: bool,
    /// Jobs that were lost.
    pub lost: u64,
    /// Jobs that did not start.
    pub refused: u64,
    /// Live connections to hosts.
    pub connections: usize,
    /// Channels in use on them.
    pub channels_in_use: usize,
    /// This replica and the others, in a cluster.
    pub cluster: Option<OwnStatus>,
}

impl Runner {
    /// A counter that changes when a job of this process in scope is registered, ends or is
    /// removed. Waits until it differs from `known`. Cancel safe.
    pub async fn changes(&self, scope: &Scope, known: Option<u64>) -> u64 {
        let mut changes = self.shared.registry().changes.subscribe();
        // The sender lives as long as the runner.
        let changed = changes.wait_for(|counts| Some(changes_in(scope, counts)) != known).await;
        changed.map_or(u64::MAX, |counts| changes_in(scope, &counts))
    }

    /// Why the output of jobs can't be stored now, in words. `None` if it can, or if none is to be stored.
    pub fn store_trouble(&self) -> Option<String> {
        let unstored = self.shared.unstored.as_ref().map(ToString::to_string);
        unstored.or_else(|| self.shared.storing.as_ref()?.trouble())
    }

    /// Current activity of this process.
    pub fn stats(&self) -> Stats {
        let (running, finished, started) = self.shared.registry().counts();
        let HostUsage {
            connections,
            channels_in_use,
        } = self.shared.hosts.pool().total_usage();
        let output_bytes = self.shared.growth.total();
        let store_queue_bytes =
            self.shared.storing.as_ref().map_or(0, |storing| storing.waiting_bytes());
        Stats {
            running,
            finished,
            started,
            output_bytes,
            store_queue_bytes,
            store_errors: self.shared.storing.as_ref().map_or(0, |storing| storing.errors()),
            store_free_bytes: self.shared.storing.as_ref().and_then(|storing| storing.free_bytes()),
            is_store_unusable: self.store_trouble().is_some(),
            lost: self.shared.ends.lost.load(Relaxed),
            refused: self.shared.ends.refused.load(Relaxed),
            connections,
            channels_in_use,
            cluster: self.peers().map(|peers| peers.own_status()),
        }
    }
}

/// Number of changes to jobs in scope.
fn changes_in(scope: &Scope, counts: &HashMap<Caller, u64>) -> u64 {
    let in_scope = counts.iter().filter(|(caller, _)| scope.has(caller));
    in_scope.map(|(_, count)| count).sum()
}

use std::collections::HashMap;

use super::Runner;
use crate::hosts::Usage;
use crate::job::{Caller, Scope};

/// What this process is doing, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Jobs that run.
    pub running: usize,
    /// Finished jobs that are held in memory.
    pub finished: usize,
    /// Jobs that this process has begun to start.
    pub started: u64,
    /// Bytes of output that have arrived.
    pub output_bytes: u64,
    /// Bytes of output that wait to be stored.
    pub store_queue_bytes: usize,
    /// Live connections to hosts.
    pub connections: usize,
    /// Channels in use on them.
    pub channels_in_use: usize,
}

impl Runner {
    /// How often jobs of this process that are in scope were taken in, ended or went. Waits until that is not `known`. Cancel safe.
    pub async fn changes(&self, scope: &Scope, known: Option<u64>) -> u64 {
        let mut changes = self.shared.registry().changes.subscribe();
        let count = |counts: &HashMap<Caller, u64>| {
            counts.iter().filter(|(caller, _)| scope.has(caller)).map(|(_, count)| count).sum::<u64>()
        };
        // It lives as long as the runner.
        let changed = changes.wait_for(|counts| Some(count(counts)) != known).await;
        changed.map_or(u64::MAX, |counts| count(&counts))
    }

    /// What this process is doing now.
    pub fn stats(&self) -> Stats {
        let (running, finished, started) = self.shared.registry().counts();
        let Usage { connections, channels_in_use } = self.shared.hosts.pool().total_usage();
        let output_bytes = self.shared.growth.total();
        let store_queue_bytes = self.shared.storing.as_ref().map_or(0, |storing| storing.waiting_bytes());
        Stats { running, finished, started, output_bytes, store_queue_bytes, connections, channels_in_use }
    }
}

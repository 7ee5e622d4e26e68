use super::Runner;
use crate::hosts::Usage;

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
    /// What this process is doing now.
    pub fn stats(&self) -> Stats {
        let (running, finished, started) = self.shared.registry().counts();
        let Usage { connections, channels_in_use } = self.shared.hosts.pool().total_usage();
        let output_bytes = self.shared.growth.total();
        let store_queue_bytes = self.shared.storing.as_ref().map_or(0, |storing| storing.waiting_bytes());
        Stats { running, finished, started, output_bytes, store_queue_bytes, connections, channels_in_use }
    }
}

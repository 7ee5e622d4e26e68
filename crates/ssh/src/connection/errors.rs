use std::io;

use crate::{ConnectError, HostConfig};

/// No address of the host could be reached.
pub(super) fn unreachable(host: &HostConfig, source: io::Error) -> ConnectError {
    ConnectError::Unreachable {
        host: host.name.clone(),
        address: format!("{} port {}", host.address, host.port),
        source,
    }
}

/// A step took longer than ConnectTimeout.
pub(super) fn timed_out(host: &HostConfig, step: &'static str) -> ConnectError {
    ConnectError::TimedOut {
        host: host.name.clone(),
        step,
        limit: host.connect_timeout,
    }
}

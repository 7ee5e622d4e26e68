//! Explains why ports can't be forwarded.

use crate::jobs::{DialError, ForwardError, chain};
use crate::wire::error::{Code, Error};

pub(super) fn forward(error: &ForwardError) -> Error {
    let message = error.to_string();
    match error {
        // The library adds the host, and explains both itself.
        ForwardError::Connect(source) => super::connect::connect(source, chain(&**source)),
        ForwardError::ConnectionsFull(_) => {
            let hint = "close a forward, or wait for jobs to end";
            Error::new(Code::Capacity, message, hint).retryable()
        }
        ForwardError::Listen { .. } => Error::new(
            Code::Io,
            message,
            "choose another port, or 0 for a free one; a socket's path must not exist",
        ),
        ForwardError::RemoteListen { source, .. } => remote_listen(source, message),
        ForwardError::TooMany { .. } => {
            let hint = "list them, and close those that nobody needs";
            Error::new(Code::Capacity, message, hint)
        }
        ForwardError::NotLoopback(_) => Error::new(
            Code::PolicyDenied,
            message,
            "listen on 127.0.0.1 or localhost, or set forward_any_address = true in the configuration",
        ),
        ForwardError::Unknown(_) => Error::new(
            Code::NotFound,
            message,
            "list the forwards to see their ids",
        ),
    }
}

fn remote_listen(source: &DialError, message: String) -> Error {
    match source {
        DialError::Channel(_) => Error::new(Code::ConnectionLost, message, "try again").retryable(),
        DialError::Prohibited | DialError::ConnectFailed | DialError::NotOpened => Error::new(
            Code::Unsupported,
            message,
            "the port may be taken there, a socket may be left there from before, or sshd does not \
             allow it: AllowTcpForwarding, PermitListen; try port 0, or remove the socket",
        ),
    }
}

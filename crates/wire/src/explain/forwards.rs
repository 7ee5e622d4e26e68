//! Explains why ports can't be forwarded.

use std::io;

use crate::error::{Code, Error};
use sshjobs_core::jobs::{DialError, Endpoint, ForwardError, chain};

pub(super) fn forward(error: &ForwardError) -> Error {
    let message = error.to_string();
    match error {
        // The library adds the host, and explains both itself.
        ForwardError::Connect(source) => super::connect::connect(source, chain(&**source)),
        ForwardError::ConnectionsFull(_) => {
            let hint = "close a forward, or wait for jobs to end";
            Error::new(Code::Capacity, message, hint).retryable()
        }
        ForwardError::Listen { at, source } => listen(at, source.kind(), message),
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

fn listen(at: &Endpoint, kind: io::ErrorKind, message: String) -> Error {
    let is_in_use = kind == io::ErrorKind::AddrInUse;
    let is_forbidden = kind == io::ErrorKind::PermissionDenied;
    let code = if is_in_use {
        Code::AddressInUse
    } else if is_forbidden {
        Code::PermissionDenied
    } else {
        Code::Io
    };
    let hint = match at {
        Endpoint::Tcp { .. } if is_in_use => "choose another port, or 0 for a free one",
        Endpoint::Tcp { .. } if is_forbidden => {
            "choose a port from 1024 on: only root may listen on those below"
        }
        Endpoint::Tcp { .. } => "use an address of this machine, such as 127.0.0.1",
        Endpoint::Unix(_) => {
            "the path must be new and shorter than 108 bytes, and its directory writable and shorter than 98"
        }
    };
    Error::new(code, message, hint)
}

fn remote_listen(source: &DialError, message: String) -> Error {
    match source {
        DialError::Channel(_) => Error::new(Code::ConnectionLost, message, "try again").retryable(),
        DialError::ListenRefused
        | DialError::Prohibited
        | DialError::ConnectFailed
        | DialError::NotOpened => Error::new(
            Code::Unsupported,
            message,
            "the port may be taken there, a socket may be left there from before, or sshd does not \
             allow it: AllowTcpForwarding, PermitListen; try port 0, or remove the socket",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_not_to_listen_has_its_code() {
        let at = Endpoint::Tcp {
            host: "127.0.0.1".to_owned(),
            port: 80,
        };
        for (kind, expected) in [
            (io::ErrorKind::AddrInUse, Code::AddressInUse),
            (io::ErrorKind::PermissionDenied, Code::PermissionDenied),
            (io::ErrorKind::AddrNotAvailable, Code::Io),
        ] {
            assert_eq!(listen(&at, kind, String::new()).code, expected, "{kind}");
        }
    }
}

//! The SFTP protocol, version 3 (draft-ietf-secsh-filexfer-02), with the extensions of OpenSSH.
//!
//! `Request` and `Reply` are packets; they are pure: bytes in, values out. `Session` sends requests
//! on a channel and hands each reply to its caller. Names, paths and handles are bytes, because
//! servers may send any.

mod attributes;
mod error;
mod frames;
mod packet;
mod reply;
mod request;
mod session;

pub use attributes::{Attributes, FileKind, Owner, Times};
pub use error::{SftpError, Status};
pub use frames::Frames;
pub use reply::{Entry, Reply, Version};
pub use request::{Open, Request};
pub use session::Session;

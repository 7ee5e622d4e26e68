//! The SFTP protocol, version 3 (draft-ietf-secsh-filexfer-02), with the extensions of OpenSSH.
//!
//! `SftpRequest` and `SftpReply` are packets; they are pure: bytes in, values out. `SftpSession` sends requests
//! on a channel and hands each reply to its caller. Names, paths and handles are bytes, because
//! servers may send any.

mod attributes;
mod error;
mod frames;
mod packet;
mod reply;
mod request;
mod session;

pub use attributes::{Attributes, FileKind, FileOwner, Times};
pub use error::{SftpError, SftpStatus};
pub use frames::PacketAssembler;
pub use reply::{DirectoryEntry, SftpReply, SftpVersion};
pub use request::{Open, SftpRequest};
pub use session::SftpSession;

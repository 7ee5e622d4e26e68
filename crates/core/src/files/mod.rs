//! Files of hosts.
//!
//! [`HostFiles`] has a connection of its own to a host, with an SFTP session on it. It lists,
//! reads and writes files. A file is written beside its target and takes its place when it is
//! whole and verified, so that no reader ever sees half of it; a transfer that breaks is continued
//! by the next attempt. Paths and names are bytes.
//!
//! | file | contents |
//! |---|---|
//! | `sftp/` | the protocol and its session |
//! | `host_files.rs` | opening, listing, attributes |
//! | `remote_file.rs` | reads and writes with many requests in flight |
//! | `upload.rs`, `download.rs` | one file, whole and verified |
//! | `lock.rs`, `part_name.rs` | writers of the same file at the same time |
//! | `tree/` | directories; `tree/sync/`: changes of one |
//! | `edit.rs` | edits of a text, and differences; pure |

mod digest;
mod download;
mod edit;
mod error;
mod host_files;
mod lock;
mod part_name;
mod path;
mod pattern;
mod progress;
mod remote_file;
pub mod sftp;
mod shell_command;
mod source;
mod tree;
mod upload;

pub use digest::{Digest, Hasher, NotADigest, Verified};
pub use download::{FilePiece, GetOptions, Got};
pub use edit::{Edit, EditError, apply, unified_diff};
pub use error::{FilesError, FoundContent};
pub use host_files::HostFiles;
pub use path::{BadPath, RemotePath, shown};
pub use pattern::Matched;
pub use progress::TransferProgress;
pub use sftp::{Attributes, DirectoryEntry, FileKind, FileOwner, SftpError, SftpStatus, Times};
pub use source::{FileSource, LocalFile};
pub use tree::{
    FetchReport, FetchedFile, FilesToFetch, SyncOptions, SyncReport, TreeOptions, TreeReport,
};
pub use upload::{ExpectedContent, FileChange, LinkInPlace, Put, PutOptions};

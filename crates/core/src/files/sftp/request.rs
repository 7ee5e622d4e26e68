//! Requests to a server (sections 4 and 6, and the extensions of OpenSSH).

use bytes::Bytes;

use super::Attributes;
use super::packet::{PacketWriter, length};

/// A request to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SftpRequest {
    /// Opens a file.
    Open {
        /// The path.
        path: Bytes,
        /// How it is opened.
        how: Open,
        /// Attributes of a file that is created.
        attributes: Attributes,
    },
    /// Closes a handle.
    Close(Bytes),
    /// Reads from a file. The server may return less.
    Read {
        /// The open file.
        handle: Bytes,
        /// Position of the first byte.
        offset: u64,
        /// Maximum bytes.
        length: u32,
    },
    /// Writes to a file.
    Write {
        /// The open file.
        handle: Bytes,
        /// Position of the first byte.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Attributes of a path, without following a symbolic link at its end.
    Lstat(Bytes),
    /// Attributes of a path.
    Stat(Bytes),
    /// Attributes of an open file.
    Fstat(Bytes),
    /// Changes attributes of a path.
    Setstat(Bytes, Attributes),
    /// Changes attributes of an open file.
    Fsetstat(Bytes, Attributes),
    /// Changes attributes of a symbolic link itself (`lsetstat@openssh.com`).
    Lsetstat(Bytes, Attributes),
    /// Opens a directory.
    Opendir(Bytes),
    /// Reads the next entries of a directory.
    Readdir(Bytes),
    /// Removes a file.
    Remove(Bytes),
    /// Makes a directory.
    Mkdir(Bytes, Attributes),
    /// Removes an empty directory.
    Rmdir(Bytes),
    /// The absolute path of an existing path, with symbolic links resolved.
    Realpath(Bytes),
    /// A path with `~` or `~user` replaced (`expand-path@openssh.com`).
    ExpandPath(Bytes),
    /// Renames a path to one that does not exist.
    Rename {
        /// The old path.
        from: Bytes,
        /// The new path.
        to: Bytes,
    },
    /// Renames a path, and replaces the target atomically (`posix-rename@openssh.com`).
    PosixRename {
        /// The old path.
        from: Bytes,
        /// The new path.
        to: Bytes,
    },
    /// Gives a file a second name (`hardlink@openssh.com`).
    Hardlink {
        /// The file.
        file: Bytes,
        /// The second name.
        link: Bytes,
    },
    /// The target of a symbolic link.
    Readlink(Bytes),
    /// Makes a symbolic link.
    Symlink {
        /// Path of the link.
        link: Bytes,
        /// Its target.
        target: Bytes,
    },
    /// Waits until an open file is on the disk (`fsync@openssh.com`).
    Fsync(Bytes),
    /// Free space of the file system of a path (`statvfs@openssh.com`).
    Statvfs(Bytes),
    /// Limits of the server (`limits@openssh.com`).
    Limits,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// An existing file, to read.
    Read,
    /// An existing file, to write.
    Write,
    /// A new file, to write; an existing one is an error.
    CreateNew,
    /// A file to write, which is emptied if it exists.
    CreateOrTruncate,
}

impl Open {
    fn flags(self) -> u32 {
        const READ: u32 = 0x01;
        const WRITE: u32 = 0x02;
        const CREATE: u32 = 0x08;
        const TRUNCATE: u32 = 0x10;
        const EXCLUSIVE: u32 = 0x20;
        match self {
            Self::Read => READ,
            // Also to read, so that what was written can be verified.
            Self::Write => READ | WRITE,
            Self::CreateNew => READ | WRITE | CREATE | EXCLUSIVE,
            Self::CreateOrTruncate => READ | WRITE | CREATE | TRUNCATE,
        }
    }
}

/// A packet to send, in two parts, so that written data need not be copied.
#[derive(Clone, Debug)]
pub(super) struct OutgoingPacket {
    pub(super) head: Bytes,
    pub(super) data: Bytes,
}

/// The first packet of a session: we speak version 3.
pub(super) fn hello() -> Bytes {
    PacketWriter::new(1).u32(3).finish()
}

impl SftpRequest {
    /// The packet with this id.
    pub(super) fn encode(&self, id: u32) -> OutgoingPacket {
        if let Self::Write {
            handle,
            offset,
            data,
        } = self
        {
            let head = PacketWriter::new(6).u32(id).string(handle).u64(*offset);
            let head = head.u32(length(data.len())).before(data.len());
            return OutgoingPacket {
                head,
                data: data.clone(),
            };
        }
        OutgoingPacket {
            head: self.encode_whole(id),
            data: Bytes::new(),
        }
    }

    /// The packet in one part.
    pub fn encode_whole(&self, id: u32) -> Bytes {
        let packet = |kind| PacketWriter::new(kind).u32(id);
        let extended = |name: &str| packet(200).string(name.as_bytes());
        let written = match self {
            Self::Open {
                path,
                how,
                attributes,
            } => attributed(packet(3).string(path).u32(how.flags()), attributes),
            Self::Close(handle) => packet(4).string(handle),
            Self::Read {
                handle,
                offset,
                length,
            } => packet(5).string(handle).u64(*offset).u32(*length),
            Self::Write {
                handle,
                offset,
                data,
            } => packet(6).string(handle).u64(*offset).string(data),
            Self::Lstat(path) => packet(7).string(path),
            Self::Fstat(handle) => packet(8).string(handle),
            Self::Setstat(path, attributes) => attributed(packet(9).string(path), attributes),
            Self::Fsetstat(handle, attributes) => attributed(packet(10).string(handle), attributes),
            Self::Lsetstat(path, attributes) => {
                attributed(extended("lsetstat@openssh.com").string(path), attributes)
            }
            Self::Opendir(path) => packet(11).string(path),
            Self::Readdir(handle) => packet(12).string(handle),
            Self::Remove(path) => packet(13).string(path),
            Self::Mkdir(path, attributes) => attributed(packet(14).string(path), attributes),
            Self::Rmdir(path) => packet(15).string(path),
            Self::Realpath(path) => packet(16).string(path),
            Self::ExpandPath(path) => extended("expand-path@openssh.com").string(path),
            Self::Stat(path) => packet(17).string(path),
            Self::Rename { from, to } => packet(18).string(from).string(to),
            Self::PosixRename { from, to } => {
                extended("posix-rename@openssh.com").string(from).string(to)
            }
            Self::Hardlink { file, link } => {
                extended("hardlink@openssh.com").string(file).string(link)
            }
            Self::Readlink(path) => packet(19).string(path),
            // OpenSSH has the arguments in the opposite order of the draft, and others follow it.
            Self::Symlink { link, target } => packet(20).string(target).string(link),
            Self::Fsync(handle) => extended("fsync@openssh.com").string(handle),
            Self::Statvfs(path) => extended("statvfs@openssh.com").string(path),
            Self::Limits => extended("limits@openssh.com"),
        };
        written.finish()
    }
}

fn attributed(packet: PacketWriter, attributes: &Attributes) -> PacketWriter {
    packet.raw(&attributes.encode())
}

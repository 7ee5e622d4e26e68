//! Attributes of files (section 5).

use bytes::{BufMut, BytesMut};

use super::packet::{PacketReader, Truncated};

/// Attributes of a file. Absent ones are unknown, or are not to be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Size in bytes.
    pub size: Option<u64>,
    /// The owner.
    pub owner: Option<FileOwner>,
    /// Type and permissions, as in `st_mode`.
    pub mode: Option<u32>,
    /// Times of the last access and of the last change.
    pub times: Option<Times>,
}

/// User and group by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// Times in seconds since 1970, UTC. They end in 2106.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The last access.
    pub accessed: u32,
    /// The last change of the content.
    pub modified: u32,
}

impl Times {
    /// The nearest times that SFTP can send, from seconds since 1970.
    pub fn nearest(accessed: i64, modified: i64) -> Self {
        Self {
            accessed: nearest(accessed),
            modified: nearest(modified),
        }
    }
}

fn nearest(seconds: i64) -> u32 {
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, a socket or a pipe.
    Other,
}

const SIZE: u32 = 0x1;
const OWNER: u32 = 0x2;
const PERMISSIONS: u32 = 0x4;
const TIMES: u32 = 0x8;
const EXTENDED: u32 = 0x8000_0000;

impl Attributes {
    /// Permissions alone, such as 0o644.
    pub fn of_mode(mode: u32) -> Self {
        Self {
            mode: Some(mode),
            ..Self::default()
        }
    }

    /// The kind of file. A server that does not report the mode has only regular files.
    pub fn kind(&self) -> FileKind {
        match self.mode.map(|mode| mode & 0o170_000) {
            None | Some(0o100_000) => FileKind::File,
            Some(0o040_000) => FileKind::Directory,
            Some(0o120_000) => FileKind::Symlink,
            Some(_) => FileKind::Other,
        }
    }

    /// Permissions without the type, such as 0o644.
    pub fn permissions(&self) -> Option<u32> {
        self.mode.map(|mode| mode & 0o7777)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut flags = 0;
        let mut fields = BytesMut::new();
        if let Some(size) = self.size {
            flags |= SIZE;
            fields.put_u64(size);
        }
        if let Some(FileOwner { uid, gid }) = self.owner {
            flags |= OWNER;
            fields.put_u32(uid);
            fields.put_u32(gid);
        }
        if let Some(mode) = self.mode {
            flags |= PERMISSIONS;
            fields.put_u32(mode);
        }
        if let Some(Times { accessed, modified }) = self.times {
            flags |= TIMES;
            fields.put_u32(accessed);
            fields.put_u32(modified);
        }
        [&flags.to_be_bytes(), &fields[..]].concat()
    }

    pub(super) fn decode(packet: &mut PacketReader) -> Result<Self, Truncated> {
        let flags = packet.u32()?;
        let mut attributes = Self::default();
        if flags & SIZE != 0 {
            attributes.size = Some(packet.u64()?);
        }
        if flags & OWNER != 0 {
            let uid = packet.u32()?;
            let gid = packet.u32()?;
            attributes.owner = Some(FileOwner { uid, gid });
        }
        if flags & PERMISSIONS != 0 {
            attributes.mode = Some(packet.u32()?);
        }
        if flags & TIMES != 0 {
            let accessed = packet.u32()?;
            let modified = packet.u32()?;
            attributes.times = Some(Times { accessed, modified });
        }
        if flags & EXTENDED != 0 {
            // Pairs of a name and a value, none of which is used here.
            for _ in 0..packet.u32()? {
                packet.string()?;
                packet.string()?;
            }
        }
        Ok(attributes)
    }
}

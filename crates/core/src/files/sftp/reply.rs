//! Replies of a server (sections 4 and 7).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::packet::{PacketReader, Truncated};
use super::{Attributes, SftpError, SftpStatus};

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SftpReply {
    /// Success, the end of a file, or a failure.
    Status {
        /// The status.
        status: SftpStatus,
        /// A text in the server's words.
        message: String,
    },
    /// An open file or directory.
    Handle(Bytes),
    /// Bytes of a file.
    Data(Bytes),
    /// Entries of a directory, or a path.
    Names(Vec<DirectoryEntry>),
    /// Attributes.
    Attributes(Attributes),
    /// Fields of an extension.
    Extended(Bytes),
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, as sent by the server.
    pub name: Bytes,
    /// The attributes, without following a symbolic link.
    pub attributes: Attributes,
}

/// A server's first packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SftpVersion {
    /// The protocol's version.
    pub version: u32,
    /// Names of its extensions, with their versions.
    pub extensions: BTreeMap<String, String>,
}

const BROKEN: SftpError = SftpError::Protocol("a packet is shorter than its fields");
/// Maximum bytes kept of a server's message.
const MOST_MESSAGE: usize = 512;

impl From<Truncated> for SftpError {
    fn from(Truncated: Truncated) -> Self {
        BROKEN
    }
}

impl SftpVersion {
    /// Reads the first packet of a server.
    ///
    /// # Errors
    /// [`SftpError::Protocol`].
    pub fn decode(packet: Bytes) -> Result<Self, SftpError> {
        let mut packet = PacketReader(packet);
        if packet.u8()? != 2 {
            return Err(SftpError::Protocol("its first packet is not a version"));
        }
        let version = packet.u32()?;
        let mut extensions = BTreeMap::new();
        while !packet.is_empty() {
            let name = String::from_utf8_lossy(&packet.string()?).into_owned();
            let value = String::from_utf8_lossy(&packet.string()?).into_owned();
            extensions.insert(name, value);
        }
        Ok(Self {
            version,
            extensions,
        })
    }
}

impl SftpReply {
    /// Reads a packet: the id of its request, and the reply.
    ///
    /// # Errors
    /// [`SftpError::Protocol`].
    pub fn decode(packet: Bytes) -> Result<(u32, Self), SftpError> {
        let mut packet = PacketReader(packet);
        let kind = packet.u8()?;
        let id = packet.u32()?;
        let reply = match kind {
            101 => Self::Status {
                status: SftpStatus::of(packet.u32()?),
                // Very old servers send no message.
                message: message(packet.string().unwrap_or_default()),
            },
            102 => Self::Handle(packet.string()?),
            103 => Self::Data(packet.string()?),
            104 => Self::Names(names(&mut packet)?),
            105 => Self::Attributes(Attributes::decode(&mut packet)?),
            201 => Self::Extended(packet.0),
            _ => return Err(SftpError::Protocol("a packet has an unknown type")),
        };
        Ok((id, reply))
    }
}

impl SftpReply {
    /// Whether this is a status with this value.
    pub(super) fn is_status(&self, wanted: SftpStatus) -> bool {
        matches!(self, Self::Status { status, .. } if *status == wanted)
    }
}

fn names(packet: &mut PacketReader) -> Result<Vec<DirectoryEntry>, SftpError> {
    let count = packet.u32()?;
    // Not with this capacity: the server chose the number.
    let mut names = Vec::new();
    for _ in 0..count {
        let name = packet.string()?;
        // The line of `ls -l`, which is for people.
        packet.string()?;
        let attributes = Attributes::decode(packet)?;
        names.push(DirectoryEntry { name, attributes });
    }
    Ok(names)
}

fn message(text: Bytes) -> String {
    let text = text.slice(..text.len().min(MOST_MESSAGE));
    let text = String::from_utf8_lossy(&text);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

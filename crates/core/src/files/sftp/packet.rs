//! The fields of packets (section 3): numbers in network order, and strings with their length.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A packet ends before one of its fields does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Truncated;

/// Writes the fields of one packet.
pub(super) struct PacketWriter(BytesMut);

impl PacketWriter {
    /// A packet of this type (`SSH_FXP_…`).
    pub(super) fn new(kind: u8) -> Self {
        let mut bytes = BytesMut::with_capacity(64);
        // The length, which is known at the end.
        bytes.put_u32(0);
        bytes.put_u8(kind);
        Self(bytes)
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.put_u32(value);
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.put_u64(value);
        self
    }

    pub(super) fn string(mut self, value: &[u8]) -> Self {
        self.0.put_u32(length(value.len()));
        self.0.put_slice(value);
        self
    }

    /// Fields that are encoded already.
    pub(super) fn raw(mut self, fields: &[u8]) -> Self {
        self.0.put_slice(fields);
        self
    }

    /// The packet.
    pub(super) fn finish(self) -> Bytes {
        self.before(0)
    }

    /// The packet up to its last `data` bytes, which are sent separately.
    pub(super) fn before(mut self, data: usize) -> Bytes {
        let length = length(self.0.len() - 4 + data);
        // The first four bytes were reserved for it.
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0.freeze()
    }
}

/// A length on the wire. Callers limit paths and data far below four gigabytes.
pub(super) fn length(length: usize) -> u32 {
    u32::try_from(length).expect("packets are below 4 GiB")
}

/// Reads the fields of one packet.
#[derive(Clone, Debug)]
pub(super) struct PacketReader(pub(super) Bytes);

impl PacketReader {
    pub(super) fn u8(&mut self) -> Result<u8, Truncated> {
        self.0.try_get_u8().map_err(|_| Truncated)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Truncated> {
        self.0.try_get_u32().map_err(|_| Truncated)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Truncated> {
        self.0.try_get_u64().map_err(|_| Truncated)
    }

    pub(super) fn string(&mut self) -> Result<Bytes, Truncated> {
        let length = usize::try_from(self.u32()?).map_err(|_| Truncated)?;
        if length > self.0.len() {
            return Err(Truncated);
        }
        Ok(self.0.split_to(length))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

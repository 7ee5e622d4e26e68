//! Splits a stream of bytes into packets.

use bytes::{Buf, Bytes, BytesMut};

use super::SftpError;

/// Maximum length of a packet: the limit of OpenSSH, with room for its header.
const MOST_PACKET: usize = (256 << 10) + 1024;

/// Packets of a stream that arrives in pieces of any size.
#[derive(Debug, Default)]
pub struct PacketAssembler(BytesMut);

impl PacketAssembler {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next complete packet, without its length.
    ///
    /// # Errors
    /// [`SftpError::LongPacket`], after which the stream can't be read any more.
    pub fn next_packet(&mut self) -> Result<Option<Bytes>, SftpError> {
        let Some(header) = self.0.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*header)).unwrap_or(usize::MAX);
        if length == 0 || length > MOST_PACKET {
            return Err(SftpError::LongPacket { header: *header });
        }
        if self.0.len() < 4 + length {
            return Ok(None);
        }
        self.0.advance(4);
        Ok(Some(self.0.split_to(length).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_the_same_in_pieces_of_any_size() {
        let stream = [0, 0, 0, 2, 7, 8, 0, 0, 0, 1, 9, 0, 0];
        for size in 1..=stream.len() {
            let mut frames = PacketAssembler::default();
            let mut packets = Vec::new();
            for piece in stream.chunks(size) {
                frames.push(piece);
                while let Some(packet) = frames.next_packet().unwrap() {
                    packets.push(packet.to_vec());
                }
            }
            assert_eq!(packets, [vec![7, 8], vec![9]], "in pieces of {size}");
        }
    }

    #[test]
    fn text_of_a_login_shell_is_not_taken_for_a_packet() {
        let mut frames = PacketAssembler::default();
        frames.push(b"Welcome to web1!\n");
        assert_eq!(
            frames.next_packet(),
            Err(SftpError::LongPacket { header: *b"Welc" })
        );
    }
}

//! Files of the store.

use sshjobs_store::{Parsed, Seal, parse};

/// Frames of stored output.
pub fn stored_frames(bytes: &[u8]) {
    let seal = Seal::new(&"web1-aaaaaaaa".into(), 1);
    // Unchanged, and with a correct length and checksum: the content of a frame is not trusted
    // either.
    let mut frame = vec![0; 16];
    frame[4..8]
        .copy_from_slice(&u32::try_from(bytes.len().saturating_sub(1)).unwrap().to_le_bytes());
    frame.extend_from_slice(bytes);
    let sum = crc32fast::hash(&frame[4..]);
    frame[..4].copy_from_slice(&sum.to_le_bytes());
    for text in [bytes, &frame] {
        match parse(text, seal) {
            Parsed::Whole(_, length) => assert!(length <= text.len()),
            Parsed::Short(length) => assert!(length > text.len()),
            Parsed::Torn => {}
        }
    }
}

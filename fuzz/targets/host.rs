//! What hosts send: answers of scripts, frames, packets.

use bytes::Bytes;
use sshjobs_core::files::sftp;
use sshjobs_job::spool::{FrameReader as SpoolFrames, SpoolFrame, SpoolReply};
use sshjobs_job::{
    Announcements, AwaitsStdin, ControlLine, Greeting, KillReport, MachineId, Nonce, PostMortem,
    Processes,
};

/// Frames of the program that follows durable jobs on a host.
pub fn follower(bytes: &[u8]) {
    fn all(frames: &mut SpoolFrames) -> Vec<SpoolFrame> {
        std::iter::from_fn(|| frames.next_frame()).collect()
    }
    /// A frame with its data byte by byte, as they may come in any number of pieces.
    fn in_bytes(frame: SpoolFrame) -> Vec<String> {
        let SpoolFrame::Data {
            job,
            stream,
            offset,
            bytes,
        } = frame
        else {
            return vec![format!("{frame:?}")];
        };
        (0..)
            .zip(bytes)
            .map(|(at, byte)| format!("{job} {stream:?} {} {byte}", offset + at))
            .collect()
    }
    let (mut whole, mut by_bytes) = (SpoolFrames::default(), SpoolFrames::default());
    whole.push(bytes.to_vec().into());
    let told = all(&mut whole);
    let data = |frame: &SpoolFrame| match frame {
        SpoolFrame::Data { bytes, .. } => bytes.len(),
        SpoolFrame::ProcessGroup { .. }
        | SpoolFrame::Usage { .. }
        | SpoolFrame::End { .. }
        | SpoolFrame::Alive
        | SpoolFrame::CaughtUp => 0,
    };
    assert!(told.iter().map(data).sum::<usize>() <= bytes.len());
    // In any division into pieces. An overlong header may be dropped at other positions.
    if bytes.len() < 512 {
        let pieces = bytes.chunks(1).flat_map(|byte| {
            by_bytes.push(byte.to_vec().into());
            all(&mut by_bytes)
        });
        let shown =
            |frames: Vec<SpoolFrame>| frames.into_iter().flat_map(in_bytes).collect::<Vec<_>>();
        assert_eq!(shown(pieces.collect()), shown(told));
    }
}

/// Packets of a host's SFTP server.
pub fn sftp(bytes: &[u8]) {
    let packets = |piece: usize| {
        let mut frames = sftp::PacketAssembler::default();
        let mut packets = Vec::new();
        for piece in bytes.chunks(piece) {
            frames.push(piece);
            loop {
                match frames.next_packet() {
                    Ok(Some(packet)) => packets.push(packet),
                    Ok(None) => break,
                    // Nothing is read after a length that can't be.
                    Err(_) => return (packets, true),
                }
            }
        }
        (packets, false)
    };
    let whole = packets(usize::MAX);
    assert_eq!(whole, packets(1), "pieces make no difference");
    for packet in whole.0 {
        let length = packet.len();
        sftp::SftpVersion::decode(packet.clone()).ok();
        if let Ok((_, sftp::SftpReply::Names(names))) = sftp::SftpReply::decode(packet) {
            assert!(
                names.len() * 8 <= length,
                "a reply can't claim more names than it has"
            );
        }
    }
}

/// Answers of the scripts that run on a host, and announcements in a job's own output.
pub fn answers(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let nonce: Nonce = serde_json::from_str("\"sshjobs-fuzzed\"").unwrap();
    PostMortem::parse(&text);
    Processes::parse(&text);
    AwaitsStdin::parse(&text);
    KillReport::parse(&text);
    MachineId::parse(&text);
    SpoolReply::parse(&text);
    for line in text.lines() {
        ControlLine::parse(line, &nonce);
    }

    for piece in [1, usize::MAX] {
        // A greeting ends with the piece that completes it, so the steps differ.
        let mut greeting = Greeting::new(&nonce);
        for piece in bytes.chunks(piece) {
            greeting.read(piece);
        }
    }

    let stripped = |piece: usize| {
        let mut announcements = Announcements::new(&nonce, 2);
        let mut command_output = Vec::new();
        let mut process_groups = Vec::new();
        for piece in bytes.chunks(piece) {
            let (passed, process_group) = announcements.strip(Bytes::copy_from_slice(piece));
            command_output.extend_from_slice(&passed);
            process_groups.extend(process_group);
        }
        command_output.extend(announcements.finish());
        (command_output, process_groups)
    };
    let by_bytes = stripped(1);
    assert!(by_bytes.0.len() <= bytes.len());
    if !text.contains(nonce.as_str()) {
        assert_eq!(
            by_bytes,
            (bytes.to_vec(), Vec::new()),
            "another's output is left as it is"
        );
    }
}

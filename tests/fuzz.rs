//! Fuzz targets for parsers of foreign bytes: the assembler of lines, the renderers, the parsing of
//! arguments, frames of a host's follower, and files from a disk.
//!
//! `cargo test` plays the seeds in `fixtures/fuzz` and then a few seconds of random input.

use std::path::Path;
use std::time::Duration;

use sshjobs::files::sftp::{Frames, Reply, Version};
use sshjobs::jobs::{Access, Config};
use sshjobs::output::{
    Content, LineNo, ReadQuery, Reading, Render, Ring, RingLimits, ScreenView, Selection, Stream,
    TerminalFilter, TerminalScreen, TerminalSize, Unit, clean, render,
};
use sshjobs::wire::{
    ForgetRequest, HostsRequest, JobsRequest, ReadRequest, Request, RunRequest, SearchRequest,
    Service, SignalRequest, SpawnRequest, TailRequest, WaitRequest, WriteRequest,
};

/// Words that random bytes rarely contain.
const WORDS: [&[u8]; 24] = [
    b"\n",
    b"\r\n",
    b"\r",
    b"\x1b",
    b"\x1b[",
    b"\x1b]",
    b"\x1bP",
    b"\x1b\\",
    b"\x07",
    b"\x1b]52;c;",
    b"\x1b]8;;",
    b"m",
    b"K",
    b";8",
    b"?1049h",
    b"\xc2\x9b",
    b"\xe2\x80\xae",
    b"\xf3\xa0\x81\x81",
    b"\xf0\x9f\x91\x8d",
    b"\xf0\x9f",
    b"\xff",
    b"\0",
    b"\x1b_",
    b"\x18",
];

/// Plays the target's seeds, then random words and bytes for some seconds.
fn fuzz(target: &str, test: fn(&[u8])) {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/fuzz").join(target);
    let mut played = 0;
    for seed in std::fs::read_dir(seeds).unwrap() {
        let seed = std::fs::read(seed.unwrap().path()).unwrap();
        test(&seed);
        // Every beginning of a seed, too.
        (0..seed.len()).for_each(|end| test(&seed[..end]));
        played += 1;
    }
    assert!(played >= 4, "the seeds of {target} are missing");
    bolero::check!()
        .with_type::<Vec<(u8, u8)>>()
        .with_test_time(Duration::from_secs(4))
        .for_each(|input| {
            let pieces =
                input.iter().map(|(choice, byte)| match WORDS.get(usize::from(choice % 32)) {
                    Some(word) => *word,
                    None => std::slice::from_ref(byte),
                });
            test(&pieces.collect::<Vec<_>>().concat());
        });
}

#[test]
fn assembler() {
    fuzz("assembler", |bytes| {
        let limits = RingLimits {
            lines: 1 << 16,
            bytes: 1 << 20,
            line_bytes: 16,
        };
        let mut ring = Ring::new(limits);
        // In pieces whose length the input decides.
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            let (piece, behind) = rest.split_at(usize::from(first % 7 + 1).min(rest.len()));
            ring.append(Stream::Stdout, piece, 0);
            rest = behind;
        }
        ring.finish(Stream::Stdout, 0);
        let lines: Vec<_> = ring.lines_after(LineNo::START, Selection::Both).collect();
        let whole: Vec<u8> = lines
            .iter()
            .flat_map(|line| [&*line.text, line.terminator.as_bytes()].concat())
            .collect();
        assert_eq!(whole, bytes, "a byte is lost or invented");
        assert!(lines.iter().all(|line| line.text.len() <= limits.line_bytes));
        let mut text = String::new();
        for line in &lines {
            assert_harmless(&line.render(Render::Clean));
            text += &line.render(Render::Clean);
            text += line.line_end(Render::Clean);
        }
        let query = ReadQuery {
            unit: Unit::Chars,
            offset: 0,
            length: usize::MAX,
            max_bytes: 0,
            selection: Selection::Both,
            render: Render::Clean,
        };
        let reading = Reading::of(&ring, &query);
        assert_eq!(
            (reading.total, reading.content),
            (text.chars().count() as u64, Content::Chars(text))
        );
    });
}

#[test]
fn screen() {
    fuzz("screen", |bytes| {
        let size = |cols, rows| TerminalSize { cols, rows };
        for (cols, rows) in [(1, 1), (80, 24), (3, 50), (200, 2)] {
            let mut whole = TerminalScreen::new(size(cols, rows));
            whole.feed(bytes);
            let view = whole.view();
            assert_eq!(view.rows.len(), rows as usize);
            assert!(
                view.cursor.row <= rows && view.cursor.col <= cols,
                "{:?}",
                view.cursor
            );
            assert_harmless(&view.title);
            for row in &view.rows {
                assert_harmless(&row.text);
            }

            let mut by_bytes = TerminalScreen::new(size(cols, rows));
            bytes.chunks(1).for_each(|byte| by_bytes.feed(byte));
            let texts = |view: &ScreenView| -> Vec<String> {
                view.rows.iter().map(|row| row.text.clone()).collect()
            };
            assert_eq!(
                texts(&by_bytes.view()),
                texts(&view),
                "any division is the same"
            );
            assert_eq!(by_bytes.take_answers(), whole.take_answers());

            whole.resize(size(rows, cols), 1);
            whole.feed(bytes);
            whole.redraw();
        }
    });
}

#[test]
fn renderer() {
    fuzz("renderer", |bytes| {
        let shown = clean(bytes);
        assert_harmless(&shown);
        assert_eq!(clean(shown.as_bytes()), shown, "clean text stays unchanged");
        let ends = |text: &[u8]| text.iter().filter(|&&byte| byte == b'\n').count();
        assert_eq!(
            ends(render(bytes, Render::Clean).as_bytes()),
            ends(bytes),
            "a line end is lost or invented"
        );
        for filter in [TerminalFilter::default, TerminalFilter::for_screen] {
            let passed = filter().pass(bytes);
            let mut by_bytes = filter();
            let pieces: Vec<u8> = bytes.chunks(1).flat_map(|byte| by_bytes.pass(byte)).collect();
            assert_eq!(
                pieces, passed,
                "a filter must not mind how the bytes are divided"
            );
            assert_no_string_sequence(&passed);
        }
    });
}

/// No control but tab, nothing that reorders or hides text.
fn assert_harmless(text: &str) {
    let harmful = |c: char| {
        (c.is_control() && c != '\t')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
    };
    assert!(!text.contains(harmful), "{text:?}");
}

/// Clipboard, title, hyperlinks and queries all need one of these.
fn assert_no_string_sequence(bytes: &[u8]) {
    for introducer in [
        b"\x1b]",
        b"\x1bP",
        b"\x1b_",
        b"\x1bX",
        b"\x1b^",
        b"\xc2\x90",
        b"\xc2\x9d",
        b"\xc2\x9b",
    ] {
        assert!(
            !bytes.windows(2).any(|pair| pair == introducer),
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }
    let text = String::from_utf8_lossy(bytes);
    for query in regex::Regex::new(r"\x1b\[[0-9;:?>]*([a-zA-Z])").unwrap().captures_iter(&text) {
        assert!(
            !matches!(&query[1], "n" | "c" | "t" | "p" | "x"),
            "{text:?}"
        );
    }
}

#[test]
fn arguments() {
    fuzz("arguments", |bytes| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(call_everything(bytes));
    });
}

/// Whatever can be parsed is called. There is no such host and no such job, so everything ends in
/// an error with a hint.
async fn call_everything(bytes: &[u8]) {
    let ssh_config = Some(Path::new("/dev/null").to_owned());
    let service = Service::new(
        Config {
            ssh_config,
            store: false,
            ..Config::default()
        },
        Access::Listed,
    );
    let object: serde_json::Map<_, _> = serde_json::from_slice(bytes).unwrap_or_default();
    macro_rules! call {
        ($($request:ty => $verb:ident),*) => {$(
            if let Ok(request) = <$request>::parse(object.clone()) {
                let error = service.$verb(request).await.err().expect("there is no such job");
                assert!(!error.hint.is_empty(), "{error}");
            }
        )*};
    }
    call!(
        SpawnRequest => spawn, RunRequest => run, TailRequest => tail, ReadRequest => read, WriteRequest => write,
        SignalRequest => signal, SearchRequest => search, WaitRequest => wait, ForgetRequest => forget
    );
    if let Ok(request) = serde_json::from_slice::<JobsRequest>(bytes) {
        service.jobs(request.clone()).await.ok();
    }
    if let Ok(request) = serde_json::from_slice::<HostsRequest>(bytes) {
        service.hosts(request).await.ok();
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        Config::parse(Path::new("config.toml"), text).ok();
        text.parse::<sshjobs::job::Signal>().ok();
        assert!(
            sshjobs::job::key_bytes(text, b'\n', Default::default())
                .is_none_or(|keys| keys.len() <= 8)
        );
    }
}

#[test]
fn stored_frames() {
    use sshjobs::store::{Parsed, Seal, parse};
    fuzz("stored_frames", |bytes| {
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
    });
}

#[test]
fn follower() {
    use sshjobs::spool::{Frames, SpoolFrame};
    fn all(frames: &mut Frames) -> Vec<SpoolFrame> {
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
    fuzz("follower", |bytes| {
        let (mut whole, mut by_bytes) = (Frames::default(), Frames::default());
        whole.push(bytes.to_vec().into());
        let told = all(&mut whole);
        let data = |frame: &SpoolFrame| match frame {
            SpoolFrame::Data { bytes, .. } => bytes.len(),
            SpoolFrame::ProcessGroup { .. }
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
    });
}

#[test]
fn known_hosts() {
    use sshjobs::ssh::{HostName, KnownHosts, Verdict};
    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    fuzz("known_hosts", |bytes| {
        let key = russh::keys::parse_public_key_base64(KEY).unwrap();
        let mut known = KnownHosts::default();
        let text = String::from_utf8_lossy(bytes);
        known.add(Path::new("known_hosts"), &text);
        for host in [
            HostName::new("web1", 22),
            HostName::new("10.0.0.1", 2222),
            HostName::alias("WEB"),
        ] {
            let verdict = known.verdict(&host, &key);
            known.key_types(&host);
            known.has_authority(&host);
            // Nothing but the key itself can make it known or revoked.
            if !text.contains(KEY) {
                assert!(
                    matches!(verdict, Verdict::Unknown | Verdict::Changed { .. }),
                    "{verdict:?}"
                );
            }
        }
    });
}

#[test]
fn sftp() {
    fuzz("sftp", |bytes| {
        let packets = |piece: usize| {
            let mut frames = Frames::default();
            let mut packets = Vec::new();
            for piece in bytes.chunks(piece) {
                frames.push(piece);
                loop {
                    match frames.next_packet() {
                        Ok(Some(packet)) => packets.push(packet),
                        Ok(None) => break,
                        // Nothing is read after a length that can't be.
                        Err(_) => return packets,
                    }
                }
            }
            packets
        };
        let whole = packets(usize::MAX);
        assert_eq!(whole, packets(1), "pieces make no difference");
        for packet in whole {
            let length = packet.len();
            Version::decode(packet.clone()).ok();
            if let Ok((_, Reply::Names(names))) = Reply::decode(packet) {
                assert!(
                    names.len() * 8 <= length,
                    "a reply can't claim more names than it has"
                );
            }
        }
    });
}

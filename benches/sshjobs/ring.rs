//! The cost of the ring and its pages, beside the work that can't be avoided.

use std::hint::black_box;

use sshjobs_output::{LineNo, Page, PageQuery, Render, Ring, RingLimits, Selection, Stream, clean};

use crate::report::{Report, micros, ratio, time_per_call};

const LINE: &[u8; 80] =
    b"the quick brown fox jumps over the lazy dog and runs away into the deep forest.\n";
const CHUNK: usize = 32 << 10;

/// Appending lines, against copying their bytes.
pub(crate) fn append(report: &mut Report) {
    let chunk: Vec<u8> = LINE.iter().copied().cycle().take(CHUNK / 80 * 80).collect();
    let mut ring = Ring::new(RingLimits {
        lines: 100_000,
        ..RingLimits::default()
    });
    let ours = time_per_call(|| {
        ring.append(Stream::Stdout, black_box(&chunk), 0);
    });
    // The same bytes into a buffer of the ring's size, round and round.
    let mut buffer = vec![0_u8; 8 << 20];
    let mut at = 0;
    let memcpy = time_per_call(|| {
        if at + chunk.len() > buffer.len() {
            at = 0;
        }
        buffer[at..at + chunk.len()].copy_from_slice(black_box(&chunk));
        at += chunk.len();
        // Without this, the compiler leaves the copies out: no code reads them.
        black_box(&mut buffer);
    });
    report.row(
        "32 KiB of 80-byte lines into the ring, against memcpy",
        &micros(ours),
        &micros(memcpy),
        ratio(memcpy, ours),
        "≥ 0.25",
    );
}

/// A page from a large ring, against one from a small ring.
pub(crate) fn page(report: &mut Report) {
    let [small, large] = [1_000_usize, 1_000_000].map(|lines| {
        let mut ring = Ring::new(RingLimits {
            lines,
            bytes: 128 << 20,
            ..RingLimits::default()
        });
        for _ in 0..lines {
            ring.append(Stream::Stdout, LINE, 0);
        }
        let query = PageQuery {
            cursor: LineNo::new(lines as u64 / 2 - 1),
            selection: Selection::Both,
            max_lines: 500,
            max_bytes: 1 << 20,
            line_bytes: 1,
            render: Render::Clean,
            keep: Default::default(),
        };
        time_per_call(|| {
            black_box(Page::read(black_box(&ring), &query));
        })
    });
    report.row(
        "500 lines from a ring of 1 million lines, against 1 thousand",
        &micros(large),
        &micros(small),
        ratio(large, small),
        "≤ 1.2",
    );
}

/// The clean view of a line, against its raw text.
pub(crate) fn render(report: &mut Report) {
    let coloured =
        "\x1b[32mok\x1b[0m the quick brown fox \x1b[1mjumps\x1b[0m over the lazy dog — and away"
            .as_bytes();
    for (name, line) in [("plain", &LINE[..79]), ("coloured", coloured)] {
        let ours = time_per_call(|| {
            black_box(clean(black_box(line)).into_owned());
        });
        let raw = time_per_call(|| {
            black_box(String::from_utf8_lossy(black_box(line)).into_owned());
        });
        report.row(
            &format!(
                "clean view of a {name} line of {} bytes, against raw",
                line.len()
            ),
            &micros(ours),
            &micros(raw),
            ratio(ours, raw),
            "–",
        );
    }
}

use proptest::prelude::*;

use super::*;
use crate::page::{Keep, Page, PageQuery};
use crate::{MemberNo, OutputSource, Render, Unit};

const SMALL: RingLimits = RingLimits {
    lines: 5,
    bytes: 4 * 16,
    line_bytes: 16,
};

fn texts(ring: &Ring) -> Vec<(u64, Stream, Vec<u8>, bool)> {
    ring.lines_after(LineNo::START, Selection::Both)
        .map(|line| {
            (
                line.line_no.value(),
                line.stream,
                line.text.into_owned(),
                line.continuation,
            )
        })
        .collect()
}

fn ring(limits: RingLimits, chunks: &[(Stream, &[u8])]) -> Ring {
    let mut ring = Ring::new(limits);
    for (stream, bytes) in chunks {
        ring.append(*stream, bytes, 0);
    }
    ring
}

#[test]
fn one_counter_numbers_the_lines_of_both_streams() {
    use Stream::{Stderr, Stdout};
    let ring = ring(
        RingLimits::default(),
        &[
            (Stdout, b"a\nb"),
            (Stderr, b"x\n"),
            (Stdout, b"c\n"),
            (Stderr, b"y\r\n"),
        ],
    );
    let expected = [
        (1, Stdout, "a"),
        (2, Stderr, "x"),
        (3, Stdout, "bc"),
        (4, Stderr, "y"),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(no, stream, text)| (*no, *stream, text.as_bytes().to_vec(), false))
        .collect();
    assert_eq!(texts(&ring), expected);
}

#[test]
fn crlf_divided_between_chunks_is_one_line_end() {
    let ring = ring(
        RingLimits::default(),
        &[(Stream::Stdout, b"a\r"), (Stream::Stdout, b"\nb\n")],
    );
    assert_eq!(
        texts(&ring).into_iter().map(|line| line.2).collect::<Vec<_>>(),
        [b"a", b"b"]
    );
}

#[test]
fn an_unfinished_line_is_partial_until_its_stream_ends() {
    let mut ring = ring(RingLimits::default(), &[(Stream::Stdout, b"prompt> ")]);
    assert_eq!(ring.newest(), LineNo::START);
    assert_eq!(&*ring.partial(Stream::Stdout), b"prompt> ");
    ring.finish(Stream::Stdout, 7);
    assert_eq!(
        texts(&ring),
        [(1, Stream::Stdout, b"prompt> ".to_vec(), false)]
    );
    assert!(ring.partial(Stream::Stdout).is_empty());
}

#[test]
fn an_overlong_line_is_cut_into_continuations() {
    let ring = ring(
        SMALL,
        &[(Stream::Stdout, &[b'x'; 40]), (Stream::Stdout, b"\n")],
    );
    let lengths: Vec<_> = texts(&ring).into_iter().map(|line| (line.2.len(), line.3)).collect();
    assert_eq!(lengths, [(16, false), (16, true), (8, true)]);
}

#[test]
fn a_cut_inside_an_escape_sequence_shows_nothing_of_it() {
    let text = b"0123456789\x1b[1;31mred\x1b]52;c;QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=\x07 \x1bP1$rstatus string\x1b\\end";
    for lead in 0..16 {
        let line = [&b"x".repeat(lead), &text[..]].concat();
        let ring = ring(
            RingLimits {
                lines: 100,
                bytes: 1 << 16,
                line_bytes: 16,
            },
            &[(Stream::Stdout, &line), (Stream::Stdout, b"\n")],
        );
        let lines = ring.lines_after(LineNo::START, Selection::Both);
        let shown: String = lines.map(|line| line.render(Render::Clean).into_owned()).collect();
        assert_eq!(shown, format!("{}0123456789red end", "x".repeat(lead)));
    }
}

#[test]
fn a_line_of_exactly_the_limit_is_not_cut() {
    let ring = ring(
        SMALL,
        &[(Stream::Stdout, &[b'x'; 16]), (Stream::Stdout, b"\ny\n")],
    );
    assert_eq!(texts(&ring).len(), 2);
}

#[test]
fn a_cut_never_divides_a_character() {
    let ring = ring(
        SMALL,
        &[(Stream::Stdout, "123456789012345é€👍👍👍\n".as_bytes())],
    );
    for line in texts(&ring) {
        assert!(std::str::from_utf8(&line.2).is_ok(), "{line:?}");
    }
}

#[test]
fn the_oldest_lines_go_first_and_are_counted() {
    let ring = ring(
        SMALL,
        &[
            (Stream::Stdout, b"1\n2\n3\n"),
            (Stream::Stderr, b"4\n5\n6\n7\n"),
        ],
    );
    assert_eq!(ring.first_available(), LineNo::new(3));
    assert_eq!(ring.dropped_after(LineNo::START, Selection::Both).0, 2);
    assert_eq!(ring.dropped_after(LineNo::new(1), Selection::Both).0, 1);
    assert_eq!(ring.dropped_after(LineNo::new(6), Selection::Both).0, 0);
    assert_eq!(texts(&ring).len(), 5);
}

#[test]
fn numbers_do_not_return_after_forgetting() {
    let mut ring = ring(
        SMALL,
        &[(Stream::Stdout, b"1\n2\n"), (Stream::Stderr, b"3\n")],
    );
    assert_eq!(ring.forget(Selection::Only(Stream::Stdout)), (2, 4));
    ring.append(Stream::Stdout, b"4\n", 0);
    assert_eq!(
        texts(&ring).into_iter().map(|line| line.0).collect::<Vec<_>>(),
        [3, 4]
    );
}

#[test]
fn bytes_can_be_followed_exactly() {
    let mut ring = ring(SMALL, &[(Stream::Stdout, b"a\r\nb")]);
    assert_eq!(
        ring.bytes_from(Stream::Stdout, 0, 99),
        (0, (&b"a\r\nb"[..]).into())
    );
    assert_eq!(
        ring.bytes_from(Stream::Stdout, 2, 1),
        (2, (&b"\n"[..]).into())
    );
    ring.trim(1);
    assert_eq!(
        ring.bytes_from(Stream::Stdout, 0, 99),
        (3, (&b"b"[..]).into())
    );
}

fn stream() -> impl Strategy<Value = Stream> {
    prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)]
}

/// Bytes with many line ends, CRs and pieces of UTF-8.
fn output() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => Just(b'\n'), 2 => Just(b'\r'), 6 => b'a'..=b'z', 1 => any::<u8>(), 2 => Just(0xC3u8), 2 => Just(0xA9u8),
        1 => Just(0x1Bu8), 1 => Just(b'['), 1 => Just(b']'), 1 => Just(b'P')
    ];
    proptest::collection::vec(byte, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_chunking_of_the_same_bytes_gives_the_same_lines(bytes in output(), cuts in proptest::collection::vec(0usize..200, 0..20)) {
        let limits = RingLimits { lines: 1000, bytes: 1 << 16, line_bytes: 16 };
        let whole = ring(limits, &[(Stream::Stdout, &bytes)]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut parts = Ring::new(limits);
        for pair in cuts.windows(2) {
            parts.append(Stream::Stdout, &bytes[pair[0]..pair[1]], 0);
        }
        prop_assert_eq!(texts(&parts), texts(&whole));
        prop_assert_eq!(parts.partial(Stream::Stdout), whole.partial(Stream::Stdout));
        for render in [Render::Clean, Render::Raw] {
            let rendered = |ring: &Ring| -> Vec<_> {
                let extent = |line_no| ring.extent(line_no, Selection::Both, Measure::Chars(render));
                let lines = ring.lines_after(LineNo::START, Selection::Both);
                lines.map(|line| (line.render(render).into_owned(), extent(line.line_no))).collect()
            };
            prop_assert_eq!(rendered(&parts), rendered(&whole));
        }
    }

    #[test]
    fn no_byte_is_lost_or_invented(bytes in output()) {
        let limits = RingLimits { lines: 1000, bytes: 1 << 16, line_bytes: 16 };
        let whole = ring(limits, &[(Stream::Stdout, &bytes)]);
        prop_assert_eq!(whole.bytes_from(Stream::Stdout, 0, usize::MAX >> 1), (0, (&bytes[..]).into()));
        prop_assert_eq!(whole.total_bytes(Stream::Stdout), bytes.len() as u64);
    }

    #[test]
    fn delivered_and_dropped_make_the_total_for_every_reader(
        chunks in proptest::collection::vec((stream(), output()), 1..8),
        reads in proptest::collection::vec(any::<bool>(), 30),
        max_lines in 1usize..4,
    ) {
        let mut ring = Ring::new(SMALL);
        let mut model: Vec<(u64, Stream)> = Vec::new();
        let mut readers = [Selection::Both, Selection::Only(Stream::Stdout), Selection::Only(Stream::Stderr)]
            .map(|selection| (selection, LineNo::START, Vec::new()));
        let read = |ring: &Ring, model: &[(u64, Stream)], reader: &mut (Selection, LineNo, Vec<u64>)| {
            let keep = Keep::First;
            let query = PageQuery { cursor: reader.1, selection: reader.0, max_lines, max_bytes: 64, line_bytes: 1, render: Render::Raw, keep };
            let page = Page::read(ring, &query);
            let range = reader.1.value() + 1..=page.last_line_no.value();
            let printed = model.iter().filter(|(no, stream)| range.contains(no) && reader.0.contains(*stream)).count();
            let accounted = page.lines.len() + usize::try_from(page.dropped_lines).unwrap();
            // For one stream, lines of the other may be counted as evicted, and so may lines that
            // are evicted later.
            assert!(accounted == printed || (reader.0 != Selection::Both && accounted > printed), "{page:?} {printed}");
            reader.2.extend(page.lines.iter().map(|line| line.line_no.value()));
            reader.1 = page.last_line_no;
            page.has_more
        };
        for ((stream, bytes), wanted) in chunks.iter().zip(&reads) {
            for byte in bytes {
                let before = ring.newest();
                ring.append(*stream, std::slice::from_ref(byte), 0);
                model.extend((before.value() + 1..=ring.newest().value()).map(|no| (no, *stream)));
            }
            prop_assert!(ring.byte_count() <= SMALL.bytes && ring.line_count() <= SMALL.lines);
            if *wanted {
                for reader in &mut readers { read(&ring, &model, reader); }
            }
        }
        for reader in &mut readers {
            while read(&ring, &model, reader) {}
            prop_assert!(reader.2.is_sorted_by(|one, two| one < two), "no line is repeated");
            let kept = ring.lines_after(LineNo::START, reader.0).map(|line| line.line_no.value());
            prop_assert!(kept.into_iter().all(|no| reader.2.contains(&no)), "no kept line is lost");
            prop_assert!(reader.0 != Selection::Both || reader.1 == ring.newest());
        }
    }

    #[test]
    fn memory_stays_inside_the_bound(chunks in proptest::collection::vec((stream(), 0usize..5000, any::<bool>()), 1..60)) {
        let limits = RingLimits { lines: 100, bytes: 4 * 1024, line_bytes: 1024 };
        let mut ring = Ring::new(limits);
        for (stream, length, newlines) in chunks {
            ring.append(stream, &vec![if newlines { b'\n' } else { b'x' }; length], 0);
            prop_assert!(ring.byte_count() <= limits.bytes);
            prop_assert!(ring.line_count() <= limits.lines);
            prop_assert!(ring.footprint() <= 2 * (limits.bytes + 2 * limits.lines * 32));
        }
    }
}

#[test]
fn a_ring_that_is_resumed_answers_as_one_that_lost_what_came_before() {
    let chunks: [(Stream, &[u8]); 4] = [
        (Stream::Stdout, "é one\r\n".as_bytes()),
        (Stream::Stderr, b"\x1b[1mtwo\x1b[0m\n"),
        (Stream::Stdout, b"three\n"),
        (Stream::Stderr, "fünf\n".as_bytes()),
    ];
    let mut whole = Ring::new(RingLimits::default());
    for (stream, bytes) in &chunks[..2] {
        whole.append(*stream, bytes, 0);
    }
    let mut resumed = Ring::resumed(RingLimits::default(), &whole.checkpoint());
    whole.forget(Selection::Both);
    for (stream, bytes) in &chunks[2..] {
        whole.append(*stream, bytes, 0);
        resumed.append(*stream, bytes, 0);
    }
    let newest = whole.newest();
    for selection in [
        Selection::Both,
        Selection::Only(Stream::Stdout),
        Selection::Only(Stream::Stderr),
    ] {
        let lines = |ring: &Ring| {
            ring.lines_after(LineNo::START, selection)
                .map(|line| line.line_no)
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(&resumed), lines(&whole));
        assert_eq!(
            resumed.dropped_after(LineNo::START, selection),
            whole.dropped_after(LineNo::START, selection)
        );
        for unit in [Unit::Lines, Unit::Chars, Unit::Bytes] {
            for render in [Render::Raw, Render::Clean] {
                assert_eq!(
                    resumed.extent(newest, selection, Measure::new(unit, render)),
                    whole.extent(newest, selection, Measure::new(unit, render))
                );
            }
        }
    }
    assert_eq!(resumed.origin(), whole.origin());
}

#[test]
fn each_line_of_a_fleet_has_its_member_also_if_it_was_cut() {
    let mut ring = Ring::new(RingLimits {
        line_bytes: 8,
        ..RingLimits::default()
    });
    let first = MemberNo::at(0);
    let second = MemberNo::at(1);

    ring.append(OutputSource::of_member(first, Stream::Stdout), b"one\n", 0);
    ring.append(
        OutputSource::of_member(second, Stream::Stdout),
        b"two: long line\n",
        0,
    );
    ring.append(Stream::Stdout, b"of the fleet\n", 0);

    let lines = ring.lines_after(LineNo::START, Selection::Both);
    let members: Vec<_> = lines.map(|line| line.member).collect();
    assert_eq!(members, [first, second, second, None, None]);
}

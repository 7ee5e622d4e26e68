use proptest::prelude::*;

use super::*;
use crate::Stream;
use crate::ring::RingLimits;

fn query(unit: Unit, offset: i64, length: usize) -> ReadQuery {
    ReadQuery {
        unit,
        offset,
        length,
        max_bytes: 1 << 20,
        selection: Selection::Both,
        render: Render::Clean,
    }
}

fn numbered(lines: usize) -> Ring {
    let mut ring = Ring::new(RingLimits {
        lines: 100,
        ..RingLimits::default()
    });
    for number in 1..=lines {
        ring.append(Stream::Stdout, format!("line {number}\n").as_bytes(), 0);
    }
    ring
}

fn line_numbers(reading: &Reading) -> Vec<u64> {
    let Content::Lines(lines) = &reading.content else { return Vec::new() };
    lines.iter().map(|line| line.line_no.value()).collect()
}

#[test]
fn an_offset_skips_from_the_beginning_or_counts_from_the_end() {
    let ring = numbered(100);
    let read =
        |offset, length| line_numbers(&Reading::of(&ring, &query(Unit::Lines, offset, length)));
    assert_eq!(read(0, 2), [1, 2]);
    assert_eq!(read(50, 2), [51, 52]);
    assert_eq!(read(-2, 10), [99, 100]);
    assert_eq!(read(-50, 2), [51, 52]);
    assert_eq!(read(-1000, 1), [1]);
}

#[test]
fn the_limit_in_bytes_counts_line_ends() {
    let ring = numbered(5);
    let read = |max_bytes| {
        let query = ReadQuery {
            max_bytes,
            ..query(Unit::Lines, 0, 10)
        };
        line_numbers(&Reading::of(&ring, &query))
    };
    // "line 1\n" has 7 bytes.
    assert_eq!(read(20), [1, 2]);
    assert_eq!(read(21), [1, 2, 3]);
    assert_eq!(read(0), [1], "one line at least");
}

#[test]
fn positions_survive_eviction() {
    let ring = numbered(150);
    let reading = Reading::of(&ring, &query(Unit::Lines, 10, 2));
    assert_eq!(
        (
            line_numbers(&reading),
            reading.offset,
            reading.available_from
        ),
        (vec![51, 52], 50, 50)
    );
    assert_eq!((reading.total, reading.remaining()), (150, 98));
    // "line 1\n" … "line 50\n" were 9 * 7 + 41 * 8 characters.
    let reading = Reading::of(&ring, &query(Unit::Chars, 0, 8));
    assert_eq!(
        (reading.offset, reading.content),
        (391, Content::Chars("line 51\n".into()))
    );
}

#[test]
fn positions_survive_that_one_stream_is_forgotten() {
    let mut ring = Ring::new(RingLimits::default());
    for number in 1..=4 {
        ring.append(Stream::Stdout, format!("o{number}\n").as_bytes(), 0);
        ring.append(Stream::Stderr, format!("e{number}\n").as_bytes(), 0);
    }
    ring.append(Stream::Stdout, b"o5\n", 0);
    let whole = Reading::of(&ring, &query(Unit::Chars, 24, 3));
    assert_eq!(whole.content, Content::Chars("o5\n".into()));
    ring.forget(Selection::Only(Stream::Stderr));
    let both = |offset| line_numbers(&Reading::of(&ring, &query(Unit::Lines, offset, 1)));
    assert_eq!((both(8), both(4), both(0)), (vec![9], vec![9], vec![9]));
    assert_eq!(
        Reading::of(&ring, &query(Unit::Chars, 24, 3)),
        Reading {
            available_from: 24,
            ..whole
        }
    );
    let stdout = ReadQuery {
        selection: Selection::Only(Stream::Stdout),
        ..query(Unit::Lines, 1, 2)
    };
    assert_eq!(line_numbers(&Reading::of(&ring, &stdout)), [3, 5]);
}

#[test]
fn past_the_end_there_is_nothing_and_nothing_remains() {
    let reading = Reading::of(&numbered(3), &query(Unit::Chars, 1000, 10));
    assert_eq!(
        (reading.remaining(), reading.content),
        (0, Content::Chars(String::new()))
    );
}

#[test]
fn a_page_of_lines_ends_on_a_line_border_within_its_budget() {
    let wide = ReadQuery {
        max_bytes: 15,
        ..query(Unit::Lines, 0, 10)
    };
    assert_eq!(line_numbers(&Reading::of(&numbered(9), &wide)), [1, 2]);
    let narrow = ReadQuery {
        max_bytes: 1,
        ..wide
    };
    assert_eq!(line_numbers(&Reading::of(&numbered(9), &narrow)), [1]);
}

#[test]
fn bytes_of_one_stream_include_its_unfinished_line() {
    let mut ring = numbered(1);
    ring.append(Stream::Stdout, b"name? ", 0);
    let only = ReadQuery {
        selection: Selection::Only(Stream::Stdout),
        ..query(Unit::Bytes, -6, 100)
    };
    assert_eq!(
        Reading::of(&ring, &only).content,
        Content::Bytes(b"name? ".to_vec())
    );
    assert_eq!(Reading::of(&ring, &query(Unit::Bytes, 0, 100)).total, 7);
}

const SMALL: RingLimits = RingLimits {
    lines: 7,
    bytes: 4 * 16,
    line_bytes: 16,
};

/// Text with colours, progress bars, invalid UTF-8 and characters of all lengths.
fn output() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => Just(&b"\n"[..]), 1 => Just(&b"\r\n"[..]), 1 => Just(&b"\r"[..]), 4 => Just(&b"word"[..]),
        2 => Just("é".as_bytes()), 1 => Just("👍".as_bytes()), 1 => Just(&b"\xff"[..]), 1 => Just(&b"\xe2\x82"[..]),
        1 => Just(&b"\x1b[31m"[..]), 1 => Just(&b"\x1b]0;t\x07"[..]), 1 => Just(&b"\0"[..]), 1 => Just(&b"\x1bP"[..])
    ];
    proptest::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

fn stream() -> impl Strategy<Value = Stream> {
    prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)]
}

fn selection() -> impl Strategy<Value = Selection> {
    prop_oneof![Just(Selection::Both), stream().prop_map(Selection::Only)]
}

fn unit() -> impl Strategy<Value = (Unit, Render)> {
    prop_oneof![
        Just((Unit::Lines, Render::Clean)),
        Just((Unit::Chars, Render::Clean)),
        Just((Unit::Chars, Render::Raw)),
        Just((Unit::Bytes, Render::Raw))
    ]
}

/// Everything that was ever printed, in the unit, one element each; no eviction, no arithmetic.
fn model(all: &Ring, query: &ReadQuery) -> Vec<String> {
    let mut model = Vec::new();
    for line in all.lines_after(LineNo::START, query.selection) {
        let text = line.render(query.render);
        match query.unit {
            Unit::Lines => model.push(text.into_owned()),
            Unit::Chars => model
                .extend(text.chars().chain(line.line_end(query.render).chars()).map(String::from)),
            Unit::Bytes => {
                model.extend(line.text.iter().chain(line.terminator.as_bytes()).map(u8::to_string));
            }
        }
    }
    if let (Unit::Bytes, Selection::Only(stream)) = (query.unit, query.selection) {
        model.extend(all.partial(stream).iter().map(u8::to_string));
    }
    model
}

fn elements(content: &Content) -> Vec<String> {
    match content {
        Content::Lines(lines) => lines.iter().map(|line| line.text.clone()).collect(),
        Content::Chars(text) => text.chars().map(String::from).collect(),
        Content::Bytes(bytes) => bytes.iter().map(u8::to_string).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_read_is_a_slice_of_all_that_was_ever_printed(
        chunks in proptest::collection::vec((stream(), output()), 1..12),
        selection in selection(),
        (unit, render) in unit(),
        offset in -300i64..300,
        length in 1usize..200,
    ) {
        let mut ring = Ring::new(SMALL);
        let mut all = Ring::new(RingLimits { lines: 1 << 20, bytes: 1 << 20, ..SMALL });
        for (stream, bytes) in &chunks {
            ring.append(*stream, bytes, 0);
            all.append(*stream, bytes, 0);
        }
        let query = ReadQuery { selection, render, ..query(unit, offset, length) };
        let model = model(&all, &query);
        let reading = Reading::of(&ring, &query);
        prop_assert_eq!(reading.total, model.len() as u64);
        let size = |number: u64| usize::try_from(number).unwrap();
        let asked = if offset < 0 {
            model.len().saturating_sub(size(offset.unsigned_abs()))
        } else {
            size(offset.unsigned_abs())
        };
        let from = asked.max(size(reading.available_from));
        prop_assert_eq!(reading.offset, from as u64);
        let to = (from + length).min(model.len()).max(from);
        let expected = model.get(from..to).unwrap_or_default();
        prop_assert_eq!(elements(&reading.content), expected);
        prop_assert_eq!(reading.remaining(), model.len().saturating_sub(to) as u64);
        // Nothing that is kept is withheld.
        let kept = ring.lines_after(LineNo::START, selection).next().map(|line| line.line_no.value());
        let before = kept.map_or(ring.newest().value(), |first| first - 1);
        prop_assert_eq!(reading.available_from, all.extent(LineNo::new(before), selection, Measure::new(unit, render)));
    }

    #[test]
    fn what_is_kept_of_one_stream_is_what_a_plain_vec_holds(
        chunks in proptest::collection::vec(output(), 1..12),
        at in 0usize..300,
        length in 1usize..200,
    ) {
        let mut ring = Ring::new(RingLimits { lines: 5, bytes: 1024, line_bytes: 256 });
        let mut all: Vec<u8> = Vec::new();
        for bytes in &chunks {
            ring.append(Stream::Stdout, bytes, 0);
            all.extend(bytes);
        }
        let selection = Selection::Only(Stream::Stdout);
        let read = |unit| Reading::of(&ring, &ReadQuery { selection, ..query(unit, i64::try_from(at).unwrap(), length) });
        let Content::Bytes(bytes) = read(Unit::Bytes).content else { unreachable!() };
        let from = usize::try_from(read(Unit::Bytes).offset).unwrap();
        prop_assert_eq!(&bytes[..], all.get(from..(from + length).min(all.len())).unwrap_or_default());
        let mut lines: Vec<&[u8]> = all.split(|&byte| byte == b'\n').collect();
        // Bytes after the last line end are not a line yet.
        lines.pop();
        let from = usize::try_from(read(Unit::Lines).offset).unwrap();
        let expected: Vec<String> = lines
            .iter()
            .skip(from)
            .take(length)
            .map(|line| crate::clean(line.strip_suffix(b"\r").unwrap_or(line)).into_owned())
            .collect();
        prop_assert_eq!(elements(&read(Unit::Lines).content), expected);
        prop_assert_eq!(read(Unit::Lines).available_from, lines.len().saturating_sub(5) as u64);
    }

    #[test]
    fn small_pieces_joined_are_the_whole(bytes in output(), size in 1usize..9, clean in any::<bool>()) {
        let mut ring = Ring::new(RingLimits::default());
        ring.append(Stream::Stdout, &bytes, 0);
        ring.finish(Stream::Stdout, 0);
        let render = if clean { Render::Clean } else { Render::Raw };
        let whole = Reading::of(&ring, &ReadQuery { render, ..query(Unit::Chars, 0, 1 << 20) });
        let mut text = String::new();
        let mut at = 0;
        loop {
            let part = Reading::of(&ring, &ReadQuery { render, ..query(Unit::Chars, at, size) });
            let Content::Chars(piece) = &part.content else { unreachable!() };
            text.push_str(piece);
            at += i64::try_from(part.returned()).unwrap();
            if part.remaining() == 0 { break }
        }
        prop_assert_eq!(Content::Chars(text), whole.content);
    }
}

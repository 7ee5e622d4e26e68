//! Lines and screens of a job's output.

use sshjobs_output::{
    Content, LineNo, ReadQuery, Reading, Render, Ring, RingLimits, ScreenView, Selection, Stream,
    TerminalFilter, TerminalScreen, TerminalSize, Unit, clean, render,
};

/// Bytes become lines, and no byte is lost.
pub fn assembler(bytes: &[u8]) {
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
}

/// A terminal program draws its screen.
pub fn screen(bytes: &[u8]) {
    let size = |cols, rows| TerminalSize { cols, rows };
    // Not one column: there vt100 0.18 panics at a character that a variation selector makes wide. Jobs
    // continue with an empty screen then.
    for (cols, rows) in [(2, 1), (80, 24), (3, 50), (200, 2)] {
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
}

/// Output is made harmless.
pub fn renderer(bytes: &[u8]) {
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
}

/// No control but tab, nothing that reorders or hides text.
pub(super) fn assert_harmless(text: &str) {
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

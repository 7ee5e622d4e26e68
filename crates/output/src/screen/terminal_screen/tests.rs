use super::*;

const SIZE: TerminalSize = TerminalSize { cols: 20, rows: 4 };

fn shown(output: &[u8]) -> ScreenView {
    let mut screen = TerminalScreen::new(SIZE);
    screen.feed(output);
    screen.view()
}

fn texts(view: &ScreenView) -> Vec<&str> {
    view.rows.iter().map(|row| row.text.as_str()).collect()
}

#[test]
fn a_screen_shows_what_was_drawn_last() {
    let view = shown(b"one\r\ntwo\x1b[1;1HONE\x1b[3;5Hx");
    assert_eq!(texts(&view), ["ONE", "two", "    x", ""]);
    assert_eq!((view.cursor.row, view.cursor.col), (3, 6));
    assert!(view.cursor.is_visible && view.is_from_start && !view.is_alternate);
}

#[test]
fn the_alternate_screen_hides_the_other_one_until_it_is_left() {
    let mut screen = TerminalScreen::new(SIZE);
    screen.feed(b"shell\x1b[?1049h\x1b[Hmenu\x1b[?25l");
    let view = screen.view();
    assert!(view.is_alternate && !view.cursor.is_visible);
    assert_eq!(view.rows[0].text, "menu");
    screen.feed(b"\x1b[?1049l");
    assert_eq!(screen.view().rows[0].text, "shell");
}

#[test]
fn reversed_text_is_told_by_its_first_column() {
    let view = shown(b"a \x1b[7m< OK >\x1b[0m b \x1b[7mX\x1b[0m");
    let spans = &view.rows[0].reversed;
    assert_eq!(spans.len(), 2);
    assert_eq!((spans[0].col, spans[0].text.as_str()), (3, "< OK >"));
    assert_eq!((spans[1].col, spans[1].text.as_str()), (12, "X"));
}

#[test]
fn a_row_has_the_styles_that_the_same_line_of_a_log_has() {
    for line in [
        "plain",
        "ok \x1b[1;31mbad\x1b[0m \x1b[38;5;208mgood\x1b[m \x1b[38;2;1;2;3;44mx\x1b[m",
        "\x1b[7m selected \x1b[m after",
        "\x1b[3;4mtwo  words\x1b[m",
    ] {
        let view = shown(line.as_bytes());
        assert_eq!(
            view.rows[0].styled,
            crate::styled(line.as_bytes()),
            "{line:?}"
        );
    }
}

#[test]
fn a_change_of_colour_alone_is_one_for_those_who_see_colours() {
    let mut screen = TerminalScreen::new(SIZE);
    screen.feed(b"\x1b[31mone two\x1b[m");
    let before = screen.view();
    screen.feed(b"\x1b[H\x1b[32mone two\x1b[m");
    let after = screen.view();
    assert_eq!(after.rows[0].changed_in, before.rows[0].changed_in);
    assert!(after.rows[0].restyled_in > before.version);
}

#[test]
fn a_selected_item_on_a_background_of_its_own_stands_out() {
    // A box of dialog's: white, with a border and the selected item on blue.
    let box_of_three = b"\x1b[47m-------\r\n one   \r\n \x1b[44mtwo\x1b[47m   \r\n-------\x1b[m";
    let view = shown(box_of_three);

    let marked: Vec<Vec<&str>> = view
        .rows
        .iter()
        .map(|row| row.reversed.iter().map(|span| span.text.as_str()).collect())
        .collect();
    assert_eq!(marked, [vec![], vec![], vec!["two"], vec![]]);
}

#[test]
fn wide_combining_and_line_drawing_characters_have_their_cells() {
    let view = shown("漢字|e\u{301}|\x1b(0lqk\x1b(B".as_bytes());
    assert_eq!(view.rows[0].text, "漢字|e\u{301}|┌─┐");
    assert_eq!(view.cursor.col, 4 + 1 + 1 + 1 + 3 + 1);
}

#[test]
fn a_row_tells_the_version_in_which_it_changed() {
    let mut screen = TerminalScreen::new(SIZE);
    screen.feed(b"one\r\ntwo");
    let before = screen.view().version;
    screen.feed(b"\x1b[1;1HONE");
    let view = screen.view();
    let changed: Vec<bool> = view.rows.iter().map(|row| row.changed_in > before).collect();
    assert_eq!(changed, [true, false, false, false]);
}

#[test]
fn any_division_of_the_output_gives_the_same_rows() {
    let output = "\x1b]0;title\x07\x1b(0lq\x1b[2;2H漢\x1b[7mX\x1b[m\x1b[6n\r\ne\u{301}".as_bytes();
    let mut whole = TerminalScreen::new(SIZE);
    whole.feed(output);
    for cut in 1..output.len() {
        let mut screen = TerminalScreen::new(SIZE);
        screen.feed(&output[..cut]);
        screen.feed(&output[cut..]);
        assert_eq!(texts(&screen.view()), texts(&whole.view()), "cut at {cut}");
        assert_eq!(screen.view().title, "title");
        assert_eq!(screen.take_answers(), b"\x1b[2;5R");
    }
}

#[test]
fn questions_about_the_terminal_are_answered_once() {
    let mut screen = TerminalScreen::new(SIZE);
    screen.feed(b"\x1b[c\x1b[0c\x1b[>c\x1b[5n\x1b[3;4H\x1b[6n\x1b[?6n");
    let answers = String::from_utf8(screen.take_answers()).unwrap();
    assert_eq!(
        answers,
        "\x1b[?62;22c\x1b[?62;22c\x1b[>1;0;0c\x1b[0n\x1b[3;4R\x1b[?3;4R"
    );
    assert!(screen.take_answers().is_empty());
}

#[test]
fn answers_to_endless_questions_are_bounded() {
    let mut screen = TerminalScreen::new(SIZE);
    screen.feed(&b"\x1b[c".repeat(100_000));
    assert!(screen.take_answers().len() <= 4 << 10);
}

#[test]
fn a_title_has_no_control_characters_and_an_end() {
    let view = shown(format!("\x1b]2;a\u{202e}b{}\x07", "x".repeat(500)).as_bytes());
    assert!(view.title.starts_with("abx"), "{}", view.title);
    assert_eq!(view.title.chars().count(), 200);
}

#[test]
fn characters_that_could_hide_text_are_not_shown() {
    let view = shown("a\u{202e}b\u{e0041}c\u{200b}".as_bytes());
    assert_eq!(view.rows[0].text, "abc");
}

#[test]
fn a_screen_that_is_redrawn_elsewhere_is_the_same() {
    let output = b"\x1b[?1h\x1b[?2004hshell\x1b[?1049h\x1b[2;3H\x1b[31;7mmenu\x1b[m\x1b[4;1H";
    let mut screen = TerminalScreen::new(SIZE);
    screen.feed(output);
    let mut other = TerminalScreen::new(SIZE);
    other.feed(&screen.redraw());
    let mine = screen.view();
    let theirs = other.view();
    assert_eq!(texts(&mine), texts(&theirs));
    assert_eq!(mine.cursor, theirs.cursor);
    assert_eq!(mine.rows[1].reversed, theirs.rows[1].reversed);
    assert_eq!(mine.rows[1].styled, theirs.rows[1].styled);
    assert!(theirs.is_alternate);
}

#[test]
fn a_smaller_and_a_larger_terminal_keep_what_fits() {
    let mut screen = TerminalScreen::new(SIZE);
    screen.feed(b"one two three\r\nfour");
    screen.resize(TerminalSize { cols: 7, rows: 2 }, 1);
    assert_eq!(texts(&screen.view()), ["one two", "four"]);
    screen.resize(TerminalSize { cols: 20, rows: 4 }, 2);
    assert_eq!(screen.view().rows.len(), 4);
}

#[test]
fn the_smallest_and_the_largest_terminal_take_any_output() {
    for (cols, rows) in [(1, 1), (1, 1000), (1000, 1), (2, 2)] {
        let mut screen = TerminalScreen::new(TerminalSize { cols, rows });
        screen.feed(
            "漢字e\u{301}\x1b[999;999H漢\x1b[5;1r\x1b[L\x1b[M\x1b[@\x1b[P\x1b[S\x1b[T\x1bM\r\n"
                .as_bytes(),
        );
        screen.view();
        screen.redraw();
    }
}

#[test]
fn a_character_is_repeated() {
    let mut screen = TerminalScreen::new(TerminalSize { cols: 10, rows: 3 });
    screen.feed(b"=\x1b[4b|\r\n-\x1b[65535b");
    // `-` is printed once and repeated ten times, which continues in the third row.
    assert_eq!(texts(&screen.view()), ["=====|", "----------", "-"]);
}

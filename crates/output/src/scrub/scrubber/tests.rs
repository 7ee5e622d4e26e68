use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE};
use proptest::prelude::*;

use super::*;

const VALUE: &str = "it's a/b+c?\"$x\" %41\\ü";

fn scrubber(value: &str) -> Scrubber {
    let mut scrubber = Scrubber::default();
    scrubber.hide(HiddenSecret::new("db", value.into()));
    scrubber
}

fn scrub_pieces<'a>(mut scrubber: Scrubber, pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut all = Vec::new();
    for piece in pieces {
        all.extend(scrubber.take(piece));
    }
    all.extend(scrubber.finish());
    String::from_utf8(all).unwrap()
}

fn scrub(value: &str, text: &str) -> String {
    scrub_pieces(scrubber(value), [text.as_bytes()])
}

/// Checks output of "before VALUE after" that came in pieces: up to eight bytes of the value may have been shown before it was
/// known to be one, in place of the first bytes of its replacement.
fn assert_hidden(scrubbed: &str, value: &str) {
    let whole = "before [secret db] after";
    let (before, after) = ("before ".len(), "db] after");
    assert_eq!(scrubbed.len(), whole.len(), "{scrubbed:?}");
    assert!(scrubbed.ends_with(after), "{scrubbed:?}");
    let shown = scrubbed.bytes().skip(before).zip(value.bytes());
    let shown = shown.take_while(|(one, other)| one == other).count();
    assert!(shown <= value.len() / 3, "{shown} bytes of {value}");
    assert_eq!(
        scrubbed.split_at(before + shown).1,
        whole.split_at(before + shown).1
    );
}

/// Forms in which programs print a value.
fn printed(value: &str) -> Vec<String> {
    let percent = |keep: &str, upper: bool| {
        let encode = |byte: u8| match char::from(byte) {
            c if c.is_ascii_alphanumeric() || keep.contains(c) => c.to_string(),
            _ if upper => format!("%{byte:02X}"),
            _ => format!("%{byte:02x}"),
        };
        value.bytes().map(encode).collect::<String>()
    };
    let backslashes = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_string()
        } else {
            format!("\\{c}")
        }
    };
    vec![
        value.to_owned(),
        BASE64_STANDARD.encode(value),
        BASE64_URL_SAFE.encode(value),
        BASE64_STANDARD.encode(value).trim_end_matches('=').to_owned(),
        percent("-._~", true),
        percent("-._~", false),
        percent("-_.!~*'()", true),
        percent("*-._", true).replace("%20", "+"),
        format!("'{}'", value.replace('\'', r"'\''")),
        format!("'{}'", value.replace('\'', r#"'"'"'"#)),
        value
            .chars()
            .map(|c| {
                if c.is_ascii() {
                    backslashes(c)
                } else {
                    c.to_string()
                }
            })
            .collect(),
        serde_json::to_string(value).unwrap().trim_matches('"').to_owned(),
    ]
}

#[test]
fn every_form_becomes_the_name_wherever_it_is_split() {
    for form in printed(VALUE) {
        let text = format!("before {form} after");
        for at in 0..=text.len() {
            let (one, other) = text.as_bytes().split_at(at);
            let scrubbed = scrub_pieces(scrubber(VALUE), [one, other]);
            assert_hidden(&scrubbed, &form);
        }
        let bytes: Vec<[u8; 1]> = text.bytes().map(|byte| [byte]).collect();
        let pieces = bytes.iter().map(<[u8; 1]>::as_slice);
        assert_hidden(&scrub_pieces(scrubber(VALUE), pieces), &form);
    }
}

#[test]
fn a_secret_is_found_across_the_ends_of_lines() {
    for line_end in ["\n", "\r\n"] {
        for form in printed("hunter2-and-more") {
            for at in 1..form.len() {
                let (one, other) = form.split_at(at);
                let text = format!("a {one}{line_end}{other}\nb\n");
                // A line end after the first byte is not skipped.
                let kept = if at == 1 {
                    format!("{one}{line_end}")
                } else {
                    String::new()
                };
                let expected = format!("a {kept}[secret db]\nb\n");
                assert_eq!(scrub("hunter2-and-more", &text), expected, "{text:?}");
            }
        }
    }
    let long = "x".repeat(50) + "middle" + &"y".repeat(80);
    let wrapped: Vec<String> = BASE64_STANDARD
        .encode(&long)
        .as_bytes()
        .chunks(76)
        .map(|line| String::from_utf8(line.to_vec()).unwrap())
        .collect();
    assert_eq!(scrub(&long, &(wrapped.join("\n") + "\n")), "[secret db]\n");
}

#[test]
fn a_secret_of_several_lines_is_found_however_its_lines_end() {
    let value = "-----BEGIN KEY-----\nabcd\nefgh\n-----END KEY-----";
    assert_eq!(scrub(value, &format!("{value}\n")), "[secret db]\n");
    assert_eq!(scrub(value, &value.replace('\n', "\r\n")), "[secret db]");
    assert_eq!(scrub(value, &value.replace('\n', "\\n")), "[secret db]");
    assert_eq!(scrub(value, "abcd -----END KEY-----"), "abcd [secret db]");
}

#[test]
fn a_secret_is_found_inside_of_a_longer_base64_text() {
    for user in ["", "u", "us", "use", "user"] {
        for end in ["", "1", "12"] {
            let text = BASE64_STANDARD.encode(format!("{user}:correct horse battery{end}"));
            let scrubbed = scrub("correct horse battery", &text);
            assert!(scrubbed.contains("[secret db]"), "{text} {scrubbed}");
            assert!(scrubbed.len() < "[secret db]".len() + 14, "{scrubbed}");
        }
    }
}

#[test]
fn other_text_stays_as_it_is_and_only_a_possible_start_is_held_back() {
    let mut scrubber = scrubber("hunter2");
    assert_eq!(scrubber.take(b"Password: "), b"Password: ");
    assert_eq!(scrubber.take(b"hunt"), b"");
    assert_eq!(scrubber.take(b"ing\n\xff\x00"), b"hunting\n\xff\x00");
    assert_eq!(scrubber.take(b"the hun"), b"the ");
    assert_eq!(scrubber.finish(), b"hun");
}

#[test]
fn less_than_a_third_of_a_secret_is_shown_at_once_and_more_after_a_while() {
    let mut scrubber = scrubber("hunter2");
    assert_eq!(scrubber.take(b"a h"), b"a h");
    assert_eq!(scrubber.take(b"u"), b"u");
    assert_eq!(scrubber.take(b"n"), b"");
    assert!(scrubber.holds_bytes());
    assert_eq!(scrubber.release(), b"n");
    assert!(!scrubber.holds_bytes());
    // It was no secret.
    assert_eq!(scrubber.take(b"t it hunte"), b"t it ");
    assert_eq!(scrubber.release(), b"hun");
    assert_eq!(scrubber.release(), b"");
    // It was one.
    assert_eq!(scrubber.take(b"r2 and"), b"cret db] and");
    assert_eq!(scrubber.take(b"hunter"), b"");
}

#[test]
fn what_is_released_is_short_and_has_no_whole_secret_and_no_line_end() {
    let mut long = scrubber("a-long-secret-of-many-words");
    assert_eq!(long.take(b"a-long-secret"), b"");
    assert_eq!(long.release(), b"a-long-s");
    assert_eq!(long.release(), b"");
    assert_eq!(long.take(b"-of-many-words."), b"db].");

    let mut several = scrubber("hunter2");
    several.hide(HiddenSecret::new("long", "hunter2000".into()));
    several.hide(HiddenSecret::new("around", "to hunter2 and back".into()));
    assert_eq!(several.take(b"hunter2"), b"");
    assert_eq!(several.release(), b"");
    assert_eq!(several.take(b"!"), b"[secret db]!");
    assert_eq!(several.take(b"to hunter2"), b"");
    assert_eq!(several.release(), b"to ");
    assert_eq!(several.take(b" or"), b"[secret db] or");

    let mut lines = scrubber("two\nlines");
    assert_eq!(lines.take(b"two\nli"), b"");
    assert_eq!(lines.release(), b"two");
    assert_eq!(lines.take(b"on"), b"\nlion");
}

#[test]
fn a_line_that_ends_with_the_first_byte_of_a_secret_is_shown_at_once() {
    let mut scrubber = scrubber("yellow-submarine");
    assert_eq!(scrubber.take(b"ready\n"), b"ready\n");
    assert_eq!(scrubber.take(b"ellow-submarine\n"), b"[secret db]\n");
    assert_eq!(scrubber.take(b"ready\r\nelse\n"), b"ready\r\nelse\n");
}

#[test]
fn escapes_of_json_and_shells_are_found() {
    for (value, printed) in [
        ("a&b<c>d", r"a\u0026b\u003cc\u003Ed"),
        ("pässword", r"p\u00e4ssword"),
        ("pä\"ss", r#"p\u00e4\"ss"#),
        ("pä\nss", r"p\u00E4\nss"),
        ("pässword", r"p\303\244ssword"),
        ("smile 😀 more", r"smile \ud83d\ude00 more"),
        ("it's a\nb\"c", r#"it\'s a\nb"c"#),
        ("tab\there", r"tab\there"),
        ("two\nlines & more", "two%0Alines%20%26%20more"),
        ("pa$$ word", "pa\x1b[01;31m\x1b[K$$\x1b[m\x1b[K word"),
        ("wrapped", "wrap \rped"),
        ("back\\slash", r"back\\slash"),
        ("user\n\n\npass", "user\r\n\r\n\r\npass"),
    ] {
        let scrubbed = scrub(value, printed);
        assert!(
            scrubbed.starts_with("[secret db]"),
            "{value:?} {printed} {scrubbed}"
        );
    }
}

#[test]
fn what_a_terminal_does_not_show_hides_no_secret() {
    let value = "hunter2";
    for hidden in [
        "\x1b[31m",
        "\x1b[38;2;10;20;30m",
        // tput sgr0
        "\x1b(B\x1b[m",
        "\x1b7",
        "\x1b]8;;https://example.com/a?b=c\x1b\\",
        "\x1b]8;;\x07",
        "\x1b]0;a title\x07\x1b[0m",
        "\x1b[m\x0f",
        "\0",
        "\x05\x7f",
        "\u{200b}",
        "\u{ad}\u{feff}",
        "\x1b[1\x18",
        "\x1b\x1b[m",
    ] {
        for at in 1..value.len() {
            let (one, other) = value.split_at(at);
            let text = format!("a {one}{hidden}{other} b");
            for cut in 0..=text.len() {
                let (first, second) = text.as_bytes().split_at(cut);
                let scrubbed = scrub_pieces(scrubber(value), [first, second]);
                assert_eq!(scrubbed.len(), "a [secret db] b".len());
                assert!(scrubbed.ends_with("db] b"), "{text:?} cut at {cut}");
            }
        }
    }
    let bold: String = value.chars().map(|c| format!("{c}\x08{c}")).collect();
    let underlined: String = value.chars().map(|c| format!("_\x08{c}")).collect();
    assert_eq!(scrub(value, &format!("{bold} b")), "[secret db]\x082 b");
    assert_eq!(
        scrub(value, &format!("{underlined} b")),
        "_\x08[secret db] b"
    );
    // A sequence without an end hides nothing that comes later.
    let endless = format!("h\x1b]{}unter2", "x".repeat(600));
    assert_eq!(scrub(value, &endless), endless);
}

#[test]
fn the_longest_secret_is_named_and_each_by_its_own_name() {
    let mut scrubber = Scrubber::default();
    scrubber.hide(HiddenSecret::new("short", "hunter2".into()));
    scrubber.hide(HiddenSecret::new("long", "hunter2000".into()));
    let text = b"hunter2000 hunter2 hunter20\n";
    let scrubbed = scrub_pieces(scrubber, [text.as_slice()]);
    assert_eq!(scrubbed, "[secret long] [secret short] [secret short]0\n");
}

#[test]
fn a_secret_that_is_hidden_later_is_found_in_bytes_that_come_later() {
    let mut scrubber = Scrubber::default();
    assert_eq!(scrubber.take(b"hunter2 "), b"hunter2 ");
    scrubber.hide(HiddenSecret::new("db", "hunter2".into()));
    assert_eq!(scrubber.take(b"hunter2 "), b"[secret db] ");
}

#[test]
fn debug_shows_no_value() {
    let scrubber = scrubber("hunter2");
    let shown = format!(
        "{scrubber:?} {:?}",
        HiddenSecret::new("db", "hunter2".into())
    );
    assert!(
        shown.contains("db") && !shown.contains("hunter2"),
        "{shown}"
    );
}

/// Pieces of output in which the values below may be found, split and joined.
const WORDS: [&str; 26] = [
    "hunter2", "hunter", "hun", "ter2", "aHVudGVy", "Mg==", "a b", "\\c%", "d", "x\ny", "\nzz",
    "\n", "h", "%", "%0A", "%68", "\\", "\\n", "\\x68", "x", "\r\n", " ", "\r", "\x1b", "\x1b[31m",
    "m",
];
const VALUES: [&str; 4] = ["hunter2", "a b\\c%d", "x\ny\nzz", "\x1b[31mred \""];

proptest! {
    #[test]
    fn neither_secrecy_nor_length_depends_on_the_pieces(
        value in prop::sample::select(VALUES.to_vec()),
        words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..40),
        cuts in prop::collection::vec(0usize..200, 0..20),
        releases in any::<bool>(),
    ) {
        let text = words.concat();
        let whole = scrub(value, &text);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut scrubber = scrubber(value);
        let mut all = Vec::new();
        for ends in cuts.windows(2) {
            all.extend(scrubber.take(&text.as_bytes()[ends[0]..ends[1]]));
            if releases {
                all.extend(scrubber.release());
            }
        }
        all.extend(scrubber.finish());
        let all = String::from_utf8(all).unwrap();
        prop_assert_eq!(all.len(), whole.len());
        prop_assert_eq!(all.matches('\n').count(), whole.matches('\n').count());
        prop_assert!(!whole.contains(value) && !all.contains(value));
    }
}

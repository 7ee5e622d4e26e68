//! Quotes text for POSIX shells, and for other login shells that start a POSIX shell.

use std::fmt::Write;

/// The kind of program that runs exec strings on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginShell {
    /// A POSIX shell: a job's prelude is part of its own command line, which costs nothing.
    Posix,
    /// Another shell that can start `/bin/sh` (csh, fish): the prelude runs in that, the command in
    /// the login shell.
    Foreign,
    /// A forced command, a router or a restricted shell: it gets the bare command and nothing else.
    Bare,
}

/// Quotes `text` for a POSIX shell, as one word. Nothing in it keeps a special meaning: not quotes,
/// `$`, spaces or newlines.
///
/// ```
/// assert_eq!(sshjobs_job::quote("it's $HOME"), r"'it'\''s $HOME'");
/// ```
pub fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Words that a POSIX shell does not take for the name of a program, also without quotes: XCU 2.4, and those
/// of common shells.
const RESERVED: [&str; 24] = [
    "!", ".", ":", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "foreach", "function", "if", "in", "select", "then", "time", "until", "while", "{",
];

/// Like [`quote`], but leaves a word unchanged that means the same without quotes, so that a command line
/// stays readable.
///
/// ```
/// use sshjobs_job::quote_word;
/// assert_eq!(["ls", "-l", "a b", "if", ""].map(quote_word), ["ls", "-l", "'a b'", "'if'", "''"]);
/// ```
pub fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./,:@%+-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) && !RESERVED.contains(&word) {
        word.to_owned()
    } else {
        quote(word)
    }
}

/// The words of a line in which results of [`quote_word`] are joined by spaces. `None` if the line was made in
/// another way.
///
/// ```
/// use sshjobs_job::unquote_words;
/// assert_eq!(unquote_words(r"echo 'a b' 'it'\''s'").unwrap(), ["echo", "a b", "it's"]);
/// assert_eq!(unquote_words("echo $HOME"), None);
/// ```
pub fn unquote_words(line: &str) -> Option<Vec<String>> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let word = words.last_mut()?;
        match character {
            '\'' => is_quoted = !is_quoted,
            '\\' if !is_quoted => word.push(characters.next()?),
            ' ' if !is_quoted => words.push(String::new()),
            character => word.push(character),
        }
    }
    let same: Vec<String> = words.iter().map(|word| quote_word(word)).collect();
    (same.join(" ") == line).then_some(words)
}

/// A POSIX shell script as an exec string for a host with this login shell.
pub fn for_shell(script: String, shell: LoginShell) -> String {
    match shell {
        LoginShell::Posix | LoginShell::Bare => script,
        LoginShell::Foreign => format!(
            "exec /bin/sh -c 'eval \"$(printf %b \"{}\")\"'",
            inert(&script)
        ),
    }
}

/// Like [`inert`], without spaces: one word of a line.
pub(crate) fn inert_word(text: &str) -> String {
    inert(text).replace(' ', r"\0040")
}

/// Escapes `text` for printf's `%b`, in characters that mean the same to every shell. Quotes are
/// not enough: within quotes `!` and newlines keep their meaning in csh, and backslashes in fish.
pub(crate) fn inert(text: &str) -> String {
    inert_bytes(text.as_bytes())
}

/// Like [`inert`], for bytes that need not be UTF-8, such as file names.
pub fn inert_bytes(bytes: &[u8]) -> String {
    let mut inert = String::with_capacity(bytes.len() * 2);
    for &byte in bytes {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b' '
            | b'_'
            | b'.'
            | b','
            | b'/'
            | b':'
            | b'='
            | b'+'
            | b'-' => {
                inert.push(char::from(byte));
            }
            // Three digits: after fewer, `%b` would read a following digit as part of the number.
            other => write!(inert, "\\0{other:03o}").expect("a string takes all"),
        }
    }
    inert
}

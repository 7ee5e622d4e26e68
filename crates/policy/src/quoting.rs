//! Quotes values of templates for the login shell of a host, whichever shell that is.

/// Quotes a text without control characters as one word, for sh, bash, dash, ksh, zsh, csh, tcsh and
/// fish alike.
///
/// It escapes each special ASCII character by itself: within quotes `!` keeps its meaning in csh, and a
/// backslash in fish. Other characters are quoted: fish takes a Unicode space for the end of a word, and a shell
/// with a locale such as GBK takes the last byte of a character and a backslash after it for one character.
pub fn quote_for_any_shell(text: &str) -> String {
    if text.is_empty() {
        return "''".to_owned();
    }
    let mut quoted = String::with_capacity(text.len() * 2);
    let mut is_quoted = false;
    for c in text.chars() {
        let must_be_quoted = !c.is_ascii();
        if must_be_quoted != is_quoted {
            quoted.push('\'');
            is_quoted = must_be_quoted;
        }
        let is_plain = c.is_ascii_alphanumeric() || "_-./,:@+".contains(c);
        if c.is_ascii() && !is_plain {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    if is_quoted {
        quoted.push('\'');
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped_one_by_one() {
        for (text, quoted) in [
            ("nginx", "nginx"),
            ("", "''"),
            ("it's $HOME", r"it\'s\ \$HOME"),
            (r"a\b!", r"a\\b\!"),
            ("grün", "gr'ü'n"),
            ("東;id", r"'東'\;id"),
            ("é", "'é'"),
            ("\u{3000}-v", "'\u{3000}'-v"),
            ("~x", r"\~x"),
            ("%self", r"\%self"),
        ] {
            assert_eq!(quote_for_any_shell(text), quoted);
        }
    }
}

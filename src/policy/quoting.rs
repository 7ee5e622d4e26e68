//! Quotes values of templates for the login shell of a host, whichever shell that is.

/// Quotes a text without control characters as one word, for sh, bash, dash, ksh, zsh, csh, tcsh and
/// fish alike.
///
/// It escapes each special character by itself: within quotes `!` keeps its meaning in csh, and
/// a backslash in fish. An empty pair of quotes follows characters outside ASCII: a shell with a locale
/// such as GBK takes the last byte of such a character and a backslash after it for one character.
pub fn quote_for_any_shell(text: &str) -> String {
    if text.is_empty() {
        return "''".to_owned();
    }
    let mut quoted = String::with_capacity(text.len() * 2);
    let mut is_after_ascii = true;
    for c in text.chars() {
        if c.is_ascii() && !is_after_ascii {
            quoted.push_str("''");
        }
        is_after_ascii = c.is_ascii();
        let is_plain = c.is_ascii_alphanumeric() || "_-./,:@+".contains(c);
        // No shell has a meaning for characters outside ASCII, and some can't escape them.
        if c.is_ascii() && !is_plain {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    if !is_after_ascii {
        // Text of the template may follow.
        quoted.push_str("''");
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
            ("grün", "grü''n"),
            ("東;id", r"東''\;id"),
            ("é", "é''"),
            ("~x", r"\~x"),
            ("%self", r"\%self"),
        ] {
            assert_eq!(quote_for_any_shell(text), quoted);
        }
    }
}

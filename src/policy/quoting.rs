//! Quotes values of templates for the login shell of a host, whichever shell that is.

/// Quotes a text without control characters as one word, for sh, bash, dash, ksh, zsh, csh, tcsh and
/// fish alike.
///
/// It escapes each special character by itself: within quotes `!` keeps its meaning in csh, and
/// a backslash in fish.
pub fn quote_for_any_shell(text: &str) -> String {
    if text.is_empty() {
        return "''".to_owned();
    }
    let mut quoted = String::with_capacity(text.len() * 2);
    for c in text.chars() {
        let is_plain = c.is_ascii_alphanumeric() || "_-./,:@+".contains(c);
        // No shell has a meaning for characters outside ASCII, and some can't escape them.
        if c.is_ascii() && !is_plain {
            quoted.push('\\');
        }
        quoted.push(c);
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
            ("grün", "grün"),
            ("~x", r"\~x"),
            ("%self", r"\%self"),
        ] {
            assert_eq!(quote_for_any_shell(text), quoted);
        }
    }
}

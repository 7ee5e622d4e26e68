/// Separates a member's name from its line. A host name has no space.
const SEPARATOR: &str = ": ";

/// A member's line as it appears in the log of its fleet.
pub fn prefixed(member: &str, text: &str) -> String {
    format!("{member}{SEPARATOR}{text}")
}

/// Splits a line of a fleet's log into member and text.
pub fn member_of(line: &str) -> Option<(&str, &str)> {
    line.split_once(SEPARATOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_knows_its_member_whatever_is_in_it() {
        for text in ["", "x", "a: b", ": ", "  "] {
            assert_eq!(
                member_of(&prefixed("root@::1", text)),
                Some(("root@::1", text))
            );
        }
    }
}

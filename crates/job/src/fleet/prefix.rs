/// Separates a member's name from its line. A host name has no space.
const SEPARATOR: &str = ": ";

/// A member's line as it is shown among the lines of its fleet.
pub fn prefixed(member: &str, text: &str) -> String {
    format!("{member}{SEPARATOR}{text}")
}

/// Splits a line from a log of an earlier version, in which a line has no member but begins with
/// the member's name. Only to resume such a fleet.
pub fn split_old_line(line: &str) -> Option<(&str, &str)> {
    line.split_once(SEPARATOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_line_is_split_after_its_members_name() {
        for text in ["", "x", "a: b", ": ", "  "] {
            assert_eq!(
                split_old_line(&prefixed("root@::1", text)),
                Some(("root@::1", text))
            );
        }
    }
}

//! Ranges of host names, `web[1-3,7]`: folding and expanding.

use std::collections::BTreeMap;

/// Joins names as people write them: consecutive numbers become a range, `web[1-3,7]`. Other names
/// are separated by commas. No word with ranges is longer than [`unfold`] accepts.
pub fn fold<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut families: BTreeMap<Family<'_>, Vec<u64>> = BTreeMap::new();
    let mut others = Vec::new();
    for name in names {
        match numbered(name) {
            Some((family, number)) => families.entry(family).or_default().push(number),
            None => others.push(name.to_owned()),
        }
    }
    let mut folded: Vec<String> = families
        .into_iter()
        .flat_map(|(family, numbers)| family.words(numbers))
        .chain(others)
        .collect();
    folded.sort_unstable();
    folded.dedup();
    folded.join(",")
}

/// Maximum digits of a number in a range: those of the largest `u64`.
const MOST_DIGITS: usize = 20;

/// Names that differ only in their last number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Family<'a> {
    before: &'a str,
    after: &'a str,
    /// Digits of the numbers if they have leading zeros, which a range must keep; otherwise 0.
    width: usize,
}

/// The family and the number of a name.
fn numbered(name: &str) -> Option<(Family<'_>, u64)> {
    let end = name.rfind(|c: char| c.is_ascii_digit())? + 1;
    let (head, after) = name.split_at(end);
    let digits = head.len() - head.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (before, number) = head.split_at(head.len() - digits);
    let width = if number.starts_with('0') && digits > 1 {
        digits
    } else {
        0
    };
    let is_plain = !name.contains(['[', ']', ',']) && digits <= MOST_DIGITS;
    // The last number of an IPv4 address does not count hosts.
    let is_address = before.ends_with('.');
    // So that each word has room for a range.
    let is_long = name.len() > LONGEST / 2;
    if !is_plain || is_address || is_long {
        return None;
    }
    let family = Family {
        before,
        after,
        width,
    };
    Some((family, number.parse().ok()?))
}

impl Family<'_> {
    /// Folds the names with these numbers into words of at most [`LONGEST`] bytes.
    fn words(self, mut numbers: Vec<u64>) -> Vec<String> {
        let Family {
            before,
            after,
            width,
        } = self;
        numbers.sort_unstable();
        numbers.dedup();
        if let [number] = numbers[..] {
            return vec![format!("{before}{number:0width$}{after}")];
        }
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        let mut words = Vec::new();
        let mut in_brackets = String::new();
        for (first, last) in ranges {
            let range = if first == last {
                format!("{first:0width$}")
            } else {
                format!("{first:0width$}-{last:0width$}")
            };
            let bytes = before.len() + after.len() + in_brackets.len() + range.len() + "[,]".len();
            if bytes > LONGEST {
                words.push(format!("{before}[{in_brackets}]{after}"));
                in_brackets.clear();
            }
            if !in_brackets.is_empty() {
                in_brackets.push(',');
            }
            in_brackets.push_str(&range);
        }
        words.push(format!("{before}[{in_brackets}]{after}"));
        words
    }
}

/// Why a word with ranges does not name hosts.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum RangeError {
    /// A range ends before it begins.
    #[error("a range in {0} ends before it begins")]
    Backwards(String),
    /// The text in brackets is neither a range nor an IPv6 address.
    #[error("{0:?} has no valid range in its brackets")]
    Malformed(String),
    /// Too long for a host name or a range.
    #[error("a host name or range of {0} bytes is too long")]
    TooLong(usize),
    /// The ranges stand for too many names.
    #[error("{0} stands for more than {MOST} hosts")]
    TooMany(String),
}

/// Maximum names that one word may stand for.
pub const MOST: usize = 10_000;
/// The longest word that may have ranges, in bytes.
const LONGEST: usize = 512;

/// Splits a list at its commas, except those in brackets.
pub fn words(list: &str) -> impl Iterator<Item = &str> {
    let mut is_within = false;
    let words = list.split(move |c| {
        is_within = (is_within || c == '[') && c != ']';
        c == ',' && !is_within
    });
    words.map(str::trim).filter(|word| !word.is_empty())
}

/// The names that a word stands for, with ranges as [`fold`] writes them. An IPv6 address in
/// brackets is part of a name.
pub fn unfold(word: &str) -> Result<Vec<String>, RangeError> {
    // Also limits the recursion below, which is one call for each pair of brackets.
    if word.len() > LONGEST {
        return Err(RangeError::TooLong(word.len()));
    }
    if !word.contains(['[', ']']) || holds_address(word) {
        return Ok(vec![word.to_owned()]);
    }
    let malformed = || RangeError::Malformed(word.to_owned());
    let (before, ranges, after) = bracketed(word).ok_or_else(malformed)?;
    // An error names the whole word, not only its rest.
    let tails = unfold(after).map_err(|error| match error {
        RangeError::Backwards(_) => RangeError::Backwards(word.to_owned()),
        RangeError::Malformed(_) => malformed(),
        RangeError::TooMany(_) | RangeError::TooLong(_) => RangeError::TooMany(word.to_owned()),
    })?;
    let mut names = Vec::new();
    for (first, last, width) in ranges {
        if last < first {
            return Err(RangeError::Backwards(word.to_owned()));
        }
        let count = usize::try_from(last - first).unwrap_or(MOST).saturating_add(1);
        // Before the range is expanded, so that a large one takes no memory.
        if count.saturating_mul(tails.len()).saturating_add(names.len()) > MOST {
            return Err(RangeError::TooMany(word.to_owned()));
        }
        for number in first..=last {
            names.extend(tails.iter().map(|tail| format!("{before}{number:0width$}{tail}")));
        }
    }
    Ok(names)
}

/// Whether a word has an IPv6 address in brackets, as `[::1]` and `me@[::1]:22`.
pub fn holds_address(word: &str) -> bool {
    let inner = word.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let is_at_end = |rest: &str| {
        let port = rest.trim_end_matches('/').strip_prefix(':');
        matches!(rest, "" | "/")
            || port.is_some_and(|port| port.chars().all(|c| c.is_ascii_digit()))
    };
    if !inner.is_some_and(|(_, rest)| is_at_end(rest)) {
        return false;
    }
    // `Ipv6Addr` does not parse a scope, such as `%eth0`.
    let address =
        inner.map(|(inner, _)| inner.split_once('%').map_or(inner, |(address, _)| address));
    address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok())
}

/// First and last number of a range, and their width if they have leading zeros.
type Range = (u64, u64, usize);

/// Splits a word around its first brackets that contain ranges.
fn bracketed(word: &str) -> Option<(&str, Vec<Range>, &str)> {
    let (before, rest) = word.split_once('[')?;
    if before.contains(']') {
        return None;
    }
    let (ranges, after) = rest.split_once(']')?;
    let ranges = ranges
        .split(',')
        .map(|text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let width = if first.starts_with('0') && first.len() > 1 {
                first.len()
            } else {
                0
            };
            // `parse` alone would accept a plus sign. It rejects an empty text.
            if !is_number(first) || !is_number(last) {
                return None;
            }
            Some((first.parse().ok()?, last.parse().ok()?, width))
        })
        .collect::<Option<Vec<Range>>>()?;
    Some((before, ranges, after))
}

fn is_number(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_that_follow_each_other_are_a_range() {
        for (names, folded) in [
            (&["web1", "web2", "web3", "web7"][..], "web[1-3,7]"),
            (&["web1"], "web1"),
            (&["db", "web2", "web1"], "db,web[1-2]"),
            (&["n01", "n02", "n10", "n9"], "n[01-02],n[9-10]"),
            (&["a1.example.com", "a2.example.com"], "a[1-2].example.com"),
            (&["10.0.0.1", "10.0.0.2"], "10.0.0.1,10.0.0.2"),
            (&["x", "x"], "x"),
            (&["99999999999999999999999"], "99999999999999999999999"),
        ] {
            assert_eq!(fold(names.iter().copied()), folded);
        }
    }

    #[test]
    fn many_numbers_are_several_words_none_too_long() {
        let names: Vec<String> = (0..1000).map(|number| format!("web{}", 2 * number)).collect();

        let folded = fold(names.iter().map(String::as_str));

        assert!(words(&folded).count() > 1);
        assert!(words(&folded).all(|word| word.len() <= LONGEST), "{folded}");
        let again: BTreeSet<String> = unfolded(&folded).into_iter().collect();
        assert_eq!(again, names.into_iter().collect());
    }

    fn unfolded(list: &str) -> Vec<String> {
        words(list).flat_map(|word| unfold(word).unwrap()).collect()
    }

    #[test]
    fn a_range_stands_for_its_names() {
        for (list, names) in [
            ("web[1-3,7]", &["web1", "web2", "web3", "web7"][..]),
            ("n[09-10].lan,db", &["n09.lan", "n10.lan", "db"]),
            ("!r[1-2]n[1-2]", &["!r1n1", "!r1n2", "!r2n1", "!r2n2"]),
            ("root@[::1],[fe80::1]:22", &["root@[::1]", "[fe80::1]:22"]),
            ("web[5]", &["web5"]),
        ] {
            assert_eq!(unfolded(list), names, "{list}");
        }
        let long = "[1]".repeat(100_000);
        assert_eq!(unfold(&long), Err(RangeError::TooLong(long.len())));
        let zeros = "0".repeat(70_000);
        assert_eq!(fold([zeros.as_str()]), zeros);
        assert_eq!(
            unfold("web[3-1]"),
            Err(RangeError::Backwards("web[3-1]".to_owned()))
        );
        for word in [
            "web[x]",
            "web[",
            "web]",
            "web[]",
            "web[1-]",
            "web[1,,2]",
            "web[1 - 2]",
            "a[1]b[",
            "web[0-18446744073709551616]",
        ] {
            assert_eq!(unfold(word), Err(RangeError::Malformed(word.to_owned())));
        }
        for word in [
            "web[1-10001]",
            "a[0-99]b[0-99]c[0-9]",
            "web[0-18446744073709551615]",
        ] {
            assert_eq!(unfold(word), Err(RangeError::TooMany(word.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn what_is_folded_stands_for_the_same_names(
            names in prop::collection::btree_set("[a-c]{0,2}[0-9]{0,3}(\\.x)?", 1..40)
        ) {
            let names: std::collections::BTreeSet<String> =
                names.into_iter().filter(|name| !name.is_empty()).collect();
            let unfolded: std::collections::BTreeSet<String> =
                unfolded(&fold(names.iter().map(String::as_str))).into_iter().collect();
            prop_assert_eq!(unfolded, names);
        }
    }
}

use std::collections::BTreeMap;
use std::fmt::Write;

/// Names as people write them: numbers that follow each other as a range, `web[1-3,7]`. Names that differ otherwise are separated
/// by commas.
pub fn fold<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut families: BTreeMap<(&str, &str, usize), Vec<u64>> = BTreeMap::new();
    let mut others = Vec::new();
    for name in names {
        match numbered(name) {
            Some((before, (number, width), after)) => {
                families.entry((before, after, width)).or_default().push(number);
            }
            None => others.push(name.to_owned()),
        }
    }
    let mut folded: Vec<String> = families.into_iter().map(family).chain(others).collect();
    folded.sort_unstable();
    folded.dedup();
    folded.join(",")
}

/// A name around its last number. Its width is that of a number with leading zeros, which must come back; else 0.
fn numbered(name: &str) -> Option<(&str, (u64, usize), &str)> {
    let end = name.rfind(|c: char| c.is_ascii_digit())? + 1;
    let (head, after) = name.split_at(end);
    let digits = head.len() - head.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (before, number) = head.split_at(head.len() - digits);
    let width = if number.starts_with('0') && digits > 1 { digits } else { 0 };
    // In an address it is no number of a host.
    let is_plain = !name.contains(['[', ']', ',']) && !before.ends_with('.');
    number.parse().ok().filter(|_| is_plain).map(|number| (before, (number, width), after))
}

fn family(((before, after, width), mut numbers): ((&str, &str, usize), Vec<u64>)) -> String {
    numbers.sort_unstable();
    numbers.dedup();
    if let [number] = numbers[..] {
        return format!("{before}{number:0width$}{after}");
    }
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let mut folded = format!("{before}[");
    for (index, (first, last)) in ranges.into_iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let written = if first == last {
            write!(folded, "{comma}{first:0width$}")
        } else {
            write!(folded, "{comma}{first:0width$}-{last:0width$}")
        };
        written.expect("a String takes all");
    }
    format!("{folded}]{after}")
}

#[cfg(test)]
mod tests {
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

    /// What a folded list stands for.
    fn unfold(list: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut rest = list;
        while !rest.is_empty() {
            let depth_aware = rest.char_indices().scan(0, |depth, (at, c)| {
                *depth += i32::from(c == '[') - i32::from(c == ']');
                Some((at, c == ',' && *depth == 0))
            });
            let end =
                depth_aware.filter(|(_, is_end)| *is_end).map(|(at, _)| at).next().unwrap_or(rest.len());
            let (item, behind) = rest.split_at(end);
            rest = behind.trim_start_matches(',');
            let Some((before, (ranges, after))) =
                item.split_once('[').and_then(|(before, tail)| Some((before, tail.split_once(']')?)))
            else {
                names.push(item.to_owned());
                continue;
            };
            for range in ranges.split(',') {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let width = if first.starts_with('0') && first.len() > 1 { first.len() } else { 0 };
                for number in first.parse::<u64>().unwrap()..=last.parse().unwrap() {
                    names.push(format!("{before}{number:0width$}{after}"));
                }
            }
        }
        names
    }

    proptest! {
        #[test]
        fn what_is_folded_stands_for_the_same_names(
            names in prop::collection::btree_set("[a-c]{0,2}[0-9]{0,3}(\\.x)?", 1..40)
        ) {
            let names: std::collections::BTreeSet<String> =
                names.into_iter().filter(|name| !name.is_empty()).collect();
            let unfolded: std::collections::BTreeSet<String> =
                unfold(&fold(names.iter().map(String::as_str))).into_iter().collect();
            prop_assert_eq!(unfolded, names);
        }
    }
}

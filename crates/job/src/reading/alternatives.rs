//! Texts of which every match of a pattern contains at least one.

use regex_syntax::hir::{Class, Hir, HirKind};

/// The alternatives of a pattern: texts in lower case, of which every match within printable ASCII contains
/// at least one, without distinction of case. `(?i)out of memory|killed` has two.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Alternatives(
    /// Empty if nothing is known of the matches.
    Vec<Vec<u8>>,
);

/// Maximum texts. Of more, nearly every piece of output may contain one.
const MOST: usize = 32;

impl Alternatives {
    /// The texts of a pattern, if it could be parsed.
    pub(super) fn of(pattern: Option<&Hir>) -> Self {
        pattern.and_then(required).unwrap_or_default()
    }

    /// Whether a line of some output could match. `may_contain` returns whether that output may contain a text.
    pub(super) fn is_possible(&self, may_contain: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.0.is_empty() || self.0.iter().any(|text| may_contain(text))
    }

    /// Length of the shortest text: the longer, the rarer.
    fn shortest(&self) -> usize {
        self.0.iter().map(Vec::len).min().unwrap_or(0)
    }
}

/// `None` if a match need not contain any particular text.
fn required(pattern: &Hir) -> Option<Alternatives> {
    match pattern.kind() {
        HirKind::Literal(_) | HirKind::Class(_) => Some(Alternatives(vec![plain_text(pattern)?])),
        HirKind::Capture(group) => required(&group.sub),
        HirKind::Repetition(repeated) if repeated.min > 0 => required(&repeated.sub),
        HirKind::Concat(parts) => required_of_sequence(parts),
        HirKind::Alternation(parts) => {
            let texts = parts.iter().map(|part| Some(required(part)?.0));
            let texts: Vec<_> = texts.collect::<Option<Vec<_>>>()?.concat();
            (texts.len() <= MOST).then_some(Alternatives(texts))
        }
        HirKind::Empty | HirKind::Look(_) | HirKind::Repetition(_) => None,
    }
}

/// The best of what single parts and adjacent plain ones require.
fn required_of_sequence(parts: &[Hir]) -> Option<Alternatives> {
    let adjacent =
        parts.chunk_by(|left, right| plain_text(left).is_some() && plain_text(right).is_some());
    let candidates = adjacent.filter_map(|adjacent| match adjacent {
        [part] => required(part),
        plain => {
            let texts: Vec<_> = plain.iter().filter_map(plain_text).collect();
            Some(Alternatives(vec![texts.concat()]))
        }
    });
    candidates.max_by_key(Alternatives::shortest)
}

/// If all ASCII matches of a part are the same text except for case: that text in lower case.
fn plain_text(part: &Hir) -> Option<Vec<u8>> {
    match part.kind() {
        HirKind::Literal(literal) => Some(literal.0.to_ascii_lowercase()),
        HirKind::Class(Class::Unicode(class)) => {
            // `(?i)k` also matches the Kelvin sign, which is not ASCII.
            let mut letters = class
                .ranges()
                .iter()
                .filter(|range| range.start().is_ascii())
                .flat_map(|range| range.start()..=range.end())
                .map(|letter| letter.to_ascii_lowercase());
            let letter = letters.next()?;
            let letter = letters.all(|other| other == letter).then_some(letter)?;
            Some(vec![u8::try_from(letter).ok()?])
        }
        HirKind::Class(Class::Bytes(_))
        | HirKind::Empty
        | HirKind::Look(_)
        | HirKind::Repetition(_)
        | HirKind::Capture(_)
        | HirKind::Concat(_)
        | HirKind::Alternation(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    fn alternatives(pattern: &str) -> Alternatives {
        Alternatives::of(regex_syntax::parse(pattern).ok().as_ref())
    }

    #[test]
    fn every_match_contains_one_of_the_texts() {
        let cases: [(&str, &[&str]); 10] = [
            ("line [0-9]*99999 ", &["99999 "]),
            ("(?i)Error", &["error"]),
            ("(?i)out of memory|killed", &["out of memory", "killed"]),
            ("(error|warning): disk full", &[": disk full"]),
            ("^(timeout|refused)+ [0-9]+$", &["timeout", "refused"]),
            ("(?i)k", &["k"]),
            ("error|[0-9]+", &[]),
            ("(timeout)?", &[]),
            (r"\w+", &[]),
            ("", &[]),
        ];
        for (pattern, expected) in cases {
            let expected = expected.iter().map(|text| text.as_bytes().to_vec()).collect();
            assert_eq!(alternatives(pattern), Alternatives(expected), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn a_line_without_the_texts_does_not_match(
            pattern in r"(\(\?i\))?(a|b|\[ab\]|a\+|b\*|\(a\|B\)|\(ab\|ba\)|\(ab\)\?|\(aB\)\+|\.|\|){0,5}",
            line in "[abAB]{0,6}",
        ) {
            let is_match = Regex::new(&pattern).unwrap().is_match(&line);
            let lower = line.to_lowercase();
            let is_possible = alternatives(&pattern).is_possible(&mut |text| {
                text.is_empty() || lower.as_bytes().windows(text.len()).any(|window| window == text)
            });
            prop_assert!(is_possible || !is_match, "{pattern:?} in {line:?}");
        }
    }
}

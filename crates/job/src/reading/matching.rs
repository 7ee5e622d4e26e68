//! Pattern matching with a time budget, off the runtime's threads.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use memchr::memmem::Finder;
use memchr::{memchr, memrchr};
use regex::{Regex, RegexBuilder, bytes};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind, Look};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::alternatives::Alternatives;
use crate::LineSieve;
use sshjobs_base::lock::lock;

/// Matches patterns in lines on threads of tokio's blocking pool. Each value has one budget of time for all its calls, and
/// all values of the process use eight threads at most. A pattern's author decides its cost, so neither a job's recorder
/// nor another reader may wait for it.
#[derive(Debug)]
pub struct Matching<const N: usize> {
    patterns: [Option<Regex>; N],
    /// Made when they are needed, on a matching thread.
    sieves: Arc<OnceLock<Vec<Sieve>>>,
    /// Longest text to match, because a match can't be interrupted.
    longest: usize,
    time: Duration,
    bytes: usize,
}

/// Why there is no result.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum TooSlow {
    /// A pattern exceeded the budget, or is too big for a line. Several patterns are listed.
    #[error("the pattern {0:?} takes too long on this output")]
    Pattern(String),
    /// All threads are busy with other calls.
    #[error("all threads that match patterns are busy with other calls")]
    Busy,
}

/// Time budget of a [`Matching`].
const TIME: Duration = Duration::from_secs(2);
/// Budget of a [`Matching`] in bytes of text that `match_texts` matches. `sift` has only the time limit.
const BYTES: usize = 512 << 20;
/// Maximum matching threads. An abandoned thread still finishes its current text.
static THREADS: Semaphore = Semaphore::const_new(8);
/// Maximum wait for a free thread.
const THREAD_WAIT: Duration = Duration::from_secs(2);
/// A compiled pattern of more bytes is big and is matched only in texts up to `LONGEST_FOR_BIG`
/// bytes: the time for a match grows with the product of both.
const BIG: usize = 64 << 10;
const LONGEST_FOR_BIG: usize = 4 << 10;
/// Searching this many bytes for a text takes about as long as matching one line.
const BYTES_SEARCHED_PER_MATCH: usize = 1 << 10;
/// Lines with the required text to match before judging whether the text is rare.
const FIRST_LINES: usize = 8;

impl<const N: usize> Matching<N> {
    /// Matches each of the given patterns. They must have no options of a `RegexBuilder`, because they are compiled again
    /// from their text.
    pub fn new(patterns: [Option<Regex>; N]) -> Self {
        // `Regex` does not report its compiled size, so a build with a limit tests it.
        let longest = if patterns.iter().flatten().any(|pattern: &Regex| {
            RegexBuilder::new(pattern.as_str()).size_limit(BIG).build().is_err()
        }) {
            LONGEST_FOR_BIG
        } else {
            usize::MAX
        };
        Self {
            patterns,
            sieves: Arc::default(),
            longest,
            time: TIME,
            bytes: BYTES,
        }
    }

    /// Whether there is a pattern.
    pub fn has_patterns(&self) -> bool {
        self.patterns.iter().any(Option::is_some)
    }

    /// For each text, which of the patterns it matches. The result ends before the first text that exceeds the budget or
    /// is too long for a big pattern. Dropping the future stops the thread before its next text.
    pub async fn match_texts(
        &mut self,
        texts: Vec<String>,
    ) -> Result<Vec<[Option<bool>; N]>, TooSlow> {
        if self.time.is_zero() {
            return Ok(Vec::new());
        }
        // The semaphore is never closed, so only the time limit can fail.
        let Ok(Ok(place)) = timeout(THREAD_WAIT, THREADS.acquire()).await else {
            return Err(TooSlow::Busy);
        };
        // After the wait for a thread, which does not count as matching time.
        let began = Instant::now();
        let found = Arc::new(Mutex::new(Vec::with_capacity(texts.len())));
        let given_up = Arc::new(AtomicBool::new(false));
        let _give_up = GiveUp(Arc::clone(&given_up));
        let patterns = self.patterns.clone();
        let theirs = Arc::clone(&found);
        let mut bytes = self.bytes;
        let longest = self.longest;
        let looking = async {
            tokio::task::spawn_blocking(move || {
                // Held by the thread, not by the call: an abandoned thread still counts.
                let _place = place;
                for text in texts {
                    // Checked before each text, because a match can't be interrupted.
                    if given_up.load(Relaxed) || bytes < text.len() || text.len() > longest {
                        break;
                    }
                    bytes -= text.len();
                    let matches =
                        patterns.each_ref().map(|pattern| Some(pattern.as_ref()?.is_match(&text)));
                    // One at a time, so that the results before a timeout are kept.
                    lock(&theirs).push(matches);
                }
                bytes
            })
            .await
        };
        match timeout(self.time, looking).await {
            Ok(Ok(bytes_left)) => self.bytes = bytes_left,
            Ok(Err(error)) => {
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
                // The runtime is shutting down.
                return Err(TooSlow::Busy);
            }
            // No time is left, so the number of bytes no longer matters.
            Err(_) => {}
        }
        self.time = self.time.saturating_sub(began.elapsed());
        Ok(std::mem::take(&mut *lock(&found)))
    }

    /// Runs `sift` on a matching thread, with a sieve of all patterns. Once the time is over, the sieve
    /// rules out nothing.
    pub async fn sift<T: Send + 'static>(
        &mut self,
        sift: impl FnOnce(&mut dyn LineSieve) -> T + Send + 'static,
    ) -> Result<T, TooSlow> {
        let Ok(Ok(place)) = timeout(THREAD_WAIT, THREADS.acquire()).await else {
            return Err(TooSlow::Busy);
        };
        let began = Instant::now();
        let given_up = Arc::new(AtomicBool::new(false));
        let _give_up = GiveUp(Arc::clone(&given_up));
        let patterns = self.patterns.clone();
        let longest = self.longest;
        let sieves = Arc::clone(&self.sieves);
        let deadline = began + self.time;
        let sifting = tokio::task::spawn_blocking(move || {
            let _place = place;
            let sieves = sieves.get_or_init(|| {
                patterns.iter().flatten().map(|pattern| Sieve::new(pattern, longest)).collect()
            });
            sift(&mut SievesInTime {
                sieves,
                given_up: &given_up,
                deadline,
            })
        });
        // Without a timeout: after the deadline the sieve rules out nothing, so `sift` ends soon.
        let sifted = sifting.await;
        self.time = self.time.saturating_sub(began.elapsed());
        sifted.map_err(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down.
            Err(_) => TooSlow::Busy,
        })
    }

    /// The error for a spent budget.
    pub fn too_slow(&self) -> TooSlow {
        let patterns: Vec<&str> = self.patterns.iter().flatten().map(Regex::as_str).collect();
        TooSlow::Pattern(patterns.join(" and ").chars().take(100).collect())
    }
}

/// The sieves of all patterns, until their time is over.
struct SievesInTime<'a> {
    sieves: &'a [Sieve],
    given_up: &'a AtomicBool,
    deadline: Instant,
}

impl LineSieve for SievesInTime<'_> {
    fn find_match(&mut self, text: &[u8]) -> Option<usize> {
        if self.is_over() {
            return Some(0);
        }
        self.sieves.iter().filter_map(|sieve| sieve.find_match(text)).min()
    }

    fn can_match(&self, may_contain: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.is_over()
            || self.sieves.iter().any(|sieve| sieve.alternatives.is_possible(may_contain))
    }
}

impl SievesInTime<'_> {
    fn is_over(&self) -> bool {
        self.given_up.load(Relaxed) || Instant::now() >= self.deadline
    }
}

/// Finds the first line of a text that may match a pattern.
#[derive(Debug)]
struct Sieve {
    pattern: Regex,
    /// Longest line to match, as in [`Matching`].
    longest: usize,
    /// Text that every matching line contains. Searching for it is several times faster than matching.
    required_text: Option<Finder<'static>>,
    alternatives: Alternatives,
    /// The pattern for many lines at once. It may match across lines, but if it does not match, no line does.
    of_many_lines: Option<bytes::Regex>,
}

impl Sieve {
    fn new(pattern: &Regex, longest: usize) -> Self {
        let parsed = ParserBuilder::new().multi_line(true).build().parse(pattern.as_str()).ok();
        let required_text = parsed.as_ref().and_then(required_text);
        let required_text = required_text.map(|text| Finder::new(text).into_owned());
        // A big pattern is matched only in short texts.
        let is_small = longest == usize::MAX;
        let of_many_lines = match &parsed {
            Some(parsed) if is_small => multi_line(pattern.as_str(), parsed),
            Some(_) | None => None,
        };
        Self {
            pattern: pattern.clone(),
            longest,
            required_text,
            alternatives: Alternatives::of(parsed.as_ref()),
            of_many_lines,
        }
    }

    /// A position in the first line that may match. The text must be printable ASCII, tabs and line feeds.
    ///
    /// A text is a piece between two marks of the store, which bounds the time of a match. A pattern that
    /// often matches across lines, such as `\s+x`, costs up to twice the time.
    fn find_match(&self, text: &[u8]) -> Option<usize> {
        match self.search_for_required_text(text) {
            Searched::NoMatch => None,
            Searched::MayMatch(position) => Some(position),
            Searched::Unsearched(start) => Some(start + self.find_match_in(&text[start..])?),
        }
    }

    /// Matches the lines that have the required text, unless they are many.
    fn search_for_required_text(&self, text: &[u8]) -> Searched {
        let Some(required_text) = &self.required_text else {
            return Searched::Unsearched(0);
        };
        let mut searched = 0;
        let mut lines_matched = 0;
        while let Some(position) = required_text.find(&text[searched..]) {
            if lines_matched >= FIRST_LINES + searched / BYTES_SEARCHED_PER_MATCH {
                return Searched::Unsearched(searched);
            }
            let line = line_at(text, searched + position);
            if !self.misses(&text[line.clone()]) {
                return Searched::MayMatch(line.start);
            }
            searched = text.len().min(line.end + 1);
            lines_matched += 1;
        }
        Searched::NoMatch
    }

    /// The start of the first line that may match.
    fn find_match_in(&self, lines: &[u8]) -> Option<usize> {
        if let Some(pattern) = &self.of_many_lines
            && !pattern.is_match(lines)
        {
            return None;
        }
        let mut start = 0;
        lines.split_inclusive(|&byte| byte == b'\n').find_map(|line| {
            let line_start = start;
            start += line.len();
            let is_match = !self.misses(line.strip_suffix(b"\n").unwrap_or(line));
            is_match.then_some(line_start)
        })
    }

    /// Whether a line does not match. False if it is too long to be matched.
    fn misses(&self, line: &[u8]) -> bool {
        line.len() <= self.longest
            && str::from_utf8(line).is_ok_and(|line| !self.pattern.is_match(line))
    }
}

/// Result of a search for the required text.
enum Searched {
    /// No line matches.
    NoMatch,
    /// The line that starts here matches, or is too long.
    MayMatch(usize),
    /// From here on nothing has been searched: many lines have the required text, or the pattern has none.
    Unsearched(usize),
}

/// The line around a position, without its line feed.
fn line_at(text: &[u8], position: usize) -> Range<usize> {
    let start = memrchr(b'\n', &text[..position]).map_or(0, |line_feed| line_feed + 1);
    let end = memchr(b'\n', &text[position..]).map_or(text.len(), |length| position + length);
    start..end
}

/// A text that every match contains: the longest literal that is not optional. It is never empty.
fn required_text(pattern: &Hir) -> Option<&[u8]> {
    match pattern.kind() {
        HirKind::Literal(literal) => Some(&literal.0),
        HirKind::Capture(group) => required_text(&group.sub),
        HirKind::Repetition(repeated) if repeated.min > 0 => required_text(&repeated.sub),
        HirKind::Concat(parts) => {
            parts.iter().filter_map(required_text).max_by_key(|text| text.len())
        }
        HirKind::Empty
        | HirKind::Class(_)
        | HirKind::Look(_)
        | HirKind::Repetition(_)
        | HirKind::Alternation(_) => None,
    }
}

/// The pattern with `^` and `$` at each line. `None` if it asks for the start or end of the text in
/// another way, such as with `\A`, because a line in the middle has neither.
fn multi_line(pattern: &str, parsed: &Hir) -> Option<bytes::Regex> {
    let asserts = parsed.properties().look_set();
    if asserts.contains(Look::Start) || asserts.contains(Look::End) {
        return None;
    }
    bytes::RegexBuilder::new(pattern).multi_line(true).build().ok()
}

/// On drop, stops a thread whose result is no longer needed.
struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sieve_finds_what_a_search_of_each_line_finds(
            pattern in r"(\^|\\A|\\b|\(\?-m\)|\(\?R\)|\(\?s\)|\(\?i\))?(a|b|\.|\\s|\[\^a\]|a\+|b\*|\(a\|b\)|\(ab\|ba\)|\(ab\)\?|a\{0\}|\(ab\)\+|\(a\|\)|\\n|é|\^|\\B){0,4}(\$|\\z|\\b)?",
            lines in prop::collection::vec("[abA ]{0,4}", 0..40),
            is_ended in any::<bool>(),
        ) {
            let pattern = Regex::new(&pattern).unwrap();
            let end = if is_ended { "\n" } else { "" };
            let text = lines.join("\n") + end;
            let expected = text.lines().position(|line| pattern.is_match(line));
            let sieve = Sieve::new(&pattern, usize::MAX);
            let found = sieve.find_match(text.as_bytes());
            let found = found.map(|position| memchr::memchr_iter(b'\n', &text.as_bytes()[..position]).count());
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn only_a_pattern_without_ends_of_the_text_searches_many_lines_at_once() {
        let of_many_lines =
            |pattern: &str| Sieve::new(&Regex::new(pattern).unwrap(), usize::MAX).of_many_lines;
        for pattern in ["error [0-9]+$", "^a", r"\bfail\b", "(?i)x"] {
            let of_many_lines = of_many_lines(pattern).unwrap();
            assert!(!of_many_lines.is_match(b"no\nmatch\nhere\n"), "{pattern}");
        }
        for pattern in [r"\Aa", r"a\z", "(?-m)^a"] {
            assert!(of_many_lines(pattern).is_none(), "{pattern}");
        }
    }

    #[test]
    fn a_rare_match_among_many_lines_with_the_required_text_is_found() {
        let text = format!("{}ab!\n", "ab\n".repeat(20));
        for pattern in ["ab.$", "ab!"] {
            let sieve = Sieve::new(&Regex::new(pattern).unwrap(), usize::MAX);
            assert_eq!(sieve.find_match(text.as_bytes()), Some(60), "{pattern}");
            assert_eq!(
                sieve.find_match("ab\n".repeat(20).as_bytes()),
                None,
                "{pattern}"
            );
        }
    }

    #[test]
    fn a_line_that_is_too_long_may_match_if_it_has_the_required_text() {
        let sieve = |pattern: &str| Sieve::new(&Regex::new(pattern).unwrap(), 4);
        assert_eq!(sieve("ab").find_match(b"xxxxxx\n"), None);
        assert_eq!(sieve("ab").find_match(b"xxabxx\n"), Some(0));
        assert_eq!(sieve("[0-9]").find_match(b"xxxxxx\n"), Some(0));
    }

    #[test]
    fn the_longest_literal_of_every_match_is_looked_for() {
        let cases = [
            ("line [0-9]*99999 ", Some("99999 ")),
            ("^(error|warning): disk$", Some(": disk")),
            ("(timeout)+ [a-z]", Some("timeout")),
            ("(timeout)? after", Some(" after")),
            ("error|warning", None),
            ("(?i)error", None),
            ("[0-9]+", None),
        ];
        for (pattern, expected) in cases {
            let sieve = Sieve::new(&Regex::new(pattern).unwrap(), usize::MAX);
            let required = sieve.required_text.as_ref().map(Finder::needle);
            assert_eq!(required, expected.map(str::as_bytes), "{pattern}");
        }
    }

    #[tokio::test]
    async fn a_pattern_that_costs_too_much_is_given_up_in_time() {
        let slow = Regex::new("(?:a{1,60}){1,60}z").unwrap();
        let mut matching = Matching::new([Some(slow)]);
        let began = Instant::now();
        let lines = vec!["a".repeat(2000); 10_000];
        let found = matching.match_texts(lines).await.unwrap();
        assert!(
            found.len() < 10_000 && began.elapsed() < TIME * 2,
            "{} in {:?}",
            found.len(),
            began.elapsed()
        );
        let more = matching.match_texts(vec!["a".to_owned()]).await.unwrap();
        assert!(more.is_empty(), "one budget covers all calls");
    }

    #[tokio::test]
    async fn each_pattern_has_its_answer() {
        let mut matching = Matching::new([
            Some(Regex::new("a").unwrap()),
            None,
            Some(Regex::new("b").unwrap()),
        ]);
        let found = matching
            .match_texts(["a", "b", "ab"].map(str::to_owned).to_vec())
            .await
            .unwrap();
        let yes = Some(true);
        let no = Some(false);
        assert_eq!(found, [[yes, None, no], [no, None, yes], [yes, None, yes]]);
    }

    #[tokio::test]
    async fn a_text_that_would_take_too_long_is_not_matched() {
        let mut matching = Matching::new([Some(Regex::new("(?:a{1,60}){1,60}z").unwrap())]);
        let began = Instant::now();
        let found = matching.match_texts(vec!["a".to_owned(), "a".repeat(60_000)]).await.unwrap();
        assert_eq!(found.len(), 1);
        assert!(began.elapsed() < TIME);
        let mut plain = Matching::new([Some(Regex::new("(?i)error|warning").unwrap())]);
        assert_eq!(
            plain.match_texts(vec!["x".repeat(60_000)]).await.unwrap().len(),
            1
        );
    }
}

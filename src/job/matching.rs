use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use regex::Regex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Looks for patterns in lines, on threads of their own and within a budget: what a pattern costs is for its author to say, and
/// neither a job's recorder nor another call may stand still for it.
#[derive(Debug)]
pub struct Matching<const N: usize> {
    patterns: [Option<Regex>; N],
    time: Duration,
    bytes: usize,
}

/// A pattern took longer than it may.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("the pattern {pattern:?} takes too long on this output: {spent:?} were not enough")]
pub struct TooSlow {
    /// The pattern.
    pub pattern: String,
    /// How long it may take in one call.
    pub spent: Duration,
}

/// What one call may spend.
const TIME: Duration = Duration::from_secs(2);
const BYTES: usize = 512 << 20;
/// How many threads may look for patterns. One that was given up comes to the end of its line first.
static THREADS: Semaphore = Semaphore::const_new(4);

impl<const N: usize> Matching<N> {
    /// Looks for each of the patterns there are.
    pub fn new(patterns: [Option<Regex>; N]) -> Self {
        Self { patterns, time: TIME, bytes: BYTES }
    }

    /// Whether there is anything to look for.
    pub fn looks(&self) -> bool {
        self.patterns.iter().any(Option::is_some)
    }

    /// Tells for each text which of the patterns it matches; for fewer texts than there are when the budget is spent.
    /// Dropping the future ends the look at the next text.
    pub async fn look(&mut self, texts: Vec<String>) -> Vec<[Option<bool>; N]> {
        if self.time.is_zero() {
            return Vec::new();
        }
        let began = Instant::now();
        let found = Arc::new(Mutex::new(Vec::with_capacity(texts.len())));
        let given_up = Arc::new(AtomicBool::new(false));
        let _give_up = GiveUp(Arc::clone(&given_up));
        let (patterns, theirs, mut bytes) = (self.patterns.clone(), Arc::clone(&found), self.bytes);
        let looking = async {
            let place = THREADS.acquire().await;
            let look = move || {
                let _place = place;
                for text in texts {
                    if given_up.load(Relaxed) || bytes < text.len() {
                        break;
                    }
                    bytes -= text.len();
                    let matches = patterns.each_ref().map(|pattern| Some(pattern.as_ref()?.is_match(&text)));
                    theirs.lock().unwrap_or_else(PoisonError::into_inner).push(matches);
                }
                bytes
            };
            tokio::task::spawn_blocking(look).await
        };
        if let Ok(Ok(left)) = timeout(self.time, looking).await {
            self.bytes = left;
        }
        self.time = self.time.saturating_sub(began.elapsed());
        std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// That it took too long.
    pub fn too_slow(&self) -> TooSlow {
        let pattern = self.patterns.iter().flatten().map(Regex::as_str).max_by_key(|pattern| pattern.len());
        let pattern = pattern.unwrap_or_default().chars().take(100).collect();
        TooSlow { pattern, spent: TIME }
    }
}

/// Says that nobody waits any more, when it is dropped.
struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pattern_that_costs_too_much_is_given_up_in_time() {
        let slow = Regex::new("(?:a{1,60}){1,60}z").unwrap();
        let mut matching = Matching::new([Some(slow)]);
        let began = Instant::now();
        let lines = vec!["a".repeat(2000); 10_000];
        let found = matching.look(lines).await;
        assert!(
            found.len() < 10_000 && began.elapsed() < TIME * 2,
            "{} in {:?}",
            found.len(),
            began.elapsed()
        );
        assert!(
            matching.look(vec!["a".to_owned()]).await.is_empty(),
            "the budget is the call's, not the look's"
        );
    }

    #[tokio::test]
    async fn each_pattern_has_its_answer() {
        let mut matching =
            Matching::new([Some(Regex::new("a").unwrap()), None, Some(Regex::new("b").unwrap())]);
        let found = matching.look(["a", "b", "ab"].map(str::to_owned).to_vec()).await;
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(found, [[yes, None, no], [no, None, yes], [yes, None, yes]]);
    }
}

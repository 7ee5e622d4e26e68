//! Decisions that a seed repeats.

use std::sync::Mutex;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use sshjobs_base::lock::lock;

/// Decides by chance; the same seed gives the same decisions.
///
/// Fork it for each task: its decisions then do not depend on the order in which tasks run.
pub(super) struct Dice(Mutex<SmallRng>);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Mutex::new(SmallRng::seed_from_u64(seed)))
    }

    /// Dice for another task.
    pub(super) fn fork(&self) -> Self {
        Self(Mutex::new(lock(&self.0).fork()))
    }

    /// A number below `sides`, which is not 0.
    pub(super) fn roll(&self, sides: usize) -> usize {
        lock(&self.0).random_range(0..sides)
    }

    /// True once in `chances` times.
    pub(super) fn once_in(&self, chances: usize) -> bool {
        self.roll(chances) == 0
    }

    /// A time of up to `most` milliseconds.
    pub(super) fn millis(&self, most: u64) -> Duration {
        Duration::from_millis(lock(&self.0).random_range(0..=most))
    }

    /// A factor around 1.
    pub(super) fn factor(&self) -> f64 {
        lock(&self.0).random_range(0.5..1.5)
    }
}

//! Plays many seeds, or one.

use std::cell::Cell;
use std::sync::Once;

use super::world::play;
use sshjobs_base::blocking::in_place;

/// Number of seeds, unless `SSHJOBS_SIMULATION_SEEDS` says otherwise.
const SEEDS: u64 = 400;

thread_local! {
    /// Whether a task has panicked: tokio would pass over it.
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Lets panics of tasks fail the test.
fn note_panics() {
    static IS_SET: Once = Once::new();
    IS_SET.call_once(set_hook);
}

fn set_hook() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        HAS_PANICKED.set(true);
        print(panic);
    }));
}

fn play_seed(seed: u64) -> String {
    note_panics();
    HAS_PANICKED.set(false);
    let _in_place = in_place::enter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let played = runtime.block_on(play(seed));
    assert!(!HAS_PANICKED.get(), "a task has panicked");
    played
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// Plays some of the seeds, or the one that `SSHJOBS_SIMULATION_SEED` names.
fn play_seeds(is_chosen: impl Fn(u64) -> bool) {
    if let Some(seed) = number("SSHJOBS_SIMULATION_SEED") {
        if !is_chosen(seed) {
            return;
        }
        let log = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_test_writer();
        let _log = tracing::subscriber::set_default(log.finish());
        eprintln!("{}", play_seed(seed));
        return;
    }
    let seeds = number("SSHJOBS_SIMULATION_SEEDS").unwrap_or(SEEDS);
    for seed in (0..seeds).filter(|seed| is_chosen(*seed)) {
        if let Err(panic) = std::panic::catch_unwind(|| play_seed(seed)) {
            eprintln!("SSHJOBS_SIMULATION_SEED={seed} repeats this");
            std::panic::resume_unwind(panic);
        }
    }
}

// Two tests, for two processors.

#[test]
fn promises_hold_for_even_seeds() {
    play_seeds(|seed| seed % 2 == 0);
}

#[test]
fn promises_hold_for_odd_seeds() {
    play_seeds(|seed| seed % 2 == 1);
}

#[test]
fn a_seed_repeats_a_run() {
    for seed in 0..20 {
        assert_eq!(play_seed(seed), play_seed(seed), "seed {seed}");
    }
}

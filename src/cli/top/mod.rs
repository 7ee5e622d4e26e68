//! `sshjobs top`: jobs and fleets on a screen, with the output of the one that is selected.
//!
//! What is shown is a [`Model`](model::Model), which knows nothing of terminals and networks: keys change it (`keys.rs`), what the jobs
//! tell changes it, and `draw.rs` shows it. `top.rs` brings the three together.

mod draw;
mod keys;
mod model;
mod output;
mod prompt;
mod top;

pub use top::top;

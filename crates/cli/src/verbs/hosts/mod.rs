//! Verbs on hosts.

mod gpus;
mod hosts;
mod ping;
mod trust;

pub use hosts::hosts;
pub use ping::ping;
pub use trust::trust;

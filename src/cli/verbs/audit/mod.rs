//! `sshjobs audit`.

mod audit;
mod checkpoints;
mod show;
mod verify;

pub use audit::audit;

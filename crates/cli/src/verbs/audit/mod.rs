//! `sshjobs audit`.

mod audit;
mod checkpoints;
mod configured;
mod show;
mod verify;

pub use audit::audit;

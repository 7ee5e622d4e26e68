//! The program `sshjobs`, which combines the faces.

mod cluster;
mod configuration;
mod program;
mod protection;
mod serve;
mod service;

pub use program::main;

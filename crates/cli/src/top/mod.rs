//! `sshjobs top`: jobs and fleets on a full screen, with the output of the selected one.
//!
//! The [`Model`](model::Model) knows neither terminals nor networks. Keys change it (`keys.rs`),
//! replies about jobs change it, and `draw.rs` draws it. `top.rs` connects the three. Panels (`panel.rs`, `panel_keys.rs`, `queue_panel.rs`)
//! cover the list and the output.

mod draw;
mod keys;
mod list_columns;
mod model;
mod output;
mod panel;
mod panel_keys;
mod prompt;
mod queue_panel;
mod top;

pub use top::top;

//! Stored output as a file for other programs: a recording of the terminal, text, or JSON lines.

mod asciicast;
mod export;

pub use export::ExportFormat;

//! Transports: stdin and stdout, and Streamable HTTP.

mod over_http;
mod serve_stdio;
mod stdio;

pub use over_http::OverHttp;
pub use serve_stdio::{ServeError, serve_stdio};

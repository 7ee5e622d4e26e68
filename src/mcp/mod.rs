//! Floor 6: the face for agents, and the only home of rmcp.
//!
//! Each tool is one verb of [`Service`](crate::wire::Service). A reply says the same in its structured content and in its
//! text; errors are tool errors with a stable code. An [`Elicitor`] asks the person behind the client what a login needs. [`serve_stdio`] speaks MCP on stdin and stdout.

mod answer_desk;
mod answer_form;
mod call;
mod elicitor;
mod loopback_page;
mod over_http;
mod parked;
mod progress;
mod prompts;
mod resource_uri;
mod resources;
mod serve;
mod server;
mod stdio;
mod tasks;
mod text;
mod tool_call;
mod updates;

pub use answer_desk::AnswerDesk;
pub use elicitor::{Elicitor, Elicitors};
pub use over_http::OverHttp;
pub use serve::{ServeError, serve_stdio};

//! The face for agents, and the only home of rmcp.
//!
//! Each tool is one verb of [`Service`](sshjobs_wire::Service). The structured content and the text
//! of a reply say the same. Errors are tool errors with a stable code. An [`Elicitor`] asks the
//! person behind the client for a login's secrets. [`serve_stdio`] speaks MCP on stdin and stdout.

mod app;
mod ask;
mod channel;
mod handler;
mod prompts;
mod resources;
mod server;
mod skill;
mod tools;
mod transport;

pub use ask::{AnswerDesk, Elicitor, Elicitors};
pub use server::{McpOptions, ToolSet};
pub use transport::{OverHttp, ServeError, serve_stdio};

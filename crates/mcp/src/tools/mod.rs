//! Tool calls: arguments, answers, progress, tasks, and calls that wait for a person.

mod answered;
mod call;
mod for_model;
mod parked;
mod progress;
mod table;
pub(crate) mod tasks;
mod text;
mod tool_call;

pub(crate) use answered::answered;
pub(crate) use call::ToolCall;
pub(crate) use parked::Parked;
pub(crate) use table::ToolText;
pub(crate) use tasks::Tasks;
pub(crate) use tool_call::{answer, input_without, output};

//! Choices that several requests share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use sshjobs_core::jobs::{Keep, Render, Selection, Stream};

/// Which lines a reply keeps if there are too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum KeepArg {
    /// The oldest.
    #[default]
    First,
    /// The newest; with `until`, those up to the match.
    Last,
}

/// Which output stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum StreamArg {
    /// Both, merged by line number.
    #[default]
    Both,
    /// Standard output only.
    Stdout,
    /// Standard error only.
    Stderr,
}

/// Format of lines in a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Format {
    /// As strings.
    #[default]
    Lean,
    /// As objects with number, stream and time.
    Records,
}

/// How bytes become text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum RenderArg {
    /// Without control sequences; of a progress bar only the last frame.
    #[default]
    Clean,
    /// Unchanged.
    Raw,
    /// Clean, and in pieces of one colour; only for records.
    // For pages in browsers. Models have no use for colours, and each word of a schema costs them.
    #[schemars(skip)]
    Spans,
}

impl From<KeepArg> for Keep {
    fn from(keep: KeepArg) -> Self {
        match keep {
            KeepArg::First => Self::First,
            KeepArg::Last => Self::Last,
        }
    }
}

impl From<StreamArg> for Selection {
    fn from(stream: StreamArg) -> Self {
        match stream {
            StreamArg::Both => Self::Both,
            StreamArg::Stdout => Self::Only(Stream::Stdout),
            StreamArg::Stderr => Self::Only(Stream::Stderr),
        }
    }
}

impl From<RenderArg> for Render {
    fn from(render: RenderArg) -> Self {
        match render {
            RenderArg::Clean => Self::Clean,
            // Colours are in the control sequences.
            RenderArg::Raw | RenderArg::Spans => Self::Raw,
        }
    }
}

//! A piece of a line with one style.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::leave_out::is_false;
use sshjobs_core::jobs::{Colour, StyledText};

/// A piece of a line with one style. All pieces together are the record's text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct StyledSpan {
    /// Its text.
    pub text: String,
    /// Colour of the text: a name such as `red` or `bright-red`, or `#rrggbb`. Absent: the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fg: Option<String>,
    /// Colour behind the text, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bg: Option<String>,
    /// Bold.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bold: bool,
    /// Faint.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dim: bool,
    /// Italic.
    #[serde(default, skip_serializing_if = "is_false")]
    pub italic: bool,
    /// Underlined.
    #[serde(default, skip_serializing_if = "is_false")]
    pub underline: bool,
    /// With the two colours exchanged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reversed: bool,
    /// Crossed out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strike: bool,
}

impl From<StyledText> for StyledSpan {
    fn from(StyledText { text, style }: StyledText) -> Self {
        Self {
            text,
            fg: style.foreground.map(name_of),
            bg: style.background.map(name_of),
            bold: style.bold,
            dim: style.dim,
            italic: style.italic,
            underline: style.underline,
            reversed: style.reversed,
            strike: style.strike,
        }
    }
}

fn name_of(colour: Colour) -> String {
    const NAMES: [&str; 8] = [
        "black", "red", "green", "yellow", "blue", "magenta", "cyan", "white",
    ];
    match colour {
        Colour::Named(number) => {
            let name = NAMES[usize::from(number % 8)];
            if number < 8 {
                name.to_owned()
            } else {
                format!("bright-{name}")
            }
        }
        Colour::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
    }
}

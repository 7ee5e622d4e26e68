use super::render::Render;

/// Unit of positions in a job's output, counted from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Finished lines.
    #[default]
    Lines,
    /// Unicode scalar values of the rendered text, including line ends.
    Chars,
    /// Raw bytes.
    Bytes,
}

/// Unit together with the rendering, on which the number of characters depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Finished lines.
    Lines,
    /// Characters of the text in this rendering.
    Chars(Render),
    /// Raw bytes.
    Bytes,
}

impl Measure {
    /// The measure of a unit in a rendering.
    pub fn new(unit: Unit, render: Render) -> Self {
        match unit {
            Unit::Lines => Self::Lines,
            Unit::Chars => Self::Chars(render),
            Unit::Bytes => Self::Bytes,
        }
    }
}

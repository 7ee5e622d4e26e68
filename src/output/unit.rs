/// What a position in a job's output counts, from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Finished lines.
    #[default]
    Lines,
    /// Unicode scalar values of the rendered text, line ends included.
    Chars,
    /// Bytes as they came.
    Bytes,
}

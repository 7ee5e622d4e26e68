/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Width in characters.
    pub cols: u32,
    /// Height in rows.
    pub rows: u32,
}

use crate::wire::JobEntry;

/// The next bytes of a command.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Of standard output.
    pub stdout: Vec<u8>,
    /// Of standard error.
    pub stderr: Vec<u8>,
    /// Bytes that were evicted before they were asked for.
    pub dropped_bytes: u64,
    /// How it has ended, with its last bytes.
    pub ended: Option<Box<JobEntry>>,
}

use crate::JobEntry;

/// The next bytes of a command.
#[derive(Clone, Debug, Default)]
pub struct NextBytes {
    /// Of standard output.
    pub stdout: Vec<u8>,
    /// Of standard error.
    pub stderr: Vec<u8>,
    /// Bytes that were evicted before this reader read them.
    pub dropped_bytes: u64,
    /// Its final state, with its last bytes.
    pub ended: Option<Box<JobEntry>>,
}

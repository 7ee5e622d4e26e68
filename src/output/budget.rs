/// Bytes that a reply may still hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget(usize);

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Takes `bytes` from it; false, and nothing is left of it, when it does not suffice.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }

    /// Takes as much of `bytes` as there is.
    pub(super) fn charge(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }

    /// Takes what a line of text costs, its end included.
    pub(super) fn spend_line(&mut self, line: &str) -> bool {
        self.spend(line.len() + 1)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

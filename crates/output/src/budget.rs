/// Remaining bytes of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget(usize);

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Subtracts `bytes`. If there are not enough, returns false and leaves 0.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        // Leaves 0, so that a shorter line after this one does not fit either.
        self.0 = left.unwrap_or(0);
        left.is_some()
    }

    /// Subtracts `bytes`, down to 0.
    pub(super) fn charge(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }

    /// Subtracts the bytes of a line as it is shown, including its end.
    pub(super) fn spend_line(&mut self, shown_bytes: usize) -> bool {
        self.spend(shown_bytes + 1)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

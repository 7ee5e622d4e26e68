//! Names of part files.

use super::Hasher;

/// Hexadecimal digits of a part file's id.
const ID_DIGITS: usize = 12;

/// Names a part file.
pub(super) struct PartName {
    pub(super) id: String,
    /// Whether other processes that send the same content use the same name.
    pub(super) is_shared: bool,
}

impl PartName {
    /// The name that each writer of the same content has.
    pub(super) fn shared(content: &Hasher) -> Self {
        Self {
            id: short(content),
            is_shared: true,
        }
    }

    /// A name that no other writer has.
    pub(super) fn unique() -> Self {
        let mut hasher = Hasher::default();
        hasher.update(&rand::random::<[u8; 16]>());
        Self {
            id: short(&hasher),
            is_shared: false,
        }
    }
}

fn short(hasher: &Hasher) -> String {
    hasher.digest().to_string().chars().take(ID_DIGITS).collect()
}

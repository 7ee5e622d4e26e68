//! Whether a file that was read is still the same.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Attributes of a file that differ after any change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    device: u64,
    inode: u64,
    length: u64,
    /// Time of the last change of its content or its attributes, in nanoseconds since the Unix epoch.
    changed_at: i128,
}

/// Within this time after a change, another change may get the same time: the clocks of file systems tick, some
/// only each second.
const SETTLING_TIME: Duration = Duration::from_secs(1);

/// Waits until a file counts as settled, a second after its change.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "its tests have no runtime")]
pub(crate) fn wait_until_settled(path: &Path) {
    for _ in 0..500 {
        if FileState::at(path).unwrap().is_some_and(|state| state.is_settled()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} is not settled after five seconds", path.display());
}

impl FileState {
    /// The state of the file at a path. `None` for a missing one.
    ///
    /// # Errors
    /// Those of looking at it.
    pub(crate) fn at(path: &Path) -> io::Result<Option<Self>> {
        match path.metadata() {
            Ok(metadata) => Ok(Some(Self::of(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            changed_at: i128::from(metadata.ctime()) * 1_000_000_000
                + i128::from(metadata.ctime_nsec()),
        }
    }

    /// Whether any later change will have another time. Ask before the file is read.
    pub(crate) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let age = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX) - self.changed_at;
        // A time in the future says nothing.
        age > i128::try_from(SETTLING_TIME.as_nanos()).unwrap_or(i128::MAX)
    }
}

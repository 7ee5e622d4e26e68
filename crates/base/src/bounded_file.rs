//! Reads files that a user names, up to a limit, so that `/dev/zero` can't fill the memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Longest file of settings, host names, variables or secrets, in bytes.
const LONGEST_TEXT: u64 = 16 << 20;

/// The mode bit by which every user may write a file.
const WRITABLE_BY_ALL: u32 = 0o002;

/// Reads a text file of at most 16 MiB.
///
/// # Errors
/// Those of reading; `FileTooLarge` for a longer file.
pub fn read_text(file: &Path) -> io::Result<String> {
    read_text_from(File::open(file)?)
}

/// Like [`read_text`], for files that decide what is allowed: refuses one that every user may change. Its
/// directory and its owner are not looked at.
///
/// # Errors
/// As [`read_text`]; `PermissionDenied` for such a file.
pub fn read_trusted_text(file: &Path) -> io::Result<String> {
    let opened = File::open(file)?;
    let found = opened.metadata()?;
    if found.is_file() && found.mode() & WRITABLE_BY_ALL != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "all users may change it; take that right away with chmod o-w",
        ));
    }
    read_text_from(opened)
}

/// Reads a text of at most 16 MiB to its end.
///
/// # Errors
/// Those of reading; `FileTooLarge` for a longer text.
pub fn read_text_from(reader: impl Read) -> io::Result<String> {
    let bytes = read_up_to(LONGEST_TEXT, reader)?;
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not valid UTF-8"))
}

/// Reads at most `most` bytes to the end.
///
/// # Errors
/// Those of reading; `FileTooLarge` if there are more bytes.
pub fn read_up_to(most: u64, reader: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more byte shows that there are more.
    reader.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let mebibytes = most >> 20;
        let message = format!("it is longer than {mebibytes} MiB");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_an_error() {
        let error = read_text(Path::new("/dev/zero")).unwrap_err();

        assert_eq!(error.to_string(), "it is longer than 16 MiB");
    }

    #[test]
    fn a_text_of_exactly_the_limit_is_read() {
        assert_eq!(read_up_to(3, &b"abc"[..]).unwrap(), b"abc");
        assert!(read_up_to(3, &b"abcd"[..]).is_err());
    }
}

//! `HOST:PATH`, as in scp.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Error;
use sshjobs_core::jobs::RemotePath;

/// A path on a host, or on each of several hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathOnHosts {
    /// The host, or a list, range or pattern of hosts.
    pub hosts: String,
    /// The path on each of them.
    pub path: RemotePath,
}

impl PathOnHosts {
    /// Parses `HOST:PATH`. An empty path is the home directory.
    ///
    /// # Errors
    /// Code `invalid_argument`.
    pub fn parse(word: &Path) -> Result<Self, Error> {
        let bytes = word.as_os_str().as_bytes();
        if bytes.starts_with(b"any(") || bytes.starts_with(b"any:") {
            return Err(Error::invalid(
                "any(…) chooses a host for run and spawn only",
                "name the host, or write ./any:… for a file here",
            ));
        }
        let colon = colon_after_host(bytes).ok_or_else(|| not_a_host_path(word))?;
        let host = str::from_utf8(&bytes[..colon]).map_err(|_| not_a_host_path(word))?;
        let path = &bytes[colon + 1..];
        let path = if path.is_empty() { b"." } else { path };
        let path = RemotePath::new(path.to_vec())
            .map_err(|error| Error::invalid(error.to_string(), "give a path on the host"))?;
        Ok(Self {
            // `[::1]` names an address with colons.
            hosts: address(host).to_owned(),
            path,
        })
    }

    /// The path as it was typed, for messages; without `./` before it.
    pub fn shown(&self, host: &str) -> String {
        shown_at(host, &self.path)
    }
}

/// `HOST:PATH` for people, without a leading `./`.
pub fn shown_at(host: &str, path: &RemotePath) -> String {
    let path = path.to_string();
    let plain = path.strip_prefix("./").filter(|rest| !rest.is_empty()).unwrap_or(&path);
    format!("{host}:{plain}")
}

/// Position of the colon that ends the host. Colons in brackets and in `tag:NAME` belong to it.
fn colon_after_host(word: &[u8]) -> Option<usize> {
    let mut depth = 0;
    let mut start = 0;
    for (position, byte) in word.iter().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            b',' | b'!' if depth == 0 => start = position + 1,
            // A path that begins before any host: `./a:b`.
            b'/' if depth == 0 => return None,
            b':' if depth == 0 && word[start..position] == *b"tag" => {}
            b':' if depth == 0 => return (position > 0).then_some(position),
            _ => {}
        }
    }
    None
}

/// An address without the brackets that keep its colons together.
fn address(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(inner) if inner.contains(':') => inner,
        _ => host,
    }
}

fn not_a_host_path(word: &Path) -> Error {
    Error::invalid(
        format!("{:?} is not HOST:PATH", word.as_os_str()),
        "write web1:/etc/hosts, or web1: for the home directory; the host's side is last for put \
         and first for get",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_ends_at_its_colon() {
        let parts = |word: &str| {
            let parsed = PathOnHosts::parse(Path::new(word)).ok()?;
            Some((parsed.hosts.clone(), parsed.path.to_string()))
        };
        let is = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(parts("web1:/etc/hosts"), is("web1", "/etc/hosts"));
        assert_eq!(parts("deploy@web1:a:b"), is("deploy@web1", "a:b"));
        assert_eq!(parts("web1:"), is("web1", "."));
        assert_eq!(parts("web[1-3,7]:/x"), is("web[1-3,7]", "/x"));
        assert_eq!(parts("[::1]:/x"), is("::1", "/x"));
        assert_eq!(parts("tag:db,!tag:old:/x"), is("tag:db,!tag:old", "/x"));
        assert_eq!(parts("./a:b"), None);
        assert_eq!(parts(":/x"), None);
        assert_eq!(parts("plain"), None);
    }
}

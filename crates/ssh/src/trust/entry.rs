//! Lines of known_hosts.

use std::ops::Range;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::Mac;
use russh::keys::{Certificate, PublicKey};

use super::HostName;
use super::host_name::hmac;
use sshjobs_base::host_pattern::matches_list;

/// A line of known_hosts.
#[derive(Debug)]
pub(super) struct KnownHostsLine {
    pub(super) file: PathBuf,
    pub(super) line: usize,
    pub(super) marker: Marker,
    pub(super) hosts: HostNames,
    pub(super) key: PublicKey,
    /// Whether the line has a certificate of the key. As with ssh, it then revokes the key, or makes it an authority, but does
    /// not vouch for a host that presents the key alone.
    pub(super) is_certificate: bool,
}

/// A line of known_hosts whose hosts and marker are known, and whose key is not decoded.
pub(super) struct UndecodedLine {
    line: usize,
    marker: Marker,
    pub(super) hosts: HostNames,
    /// Where the line stands in the text of its file.
    bytes: Range<usize>,
}

/// The marker of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// No marker: the host's key.
    Plain,
    /// `@cert-authority`: the key signs certificates for the host.
    Authority,
    /// `@revoked`: the key must never be accepted.
    Revoked,
}

#[derive(Clone, Debug)]
pub(super) enum HostNames {
    Patterns(Vec<String>),
    /// HMAC-SHA1 of the name with a salt.
    Hashed {
        salt: Vec<u8>,
        hash: Vec<u8>,
    },
}

/// The lines in the text of `file`. Skips those whose marker or hosts can't be parsed. Warns about a `@revoked`
/// line that can't be read, because it revokes nothing.
pub(super) fn undecoded_lines(file: &Path, text: &str) -> impl Iterator<Item = UndecodedLine> {
    let mut start = 0;
    text.split_inclusive('\n').enumerate().filter_map(move |(index, line)| {
        let bytes = start..start + line.len();
        start = bytes.end;
        let undecoded = UndecodedLine::parse(index + 1, line, bytes);
        let revokes = line.trim_start().starts_with("@revoked");
        let is_read = || undecoded.as_ref().is_some_and(|line| line.decode(file, text).is_some());
        if revokes && !is_read() {
            let line = index + 1;
            tracing::warn!(file = %file.display(), line, "this @revoked line can't be read, and revokes nothing");
        }
        undecoded
    })
}

impl UndecodedLine {
    fn parse(line: usize, text: &str, bytes: Range<usize>) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace().peekable();
        let first = fields.next_if(|field| field.starts_with('@'));
        let marker = match first {
            None => Marker::Plain,
            Some("@cert-authority") => Marker::Authority,
            Some("@revoked") => Marker::Revoked,
            Some(_) => return None,
        };
        let hosts = fields.next().filter(|hosts| !hosts.starts_with('#'))?;
        Some(Self {
            line,
            marker,
            hosts: HostNames::parse(hosts)?,
            bytes,
        })
    }

    /// Whether the line applies to a host, by its name with or without port.
    pub(super) fn is_for(&self, host: &HostName) -> bool {
        host.names().any(|name| self.hosts.contains(name))
    }

    /// The line with its key. `None` if that can't be decoded. `text` is that of the whole file.
    pub(super) fn decode(&self, file: &Path, text: &str) -> Option<KnownHostsLine> {
        let mut fields = text.get(self.bytes.clone())?.split_ascii_whitespace();
        if self.marker != Marker::Plain {
            fields.next()?;
        }
        let _hosts = fields.next()?;
        let kind = fields.next()?;
        let blob = fields.next()?;
        let (key, is_certificate) = match parse_certificate(kind, blob) {
            Some(key) => (key, true),
            None => (russh::keys::parse_public_key_base64(blob).ok()?, false),
        };
        // As in ssh, an entry that contradicts itself is skipped.
        if !is_certificate && kind != key.algorithm().as_str() {
            return None;
        }
        Some(KnownHostsLine {
            file: file.to_owned(),
            line: self.line,
            marker: self.marker,
            hosts: self.hosts.clone(),
            key,
            is_certificate,
        })
    }
}

/// The key of a certificate in a line of this kind.
fn parse_certificate(kind: &str, blob: &str) -> Option<PublicKey> {
    let certificate = Certificate::from_bytes(&BASE64_STANDARD.decode(blob).ok()?).ok()?;
    let key = PublicKey::from(certificate.public_key().clone());
    (kind == key.algorithm().to_certificate_type()).then_some(key)
}

impl HostNames {
    fn parse(text: &str) -> Option<Self> {
        let Some(hashed) = text.strip_prefix("|1|") else {
            return Some(Self::Patterns(
                // The names in `HostName` are in lower case, too.
                text.split(',').map(str::to_ascii_lowercase).collect(),
            ));
        };
        let (salt, hash) = hashed.split_once('|')?;
        Some(Self::Hashed {
            salt: BASE64_STANDARD.decode(salt).ok()?,
            hash: BASE64_STANDARD.decode(hash).ok()?,
        })
    }

    /// The names, if all are plain: neither hashed nor patterns.
    pub(super) fn plain_names(&self) -> Option<&[String]> {
        match self {
            Self::Patterns(names) if !names.iter().any(|name| name.contains(['*', '?', '!'])) => {
                Some(names)
            }
            Self::Patterns(_) | Self::Hashed { .. } => None,
        }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        match self {
            Self::Hashed { salt, hash } => {
                let mut mac = hmac(salt);
                mac.update(name.as_bytes());
                mac.verify_slice(hash).is_ok()
            }
            Self::Patterns(patterns) => matches_list(patterns, name),
        }
    }
}

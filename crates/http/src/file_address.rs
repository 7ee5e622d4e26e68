//! The address of a file of a host: `/hosts/HOST/files/PATH`.

use axum::http::Uri;
use percent_encoding::percent_decode_str;

use super::reject;
use sshjobs_core::jobs::{HostPath, RemotePath};
use sshjobs_wire::Error;

/// Host and path of a request for a file.
pub(super) struct FileAddress {
    pub(super) host: String,
    pub(super) path: RemotePath,
}

impl FileAddress {
    pub(super) fn on_host(&self) -> HostPath<'_> {
        HostPath {
            host: &self.host,
            path: &self.path,
        }
    }

    /// Parses `/hosts/HOST/files/PATH`. PATH is absolute, without its first slash, or begins with
    /// `~/`. Not by axum, which refuses names that are not UTF-8.
    pub(super) fn parse(uri: &Uri) -> Result<Self, Error> {
        let parts = uri.path().strip_prefix("/hosts/").and_then(|rest| rest.split_once("/files/"));
        let (host, path) = parts.ok_or_else(|| reject::bad_address("/hosts/HOST/files/PATH"))?;
        let host = percent_decode_str(host).decode_utf8();
        let host = host.map_err(|_| reject::bad_address("the host is not UTF-8"))?;
        let path: Vec<u8> = percent_decode_str(path).collect();
        let path = if path == b"~" || path.starts_with(b"~/") {
            path
        } else {
            [b"/", path.as_slice()].concat()
        };
        let path =
            RemotePath::new(path).map_err(|error| reject::bad_address(&error.to_string()))?;
        Ok(Self {
            host: host.into_owned(),
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_or_below_home_and_has_any_bytes() {
        let parse = |text: &'static str| {
            let address = FileAddress::parse(&Uri::from_static(text)).ok().unwrap();
            (address.host, address.path.as_bytes().to_vec())
        };
        assert_eq!(
            parse("/hosts/web1/files/etc/hosts"),
            ("web1".to_owned(), b"/etc/hosts".to_vec())
        );
        assert_eq!(parse("/hosts/web1/files/~/a%20b").1, b"~/a b");
        assert_eq!(
            parse("/hosts/web1/files/caf%E9/files/x").1,
            b"/caf\xe9/files/x"
        );
    }
}

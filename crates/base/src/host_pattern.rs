//! Names of hosts: their canonical form, and patterns as in ssh_config(5).

use std::net::IpAddr;

/// A host's name in lower case without final dots; or an IP address in the form of RFC 5952, an
/// IPv4-mapped one as IPv4.
pub fn canonical_host(host: &str) -> String {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    match name.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => name,
    }
}

/// Whether one of `patterns` matches `name` and no negated one (`!pattern`) does, as in
/// ssh_config(5) and known_hosts.
pub fn matches_list(patterns: &[String], name: &str) -> bool {
    !patterns.iter().any(|pattern: &String| {
        pattern.strip_prefix('!').is_some_and(|pattern| glob_matches(pattern, name))
    }) && patterns.iter().any(|pattern| glob_matches(pattern, name))
}

/// Whether `pattern` matches `name`. `*` matches any text and `?` any byte, as in ssh. Linear in
/// practice: only the last `*` is ever retried.
pub fn glob_matches(pattern: &str, name: &str) -> bool {
    let pattern = pattern.as_bytes();
    let name = name.as_bytes();
    let mut p = 0;
    let mut n = 0;
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == b'?' || pattern[p] == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, taken)) = star {
            // An earlier `*` needs no retry: all text between it and this one has matched.
            star = Some((at, taken + 1));
            p = at + 1;
            n = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

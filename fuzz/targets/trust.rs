//! Host keys, secrets and rules.

use std::path::Path;

use sshjobs_output::scrub::{HiddenSecret, Scrubber};
use sshjobs_policy::{
    CommandSource, Machine, MachineAccount, Policy, PolicyCaller, PolicyRequest, Role, Verb,
    WeekMinute,
};
use sshjobs_ssh::{HostName, KnownHosts, Verdict};

/// Files of known host keys.
pub fn known_hosts(bytes: &[u8]) {
    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    let key = russh::keys::parse_public_key_base64(KEY).unwrap();
    let mut known = KnownHosts::default();
    let text = String::from_utf8_lossy(bytes);
    known.add(Path::new("known_hosts"), &text);
    for host in [
        HostName::new("web1", 22),
        HostName::new("10.0.0.1", 2222),
        HostName::alias("WEB"),
    ] {
        let verdict = known.verdict(&host, &key);
        known.key_types(&host);
        known.has_authority(&host);
        // Nothing but the key itself can make it known or revoked.
        if !text.contains(KEY) {
            assert!(
                matches!(verdict, Verdict::Unknown | Verdict::Changed { .. }),
                "{verdict:?}"
            );
        }
    }
}

/// Output that may contain a secret. Its encoded forms are tested in `scrub`.
pub fn secrets(bytes: &[u8]) {
    const SECRET: &str = "hunter2 & 'so' on";
    let scrubbed = |piece: usize, releases: bool| {
        let mut scrubber = Scrubber::default();
        scrubber.hide(HiddenSecret::new("db", SECRET.into()));
        let mut shown = Vec::new();
        for piece in bytes.chunks(piece) {
            shown.extend(scrubber.take(piece));
            if releases {
                shown.extend(scrubber.release());
            }
        }
        shown.extend(scrubber.finish());
        shown
    };
    let is_shown = |text: &[u8]| text.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
    let line_ends = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
    let whole = scrubbed(usize::MAX, false);
    assert!(!is_shown(&whole), "the secret is shown");
    for releases in [false, true] {
        let in_pieces = scrubbed(1, releases);
        assert!(!is_shown(&in_pieces), "the secret is shown piece by piece");
        assert_eq!(whole.len(), in_pieces.len(), "a take-over depends on it");
        assert_eq!(
            line_ends(&whole),
            line_ends(&in_pieces),
            "so do line numbers"
        );
    }
    if bytes.len() < SECRET.len() {
        assert_eq!(whole, bytes, "too short for the secret");
    }
}

/// A policy, and decisions by it.
pub fn policy(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let policy = match Policy::parse(text) {
        Ok(policy) => policy,
        Err(mistake) => {
            assert!(!mistake.to_string().is_empty());
            return;
        }
    };
    let caller = PolicyCaller {
        name: "ci".to_owned(),
        role: Role::Run,
        claims: Default::default(),
    };
    let endpoint = MachineAccount {
        machine: Machine::new(["web1"], 22, ["prod".to_owned()]),
        users: vec!["deploy".to_owned()],
        jumps: Vec::new(),
    };
    for verb in Verb::ALL {
        for command in [
            None,
            Some(CommandSource::Free),
            Some(CommandSource::Template("restart")),
        ] {
            policy.decide(&PolicyRequest {
                caller: &caller,
                verb,
                endpoint: Some(&endpoint),
                command,
                target: Some("uptime"),
                minute: WeekMinute::default(),
            });
        }
    }
    for name in policy.template_names() {
        let template = policy.template(name).expect("a template that it names");
        template.accept(&[("unit".to_owned(), "nginx; reboot".to_owned())].into()).ok();
    }
}

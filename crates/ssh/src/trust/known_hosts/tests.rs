use proptest::prelude::*;

use super::*;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

const K1: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
const K2: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA6rWI3G1sz07DnfFlrouTcysQlj2P+jpNSOEWD9OJ3X";
const ECDSA: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBMxBTpMIGvo7CnordO7wP0QQRqpBwUjOLl4eMhfucfE1sjTYyK5wmTl1UqoSDS1PtRVTBdl+0+9pquFb46U7fwg=";

fn key(text: &str) -> PublicKey {
    russh::keys::parse_public_key_base64(text.split(' ').nth(1).unwrap()).unwrap()
}

fn judge(file: &str, address: &str, port: u16, presented: &str) -> Verdict {
    let mut known = KnownHosts::default();
    known.add(Path::new("kh"), file);
    known.verdict(&HostName::new(address, port), &key(presented))
}

fn changed(line: usize) -> Verdict {
    let listed = key(K1).fingerprint(russh::keys::HashAlg::Sha256).to_string();
    Verdict::Changed {
        file: "kh".into(),
        line,
        listed,
        other_type: false,
    }
}

fn revoked(line: usize) -> Verdict {
    Verdict::Revoked {
        file: "kh".into(),
        line,
    }
}

#[test]
fn a_listed_key_is_known_and_another_is_changed() {
    let file = format!("# comment\n\nweb1,10.0.0.1 {K1} me@home\n");
    assert_eq!(judge(&file, "web1", 22, K1), Verdict::Known);
    assert_eq!(judge(&file, "WEB1", 22, K1), Verdict::Known);
    assert_eq!(judge(&file, "10.0.0.1", 22, K1), Verdict::Known);
    assert_eq!(judge(&file, "web1", 22, K2), changed(3));
    assert_eq!(judge(&file, "web2", 22, K1), Verdict::Unknown);
}

#[test]
fn a_key_of_another_type_is_changed_not_new() {
    let verdict = judge(&format!("web1 {K1}"), "web1", 22, ECDSA);
    assert!(
        matches!(
            verdict,
            Verdict::Changed {
                line: 1,
                other_type: true,
                ..
            }
        ),
        "{verdict:?}"
    );
}

#[test]
fn any_of_several_keys_is_known() {
    let file = format!("web1 {ECDSA}\nweb1 {K2}\n");
    assert_eq!(judge(&file, "web1", 22, K2), Verdict::Known);
    assert_eq!(judge(&file, "web1", 22, ECDSA), Verdict::Known);
}

#[test]
fn revocation_beats_every_listing() {
    let file = format!("web1 {K1}\n@revoked * {K1}\n");
    assert_eq!(judge(&file, "web1", 22, K1), revoked(2));
    assert_eq!(
        judge(&format!("@revoked\tweb1\t{K1}"), "web1", 22, K1),
        revoked(1)
    );
    assert_eq!(
        judge(&format!("@revoked web1 {K1}"), "web1", 22, K2),
        Verdict::Unknown
    );
}

#[test]
fn an_authority_or_an_unknown_marker_vouches_for_no_key() {
    assert_eq!(
        judge(&format!("@cert-authority * {K1}"), "web1", 22, K1),
        Verdict::Unknown
    );
    assert_eq!(
        judge(&format!("@trusted web1 {K1}"), "web1", 22, K1),
        Verdict::Unknown
    );
}

#[test]
fn wildcards_and_negations_match_as_in_ssh() {
    let file = format!("*.example.org,!bad.example.org,h?st,[*]:22?? {K1}");
    assert_eq!(judge(&file, "a.example.org", 22, K1), Verdict::Known);
    assert_eq!(judge(&file, "bad.example.org", 22, K1), Verdict::Unknown);
    assert_eq!(judge(&file, "host", 22, K1), Verdict::Known);
    assert_eq!(judge(&file, "any", 2222, K1), Verdict::Known);
    assert_eq!(judge(&file, "any", 2322, K1), Verdict::Unknown);
}

#[test]
fn another_port_is_another_name_but_a_bare_entry_also_counts() {
    assert_eq!(
        judge(&format!("[web1]:2222 {K1}"), "web1", 2222, K1),
        Verdict::Known
    );
    assert_eq!(
        judge(&format!("[web1]:2222 {K1}"), "web1", 2222, K2),
        changed(1)
    );
    assert_eq!(
        judge(&format!("[web1]:2222 {K1}"), "web1", 22, K1),
        Verdict::Unknown
    );
    assert_eq!(
        judge(&format!("web1 {K1}"), "web1", 2222, K1),
        Verdict::Known
    );
    assert_eq!(
        judge(&format!("web1 {K1}"), "web1", 2222, K2),
        Verdict::Unknown
    );
    assert_eq!(
        judge(&format!("@revoked web1 {K1}"), "web1", 2222, K1),
        revoked(1)
    );
}

#[test]
fn hashed_names_are_found() {
    let salt = [7; 20];
    let mut mac = Hmac::<Sha1>::new_from_slice(&salt).unwrap();
    mac.update(b"[web1]:2222");
    let hash = BASE64_STANDARD.encode(mac.finalize().into_bytes());
    let file = format!("|1|{}|{hash} {K1}", BASE64_STANDARD.encode(salt));
    assert_eq!(judge(&file, "web1", 2222, K1), Verdict::Known);
    assert_eq!(judge(&file, "web1", 2222, K2), changed(1));
    assert_eq!(judge(&file, "web2", 2222, K1), Verdict::Unknown);
}

#[test]
fn the_types_asked_for_are_those_listed() {
    let mut known = KnownHosts::default();
    known.add(
        Path::new("kh"),
        &format!("web1 {ECDSA}\n@revoked web1 {K1}\n"),
    );
    assert_eq!(
        known.key_types(&HostName::new("web1", 22)),
        [key(ECDSA).algorithm()]
    );
    assert!(known.key_types(&HostName::new("web2", 22)).is_empty());
}

#[test]
fn only_a_missing_file_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    assert!(KnownHosts::read(&[dir.path().join("missing")], &HostName::new("web1", 22)).is_ok());
    assert!(KnownHosts::read(&[dir.path().to_owned()], &HostName::new("web1", 22)).is_err());
}

proptest! {
    #[test]
    fn any_text_gets_a_verdict_that_is_never_laxer_than_unknown(text in "[a-z0-9@|!*?,# \t\n\\[\\]:+/=-]{0,200}") {
        let verdict = judge(&text, "web1", 22, K1);
        prop_assert_eq!(verdict, Verdict::Unknown);
    }
}

#[test]
fn a_line_whose_type_contradicts_its_key_is_ignored() {
    let line = |kind: &str| format!("web1 {kind} {}", K1.split_once(' ').unwrap().1);
    assert_eq!(judge(&line("ssh-ed25519"), "web1", 22, K1), Verdict::Known);
    assert_eq!(judge(&line("ssh-rsa"), "web1", 22, K1), Verdict::Unknown);
}

#[test]
fn what_is_listed_for_others_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kh");
    let others: String = (0..1000).map(|n| format!("other{n} {K1}\n")).collect();
    std::fs::write(&file, format!("{others}web* {K1}\n[web1]:2222 {K1}\n")).unwrap();
    let known = KnownHosts::read(&[file], &HostName::new("web1", 2222)).unwrap();
    assert_eq!(
        known.entries.iter().map(|entry| entry.line).collect::<Vec<_>>(),
        [1001, 1002]
    );
}

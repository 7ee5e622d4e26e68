//! Host trust, against real sshds and beside the real `ssh`: the same decisions, never a laxer one,
//! and each kind of machine in the middle refused with its own code.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Sshd, keygen, run, ssh_keygen};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use sshjobs_ssh::{HostName, KnownHosts, Verdict};
use sshjobs_wire::{Code, Error, HostsRequest};

fn service(sshd: &Sshd) -> sshjobs_wire::Service {
    crate::support::service(&sshd.ssh_config(), Default::default())
}

async fn refusal(sshd: &Sshd) -> Error {
    run(&service(sshd), "true").await.expect_err("the host is refused")
}

/// Why the host's key is not shown to a person.
async fn key_refusal(sshd: &Sshd) -> Code {
    Error::from(service(sshd).library().host_key(crate::support::HOST).await.err().unwrap()).code
}

async fn code(sshd: &Sshd) -> Code {
    refusal(sshd).await.code
}

async fn is_accepted(sshd: &Sshd) -> bool {
    run(&service(sshd), "true").await.is_ok()
}

/// Signs the server's key as that of the host `127.0.0.1`, except where `arguments` differ.
fn certify(directory: &Path, ca: &str, arguments: &[&str]) {
    let file = |name: &str| directory.join(name).display().to_string();
    let default: &[&str] = if arguments.contains(&"-n") {
        &[]
    } else {
        &["-n", "127.0.0.1"]
    };
    let host: &[&str] = if arguments.contains(&"user") {
        &[]
    } else {
        &["-h"]
    };
    let arguments: Vec<&str> =
        arguments.iter().copied().filter(|argument| *argument != "user").collect();
    ssh_keygen(
        &[
            &["-s", &file(ca), "-I", "test"],
            host,
            default,
            &arguments,
            &[&file("host.pub")],
        ]
        .concat(),
    );
}

/// A server that presents a certificate of the authority `ca`, which known_hosts lists; nothing
/// else is listed.
async fn certified(signer: &str, arguments: &[&str]) -> Sshd {
    let sshd = Sshd::prepared("HostCertificate DIR/host-cert.pub", |directory| {
        keygen(&directory.join("ca"), &["-t", "ed25519"]);
        keygen(&directory.join("sha1"), &["-t", "rsa", "-b", "2048"]);
        certify(directory, signer, arguments);
    })
    .await;
    sshd.write_known_hosts(&format!("@cert-authority * {}", public(&sshd, "ca")));
    sshd
}

fn public(sshd: &Sshd, key: &str) -> String {
    std::fs::read_to_string(sshd.path(&format!("{key}.pub"))).unwrap()
}

/// Whether `ssh` itself lets the host pass.
fn ssh_accepts(sshd: &Sshd) -> bool {
    ssh(sshd, &[]).0
}

fn ssh(sshd: &Sshd, options: &[&str]) -> (bool, String) {
    let output = Command::new("ssh")
        .arg("-F")
        .arg(sshd.ssh_config())
        .args([
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=yes",
            "-o",
            "UpdateHostKeys=no",
        ])
        .args(options)
        .args(["web1", "true"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[tokio::test]
async fn a_certificate_of_a_listed_authority_vouches_for_its_host() {
    let sshd = certified("ca", &[]).await;
    assert!(is_accepted(&sshd).await && ssh_accepts(&sshd));
    let shown = service(&sshd)
        .hosts(HostsRequest {
            host: Some(crate::support::HOST.to_owned()),
            ..HostsRequest::default()
        })
        .await
        .unwrap();
    assert!(
        shown.hosts[0].host_key.as_deref().unwrap().ends_with("(certified)"),
        "{shown:?}"
    );
    let several = certified("ca", &["-n", "other,127.0.0.1"]).await;
    assert!(is_accepted(&several).await && ssh_accepts(&several));
}

#[tokio::test]
async fn a_certificate_that_has_expired_or_is_of_the_future_does_not_hold() {
    for validity in ["20200101:20200102", "20990101:20990102"] {
        let sshd = certified("ca", &["-V", validity]).await;
        assert_eq!(code(&sshd).await, Code::HostCertExpired, "{validity}");
        assert!(!ssh_accepts(&sshd));
    }
}

#[tokio::test]
async fn a_certificate_of_an_unlisted_authority_does_not_hold() {
    let sshd = certified("other", &[]).await;
    assert_eq!(code(&sshd).await, Code::HostCertUntrusted);
    assert!(!ssh_accepts(&sshd));
}

#[tokio::test]
async fn a_certificate_for_something_else_does_not_hold() {
    for arguments in [
        &["-n", "otherhost"][..],
        &["-n", "127.0.0.*"],
        &["user"],
        &["-O", "critical:strange=1"],
    ] {
        let sshd = certified("ca", arguments).await;
        assert_eq!(code(&sshd).await, Code::HostCertInvalid, "{arguments:?}");
        assert!(!ssh_accepts(&sshd), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_certificate_signed_with_sha1_does_not_hold() {
    let sshd = certified("sha1", &["-t", "ssh-rsa"]).await;
    sshd.write_known_hosts(&format!("@cert-authority * {}", public(&sshd, "sha1")));
    assert_eq!(code(&sshd).await, Code::HostCertInvalid);
    assert!(!ssh_accepts(&sshd));
}

#[tokio::test]
async fn a_revoked_authority_vouches_for_no_host() {
    let sshd = certified("ca", &[]).await;
    let ca = public(&sshd, "ca");
    let listed = format!("[127.0.0.1]:{} {}", sshd.port(), public(&sshd, "host"));
    for others in [format!("@cert-authority * {ca}"), listed] {
        sshd.write_known_hosts(&format!("{others}@revoked * {ca}"));
        assert_eq!(code(&sshd).await, Code::HostKeyRevoked, "{others}");
        assert!(!ssh_accepts(&sshd));
        assert_eq!(key_refusal(&sshd).await, Code::HostKeyRevoked);
    }
}

#[tokio::test]
async fn an_authority_may_be_listed_or_revoked_by_its_own_certificate() {
    let sshd = certified("ca", &[]).await;
    // A certificate of the authority's key, by another one.
    let authority = sshd.path("ca.pub").display().to_string();
    let signer = sshd.path("sha1").display().to_string();
    ssh_keygen(&[
        "-s",
        &signer,
        "-I",
        "test",
        "-h",
        "-n",
        "127.0.0.1",
        &authority,
    ]);
    let listed = format!("@cert-authority * {}", public(&sshd, "ca"));
    let certificate = public(&sshd, "ca-cert");
    sshd.write_known_hosts(&format!("@cert-authority * {certificate}"));
    assert!(is_accepted(&sshd).await && ssh_accepts(&sshd));
    sshd.write_known_hosts(&format!("{listed}@revoked * {certificate}"));
    assert!(!ssh_accepts(&sshd));
    assert_eq!(code(&sshd).await, Code::HostKeyRevoked);
}

#[tokio::test]
async fn trust_decides_as_a_login_does() {
    let good = certified("ca", &[]).await;
    assert!(service(&good).library().host_key(crate::support::HOST).await.unwrap().is_known);
    let expired = certified("ca", &["-V", "20200101:20200102"]).await;
    assert_eq!(key_refusal(&expired).await, Code::HostCertExpired);
}

#[tokio::test]
async fn what_ssh_would_check_and_we_can_not_is_refused() {
    let sshd = Sshd::start().await;
    sshd.append("  RevokedHostKeys /etc/ssh/revoked\n");
    let refused = refusal(&sshd).await;
    assert_eq!(refused.code, Code::Unsupported);
    assert!(refused.message.contains("RevokedHostKeys"), "{refused}");
}

#[tokio::test]
async fn narrower_algorithms_of_ssh_config_are_kept_to() {
    let sshd = certified("ca", &[]).await;
    sshd.append("  CASignatureAlgorithms rsa-sha2-512\n");
    assert_eq!(code(&sshd).await, Code::HostCertInvalid);
    assert!(!ssh_accepts(&sshd));
    let sshd = Sshd::start().await;
    sshd.append("  HostKeyAlgorithms ecdsa-sha2-nistp256\n");
    assert!(!is_accepted(&sshd).await && !ssh_accepts(&sshd));
}

#[tokio::test]
async fn without_a_good_certificate_the_listed_key_counts_as_with_ssh() {
    let sshd = certified("ca", &["-V", "20200101:20200102"]).await;
    let authority = format!("@cert-authority * {}", public(&sshd, "ca"));
    let listed = |key: &str| {
        format!(
            "{authority}[127.0.0.1]:{} {}",
            sshd.port(),
            public(&sshd, key)
        )
    };
    sshd.write_known_hosts(&listed("host"));
    assert!(is_accepted(&sshd).await && ssh_accepts(&sshd));
    sshd.write_known_hosts(&listed("other"));
    assert_eq!(code(&sshd).await, Code::HostKeyChanged);
    assert!(!ssh_accepts(&sshd));
}

#[tokio::test]
async fn a_key_of_another_type_has_its_own_code() {
    let sshd = Sshd::start().await;
    keygen(&sshd.path("ecdsa"), &["-t", "ecdsa"]);
    sshd.write_known_hosts(&format!(
        "[127.0.0.1]:{} {}",
        sshd.port(),
        public(&sshd, "ecdsa")
    ));
    let refused = refusal(&sshd).await;
    assert_eq!(refused.code, Code::HostKeyTypeChanged);
    assert_eq!(refused.message.matches("SHA256:").count(), 2, "{refused}");
}

#[tokio::test]
async fn a_short_rsa_key_proves_nothing() {
    let sshd = Sshd::prepared(
        "HostKeyAlgorithms +rsa-sha2-256\nRequiredRSASize 1024\nHostKey DIR/short",
        |directory| {
            keygen(&directory.join("short"), &["-t", "rsa", "-b", "1024"]);
        },
    )
    .await;
    sshd.trust("short");
    assert_eq!(code(&sshd).await, Code::HostKeyWeak);
}

#[tokio::test]
async fn accept_new_takes_a_new_host_at_its_word_and_no_other() {
    let sshd = Sshd::start().await;
    sshd.append("  StrictHostKeyChecking accept-new\n");
    sshd.write_known_hosts("# mine");
    assert!(is_accepted(&sshd).await);
    let listed = std::fs::read_to_string(sshd.path("known_hosts")).unwrap();
    assert!(
        listed.starts_with(&format!("# mine\n[127.0.0.1]:{} ssh-ed25519 ", sshd.port())),
        "{listed}"
    );
    assert!(ssh_accepts(&sshd), "ssh finds our entry");
    sshd.trust("other");
    assert_eq!(code(&sshd).await, Code::HostKeyChanged);
    sshd.write_known_hosts(&format!("@revoked * {}", public(&sshd, "host")));
    assert_eq!(code(&sshd).await, Code::HostKeyRevoked);
    let kept = std::fs::read_to_string(sshd.path("known_hosts")).unwrap();
    assert_eq!(kept.lines().count(), 1, "{kept}");
}

#[tokio::test]
async fn nothing_laxer_than_accept_new_is_had() {
    let sshd = Sshd::start().await;
    sshd.append("  StrictHostKeyChecking no\n");
    sshd.write_known_hosts("");
    assert_eq!(code(&sshd).await, Code::HostKeyUnknown);
}

#[tokio::test]
async fn names_are_hashed_where_ssh_would_hash_them() {
    let sshd = Sshd::start().await;
    sshd.append("  StrictHostKeyChecking accept-new\n  HashKnownHosts yes\n");
    sshd.write_known_hosts("");
    assert!(is_accepted(&sshd).await);
    let listed = std::fs::read_to_string(sshd.path("known_hosts")).unwrap();
    assert!(
        listed.starts_with("|1|") && !listed.contains("127.0.0.1"),
        "{listed}"
    );
    assert!(ssh_accepts(&sshd) && is_accepted(&sshd).await);
}

/// A line that may occur in a known_hosts file.
fn line(random: &mut StdRng, names: &[String], keys: &[String]) -> String {
    let marker = *["", "", "", "", "@revoked ", "@cert-authority ", "@strange "]
        .choose(random)
        .unwrap();
    let key = keys.choose(random).unwrap().trim();
    let name = names.choose(random).unwrap();
    let hosts = match random.random_range(0..8) {
        0 => "*".to_owned(),
        1 => format!("*,!{name}"),
        2 => format!("elsewhere,{name}"),
        3 => name.replacen('1', "?", 1),
        4 => name.to_uppercase(),
        5 => HostName::alias(name).hashed(),
        _ => name.clone(),
    };
    match random.random_range(0..12) {
        0 => format!("# {hosts} {key}"),
        1 => format!("\t{marker}{hosts}\t{key}"),
        2 => format!("{marker}{hosts} {}", key.split(' ').next().unwrap()),
        3 => format!("{marker}{hosts} ssh-ed25519 AAAA"),
        _ => format!("{marker}{hosts} {key}"),
    }
}

/// ssh's verdict on the host's key.
fn verdict_of_ssh(sshd: &Sshd, known_hosts: &Path) -> &'static str {
    let option = format!("UserKnownHostsFile={}", known_hosts.display());
    let (success, said) = ssh(sshd, &["-o", &option]);
    match () {
        () if success => "known",
        () if said.contains("REVOKED HOST KEY") => "revoked",
        () if said.contains("IDENTIFICATION HAS CHANGED") => "changed",
        () if said.contains("host key is known for") => "unknown",
        () => panic!(
            "ssh says {said:?} of\n{}",
            std::fs::read_to_string(known_hosts).unwrap()
        ),
    }
}

#[tokio::test]
async fn our_verdicts_are_those_of_ssh_on_generated_files() {
    let sshd = Sshd::start().await;
    keygen(&sshd.path("ecdsa"), &["-t", "ecdsa"]);
    keygen(&sshd.path("ca"), &["-t", "ed25519"]);
    certify(sshd.path("ca").parent().unwrap(), "ca", &[]);
    let keys: Vec<String> = ["host", "host", "other", "ecdsa", "host-cert"]
        .map(|key| public(&sshd, key))
        .to_vec();
    let presented = public(&sshd, "host");
    let presented =
        russh::keys::parse_public_key_base64(presented.split(' ').nth(1).unwrap()).unwrap();
    let name = HostName::new("127.0.0.1", sshd.port());
    let names = [name.as_str(), "127.0.0.1", "localhost", "[127.0.0.1]:22"].map(str::to_owned);
    let seed = rand::rng().next_u64();
    let mut random = StdRng::seed_from_u64(seed);
    let file = sshd.path("generated");
    let mut seen = std::collections::BTreeSet::new();
    // Sixty files, and more until each verdict was met.
    for round in 0..600 {
        if round >= 60 && seen.len() == 4 {
            break;
        }
        let count = random.random_range(0..5);
        let text: String = (0..count).map(|_| line(&mut random, &names, &keys) + "\n").collect();
        std::fs::write(&file, &text).unwrap();
        let ours = match KnownHosts::read(std::slice::from_ref(&file), &name)
            .unwrap()
            .verdict(&name, &presented)
        {
            Verdict::Known => "known",
            Verdict::Unknown => "unknown",
            Verdict::Changed { .. } => "changed",
            Verdict::Revoked { .. } => "revoked",
            Verdict::Uncertified(_) => "uncertified",
        };
        assert_eq!(
            ours,
            verdict_of_ssh(&sshd, &file),
            "seed {seed}, round {round}:\n{text}"
        );
        seen.insert(ours);
    }
    assert_eq!(
        seen.len(),
        4,
        "{seen:?} with seed {seed}: the files must be worth comparing"
    );
}

#[tokio::test]
async fn a_name_is_listed_where_ssh_keygen_finds_it() {
    let sshd = Sshd::start().await;
    let keys: Vec<String> = ["host", "other"].map(|key| public(&sshd, key)).to_vec();
    let names = ["web1", "[web1]:2222", "10.0.0.1"].map(str::to_owned);
    let seed = rand::rng().next_u64();
    let mut random = StdRng::seed_from_u64(seed);
    let file = sshd.path("generated");
    let key =
        |key: &str| russh::keys::parse_public_key_base64(key.split(' ').nth(1).unwrap()).unwrap();
    for round in 0..60 {
        // ssh-keygen also finds lines whose key is damaged; to ssh and to us they say nothing.
        let lines = (0..3).map(|_| line(&mut random, &names, &keys) + "\n");
        let text: String = lines.filter(|line| line.contains("AAAAC3Nz")).collect();
        std::fs::write(&file, &text).unwrap();
        let known = |host: &HostName| KnownHosts::read(std::slice::from_ref(&file), host).unwrap();
        for name in &names {
            // An alias is looked up as it is, as ssh-keygen does.
            let host = HostName::alias(name);
            let ours = keys
                .iter()
                .any(|text| known(&host).verdict(&host, &key(text)) != Verdict::Unknown)
                || known(&host).has_authority(&host);
            let found = Command::new("ssh-keygen")
                .arg("-F")
                .arg(name)
                .arg("-f")
                .arg(&file)
                .output()
                .unwrap();
            assert_eq!(
                ours,
                found.status.success(),
                "seed {seed}, round {round}, {name}:\n{text}"
            );
        }
    }
}

#[tokio::test]
async fn a_server_with_the_curves_of_nist_only_is_reached_and_one_with_others_is_explained() {
    for curve in ["nistp256", "nistp384", "nistp521"] {
        let sshd = Sshd::with(&format!("KexAlgorithms ecdh-sha2-{curve}")).await;
        assert!(is_accepted(&sshd).await, "{curve}");
    }
    for (line, theirs, ours) in [
        (
            "KexAlgorithms diffie-hellman-group14-sha1",
            "diffie-hellman-group14-sha1",
            "curve25519-sha256",
        ),
        ("Ciphers aes256-cbc", "aes256-cbc", "aes256-gcm"),
    ] {
        let error = refusal(&Sshd::with(line).await).await;
        assert_eq!(
            (error.code, error.retryable),
            (Code::Unsupported, false),
            "{error}"
        );
        assert!(error.message.contains(theirs), "{error:?}");
        assert!(error.hint.to_string().contains(ours), "{error:?}");
    }
}

//! Ways to log in, against real sshds: keys of every kind, passphrases from everywhere,
//! certificates, agents that misbehave.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{HOST, Sshd, keygen, run, ssh_keygen};
use sshjobs_core::jobs::{Access, Answer, Config, HostSettings, Prompter, Question, SecretSource};
use sshjobs_wire::{Code, Error, Service};

/// A person who has answers ready, and remembers the questions.
#[derive(Default)]
struct Person {
    answers: Mutex<Vec<&'static str>>,
    questions: Mutex<Vec<Question>>,
}

impl Person {
    fn with(answers: &[&'static str]) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers.to_vec()),
            ..Self::default()
        })
    }

    fn was_asked(&self) -> usize {
        self.questions.lock().unwrap().len()
    }
}

impl Prompter for Person {
    fn ask<'a>(&'a self, question: &'a Question) -> Answer<'a> {
        self.questions.lock().unwrap().push(question.clone());
        let mut answers = self.answers.lock().unwrap();
        let answer = (!answers.is_empty()).then(|| answers.remove(0).into());
        Box::pin(std::future::ready(answer))
    }
}

fn service(sshd: &Sshd) -> Service {
    crate::support::service(&sshd.ssh_config(), Default::default())
}

fn with_person(sshd: &Sshd, person: &Arc<Person>) -> Service {
    let config = Config {
        ssh_config: Some(sshd.ssh_config()),
        ..crate::support::unstored()
    };
    Service::asking(
        config,
        Access::Listed,
        Arc::clone(person) as Arc<dyn Prompter>,
    )
}

fn with_passphrase(sshd: &Sshd, source: SecretSource) -> Service {
    let table = HostSettings {
        passphrase: Some(source),
        ..HostSettings::default()
    };
    let hosts = BTreeMap::from([(HOST.to_owned(), table)]);
    Service::new(
        Config {
            ssh_config: Some(sshd.ssh_config()),
            hosts,
            ..crate::support::unstored()
        },
        Access::Listed,
    )
}

async fn is_let_in(service: &Service) -> bool {
    run(service, "true").await.is_ok()
}

async fn refusal(service: &Service) -> Error {
    let error = run(service, "true").await.expect_err("every login is refused");
    assert_eq!(error.code, Code::AuthFailed, "{error}");
    error
}

/// A server that lets in a key of this kind, made by ssh-keygen.
async fn letting_in(kind: &[&str]) -> Sshd {
    let sshd = Sshd::prepared("LogLevel VERBOSE", |directory| {
        keygen(&directory.join("mine"), kind);
        let public = std::fs::read_to_string(directory.join("mine.pub")).unwrap();
        std::fs::write(directory.join("authorized_keys"), public).unwrap();
    })
    .await;
    sshd.configure("mine");
    sshd
}

const PASSPHRASE: &str = "correct horse";

/// A server whose key has a passphrase.
async fn locked(kind: &[&str]) -> Sshd {
    let sshd = letting_in(kind).await;
    let file = sshd.path("mine").display().to_string();
    // Few rounds of its key derivation: debug builds are slow at it.
    ssh_keygen(&["-p", "-a", "2", "-P", "", "-N", PASSPHRASE, "-f", &file]);
    sshd
}

fn logins(sshd: &Sshd) -> usize {
    sshd.log().matches("Connection from").count()
}

#[tokio::test]
async fn keys_of_every_kind_let_us_in() {
    for kind in [
        &["-t", "ed25519"][..],
        &["-t", "ecdsa", "-b", "256"],
        &["-t", "ecdsa", "-b", "521"],
        &["-t", "rsa", "-b", "2048"],
        &["-t", "rsa", "-b", "2048", "-m", "PEM"],
        &["-t", "ecdsa", "-m", "PKCS8"],
    ] {
        let sshd = letting_in(kind).await;
        assert!(
            is_let_in(&service(&sshd)).await,
            "{kind:?}: {}",
            refusal(&service(&sshd)).await
        );
    }
}

#[tokio::test]
async fn a_short_rsa_key_is_not_offered() {
    let sshd = letting_in(&["-t", "rsa", "-b", "1024"]).await;
    assert!(refusal(&service(&sshd)).await.message.contains("1024 bits is too short"));
}

#[tokio::test]
async fn a_passphrase_comes_from_the_environment_a_file_or_a_command() {
    let sshd = locked(&["-t", "ed25519"]).await;
    let file = sshd.path("passphrase");
    std::fs::write(&file, format!("{PASSPHRASE}\n")).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let command = format!("cat {}", file.display());
    for source in [SecretSource::File(file), SecretSource::Command(command)] {
        assert!(is_let_in(&with_passphrase(&sshd, source)).await);
    }
    let wrong = with_passphrase(&sshd, SecretSource::Command("echo wrong".into()));
    let error = refusal(&wrong).await;
    assert!(
        error.message.contains("configured passphrase is wrong"),
        "{error}"
    );
    let missing = with_passphrase(&sshd, SecretSource::Env("SSHJOBS_NO_SUCH".into()));
    assert!(refusal(&missing).await.message.contains("SSHJOBS_NO_SUCH is not set"));
}

#[tokio::test]
async fn a_person_is_asked_for_a_passphrase_once_and_again_when_it_was_mistyped() {
    for kind in [
        &["-t", "ed25519"][..],
        &["-t", "rsa", "-b", "2048", "-m", "PEM"],
    ] {
        let sshd = locked(kind).await;
        let person = Person::with(&["mistyped", PASSPHRASE]);
        let service = with_person(&sshd, &person);
        assert!(
            is_let_in(&service).await,
            "{kind:?}: {}",
            refusal(&service).await
        );
        assert_eq!(person.was_asked(), 2);
        sshd.cut();
        crate::support::eventually("the connection is gone", async || {
            service
                .hosts(Default::default())
                .await
                .unwrap()
                .hosts
                .iter()
                .all(|host| !host.connected)
        })
        .await;
        assert!(is_let_in(&service).await);
        assert_eq!(
            person.was_asked(),
            2,
            "a password that succeeded is not asked for again"
        );
        let question = person.questions.lock().unwrap()[0].clone();
        assert!(
            !question.echo && question.text.contains("passphrase of"),
            "{question:?}"
        );
    }
}

#[tokio::test]
async fn without_anybody_to_ask_the_error_says_what_was_needed() {
    let sshd = locked(&["-t", "ed25519"]).await;
    let error = refusal(&service(&sshd)).await;
    assert!(
        error.message.contains("/mine (it needs a passphrase, and none is available)"),
        "{error}"
    );
    let person = Person::with(&[]);
    assert!(
        refusal(&with_person(&sshd, &person))
            .await
            .message
            .contains("and none is available")
    );
    sshd.append("  BatchMode yes\n");
    let person = Person::with(&[PASSPHRASE]);
    refusal(&with_person(&sshd, &person)).await;
    assert_eq!(person.was_asked(), 0, "BatchMode asks no person");
}

#[tokio::test]
async fn a_passphrase_is_not_asked_for_when_the_server_does_not_take_the_key() {
    let sshd = locked(&["-t", "ed25519"]).await;
    std::fs::write(sshd.path("authorized_keys"), "").unwrap();
    let person = Person::with(&[PASSPHRASE]);
    refusal(&with_person(&sshd, &person)).await;
    assert_eq!(person.was_asked(), 0);
}

/// Signs the key as that of our user, except where `arguments` differ.
fn certify(directory: &Path, key: &str, arguments: &[&str]) {
    let file = |name: &str| directory.join(name).display().to_string();
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let whole = [
        &["-s", &file("ca"), "-I", "me", "-n", user.trim()],
        arguments,
        &[&file(&format!("{key}.pub"))],
    ];
    ssh_keygen(&whole.concat());
}

/// A server that accepts only users whom its authority has certified.
async fn certifying(kind: &[&str], arguments: &[&str]) -> Sshd {
    let sshd = Sshd::prepared("TrustedUserCAKeys DIR/ca.pub", |directory| {
        keygen(&directory.join("ca"), &["-t", "ed25519"]);
        keygen(&directory.join("mine"), kind);
        certify(directory, "mine", arguments);
        std::fs::write(directory.join("authorized_keys"), "").unwrap();
    })
    .await;
    sshd.configure("mine");
    sshd
}

#[tokio::test]
async fn a_certificate_lets_us_in_where_its_key_would_not() {
    for kind in [&["-t", "ed25519"][..], &["-t", "rsa", "-b", "2048"]] {
        let sshd = certifying(kind, &[]).await;
        assert!(
            is_let_in(&service(&sshd)).await,
            "{kind:?}: {}",
            refusal(&service(&sshd)).await
        );
        // It may be elsewhere than beside its key, too.
        std::fs::rename(sshd.path("mine-cert.pub"), sshd.path("elsewhere")).unwrap();
        refusal(&service(&sshd)).await;
        sshd.append(&format!(
            "  CertificateFile {}\n",
            sshd.path("elsewhere").display()
        ));
        assert!(is_let_in(&service(&sshd)).await);
    }
    let expired = certifying(&["-t", "ed25519"], &["-V", "20200101:20200102"]).await;
    assert!(refusal(&service(&expired)).await.message.contains("certificate \"me\""));
}

/// An ssh-agent of our own.
struct SshAgent {
    child: Child,
    socket: std::path::PathBuf,
}

impl SshAgent {
    fn holding(sshd: &Sshd, key: &str) -> Self {
        let socket = sshd.path("agent");
        let child = Command::new("ssh-agent")
            .arg("-D")
            .arg("-a")
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let agent = Self { child, socket };
        // The socket's file is there before the agent listens, so only a connection shows that it does.
        let deadline = Instant::now() + Duration::from_secs(10);
        while UnixStream::connect(&agent.socket).is_err() {
            assert!(Instant::now() < deadline, "ssh-agent does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        agent.add(sshd, key);
        std::fs::remove_file(sshd.path(key)).unwrap();
        let text = std::fs::read_to_string(sshd.ssh_config()).unwrap();
        let text = text.replace(
            "IdentityAgent none",
            &format!("IdentityAgent {}", agent.socket.display()),
        );
        std::fs::write(sshd.ssh_config(), text).unwrap();
        agent
    }

    fn add(&self, sshd: &Sshd, key: &str) {
        let added = Command::new("ssh-add")
            .arg("-q")
            .arg(sshd.path(key))
            .env("SSH_AUTH_SOCK", &self.socket)
            .status()
            .unwrap();
        assert!(added.success());
    }
}

impl Drop for SshAgent {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test]
async fn an_agent_lets_us_in_with_its_keys_and_certificates() {
    for kind in [&["-t", "ed25519"][..], &["-t", "rsa", "-b", "2048"]] {
        let sshd = letting_in(kind).await;
        let _agent = SshAgent::holding(&sshd, "mine");
        assert!(
            is_let_in(&service(&sshd)).await,
            "{kind:?}: {}",
            refusal(&service(&sshd)).await
        );
        let sshd = certifying(kind, &[]).await;
        let _agent = SshAgent::holding(&sshd, "mine");
        assert!(
            is_let_in(&service(&sshd)).await,
            "{kind:?}: {}",
            refusal(&service(&sshd)).await
        );
    }
}

#[tokio::test]
async fn of_an_agent_only_the_configured_keys_are_offered_when_that_is_asked_for() {
    let sshd = letting_in(&["-t", "ed25519"]).await;
    let _agent = SshAgent::holding(&sshd, "mine");
    assert!(
        is_let_in(&service(&sshd)).await,
        "its public half is configured"
    );
    std::fs::remove_file(sshd.path("mine.pub")).unwrap();
    assert!(refusal(&service(&sshd)).await.message.contains("there is no such file"));
    sshd.append("PubkeyAuthentication no\n");
    assert!(refusal(&service(&sshd)).await.message.contains("PubkeyAuthentication is off"));
}

#[tokio::test]
async fn an_agent_that_says_nothing_is_passed_over() {
    let sshd = Sshd::start().await;
    let socket = sshd.path("silent");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let text = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let text = text.replace(
        "IdentityAgent none",
        &format!("IdentityAgent {}", socket.display()),
    );
    std::fs::write(sshd.ssh_config(), text).unwrap();
    let start = Instant::now();
    assert!(is_let_in(&service(&sshd)).await);
    assert!(
        start.elapsed() < Duration::from_secs(9),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn nothing_is_tried_again_by_itself() {
    let sshd = letting_in(&["-t", "ed25519"]).await;
    std::fs::write(sshd.path("authorized_keys"), "").unwrap();
    refusal(&service(&sshd)).await;
    assert_eq!(logins(&sshd), 1, "{}", sshd.log());
}

/// An agent with a security key, following the agent protocol and OpenSSH's PROTOCOL.u2f, with a
/// key of ours in place of the device. It serves one connection after another until the test ends.
fn security_key(sshd: &Sshd) -> std::path::PathBuf {
    use russh::keys::signature::Signer;
    use russh::keys::ssh_key::sha2::{Digest, Sha256};
    use std::io::{Read, Write};
    const KIND: &[u8] = b"sk-ssh-ed25519@openssh.com";
    fn string(bytes: &[u8]) -> Vec<u8> {
        [
            &u32::try_from(bytes.len()).unwrap().to_be_bytes()[..],
            bytes,
        ]
        .concat()
    }
    let device = russh::keys::load_secret_key(sshd.path("id"), None).unwrap();
    let point = device.public_key().key_data().ed25519().unwrap().0;
    let blob = [string(KIND), string(&point), string(b"ssh:")].concat();
    let line = format!(
        "{} {} key",
        String::from_utf8_lossy(KIND),
        base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &blob)
    );
    std::fs::write(sshd.path("authorized_keys"), line).unwrap();
    let socket = sshd.path("security-key");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut length = [0; 4];
            while stream.read_exact(&mut length).is_ok() {
                let mut request = vec![0; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut request).unwrap();
                let answer = match request[0] {
                    11 => [&[12, 0, 0, 0, 1][..], &string(&blob), &string(b"key")].concat(),
                    13 => {
                        let after_blob = 1 + 4 + blob.len();
                        let data = &request[after_blob + 4..request.len() - 4];
                        // Touched, for the seventh time.
                        let presence = [&[1][..], &7u32.to_be_bytes()].concat();
                        let signed = [
                            &Sha256::digest(b"ssh:")[..],
                            &presence,
                            &Sha256::digest(data),
                        ]
                        .concat();
                        let signature = device.try_sign(&signed).unwrap();
                        let whole = [string(KIND), string(signature.as_bytes()), presence].concat();
                        [&[14][..], &string(&whole)].concat()
                    }
                    _ => vec![5],
                };
                stream.write_all(&string(&answer)).unwrap();
            }
        }
    });
    socket
}

#[tokio::test]
async fn a_security_key_lets_us_in_through_the_agent() {
    let sshd = Sshd::start().await;
    let socket = security_key(&sshd);
    let text = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let text = text
        .replace(
            "IdentityAgent none",
            &format!("IdentityAgent {}", socket.display()),
        )
        .replace("IdentitiesOnly yes", "IdentitiesOnly no");
    std::fs::write(sshd.ssh_config(), text).unwrap();
    std::fs::remove_file(sshd.path("id")).unwrap();
    assert!(
        is_let_in(&service(&sshd)).await,
        "{}",
        refusal(&service(&sshd)).await
    );
}

#[tokio::test]
async fn a_wrong_password_is_told_before_the_next_question() {
    // Without PAM no password of this account is right, whoever runs the tests.
    let sshd = Sshd::prepared("PasswordAuthentication yes", |directory| {
        std::fs::write(directory.join("authorized_keys"), "").unwrap();
    })
    .await;
    let person = Person::with(&["wrong", "wrong again"]);
    refusal(&with_person(&sshd, &person)).await;
    let questions = person.questions.lock().unwrap();
    let texts: Vec<&str> = questions.iter().map(|question| question.text.as_str()).collect();
    assert!(
        !texts[0].contains("not accepted") && texts[0].ends_with("password: "),
        "{texts:?}"
    );
    assert!(texts[1].starts_with("That was not accepted. "), "{texts:?}");
    assert!(!texts.iter().any(|text| text.contains("wrong")));
}

#[tokio::test]
async fn a_key_file_that_is_not_there_is_named_in_the_error() {
    let sshd = letting_in(&["-t", "ed25519"]).await;
    std::fs::remove_file(sshd.path("mine")).unwrap();

    let error = refusal(&service(&sshd)).await;

    let expected = format!("{} (there is no such file)", sshd.path("mine").display());
    assert!(error.message.contains(&expected), "{error}");
}

#[tokio::test]
async fn a_server_that_hangs_up_after_many_keys_hints_at_naming_one() {
    let sshd = Sshd::with("MaxAuthTries 4\n").await;
    let keys: Vec<String> = (0..6).map(|index| format!("other{index}")).collect();
    for key in &keys {
        keygen(&sshd.path(key), &["-t", "ed25519"]);
    }
    let agent = SshAgent::holding(&sshd, &keys[0]);
    keys[1..].iter().for_each(|key| agent.add(&sshd, key));
    let config = std::fs::read_to_string(sshd.ssh_config()).unwrap();
    let config = config.replace("IdentitiesOnly yes", "IdentitiesOnly no");
    std::fs::write(sshd.ssh_config(), config).unwrap();
    std::fs::remove_file(sshd.path("id")).unwrap();
    std::fs::remove_file(sshd.path("id.pub")).unwrap();

    let error = refusal(&service(&sshd)).await;

    assert!(error.message.contains("IdentitiesOnly yes"), "{error}");
}

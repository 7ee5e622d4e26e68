//! Keys and passwords that a caller's logins have used, and the prompter for others. They stay in
//! memory until the program ends.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use russh::keys::PrivateKey;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;

use super::become_password::{BecomePassword, FleetPasswords, PasswordSource};
use super::prompter::{PERSON_TIMEOUT, REFUSED};
use super::{Prompter, Question};
use crate::HostConfig;
use sshjobs_base::lock::lock;

/// Keys and passwords that succeeded, and the prompter for others. A secret that succeeded is not
/// asked for again.
#[derive(Default)]
pub struct LoginSecrets {
    prompter: Option<Arc<dyn Prompter>>,
    keys: Mutex<HashMap<PathBuf, Arc<PrivateKey>>>,
    // By all settings, so that a changed address or account never gets an old password.
    passwords: Mutex<HashMap<HostConfig, SecretString>>,
    /// Passwords that a host's sudo, doas or su accepted. Key: the account whose password it is;
    /// `None` for the one that logs in.
    become_passwords: Mutex<HashMap<(HostConfig, Option<String>), SecretString>>,
    /// Passwords for all hosts of a fleet.
    fleet_passwords: FleetPasswords,
    /// Allows one question for all hosts of a fleet at a time: the others use its answer.
    asking_for_fleet: tokio::sync::Mutex<()>,
    /// Allows one question at a time.
    asking: tokio::sync::Mutex<()>,
}

impl LoginSecrets {
    /// Secrets with a prompter to ask.
    pub fn asking(prompter: Option<Arc<dyn Prompter>>) -> Self {
        Self {
            prompter,
            ..Self::default()
        }
    }

    /// Whether there is a person to ask.
    pub fn can_ask(&self) -> bool {
        self.prompter.as_ref().is_some_and(|prompter| prompter.is_there())
    }

    /// Asks the person. `None` if nobody answers in time.
    pub async fn ask(&self, question: &Question) -> Option<SecretString> {
        let prompter = self.prompter.as_ref()?;
        let asked = async {
            let _one_at_a_time = self.asking.lock().await;
            prompter.ask(question).await
        };
        // Includes the wait for earlier questions: the server's LoginGraceTime runs meanwhile.
        timeout(PERSON_TIMEOUT, asked).await.ok()?
    }

    /// The password, if no person has to be asked: the configured one, or one that the host has
    /// accepted earlier. The error says why the configured one can't be read.
    pub async fn known_become_password(
        &self,
        wanted: &BecomePassword<'_>,
    ) -> Result<Option<SecretString>, String> {
        if let Some(source) = &wanted.host.become_password {
            let password = source.read().await;
            let password =
                password.map_err(|error| format!("become_password can't be read: {error}"))?;
            // A second line would be read by the command.
            let line = password.expose_secret().lines().next().unwrap_or_default();
            return Ok(Some(line.into()));
        }
        Ok(lock(&self.become_passwords).get(&accepted_key(wanted)).cloned())
    }

    /// Asks a person for the password, once for all hosts of a fleet. The error says why there is
    /// none.
    pub async fn ask_become_password(
        &self,
        wanted: &BecomePassword<'_>,
    ) -> Result<SecretString, String> {
        let given = match wanted.fleet {
            Some(fleet) => self.ask_for_fleet(wanted, fleet).await,
            None => self.ask_for_host(wanted, "").await,
        };
        given.ok_or_else(|| "none is configured and no person gave one".to_owned())
    }

    async fn ask_for_fleet(
        &self,
        wanted: &BecomePassword<'_>,
        fleet: &str,
    ) -> Option<SecretString> {
        let (is_again, _until_the_answer_is_kept) = loop {
            let one_at_a_time = self.asking_for_fleet.lock().await;
            let verdicts = self.fleet_passwords.verdicts();
            match self.fleet_passwords.source_of(wanted, fleet) {
                PasswordSource::Known(password) => return Some(password),
                PasswordSource::NotGiven => return None,
                PasswordSource::AskForHost => {
                    drop(one_at_a_time);
                    return self.ask_for_host(wanted, REFUSED).await;
                }
                PasswordSource::OnTrial => {
                    drop(one_at_a_time);
                    self.fleet_passwords.wait_for_verdict(verdicts).await;
                }
                PasswordSource::Ask { is_again } => break (is_again, one_at_a_time),
            }
        };
        let refused = if is_again { REFUSED } else { "" };
        let question = question_of(wanted, "all hosts of this run", refused);
        let answer = self.ask(&question).await;
        self.fleet_passwords.keep(wanted, fleet, answer.clone());
        answer
    }

    async fn ask_for_host(
        &self,
        wanted: &BecomePassword<'_>,
        refused: &str,
    ) -> Option<SecretString> {
        self.ask(&question_of(wanted, &wanted.host.name, refused)).await
    }

    /// Keeps a password that a program accepted, so that a person is asked once.
    pub fn accept_become_password(&self, wanted: &BecomePassword<'_>, password: SecretString) {
        if let Some(fleet) = wanted.fleet {
            self.fleet_passwords.accept(wanted, fleet, &password);
        }
        if wanted.host.become_password.is_some() {
            return;
        }
        lock(&self.become_passwords).insert(accepted_key(wanted), password);
    }

    /// Forgets a password that a program refused. Returns whether the person, who gave it for all
    /// hosts of a fleet, can be asked for another one.
    pub fn refuse_become_password(
        &self,
        wanted: &BecomePassword<'_>,
        password: &SecretString,
    ) -> bool {
        lock(&self.become_passwords).remove(&accepted_key(wanted));
        let Some(fleet) = wanted.fleet else { return false };
        wanted.host.become_password.is_none()
            && self.fleet_passwords.refuse(wanted, fleet, password)
    }

    /// Notes that a program has given no verdict about a password: another host of the fleet may get it.
    pub fn give_up_become_password(&self, wanted: &BecomePassword<'_>) {
        if let Some(fleet) = wanted.fleet {
            self.fleet_passwords.give_up(wanted, fleet);
        }
    }

    /// Forgets the passwords that a person gave for all hosts of a fleet.
    pub fn forget_fleet(&self, fleet: &str) {
        self.fleet_passwords.forget(fleet);
    }

    pub(super) fn key(&self, file: &Path) -> Option<Arc<PrivateKey>> {
        lock(&self.keys).get(file).cloned()
    }

    pub(super) fn keep_key(&self, file: &Path, key: Arc<PrivateKey>) {
        lock(&self.keys).insert(file.to_owned(), key);
    }

    pub(super) fn password(&self, host: &HostConfig) -> Option<SecretString> {
        lock(&self.passwords).get(host).cloned()
    }

    pub(super) fn keep_password(&self, host: &HostConfig, password: Option<SecretString>) {
        match password {
            Some(password) => lock(&self.passwords).insert(host.clone(), password),
            None => lock(&self.passwords).remove(host),
        };
    }
}

/// Key of an accepted password.
fn accepted_key(wanted: &BecomePassword<'_>) -> (HostConfig, Option<String>) {
    (wanted.host.clone(), wanted.account.map(str::to_owned))
}

fn question_of(wanted: &BecomePassword<'_>, host: &str, refused: &str) -> Question {
    Question {
        host: host.to_owned(),
        text: format!(
            "{refused}password of {} for {}: ",
            wanted.account(),
            wanted.program
        ),
        echo: false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Answer;

    /// Gives these answers, and notes the questions.
    struct Person {
        answers: Mutex<Vec<&'static str>>,
        questions: Mutex<Vec<String>>,
    }

    impl Person {
        fn with(mut answers: Vec<&'static str>) -> Arc<Self> {
            answers.reverse();
            Arc::new(Self {
                answers: Mutex::new(answers),
                questions: Mutex::default(),
            })
        }

        fn questions(&self) -> Vec<String> {
            lock(&self.questions).clone()
        }
    }

    impl Prompter for Person {
        fn ask<'a>(&'a self, question: &'a Question) -> Answer<'a> {
            let text = format!("({}) {}", question.host, question.text);
            lock(&self.questions).push(text);
            let answer = lock(&self.answers).pop();
            Box::pin(async move {
                // The other members ask meanwhile.
                tokio::task::yield_now().await;
                answer.map(SecretString::from)
            })
        }
    }

    fn hosts() -> [HostConfig; 3] {
        ["web1", "web2", "web3"].map(|name| HostConfig::new(name, name, 22, "deploy"))
    }

    fn on<'a>(host: &'a HostConfig, fleet: &'a str) -> BecomePassword<'a> {
        BecomePassword {
            host,
            account: None,
            program: "sudo",
            fleet: Some(fleet),
        }
    }

    async fn given(secrets: &LoginSecrets, wanted: &BecomePassword<'_>) -> Option<String> {
        let given = secrets.ask_become_password(wanted).await.ok()?;
        Some(given.expose_secret().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn one_host_of_a_fleet_tries_the_answer_before_the_others_use_it() {
        let person = Person::with(vec!["right"]);
        let secrets = LoginSecrets::asking(Some(person.clone()));
        let hosts = hosts();
        let [web1, web2, web3] = hosts.each_ref().map(|host| on(host, "fleet-1"));

        let first = secrets.ask_become_password(&web1).await.unwrap();
        let others = async { tokio::join!(given(&secrets, &web2), given(&secrets, &web3)) };
        tokio::pin!(others);
        let too_early = tokio::time::timeout(Duration::from_secs(10), &mut others).await;
        assert!(
            too_early.is_err(),
            "they wait for the verdict of the first host"
        );
        secrets.accept_become_password(&web1, first);
        let (two, three) = others.await;

        assert_eq!([two, three], [(); 2].map(|()| Some("right".to_owned())));
        assert_eq!(
            person.questions(),
            ["(all hosts of this run) password of deploy for sudo: "]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn another_host_tries_the_answer_if_the_first_gives_no_verdict() {
        let person = Person::with(vec!["right"]);
        let secrets = LoginSecrets::asking(Some(person.clone()));
        let [web1, web2, _] = hosts();
        let (web1, web2) = (on(&web1, "fleet-1"), on(&web2, "fleet-1"));
        assert!(given(&secrets, &web1).await.is_some());

        assert_eq!(given(&secrets, &web2).await.as_deref(), Some("right"));

        assert_eq!(person.questions().len(), 1);
    }

    #[tokio::test]
    async fn a_host_that_refuses_what_others_accept_is_asked_for_its_own() {
        let person = Person::with(vec!["common", "own"]);
        let secrets = LoginSecrets::asking(Some(person.clone()));
        let [web1, web2, _] = hosts();
        let (web1, web2) = (on(&web1, "fleet-1"), on(&web2, "fleet-1"));
        let common = secrets.ask_become_password(&web1).await.unwrap();
        secrets.accept_become_password(&web1, common.clone());

        assert!(secrets.refuse_become_password(&web2, &common));
        assert_eq!(given(&secrets, &web2).await.as_deref(), Some("own"));

        assert!(
            !secrets.refuse_become_password(&web2, &"own".into()),
            "it is asked for once"
        );
        assert_eq!(
            person.questions()[1],
            "(web2) That was not accepted. password of deploy for sudo: "
        );
        let web3 = HostConfig::new("web3", "web3", 22, "deploy");
        let of_others = given(&secrets, &on(&web3, "fleet-1")).await;
        assert_eq!(of_others.as_deref(), Some("common"));
    }

    #[tokio::test]
    async fn a_mistyped_password_is_asked_for_again_for_all_hosts() {
        let person = Person::with(vec!["wrogn", "right"]);
        let secrets = LoginSecrets::asking(Some(person.clone()));
        let [web1, web2, _] = hosts();
        let (web1, web2) = (on(&web1, "fleet-1"), on(&web2, "fleet-1"));
        let wrong = secrets.ask_become_password(&web1).await.unwrap();

        for host in [&web1, &web2] {
            assert!(secrets.refuse_become_password(host, &wrong));
            let answer = secrets.ask_become_password(host).await.unwrap();
            assert_eq!(answer.expose_secret(), "right");
            secrets.accept_become_password(host, answer);
        }

        assert_eq!(person.questions().len(), 2, "{:?}", person.questions());
    }

    #[tokio::test]
    async fn questions_for_all_hosts_end_after_three_refusals() {
        let person = Person::with(vec!["a", "b", "c", "d", "e"]);
        let secrets = LoginSecrets::asking(Some(person.clone()));
        let [web1, ..] = hosts();
        let web1 = on(&web1, "fleet-1");
        let mut attempts = 0;

        while let Ok(password) = secrets.ask_become_password(&web1).await {
            attempts += 1;
            if !secrets.refuse_become_password(&web1, &password) {
                break;
            }
        }

        assert_eq!(attempts, 3);
    }

    #[tokio::test]
    async fn a_person_who_gives_no_password_is_asked_once() {
        let person = Person::with(Vec::new());
        let secrets = LoginSecrets::asking(Some(person.clone()));
        let hosts = hosts();

        for host in &hosts {
            assert_eq!(given(&secrets, &on(host, "fleet-1")).await, None);
        }

        assert_eq!(person.questions().len(), 1);
        secrets.forget_fleet("fleet-1");
        assert_eq!(given(&secrets, &on(&hosts[0], "fleet-1")).await, None);
        assert_eq!(
            person.questions().len(),
            2,
            "a fleet that ended is forgotten"
        );
    }
}

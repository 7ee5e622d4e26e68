//! Passwords with which sudo, doas or su changes the user. A person gives one for each host, or one
//! for all hosts of a fleet.
//!
//! Members of a fleet ask at the same time. The first one asks the person and tries the answer, and the
//! others wait for that: a mistyped password must not lock the account on all hosts. Once a host has
//! accepted it, all use it, and a host that refuses it asks for its own. If the first host refuses it,
//! it was probably mistyped, and the person is asked once more for all hosts.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::HostConfig;
use sshjobs_base::lock::lock;

/// A password that a program asks for.
#[derive(Clone, Copy, Debug)]
pub struct BecomePassword<'a> {
    /// The host.
    pub host: &'a HostConfig,
    /// The account whose password it is; `None` for the one that logs in.
    pub account: Option<&'a str>,
    /// The program: sudo, doas or su.
    pub program: &'a str,
    /// Id of the fleet that starts on this host, if it is one.
    pub fleet: Option<&'a str>,
}

impl BecomePassword<'_> {
    /// Name of the account whose password it is.
    pub(super) fn account(&self) -> &str {
        self.account.unwrap_or(&self.host.user)
    }
}

/// Maximum times that a person is asked for a password of all hosts.
const MOST_QUESTIONS: u32 = 3;

/// Time limit for the verdict of the host that gets a password first. Then another host gets it.
const TRIAL: Duration = Duration::from_secs(30);

/// Passwords that a person gave for all hosts of a fleet.
#[derive(Default)]
pub(super) struct FleetPasswords {
    by_fleet: Mutex<HashMap<FleetAccount, FleetPassword>>,
    /// Counts verdicts of hosts, for those that wait for one.
    verdicts: watch::Sender<u64>,
}

/// An account that has the same name on all hosts of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FleetAccount {
    fleet: String,
    account: String,
    program: String,
}

/// The password of an account for all hosts of a fleet.
#[derive(Default)]
struct FleetPassword {
    answer: Option<FleetAnswer>,
    is_accepted: bool,
    /// When a host began to try the answer, until its verdict.
    tried_since: Option<Instant>,
    questions: u32,
    refused_by: HashSet<HostConfig>,
}

/// Answer of the person.
#[derive(Clone)]
enum FleetAnswer {
    Given(SecretString),
    NotGiven,
}

/// How a member of a fleet gets its password.
pub(super) enum PasswordSource {
    /// The person has given it for all hosts.
    Known(SecretString),
    /// The person gave none, or too many were refused.
    NotGiven,
    /// Another host has it and has given no verdict: look again after that.
    OnTrial,
    /// The person must be asked for all hosts.
    Ask {
        /// Whether an earlier answer was refused.
        is_again: bool,
    },
    /// The host has refused the password of the others and needs its own.
    AskForHost,
}

impl FleetPasswords {
    pub(super) fn source_of(&self, wanted: &BecomePassword<'_>, fleet: &str) -> PasswordSource {
        let mut by_fleet = lock(&self.by_fleet);
        let Some(known) = by_fleet.get_mut(&FleetAccount::of(wanted, fleet)) else {
            return PasswordSource::Ask { is_again: false };
        };
        if known.refused_by.contains(wanted.host) {
            return PasswordSource::AskForHost;
        }
        match &known.answer {
            Some(FleetAnswer::Given(password)) => {
                let is_on_trial = known.tried_since.is_some_and(|since| since.elapsed() < TRIAL);
                if !known.is_accepted && is_on_trial {
                    return PasswordSource::OnTrial;
                }
                let password = password.clone();
                known.tried_since = Some(Instant::now());
                PasswordSource::Known(password)
            }
            Some(FleetAnswer::NotGiven) => PasswordSource::NotGiven,
            None if known.questions >= MOST_QUESTIONS => PasswordSource::NotGiven,
            None => PasswordSource::Ask {
                is_again: known.questions > 0,
            },
        }
    }

    /// Number of verdicts so far, for [`wait_for_verdict`](Self::wait_for_verdict).
    pub(super) fn verdicts(&self) -> u64 {
        *self.verdicts.borrow()
    }

    /// Resolves when there are other verdicts than `seen`, or when another host may try the password.
    pub(super) async fn wait_for_verdict(&self, seen: u64) {
        let mut verdicts = self.verdicts.subscribe();
        // However the wait ends, the caller looks again.
        drop(timeout(TRIAL, verdicts.wait_for(|verdicts| *verdicts != seen)).await);
    }

    /// Keeps the answer of the person for all hosts. The host that has asked gets it first.
    pub(super) fn keep(
        &self,
        wanted: &BecomePassword<'_>,
        fleet: &str,
        answer: Option<SecretString>,
    ) {
        let mut by_fleet = lock(&self.by_fleet);
        let known = by_fleet.entry(FleetAccount::of(wanted, fleet)).or_default();
        known.questions += 1;
        known.tried_since = answer.is_some().then(Instant::now);
        known.answer = Some(answer.map_or(FleetAnswer::NotGiven, FleetAnswer::Given));
    }

    /// Notes that a host has accepted a password.
    pub(super) fn accept(&self, wanted: &BecomePassword<'_>, fleet: &str, password: &SecretString) {
        if let Some(known) = lock(&self.by_fleet).get_mut(&FleetAccount::of(wanted, fleet))
            && known.has_answer(password)
        {
            known.is_accepted = true;
        }
        self.note_verdict();
    }

    /// Notes that a host has refused a password. Returns whether another one may be tried.
    pub(super) fn refuse(
        &self,
        wanted: &BecomePassword<'_>,
        fleet: &str,
        password: &SecretString,
    ) -> bool {
        let may_try_another = match lock(&self.by_fleet).get_mut(&FleetAccount::of(wanted, fleet)) {
            Some(known) => known.refuse(wanted.host, password),
            // It was one that the host has accepted earlier.
            None => true,
        };
        // After the change, at which the others look.
        self.note_verdict();
        may_try_another
    }

    /// Notes that a host has given no verdict about a password. Another host may get it.
    pub(super) fn give_up(&self, wanted: &BecomePassword<'_>, fleet: &str) {
        if let Some(known) = lock(&self.by_fleet).get_mut(&FleetAccount::of(wanted, fleet)) {
            known.tried_since = None;
        }
        self.note_verdict();
    }

    fn note_verdict(&self) {
        self.verdicts.send_modify(|verdicts| *verdicts += 1);
    }

    /// Forgets the passwords of a fleet that has ended.
    pub(super) fn forget(&self, fleet: &str) {
        lock(&self.by_fleet).retain(|account, _| account.fleet != fleet);
    }
}

impl FleetPassword {
    /// Notes that a host has refused a password. Returns whether another one may be tried there.
    fn refuse(&mut self, host: &HostConfig, password: &SecretString) -> bool {
        if self.refused_by.contains(host) {
            // It was the host's own.
            return false;
        }
        // Otherwise the person has given another one since.
        if self.has_answer(password) {
            if self.is_accepted {
                self.refused_by.insert(host.clone());
            } else {
                self.answer = None;
                self.tried_since = None;
            }
        }
        true
    }

    fn has_answer(&self, password: &SecretString) -> bool {
        match &self.answer {
            Some(FleetAnswer::Given(given)) => given.expose_secret() == password.expose_secret(),
            Some(FleetAnswer::NotGiven) | None => false,
        }
    }
}

impl FleetAccount {
    fn of(wanted: &BecomePassword<'_>, fleet: &str) -> Self {
        Self {
            fleet: fleet.to_owned(),
            account: wanted.account().to_owned(),
            program: wanted.program.to_owned(),
        }
    }
}

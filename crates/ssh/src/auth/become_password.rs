//! Passwords with which sudo, doas or su changes the user. A person gives one for each host, or one
//! for all hosts of a fleet.
//!
//! Members of a fleet ask at the same time. The first one asks the person, and the others use that
//! answer. A host that refuses it asks for its own; but if no host has accepted the answer yet, it
//! was probably mistyped, and the person is asked once more for all hosts.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use secrecy::{ExposeSecret, SecretString};

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

/// Passwords that a person gave for all hosts of a fleet.
#[derive(Default)]
pub(super) struct FleetPasswords {
    by_fleet: Mutex<HashMap<FleetAccount, FleetPassword>>,
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
    questions: u32,
    refused_by: HashSet<HostConfig>,
}

/// What the person answered.
#[derive(Clone)]
enum FleetAnswer {
    Given(SecretString),
    NotGiven,
}

/// How a member of a fleet gets its password.
pub(super) enum FleetTurn {
    /// The person has given it for all hosts.
    Known(SecretString),
    /// The person gave none.
    NotGiven,
    /// The person must be asked for all hosts. `is_again` if an earlier answer was refused.
    Ask {
        /// Whether an earlier answer was refused.
        is_again: bool,
    },
    /// The host has refused the password of the others and needs its own.
    OfItsOwn,
}

impl FleetPasswords {
    pub(super) fn turn(&self, wanted: &BecomePassword<'_>, fleet: &str) -> FleetTurn {
        let mut by_fleet = lock(&self.by_fleet);
        let Some(known) = by_fleet.get_mut(&FleetAccount::of(wanted, fleet)) else {
            return FleetTurn::Ask { is_again: false };
        };
        if known.refused_by.contains(wanted.host) {
            return FleetTurn::OfItsOwn;
        }
        match &known.answer {
            Some(FleetAnswer::Given(password)) => FleetTurn::Known(password.clone()),
            Some(FleetAnswer::NotGiven) => FleetTurn::NotGiven,
            None if known.questions >= MOST_QUESTIONS => {
                // So that its own password is tried once.
                known.refused_by.insert(wanted.host.clone());
                FleetTurn::OfItsOwn
            }
            None => FleetTurn::Ask {
                is_again: known.questions > 0,
            },
        }
    }

    /// Keeps the answer of the person for all hosts.
    pub(super) fn keep(
        &self,
        wanted: &BecomePassword<'_>,
        fleet: &str,
        answer: Option<SecretString>,
    ) {
        let mut by_fleet = lock(&self.by_fleet);
        let known = by_fleet.entry(FleetAccount::of(wanted, fleet)).or_default();
        known.questions += 1;
        known.answer = Some(answer.map_or(FleetAnswer::NotGiven, FleetAnswer::Given));
    }

    /// Notes that a host has accepted a password.
    pub(super) fn accept(&self, wanted: &BecomePassword<'_>, fleet: &str, password: &SecretString) {
        if let Some(known) = lock(&self.by_fleet).get_mut(&FleetAccount::of(wanted, fleet))
            && known.has_answer(password)
        {
            known.is_accepted = true;
        }
    }

    /// Notes that a host has refused a password. Returns whether another one may be tried.
    pub(super) fn refuse(
        &self,
        wanted: &BecomePassword<'_>,
        fleet: &str,
        password: &SecretString,
    ) -> bool {
        let mut by_fleet = lock(&self.by_fleet);
        let Some(known) = by_fleet.get_mut(&FleetAccount::of(wanted, fleet)) else {
            return false;
        };
        if known.refused_by.contains(wanted.host) {
            // It was the host's own.
            return false;
        }
        if !known.has_answer(password) {
            // The person has given another one since.
            return true;
        }
        if known.is_accepted {
            known.refused_by.insert(wanted.host.clone());
        } else {
            known.answer = None;
        }
        true
    }

    /// Forgets the passwords of a fleet that has ended.
    pub(super) fn forget(&self, fleet: &str) {
        lock(&self.by_fleet).retain(|account, _| account.fleet != fleet);
    }
}

impl FleetPassword {
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

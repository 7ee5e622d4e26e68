//! Decides who may do what, from a policy file. Pure: it gets the time and the names of hosts
//! from its callers.
//!
//! # Theory of operation
//!
//! `file.rs` reads `policy.toml` into a [`Policy`]: compiled rules, command templates, and
//! test cases. A file with a mistake is refused as a whole, with file and line; `check.rs` finds what
//! can't take effect, such as an unknown tag.
//!
//! A [`PolicyRequest`] has the four inputs of a decision: caller, verb, machine and command. [`Policy::decide`]
//! compares it with the rules that may be about its caller (`rules.rs` finds them). A call is denied
//! unless a rule allows it; any rule that denies it beats every rule that allows it; so the order of
//! rules never matters. Each decision names its rules.
//!
//! A template is a command with named places. `parameter.rs` accepts or refuses a value, and
//! `quoting.rs` makes one word of it for every login shell.

#![cfg_attr(
    not(feature = "file"),
    allow(dead_code, reason = "only a file makes rules")
)]

pub mod approval;
pub mod audit;
mod case;
#[cfg(feature = "file")]
mod case_text;
mod check;
mod claims;
mod decision;
#[cfg(feature = "file")]
mod file;
mod hash;
mod hours;
pub mod look;
mod mistake;
#[cfg(not(feature = "file"))]
mod no_file;
mod parameter;
mod pattern;
mod policy;
mod quoting;
mod request;
mod role;
mod rule;
mod rules;
mod template;
mod verb;

pub use case::{ExpectedDecision, PolicyCase};
pub use check::{Inventory, Warning};
pub use claims::{Claims, TooManyClaims};
pub use decision::{AllowingRule, PolicyDecision};
pub use hash::sha256_hex;
pub use hours::minute_of_week;
pub use mistake::PolicyMistake;
pub use parameter::{BadValue, Parameter, ParameterKind, WordForm};
pub use pattern::CallerPattern;
pub use policy::Policy;
pub use quoting::quote_for_any_shell;
pub use request::{
    CommandSource, Machine, MachineAccount, PolicyCaller, PolicyRequest, WeekMinute,
};
pub use role::Role;
pub use rule::{ApprovalFrom, RuleLimits};
pub use template::{BadTemplate, FillError, Template};
pub use verb::Verb;

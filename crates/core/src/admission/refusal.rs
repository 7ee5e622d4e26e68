//! Why a policy refuses a call.

use std::fmt;

use sshjobs_job::Caller;
use sshjobs_policy::{FillError, Verb};

/// A call that the policy refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRefusal {
    /// Who called.
    pub caller: Caller,
    /// The verb.
    pub verb: Verb,
    /// The host, as named by the caller. `None` for a call about no host.
    pub host: Option<String>,
    /// The template, if the call names one.
    pub template: Option<String>,
    /// The reason.
    pub why: PolicyWhy,
}

impl PolicyRefusal {
    /// Names of the rules that deny the call. Empty if none does.
    pub(super) fn denying_rules(&self) -> &[String] {
        if let PolicyWhy::Denied(rules) = &self.why {
            rules
        } else {
            &[]
        }
    }
}

/// Why a policy refuses a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyWhy {
    /// The caller's role or host patterns do not allow it, whatever the policy says.
    Rights(String),
    /// No rule allows it.
    NotAllowed,
    /// The rules with these names deny it.
    Denied(Vec<String>),
    /// An approver has to agree to it first.
    ApprovalPending {
        /// The approval.
        id: String,
        /// Name of the rule or template that asks for it.
        asked_by: String,
        /// Time until which approvers may answer, in milliseconds since the Unix epoch.
        expires_at: u64,
    },
    /// An approver, or the user of the caller's client, has refused it.
    ApprovalDenied {
        /// The approval. `None` if the client was asked.
        id: Option<String>,
        /// Who has refused.
        by: String,
        /// Why, in that person's words.
        reason: Option<String>,
    },
    /// No approver has answered in time, or the call was not repeated in time.
    ApprovalExpired {
        /// The approval.
        id: String,
    },
    /// It needs an approval, and no person can be asked: why.
    CantAsk(String),
    /// It needs an approval, and there is no room for another one: why.
    NoRoomToAsk(String),
    /// It needs an approval, and approvals can't be read or stored now.
    ApprovalsUnusable,
    /// It is beyond a limit of the rule that allows it.
    Limit {
        /// Name of the rule.
        rule: String,
        /// The limit.
        limit: PolicyLimit,
    },
    /// The policy has no such template.
    UnknownTemplate {
        /// The most similar one that there is.
        nearest: Option<String>,
    },
    /// The template does not accept the values of its parameters.
    Values(FillError),
    /// The template does not let a call set this.
    TemplateOption(&'static str),
    /// The host can't be resolved now, so that it is not certain which machine it is.
    Unresolved,
    /// The policy file can't be used, so that nothing is allowed.
    NoPolicy(String),
    /// The call can't be recorded in the audit log.
    NotRecorded(String),
}

/// A limit of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyLimit {
    /// Maximum jobs that run at the same time.
    Jobs(u32),
    /// Maximum starts in a minute.
    StartsPerMinute(u32),
    /// Maximum time limit of a job, in seconds.
    Timeout(u64),
    /// Maximum bytes of a file.
    Bytes(u64),
}

impl PolicyRefusal {
    /// Whether the same call may be allowed a little later.
    pub fn is_temporary(&self) -> bool {
        matches!(
            &self.why,
            PolicyWhy::Limit {
                limit: PolicyLimit::Jobs(_) | PolicyLimit::StartsPerMinute(_),
                ..
            }
        )
    }
}

impl fmt::Display for PolicyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            caller,
            verb,
            host,
            template,
            why,
        } = self;
        write!(f, "{caller} may not use {:?}", verb.as_str())?;
        if let Some(template) = template {
            write!(f, " with the template {template:?}")?;
        }
        if let Some(host) = host {
            write!(f, " on {host:?}")?;
        }
        match why {
            PolicyWhy::Rights(error) => write!(f, ": {error}"),
            PolicyWhy::NotAllowed => f.write_str(": no rule of the policy allows it"),
            PolicyWhy::Denied(rules) if rules.len() == 1 => {
                write!(f, ": the rule {:?} of the policy denies it", rules[0])
            }
            PolicyWhy::Denied(rules) => {
                let quoted: Vec<String> = rules.iter().map(|rule| format!("{rule:?}")).collect();
                write!(
                    f,
                    ": the rules {} of the policy deny it",
                    quoted.join(" and ")
                )
            }
            PolicyWhy::ApprovalPending { id, asked_by, .. } => write!(
                f,
                ": {asked_by:?} asks for an approval, and {id} waits for an approver"
            ),
            PolicyWhy::ApprovalDenied { id, by, reason } => {
                match id {
                    Some(id) => write!(f, ": {by} has refused {id}")?,
                    None => write!(f, ": {by} has refused it")?,
                }
                match reason {
                    // In one line: a person's words must not look like a line of this program.
                    Some(reason) => {
                        let words: Vec<&str> = reason.split_whitespace().collect();
                        write!(f, ": {}", words.join(" "))
                    }
                    None => Ok(()),
                }
            }
            PolicyWhy::ApprovalExpired { id } => {
                write!(f, ": the approval {id} was not given or not used in time")
            }
            PolicyWhy::ApprovalsUnusable => {
                f.write_str(": it needs an approval, and approvals can't be stored now")
            }
            PolicyWhy::NoRoomToAsk(why) => write!(f, ": it needs an approval, and {why}"),
            PolicyWhy::CantAsk(why) => {
                write!(f, ": it needs an approval, which can't be asked for: {why}")
            }
            PolicyWhy::Limit { rule, limit } => {
                write!(f, ": the rule {rule:?} of the policy {limit}")
            }
            PolicyWhy::UnknownTemplate { .. } => {
                f.write_str(": the policy has no such template for this caller and host")
            }
            PolicyWhy::Values(error) => write!(f, ": {error}"),
            PolicyWhy::TemplateOption(option) => {
                write!(f, ": the template does not let a call set {option}")
            }
            PolicyWhy::Unresolved => f.write_str(
                ": the host can't be resolved, so the policy can't tell which one it is",
            ),
            PolicyWhy::NotRecorded(error) => write!(f, ": it can't be recorded: {error}"),
            PolicyWhy::NoPolicy(error) => write!(f, ": the policy can't be used: {error}"),
        }
    }
}

impl PolicyWhy {
    /// Names of the rules that refuse the call.
    pub(super) fn rules(&self) -> Vec<String> {
        match self {
            Self::Denied(rules) => rules.clone(),
            Self::ApprovalPending { asked_by, .. } => vec![asked_by.clone()],
            Self::Limit { rule, .. } => vec![rule.clone()],
            Self::Rights(_)
            | Self::NotAllowed
            | Self::UnknownTemplate { .. }
            | Self::Values(_)
            | Self::TemplateOption(_)
            | Self::Unresolved
            | Self::ApprovalDenied { .. }
            | Self::ApprovalExpired { .. }
            | Self::CantAsk(_)
            | Self::NoRoomToAsk(_)
            | Self::ApprovalsUnusable
            | Self::NoPolicy(_)
            | Self::NotRecorded(_) => Vec::new(),
        }
    }
}

impl fmt::Display for PolicyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jobs(1) => f.write_str("allows at most one running job"),
            Self::Jobs(most) => write!(f, "allows at most {most} running jobs"),
            Self::StartsPerMinute(1) => f.write_str("allows at most one start a minute"),
            Self::StartsPerMinute(most) => write!(f, "allows at most {most} starts a minute"),
            Self::Timeout(most) => write!(f, "allows a time limit of at most {most} s"),
            Self::Bytes(most) => write!(f, "allows files of at most {most} bytes"),
        }
    }
}

impl std::error::Error for PolicyRefusal {}

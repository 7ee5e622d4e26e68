//! The approvals that all processes with the same store share.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use rand::RngExt;
use rand::distr::Alphanumeric;
use secrecy::ExposeSecret;
use sha2::Sha256;

use super::call::{CallContent, CallToDecide, StartToDecide};
use sshjobs_job::{JobFacts, JobId, Stdin};
use sshjobs_policy::approval::{
    Approval, ApprovalList, ApprovalLookup, ApprovalState, Ask, CantVote, ExactCall,
    TooManyApprovals, Vote,
};
use sshjobs_policy::audit::visible_text;
use sshjobs_policy::{Machine, MachineAccount};
use sshjobs_store::{SharedValue, SharedValueError};
use sshjobs_store::{Store, StoreError};

/// Keeps the list of approvals. A cheap handle.
#[derive(Clone)]
pub(super) struct Approvals {
    list: SharedValue<ApprovalList>,
    secret: [u8; 32],
}

/// Longest call that can be approved, in bytes: a person has to read it.
const LONGEST_CALL: usize = 8 << 10;

/// Why approvals can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApprovalsError {
    /// They can't be read or stored.
    #[error(transparent)]
    Shared(#[from] SharedValueError),
    /// The call is too long for a person to read.
    #[error("the call has {0} bytes, and only a call of at most {LONGEST_CALL} can be approved")]
    TooLong(usize),
    /// The call is too long for the question of a client.
    #[error("the call has {0} characters, and a client shows at most {LONGEST_QUESTION} of them")]
    TooLongToShow(usize),
    /// The caller asks for too many.
    #[error(transparent)]
    TooMany(#[from] TooManyApprovals),
}

/// A call that needs an approval.
pub(super) struct ApprovalRequest {
    pub(super) exact: ExactCall,
    pub(super) idempotency_key: Option<String>,
    /// The id of the job that it starts.
    pub(super) job: Option<JobId>,
    pub(super) reason: Option<String>,
    /// The rule or template that asks for it.
    pub(super) rule: String,
    /// Number of callers who have to agree.
    pub(super) needed: u32,
}

impl Approvals {
    pub(super) fn new(store: Option<Result<Arc<dyn Store>, StoreError>>) -> Self {
        let secret = match &store {
            Some(Ok(store)) => store.secret(),
            Some(Err(_)) | None => rand::rng().random(),
        };
        Self {
            list: SharedValue::new("approvals", store),
            secret,
        }
    }

    /// Number of approvals that wait for a vote. 0 if they can't be read.
    pub(super) async fn waiting(&self) -> usize {
        let Ok(list) = self.list.read().await else { return 0 };
        let now = unix_ms();
        let is_pending = |approval: &&Approval| approval.state(now) == ApprovalState::Pending;
        list.approvals().iter().filter(is_pending).count()
    }

    /// All approvals.
    pub(super) async fn list(&self) -> Result<ApprovalList, ApprovalsError> {
        Ok(self.list.read().await?)
    }

    /// Finds the approval of a call, and uses it up if it is agreed to. Asks for one if there is
    /// none.
    pub(super) async fn pass(
        &self,
        request: &ApprovalRequest,
    ) -> Result<ApprovalLookup, ApprovalsError> {
        let call = request.exact.canonical();
        if call.len() > LONGEST_CALL {
            return Err(ApprovalsError::TooLong(call.len()));
        }
        let ask = Ask {
            id: new_id(),
            sha256: ExactCall::hash(&call),
            call,
            asker: request.exact.caller.clone(),
            reason: request.reason.clone(),
            rule: request.rule.clone(),
            host: request.exact.host.clone(),
            policy: request.exact.policy.clone(),
            needed: request.needed,
            idempotency_key: request.idempotency_key.clone(),
            job: request.job.as_ref().map(|job| job.as_str().to_owned()),
        };
        Ok(self.list.change(move |list| list.pass(&ask, unix_ms())).await??)
    }

    /// Counts a vote.
    pub(super) async fn vote(
        &self,
        id: &str,
        vote: Vote,
    ) -> Result<Result<Approval, CantVote>, ApprovalsError> {
        let id = id.to_owned();
        let at = vote.at;
        Ok(self.list.change(move |list| list.vote(&id, vote.clone(), at)).await?)
    }

    /// Gives an approval back that was used at this time, because the call was not performed for another
    /// reason.
    pub(super) async fn give_back(&self, id: &str, used_at: Option<u64>) {
        let id = id.to_owned();
        if let Err(error) = self.list.change(move |list| list.give_back(&id, used_at)).await {
            tracing::warn!(%error, "an approval is used up by a call that was not performed");
        }
    }

    /// Notes that an approved call has led to another job than the one it would have started.
    pub(super) async fn note_job(&self, id: &str, job: &JobId) {
        let id = id.to_owned();
        let job = job.as_str().to_owned();
        if let Err(error) = self.list.change(move |list| list.note_job(&id, &job)).await {
            // A repetition with the same key then needs another approval.
            tracing::warn!(%error, "the job of an approved call is not noted");
        }
    }

    /// Notes that the call of an approval has no job: a repetition needs another approval.
    pub(super) async fn note_no_job(&self, id: &str) -> Result<(), ApprovalsError> {
        let id = id.to_owned();
        Ok(self.list.change(move |list| list.note_no_job(&id)).await?)
    }

    /// A hash that only processes with the same store can compute, and that differs for another caller:
    /// an approver who makes calls of its own can't compare them with this one.
    fn keyed_hash(&self, caller: &str, bytes: &[u8]) -> String {
        let mut hash =
            Hmac::<Sha256>::new_from_slice(&self.secret).expect("a key of any length will do");
        // With the length, so that no byte moves from one part to the other.
        hash.update(&(caller.len() as u64).to_le_bytes());
        hash.update(caller.as_bytes());
        hash.update(bytes);
        let first = hash.finalize().into_bytes();
        first.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// A call on a host with everything that decides about its effect.
    pub(super) fn exact(
        &self,
        call: CallToDecide<'_>,
        endpoint: Option<&MachineAccount>,
    ) -> ExactCall {
        let mut exact = ExactCall {
            caller: call.caller.as_str().to_owned(),
            verb: call.verb.as_str().to_owned(),
            ..ExactCall::default()
        };
        if let Some(endpoint) = endpoint {
            exact.machine = endpoint.machine.names().to_vec();
            exact.users.clone_from(&endpoint.users);
            let jumps = endpoint.jumps.iter().filter_map(|jump: &Machine| jump.names().first());
            exact.through = jumps.cloned().collect();
        }
        let Some(on) = call.on else { return exact };
        exact.host = on.place.host.to_owned();
        exact.job = on.job.map(|job| job.as_str().to_owned());
        exact.template = on.template.map(str::to_owned);
        exact.target = on.target.map(str::to_owned);
        exact.content = on.content.map(|content| self.shown(&exact.caller, content));
        if let Some(start) = on.start {
            self.add_start(&mut exact, start);
        }
        exact
    }

    /// The content of a call, as approvers see it: a text, or the size and hash of a secret.
    fn shown(&self, caller: &str, content: CallContent<'_>) -> String {
        match content {
            CallContent::Stdin(bytes) if let Ok(text) = std::str::from_utf8(bytes) => {
                text.to_owned()
            }
            CallContent::Stdin(bytes) | CallContent::SecretStdin(bytes) => {
                let hash = self.keyed_hash(caller, bytes);
                format!("{} bytes that are not shown, hash {hash}", bytes.len())
            }
            CallContent::NamedSecret {
                name, others: [], ..
            } => {
                format!("secret {name}")
            }
            CallContent::NamedSecret {
                name,
                others,
                is_shown,
            } => {
                let others = if is_shown {
                    self.shown(caller, CallContent::Stdin(others))
                } else {
                    self.shown(caller, CallContent::SecretStdin(others))
                };
                format!("secret {name} and other input: {others}")
            }
            CallContent::ForwardEnds(ends) => ends.to_owned(),
        }
    }

    fn add_start(&self, exact: &mut ExactCall, start: StartToDecide<'_>) {
        let spec = start.spec;
        exact.command = Some(spec.commands());
        exact.cwd.clone_from(&spec.cwd);
        exact.options = options(&spec.facts);
        exact.durable = spec.durable;
        let secrets = &spec.secrets;
        let variables = spec.env_names().into_iter().map(|name| match secrets.env.get(name) {
            Some(secret) => format!("{name} (secret {secret})"),
            None => name.to_owned(),
        });
        exact.env = variables.collect();
        exact.params = spec.template.as_ref().map(|call| call.params.clone()).unwrap_or_default();
        exact.pty = spec.terminal.is_some();
        exact.script = spec.script().map(|script| script.expose_secret().to_owned());
        let settings = spec.fingerprint(&self.secret);
        exact.settings = Some(self.keyed_hash(&exact.caller, settings.as_bytes()));
        exact.stdin = match &spec.stdin {
            _ if let Some(secret) = &secrets.stdin => Some(format!("secret {secret}")),
            Stdin::Open => Some("open".to_owned()),
            Stdin::Closed => None,
            Stdin::Text(text) => Some(format!("{} bytes", text.expose_secret().len())),
        };
        exact.timeout_ms = spec.timeout.and_then(|time| u64::try_from(time.as_millis()).ok());
    }
}

/// Settings of a start in words, for an approver: all that is not in a field of its own and changes what happens.
fn options(facts: &JobFacts) -> Vec<String> {
    let mut options: Vec<String> =
        facts.fetch.iter().map(|pattern| format!("fetch {pattern}")).collect();
    if let Some(gpus) = &facts.gpus {
        options.push(format!("gpus {gpus}"));
    }
    if let Some(restart) = &facts.restart {
        options.push(format!("restart {restart}"));
        options.extend(restart.retry_if.iter().map(|condition| format!("retry if {condition}")));
        if restart.after_reboot {
            options.push("restart after a reboot".to_owned());
        }
    }
    if let Some(warn) = &facts.warn {
        options.push(format!(
            "warn {} {:?} before the end",
            warn.signal, warn.before
        ));
    }
    if let Some(tree) = &facts.tree {
        options.push(format!("sync {}", tree.source));
    }
    options
}

/// Maximum characters of a call that a client shows to its user.
const LONGEST_QUESTION: usize = 2000;

/// A question to the person behind a client. Host and account come first, where no text of the caller
/// can push them away, and all characters are visible.
pub(super) fn question(exact: &ExactCall) -> Result<String, ApprovalsError> {
    let mut details = Vec::new();
    let fields = [
        ("running", &exact.command),
        ("with the script", &exact.script),
        ("in", &exact.cwd),
        ("with stdin", &exact.stdin),
        ("to job", &exact.job),
        ("sending", &exact.content),
    ];
    details.extend(
        fields
            .into_iter()
            .filter_map(|(name, text)| Some(format!("{name} {:?}", text.as_ref()?))),
    );
    if !exact.env.is_empty() {
        details.push(format!("with the variables {}", exact.env.join(", ")));
    }
    if !exact.options.is_empty() {
        details.push(format!("with {}", exact.options.join(", ")));
    }
    let text = visible_text(&details.join(", "));
    let length = text.chars().count();
    // A person must not agree to more than is shown.
    if length > LONGEST_QUESTION {
        return Err(ApprovalsError::TooLongToShow(length));
    }
    Ok(format!(
        "on {} as {}: {} by {}, {text} — type yes to allow it: ",
        visible_text(&exact.host),
        visible_text(&exact.users.join(", then ")),
        exact.verb,
        visible_text(&exact.caller)
    ))
}

/// Milliseconds since the Unix epoch.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn new_id() -> String {
    let random: String = rand::rng().sample_iter(Alphanumeric).take(12).map(char::from).collect();
    format!("ap_{}", random.to_ascii_lowercase())
}

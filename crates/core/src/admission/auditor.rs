//! Records decisions and ends of jobs in the audit log that the policy in force names.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use secrecy::ExposeSecret;

use super::call::{CallContent, CallToDecide};
use super::policy_in_force::LoadedPolicy;
use super::refusal::{PolicyRefusal, PolicyWhy};
use super::repeated_reads::RepeatedReads;
use sshjobs_base::lock::lock;
use sshjobs_job::{Outcome, Phase};
use sshjobs_policy::audit::{
    AuditFiles, AuditRecorder, AuditSettings, CopyHead, Decided, EndedJob, Event, OnFailure, Voted,
    WriterName, machine_name,
};
use sshjobs_policy::{Machine, MachineAccount, Role, sha256_hex};
use sshjobs_store::Store;

/// Has the audit log of the policy in force.
pub(crate) struct Auditor {
    /// Directory of the log, unless its name is absolute.
    state: Option<PathBuf>,
    /// Directory of the key, unless its name is absolute.
    configuration: Option<PathBuf>,
    /// Description of this process.
    process: String,
    /// The store of the cluster, if there is one.
    cluster: Option<Arc<dyn Store>>,
    current: Mutex<Option<CurrentLog>>,
    reads: Mutex<RepeatedReads>,
}

#[derive(Clone)]
struct CurrentLog {
    settings: AuditSettings,
    /// SHA-256 of the policy that is recorded as the one in force.
    policy: String,
    recorder: AuditRecorder,
}

/// A decision that was recorded.
#[derive(Clone)]
pub(crate) struct RecordedDecision {
    recorder: AuditRecorder,
    /// Sequence number of its line.
    seq: u64,
}

/// Reasons of a decision, recorded with the call.
#[derive(Clone, Copy)]
pub(super) struct Grounds<'a> {
    /// The account and machine, if they were found out.
    pub(super) endpoint: Option<&'a MachineAccount>,
    /// The rules that allow the call, or why it is refused.
    pub(super) decision: Result<&'a [String], &'a PolicyRefusal>,
    /// The approval that the call used, or waits for.
    pub(super) approval: Option<&'a str>,
}

impl Auditor {
    pub(crate) fn new(
        state: Option<PathBuf>,
        configuration: Option<PathBuf>,
        process: String,
        cluster: Option<Arc<dyn Store>>,
    ) -> Self {
        Self {
            state,
            configuration,
            process,
            cluster,
            current: Mutex::default(),
            reads: Mutex::default(),
        }
    }

    /// Records a decision, if the policy names a log. A call that is allowed and does something is on
    /// the disk before this returns.
    ///
    /// # Errors
    /// If it can't be recorded, and the policy refuses calls then.
    pub(super) async fn record(
        &self,
        loaded: &LoadedPolicy,
        call: CallToDecide<'_>,
        grounds: Grounds<'_>,
    ) -> Result<Option<RecordedDecision>, Box<PolicyRefusal>> {
        let refused = |why: String| call.refused(PolicyWhy::NotRecorded(why));
        let (recorder, on_failure) = match self.open(loaded) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(None),
            Err(why) => {
                tracing::error!(why, "calls are not recorded");
                let on_failure = loaded.policy.audit().map(|settings| settings.on_failure);
                let is_refused = on_failure == Some(OnFailure::Refuse) && grounds.decision.is_ok();
                return if is_refused {
                    Err(refused(why))
                } else {
                    Ok(None)
                };
            }
        };
        let decided = Box::new(decided(call, grounds));
        if grounds.decision.is_err() {
            if let Err(error) = recorder.write(Event::Decision(decided)).await {
                tracing::warn!(%error, "a call is denied and not recorded");
                recorder.note_missed();
            }
            return Ok(None);
        }
        if call.verb.needed_role() == Role::Read {
            // A reader must not wait for a disk.
            let events = lock(&self.reads).take(*decided);
            events.into_iter().for_each(|event| recorder.note(event));
            return Ok(None);
        }
        match (recorder.record(Event::Decision(decided)).await, on_failure) {
            (Ok(seq), _) => Ok(Some(RecordedDecision { recorder, seq })),
            (Err(error), OnFailure::Refuse) => Err(refused(error.to_string())),
            (Err(error), OnFailure::Warn) => {
                tracing::warn!(%error, "a call is allowed and not recorded");
                recorder.note_missed();
                Ok(None)
            }
        }
    }

    /// Records a vote, if the policy names a log. It is on the disk before this returns.
    ///
    /// # Errors
    /// If it can't be recorded, and the policy refuses calls then: why, in words.
    pub(super) async fn record_vote(
        &self,
        loaded: &LoadedPolicy,
        voted: Voted,
    ) -> Result<Option<RecordedDecision>, String> {
        let on_failure = loaded.policy.audit().map(|settings| settings.on_failure);
        let why = match self.open(loaded) {
            Ok(Some((recorder, _))) => match recorder.record(Event::Voted(voted)).await {
                Ok(seq) => return Ok(Some(RecordedDecision { recorder, seq })),
                Err(error) => {
                    recorder.note_missed();
                    error.to_string()
                }
            },
            Ok(None) => return Ok(None),
            Err(why) => why,
        };
        if on_failure == Some(OnFailure::Refuse) {
            return Err(why);
        }
        tracing::warn!(why, "a vote is not recorded");
        Ok(None)
    }

    /// Records the end of a job, if there is a log.
    pub(crate) fn note_end(&self, job: &sshjobs_job::Job) {
        let Some(current) = lock(&self.current).clone() else { return };
        current.recorder.note(Event::Ended(ended(job)));
    }

    /// Whether the last line could not be written.
    pub(super) fn is_failing(&self) -> bool {
        lock(&self.current)
            .as_ref()
            .is_some_and(|current| current.recorder.is_failing())
    }

    /// Writes what waits to be recorded, and signs it. Bounded in time.
    pub(crate) async fn finish(&self) {
        let current = lock(&self.current).clone();
        if let Some(current) = current {
            lock(&self.reads)
                .take_all()
                .into_iter()
                .for_each(|event| current.recorder.note(event));
            current.recorder.finish().await;
        }
    }

    /// The log of a policy. Closes the log of the policy before, if that was another one. `None` if the
    /// policy names none.
    ///
    /// # Errors
    /// Why it can't be opened, in words.
    pub(super) fn open(
        &self,
        loaded: &LoadedPolicy,
    ) -> Result<Option<(AuditRecorder, OnFailure)>, String> {
        let mut current = lock(&self.current);
        let settings = loaded.policy.audit();
        let before = current.take();
        let known = before.as_ref().filter(|before| Some(&before.settings) == settings);
        if let Some(before) = &before
            && known.is_none()
        {
            let continued_in = settings.map(|settings| settings.file.display().to_string());
            tracing::warn!(?continued_in, "the policy closes the audit log");
            lock(&self.reads)
                .take_all()
                .into_iter()
                .for_each(|event| before.recorder.note(event));
            before.recorder.note(policy_event(loaded));
            before.recorder.note(Event::Closed { continued_in });
        }
        let Some(settings) = settings else { return Ok(None) };
        let recorder = match known {
            Some(known) => known.recorder.clone(),
            None => self.start(settings)?,
        };
        if known.is_none_or(|known| known.policy != loaded.hash) {
            recorder.note(policy_event(loaded));
        }
        *current = Some(CurrentLog {
            settings: settings.clone(),
            policy: loaded.hash.clone(),
            recorder: recorder.clone(),
        });
        Ok(Some((recorder, settings.on_failure)))
    }

    fn start(&self, settings: &AuditSettings) -> Result<AuditRecorder, String> {
        let files = self.files(settings)?;
        let writer = WriterName {
            process: self.process.clone(),
            machine: machine_name(),
        };
        let cluster = self.cluster.as_ref().map(|store| copy_to_cluster(store, files.clone()));
        AuditRecorder::start(files, settings, writer, cluster).map_err(|error| error.to_string())
    }

    /// The files of a log.
    ///
    /// # Errors
    /// If a name is relative and there is no directory for it.
    pub(super) fn files(&self, settings: &AuditSettings) -> Result<AuditFiles, String> {
        Ok(AuditFiles {
            log: below(self.state.as_deref(), &settings.file)?,
            key: below(self.configuration.as_deref(), &settings.key)?,
        })
    }
}

/// The path of a file that the policy names, in our own directory if its name is relative.
fn below(directory: Option<&Path>, file: &Path) -> Result<PathBuf, String> {
    match directory {
        Some(directory) => Ok(directory.join(file)),
        None if file.is_absolute() => Ok(file.to_owned()),
        None => {
            let file = file.display();
            Err(format!(
                "{file} needs an absolute path here: there is no home directory"
            ))
        }
    }
}

impl RecordedDecision {
    /// Records that the start which was allowed has failed.
    pub(crate) async fn note_failure(&self, why: String) {
        let event = Event::Failed {
            decision: self.seq,
            why,
        };
        // Written before its caller hears of it, who may end this process then.
        if let Err(error) = self.recorder.write(event).await {
            tracing::warn!(%error, "a failed start is not recorded");
            self.recorder.note_missed();
        }
    }

    /// Records the job that was started because of the decision.
    pub(crate) fn note_job(&self, job: &sshjobs_job::Job) {
        self.recorder.note(Event::Started {
            decision: self.seq,
            job: job.id.as_str().to_owned(),
        });
    }
}

fn copy_to_cluster(store: &Arc<dyn Store>, files: AuditFiles) -> CopyHead {
    // The thread that copies may outlive the store, and must not keep it from leaving the cluster.
    let store = Arc::downgrade(store);
    Box::new(move |head| {
        let store = store.upgrade().ok_or(std::io::ErrorKind::NotConnected)?;
        store
            .keep_audit_head(&files.log_name(), &head.to_string())
            .map_err(std::io::Error::other)
    })
}

fn policy_event(loaded: &LoadedPolicy) -> Event {
    Event::Policy {
        file: loaded.file.display().to_string(),
        sha256: loaded.hash.clone(),
    }
}

/// Longest text of a denied call that is recorded, in bytes: nobody may fill the disk without rights.
const LONGEST_DENIED: usize = 1000;

/// The beginning of a long text.
fn cut(text: &mut String) {
    let length = text.len();
    if length > LONGEST_DENIED {
        let end = (0..=LONGEST_DENIED).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str(&format!("… ({length} bytes)"));
    }
}

fn decided(call: CallToDecide<'_>, grounds: Grounds<'_>) -> Decided {
    let mut decided = Decided {
        caller: call.caller.as_str().to_owned(),
        role: call.rights.role.to_string(),
        verb: call.verb.as_str().to_owned(),
        address: call.address.map(|address| address.to_string()),
        approval: grounds.approval.map(str::to_owned),
        ..Decided::default()
    };
    if let Some(on) = call.on {
        decided.host = Some(on.place.host.to_owned());
        decided.job = on.job.map(|job| job.as_str().to_owned());
        decided.template = on.template.map(str::to_owned);
        decided.target = on.target.map(str::to_owned);
        decided.path = on.path.map(str::to_owned);
        if let Some(CallContent::NamedSecret { name, .. }) = on.content {
            decided.secrets.push(name.to_owned());
        }
    }
    if let Some(endpoint) = grounds.endpoint {
        decided.machine = endpoint.machine.names().to_vec();
        decided.users.clone_from(&endpoint.users);
        let jumps = endpoint.jumps.iter().filter_map(|jump: &Machine| jump.names().first());
        decided.through = jumps.cloned().collect();
    }
    if let Some(start) = call.on.and_then(|on| on.start) {
        let spec = start.spec;
        decided.command = Some(spec.commands());
        decided.params = spec.template.as_ref().map(|call| call.params.clone()).unwrap_or_default();
        decided.cwd.clone_from(&spec.cwd);
        decided.script_sha256 = spec.script().map(|script| sha256_hex(script.expose_secret()));
        decided.env = spec.env_names().into_iter().map(str::to_owned).collect();
        decided.secrets = spec.secrets.names().into_iter().map(str::to_owned).collect();
    }
    match grounds.decision {
        Ok(rules) => {
            decided.allowed = true;
            decided.rules = rules.to_vec();
        }
        Err(refusal) => {
            decided.rules = refusal.why.rules();
            decided.why = Some(refusal.to_string());
            let texts = [
                &mut decided.host,
                &mut decided.command,
                &mut decided.template,
                &mut decided.target,
                &mut decided.path,
                &mut decided.cwd,
                &mut decided.why,
            ];
            texts.into_iter().flatten().for_each(cut);
            decided.params.values_mut().for_each(cut);
        }
    }
    decided
}

fn ended(job: &sshjobs_job::Job) -> EndedJob {
    let status = job.status();
    let outcome = match &status.phase {
        Phase::Ended(outcome) => Some(outcome),
        Phase::Queued | Phase::Starting | Phase::Running => None,
    };
    let duration = status.ended_at.and_then(|end| end.duration_since(status.started_at).ok());
    EndedJob {
        job: job.id.as_str().to_owned(),
        caller: job.caller.as_str().to_owned(),
        host: job.spec.host.clone(),
        outcome: outcome.map_or_else(|| "has not ended".to_owned(), Outcome::to_string),
        exit_code: outcome.and_then(Outcome::exit_status),
        signal: outcome.and_then(Outcome::exit_signal).map(str::to_owned),
        bytes: status.total_bytes,
        lines: status.total_lines,
        duration_ms: duration.map_or(0, |time| {
            u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
        }),
    }
}

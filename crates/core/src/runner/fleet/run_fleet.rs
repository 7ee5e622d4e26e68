//! Runs a fleet. Its members are ordinary jobs, and this is the far end of the job that represents
//! them. It starts the members in the order of the roll-out and merges their lines into one log.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::connect_ahead::{AheadEvent, ConnectAhead, MemberConnection, OVERTAKEN_AFTER};
use super::controls::FleetControls;
use crate::hosts::Asking;
use crate::runner::foreign::lookup;
use crate::runner::record::{QueuedFarEnd, record_queued_in_task};
use crate::runner::signal::end_tree;
use crate::runner::start::spawn_member;
use crate::runner::state::{
    FleetToRun, JobStdin, Lookup, RunnerState, SpawnError, StartOrder, chain,
};
use sshjobs_job::{
    Backlog, Draft, Exit, FarEvent, Fleet, FleetPlan, Job, JobFacts, JobSpec, Kill, Member,
    MemberEnd, MemberProgress, Outcome, Pace, Phase, PrintedSummary, Rollout, Scope, Stdin, Turn,
    Wait, split_old_line,
};
use sshjobs_output::{
    Keep, Line, LineNo, MemberNo, OutputSource, Page, PageQuery, Render, Selection, Stream,
};

/// Maximum events that wait for the recorder.
const QUEUE: usize = 64;
/// Time limit for one host to start its member.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which a failed attempt to connect counts as the member's own.
const FAILURE_COUNTS_FOR: Duration = Duration::from_secs(30);
/// Pause before a member is started again that found no room under the limits on jobs.
const ROOM_PAUSE: Duration = Duration::from_millis(100);
/// Maximum lines read from a member at once.
const PAGE_LINES: usize = 2000;
const PAGE_BYTES: usize = 256 << 10;
/// Longest wait for a member's next line, before the next wait.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Maximum number of failed members that the exit status reports. The next status stands for any
/// larger number, as in GNU parallel.
const MOST_TOLD: usize = 100;

/// Runs fleets: new ones, and those of processes that have ended. For some of the latter, the
/// secrets are lost.
pub(crate) async fn run_fleets(shared: Arc<RunnerState>, mut fleets: mpsc::Receiver<FleetToRun>) {
    while let Some(fleet) = fleets.recv().await {
        spawn_roll_out(&shared, fleet);
    }
}

fn spawn_roll_out(shared: &Arc<RunnerState>, fleet: FleetToRun) {
    let FleetToRun {
        job,
        lacks_secrets,
        is_running,
    } = fleet;
    let (events, receiver) = mpsc::channel(QUEUE);
    // The channel is empty, so there is room.
    events.try_send(FarEvent::Started).ok();
    let controls = Arc::new(FleetControls {
        shared: Arc::downgrade(shared),
        job: Arc::clone(&job),
    });
    let is_closed = !matches!(job.spec.stdin, Stdin::Open);
    let stdin = Arc::new(JobStdin::unannounced(controls, Arc::clone(&job), is_closed));
    shared.registry().note_followed(&job.id, stdin, None);
    // The launch may have been cancelled meanwhile.
    is_running.send(()).ok();
    record_queued_in_task(
        shared,
        &job,
        QueuedFarEnd::new(receiver, Backlog::BlocksTheCommand),
    );
    shared.spawn_task(roll_out(Arc::clone(shared), job, lacks_secrets, events));
}

/// Result of one task of a roll-out.
enum FleetStep {
    Ended(usize, MemberEnd),
    /// The pause before another attempt to start this member has ended.
    Due(usize),
}

/// Boxed, because starting a member is the same function as starting a fleet, and an `async fn`
/// can't contain itself.
fn roll_out(
    shared: Arc<RunnerState>,
    job: Arc<Job>,
    lacks_secrets: bool,
    events: mpsc::Sender<FarEvent>,
) -> BoxFuture<'static, ()> {
    async move {
        let Some((fleet, plan)) = job.fleet.as_ref().zip(job.spec.fleet.as_ref()) else {
            return;
        };
        let PrintedBefore {
            of_members,
            is_whole,
        } = printed_before(&job).await;
        let mut rollout = Rollout::new(plan);
        let connect_ahead = connects_ahead(&shared, plan, fleet).then(|| {
            rollout.hold_all();
            ConnectAhead::new(&shared, &job, Arc::clone(&plan.members))
        });
        let mut roll_out = FleetTask {
            shared: Arc::clone(&shared),
            job: Arc::clone(&job),
            events: events.clone(),
            printed: of_members,
            has_whole_log: is_whole,
            rollout,
            connect_ahead,
            connections: HashMap::new(),
            connected: BTreeSet::new(),
            tasks: JoinSet::new(),
            lacks_secrets,
        };
        roll_out.run(fleet).await;
        shared.hosts.forget_passwords_of(&job);
        // Without an outcome the fleet stays open, so that another process resumes it.
        if !(shared.stopping.is_cancelled() && job.spec.durable) {
            let outcome = Outcome::Ended(Exit::Status(status(fleet)));
            // Fails only if the recorder has ended, so no task needs the outcome.
            events.send(FarEvent::Over(outcome)).await.ok();
        }
    }
    .boxed()
}

/// Whether to connect to hosts before their turn, so that one that answers late is overtaken. Only in a new fleet
/// whose members need not start in order.
fn connects_ahead(shared: &RunnerState, plan: &FleetPlan, fleet: &Fleet) -> bool {
    let storing = shared.storing.as_ref();
    // In a cluster, the host may have to be asked for from another replica first.
    let is_alone = storing.is_none_or(|storing| storing.store.peers().is_none());
    let is_new = |member: &Member| member.progress == MemberProgress::Waiting;
    let is_in_order = plan.max_parallel == 1 || plan.canary > 0 || plan.stop_after.is_some();
    plan.members.len() > plan.max_parallel
        && !is_in_order
        && is_alone
        && fleet.lock_members().iter().all(is_new)
}

/// A running fleet.
struct FleetTask {
    shared: Arc<RunnerState>,
    job: Arc<Job>,
    events: mpsc::Sender<FarEvent>,
    /// Lines of each member that the fleet's log had when this process took over.
    printed: Vec<PrintedSummary>,
    /// Whether no line of the log had been evicted by then.
    has_whole_log: bool,
    rollout: Rollout,
    /// Makes the connections before their turn, if the fleet allows it.
    connect_ahead: Option<ConnectAhead>,
    /// The connections of members that wait for their turn.
    connections: HashMap<usize, (Instant, MemberConnection)>,
    /// Connected members that wait for members before them.
    connected: BTreeSet<usize>,
    tasks: JoinSet<FleetStep>,
    lacks_secrets: bool,
}

impl FleetTask {
    async fn run(&mut self, fleet: &Fleet) {
        loop {
            self.let_connected_arrive();
            self.start_all(fleet);
            if self.rollout.is_over() {
                // A stopped roll-out begins no further attempt.
                fleet.lock_members().iter_mut().for_each(Member::give_up);
                return;
            }
            // Both tokens below stay cancelled, so after a stop they would make the loop spin.
            let may_start = !self.rollout.is_stopped();
            if !may_start {
                // Its connections are no longer needed.
                self.connect_ahead = None;
                self.connections.clear();
            }
            let mut connects_to_more = false;
            if let Some(connect_ahead) = &mut self.connect_ahead {
                connect_ahead.start_more(self.connections.len());
                connects_to_more = connect_ahead.has_more();
            }
            tokio::select! {
                // An attempt may have become slow: others begin, and members after it start.
                () = sleep(OVERTAKEN_AFTER), if connects_to_more || !self.connected.is_empty() => {}
                Some(event) = next_event(&mut self.connect_ahead) => {
                    match event {
                        Ok(AheadEvent::Opened) => {}
                        Ok(AheadEvent::Connected(index, connection)) => {
                            self.connections.insert(index, (Instant::now(), connection));
                            self.connected.insert(index);
                        }
                        Err(error) => {
                            // Its member would be held for ever.
                            tracing::error!(job = %self.job.id, %error, "the task of a connection has failed");
                            return;
                        }
                    }
                }
                // After a stop there is a task to join: a member runs, or the roll-out is over.
                Some(step) = self.tasks.join_next() => match step {
                    Ok(step) => self.take(step, fleet),
                    Err(error) => {
                        // The member stays counted as running, so the roll-out could never be over.
                        tracing::error!(job = %self.job.id, %error, "a member's task has failed");
                        return;
                    }
                },
                () = fleet.stopped(), if may_start => self.rollout.stop(),
                () = self.shared.stopping.cancelled(), if may_start => self.rollout.stop(),
            }
        }
    }

    fn start_all(&mut self, fleet: &Fleet) {
        while let Some(index) = self.rollout.start() {
            // In a resumed fleet, some members have ended already.
            let ended = {
                let members = fleet.lock_members();
                members
                    .get(index)
                    .filter(|member| self.has_all_lines_of(index, member))
                    .and_then(Member::end)
            };
            if let Some(end) = ended {
                self.take(FleetStep::Ended(index, end), fleet);
                continue;
            }
            let task = MemberTask {
                shared: Arc::clone(&self.shared),
                job: Arc::clone(&self.job),
                index,
                events: self.events.clone(),
                printed: self.printed.get(index).cloned().unwrap_or_default(),
                lacks_secrets: self.lacks_secrets,
                connection: self.connection_of(index),
            };
            self.tasks.spawn(async move { FleetStep::Ended(index, task.run().await) });
        }
    }

    /// Hands connected members over to the roll-out, in their order: a member waits while a host before it may
    /// still answer in time.
    fn let_connected_arrive(&mut self) {
        let Some(connect_ahead) = &self.connect_ahead else { return };
        let first_in_time = connect_ahead.first_in_time();
        while let Some(index) = self.connected.first().copied()
            && first_in_time.is_none_or(|first| index < first)
        {
            self.connected.pop_first();
            self.rollout.arrive(index);
        }
    }

    /// The connection that was made for a member. An attempt that failed long before its turn does not count.
    fn connection_of(&mut self, index: usize) -> Option<MemberConnection> {
        let (made_at, connection) = self.connections.remove(&index)?;
        let is_recent = made_at.elapsed() < FAILURE_COUNTS_FOR;
        Some(connection).filter(|connection| connection.is_ok() || is_recent)
    }

    /// Whether the fleet's log has every line of a member. A process may have been killed after it
    /// recorded the member's end and before it appended its last lines. Then those lines are copied
    /// again from where the log ends.
    fn has_all_lines_of(&self, index: usize, member: &Member) -> bool {
        let known = self.printed.get(index).map_or(0, PrintedSummary::lines);
        // Evicted lines can't be counted, so the record of the end must do.
        !self.has_whole_log
            || member.job.is_none()
            || known >= member.result().map_or(0, |result| result.lines)
    }

    fn take(&mut self, step: FleetStep, fleet: &Fleet) {
        match step {
            FleetStep::Ended(index, end) => {
                if let Some(connect_ahead) = &mut self.connect_ahead {
                    connect_ahead.note_end();
                }
                if let Some(pause) = self.rollout.end(index, end) {
                    fleet.change_member(index, Member::note_retry);
                    self.tasks.spawn(async move {
                        sleep(pause).await;
                        FleetStep::Due(index)
                    });
                }
            }
            FleetStep::Due(index) => self.rollout.retry(index),
        }
    }
}

/// The next event of connecting ahead. `None` if no attempt is in progress.
async fn next_event(
    connect_ahead: &mut Option<ConnectAhead>,
) -> Option<Result<AheadEvent, JoinError>> {
    connect_ahead.as_mut()?.next_event().await
}

/// Number of members that failed.
fn status(fleet: &Fleet) -> u32 {
    u32::try_from(fleet.counts().bad().min(MOST_TOLD + 1)).unwrap_or(u32::MAX)
}

/// Member output that the log of a resumed fleet has already.
struct PrintedBefore {
    /// By member.
    of_members: Vec<PrintedSummary>,
    /// Whether no line was evicted.
    is_whole: bool,
}

async fn printed_before(job: &Job) -> PrintedBefore {
    let names = job.spec.fleet.as_ref().map_or(&[][..], |plan| &plan.members);
    let mut printed = vec![PrintedSummary::default(); names.len()];
    let mut cursor = LineNo::START;
    let mut is_whole = true;
    loop {
        // Without patience: reads the log up to its present end.
        let wait = Wait::default();
        let Ok(tail) = job.tail(&page(cursor, Render::Clean), &wait).await else {
            return PrintedBefore {
                of_members: printed,
                is_whole: false,
            };
        };
        is_whole &= tail.page.dropped_lines == 0;
        for line in &tail.page.lines {
            if let Some((index, text)) = member_and_text(line, names)
                && let Some(printed) = printed.get_mut(index)
            {
                printed.note(line.stream, text);
            }
        }
        cursor = tail.page.last_line_no;
        if !tail.page.has_more {
            return PrintedBefore {
                of_members: printed,
                is_whole,
            };
        }
    }
}

/// Index of the member that printed a line, and the line without the member's name.
fn member_and_text<'a>(line: &'a Line, names: &[String]) -> Option<(usize, &'a str)> {
    if let Some(member) = line.member {
        return Some((member.index(), &line.text));
    }
    let (name, text) = split_old_line(&line.text)?;
    Some((names.iter().position(|known| known == name)?, text))
}

fn page(cursor: LineNo, render: Render) -> PageQuery {
    PageQuery {
        cursor,
        selection: Selection::Both,
        max_lines: PAGE_LINES,
        max_bytes: PAGE_BYTES,
        line_bytes: 1,
        render,
        keep: Keep::First,
    }
}

/// One member, from start to end.
struct MemberTask {
    shared: Arc<RunnerState>,
    job: Arc<Job>,
    index: usize,
    events: mpsc::Sender<FarEvent>,
    /// Output of the member that the fleet's log has.
    printed: PrintedSummary,
    /// Another process started the fleet, and its secrets are lost.
    lacks_secrets: bool,
    /// Its connection, if it was made before its turn.
    connection: Option<MemberConnection>,
}

impl MemberTask {
    async fn run(mut self) -> MemberEnd {
        let name = self.note(|member| {
            member.note_start(SystemTime::now());
            member.name.clone()
        });
        let connected = self.connection.take().transpose();
        let started = match connected {
            Ok(lease) => {
                // Given back to the pool, from which the start takes it.
                drop(lease);
                self.start_unless_stopped(&name).await
            }
            Err(error) => Err(error),
        };
        let outcome = match started {
            Ok(member) => {
                self.note(|noted| noted.job = Some(member.id.clone()));
                // After the job is noted: at least one of `signal_members` and this signals it.
                self.end_if_stopped(&member);
                if self.job.spec.durable
                    && let Some(storing) = &self.shared.storing
                {
                    // A process that resumes the fleet should know soon that it has started.
                    storing.touch(&self.job.id);
                }
                let outcome = self.pass_on(&member).await;
                // If the store has failed, the lines are only in memory.
                if self.shared.storing.is_some() && member.status().unstored.is_none() {
                    member.trim(0);
                }
                outcome
            }
            // The process that resumes the durable fleet starts the member.
            Err(_) if self.job.spec.durable && self.shared.stopping.is_cancelled() => {
                return MemberEnd::NotStarted;
            }
            Err(error) => Outcome::NotStarted(chain(&error)),
        };
        let end = MemberEnd::of(&outcome);
        let printed = std::mem::take(&mut self.printed);
        self.note(|member| member.note_end(outcome, printed, SystemTime::now()));
        end
    }

    fn note<T>(&self, change: impl FnOnce(&mut Member) -> T) -> T {
        self.fleet().change_member(self.index, change)
    }

    /// Starts the member. If the fleet is ended in the meantime, sends nothing more, or returns the
    /// member if it was already sent.
    async fn start_unless_stopped(&self, name: &str) -> Result<Arc<Job>, SpawnError> {
        tokio::select! {
            started = self.start(name) => started,
            () = self.fleet().stopped() => self.begun(name).await.ok_or(SpawnError::Abandoned),
        }
    }

    /// The member's job, if it was started, here or by the process from which the fleet was taken over.
    async fn begun(&self, name: &str) -> Option<Arc<Job>> {
        if let Some(member) = self.begun_before().await {
            return Some(member);
        }
        let registry = self.shared.registry();
        registry
            .running()
            .find(|job: &&Arc<Job>| {
                job.spec.member_of.as_ref() == Some(&self.job.id) && job.spec.host == name
            })
            .cloned()
    }

    /// Sends the signal that ended the fleet to a member that started later.
    fn end_if_stopped(&self, member: &Arc<Job>) {
        let Some(signal) = self.fleet().ended_by() else { return };
        let shared = Arc::clone(&self.shared);
        let member = Arc::clone(member);
        // A task of its own, because the member's lines must be read in the meantime.
        self.shared.spawn_task(async move {
            // The registry has the stdin, and with it the controls, only of a started job.
            member.wait_for(PATIENCE, |log| log.phase().has_started()).await;
            let stdin = shared.registry().stdin(&member.id);
            if let Some(stdin) = stdin
                && let Err(error) = end_tree(&shared, &member, Kill::new(signal, None), stdin.controls(), Asking::Nobody).await
            {
                tracing::warn!(job = %member.id, %error, "a member that was starting could not be signalled");
            }
        });
    }

    fn fleet(&self) -> &Fleet {
        self.job.fleet.as_ref().expect("a fleet has members")
    }

    /// Starts the member. A member of a durable fleet starts at most once, whichever process runs
    /// the fleet.
    async fn start(&self, name: &str) -> Result<Arc<Job>, SpawnError> {
        if let Some(member) = self.begun_before().await {
            return Ok(member);
        }
        if self.lacks_secrets {
            return Err(SpawnError::SecretsGone);
        }
        // After a resume, finds a member whose id the previous process did not store.
        let key = self.job.spec.durable.then(|| format!("{}/{name}", self.job.id));
        match self.start_when_there_is_room(name, key.clone()).await {
            Err(SpawnError::HeldElsewhere { host, .. }) if self.gets_host(&host).await => {
                self.start_when_there_is_room(name, key).await
            }
            started => started,
        }
    }

    /// The member's job, if a process has noted it, as in a fleet that was taken over.
    async fn begun_before(&self) -> Option<Arc<Job>> {
        let id = self.note(|member| member.job.clone())?;
        match lookup(&self.shared, &Scope::Of(self.job.caller.clone()), &id).await {
            Lookup::Found(member) => Some(member),
            Lookup::Expired(_) | Lookup::Unknown | Lookup::Unreadable(_) => None,
        }
    }

    /// Starts the member once the limits on jobs have room for it: a fleet may run more hosts at a time than
    /// they allow, and other jobs need room, too.
    async fn start_when_there_is_room(
        &self,
        name: &str,
        key: Option<String>,
    ) -> Result<Arc<Job>, SpawnError> {
        loop {
            let order = self.order(name, key.clone());
            match spawn_member(&self.shared, order, PATIENCE).await {
                Err(SpawnError::Capacity { .. }) => sleep(ROOM_PAUSE).await,
                started => return started,
            }
        }
    }

    fn order(&self, name: &str, key: Option<String>) -> StartOrder {
        StartOrder::new(&self.job.caller, self.spec(name), key)
    }

    /// Asks the replica that holds a host for it: all members run where the fleet does.
    async fn gets_host(&self, host: &str) -> bool {
        let peers = self.shared.storing.as_ref().and_then(|storing| storing.store.peers());
        let Some(peers) = peers else { return false };
        match peers.ask_for_host(host).await {
            Ok(is_here) => is_here,
            Err(error) => {
                tracing::warn!(%error, host, "another replica can't be asked for a host");
                false
            }
        }
    }

    fn spec(&self, name: &str) -> JobSpec {
        let fleet: &Draft = &self.job.spec;
        // Output of a durable member waits in files on its host. Any other command waits until
        // its output is read.
        let pace = if fleet.durable {
            Pace::Free
        } else {
            Pace::OfFollower
        };
        let facts = JobFacts {
            host: name.to_owned(),
            fleet: None,
            member_of: Some(self.job.id.clone()),
            // The fleet notifies of its end, and has waited for its turn.
            notify: Vec::new(),
            turn: Turn::default(),
            env_setup: fleet.env_setup.clone().or_else(|| {
                let setup = self.shared.hosts.book().env_setup(name);
                setup.map(str::to_owned)
            }),
            ..fleet.facts.clone()
        };
        let draft = Draft {
            facts,
            env: fleet.env.clone(),
            secrets: fleet.secrets.clone(),
            stdin: fleet.stdin.clone(),
            pace,
        };
        draft.try_into().expect("a valid fleet has valid members")
    }

    /// Copies the member's output into the fleet's log until the member ends.
    async fn pass_on(&mut self, member: &Job) -> Outcome {
        // The fleet's log has these lines already.
        let mut cursor = LineNo::new(self.printed.lines());
        loop {
            let wait = Wait {
                patience: LONGEST_WAIT,
                ..Wait::default()
            };
            // Fails only if patterns take too long, and this wait has none.
            let Ok(tail) = member.tail(&page(cursor, Render::Clean), &wait).await else {
                break;
            };
            cursor = tail.page.last_line_no;
            for event in self.events_of(&tail.page) {
                // Waits while the queue is full. That delays `note_taken`, which paces the member.
                if self.events.send(event).await.is_err() {
                    // The recorder has ended. The member is still read to its end, for its outcome.
                    break;
                }
            }
            member.note_taken(cursor);
            if matches!(tail.status.phase, Phase::Ended(_)) && !tail.page.has_more {
                break;
            }
        }
        member.outcome().await
    }

    /// The lines of a page. Consecutive lines of one stream become one event.
    fn events_of(&mut self, page: &Page) -> Vec<FarEvent> {
        let mut events: Vec<(Stream, String)> = Vec::new();
        if page.dropped_lines > 0 {
            let lost = format!("[sshjobs: {} lines were lost here]\n", page.dropped_lines);
            events.push((Stream::Stderr, lost));
        }
        for line in &page.lines {
            self.printed.note(line.stream, &line.text);
            // Each line gets an end, even a cut one: members share the unfinished line of the log.
            match events.last_mut() {
                Some((stream, text)) if *stream == line.stream => {
                    text.push_str(&line.text);
                    text.push('\n');
                }
                _ => events.push((line.stream, format!("{}\n", line.text))),
            }
        }
        let member = MemberNo::at(self.index);
        events
            .into_iter()
            .map(|(stream, text)| {
                FarEvent::Data(OutputSource::of_member(member, stream), Bytes::from(text))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(member: Option<MemberNo>, text: &str) -> Line {
        Line {
            line_no: LineNo::new(1),
            stream: Stream::Stdout,
            member,
            timestamp: 0,
            continuation: false,
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_line_is_its_members_also_in_a_log_of_an_earlier_version() {
        let names = ["web1".to_owned(), "web2".to_owned()];
        let new = line(MemberNo::at(1), "web1: text");
        let old = line(None, "web2: text");
        let own = line(None, "no name");

        assert_eq!(member_and_text(&new, &names), Some((1, "web1: text")));
        assert_eq!(member_and_text(&old, &names), Some((1, "text")));
        assert_eq!(member_and_text(&own, &names), None);
    }
}

//! A fleet: its members are jobs of their own, and this is the far end of the job that stands for all of them. It starts them as
//! the roll-out says, and puts their lines, each behind its member's name, into one log.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::durable::leave_recording_from;
use super::find::lookup;
use super::fleet_controls::FleetControls;
use super::shared::Shared;
use super::signal_tree::end_tree;
use super::start::spawn;
use super::stdin::Stdin;
use super::{Lookup, Order, SpawnError, chain};
use crate::job::{
    Draft, Exit, FarEnd, FarEvent, Fleet, Job, JobSpec, Member, MemberEnd, Outcome, Pace, Phase, Printed,
    Rollout, Scope, StdinPlan, Wait, member_of, prefixed, wall_now,
};
use crate::output::{Keep, LineNo, Page, PageQuery, Render, Selection, Stream};

/// Pieces of output that wait for the recorder.
const QUEUE: usize = 64;
/// Time limit for a host to start a member.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before a member that could not be started is tried again; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Lines and bytes of a member that are taken at a time.
const PAGE_LINES: usize = 2000;
const PAGE_BYTES: usize = 256 << 10;
/// Longest wait for a member's next line; another follows.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
/// How far the fleet's log may be ahead of the store before members wait.
const STORED_UP: Duration = Duration::from_secs(10);
/// Failed members are told by the exit status up to here; one more stands for any number beyond (as with GNU parallel).
const MOST_TOLD: usize = 100;

/// What the members print, as one far end.
struct FleetFarEnd {
    events: mpsc::Receiver<FarEvent>,
    job: Arc<Job>,
}

impl FarEnd for FleetFarEnd {
    async fn next(&mut self) -> FarEvent {
        self.job.stored_up(STORED_UP).await;
        self.events.recv().await.unwrap_or(FarEvent::Detached)
    }
}

/// Rolls fleets out: new ones, and those that other processes have left. Of some of these the values of variables, or text for
/// stdin, are kept nowhere.
pub(super) async fn run_fleets(shared: Arc<Shared>, mut fleets: mpsc::Receiver<(Arc<Job>, bool)>) {
    while let Some((job, lacks_secrets)) = fleets.recv().await {
        leave(&shared, &job, lacks_secrets);
    }
}

fn leave(shared: &Arc<Shared>, job: &Arc<Job>, lacks_secrets: bool) {
    let (events, told) = mpsc::channel(QUEUE);
    // The channel is empty.
    events.try_send(FarEvent::Started).ok();
    let controls = Arc::new(FleetControls { shared: Arc::downgrade(shared), job: Arc::clone(job) });
    let is_closed = !matches!(job.spec.stdin, StdinPlan::Open);
    let announced = tokio::sync::watch::Sender::new(0).subscribe();
    let stdin = Arc::new(Stdin::durable(controls, Arc::clone(job), announced, is_closed));
    shared.registry().start_durable(&job.id, stdin, None);
    leave_recording_from(shared, job, FleetFarEnd { events: told, job: Arc::clone(job) });
    shared.leave(roll_out(Arc::clone(shared), (Arc::clone(job), lacks_secrets), events));
}

/// What a task of a roll-out has come to.
enum Step {
    Ended(usize, MemberEnd),
    /// A member that could not be started is due again.
    Due(usize),
}

/// Boxed, for a member is spawned as every job is, and a job may be a fleet.
fn roll_out(
    shared: Arc<Shared>,
    (job, lacks_secrets): (Arc<Job>, bool),
    events: mpsc::Sender<FarEvent>,
) -> BoxFuture<'static, ()> {
    async move {
        let Some((fleet, plan)) = job.fleet.as_ref().zip(job.spec.fleet.as_ref()) else { return };
        let mut roll_out = RollOut {
            shared: Arc::clone(&shared),
            job: Arc::clone(&job),
            events: events.clone(),
            printed: printed_before(&job).await,
            rollout: Rollout::new(plan),
            tasks: JoinSet::new(),
            tries: vec![0; plan.members.len()],
            pausing: 0,
            lacks_secrets,
        };
        roll_out.run(fleet).await;
        if !(shared.stopping.is_cancelled() && job.spec.durable) {
            let outcome = Outcome::Ended(Exit::Status(status(fleet)));
            // When nobody records any more there is nobody to tell.
            events.send(FarEvent::Over(outcome)).await.ok();
        }
    }
    .boxed()
}

/// A fleet on its way.
struct RollOut {
    shared: Arc<Shared>,
    job: Arc<Job>,
    events: mpsc::Sender<FarEvent>,
    /// What the log had of each member when this began.
    printed: Vec<Printed>,
    rollout: Rollout,
    tasks: JoinSet<Step>,
    /// How often each could not be started.
    tries: Vec<u32>,
    /// Members that are to be tried again.
    pausing: usize,
    lacks_secrets: bool,
}

impl RollOut {
    async fn run(&mut self, fleet: &Fleet) {
        loop {
            self.start_all(fleet);
            if self.rollout.is_over() && (self.pausing == 0 || self.rollout.is_stopped()) {
                return;
            }
            let may_start = !self.rollout.is_stopped();
            tokio::select! {
                Some(step) = self.tasks.join_next() => match step {
                    Ok(step) => self.take(step, fleet),
                    Err(error) => {
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
            // Of a fleet that goes on some have ended.
            let ended = fleet.members().get(index).and_then(Member::end);
            if let Some(end) = ended {
                self.rollout.end(index, end);
                continue;
            }
            let task = MemberTask {
                shared: Arc::clone(&self.shared),
                job: Arc::clone(&self.job),
                index,
                events: self.events.clone(),
                printed: self.printed.get(index).cloned().unwrap_or_default(),
                lacks_secrets: self.lacks_secrets,
            };
            self.tasks.spawn(async move { Step::Ended(index, task.run().await) });
        }
    }

    fn take(&mut self, step: Step, fleet: &Fleet) {
        match step {
            Step::Ended(index, end) => {
                if self.rollout.end(index, end) {
                    self.pausing += 1;
                    let pause = (FIRST_PAUSE * (1 << self.tries[index].min(5))).min(LONGEST_PAUSE);
                    self.tries[index] += 1;
                    self.tasks.spawn(async move {
                        sleep(pause).await;
                        Step::Due(index)
                    });
                }
            }
            Step::Due(index) => {
                self.pausing -= 1;
                if let Some(member) = fleet.members().get_mut(index) {
                    member.outcome = None;
                }
                self.rollout.again(index);
            }
        }
    }
}

/// The number of members that did not end well.
fn status(fleet: &Fleet) -> u32 {
    u32::try_from(fleet.counts().bad().min(MOST_TOLD + 1)).unwrap_or(u32::MAX)
}

/// What the log of a fleet that goes on has of each member already.
async fn printed_before(job: &Job) -> Vec<Printed> {
    let names: Vec<String> = job.spec.fleet.iter().flat_map(|plan| plan.members.clone()).collect();
    let mut printed = vec![Printed::default(); names.len()];
    let mut cursor = LineNo::START;
    loop {
        let wait = Wait::default();
        let Ok(tail) = job.tail(&page(cursor, Render::Clean), &wait).await else { return printed };
        for line in &tail.page.lines {
            let whose = member_of(&line.text);
            let found = whose.and_then(|(name, text)| Some((names.iter().position(|n| n == name)?, text)));
            if let Some((index, text)) = found {
                printed[index].note(line.stream, text);
            }
        }
        cursor = tail.page.last_line_no;
        if !tail.page.has_more {
            return printed;
        }
    }
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

/// One member, from its start to its end.
struct MemberTask {
    shared: Arc<Shared>,
    job: Arc<Job>,
    index: usize,
    events: mpsc::Sender<FarEvent>,
    /// What the log has of it.
    printed: Printed,
    /// It was begun by another process, and what it took with it was kept nowhere.
    lacks_secrets: bool,
}

impl MemberTask {
    async fn run(mut self) -> MemberEnd {
        let name = self.note(|member| {
            member.started_at = if member.started_at > 0 { member.started_at } else { wall_now() };
            member.name.clone()
        });
        let outcome = match self.start_unless_stopped(&name).await {
            Ok(member) => {
                self.note(|noted| noted.job = Some(member.id.clone()));
                self.end_if_stopped(&member);
                if let Some(storing) = self.shared.storing.as_ref().filter(|_| self.job.spec.durable) {
                    // So that whoever goes on with the fleet knows that it has begun.
                    storing.touch(&self.job.id);
                }
                let outcome = self.pass_on(&name, &member).await;
                if self.shared.storing.is_some() && member.status().unstored.is_none() {
                    member.trim(0);
                }
                outcome
            }
            // Whoever goes on with a durable fleet starts it.
            Err(_) if self.job.spec.durable && self.shared.stopping.is_cancelled() => {
                return MemberEnd::NotStarted;
            }
            Err(error) => Outcome::NotStarted(chain(&error)),
        };
        let (end, printed) = (MemberEnd::of(&outcome), std::mem::take(&mut self.printed));
        self.note(|member| member.note_end(outcome, printed, wall_now()));
        end
    }

    fn note<T>(&self, change: impl FnOnce(&mut Member) -> T) -> T {
        change(&mut self.fleet().members()[self.index])
    }

    /// Starts the member. When the fleet is ended meanwhile nothing is sent any more, or the member is found that was.
    async fn start_unless_stopped(&self, name: &str) -> Result<Arc<Job>, SpawnError> {
        tokio::select! {
            started = self.start(name) => started,
            () = self.fleet().stopped() => self.begun(name).ok_or(SpawnError::Abandoned),
        }
    }

    /// The member's job, if it has begun.
    fn begun(&self, name: &str) -> Option<Arc<Job>> {
        let registry = self.shared.registry();
        let is_it =
            |job: &&Arc<Job>| job.spec.member_of.as_ref() == Some(&self.job.id) && job.spec.host == name;
        registry.running().find(is_it).cloned()
    }

    /// Passes the signal that has ended the fleet on to a member that has started since.
    fn end_if_stopped(&self, member: &Arc<Job>) {
        let Some(signal) = self.fleet().ended_by() else { return };
        let (shared, member) = (Arc::clone(&self.shared), Arc::clone(member));
        self.shared.leave(async move {
            member.wait_for(PATIENCE, |log| *log.phase() != Phase::Starting).await;
            let stdin = shared.registry().stdin(&member.id);
            if let Some(stdin) = stdin
                && let Err(error) = end_tree(&shared, &member, (signal, None), stdin.controls()).await
            {
                tracing::warn!(job = %member.id, %error, "a member that was starting could not be signalled");
            }
        });
    }

    fn fleet(&self) -> &Fleet {
        self.job.fleet.as_ref().expect("a fleet has members")
    }

    /// Starts the member; of a durable fleet at most once, whoever goes on with it.
    async fn start(&self, name: &str) -> Result<Arc<Job>, SpawnError> {
        let known = self.note(|member| member.job.clone());
        if let Some(id) = known
            && let Lookup::Found(member) =
                lookup(&self.shared, &Scope::Of(self.job.caller.clone()), &id).await
        {
            return Ok(member);
        }
        if self.lacks_secrets {
            return Err(SpawnError::SecretsGone);
        }
        let key = self.job.spec.durable.then(|| format!("{}/{name}", self.job.id));
        let order = Order::new(&self.job.caller, self.spec(name), key);
        spawn(&self.shared, order, PATIENCE).await
    }

    fn spec(&self, name: &str) -> JobSpec {
        let fleet: Draft = (*self.job.spec).clone();
        let member_of = Some(self.job.id.clone());
        // The host's files hold what a durable one has printed; another one's host waits for us.
        let pace = if fleet.durable { Pace::Free } else { Pace::OfFollower };
        let draft = Draft { host: name.to_owned(), fleet: None, member_of, pace, ..fleet };
        draft.try_into().expect("what is right for the fleet is right for its member")
    }

    /// Passes on what the member prints, to its end.
    async fn pass_on(&mut self, name: &str, member: &Job) -> Outcome {
        // The fleet's log has these lines.
        let mut cursor = LineNo::new(self.printed.lines());
        loop {
            let wait = Wait { patience: LOOK_AGAIN, ..Wait::default() };
            let Ok(tail) = member.tail(&page(cursor, Render::Clean), &wait).await else { break };
            cursor = tail.page.last_line_no;
            for event in self.events_of(name, &tail.page) {
                if self.events.send(event).await.is_err() {
                    // Nobody records any more.
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

    /// The lines of a page behind the member's name, those of one stream that follow each other together.
    fn events_of(&mut self, name: &str, page: &Page) -> Vec<FarEvent> {
        let mut events: Vec<(Stream, String)> = Vec::new();
        if page.dropped_lines > 0 {
            let lost = format!("[sshjobs: {} lines were lost here]", page.dropped_lines);
            events.push((Stream::Stderr, prefixed(name, &lost) + "\n"));
        }
        for line in &page.lines {
            self.printed.note(line.stream, &line.text);
            let text = prefixed(name, &line.text) + "\n";
            match events.last_mut() {
                Some((stream, before)) if *stream == line.stream => before.push_str(&text),
                _ => events.push((line.stream, text)),
            }
        }
        events.into_iter().map(|(stream, text)| FarEvent::Data(stream, Bytes::from(text))).collect()
    }
}

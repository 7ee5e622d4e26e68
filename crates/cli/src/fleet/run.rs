//! `run` on many hosts: starts the fleet, shows its lines and progress, passes signals on, and
//! reports the end.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::hosts::{in_steps, named, split};
use super::joblog::check_writable;
use super::progress::FleetProgress;
use super::summary::summary;
use super::view::FleetView;
use super::{joblog, junit};
use crate::args::{FleetArgs, RunArgs};
use crate::command::of_run;
use crate::exit::{exit_of, print, tell};
use crate::interrupt::offer_kill;
use crate::json::json;
use crate::terminal::{Signals, colours_are_wanted, has_unread_input};
use crate::{ProgramExit, note, report};
use sshjobs_core::jobs::FleetSpec;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{
    Code, CommandRequest, Error, Format, Group, JobEntry, JobsRequest, ResultsEntry, SignalRequest,
    TailRequest,
};

/// Length of one wait for lines, before the next.
const WAIT_MS: u64 = 500;
/// Maximum lines and bytes of one read. The API allows no more.
const MOST_LINES: i64 = 10_000;
const MOST_BYTES: i64 = 262_144;
/// Interval at which the members' states are queried.
const CHECK_INTERVAL: Duration = Duration::from_millis(400);
/// Longest wait for the last lines of a member that has ended. Dropped lines and, with `--stream`,
/// lines of the other stream never arrive.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for writing the joblog of a fleet that is not followed to its end.
const JOBLOG_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs a command on many hosts. The exit code is the number of hosts on which it failed.
pub(crate) async fn run(api: &Api, args: RunArgs, fetch: impl FetchFiles) -> ProgramExit {
    let exit = attempt(api, args, fetch).await.unwrap_or_else(|error| {
        report(&error);
        // Exit codes from 0 to 101 are a number of hosts.
        ProgramExit::CONNECTION
    });
    api.shutdown().await;
    exit
}

/// Copies back the files of an ended fleet. Returns them, and the exit code.
pub(crate) trait FetchFiles:
    AsyncFnOnce(&JobEntry, &mut Signals) -> (ResultsEntry, ProgramExit)
{
}

impl<F> FetchFiles for F where F: AsyncFnOnce(&JobEntry, &mut Signals) -> (ResultsEntry, ProgramExit)
{}

/// Options besides the command itself.
struct FleetRun {
    fleet: FleetArgs,
    timestamps: bool,
    json: bool,
}

async fn attempt(api: &Api, args: RunArgs, fetch: impl FetchFiles) -> Result<ProgramExit, Error> {
    let has_command = !args.command.is_empty() || args.start.has_other_command();
    if args.tty > 0 || args.pty || !has_command {
        let hint = "name one host for a terminal, and a command for many";
        return Err(Error::invalid("many hosts share no terminal", hint));
    }
    for file in [&args.fleet.joblog, &args.fleet.junit].into_iter().flatten() {
        check_writable(file)?;
    }
    // Before the start: an uncaught signal would end this process without `shutdown`.
    let mut signals = Signals::catch()?;
    let wanted = FleetRun {
        fleet: args.fleet.clone(),
        timestamps: args.timestamps,
        json: args.json,
    };
    let reads_stdin = !args.no_stdin && args.start.secrets.secret_stdin.is_none();
    let stream = args.stream;
    let command = args.command.join(" ");
    let Some(request) = request(api, args).await? else {
        note("the joblog has all hosts already: nothing is left to do");
        // CI expects this file even if nothing ran.
        if let Some(file) = &wanted.fleet.junit {
            junit::write(file, &command, &[])?;
        }
        return Ok(ProgramExit::SUCCESS);
    };
    let names: Vec<String> =
        request.hosts.iter().filter(|word| FleetSpec::is_plain(word)).cloned().collect();
    let started = tokio::select! {
        started = api.spawn(request) => started?,
        number = signals.next() => return Ok(ProgramExit::signaled(number)),
    };
    if reads_stdin && has_unread_input() {
        note("stdin is not passed on, because the command runs on many hosts; -n omits this note");
    }
    if started.durable {
        let id = &started.job_id;
        note(&format!(
            "fleet {id} outlives this command: `sshjobs tail -f {id}` follows it from elsewhere"
        ));
    }
    let mut watch = FleetWatch {
        api,
        id: started.job_id,
        view: FleetView::new(&names, wanted.timestamps, wanted.fleet.group),
        progress: FleetProgress::new(),
        looked: Instant::now(),
        ended_at: HashMap::new(),
        shown: HashSet::new(),
    };
    let request = TailRequest {
        max_lines: Some(MOST_LINES),
        max_bytes: Some(MOST_BYTES),
        format: Format::Records,
        stream: stream.into(),
        ..TailRequest::new(&watch.id, 0, WAIT_MS)
    };
    let id = watch.id.clone();
    let ended = tokio::select! {
        ended = watch.follow(request) => ended,
        number = pass_on(api, &id, &mut signals) => Ok(ProgramExit::signaled(number)),
    };
    watch.progress.end();
    match ended {
        Ok(ProgramExit::SUCCESS) => finish(api, &id, &wanted, &mut signals, fetch).await,
        stopped => {
            write_joblog_so_far(api, &id, &wanted.fleet).await;
            stopped
        }
    }
}

/// Writes the joblog of a fleet that is not followed to its end, so that `--resume` does not repeat the
/// command where it has ended.
async fn write_joblog_so_far(api: &Api, id: &str, fleet: &FleetArgs) {
    let Some(file) = &fleet.joblog else { return };
    let writing = async {
        let mut members = members(api, id).await?;
        members.retain(|member| member.standing.state.is_final());
        joblog::write(file, &members, fleet.resume || fleet.resume_failed)
    };
    match timeout(JOBLOG_TIMEOUT, writing).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => report(&error),
        Err(_) => note("the joblog was not written: the server did not answer in time"),
    }
}

/// The request for the remaining hosts. `None` if the joblog has all of them.
async fn request(api: &Api, args: RunArgs) -> Result<Option<CommandRequest>, Error> {
    let fleet = args.fleet.clone();
    let mut hosts = FleetSpec::unfolded(&split(&args.host)?)?;
    let is_resumed = fleet.resume || fleet.resume_failed;
    if is_resumed && let Some(file) = &fleet.joblog {
        let known = joblog::read(file)?;
        let done = known.into_iter().filter(|(_, is_ok)| *is_ok || !fleet.resume_failed);
        let done: HashSet<String> = done.map(|(host, _)| host).collect();
        // Resolved here, because a joblog has names, not patterns.
        hosts = named(api, &hosts).await?;
        hosts.retain(|host| !done.contains(host));
        if hosts.is_empty() {
            return Ok(None);
        }
    }
    let request = of_run(RunArgs {
        host: String::new(),
        ..args
    })?;
    let request = CommandRequest {
        hosts,
        stdin: Some(String::new().into()),
        ..request
    };
    Ok(Some(in_steps(request, &fleet.rollout)))
}

/// A fleet that is being followed.
struct FleetWatch<'a> {
    api: &'a Api,
    id: String,
    view: FleetView,
    progress: FleetProgress,
    looked: Instant,
    /// When each member was first seen to have ended, by host.
    ended_at: HashMap<String, Instant>,
    /// Hosts whose output was shown as a block.
    shown: HashSet<String>,
}

impl FleetWatch<'_> {
    async fn follow(&mut self, mut request: TailRequest) -> Result<ProgramExit, Error> {
        match self.look().await? {
            ProgramExit::SUCCESS => {}
            exit => return Ok(exit),
        }
        loop {
            let reply = self.api.tail(request.clone()).await?;
            if reply.dropped_lines > 0 {
                self.progress
                    .above(|| note(&format!("{} lines were evicted", reply.dropped_lines)));
            }
            let mut lines = self.view.lines(reply.records.as_deref().unwrap_or_default());
            if !reply.still_running {
                // Members that `look` has not seen to end, and lines after the block of their host.
                lines.extend(self.view.rest());
            }
            match self.write(&lines) {
                ProgramExit::SUCCESS => {}
                exit => return Ok(exit),
            }
            if !reply.still_running {
                return Ok(ProgramExit::SUCCESS);
            }
            if !reply.has_more && self.looked.elapsed() >= CHECK_INTERVAL {
                self.looked = Instant::now();
                match self.look().await? {
                    ProgramExit::SUCCESS => {}
                    exit => return Ok(exit),
                }
            }
            request.since_line_no = Some(i64::try_from(reply.last_line_no).unwrap_or(i64::MAX));
        }
    }

    fn write(&self, lines: &[String]) -> ProgramExit {
        if lines.is_empty() {
            ProgramExit::SUCCESS
        } else {
            self.progress.above(|| print(&lines.join("\n")))
        }
    }

    /// Queries the members' states, for the progress and for output shown in blocks.
    async fn look(&mut self) -> Result<ProgramExit, Error> {
        if self.progress.is_shown() {
            let entry = self.api.entry(&self.id).await?;
            if let Some(members) = &entry.members {
                self.progress.show(members);
            }
        }
        if !self.view.is_grouped() {
            return Ok(ProgramExit::SUCCESS);
        }
        let mut lines = Vec::new();
        for member in members(self.api, &self.id).await? {
            // `insert` second, so that a host counts as shown only once it is complete.
            if self.is_complete(&member) && self.shown.insert(member.host.clone()) {
                lines.extend(self.view.ended(&member.host));
            }
        }
        Ok(self.write(&lines))
    }

    /// Whether a member has ended and its last lines have arrived. Its state may become final before
    /// they are in the fleet's log.
    fn is_complete(&mut self, member: &JobEntry) -> bool {
        if !member.standing.state.is_final() {
            return false;
        }
        let ended_at = *self.ended_at.entry(member.host.clone()).or_insert_with(Instant::now);
        self.view.held_lines(&member.host) >= member.total_lines
            || ended_at.elapsed() >= LAST_LINES_TIMEOUT
    }
}

/// The members of a fleet.
pub(crate) async fn members(api: &Api, id: &str) -> Result<Vec<JobEntry>, Error> {
    let request = JobsRequest {
        fleet: Some(id.to_owned()),
        // A fleet has at most 10,000 members, so one page has all.
        limit: Some(10_000),
        ..JobsRequest::default()
    };
    Ok(api.jobs(request).await?.jobs)
}

/// Reports how a fleet has ended: to a person, a script, a joblog and CI.
async fn finish(
    api: &Api,
    id: &str,
    wanted: &FleetRun,
    signals: &mut Signals,
    fetch: impl FetchFiles,
) -> Result<ProgramExit, Error> {
    let (mut entry, groups) = api.entry_and_groups(id).await?;
    let written = write_files(api, &entry, &wanted.fleet).await;
    let mut fetched = ProgramExit::SUCCESS;
    if !entry.fetch.is_empty() {
        (entry.results, fetched) = fetch(&entry, signals).await;
    }
    let told = if wanted.json {
        print(&as_json(&entry, &groups))
    } else {
        ProgramExit::SUCCESS
    };
    if !wanted.json {
        let counts = entry.members.unwrap_or_default();
        tell(&summary(
            &groups,
            &counts,
            colours_are_wanted(&io::stderr()),
        ));
    }
    let exit = exit_of(&entry);
    // Failed hosts matter more than output that could not be printed or written.
    if exit != ProgramExit::SUCCESS {
        written.inspect_err(report).ok();
        return Ok(exit);
    }
    if let Err(error) = written {
        report(&error);
        return Ok(ProgramExit::OUTPUT);
    }
    Ok(fetched.or(told))
}

/// Writes the files for CI.
async fn write_files(api: &Api, entry: &JobEntry, fleet: &FleetArgs) -> Result<(), Error> {
    if fleet.joblog.is_none() && fleet.junit.is_none() {
        return Ok(());
    }
    let members = members(api, &entry.job_id).await?;
    if let Some(file) = &fleet.joblog {
        joblog::write(file, &members, fleet.resume || fleet.resume_failed)?;
    }
    if let Some(file) = &fleet.junit {
        junit::write(file, &entry.command, &members)?;
    }
    Ok(())
}

fn as_json(entry: &JobEntry, groups: &[Group]) -> String {
    let mut value = serde_json::to_value(entry).expect("a job's entry is plain data");
    value["groups"] = serde_json::to_value(groups).expect("groups are plain data");
    json(&value)
}

/// Sends INT to all members for the first Ctrl-C, so that no further one starts, and KILL for the
/// second. Returns at the third, and at any other signal.
async fn pass_on(api: &Api, id: &str, signals: &mut Signals) -> u8 {
    let mut number = signals.next().await;
    for signal in ["INT", "KILL"] {
        if number != Signals::INTERRUPT {
            return number;
        }
        let sending = async {
            let request = SignalRequest {
                signal: Some(signal.to_owned()),
                ..SignalRequest::new(id)
            };
            if let Err(error) = api.signal(request).await.map(drop)
                // The fleet may end first. `follow` then returns.
                && error.code != Code::JobEnded
            {
                report(&error);
            }
        };
        let offering = async {
            if signal == "INT" {
                offer_kill().await;
            }
        };
        let sending = async {
            tokio::join!(sending, offering);
        };
        // Another Ctrl-C need not wait until this signal has arrived.
        number = signals.next_while(sending).await;
    }
    number
}

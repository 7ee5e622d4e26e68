//! `sshjobs run`: a command with our stdin, stdout, stderr and exit code. Ctrl-C reaches the
//! remote processes, and none is left behind.

use std::path::Path;
use std::time::Duration;

use tokio::io;
use tokio::time::sleep;

use crate::args::RunArgs;
use crate::command::of_run;
use crate::exit::{exit_of, output_error, print};
use crate::interrupt::{end_echoed_row, offer_kill};
use crate::json::json;
use crate::terminal::{
    Keyboard, KeyboardRole, KeysEnded, OwnScreen, Signals, has_unread_input, keyboard, stdin,
};
use crate::verbs::jobs::note_detached;
use crate::verbs::keeper::is_keeper;
use crate::verbs::tree::{note_changes, while_sending};
use crate::verbs::{fetch_here, once_approved, resolve_turn, spawn};
use crate::{ProgramExit, fleet, note, report};
use sshjobs_wire::remote::{Api, Control, NextBytes, Running};
use sshjobs_wire::{Code, DeliveryRoute, Error, JobEntry, JobState};

/// Time for a command to end by itself after this program got TERM.
const CLEAN_UP_TIME: Duration = Duration::from_secs(3);
/// Time for the last output of a command that was ended.
const LAST_OUTPUT: Duration = Duration::from_secs(1);
/// Grace between TERM and KILL for processes that an interrupted command left running.
const LEFTOVERS_GRACE: Duration = Duration::from_secs(2);

/// Runs a command on a host and exits with the command's exit code.
pub async fn run(api: &Api, mut args: RunArgs) -> ProgramExit {
    if args.detach {
        if let Err(error) = check(&args) {
            return refused(api, &error).await;
        }
        if has_unread_input() {
            note("stdin is not passed on to a job in the background");
        }
        if !is_keeper() {
            note("run -d starts a durable job and prints its id, as `sshjobs spawn` does");
        }
        return spawn(api, args.into_spawn()).await;
    }
    if let Err(error) = resolve_turn(api, &mut args.start.turn).await {
        return refused(api, &error).await;
    }
    if fleet::is_meant(&args.host) || args.fleet.is_set() {
        let patterns = args.start.tree.fetch.clone();
        let fetch = async |job: &JobEntry, signals: &mut Signals| {
            fetch_here(api, job, &patterns, signals).await
        };
        return fleet::run(api, args, fetch).await;
    }
    let json = args.json;
    let host = args.host.clone();
    let mut started = None;
    let ended = watched(api, args, &mut started).await;
    let (exit, error) = match ended {
        Ok(RunEnd { exit, trouble }) => (exit, trouble),
        Err(error) => (ProgramExit::of_error(&error), Some(error)),
    };
    if let Some(error) = &error {
        report(error);
    }
    let told = if json {
        print(&summary(started.as_ref(), &host, error.as_ref()))
    } else {
        ProgramExit::SUCCESS
    };
    // The command's exit code takes precedence over an error of the summary.
    exit.or(told)
}

/// Reports an error before anything was started.
async fn refused(api: &Api, error: &Error) -> ProgramExit {
    report(error);
    api.shutdown().await;
    ProgramExit::of_error(error)
}

/// How a run ended.
struct RunEnd {
    exit: ProgramExit,
    trouble: Option<Error>,
}

/// A summary of the run as one line of JSON.
fn summary(job: Option<&JobEntry>, host: &str, error: Option<&Error>) -> String {
    let mut summary = match job {
        Some(job) => serde_json::to_value(job).expect("a job's entry is plain data"),
        None => serde_json::json!({"host": host, "state": "refused"}),
    };
    if let Some(error) = error {
        summary["error"] = serde_json::to_value(error).expect("an error is plain data");
    }
    json(&summary)
}

/// Runs the command, then ends the jobs of this process. A signal during that ends the program at
/// once.
async fn watched(
    api: &Api,
    args: RunArgs,
    started: &mut Option<JobEntry>,
) -> Result<RunEnd, Error> {
    let mut signals = Signals::catch()?;
    let exit = attempt(api, args, &mut signals, started).await;
    tokio::select! {
        () = api.shutdown() => exit,
        number = signals.next() => Ok(ProgramExit::signaled(number).into()),
    }
}

async fn attempt(
    api: &Api,
    mut args: RunArgs,
    signals: &mut Signals,
    started: &mut Option<JobEntry>,
) -> Result<RunEnd, Error> {
    let no_stdin = args.no_stdin || args.start.secrets.secret_stdin.is_some();
    check(&args)?;
    if args.tty > 0 && !keyboard::is_there() {
        if args.tty > 1 {
            args.pty = true;
        } else {
            note("stdin is not a terminal, so the command runs without one; -tt gives it one");
        }
        args.tty = 0;
    }
    let screen = OwnScreen::new(&args);
    let tty = args.tty > 0;
    let limit = args.start.timeout;
    let earlier = args.start.tree.earlier.take();
    let request = of_run(args)?;
    let patterns = request.fetch.clone();
    let starting = once_approved(async || api.follow(request.clone()).await);
    let running = tokio::select! {
        running = while_sending(api, request.sync.is_some(), starting) => running?,
        number = signals.next() => return Ok(ProgramExit::signaled(number).into()),
    };
    let job = running.control();
    // Now, so that the JSON summary has the job even if following it fails.
    let entry = started.insert(job.entry());
    note_changes(earlier.as_ref(), entry.tree.as_ref());
    if entry.durable {
        let id = &entry.job_id;
        let verb = if tty { "attach" } else { "tail -f" };
        note(&format!(
            "job {id} outlives this command: `sshjobs {verb} {id}` continues it from elsewhere"
        ));
    }
    if entry.standing.state == JobState::Queued {
        note(&format!(
            "{} waits for its turn; `sshjobs jobs` says for what, and Ctrl-C cancels it",
            entry.job_id
        ));
    }
    let mut session = TerminalSession {
        running,
        screen,
        dropped: 0,
        limit,
        ended: None,
        is_detached: false,
        trouble: None,
    };
    let exit = if tty {
        on_our_terminal(&job, &mut session, signals).await
    } else {
        on_pipes(&job, no_stdin, &mut session, signals).await
    };
    // Before any message: the keyboard is out of raw mode, but the screen may be the program's.
    session.screen.restore().await;
    if session.is_detached {
        let verb = if tty { "attach" } else { "tail -f" };
        note_detached(&job.entry().job_id, verb);
    }
    let entry = started.insert(session.ended.take().map_or_else(|| job.entry(), |entry| *entry));
    // Before `exit?` below, so that an error leaves no processes behind either.
    if signals.interrupted && !session.is_detached {
        // A server that is gone must not hold this program: another Ctrl-C ends it.
        tokio::select! {
            () = end_leftovers(&job) => {}
            number = signals.next() => return Ok(ProgramExit::signaled(number).into()),
        }
    }
    let mut exit = exit?;
    if !patterns.is_empty() && entry.standing.state.is_final() {
        let (results, fetched) = fetch_here(api, entry, &patterns, signals).await;
        entry.results = results;
        exit = exit.or(fetched);
    }
    Ok(RunEnd {
        exit,
        trouble: session.trouble,
    })
}

/// Refuses likely mistakes: no command, or words between the host and `--`, such as more hosts.
fn check(args: &RunArgs) -> Result<(), Error> {
    if args.command.is_empty() && args.tty == 0 && !args.start.has_other_command() {
        let hint = format!("for a login shell: sshjobs run -t {}", args.host);
        return Err(Error::new(
            Code::InvalidArgument,
            "no command is given",
            hint,
        ));
    }
    for file in args
        .ssh
        .identity
        .iter()
        .filter(|file| !file.starts_with(['~', '%']) && !Path::new(file).exists())
    {
        note(&format!(
            "the key file {file} is not there; others are tried"
        ));
    }
    let Some(index) = args.command.iter().position(|word| word == "--") else {
        return Ok(());
    };
    let words: Vec<String> = std::env::args().collect();
    if index == 0 || took_dashes(&words, &args.command) {
        return Ok(());
    }
    let before = args.command[..index].join(" ");
    let command = args.command[index + 1..].join(" ");
    let message = format!("{before:?} stands between the host and --");
    let hosts = args.command[..index].join(",");
    let host = &args.host;
    let whole = args.command.join(" ");
    let hint = format!(
        "for many hosts: sshjobs run {host},{hosts} -- {command}; for a command with a -- in it: \
         sshjobs run {host} -- {whole}"
    );
    Err(Error::new(Code::InvalidArgument, message, hint))
}

/// Whether the parser has removed a `--` that stood before the command. Then all words after it
/// belong to the command.
fn took_dashes(words: &[String], command: &[String]) -> bool {
    count_dashes(words) > count_dashes(command)
}

fn count_dashes(words: &[String]) -> usize {
    words.iter().filter(|word| *word == "--").count()
}

/// A shell makes its background children ignore INT, so they outlive the command after Ctrl-C. Ends
/// them, too.
async fn end_leftovers(job: &Control) {
    if let Ok(report) = job.signal("TERM", Some(LEFTOVERS_GRACE)).await
        && report.delivered_via == DeliveryRoute::ProcessGroup
    {
        note("ended processes that the command had left running in the background");
    }
}

impl From<ProgramExit> for RunEnd {
    fn from(exit: ProgramExit) -> Self {
        Self {
            exit,
            trouble: None,
        }
    }
}

async fn on_pipes(
    job: &Control,
    no_stdin: bool,
    session: &mut TerminalSession,
    signals: &mut Signals,
) -> Result<ProgramExit, Error> {
    let input = async {
        if no_stdin {
            stdin::end(job).await;
            std::future::pending().await
        } else {
            stdin::forward(job).await
        }
    };
    let number = tokio::select! {
        ended = session.attend() => return ended,
        number = pass_on(job, signals) => number,
        ended = input => match ended {
            KeysEnded::Left => {
                session.is_detached = true;
                return Ok(ProgramExit::SUCCESS);
            }
            KeysEnded::ByUser | KeysEnded::HungUp => Signals::HANG_UP,
        },
    };
    if number == Signals::TERMINATE && !job.entry().durable {
        end_and_show(job, session, signals).await;
    }
    Ok(ProgramExit::signaled(number))
}

/// Ends the command, as the end of this program would, and shows its output meanwhile. Another signal ends the wait.
async fn end_and_show(job: &Control, session: &mut TerminalSession, signals: &mut Signals) {
    let ending = async {
        // A host that can't be reached gets another try when the program ends.
        job.signal("TERM", Some(CLEAN_UP_TIME)).await.ok();
        sleep(LAST_OUTPUT).await;
    };
    tokio::select! {
        // An error of this program's output is dropped: the exit status shows the signal.
        _ = session.attend() => {}
        () = ending => {}
        _ = signals.next() => {}
    }
}

/// Passes the keys of our terminal to the job until it ends or the user presses the escape keys.
async fn on_our_terminal(
    job: &Control,
    session: &mut TerminalSession,
    signals: &mut Signals,
) -> Result<ProgramExit, Error> {
    // With a name, because `let _ =` would restore the terminal at once.
    let _keyboard = Keyboard::take()?;
    let role = if job.entry().durable {
        KeyboardRole::Guest
    } else {
        KeyboardRole::Owner
    };
    tokio::select! {
        ended = session.attend() => ended,
        number = pass_on(job, signals) => Ok(ProgramExit::signaled(number)),
        ended = stdin::forward_keys(job, role) => Ok(match ended {
            // ssh also exits with 255 after `~.`.
            KeysEnded::ByUser => {
                session.is_detached = job.entry().durable;
                ProgramExit::CONNECTION
            }
            KeysEnded::Left => {
                session.is_detached = true;
                ProgramExit::SUCCESS
            }
            KeysEnded::HungUp => ProgramExit::signaled(Signals::HANG_UP),
        }),
        never = keyboard::follow_size(job) => never,
    }
}

/// A command that is being followed.
struct TerminalSession {
    running: Running,
    screen: OwnScreen,
    dropped: u64,
    limit: Option<Duration>,
    ended: Option<Box<JobEntry>>,
    /// The user has left the terminal of a job that continues.
    is_detached: bool,
    /// An error to report once the terminal is restored.
    trouble: Option<Error>,
}

impl TerminalSession {
    /// Shows the output to its end.
    async fn attend(&mut self) -> Result<ProgramExit, Error> {
        loop {
            let shown = self.running.next().await?;
            if let Some(exit) = self.show(shown).await? {
                return Ok(exit);
            }
        }
    }

    async fn show(&mut self, shown: NextBytes) -> Result<Option<ProgramExit>, Error> {
        self.dropped += shown.dropped_bytes;
        match self.screen.show(&shown).await {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(Some(ProgramExit::BROKEN_PIPE));
            }
            Err(error) => {
                self.trouble = Some(output_error(&error));
                return Ok(Some(ProgramExit::OUTPUT));
            }
        }
        let exit = shown.ended.as_ref().map(|job| self.finish(job));
        self.ended = shown.ended;
        Ok(exit)
    }

    fn finish(&mut self, job: &JobEntry) -> ProgramExit {
        let standing = &job.standing;
        self.trouble = match standing.state {
            JobState::Lost => Some(Error::new(
                Code::ConnectionLost,
                "the connection was lost; the command may still run there",
                "look at the host before running it again",
            )),
            JobState::Closed => Some(Error::new(
                Code::ConnectionLost,
                "the host closed the channel without saying how the command ended",
                "look at the host before running it again",
            )),
            JobState::TimedOut => {
                let limit = self.limit.unwrap_or_default();
                let has_ended = standing.exit_status.is_some() || standing.exit_signal.is_some();
                let end = if has_ended {
                    " and was ended"
                } else {
                    "; it is not known whether it has ended"
                };
                let message = format!("the command ran into its time limit of {limit:?}{end}");
                Some(Error::new(
                    Code::Timeout,
                    message,
                    "give it more time with --timeout",
                ))
            }
            JobState::Refused if standing.reason.is_some() => Some(Error::new(
                Code::JobEnded,
                standing.reason.clone().unwrap_or_default(),
                "the command was not started",
            )),
            JobState::Refused
            | JobState::Exited
            | JobState::Signaled
            | JobState::Queued
            | JobState::Starting
            | JobState::Running => None,
        };
        if self.trouble.is_none() && self.dropped > 0 {
            let message = format!(
                "{} bytes of output were lost when the command was ended",
                self.dropped
            );
            let hint =
                "stdout accepted no output, and no second connection could be made to end the job";
            self.trouble = Some(Error::new(Code::Io, message, hint));
        }
        exit_of(job)
    }
}

/// Sends INT to the remote processes for the first Ctrl-C and KILL for the second. Returns the
/// number of the third, or of any other signal. Keeps listening while the host is slow.
async fn pass_on(job: &Control, signals: &mut Signals) -> u8 {
    let mut number = signals.next().await;
    for signal in ["INT", "KILL"] {
        if number != Signals::INTERRUPT {
            return number;
        }
        signals.interrupted = true;
        end_echoed_row();
        let sending = async {
            if send(job, signal).await == SignalSent::Refused {
                return;
            }
            std::future::pending().await
        };
        let offering = async {
            if signal == "INT" {
                offer_kill().await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            next = signals.next() => number = next,
            // Also while the host is silent.
            () = offering => {}
            // The end of this program ends the command: its connection is closed.
            () = sending => return number,
        }
    }
    number
}

/// Whether a signal could be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SignalSent {
    /// It was sent, or may be sent again.
    Yes,
    /// The server lets this client make no more calls: its token has expired or was revoked.
    Refused,
}

async fn send(job: &Control, signal: &str) -> SignalSent {
    match job.signal(signal, None).await {
        Ok(_) => SignalSent::Yes,
        Err(error) if error.code == Code::JobEnded => SignalSent::Yes,
        Err(error) => {
            report(&error);
            if error.code == Code::Unauthenticated {
                SignalSent::Refused
            } else {
                SignalSent::Yes
            }
        }
    }
}

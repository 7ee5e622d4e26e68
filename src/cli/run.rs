use std::collections::BTreeMap;
use std::io::Write;

use secrecy::SecretString;
use tokio::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::screen::Screen;
use super::terminal::Keyboard;
use super::{Exit, RunArgs, report, stdin, terminal};
use crate::api::{Code, Ending, Error, Follow, JobState, Output, Service, SignalRequest, SpawnRequest};

/// Runs a command on a host and ends as it ended.
pub async fn run(service: &Service, args: RunArgs) -> Exit {
    watched(service, args).await.unwrap_or_else(|error| {
        report(&error);
        Exit::of_error(&error)
    })
}

/// Ends what still runs, unless another signal says that there is no time for it.
async fn watched(service: &Service, args: RunArgs) -> Result<Exit, Error> {
    let mut signals = Signals::catch()?;
    let exit = attempt(service, args, &mut signals).await;
    tokio::select! {
        () = service.shutdown() => exit,
        number = signals.next() => Ok(Exit::signaled(number)),
    }
}

async fn attempt(service: &Service, mut args: RunArgs, signals: &mut Signals) -> Result<Exit, Error> {
    let no_stdin = args.no_stdin;
    if args.tty && !terminal::is_there() {
        writeln!(std::io::stderr(), "sshjobs: stdin is no terminal: the command runs without one").ok();
        args.tty = false;
    }
    let (screen, tty) = (Screen::new(&args), args.tty);
    let request = spawn_request(args)?;
    let follow = tokio::select! {
        follow = service.spawn_followed(request) => follow?,
        number = signals.next() => return Ok(Exit::signaled(number)),
    };
    let job = follow.job_id().to_owned();
    let mut session = Session { follow, screen, dropped: 0, trouble: None };
    let exit = if tty {
        on_our_terminal(service, &job, &mut session, signals).await
    } else {
        on_pipes(service, &job, no_stdin, &mut session, signals).await
    };
    session.screen.restore().await;
    if let Some(trouble) = session.trouble {
        report(&trouble);
    }
    exit
}

async fn on_pipes(
    service: &Service,
    job: &str,
    no_stdin: bool,
    session: &mut Session,
    signals: &mut Signals,
) -> Result<Exit, Error> {
    let input = async {
        if no_stdin {
            stdin::end(service, job).await;
        } else {
            stdin::forward(service, job).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        ended = session.attend() => ended,
        number = pass_on(service, job, signals) => Ok(Exit::signaled(number)),
        never = input => never,
    }
}

/// The keys of our terminal belong to the job until it ends or they say that all is over.
async fn on_our_terminal(
    service: &Service,
    job: &str,
    session: &mut Session,
    signals: &mut Signals,
) -> Result<Exit, Error> {
    let _keyboard = Keyboard::take()?;
    tokio::select! {
        ended = session.attend() => ended,
        number = pass_on(service, job, signals) => Ok(Exit::signaled(number)),
        () = stdin::forward_keys(service, job) => Ok(Exit::CONNECTION),
        never = terminal::follow_size(service, job) => never,
    }
}

fn spawn_request(args: RunArgs) -> Result<SpawnRequest, Error> {
    let mut env = BTreeMap::new();
    for name in args.env {
        let value = std::env::var(&name).map_err(|error| {
            let hint = "--env takes the name of a variable that is set here, and UTF-8";
            Error::new(Code::InvalidArgument, format!("--env {name}: {error}"), hint)
        })?;
        env.insert(name, SecretString::from(value));
    }
    let pty = args.pty || args.tty;
    let size = if pty { terminal::size() } else { None };
    Ok(SpawnRequest {
        pty,
        cols: size.map(|(cols, _)| cols.into()),
        rows: size.map(|(_, rows)| rows.into()),
        // What we don't know is not said.
        term: std::env::var("TERM").ok().filter(|term| pty && !term.is_empty()),
        cwd: args.cwd,
        env,
        timeout_s: args.timeout,
        ..SpawnRequest::new(args.host, args.command.join(" "))
    })
}

/// One command being watched.
struct Session {
    follow: Follow,
    screen: Screen,
    dropped: u64,
    /// What is to be told once the terminal is ours again.
    trouble: Option<Error>,
}

impl Session {
    /// Shows the output to its end.
    async fn attend(&mut self) -> Result<Exit, Error> {
        loop {
            let output = self.follow.next().await;
            if let Some(exit) = self.show(output).await? {
                return Ok(exit);
            }
        }
    }

    async fn show(&mut self, output: Output) -> Result<Option<Exit>, Error> {
        self.dropped += output.dropped_bytes;
        match self.screen.show(&output).await {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Some(Exit::BROKEN_PIPE)),
            Err(error) => {
                return Err(Error::new(
                    Code::Io,
                    format!("can't write the output: {error}"),
                    "check where stdout goes",
                ));
            }
        }
        Ok(output.ended.map(|ending| self.finish(&ending)))
    }

    fn finish(&mut self, ending: &Ending) -> Exit {
        self.trouble = match ending.state {
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
            JobState::TimedOut => Some(Error::new(
                Code::Timeout,
                "the command ran into its time limit and was ended",
                "give it more time",
            )),
            JobState::Starting
            | JobState::Running
            | JobState::Exited
            | JobState::Signaled
            | JobState::Refused => None,
        };
        if self.trouble.is_some() {
            return Exit::of(ending);
        }
        if self.dropped > 0 {
            let message = format!("{} bytes of output were lost when the command was ended", self.dropped);
            let hint = "stdout here was stuck, and no other connection could be made to end it over";
            self.trouble = Some(Error::new(Code::Io, message, hint));
        }
        Exit::of(ending)
    }
}

/// Passes the first Ctrl-C on as INT to the remote tree and answers the second with KILL; ends at the third, and at any
/// other signal, with its number. It listens while the host takes its time.
async fn pass_on(service: &Service, job_id: &str, signals: &mut Signals) -> u8 {
    let mut number = signals.next().await;
    for name in ["INT", "KILL"] {
        if number != Signals::INTERRUPT {
            return number;
        }
        number = signals.next_while(send(service, job_id, name)).await;
    }
    number
}

async fn send(service: &Service, job_id: &str, signal: &str) {
    let request =
        SignalRequest { job_id: job_id.to_owned(), signal: Some(signal.to_owned()), grace_ms: None };
    if let Err(error) = service.signal(request).await
        && error.code != Code::JobEnded
    {
        report(&error);
    }
}

/// The signals that a person or a supervisor ends us with.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    const INTERRUPT: u8 = 2;

    fn catch() -> Result<Self, Error> {
        let catch = |kind| {
            signal(kind).map_err(|error| {
                Error::new(Code::Io, format!("signals can't be caught: {error}"), "report this")
            })
        };
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
        })
    }

    /// The next one's number.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => Self::INTERRUPT,
            _ = self.terminate.recv() => 15,
            _ = self.hang_up.recv() => 1,
        }
    }

    /// The next one's number, while something else is done.
    async fn next_while(&mut self, doing: impl Future<Output = ()>) -> u8 {
        let doing = async {
            doing.await;
            std::future::pending().await
        };
        tokio::select! {
            number = self.next() => number,
            never = doing => never,
        }
    }
}

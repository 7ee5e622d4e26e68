//! `sshjobs attach`: our terminal becomes one of those of a job.

use std::io::{IsTerminal, stdout};

use super::finish::finish;
use super::pick;
use crate::args::AttachArgs;
use crate::exit::{exit_of, output_error};
use crate::terminal::{Keyboard, KeyboardRole, KeysEnded, OwnScreen, Signals, keyboard, stdin};
use crate::{ProgramExit, note, report};
use sshjobs_wire::remote::{Api, Running};
use sshjobs_wire::{Code, Error, JobEntry};

/// How an attached session ends.
enum AttachEnd {
    /// The job has ended.
    Job(Box<JobEntry>),
    /// The person has pressed the escape keys.
    Detached,
    /// A signal, or the end of our terminal.
    Signal(u8),
    /// The output can't be written, or the server is lost.
    Failed(Error),
}

/// Sits in a job's terminal until the job ends or the person detaches.
pub async fn attach(api: &Api, args: AttachArgs) -> ProgramExit {
    finish(api, async {
        let id = pick::resolve(api, &args.job).await?;
        if !keyboard::is_there() || !stdout().is_terminal() {
            return Err(Error::invalid(
                "attach needs a terminal",
                "`sshjobs screen -f` and `sshjobs tail -f` follow a job without one",
            ));
        }
        let mut signals = Signals::catch()?;
        attach_to(api, &id, args.raw, &mut signals).await
    })
    .await
}

/// Attaches this terminal to a job. With `is_raw` the job's output is not filtered.
pub(crate) async fn attach_to(
    api: &Api,
    id: &str,
    is_raw: bool,
    signals: &mut Signals,
) -> Result<ProgramExit, Error> {
    let entry = api.entry(id).await?;
    if entry.standing.state.is_final() {
        let message = format!("{id} has ended: {}", entry.standing);
        let hint = format!("`sshjobs log {id}` shows its output");
        return Err(Error::new(Code::JobEnded, message, hint));
    }
    let mut running = api.attach(id).await?;
    // Before the session: the job's screen would overwrite it.
    note(&format!("attached to {id}; Enter ~ . detaches"));

    let mut screen = OwnScreen::of_terminal(is_raw);
    let ended = run_session(&mut running, &mut screen, signals).await;
    screen.restore().await;
    Ok(match ended? {
        AttachEnd::Job(job) => {
            note(&format!("{id}: {}", job.standing));
            exit_of(&job)
        }
        AttachEnd::Detached => {
            note_detached(id, "attach");
            ProgramExit::SUCCESS
        }
        AttachEnd::Signal(number) => ProgramExit::signaled(number),
        AttachEnd::Failed(error) => {
            report(&error);
            ProgramExit::of_error(&error)
        }
    })
}

/// Says that a job continues whose terminal the user has left.
pub(crate) fn note_detached(id: &str, verb: &str) {
    note(&format!("detached; `sshjobs {verb} {id}` returns to it"));
}

async fn run_session(
    running: &mut Running,
    screen: &mut OwnScreen,
    signals: &mut Signals,
) -> Result<AttachEnd, Error> {
    let job = running.control();
    // With a name, because `let _ =` would restore the terminal at once.
    let _keyboard = Keyboard::take()?;
    let ended = tokio::select! {
        ended = show_all(running, screen) => ended,
        number = signals.next() => AttachEnd::Signal(number),
        ended = stdin::forward_keys(&job, KeyboardRole::Guest) => match ended {
            KeysEnded::ByUser | KeysEnded::Left => AttachEnd::Detached,
            KeysEnded::HungUp => AttachEnd::Signal(Signals::HANG_UP),
        },
        never = keyboard::follow_size(&job) => never,
    };
    Ok(ended)
}

async fn show_all(running: &mut Running, screen: &mut OwnScreen) -> AttachEnd {
    loop {
        let shown = match running.next().await {
            Ok(shown) => shown,
            Err(error) => return AttachEnd::Failed(error),
        };
        if let Err(error) = screen.show(&shown).await {
            return AttachEnd::Failed(output_error(&error));
        }
        if let Some(job) = shown.ended {
            return AttachEnd::Job(job);
        }
    }
}

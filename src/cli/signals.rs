use tokio::signal::unix::{self, SignalKind, signal};

use crate::wire::{Code, Error};

/// Catches INT, TERM and HUP, with which a person or a supervisor ends a run.
pub(super) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
    /// Whether Ctrl-C was passed on to the job.
    pub(super) interrupted: bool,
}

/// Comes when a person or a supervisor ends the program.
///
/// # Errors
/// [`Code::Io`] when the system refuses to tell.
pub fn told_to_stop() -> Result<impl Future<Output = ()>, Error> {
    let mut signals = Signals::catch()?;
    Ok(async move {
        signals.next().await;
    })
}

impl Signals {
    /// SIGINT.
    pub(super) const INTERRUPT: u8 = 2;

    /// Installs the handlers. [`Code::Io`] when the system refuses.
    pub(super) fn catch() -> Result<Self, Error> {
        let catch = |kind| {
            signal(kind).map_err(|error| {
                Error::new(Code::Io, format!("signals can't be caught: {error}"), "report this")
            })
        };
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
            interrupted: false,
        })
    }

    /// Waits for a signal and returns its number. Cancelling loses none.
    pub(super) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => Self::INTERRUPT,
            _ = self.terminate.recv() => 15,
            _ = self.hang_up.recv() => 1,
        }
    }

    /// Waits for a signal and polls `doing` meanwhile, which is dropped when one comes.
    pub(super) async fn next_while(&mut self, doing: impl Future<Output = ()>) -> u8 {
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

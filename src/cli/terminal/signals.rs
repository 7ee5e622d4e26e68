//! Signals with which a person or a supervisor ends the program.

use tokio::signal::unix::{self, SignalKind, signal};

use crate::wire::{Code, Error};

/// Catches INT, TERM and HUP, with which a person or a supervisor ends a run.
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
    /// Whether Ctrl-C was sent to the job.
    pub(crate) interrupted: bool,
}

/// The signals that end a server, and the one that makes it read its policy again.
pub struct ServerSignals(Signals);

impl ServerSignals {
    /// Installs the handlers. [`Code::Io`] if the system refuses.
    pub fn catch() -> Result<Self, Error> {
        Signals::catch().map(Self)
    }

    /// Resolves when the program is told to stop. With `reload`, SIGHUP calls that instead.
    pub async fn wait_for_stop(mut self, reload: Option<impl AsyncFn()>) {
        loop {
            let number = self.0.next().await;
            match &reload {
                Some(reload) if number == Signals::HANG_UP => reload().await,
                Some(_) | None => return,
            }
        }
    }
}

impl Signals {
    /// SIGHUP.
    pub(crate) const HANG_UP: u8 = 1;
    /// SIGINT.
    pub(crate) const INTERRUPT: u8 = 2;

    /// Installs the handlers. [`Code::Io`] if the system refuses.
    pub(crate) fn catch() -> Result<Self, Error> {
        Ok(Self {
            interrupt: catch_one(SignalKind::interrupt())?,
            terminate: catch_one(SignalKind::terminate())?,
            hang_up: catch_one(SignalKind::hangup())?,
            interrupted: false,
        })
    }

    /// Waits for a signal and returns its number. Cancelling loses none.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => Self::INTERRUPT,
            _ = self.terminate.recv() => 15,
            _ = self.hang_up.recv() => Self::HANG_UP,
        }
    }

    /// Waits for a signal and meanwhile polls `doing`, which is dropped when one arrives.
    pub(crate) async fn next_while(&mut self, doing: impl Future<Output = ()>) -> u8 {
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

fn catch_one(kind: SignalKind) -> Result<unix::Signal, Error> {
    signal(kind).map_err(|error| {
        let message = format!("signals can't be caught: {error}");
        Error::new(Code::Io, message, "report this")
    })
}

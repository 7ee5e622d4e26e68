//! Signals with which a person or a supervisor ends the program.

use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::Instant;

use sshjobs_wire::{Code, Error};

/// A second INT within this time is ignored: timeout(1) signals its child and then the process group, so one interrupt
/// arrives twice.
const SAME_INTERRUPT: Duration = Duration::from_millis(200);

/// Catches INT, QUIT, TERM and HUP, with which a person or a supervisor ends a run.
pub(crate) struct Signals {
    interrupt: unix::Signal,
    quit: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
    /// When INT was last returned.
    interrupted_at: Option<Instant>,
    /// Whether Ctrl-C was sent to the job.
    pub(crate) interrupted: bool,
}

/// The signals that end a server, and HUP, which makes it read its files again.
pub struct ServerSignals(Signals);

impl ServerSignals {
    /// Installs the handlers. [`Code::Io`] if the system refuses.
    pub fn catch() -> Result<Self, Error> {
        Signals::catch().map(Self)
    }

    /// Resolves when the program receives a signal to stop. SIGHUP calls `reload`.
    pub async fn wait_for_stop(mut self, reload: impl AsyncFn()) {
        while self.0.next().await == Signals::HANG_UP {
            reload().await;
        }
    }
}

impl Signals {
    /// SIGHUP.
    pub(crate) const HANG_UP: u8 = 1;
    /// SIGINT.
    pub(crate) const INTERRUPT: u8 = 2;
    /// SIGQUIT.
    pub(crate) const QUIT: u8 = 3;
    /// SIGTERM.
    pub(crate) const TERMINATE: u8 = 15;

    /// Installs the handlers. [`Code::Io`] if the system refuses.
    pub(crate) fn catch() -> Result<Self, Error> {
        Ok(Self {
            interrupt: catch_one(SignalKind::interrupt())?,
            quit: catch_one(SignalKind::quit())?,
            terminate: catch_one(SignalKind::terminate())?,
            hang_up: catch_one(SignalKind::hangup())?,
            interrupted_at: None,
            interrupted: false,
        })
    }

    /// Waits for a signal and returns its number. Cancelling loses none. Ignores an INT that follows another within 200 ms.
    pub(crate) async fn next(&mut self) -> u8 {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {
                    let before = self.interrupted_at;
                    if before.is_none_or(|before| before.elapsed() > SAME_INTERRUPT) {
                        self.interrupted_at = Some(Instant::now());
                        return Self::INTERRUPT;
                    }
                }
                _ = self.quit.recv() => return Self::QUIT,
                _ = self.terminate.recv() => return Self::TERMINATE,
                _ = self.hang_up.recv() => return Self::HANG_UP,
            }
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

/// Lets a write beyond the limit of file sizes (`ulimit -f`) fail, instead of ending the program by XFSZ. Must be called
/// within a tokio runtime.
pub fn survive_file_size_limit() {
    // tokio keeps the handler when this value is dropped. If it can't be installed, XFSZ ends the program, as by default.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).ok();
}

fn catch_one(kind: SignalKind) -> Result<unix::Signal, Error> {
    signal(kind).map_err(|error| {
        let message = format!("signals can't be caught: {error}");
        Error::new(Code::Io, message, "report this")
    })
}

#[cfg(test)]
mod tests {
    use rustix::process::{getpid, kill_process};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_interrupt_that_arrives_twice_is_one() {
        let interrupt = || kill_process(getpid(), Signal::INT).unwrap();
        let mut signals = Signals::catch().unwrap();
        interrupt();
        assert_eq!(signals.next().await, Signals::INTERRUPT);

        tokio::time::advance(SAME_INTERRUPT / 2).await;
        interrupt();
        let second = tokio::time::timeout(SAME_INTERRUPT, signals.next()).await;
        assert!(second.is_err());

        interrupt();
        assert_eq!(signals.next().await, Signals::INTERRUPT);
    }
}

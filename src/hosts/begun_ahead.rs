use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Begun;
use crate::lock::lock;
use crate::ssh::{ChannelError, Connection};

/// A command that is begun ahead while jobs that need it come, so that the next one waits for no shell to start. It is kept for some
/// seconds.
#[derive(Default)]
pub(super) struct BegunAhead(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    None,
    Beginning,
    Ready(Begun, Instant),
}

/// Time for which it is kept.
const KEPT: Duration = Duration::from_secs(5);

impl BegunAhead {
    /// The command, if there is one. Its host may have ended it meanwhile.
    pub(super) fn take(&self) -> Option<Begun> {
        self.take_if(|_| true)
    }

    /// Whether there is one, or is about to be.
    pub(super) fn is_there(&self) -> bool {
        !matches!(*lock(&self.0), State::None)
    }

    /// Begins one, unless there is one, and gives it up when nobody has taken it in time. Must not be cancelled, or the server would
    /// keep a channel that nobody knows.
    pub(super) async fn begin(&self, connection: &Connection, command: &str) {
        {
            let state = &mut *lock(&self.0);
            if !matches!(state, State::None) {
                return;
            }
            *state = State::Beginning;
        }
        let begun: Result<_, ChannelError> =
            async { Begun::new(connection.open().await?, command).await }.await;
        let began = Instant::now();
        // After an error whoever needs one next begins it, and is told.
        *lock(&self.0) = begun.map_or(State::None, |begun| State::Ready(begun, began));
        sleep(KEPT).await;
        if let Some(unused) = self.take_if(|since| since == began) {
            unused.give_up().await;
        }
    }

    fn take_if(&self, is_wanted: impl FnOnce(Instant) -> bool) -> Option<Begun> {
        let state = &mut *lock(&self.0);
        match std::mem::take(state) {
            State::Ready(begun, since) if is_wanted(since) => Some(begun),
            other @ (State::None | State::Beginning | State::Ready(..)) => {
                *state = other;
                None
            }
        }
    }
}

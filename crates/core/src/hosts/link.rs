//! A pooled connection with its login shell, its control shell and its spare channel.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::control_shell::{ControlShell, Script};
use super::login_shell::{AskedShell, LoginShells, ask_login_shell};
use super::slot_wait::{SlotWait, is_refused};
use super::spare_channel::Spare;
use super::{OpenedChannel, Pooled, Traffic};
use sshjobs_base::lock::lock;
use sshjobs_job::{LoginShell, MachineId};
use sshjobs_ssh::{Channel, ChannelError, Connection};

/// A connection with its login shell, its control shell and its spare channel.
///
/// The first job detects the login shell. A separate probe would double the time that a host with
/// slow startup files takes.
pub struct Link {
    /// The connection.
    pub connection: Arc<Connection>,
    /// Amount of data received over it.
    pub traffic: Traffic,
    /// The login shell, once it is known.
    shell: OnceCell<LoginShell>,
    /// Login shell to assume while `shell` is not set.
    likely_shell: LoginShell,
    /// A command for the likely shell was refused, so a probe for it would be, too.
    is_refused: AtomicBool,
    /// Remembers login shells for later connections.
    shells: Arc<LoginShells>,
    /// When it last failed to answer.
    unanswered: Mutex<Option<Instant>>,
    spare: Spare,
    control: ControlShell,
}

/// Time limit for a control shell that no script waits for.
const CONTROL_SHELL_TIME: Duration = Duration::from_secs(20);
/// Silence after which a connection is probed before it is used.
const SILENT: Duration = Duration::from_secs(5);

impl Link {
    pub(super) fn new(connection: Connection, shells: Arc<LoginShells>) -> Self {
        let likely_shell = shells.of(&connection.host().name);
        // A bare host never greets, so only a probe could reveal that it has a shell now.
        let known = (likely_shell == LoginShell::Bare).then_some(likely_shell);
        let connection = Arc::new(connection);
        Self {
            connection,
            traffic: Traffic::default(),
            shell: OnceCell::new_with(known),
            likely_shell,
            is_refused: AtomicBool::new(false),
            shells,
            unanswered: Mutex::default(),
            spare: Spare::default(),
            control: ControlShell::default(),
        }
    }

    /// The login shell, if it is known.
    pub fn known_shell(&self) -> Option<LoginShell> {
        self.shell.get().copied()
    }

    /// Login shell to assume while none is known.
    pub fn likely_shell(&self) -> LoginShell {
        self.likely_shell
    }

    /// Notes that the [likely](Self::likely_shell) login shell has greeted, on this machine if it
    /// reported one.
    pub fn note_greeting(&self, machine: Option<MachineId>) {
        self.control.note_machine(machine);
        // Another job may have been faster.
        if self.shell.set(self.likely_shell).is_ok() {
            self.shells.note(&self.connection.host().name, self.likely_shell);
        }
    }

    /// Notes that a command for the [likely](Self::likely_shell) login shell was refused as a
    /// whole.
    pub fn note_refusal(&self) {
        self.is_refused.store(true, Relaxed);
    }

    /// Notes that the host does not run commands in a shell.
    pub fn note_no_shell(&self) {
        if self.shell.set(LoginShell::Bare).is_ok() {
            self.shells.note(&self.connection.host().name, LoginShell::Bare);
        }
    }

    /// The login shell. If it is unknown, probes the host, which starts one or two login shells.
    /// Cancel safe.
    ///
    /// # Errors
    /// If the host could not be probed.
    pub async fn ask_shell(&self) -> Result<LoginShell, ChannelError> {
        let asked = self.shell.get_or_try_init(|| async {
            let refused = self.is_refused.load(Relaxed).then_some(self.likely_shell);
            let AskedShell {
                shell,
                machine,
                is_certain,
            } = ask_login_shell(|| self.open_new(), refused).await?;
            tracing::info!(
                host = self.connection.host().name,
                ?shell,
                "the login shell was asked"
            );
            // A bare host reports no machine, and a noted `None` would count as a greeting.
            if shell != LoginShell::Bare {
                self.control.note_machine(machine);
            }
            // A host that was only slow may answer on the next connection.
            if is_certain {
                self.shells.note(&self.connection.host().name, shell);
            }
            Ok(shell)
        });
        asked.await.copied()
    }

    /// The machine at the other end and its boot, if known.
    pub fn machine(&self) -> Option<MachineId> {
        self.control.machine()
    }

    /// The machine at the other end, which is asked if it is not known. `None` if the host does not
    /// report it.
    pub async fn ask_machine(&self, limit: Duration) -> Option<MachineId> {
        if !self.control.has_greeted() {
            // The greeting has the answer.
            drop(self.run_script(Script::without_input(":".to_owned()), limit).await);
        }
        self.machine()
    }

    /// Runs a short script in `/bin/sh` and returns its stdout, up to 64 KiB. `None` if the host
    /// does not run commands in a shell. The script keeps running when `limit` has passed, or when
    /// the caller goes away.
    pub async fn run_script(
        &self,
        script: Script,
        limit: Duration,
    ) -> Result<Option<String>, ChannelError> {
        if self.known_shell() == Some(LoginShell::Bare) {
            return Ok(None);
        }
        self.control.run(&self.connection, script, limit).await
    }

    /// Starts the control shell unless it runs, so that the first signal or look at a prompt need
    /// not wait for a login shell. A host that allows no further channel gets none.
    pub async fn start_control_shell(&self) {
        let nothing = Script::without_input(":".to_owned());
        // The next script tries again and reports the error.
        drop(self.run_script(nothing, CONTROL_SHELL_TIME).await);
    }

    /// Whether the host answers: data arrived recently, or arrives after a keepalive. Takes at most
    /// two seconds.
    pub async fn answers(&self) -> bool {
        self.answers_after(SILENT).await
    }

    /// Like [`answers`](Self::answers), but probes only after `silence`.
    pub async fn answers_after(&self, silence: Duration) -> bool {
        // The answer to a keepalive does not arrive over a held connection.
        if self.connection.is_closed() || self.connection.is_held() {
            return false;
        }
        if self.connection.silent_for() < silence || self.connection.ping().await {
            return true;
        }
        self.suspect();
        false
    }

    /// Marks the connection as unresponsive. It is not leased again until data arrives.
    pub fn suspect(&self) {
        *lock(&self.unanswered) = Some(Instant::now());
    }

    /// Whether its silence is long enough that it must be probed before use.
    pub fn is_silent(&self) -> bool {
        self.connection.silent_for() >= SILENT
    }

    /// A channel: the spare one if it is usable, otherwise a new one.
    pub async fn open(&self) -> Result<OpenedChannel, ChannelError> {
        match self.spare.take() {
            Some(spare) => Ok(spare),
            None => Ok(OpenedChannel {
                channel: self.open_new().await?,
                was_spare: false,
            }),
        }
    }

    /// A new channel. The control shell gives way if the server allows no more.
    pub(super) async fn open_new(&self) -> Result<Channel, ChannelError> {
        let opened = self.connection.open().await;
        if !is_refused(&opened) || !self.control.give_way().await {
            return opened;
        }
        // The server may not have freed the session yet.
        let mut wait = SlotWait::new();
        loop {
            let opened = self.connection.open().await;
            if !is_refused(&opened) || !wait.pause().await {
                return opened;
            }
        }
    }

    /// Opens a spare channel for the next job, unless there is one. Must not be cancelled, or the
    /// server would keep an unused channel.
    pub async fn refill(&self) {
        self.spare.refill(&self.connection).await;
    }

    /// Notes that a job has started on the connection.
    pub fn job_begins(&self) {
        self.spare.job_begins();
    }

    /// Notes that a job has ended. Returns once the spare channel is closed, some seconds after the
    /// last job; callers need not wait.
    pub async fn job_ends(&self) {
        self.spare.job_ends().await;
    }
}

impl Pooled for Arc<Link> {
    fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    fn is_heavy(&self) -> bool {
        self.traffic.is_heavy()
    }

    fn is_worn_out(&self) -> bool {
        self.connection.is_worn_out()
    }

    fn is_suspect(&self) -> bool {
        let unanswered = *lock(&self.unanswered);
        self.connection.is_held()
            // Data that arrived after the mark has made the silence shorter than the mark's age.
            || unanswered.is_some_and(|at| at.elapsed() <= self.connection.silent_for())
    }
}

//! Passes the gate to another user on a channel: sends the password when the program asks for it,
//! and waits until the command runs.

use std::collections::VecDeque;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, timeout_at};

use super::{HostRef, Hosts, Link};
use sshjobs_job::{
    Become, BecomeRefusal, Gate, GateStep, Job, JobId, LoginShell, become_command, for_shell,
};
use sshjobs_ssh::{
    BecomePassword, Channel, ChannelError, ChannelEvent, ChannelReader, ChannelWriter, HostConfig,
};

/// A command did not run as another user. Nothing of it ran.
#[derive(Clone, Debug, thiserror::Error)]
#[error("can't become {becomes} on {host}")]
pub struct BecomeError {
    /// The host, as named by the caller.
    pub host: String,
    /// The user, and the program.
    pub becomes: Become,
    /// The reason.
    #[source]
    pub refusal: BecomeRefusal,
    /// Whether the same start may succeed with another password, which a person can be asked for.
    pub may_try_another: bool,
}

/// The login on which the user is changed.
#[derive(Clone, Copy)]
pub struct GateLogin<'a> {
    /// The host, as its caller reaches it.
    pub host: &'a HostRef,
    /// The connection. The password is the one of its settings: a name may lead elsewhere by now.
    pub link: &'a Link,
    /// Whether a person may be asked.
    pub asking: Asking<'a>,
}

/// Who is asked for a password that is not configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking<'a> {
    /// The person behind the caller, who waits for the result.
    Person,
    /// The same, once for all hosts of the fleet that starts.
    PersonForFleet(&'a JobId),
    /// No person: the work is done in the background.
    Nobody,
}

impl<'a> Asking<'a> {
    /// Who is asked for the start of a job.
    pub fn for_start_of(job: &'a Job) -> Self {
        match &job.spec.member_of {
            Some(fleet) => Self::PersonForFleet(fleet),
            None => Self::Person,
        }
    }
}

impl<'a> GateLogin<'a> {
    fn config(&self) -> &'a HostConfig {
        self.link.connection.host()
    }

    /// The password with which a program becomes another user.
    fn password_for(&self, becomes: &'a Become) -> BecomePassword<'a> {
        BecomePassword {
            host: self.config(),
            account: becomes.asked_user(),
            program: becomes.method().as_str(),
            fleet: match self.asking {
                Asking::PersonForFleet(fleet) => Some(fleet.as_str()),
                Asking::Person | Asking::Nobody => None,
            },
        }
    }
}

/// A script was not started as another user.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExecAsError {
    /// The channel can't be used.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The host did not change the user.
    #[error(transparent)]
    Become(#[from] Box<BecomeError>),
}

/// Time limit for the program to ask, to check a password and to start the command: LDAP and PAM's
/// delay after a wrong password take seconds. A person who is asked may take longer.
const GATE_TIME: Duration = Duration::from_secs(30);
/// Silence after which an unfinished line with a colon is a prompt.
const SILENCE: Duration = Duration::from_millis(200);

impl Hosts {
    /// Runs a script of `/bin/sh` as another user on a channel.
    pub async fn exec_as(
        &self,
        login: GateLogin<'_>,
        becomes: &Become,
        channel: Channel,
        script: &str,
    ) -> Result<(ChannelReader, ChannelWriter), ExecAsError> {
        let (command, gate) = become_command(becomes, script);
        // Understood by every login shell.
        let command = for_shell(command, LoginShell::Foreign);
        let (mut reader, writer) = channel.exec(&command).await?;
        self.pass_gate(login, gate, &mut reader, &writer).await?;
        Ok((reader, writer))
    }

    /// Waits until a command runs as another user, and sends the password if it is asked for: the
    /// one of `become_password` in `[hosts.NAME]`, or the answer of a person. It is sent once.
    ///
    /// The reader then has the events from the command's first output on. If the connection is
    /// lost, or the server refuses the command, the channel's remaining events show that. Dropping
    /// the future leaves the channel open.
    ///
    /// # Errors
    /// If the host does not run the command as that user. The channel is then closed.
    pub async fn pass_gate(
        &self,
        login: GateLogin<'_>,
        mut gate: Gate,
        reader: &mut ChannelReader,
        writer: &ChannelWriter,
    ) -> Result<(), Box<BecomeError>> {
        let passed = self.pass(login, &mut gate, reader, writer).await;
        let sent = gate.sent_password().cloned();
        match passed {
            Ok(events) => {
                reader.put_back(events);
                if let Some(password) = sent {
                    self.accept_become_password(login, gate.becomes(), password);
                }
                Ok(())
            }
            Err(refusal) => {
                let may_try_another = match &sent {
                    None => false,
                    Some(password) if refusal == BecomeRefusal::WrongPassword => {
                        self.refuse_become_password(login, gate.becomes(), password)
                    }
                    Some(_) => {
                        self.give_up_become_password(login, gate.becomes());
                        false
                    }
                };
                // The program may still wait for another password.
                writer.close().await.ok();
                Err(Box::new(BecomeError {
                    host: login.host.name.clone(),
                    becomes: gate.becomes().clone(),
                    refusal,
                    may_try_another,
                }))
            }
        }
    }

    /// Returns the events that the next reader must see.
    async fn pass(
        &self,
        login: GateLogin<'_>,
        gate: &mut Gate,
        reader: &mut ChannelReader,
        writer: &ChannelWriter,
    ) -> Result<VecDeque<ChannelEvent>, BecomeRefusal> {
        let mut kept = VecDeque::new();
        let mut is_maybe_prompt = false;
        let mut deadline = Instant::now() + GATE_TIME;
        loop {
            let limit = if is_maybe_prompt {
                Instant::now() + SILENCE
            } else {
                deadline
            };
            let event = timeout_at(limit, reader.next()).await;
            let event = match event {
                Ok(event) => event,
                Err(_) if !is_maybe_prompt => {
                    return Err(BecomeRefusal::TimedOut(GATE_TIME.as_secs()));
                }
                Err(_) => {
                    is_maybe_prompt = false;
                    if let GateStep::Refused(refusal) = gate.note_silence() {
                        return Err(refusal);
                    }
                    self.answer(login, gate, writer).await?;
                    // A person may have taken longer.
                    deadline = Instant::now() + GATE_TIME;
                    continue;
                }
            };
            is_maybe_prompt = false;
            let step = match event {
                Some(ChannelEvent::Data(bytes)) => gate.read_stdout(&bytes),
                Some(ChannelEvent::ExtendedData(bytes)) => gate.read_stderr(&bytes),
                Some(ChannelEvent::Close) => return Err(gate.explain_end(status_in(&kept))),
                None => return Ok(kept),
                Some(ChannelEvent::Failure) => {
                    kept.push_back(ChannelEvent::Failure);
                    return Ok(kept);
                }
                Some(event) => {
                    kept.push_back(event);
                    GateStep::Wait
                }
            };
            match step {
                GateStep::Wait => {}
                GateStep::MaybePrompt => is_maybe_prompt = true,
                GateStep::SendPassword => {
                    self.answer(login, gate, writer).await?;
                    deadline = Instant::now() + GATE_TIME;
                }
                GateStep::Refused(refusal) => return Err(refusal),
                GateStep::Passed { stdout, stderr } => {
                    if !gate.is_on_terminal() {
                        // A lost connection shows in the next event.
                        send_line(writer, &gate.go().into()).await.ok();
                    }
                    // The recorder takes empty data for output.
                    if !stderr.is_empty() {
                        kept.push_back(ChannelEvent::ExtendedData(stderr));
                    }
                    if !stdout.is_empty() {
                        kept.push_back(ChannelEvent::Data(stdout));
                    }
                    return Ok(kept);
                }
            }
        }
    }

    /// Sends the password.
    async fn answer(
        &self,
        login: GateLogin<'_>,
        gate: &mut Gate,
        writer: &ChannelWriter,
    ) -> Result<(), BecomeRefusal> {
        let password = self.become_password(login, gate.becomes()).await?;
        // A lost connection shows in the next event.
        send_line(writer, &password).await.ok();
        gate.note_answered(password);
        Ok(())
    }

    /// The password with which a program changes to another user: the configured one, one that was
    /// accepted earlier, or the answer of a person.
    pub async fn become_password(
        &self,
        login: GateLogin<'_>,
        becomes: &Become,
    ) -> Result<SecretString, BecomeRefusal> {
        let known = self.known_become_password(login, becomes).await?;
        if let Some(password) = known {
            return Ok(password);
        }
        if login.asking == Asking::Nobody {
            return Err(BecomeRefusal::NoPassword("none is configured".to_owned()));
        }
        self.secrets(&login.host.caller)
            .ask_become_password(&login.password_for(becomes))
            .await
            .map_err(BecomeRefusal::NoPassword)
    }

    /// The password, if no person has to be asked for it.
    ///
    /// # Errors
    /// If the configured one can't be read.
    pub async fn known_become_password(
        &self,
        login: GateLogin<'_>,
        becomes: &Become,
    ) -> Result<Option<SecretString>, BecomeRefusal> {
        self.secrets(&login.host.caller)
            .known_become_password(&login.password_for(becomes))
            .await
            .map_err(BecomeRefusal::NoPassword)
    }

    /// Keeps a password that was accepted, so that a person is asked once.
    pub fn accept_become_password(
        &self,
        login: GateLogin<'_>,
        becomes: &Become,
        password: SecretString,
    ) {
        let secrets = self.secrets(&login.host.caller);
        secrets.accept_become_password(&login.password_for(becomes), password);
    }

    /// Forgets a password that was refused, so that a person is asked again. Returns whether that
    /// can be done for the same start.
    pub fn refuse_become_password(
        &self,
        login: GateLogin<'_>,
        becomes: &Become,
        password: &SecretString,
    ) -> bool {
        let secrets = self.secrets(&login.host.caller);
        secrets.refuse_become_password(&login.password_for(becomes), password)
    }

    /// Notes that a host has given no verdict about a password.
    pub fn give_up_become_password(&self, login: GateLogin<'_>, becomes: &Become) {
        self.secrets(&login.host.caller)
            .give_up_become_password(&login.password_for(becomes));
    }

    /// Forgets the passwords that a person gave for all hosts of a fleet.
    pub fn forget_passwords_of(&self, fleet: &Job) {
        self.secrets(&fleet.caller).forget_fleet(fleet.id.as_str());
    }
}

/// The exit status, if the server has reported it.
fn status_in(events: &VecDeque<ChannelEvent>) -> Option<u32> {
    events.iter().find_map(|event| {
        if let ChannelEvent::ExitStatus(status) = event {
            Some(*status)
        } else {
            None
        }
    })
}

async fn send_line(writer: &ChannelWriter, line: &SecretString) -> Result<(), ChannelError> {
    let mut left = line.expose_secret().as_bytes();
    while !left.is_empty() {
        let written = writer.write(left).await?;
        left = &left[written..];
    }
    writer.write(b"\n").await.map(drop)
}

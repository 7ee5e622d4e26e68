//! Passes the gate to another user on a channel: sends the password when the program asks for it,
//! and waits until the command runs.

use std::collections::VecDeque;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::time::timeout;

use super::{HostRef, Hosts};
use crate::job::{Become, BecomeRefusal, Gate, GateStep, LoginShell, become_command, for_shell};
use crate::ssh::{Channel, ChannelError, ChannelEvent, ChannelReader, ChannelWriter, HostConfig};

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
const STEP_TIME: Duration = Duration::from_secs(30);

impl Hosts {
    /// Runs a script of `/bin/sh` as another user on a channel.
    pub async fn exec_as(
        &self,
        host: &HostRef,
        becomes: &Become,
        channel: Channel,
        script: &str,
    ) -> Result<(ChannelReader, ChannelWriter), ExecAsError> {
        let (command, gate) = become_command(becomes, script);
        // Understood by every login shell.
        let command = for_shell(command, LoginShell::Foreign);
        let (mut reader, writer) = channel.exec(&command).await?;
        self.pass_gate(host, gate, &mut reader, &writer).await?;
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
        host: &HostRef,
        mut gate: Gate,
        reader: &mut ChannelReader,
        writer: &ChannelWriter,
    ) -> Result<(), Box<BecomeError>> {
        let passed = self.pass(host, &mut gate, reader, writer).await;
        match passed {
            Ok(events) => {
                reader.put_back(events);
                Ok(())
            }
            Err(refusal) => {
                // The program may still wait for another password.
                writer.close().await.ok();
                Err(Box::new(BecomeError {
                    host: host.name.clone(),
                    becomes: gate.becomes().clone(),
                    refusal,
                }))
            }
        }
    }

    /// Returns the events that the next reader must see.
    async fn pass(
        &self,
        host: &HostRef,
        gate: &mut Gate,
        reader: &mut ChannelReader,
        writer: &ChannelWriter,
    ) -> Result<VecDeque<ChannelEvent>, BecomeRefusal> {
        let mut kept = VecDeque::new();
        let mut status = None;
        let mut sent = None;
        loop {
            let event = timeout(STEP_TIME, reader.next())
                .await
                .map_err(|_| BecomeRefusal::TimedOut(STEP_TIME.as_secs()))?;
            let step = match event {
                Some(ChannelEvent::Data(bytes)) => gate.read_stdout(&bytes),
                Some(ChannelEvent::ExtendedData(bytes)) => gate.read_stderr(&bytes),
                Some(ChannelEvent::Close) => return Err(gate.explain_end(status)),
                Some(ChannelEvent::ExitStatus(told)) => {
                    status = Some(told);
                    GateStep::Wait
                }
                Some(ChannelEvent::Failure) => {
                    kept.push_back(ChannelEvent::Failure);
                    return Ok(kept);
                }
                Some(
                    event @ (ChannelEvent::Success
                    | ChannelEvent::Eof
                    | ChannelEvent::ExitSignal(_)),
                ) => {
                    kept.push_back(event);
                    GateStep::Wait
                }
                None => return Ok(kept),
            };
            match step {
                GateStep::Wait => {}
                GateStep::SendPassword => {
                    let password = self.become_password(host, gate.becomes()).await?;
                    // A lost connection shows in the next event.
                    send_line(writer, &password).await.ok();
                    gate.note_answered();
                    sent = Some(password);
                }
                GateStep::Refused(refusal) => return Err(refusal),
                GateStep::Passed { stdout, stderr } => {
                    if let Some(password) = sent {
                        self.keep_become_password(host, gate.becomes(), password).await;
                    }
                    // Empty data would be an event without a meaning.
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

    /// The password, if no person has to be asked for it.
    ///
    /// # Errors
    /// If the configured one can't be read.
    pub async fn known_become_password(
        &self,
        host: &HostRef,
        becomes: &Become,
    ) -> Result<Option<SecretString>, Box<BecomeError>> {
        let known = async {
            let config = self.account(host).await?;
            self.secrets(&host.caller)
                .known_become_password(&config, becomes.asked_user())
                .await
                .map_err(BecomeRefusal::NoPassword)
        };
        known.await.map_err(|refusal| {
            Box::new(BecomeError {
                host: host.name.clone(),
                becomes: becomes.clone(),
                refusal,
            })
        })
    }

    /// The password with which a program changes to another user: the configured one, one that was
    /// accepted earlier, or the answer of a person.
    pub async fn become_password(
        &self,
        host: &HostRef,
        becomes: &Become,
    ) -> Result<SecretString, BecomeRefusal> {
        let config = self.account(host).await?;
        self.secrets(&host.caller)
            .become_password(&config, becomes.asked_user(), becomes.method().as_str())
            .await
            .map_err(BecomeRefusal::NoPassword)
    }

    /// Keeps a password that was accepted, so that a person is asked once.
    pub async fn keep_become_password(
        &self,
        host: &HostRef,
        becomes: &Become,
        password: SecretString,
    ) {
        // Its settings were resolved a moment ago.
        if let Ok(config) = self.account(host).await {
            self.secrets(&host.caller).keep_become_password(
                &config,
                becomes.asked_user(),
                password,
            );
        }
    }

    async fn account(&self, host: &HostRef) -> Result<HostConfig, BecomeRefusal> {
        self.book()
            .resolve(&host.name)
            .await
            .map_err(|error| BecomeRefusal::NoPassword(error.to_string()))
    }
}

async fn send_line(writer: &ChannelWriter, line: &SecretString) -> Result<(), ChannelError> {
    let mut left = line.expose_secret().as_bytes();
    while !left.is_empty() {
        let written = writer.write(left).await?;
        left = &left[written..];
    }
    writer.write(b"\n").await.map(drop)
}

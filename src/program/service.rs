//! Where a verb is performed: by a service of this process, or by a server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use sshjobs_base::bounded_file::read_text;
use sshjobs_cli::SshArgs;
use sshjobs_core::jobs::{Access, Askpass, Caller, Config, Jobs, Prompter, Rights, Role};
use sshjobs_http::webhook::Webhooks;
use sshjobs_wire::remote::{Api, ServerClient};
use sshjobs_wire::{Error, Service};

/// The API of the server, or of this process.
pub(super) fn api(server: Option<Arc<ServerClient>>, config: Config) -> Api {
    match server {
        Some(client) => Api::There(client),
        None => Api::Here(for_a_person(config)),
    }
}

/// Like [`api`], with a verb's ssh options applied to `host`.
///
/// # Errors
/// If there are such options and a server.
pub(super) fn api_with_ssh(
    server: Option<Arc<ServerClient>>,
    config: Config,
    ssh: &SshArgs,
) -> Result<Api, Error> {
    if server.is_some() && !ssh.to_ssh().is_empty() {
        return Err(Error::invalid(
            "ssh options do not work with --server",
            "omit -p, -l, -i, -J and -o; the server's ssh_config says how hosts are reached",
        ));
    }
    Ok(api(server, with_options(config, ssh)))
}

/// An API without prompts, for verbs that own the screen or wait too briefly for a person.
pub(super) fn on_a_screen(server: Option<Arc<ServerClient>>, config: Config) -> Api {
    match server {
        Some(client) => Api::There(client),
        None => Api::Here(of_a_person(config, None)),
    }
}

/// The token for a server.
pub(super) fn token(file: Option<&Path>) -> Result<Option<SecretString>, Error> {
    let Some(file) = file else {
        return Ok(std::env::var("SSHJOBS_TOKEN").ok().map(SecretString::from));
    };
    let text = read_text(file).map_err(|error| {
        let message = format!("can't read {}: {error}", file.display());
        Error::invalid(
            message,
            "name the file with the token that `sshjobs token new` printed",
        )
    })?;
    Ok(Some(text.trim().into()))
}

/// The configuration with options of the command line.
pub(super) fn with_options(config: Config, options: &SshArgs) -> Config {
    Config {
        ssh_arguments: options.to_ssh(),
        ..config
    }
}

/// Time for which a connection is kept that no job uses, by a program that starts no other job.
const UNUSED_TIME: Duration = Duration::from_secs(2);

/// The configuration for a program that runs one command: its connections are closed soon after it.
pub(super) fn with_brief_connections(mut config: Config) -> Config {
    config.limits.idle_connection = config.limits.idle_connection.min(UNUSED_TIME);
    config
}

/// A service for the user at this machine. The user may use any host, sees the jobs of all callers
/// (their files are readable anyway), and answers prompts on the terminal or, without a terminal,
/// through SSH_ASKPASS as in ssh.
///
/// Durable jobs that no process follows are not adopted, except requested ones: this process may be
/// about to end.
pub(super) fn for_a_person(config: Config) -> Service {
    let at_the_terminal = sshjobs_cli::TerminalPrompter::new()
        .map(|prompter| Arc::new(prompter) as Arc<dyn Prompter>);
    let prompter = at_the_terminal
        .or_else(|| Askpass::from_env().map(|askpass| Arc::new(askpass) as Arc<dyn Prompter>));
    of_a_person(config, prompter)
}

pub(super) fn of_a_person(mut config: Config, prompter: Option<Arc<dyn Prompter>>) -> Service {
    config.limits.adopts_jobs = false;
    config.notify.allows_any_target = true;
    config.reads_any_directory = true;
    let service = match prompter {
        Some(prompter) => Service::asking(config, Access::Any, prompter),
        None => Service::new(config, Access::Any),
    };
    send_notifications(&service);
    // A command of a person makes its call again while it waits.
    service
        .with_context(|context| context.approval_wait = Duration::ZERO)
        .of(Caller::local(), Rights::everywhere(Role::Admin))
}

/// Lets this process send notifications.
pub(super) fn send_notifications(service: &Service) {
    let jobs = service.library();
    let webhooks = Webhooks::new(jobs.config().notify.clone());
    let webhooks = if jobs.peers().is_some() {
        webhooks.of_cluster()
    } else {
        webhooks
    };
    jobs.notifier().send_with(Arc::new(webhooks));
}

/// Awaits a future and meanwhile sends the notifications that are due, also those of other processes, and
/// watches jobs for more, and copies their files back.
pub(super) async fn while_notifying<T>(jobs: &Jobs, serving: impl Future<Output = T>) -> T {
    tokio::select! {
        served = serving => served,
        never = jobs.notifier().run() => match never {},
        never = jobs.watch() => match never {},
        never = jobs.end_abandoned() => match never {},
        never = jobs.fetch_at_end() => match never {},
    }
}

//! The `sshjobs` program: reads the command line and the configuration, then hands over to one of the faces.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::{self, Cli, Exit, SshArgs, Verb};
use crate::jobs::{Access, Askpass, Config, ConfigFileError, Jobs, Prompter};
use crate::mcp;
use crate::wire::{Code, Error, Service};

/// Runs the program to its end. Everything asynchronous is compiled with the library, and nothing of it again in `main`.
pub fn main() -> ExitCode {
    let cli = cli::parse();
    let to_stderr = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(to_stderr).with(cli.log.filter()).init();
    match load(&cli) {
        Ok(config) => {
            protect_memory();
            run(cli, config).into()
        }
        Err(error) => {
            cli::report(&error);
            Exit::USAGE.into()
        }
    }
}

/// Keys and passwords lie in our memory: it goes into no core file, and no other process of the user may read it. And as many
/// files may be open as the system lets us, for a connection is one.
fn protect_memory() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
    let files = getrlimit(Resource::Nofile);
    let limits = [
        (Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }),
        (Resource::Nofile, Rlimit { current: files.maximum, ..files }),
    ];
    for (resource, limit) in limits {
        if let Err(error) = setrlimit(resource, limit) {
            tracing::debug!(%error, ?resource, "a limit could not be set");
        }
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::debug!(%error, "our memory could not be protected");
    }
}

fn load(cli: &Cli) -> Result<Config, Error> {
    let mut config = Config::load(cli.config.as_deref()).map_err(|error| {
        Error::new(
            Code::InvalidArgument,
            error.to_string(),
            match error {
                ConfigFileError::Unreadable { .. } => "check the path, and that you may read it",
                ConfigFileError::Mistake { .. } => "correct the configuration; the README lists its keys",
            },
        )
    })?;
    config.ssh_config = cli.ssh_config.clone().or(config.ssh_config);
    config.state_dir = cli.state_dir.clone().or(config.state_dir);
    Ok(config)
}

fn run(cli: Cli, config: Config) -> Exit {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            cli::report(&Error::new(
                Code::Io,
                format!("the runtime can't start: {error}"),
                "check the process limits",
            ));
            return Exit::CONNECTION;
        }
    };
    let exit = runtime.block_on(async {
        match cli.verb {
            Verb::Demo(args) => cli::demo(args).await,
            Verb::Serve(_) => serve(config).await,
            Verb::Run(args) => {
                let config = with_options(config, Some(&args.host), &args.ssh);
                cli::run(&for_a_person(config), args).await
            }
            Verb::Spawn(args) => {
                let config = with_options(config, Some(&args.host), &args.ssh);
                cli::spawn(&for_a_person(config), args).await
            }
            Verb::Tail(args) => cli::tail(&for_a_moment(config), args).await,
            Verb::Read(args) => cli::read(&for_a_moment(config), args).await,
            Verb::Search(args) => cli::search(&for_a_moment(config), args).await,
            Verb::Write(args) => cli::write(&for_a_moment(config), args).await,
            Verb::Signal(args) => cli::signal(&for_a_moment(config), args).await,
            Verb::Wait(args) => cli::wait(&for_a_moment(config), args).await,
            Verb::Jobs(args) => cli::jobs(&for_a_moment(config), args).await,
            Verb::Forget(args) => cli::forget(&for_a_moment(config), args).await,
            Verb::Trust(args) => {
                let config = with_options(config, Some(&args.host), &args.ssh);
                cli::trust(&for_a_person(config), args).await
            }
            Verb::Hosts(args) => {
                let config = with_options(config, args.host.as_ref(), &args.ssh);
                cli::hosts(&for_a_person(config), args).await
            }
        }
    });
    // A thread may still be reading stdin or writing to a pipe that nobody reads: don't wait for it.
    runtime.shutdown_background();
    exit
}

/// Options of the command line go over the configuration.
fn with_options(mut config: Config, host: Option<&String>, options: &SshArgs) -> Config {
    config.ssh_arguments = options.to_ssh();
    if let Some(table) = host.and_then(|host| config.hosts.get_mut(host)) {
        table.port = table.port.filter(|_| options.port.is_none());
        table.user = table.user.take().filter(|_| options.login.is_none());
        table.identity_file = table.identity_file.take().filter(|_| options.identity.is_empty());
    }
    config
}

/// For a look at jobs that are there.
fn for_a_moment(config: Config) -> Service {
    Service::over(for_a_person(config))
}

/// A person may name any host, and is asked what a login needs: on the terminal, or where there is none as ssh does.
///
/// Durable jobs that nobody follows are left alone, but for those that are asked for: this process may be about to end.
fn for_a_person(mut config: Config) -> Jobs {
    config.limits.adopts_jobs = false;
    let at_the_terminal =
        cli::TerminalPrompter::new().map(|prompter| Arc::new(prompter) as Arc<dyn Prompter>);
    match at_the_terminal
        .or_else(|| Askpass::from_env().map(|askpass| Arc::new(askpass) as Arc<dyn Prompter>))
    {
        Some(prompter) => Jobs::asking(config, Access::Any, prompter),
        None => Jobs::new(config, Access::Any),
    }
}

async fn serve(config: Config) -> Exit {
    if std::io::stdin().is_terminal() {
        cli::note(
            "this is the MCP server, which speaks JSON-RPC on stdin and stdout. Start it from an MCP client; \
             `sshjobs serve --help` says how. Ctrl-D ends it.",
        );
    }
    let elicitor = Arc::new(mcp::Elicitor::new());
    let service = Service::asking(config, Access::Listed, Arc::clone(&elicitor) as Arc<dyn Prompter>);
    match mcp::serve_stdio(service, &elicitor).await {
        Ok(()) => Exit::SUCCESS,
        Err(error) => {
            cli::report(&Error::new(Code::Io, error.to_string(), "start it from an MCP client"));
            Exit::CONNECTION
        }
    }
}

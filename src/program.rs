//! The `sshjobs` program: reads the command line and the configuration, then calls one of the
//! faces.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::bounded_file::read_text;
use crate::cli::{
    self, Cli, ClusterVerb, Exit, HostsArgs, HostsVerb, LogLevel, Override, Overrides, ServeArgs,
    SshArgs, StoreVerb, Verb,
};
use crate::jobs::{
    Access, Askpass, Caller, Cluster, ClusterConfig, Config, ConfigFileError, Jobs, Prompter,
    Rights, Role, chain,
};
use crate::remote::{Api, Client};
use crate::tokens::Tokens;
use crate::webhook::Webhooks;
use crate::wire::{Code, Error, Service};
use crate::{http, mcp};

/// Runs the program to its end. It is part of the library and not of `main.rs`, so that async code
/// is compiled only once.
pub fn main() -> ExitCode {
    if let Some(exit) = cli::answer_version() {
        return exit.into();
    }
    cli::answer_shell();
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(error) => {
            cli::report(&error);
            return Exit::USAGE.into();
        }
    };
    let has_screen = matches!(cli.verb, Verb::Top(_)) && std::io::stderr().is_terminal();
    if cli.verb.ssh().is_some_and(|ssh| ssh.quiet) {
        cli::be_quiet();
    }
    let log = if has_screen {
        LogLevel::Off
    } else {
        level(&cli)
    };
    let to_stderr = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    // Before `protect_memory`, which logs failures.
    tracing_subscriber::registry().with(to_stderr).with(log.filter()).init();
    match load(&cli) {
        Ok(config) => {
            // Before `run` reads any secret or opens a connection.
            protect_memory();
            run(cli, config).into()
        }
        Err(error) => {
            cli::report(&error);
            Exit::USAGE.into()
        }
    }
}

/// Log level: from `-q` and `-v` if the verb has them, otherwise from `--log`.
fn level(cli: &Cli) -> LogLevel {
    let Some(ssh) = cli.verb.ssh() else { return cli.log };
    match ssh.verbose {
        0 if ssh.quiet => LogLevel::Error,
        0 => cli.log,
        1 => LogLevel::Debug,
        _ => LogLevel::Trace,
    }
}

/// Protects keys and passwords in memory: no core file contains them, and no other process of the
/// user may read them. Also raises the limit of open files as far as possible, because each
/// connection is one.
fn protect_memory() {
    use rustix::process::{
        DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
    };
    let files = getrlimit(Resource::Nofile);
    let limits = [
        (
            Resource::Core,
            Rlimit {
                current: Some(0),
                maximum: Some(0),
            },
        ),
        (
            Resource::Nofile,
            Rlimit {
                current: files.maximum,
                ..files
            },
        ),
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
    // These verbs create the file.
    let creates = matches!(
        cli.verb,
        Verb::Init(_)
            | Verb::Hosts(HostsArgs {
                verb: Some(HostsVerb::Add(_)),
                ..
            })
    );
    let file = cli.config.as_deref().filter(|file| !creates || file.exists());
    let mut config = Config::load(file).map_err(|error| {
        Error::new(
            Code::InvalidArgument,
            error.to_string(),
            match error {
                ConfigFileError::Unreadable { .. } => "check the path, and that you may read it",
                ConfigFileError::Mistake { .. } => {
                    "correct the configuration; docs/config.md lists all keys"
                }
            },
        )
    })?;
    config.ssh_config = cli.ssh_config.clone().or(config.ssh_config);
    config.process = format!("sshjobs {}", cli.verb_name);
    config.state_dir = cli.state_dir.clone().or(config.state_dir);
    config.policy.file = cli.policy.clone().or(config.policy.file);
    Ok(config)
}

/// Stack of a worker thread. Pages that are not touched take no memory.
const STACK_BYTES: usize = 8 << 20;

fn run(cli: Cli, config: Config) -> Exit {
    // A client of a server needs no threads: starting them would cost more than the call.
    let mut runtime = if cli.server.is_some() {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    // Without optimization, a call that logs in needs more than the default of 2 MiB.
    runtime.thread_stack_size(STACK_BYTES);
    let runtime = match runtime.enable_all().build() {
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
        match perform(cli, config).await {
            Ok(exit) => exit,
            Err(error) => {
                cli::report(&error);
                Exit::of_error(&error)
            }
        }
    });
    // A thread may still be reading stdin or writing to a blocked pipe, so don't wait for it.
    runtime.shutdown_background();
    exit
}

/// Performs the verb of the command line, here or on a server.
#[expect(clippy::too_many_lines, reason = "one arm for each verb")]
async fn perform(cli: Cli, config: Config) -> Result<Exit, Error> {
    let overrides = overrides(&cli);
    let file = cli.config.clone();
    let Cli {
        server,
        token_file,
        verb,
        ..
    } = cli;
    let server = match server {
        Some(address) => Some(Arc::new(Client::new(
            address,
            token(token_file.as_deref())?,
        ))),
        None => None,
    };
    let api = |config, host: Option<&String>, ssh: Option<&SshArgs>| {
        api(server.as_ref(), config, host, ssh)
    };
    // Each page of this future costs every command line a page fault. The largest futures are boxed, so that they
    // add none.
    Ok(match verb {
        Verb::Run(args) => cli::run(&api(config, Some(&args.host), Some(&args.ssh))?, args).await,
        Verb::Spawn(args) => {
            cli::spawn(&api(config, Some(&args.host), Some(&args.ssh))?, args).await
        }
        Verb::Hosts(HostsArgs {
            verb: Some(HostsVerb::Add(args)),
            ..
        }) => {
            if server.is_some() {
                return Err(not_with_server());
            }
            cli::add_host(file, &args)?
        }
        Verb::Hosts(args) => {
            cli::hosts(&api(config, args.host.as_ref(), Some(&args.ssh))?, args).await
        }
        Verb::Put(_) | Verb::Get(_) | Verb::Edit(_) | Verb::Forward(_) if server.is_some() => {
            return Err(Error::invalid(
                "put, get, edit and forward don't work with --server",
                "omit --server, or use the server's API: GET and PUT /v1/hosts/HOST/files/PATH",
            ));
        }
        Verb::Put(args) => {
            let host = args.paths.last().and_then(|word| host_of(word));
            let config = with_options(config, host.as_ref(), &args.ssh);
            cli::put(&for_a_person(config), args).await
        }
        Verb::Get(args) => {
            let host = args.paths.first().and_then(|word| host_of(word));
            let config = with_options(config, host.as_ref(), &args.ssh);
            cli::get(&for_a_person(config), args).await
        }
        Verb::Edit(args) => {
            let config = with_options(config, host_of(&args.file).as_ref(), &args.ssh);
            cli::edit(&for_a_person(config), args).await
        }
        Verb::Forward(args) => {
            let config = with_options(config, Some(&args.host), &args.ssh);
            cli::forward(&for_a_person(config), args).await
        }
        Verb::Approvals(args) => cli::approvals(&api(config, None, None)?, args).await,
        Verb::Approve(args) => cli::approve(&api(config, None, None)?, args).await,
        Verb::Deny(args) => cli::deny(&api(config, None, None)?, args).await,
        Verb::Tail(args) => cli::tail(&api(config, None, None)?, args).await,
        Verb::Log(args) => cli::log(&api(config, None, None)?, args).await,
        Verb::Read(args) => cli::read(&api(config, None, None)?, args).await,
        Verb::Export(args) => cli::export(&api(config, None, None)?, args).await,
        Verb::Inspect(args) => cli::inspect(&api(config, None, None)?, args).await,
        Verb::Screen(args) => cli::screen(&api(config, None, None)?, args).await,
        Verb::Attach(args) => cli::attach(&api(config, None, None)?, args).await,
        Verb::Search(args) => cli::search(&api(config, None, None)?, args).await,
        Verb::Write(args) => cli::write(&api(config, None, None)?, args).await,
        Verb::Signal(args) => cli::signal(&api(config, None, None)?, args).await,
        Verb::Wait(args) => cli::wait(&api(config, None, None)?, args).await,
        // A list waits for hosts at most two seconds, too short for a person to answer a prompt.
        Verb::Jobs(args) => cli::jobs(&on_a_screen(server.as_ref(), config), args).await,
        Verb::Top(_) => cli::top(&on_a_screen(server.as_ref(), config)).await,
        Verb::Forget(args) => cli::forget(&api(config, None, None)?, args).await,
        Verb::Ping(args) => cli::ping(&api(config, None, None)?, args).await,
        Verb::Completions(args) => cli::completions(&args),
        Verb::Man(args) => cli::man(&args),
        Verb::Help(args) => cli::help(&args),
        // Before the arms of these verbs, which would run them on this machine.
        Verb::Demo(_)
        | Verb::Serve(_)
        | Verb::Token(_)
        | Verb::Policy(_)
        | Verb::Audit(_)
        | Verb::Cluster(_)
        | Verb::Store(_)
        | Verb::Trust(_)
        | Verb::Init(_)
        | Verb::Config(_)
        | Verb::Mcp(_)
            if server.is_some() =>
        {
            return Err(not_with_server());
        }
        Verb::Mcp(args) => cli::mcp(&args)?,
        Verb::Init(args) => {
            let service = of_a_person(config, None);
            cli::init(service.library(), file, &args).await?
        }
        Verb::Config(args) => cli::config(&config, &overrides, &args),
        Verb::Demo(args) => cli::demo(args).await,
        Verb::Serve(args) if args.http.is_some() || args.socket.is_some() => {
            Box::pin(serve_http(config, args)).await
        }
        Verb::Serve(args) => Box::pin(serve(config, &args)).await,
        Verb::Token(args) => {
            let cluster = cluster(&config, args.cluster.nats.as_ref()).await?;
            cli::token(&tokens(&config, cluster.as_ref()).await?, &args)
        }
        Verb::Policy(args) => {
            let service = of_a_person(config, None);
            cli::policy(service.library(), args).await?
        }
        Verb::Audit(args) => {
            let cluster = if args.needs_cluster() {
                cluster(&config, args.cluster.nats.as_ref()).await?
            } else {
                None
            };
            let service = of_a_person(config, None);
            cli::audit(service.library(), cluster.as_ref(), args).await?
        }
        Verb::Cluster(args) => {
            let ClusterVerb::Status(args) = args.verb;
            let cluster = require(cluster(&config, args.cluster.nats.as_ref()).await?)?;
            cli::cluster_status(&cluster.status().await?, &args)
        }
        Verb::Store(args) => {
            let StoreVerb::Copy(args) = args.verb;
            let cluster = require(cluster(&config, args.to.as_ref()).await?)?;
            let tokens = tokens(&config, Some(&cluster)).await?;
            let state_dir = config.state_dir().ok_or_else(no_state_dir)?;
            cli::store_copy(&state_dir, &cluster, &tokens, &args).await?
        }
        Verb::Trust(args) => {
            let config = with_options(config, Some(&args.host), &args.ssh);
            cli::trust(for_a_person(config).library(), args).await
        }
    })
}

/// The host of HOST:PATH.
fn host_of(word: &Path) -> Option<String> {
    Some(word.to_str()?.split_once(':')?.0.to_owned())
}

fn not_with_server() -> Error {
    let hint = "omit --server (and SSHJOBS_SERVER), and run it where the server runs";
    let message = "demo, serve, token, policy, audit, cluster, store, trust, init, mcp, config and hosts add do not \
                   work with --server";
    Error::invalid(message, hint)
}

/// Values of the command line and of variables that override the configuration file.
fn overrides(cli: &Cli) -> Overrides {
    let named = |value: &Option<PathBuf>, option: &'static str, variable: &'static str| {
        let value = value.clone()?;
        let is_variable = std::env::var_os(variable).is_some_and(|set| set == value);
        Some(Override {
            value,
            source: if is_variable { variable } else { option },
        })
    };
    Overrides {
        file: named(&cli.config, "--config", "SSHJOBS_CONFIG"),
        // No variable names an ssh_config.
        ssh_config: named(&cli.ssh_config, "--ssh-config", ""),
        state_dir: named(&cli.state_dir, "--state-dir", "SSHJOBS_STATE_DIR"),
    }
}

/// The API of the server, or of this process.
fn api(
    server: Option<&Arc<Client>>,
    config: Config,
    host: Option<&String>,
    ssh: Option<&SshArgs>,
) -> Result<Api, Error> {
    let Some(client) = server else {
        let config = match ssh {
            Some(ssh) => with_options(config, host, ssh),
            None => config,
        };
        return Ok(Api::Here(for_a_person(config)));
    };
    if ssh.is_some_and(|ssh| !ssh.to_ssh().is_empty()) {
        let hint = "omit -p, -l, -i, -J and -o; the server's ssh_config says how hosts are reached";
        return Err(Error::invalid(
            "ssh options do not work with --server",
            hint,
        ));
    }
    Ok(Api::There(Arc::clone(client)))
}

/// An API without prompts, for verbs that own the screen or wait too briefly for a person.
fn on_a_screen(server: Option<&Arc<Client>>, config: Config) -> Api {
    match server {
        Some(client) => Api::There(Arc::clone(client)),
        None => Api::Here(of_a_person(config, None)),
    }
}

/// The token for a server.
fn token(file: Option<&Path>) -> Result<Option<SecretString>, Error> {
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

/// Overrides the configuration with options of the command line.
fn with_options(mut config: Config, host: Option<&String>, options: &SshArgs) -> Config {
    config.ssh_arguments = options.to_ssh();
    // A table overrides what `ssh -G` prints, and so it would override these options, too.
    if let Some(table) = host.and_then(|host| config.hosts.get_mut(host)) {
        if options.port.is_some() {
            table.port = None;
        }
        if options.login.is_some() {
            table.user = None;
        }
        if !options.identity.is_empty() {
            table.identity_file = None;
        }
    }
    config
}

/// A service for the user at this machine. The user may use any host, sees the jobs of all callers
/// (their files are readable anyway), and answers prompts on the terminal or, without a terminal,
/// through SSH_ASKPASS as in ssh.
///
/// Durable jobs that no process follows are not adopted, except requested ones: this process may be
/// about to end.
fn for_a_person(config: Config) -> Service {
    let at_the_terminal =
        cli::TerminalPrompter::new().map(|prompter| Arc::new(prompter) as Arc<dyn Prompter>);
    let prompter = at_the_terminal
        .or_else(|| Askpass::from_env().map(|askpass| Arc::new(askpass) as Arc<dyn Prompter>));
    of_a_person(config, prompter)
}

fn of_a_person(mut config: Config, prompter: Option<Arc<dyn Prompter>>) -> Service {
    config.limits.adopts_jobs = false;
    config.notify.allows_any_target = true;
    let service = match prompter {
        Some(prompter) => Service::asking(config, Access::Any, prompter),
        None => Service::new(config, Access::Any),
    };
    send_notifications(&service);
    // A command of a person makes its call again while it waits.
    service
        .waiting_for_approval(Duration::ZERO)
        .of(Caller::local(), Rights::everywhere(Role::Admin))
}

/// Lets this process send notifications.
fn send_notifications(service: &Service) {
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
/// watches jobs for more.
async fn while_notifying<T>(jobs: &Jobs, serving: impl Future<Output = T>) -> T {
    tokio::select! {
        served = serving => served,
        never = jobs.notifier().run() => match never {},
        never = jobs.watch() => match never {},
    }
}

async fn serve(config: Config, args: &ServeArgs) -> Exit {
    if std::io::stdin().is_terminal() {
        cli::note(
            "this is the MCP server, which speaks JSON-RPC on stdin and stdout. Start it from an MCP client; \
             `sshjobs serve --help` says how. Ctrl-D ends it.",
        );
    }
    let elicitor = Arc::new(mcp::Elicitor::new());
    let service = Service::asking(
        config,
        Access::Listed,
        Arc::clone(&elicitor) as Arc<dyn Prompter>,
    );
    send_notifications(&service);
    if let Err(error) = require_policy(&service).await {
        cli::report(&error);
        return Exit::USAGE;
    }
    let service = service.of(Caller::local(), Rights::everywhere(most(args)));
    // The client runs on this machine, as its user.
    let service = service.offering_local_files();
    let jobs = service.library().clone();
    match while_notifying(&jobs, mcp::serve_stdio(service, elicitor)).await {
        Ok(()) => Exit::SUCCESS,
        Err(error) => {
            cli::report(&Error::new(
                Code::Io,
                error.to_string(),
                "start it from an MCP client",
            ));
            Exit::CONNECTION
        }
    }
}

/// Maximum role of any caller.
fn most(args: &ServeArgs) -> Role {
    if args.read_only {
        Role::Read
    } else {
        Role::Run
    }
}

/// Connects to the cluster that the option or the configuration names, if there is one.
async fn cluster(config: &Config, urls: Option<&String>) -> Result<Option<Cluster>, Error> {
    let config = ClusterConfig {
        nats: urls.cloned().or_else(|| config.cluster.nats.clone()),
        ..config.cluster.clone()
    };
    let servers = config.servers().map_err(|why| {
        Error::invalid(
            format!("the URLs of the cluster can't be used: {why}"),
            "see docs/cluster.md",
        )
    })?;
    if servers.is_empty() {
        return Ok(None);
    }
    Ok(Some(Cluster::connect(&config).await?))
}

fn require(cluster: Option<Cluster>) -> Result<Cluster, Error> {
    let hint = "name one with --cluster nats://HOST:4222, or as `nats` in the table \
                [cluster] of the configuration";
    cluster.ok_or_else(|| Error::invalid("no NATS server of a cluster is named", hint))
}

/// The tokens of the cluster, or of the state directory.
async fn tokens(config: &Config, cluster: Option<&Cluster>) -> Result<Tokens, Error> {
    if let Some(cluster) = cluster.cloned() {
        let text = tokio::task::spawn_blocking(move || cluster.tokens()).await;
        let text =
            text.expect("reading tokens does not panic").map_err(crate::jobs::Error::from)?;
        return Ok(Tokens::of_cluster(text));
    }
    match config.state_dir() {
        Some(state_dir) => Ok(Tokens::of(&state_dir)),
        None => Err(no_state_dir()),
    }
}

fn no_state_dir() -> Error {
    Error::new(
        Code::Io,
        "no state directory is available",
        "name one with --state-dir",
    )
}

/// The cluster of a server, if it is a replica, and its options.
async fn prepared(
    config: &Config,
    args: ServeArgs,
) -> Result<(Option<Cluster>, http::Options), Error> {
    let cluster = cluster(config, args.cluster.nats.as_ref()).await?;
    let tokens = if args.no_auth {
        None
    } else {
        Some(tokens(config, cluster.as_ref()).await?)
    };
    let oidc = if args.no_auth {
        None
    } else {
        http::Oidc::new(&config.oidc)
    };
    let options = http::Options {
        oidc,
        ..options(args, tokens)?
    };
    Ok((cluster, options))
}

async fn serve_http(mut config: Config, args: ServeArgs) -> Exit {
    if config.notify.page_url.is_none() {
        config.notify.page_url.clone_from(&args.public_url);
    }
    let (cluster, mut options) = match prepared(&config, args).await {
        Ok(prepared) => prepared,
        Err(error) => {
            cli::report(&error);
            return Exit::USAGE;
        }
    };
    let most = options.most;
    let closing = CancellationToken::new();
    let served = async {
        // First, so that a signal that arrives while the server starts also shuts it down cleanly.
        let signals = cli::ServerSignals::catch()?;
        let elicitors = mcp::Elicitors::default();
        let prompters = http::ClusterPrompters::new(elicitors.prompters());
        options.prompters = Some(prompters.clone());
        let server = http::Server::bind(options).await.map_err(|error| cannot_serve(&error))?;
        let service = match cluster {
            None => Service::asking_callers(config, Access::Listed, elicitors.prompters()),
            Some(cluster) => {
                let jobs = Jobs::builder()
                    .config(config)
                    .access(Access::Listed)
                    .prompters(prompters.prompters())
                    .cluster(cluster);
                let jobs = jobs.start().await?;
                if let Some(peers) = jobs.peers() {
                    elicitors.desk().name_replica(peers.own_name());
                    prompters.note_peers(peers);
                }
                Service::over(jobs)
            }
        };
        send_notifications(&service);
        let jobs = service.library().clone();
        let has_policy = require_policy(&service).await?;
        let service = service.of(Caller::local(), Rights::everywhere(most));
        let library = service.library().clone();
        let reload = has_policy.then_some(async move || library.reload_policy().await);
        let stop = signals.wait_for_stop(reload);
        cli::note(&format!("listening on {}", server.addresses()));
        let mcp = mcp::OverHttp::new(closing.clone(), elicitors.clone());
        let mcp = http::Mount::new("/mcp", move |request| {
            let mcp = mcp.clone();
            async move { mcp.answer(request).await }
        });
        let answers = http::Mount::new(mcp::AnswerDesk::PATH, move |request| {
            let desk = elicitors.desk();
            async move { desk.answer(request).await }
        });
        // A browser opens an answer form without a token; the form's address can't be guessed.
        let mounts = vec![mcp, answers.for_anybody()];
        let serving = server.serve(service, mounts, closing, stop);
        while_notifying(&jobs, serving).await.map_err(|error| cannot_serve(&error))
    };
    match served.await {
        Ok(()) => Exit::SUCCESS,
        Err(error) => {
            cli::report(&error);
            Exit::of_error(&error)
        }
    }
}

/// Refuses to start with a policy file that can't be used. Returns whether there is a policy.
async fn require_policy(service: &Service) -> Result<bool, Error> {
    let Some(state) = service.library().policy_state().await else {
        return Ok(false);
    };
    match (state.hash, state.trouble) {
        (None, trouble) => Err(Error::invalid(
            format!("the policy can't be used: {}", trouble.unwrap_or_default()),
            "correct the file; docs/policy.md explains each key",
        )),
        (Some(_), _) => Ok(true),
    }
}

fn options(args: ServeArgs, tokens: Option<Tokens>) -> Result<http::Options, Error> {
    let is_exposed = args.http.is_some_and(|address| !address.ip().is_loopback());
    if args.no_auth && is_exposed {
        let hint =
            "omit --no-auth and make tokens with `sshjobs token new`, or listen on 127.0.0.1";
        return Err(Error::invalid(
            "without tokens everybody in the network could run commands",
            hint,
        ));
    }
    if is_exposed && args.tls_cert.is_none() {
        cli::note(
            "without --tls-cert tokens cross the network unencrypted; use it, or a \
             proxy that speaks TLS",
        );
    }
    let most = if args.read_only {
        Role::Read
    } else {
        Role::Admin
    };
    Ok(http::Options {
        address: args.http,
        socket: args.socket,
        prompters: None,
        metrics: args.metrics,
        tls: args
            .tls_cert
            .zip(args.tls_key)
            .map(|(certificate, key)| http::TlsFiles { certificate, key }),
        names: args.allow_host,
        origins: args.allow_origin,
        prefix: args.prefix.unwrap_or_default(),
        public_url: args.public_url,
        drain: args.drain.unwrap_or_default(),
        most,
        tokens,
        oidc: None,
    })
}

fn cannot_serve(error: &http::ServerError) -> Error {
    let (code, hint) = match error {
        http::ServerError::Listen { source, .. } => cannot_listen(source.kind()),
        http::ServerError::Tls(_) => (Code::Io, "check the files of --tls-cert and --tls-key"),
        http::ServerError::ClusterLost => (
            Code::Io,
            "start all replicas again, and make new tokens with `sshjobs token new`",
        ),
    };
    Error::new(code, chain(error), hint)
}

fn cannot_listen(kind: io::ErrorKind) -> (Code, &'static str) {
    if kind == io::ErrorKind::AddrInUse {
        let hint = "another program has this address or file; end it, or choose another one";
        (Code::AddressInUse, hint)
    } else if kind == io::ErrorKind::PermissionDenied {
        let hint = "choose a port from 1024 on, or a directory that you may write to";
        (Code::PermissionDenied, hint)
    } else {
        let hint = "use an address of this machine, or a short path in an existing directory";
        (Code::Io, hint)
    }
}

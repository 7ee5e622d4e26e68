//! The `sshjobs` program: reads the command line and the configuration, then calls one of the
//! faces.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::runtime::Builder;
use tracing_subscriber::Layer;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::cluster::{cluster, no_state_dir, require, tokens};
use super::configuration::{load, overrides};
use super::protection::protect_memory;
use super::serve::{serve_http, serve_stdio};
use super::service::{
    api, api_with_ssh, for_a_person, of_a_person, on_a_screen, token, with_brief_connections,
    with_options,
};
use sshjobs_cli::{
    self, AuditArgs, Cli, CliVerb, ClusterArgs, ClusterVerb, GlobalArgs, HostsArgs, HostsVerb,
    LogFormat, LogLevel, ProgramExit, StoreVerb, TokenArgs,
};
use sshjobs_core::jobs::Config;
use sshjobs_wire::remote::ServerClient;
use sshjobs_wire::{Code, Error};

/// Runs the program to its end. It is part of the library and not of `main.rs`, so that async code
/// is compiled only once.
pub fn main() -> ExitCode {
    sshjobs_cli::note_parent();
    if let Some(exit) = sshjobs_cli::answer_version() {
        return exit.into();
    }
    sshjobs_cli::answer_shell();
    let cli = match sshjobs_cli::parse(sshjobs_cli::print_help) {
        Ok(cli) => cli,
        Err(error) => {
            sshjobs_cli::report(&error);
            return ProgramExit::USAGE.into();
        }
    };
    let has_screen = matches!(cli.verb, CliVerb::Top(_)) && std::io::stderr().is_terminal();
    if cli.verb.ssh().is_some_and(|ssh| ssh.quiet) {
        sshjobs_cli::be_quiet();
    }
    let log = if has_screen {
        LogLevel::Off
    } else {
        level(&cli)
    };
    let to_stderr = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let format = if let CliVerb::Serve(args) = &cli.verb {
        args.log_format
    } else {
        LogFormat::Text
    };
    let to_stderr = match format {
        LogFormat::Text => to_stderr.boxed(),
        LogFormat::Json => to_stderr.json().flatten_event(true).boxed(),
    };
    // Before `protect_memory`, which logs failures.
    tracing_subscriber::registry().with(to_stderr).with(log.filter()).init();
    match load(&cli) {
        Ok(config) => {
            // Before `run` reads any secret or opens a connection.
            protect_memory();
            run(cli, config).into()
        }
        Err(error) => {
            sshjobs_cli::report(&error);
            ProgramExit::USAGE.into()
        }
    }
}

/// Log level: from `-q` and `-v` if the verb has them, otherwise from `--log`.
fn level(cli: &Cli) -> LogLevel {
    let Some(ssh) = cli.verb.ssh() else { return cli.global.log };
    match ssh.verbose {
        0 if ssh.quiet => LogLevel::Error,
        0 => cli.global.log,
        1 => LogLevel::Debug,
        _ => LogLevel::Trace,
    }
}

/// Stack of a worker thread. Pages that are not touched take no memory.
const STACK_BYTES: usize = 8 << 20;

fn run(cli: Cli, config: Config) -> ProgramExit {
    // A client of a server needs no threads: starting them would cost more than the call.
    let mut runtime = if cli.global.server.is_some() {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    // Without optimization, a call that logs in needs more than the default of 2 MiB.
    runtime.thread_stack_size(STACK_BYTES);
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            sshjobs_cli::report(&Error::new(
                Code::Io,
                format!("the runtime can't start: {error}"),
                "check the process limits",
            ));
            return ProgramExit::CONNECTION;
        }
    };
    let exit = runtime.block_on(async {
        sshjobs_cli::survive_file_size_limit();
        match perform(cli, config).await {
            Ok(exit) => exit,
            Err(error) => {
                sshjobs_cli::report(&error);
                ProgramExit::of_error(&error)
            }
        }
    });
    // A thread may still be reading stdin or writing to a blocked pipe, so don't wait for it.
    runtime.shutdown_background();
    exit
}

/// Performs the verb of the command line, here or on a server.
#[expect(clippy::too_many_lines, reason = "one arm for each verb")]
async fn perform(cli: Cli, config: Config) -> Result<ProgramExit, Error> {
    let overrides = overrides(&cli);
    let file = cli.global.config.clone();
    let Cli {
        global,
        verb,
        verb_name,
    } = cli;
    let GlobalArgs {
        server, token_file, ..
    } = global;
    let server = match server {
        Some(address) => Some(Arc::new(ServerClient::new(
            address,
            token(token_file.as_deref())?,
        ))),
        None => None,
    };
    if server.is_some() {
        refuse_what_runs_here(&verb, &verb_name)?;
    }
    // Each 4 KiB of this future cost a page fault at every start of the program, so the largest futures are boxed.
    Ok(match verb {
        CliVerb::Run(args) => {
            let config = with_brief_connections(config);
            sshjobs_cli::run(&api_with_ssh(server, config, &args.ssh)?, args).await
        }
        CliVerb::Spawn(args) => {
            sshjobs_cli::spawn(&api_with_ssh(server, config, &args.ssh)?, args).await
        }
        CliVerb::Rerun(args) => {
            let config = with_brief_connections(config);
            sshjobs_cli::rerun(&api_with_ssh(server, config, &args.ssh)?, args).await
        }
        CliVerb::Hosts(HostsArgs {
            verb: Some(HostsVerb::Add(args)),
            ..
        }) => sshjobs_cli::add_host(file, &args)?,
        CliVerb::Hosts(args) => {
            sshjobs_cli::hosts(&api_with_ssh(server, config, &args.ssh)?, args).await
        }
        CliVerb::Put(args) => {
            let config = with_options(config, &args.ssh);
            sshjobs_cli::put(&for_a_person(config), args).await
        }
        CliVerb::Get(args) => {
            let config = with_options(config, &args.ssh);
            sshjobs_cli::get(&for_a_person(config), args).await
        }
        CliVerb::Sync(args) => {
            let config = with_options(config, &args.ssh);
            sshjobs_cli::sync(&for_a_person(config), args).await
        }
        CliVerb::Fetch(args) => {
            sshjobs_cli::fetch(&api_with_ssh(server, config, &args.ssh)?, args).await
        }
        CliVerb::Edit(args) => {
            let config = with_options(config, &args.ssh);
            sshjobs_cli::edit(&for_a_person(config), args).await
        }
        CliVerb::Forward(args) => {
            let config = with_options(config, &args.ssh);
            sshjobs_cli::forward(&for_a_person(config), args).await
        }
        CliVerb::Approvals(args) => sshjobs_cli::approvals(&api(server, config), args).await,
        CliVerb::Approve(args) => sshjobs_cli::approve(&api(server, config), args).await,
        CliVerb::Deny(args) => sshjobs_cli::deny(&api(server, config), args).await,
        CliVerb::Tail(args) => sshjobs_cli::tail(&api(server, config), args).await,
        CliVerb::Log(args) => sshjobs_cli::log(&api(server, config), args).await,
        CliVerb::Read(args) => sshjobs_cli::read(&api(server, config), args).await,
        CliVerb::Export(args) => sshjobs_cli::export(&api(server, config), args).await,
        CliVerb::Inspect(args) => sshjobs_cli::inspect(&api(server, config), args).await,
        CliVerb::Screen(args) => sshjobs_cli::screen(&api(server, config), args).await,
        CliVerb::Attach(args) => sshjobs_cli::attach(&api(server, config), args).await,
        CliVerb::Search(args) => sshjobs_cli::search(&api(server, config), args).await,
        CliVerb::Write(args) => sshjobs_cli::write(&api(server, config), args).await,
        CliVerb::Signal(args) => sshjobs_cli::signal(&api(server, config), args).await,
        CliVerb::Watch(args) => sshjobs_cli::watch(&api(server, config), args).await,
        CliVerb::Wait(args) => sshjobs_cli::wait(&api(server, config), args).await,
        // A list waits for hosts at most two seconds, too short for a person to answer a prompt.
        CliVerb::Jobs(args) => sshjobs_cli::jobs(&on_a_screen(server, config), args).await,
        CliVerb::Queue(args) => sshjobs_cli::queue(&api(server, config), args).await,
        CliVerb::Top(_) => sshjobs_cli::top(&on_a_screen(server, config)).await,
        CliVerb::Forget(args) => sshjobs_cli::forget(&api(server, config), args).await,
        CliVerb::Ping(args) => sshjobs_cli::ping(&api(server, config), args).await,
        CliVerb::Completions(args) => sshjobs_cli::completions(&args),
        CliVerb::Man(args) => sshjobs_cli::man(&args),
        CliVerb::Help(args) => sshjobs_cli::help(&args),
        CliVerb::Mcp(args) => sshjobs_cli::mcp(&args)?,
        CliVerb::Init(args) => {
            sshjobs_cli::init(of_a_person(config, None).library(), file, &args).await?
        }
        CliVerb::Config(args) => sshjobs_cli::config(&config, &overrides, &args),
        CliVerb::Demo(args) => sshjobs_cli::demo(args).await,
        CliVerb::Serve(args) if args.http.is_some() || args.socket.is_some() => {
            Box::pin(serve_http(config, args)).await
        }
        CliVerb::Serve(args) => Box::pin(serve_stdio(config, &args)).await,
        CliVerb::Token(args) => manage_tokens(&config, &args).await?,
        CliVerb::Policy(args) => {
            sshjobs_cli::policy(of_a_person(config, None).library(), args).await?
        }
        CliVerb::Audit(args) => look_at_audit_log(config, args).await?,
        CliVerb::Cluster(args) => show_cluster(&config, args).await?,
        CliVerb::Store(args) => look_after_store(&config, args.verb).await?,
        CliVerb::Trust(args) => {
            let config = with_options(config, &args.ssh);
            sshjobs_cli::trust(for_a_person(config), args).await
        }
    })
}

async fn manage_tokens(config: &Config, args: &TokenArgs) -> Result<ProgramExit, Error> {
    let cluster = cluster(config, args.cluster.nats.as_ref()).await?;
    Ok(sshjobs_cli::token(
        &tokens(config, cluster.as_ref()).await?,
        args,
    ))
}

async fn look_at_audit_log(config: Config, args: AuditArgs) -> Result<ProgramExit, Error> {
    let cluster = if args.needs_cluster() {
        cluster(&config, args.cluster.nats.as_ref()).await?
    } else {
        None
    };
    let service = of_a_person(config, None);
    sshjobs_cli::audit(service.library(), cluster.as_ref(), args).await
}

async fn show_cluster(config: &Config, args: ClusterArgs) -> Result<ProgramExit, Error> {
    let ClusterVerb::Status(args) = args.verb;
    let cluster = require(cluster(config, args.cluster.nats.as_ref()).await?)?;
    Ok(sshjobs_cli::cluster_status(&cluster.status().await?, &args))
}

async fn look_after_store(config: &Config, verb: StoreVerb) -> Result<ProgramExit, Error> {
    let state_dir = config.state_dir().ok_or_else(no_state_dir)?;
    match verb {
        StoreVerb::Check(args) => sshjobs_cli::store_check(&state_dir, &args),
        StoreVerb::Repair(args) => sshjobs_cli::store_repair(&state_dir, &args),
        StoreVerb::Backup(args) => sshjobs_cli::store_backup(&state_dir, &args),
        StoreVerb::Restore(args) => sshjobs_cli::store_restore(&state_dir, &args),
        StoreVerb::Copy(args) => {
            let cluster = require(cluster(config, args.to.as_ref()).await?)?;
            let tokens = tokens(config, Some(&cluster)).await?;
            sshjobs_cli::store_copy(&state_dir, &cluster, &tokens, &args).await
        }
    }
}

/// Refuses a verb that a server can't perform: it is about this machine, or uses its files and ports.
fn refuse_what_runs_here(verb: &CliVerb, verb_name: &str) -> Result<(), Error> {
    if verb.runs_here_only() {
        return Err(not_with_server(verb_name));
    }
    if !verb.uses_this_machine() {
        return Ok(());
    }
    if matches!(verb, CliVerb::Hosts(_)) {
        return Err(not_with_server("hosts add"));
    }
    if matches!(verb, CliVerb::Run(_) | CliVerb::Spawn(_)) {
        return Err(Error::invalid(
            "--sync sends files of this machine, which a server can't read",
            "omit --server, or sync first with `sshjobs sync`, and run the command with --cwd",
        ));
    }
    Err(Error::invalid(
        "put, get, sync, edit and forward don't work with --server",
        "omit --server or unset SSHJOBS_SERVER, or use the server's API: GET and PUT /v1/hosts/HOST/files/PATH",
    ))
}

fn not_with_server(verb: &str) -> Error {
    let message = format!("{verb} does not work with --server");
    let hint = "omit --server (and SSHJOBS_SERVER), and run it where the server runs";
    Error::invalid(message, hint)
}

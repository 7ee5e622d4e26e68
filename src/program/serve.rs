//! `sshjobs serve`: the MCP server on stdio, and the HTTP server.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::cluster::{cluster_when_there, tokens};
use super::service::{send_notifications, while_notifying};
use sshjobs_cli::{ProgramExit, ServeArgs, ToolChoice};
use sshjobs_core::jobs::{Access, Caller, Cluster, Config, Jobs, Prompter, Rights, Role, chain};
use sshjobs_mcp::{McpOptions, ToolSet};
use sshjobs_wire::tokens::Tokens;
use sshjobs_wire::{Code, Error, Service};

/// Serves one MCP client on stdin and stdout, until it closes stdin.
pub(super) async fn serve_stdio(config: Config, args: &ServeArgs) -> ProgramExit {
    if io::stdin().is_terminal() {
        sshjobs_cli::note(
            "this is the MCP server, which speaks JSON-RPC on stdin and stdout. Start it from an MCP client; \
             `sshjobs serve --help` says how. Ctrl-D ends it.",
        );
    }
    if args.cluster.nats.is_some() {
        let hint =
            "add --http ADDRESS:PORT; a server on stdin and stdout has the jobs of this machine";
        sshjobs_cli::report(&Error::invalid("a replica of a cluster serves HTTP", hint));
        return ProgramExit::USAGE;
    }
    let elicitor = Arc::new(sshjobs_mcp::Elicitor::new());
    let service = Service::asking(
        config,
        Access::Listed,
        Arc::clone(&elicitor) as Arc<dyn Prompter>,
    );
    send_notifications(&service);
    if let Err(error) = require_policy(&service).await {
        sshjobs_cli::report(&error);
        return ProgramExit::USAGE;
    }
    let most = if args.read_only {
        Role::Read
    } else {
        Role::Run
    };
    let service = service.of(Caller::local(), Rights::everywhere(most));
    // The client runs on this machine, as its user.
    let service = service.offering_local_files();
    let jobs = service.library().clone();
    match while_notifying(
        &jobs,
        sshjobs_mcp::serve_stdio(service, elicitor, mcp_options(args)),
    )
    .await
    {
        Ok(()) => ProgramExit::SUCCESS,
        Err(error) => {
            sshjobs_cli::report(&Error::new(
                Code::Io,
                error.to_string(),
                "start it from an MCP client",
            ));
            ProgramExit::CONNECTION
        }
    }
}

fn mcp_options(args: &ServeArgs) -> McpOptions {
    McpOptions {
        tools: match args.tools {
            ToolChoice::All => ToolSet::All,
            ToolChoice::Core => ToolSet::Core,
        },
        has_channel: args.channel,
    }
}

/// The cluster of a server, if it is a replica, and its options.
async fn prepared(
    config: &Config,
    args: ServeArgs,
) -> Result<(Option<Cluster>, sshjobs_http::ServerOptions), Error> {
    let cluster = cluster_when_there(config, args.cluster.nats.as_ref()).await?;
    let tokens = if args.no_auth {
        None
    } else {
        Some(tokens(config, cluster.as_ref()).await?)
    };
    let oidc = if args.no_auth {
        None
    } else {
        sshjobs_http::Oidc::new(&config.oidc)
    };
    let options = sshjobs_http::ServerOptions {
        oidc,
        ..options(args, tokens)?
    };
    Ok((cluster, options))
}

/// Serves all callers over HTTP, until a signal stops it.
pub(super) async fn serve_http(mut config: Config, args: ServeArgs) -> ProgramExit {
    if config.notify.page_url.is_none() {
        config.notify.page_url.clone_from(&args.public_url);
    }
    let mcp_options = mcp_options(&args);
    let (cluster, mut options) = match prepared(&config, args).await {
        Ok(prepared) => prepared,
        Err(error) => {
            sshjobs_cli::report(&error);
            return ProgramExit::USAGE;
        }
    };
    let most = options.most;
    let closing = CancellationToken::new();
    let served = async {
        // First, so that a signal that arrives while the server starts also shuts it down cleanly.
        let signals = sshjobs_cli::ServerSignals::catch()?;
        let elicitors = sshjobs_mcp::Elicitors::default();
        let prompters = sshjobs_http::ClusterPrompters::new(elicitors.prompters());
        options.prompters = Some(prompters.clone());
        let server = sshjobs_http::HttpServer::bind(options)
            .await
            .map_err(|error| cannot_serve(&error))?;
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
        require_policy(&service).await?;
        require_store(&service)?;
        let service = service.of(Caller::local(), Rights::everywhere(most));
        let library = service.library().clone();
        let certificate = server.certificate();
        let stop = signals.wait_for_stop(async move || {
            tracing::info!("HUP: policy and certificate are read again, if there are any");
            library.reload_policy().await;
            if let Some(certificate) = &certificate {
                certificate.reload().await;
            }
        });
        sshjobs_cli::note(&format!("listening on {}", server.addresses()));
        let mcp = sshjobs_mcp::OverHttp::new(closing.clone(), elicitors.clone(), mcp_options);
        let mcp = sshjobs_http::Mount::new("/mcp", move |request| {
            let mcp = mcp.clone();
            async move { mcp.answer(request).await }
        });
        let answers = sshjobs_http::Mount::new(sshjobs_mcp::AnswerDesk::PATH, move |request| {
            let desk = elicitors.desk();
            async move { desk.answer(request).await }
        });
        // A browser opens an answer form without a token; the form's address can't be guessed.
        let mounts = vec![mcp, answers.for_anybody()];
        let serving = server.serve(service, mounts, closing, stop);
        while_notifying(&jobs, serving).await.map_err(|error| cannot_serve(&error))
    };
    match served.await {
        Ok(()) => ProgramExit::SUCCESS,
        Err(error) => {
            sshjobs_cli::report(&error);
            ProgramExit::of_error(&error)
        }
    }
}

/// Refuses to start without the store: its jobs would be unknown, and nothing opens it later. A supervisor starts the
/// server again.
fn require_store(service: &Service) -> Result<(), Error> {
    let Some(trouble) = service.library().store_trouble() else {
        return Ok(());
    };
    let hint = "make room or mend the directory, or name another one with --state-dir";
    Err(Error::new(
        Code::Io,
        format!("nothing can be stored: {trouble}"),
        hint,
    ))
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

/// The options of the HTTP server. Refuses to be open to a network without tokens.
fn options(args: ServeArgs, tokens: Option<Tokens>) -> Result<sshjobs_http::ServerOptions, Error> {
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
        sshjobs_cli::note(
            "without --tls-cert tokens cross the network unencrypted; use it, or a \
             proxy that speaks TLS",
        );
    }
    let most = if args.read_only {
        Role::Read
    } else {
        Role::Admin
    };
    Ok(sshjobs_http::ServerOptions {
        address: args.http,
        socket: args.socket,
        prompters: None,
        metrics: args.metrics,
        tls: args
            .tls_cert
            .zip(args.tls_key)
            .map(|(certificate, key)| sshjobs_http::TlsFiles { certificate, key }),
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

fn cannot_serve(error: &sshjobs_http::ServerError) -> Error {
    let (code, hint) = match error {
        sshjobs_http::ServerError::Listen { source, .. } => cannot_listen(source.kind()),
        sshjobs_http::ServerError::Tls(_) => {
            (Code::Io, "check the files of --tls-cert and --tls-key")
        }
        sshjobs_http::ServerError::ClusterLost => (
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

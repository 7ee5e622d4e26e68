//! Arguments of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};

use super::values::{ClusterArg, LogFormat, time};

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("served").args(["http", "socket"]).multiple(true)))]
#[command(after_help = "\
Without options it serves MCP on stdin and stdout, for one agent: set up an MCP client with the
command `sshjobs` and the argument `serve`. stdout has MCP messages only; logs go to stderr. Jobs
that still run when the client disconnects are ended, except durable ones. On a terminal you can
type JSON-RPC; Ctrl-D ends it.

With --http or --socket it serves many callers: MCP at /mcp, a JSON API at /v1/ (described by
/v1/openapi.json), and the server's state at /healthz and /readyz. Callers send a token, which
`sshjobs token new NAME` creates, as `Authorization: Bearer TOKEN`. Each caller sees its own jobs.
TERM ends the server: waiting calls are answered, and jobs that are not durable are ended. See
docs/server.md.

Examples:
  claude mcp add sshjobs -- sshjobs serve
  sshjobs --log info serve
  sshjobs serve --http 127.0.0.1:8022
  sshjobs serve --http 0.0.0.0:8443 --tls-cert fullchain.pem --tls-key key.pem --allow-host jobs.example.com
  sshjobs serve --socket $XDG_RUNTIME_DIR/sshjobs.sock --no-auth")]
pub struct ServeArgs {
    /// How lines of the log look: text, or json for programs that collect them.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        hide_possible_values = true
    )]
    pub log_format: LogFormat,
    /// Serve HTTP on this address; port 0 selects a free port.
    #[arg(long, value_name = "ADDR:PORT")]
    pub http: Option<SocketAddr>,
    /// Serve HTTP on a unix socket to which only you can connect.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Certificate chain (PEM); read again when it changes.
    #[arg(long, value_name = "FILE", requires = "http", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Accept every client as you, without a token. Only on loopback addresses and the socket.
    #[arg(long, requires = "served")]
    pub no_auth: bool,
    /// Additional name by which clients call the server; loopback names and ADDR are always
    /// accepted.
    #[arg(long, value_name = "NAME", requires = "http")]
    pub allow_host: Vec<String>,
    /// An origin whose web pages may call the server, such as `https://app.example.com`.
    #[arg(long, value_name = "ORIGIN", requires = "served")]
    pub allow_origin: Vec<String>,
    /// Prefix of all paths, for a proxy that does not remove it.
    #[arg(long, value_name = "/PATH", value_parser = prefix, requires = "served")]
    pub prefix: Option<String>,
    /// URL at which browsers reach the server through a proxy, for the pages that ask for passwords
    /// during a login.
    #[arg(long, value_name = "URL", value_parser = public_url, requires = "http")]
    pub public_url: Option<String>,
    /// Serve metrics for Prometheus on this address, at /metrics, without tokens.
    #[arg(long, value_name = "ADDR:PORT", requires = "served")]
    pub metrics: Option<SocketAddr>,
    /// The cluster of which this server is a replica.
    #[command(flatten)]
    pub cluster: ClusterArg,
    /// In a cluster, time for jobs that are not durable to end after TERM: 90s, 10m. Default: 0.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "served")]
    pub drain: Option<Duration>,
    /// Tools that MCP clients see: all, or core (hosts, run, spawn, tail, write, signal) for clients that put
    /// every tool before their model.
    #[arg(long, value_name = "TOOLS", default_value = "all")]
    pub tools: ToolChoice,
    /// Send the ends and questions of a client's jobs to it as messages that wake its agent: Claude
    /// Code's channels, a research preview.
    #[arg(long)]
    pub channel: bool,
    /// Offer only verbs that change nothing: reading, searching, waiting and listing.
    #[arg(long)]
    pub read_only: bool,
}

/// Tools that are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ToolChoice {
    /// All tools.
    All,
    /// The six that most sessions need.
    Core,
}

/// Parses a path prefix.
fn prefix(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    if path.starts_with('/')
        && !path.contains("//")
        && path
            .chars()
            .all(|c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.'))
    {
        Ok(path.to_owned())
    } else {
        Err("use a path such as /sshjobs".to_owned())
    }
}

/// Parses a base URL.
fn public_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    if rest.is_some_and(|rest| {
        !rest.is_empty()
            && rest.chars().all(|c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#'))
    }) {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("use a URL such as https://jobs.example.com/sshjobs".to_owned())
    }
}

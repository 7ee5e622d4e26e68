use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args};

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("served").args(["http", "socket"]).multiple(true)))]
#[command(after_help = "\
Without options: MCP on stdin and stdout, for one agent. Set it up in an MCP client as the command `sshjobs` with the argument `serve`. stdout is the MCP wire; logs go to stderr.
Jobs that still run when the client goes away are ended, but for durable ones. On a terminal you can type JSON-RPC; Ctrl-D ends it.

With --http or --socket: a server for many. MCP is at /mcp, a JSON API at /v1/ (described by /v1/openapi.json), /healthz and /readyz
tell how the server is. Callers show a token, which `sshjobs token new NAME` makes, as `Authorization: Bearer TOKEN`; each sees its own
jobs. TERM ends it: waits are answered, jobs that are not durable are ended. docs/server.md tells more.

Examples:
  claude mcp add sshjobs -- sshjobs serve
  sshjobs --log info serve
  sshjobs serve --http 127.0.0.1:8022
  sshjobs serve --http 0.0.0.0:8443 --tls-cert fullchain.pem --tls-key key.pem --allow-host jobs.example.com
  sshjobs serve --socket $XDG_RUNTIME_DIR/sshjobs.sock --no-auth")]
pub struct ServeArgs {
    /// Serve HTTP on this address; port 0 takes a free one.
    #[arg(long, value_name = "ADDR:PORT")]
    pub http: Option<SocketAddr>,
    /// Serve HTTP on a unix socket, which only you may connect to.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Certificate chain (PEM); read again when it changes.
    #[arg(long, value_name = "FILE", requires = "http", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let in everybody who can connect, as you. Only on loopback addresses and the socket.
    #[arg(long, requires = "served")]
    pub no_auth: bool,
    /// A name by which clients call the server; loopback names and ADDR are always taken.
    #[arg(long, value_name = "NAME", requires = "http")]
    pub allow_host: Vec<String>,
    /// An origin whose web pages may call the server, such as `https://app.example.com`.
    #[arg(long, value_name = "ORIGIN", requires = "served")]
    pub allow_origin: Vec<String>,
    /// Path below which everything lies, for a proxy that does not take it away.
    #[arg(long, value_name = "/PATH", value_parser = prefix, requires = "served")]
    pub prefix: Option<String>,
    /// Address at which browsers reach the server through a proxy: for the pages that ask people what a login needs.
    #[arg(long, value_name = "URL", value_parser = public_url, requires = "http")]
    pub public_url: Option<String>,
    /// Show metrics for Prometheus on this address, at /metrics, without tokens.
    #[arg(long, value_name = "ADDR:PORT", requires = "served")]
    pub metrics: Option<SocketAddr>,
    /// Offer only what changes nothing: reading, searching, waiting and listing.
    #[arg(long)]
    pub read_only: bool,
}

/// Reads a path that others are put behind.
fn prefix(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    let path = text.trim_end_matches('/');
    if path.starts_with('/') && !path.contains("//") && path.chars().all(is_plain) {
        Ok(path.to_owned())
    } else {
        Err("use a path such as /sshjobs".to_owned())
    }
}

/// Reads an address that paths are put behind.
fn public_url(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#');
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    if rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(is_plain)) {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("use a URL such as https://jobs.example.com/sshjobs".to_owned())
    }
}

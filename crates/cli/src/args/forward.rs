//! Arguments of `forward`.

use clap::{ArgGroup, Args};
use clap_complete::engine::ArgValueCandidates;

use super::candidates;
use super::values::SshArgs;

/// Arguments of `forward`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("forwards").args(["local", "remote", "dynamic"]).required(true).multiple(true),
    after_help = "\
Forwards stay open until Ctrl-C. A lost connection is made again, and the listeners stay meanwhile.
Each address is written as for ssh: [BIND:]PORT:HOST:PORT, with a socket's path in the place of an
address and its port. Port 0 lets the system choose; the line on stdout tells which. Listeners that
other machines can reach need forward_any_address = true in the configuration.

Exit codes: 0 closed by --idle; 1 no permission to listen; 2 invalid command line; 130 interrupted;
255 the host can't be reached, or nothing can listen there.

Examples:
  sshjobs forward web1 -L 8080:localhost:80       port 8080 here is port 80 there
  sshjobs forward web1 -L 0:db.internal:5432      a free port here, a database behind web1
  sshjobs forward web1 -R 9000:localhost:3000     port 9000 there is port 3000 here
  sshjobs forward web1 -D 1080                    a SOCKS5 proxy; web1 resolves the names"
)]
pub struct ForwardArgs {
    /// Host name or alias, as in ssh.
    #[arg(add = ArgValueCandidates::new(candidates::hosts))]
    pub host: String,
    /// Listen here, and connect from the host.
    #[arg(long, short = 'L', value_name = "[BIND:]PORT:HOST:PORT")]
    pub local: Vec<String>,
    /// Listen on the host, and connect from here.
    #[arg(long, short = 'R', value_name = "[BIND:]PORT:HOST:PORT")]
    pub remote: Vec<String>,
    /// Listen here as a SOCKS5 proxy, and connect from the host.
    #[arg(long, short = 'D', value_name = "[BIND:]PORT")]
    pub dynamic: Vec<String>,
    /// Close a forward after so many seconds without a connection.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub idle: Option<u64>,
    /// Write a line of JSON for each forward.
    #[arg(long)]
    pub json: bool,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

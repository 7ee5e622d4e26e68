//! `sshjobs init`: a configuration to begin with, and hosts for it.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::add_host::{HostTable, append, line, no_directory, replace, trouble};
use super::reference::commented;
use crate::args::InitArgs;
use crate::{ProgramExit, note};
use sshjobs_base::bounded_file::read_text;
use sshjobs_core::jobs::{Config, Jobs, printable};
use sshjobs_wire::Error;

const HEAD: &str = "\
# Configuration of sshjobs. All lines are comments: nothing needs to be set. Remove the # before a key
# to change it; `sshjobs config` shows the effective values.

";
/// Hosts that are shown for a choice.
const SHOWN: usize = 30;

/// Writes a configuration in which nothing is set, and offers hosts.
pub async fn init(
    jobs: &Jobs,
    file: Option<PathBuf>,
    args: &InitArgs,
) -> Result<ProgramExit, Error> {
    let file = file.or_else(Config::file).ok_or_else(no_directory)?;
    if file.exists() {
        note(&format!("{} exists, and stays as it is", file.display()));
    } else {
        let text = format!("{HEAD}{}\n", commented());
        replace(&file, &text).map_err(|error| trouble("write", &file, &error))?;
        note(&format!("wrote {}", file.display()));
    }

    let listed = jobs.host_names().await?;
    let listed: BTreeSet<String> = listed.into_iter().map(|(name, _)| name).collect();
    match listed.len() {
        0 => note("ssh_config names no host"),
        1 => note("1 host is listed already (ssh_config and [hosts]); `sshjobs hosts` shows it"),
        count => note(&format!(
            "{count} hosts are listed already (ssh_config and [hosts]); `sshjobs hosts` shows them"
        )),
    }
    // known_hosts has the addresses of hosts that are listed under other names. Without them more hosts are offered.
    let hosts = jobs.hosts(None).await.unwrap_or_default();
    let reached: BTreeSet<(String, u16)> =
        hosts.into_iter().filter_map(|host| host.address).collect();
    let others: Vec<KnownHost> = known_hosts()
        .into_iter()
        .filter(|known| !listed.contains(&known.name) && !reached.contains(&known.address()))
        .collect();
    if !others.is_empty() {
        offer(&file, &others, args)?;
    }
    note("agents' jobs end with their server; `durable = true` in [defaults] keeps them running");
    note("next: `sshjobs demo`, `sshjobs hosts`, `sshjobs run HOST -- uptime`");
    Ok(ProgramExit::SUCCESS)
}

/// A host whose key is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct KnownHost {
    name: String,
    port: Option<u16>,
}

impl KnownHost {
    fn address(&self) -> (String, u16) {
        (self.name.clone(), self.port.unwrap_or(SSH_PORT))
    }
}

/// The port of a host whose key is known without one.
const SSH_PORT: u16 = 22;

/// The hosts of the user's known_hosts. Hashed names can't be read.
fn known_hosts() -> Vec<KnownHost> {
    let Some(home) = std::env::home_dir() else { return Vec::new() };
    let text = read_text(&home.join(".ssh/known_hosts")).unwrap_or_default();
    names_in(&text)
}

fn names_in(text: &str) -> Vec<KnownHost> {
    let entries = text.lines().map(str::trim).filter(|line| {
        // Comments, hashed names, and marks such as @revoked.
        !line.is_empty() && !line.starts_with(['#', '|', '@'])
    });
    let names = entries.filter_map(|line| line.split_whitespace().next());
    let known: BTreeSet<KnownHost> = names
        // An entry may have several names of one host; the first is the one that was typed.
        .filter_map(|names| names.split(',').next())
        .filter_map(known_host)
        .collect();
    known.into_iter().collect()
}

fn known_host(word: &str) -> Option<KnownHost> {
    let (name, port) = match word.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some((name, port)) => (name, Some(port.parse().ok()?)),
        None => (word, None),
    };
    let is_name = !name.is_empty() && !name.contains(['*', '?', '!', '[', ']']);
    is_name.then(|| KnownHost {
        name: name.to_owned(),
        port,
    })
}

/// Offers hosts whose keys are known, but which ssh_config does not list: agents may use only
/// listed hosts.
fn offer(file: &Path, hosts: &[KnownHost], args: &InitArgs) -> Result<(), Error> {
    note(
        "these hosts are in known_hosts but not in ssh_config or [hosts]; agents may use only listed hosts:",
    );
    for (number, host) in (1..).zip(hosts.iter().take(SHOWN)) {
        let port = host.port.map_or_else(String::new, |port| format!(" port {port}"));
        note(&format!("{number:>3}  {}{port}", printable(&host.name)));
    }
    if hosts.len() > SHOWN {
        note(&format!(
            "and {} more; add them with `sshjobs hosts add`",
            hosts.len() - SHOWN
        ));
    }
    let chosen = if args.all_hosts {
        hosts.to_vec()
    } else if io::stdin().is_terminal() {
        choose(hosts)
    } else {
        note("`sshjobs hosts add NAME ADDRESS` adds one");
        Vec::new()
    };
    if chosen.is_empty() {
        return Ok(());
    }
    let tables: Vec<HostTable> = chosen.iter().map(table).collect();
    append(file, &tables)?;
    note(&format!("added {} to {}", chosen.len(), file.display()));
    Ok(())
}

fn table(host: &KnownHost) -> HostTable {
    let mut lines = vec![line("address", host.name.as_str())];
    lines.extend(host.port.map(|port| format!("port = {port}")));
    HostTable {
        name: host.name.clone(),
        lines,
    }
}

/// Asks the person which hosts to add.
fn choose(hosts: &[KnownHost]) -> Vec<KnownHost> {
    // Ignored: a closed stderr can't ask.
    write!(
        io::stderr(),
        "Add which ones? Numbers, `all`, or Enter for none: "
    )
    .ok();
    let mut answer = String::new();
    if io::stdin().lock().read_line(&mut answer).is_err() {
        return Vec::new();
    }
    if answer.trim() == "all" {
        return hosts.to_vec();
    }
    let numbers = answer.split([' ', ',']).filter_map(|word| word.trim().parse::<usize>().ok());
    let chosen = numbers.filter_map(|number| hosts.get(number.checked_sub(1)?));
    chosen.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_from_known_hosts_and_hashed_ones_are_not() {
        let text = "# comment\n\
            web1,10.0.0.7 ssh-ed25519 AAAA\n\
            [db1]:2222 ssh-ed25519 AAAA\n\
            |1|abc=|def= ssh-ed25519 AAAA\n\
            @cert-authority *.example.com ssh-ed25519 AAAA\n\
            *.example.org ssh-ed25519 AAAA\n\
            web1 ssh-rsa AAAA\n";
        let host = |name: &str, port| KnownHost {
            name: name.to_owned(),
            port,
        };
        assert_eq!(
            names_in(text),
            [host("db1", Some(2222)), host("web1", None)]
        );
    }
}

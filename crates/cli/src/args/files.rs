//! Arguments of `put`, `get`, `sync` and `edit`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};

use super::candidates;
use super::values::{BecomeArgs, SshArgs};

/// Arguments of `put`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each file is written beside its target, verified by SHA-256 and then put in its place, so that no
program ever reads half of it. The same command continues a transfer that broke. Owner and mode of a
replaced file are kept. A target that is a directory, or ends with a slash, gets the source's name.

Exit codes: 0 all was copied; 1 a file was not; 2 invalid command line; 130 interrupted; 255 the
host can't be reached. With many hosts, the number of hosts that failed.

Examples:
  sshjobs put app.conf web1:/etc/app/app.conf
  sshjobs put -r site/ web1:/srv/site
  sshjobs put app.conf 'web*':/etc/app/         to many hosts
  pg_dump db | sshjobs put - backup1:dumps/db.sql")]
#[command(mut_arg("port", |port| port.short('P')))]
pub struct PutArgs {
    /// Files of this machine, or - for stdin; then HOST:PATH. Several hosts as in run.
    #[arg(required = true, num_args = 1.., value_names = ["LOCAL", "HOST:PATH"], add = ArgValueCompleter::new(candidates::local_or_host))]
    pub paths: Vec<PathBuf>,
    /// Permissions of the files, such as 0644.
    #[arg(long, value_name = "OCTAL", value_parser = mode)]
    pub mode: Option<u32>,
    /// Make missing directories.
    #[arg(long)]
    pub parents: bool,
    /// Keep a replaced file beside the new one.
    #[arg(long)]
    pub backup: bool,
    /// Write into existing files, which keeps their owner, links and mounts, in place of replacing
    /// them. Readers may see half of the content.
    #[arg(long, conflicts_with = "backup")]
    pub in_place: bool,
    /// How files are copied.
    #[command(flatten)]
    pub copy: CopyArgs,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// Arguments of `get`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each file is verified by SHA-256, and then put in its place. The same command continues a transfer
that broke. From several hosts, files go to a directory for each host: LOCAL/HOST/NAME.

Exit codes: as for put.

Examples:
  sshjobs get web1:/var/log/app.log .
  sshjobs get 'web1:/var/log/*.log' logs/       a pattern on the host
  sshjobs get 'web*:/var/log/app.log' logs/     from many hosts: logs/web1/app.log
  sshjobs get -r web1:/etc/nginx nginx
  sshjobs get web1:/etc/hosts -                 to stdout")]
#[command(mut_arg("port", |port| port.short('P')))]
pub struct GetArgs {
    /// HOST:PATH, one or more, also patterns; then a file or directory of this machine, or - for
    /// stdout.
    #[arg(required = true, num_args = 1.., value_names = ["HOST:PATH", "LOCAL"], add = ArgValueCompleter::new(candidates::local_or_host))]
    pub paths: Vec<PathBuf>,
    /// How files are copied.
    #[command(flatten)]
    pub copy: CopyArgs,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// Arguments of `sync`.
#[derive(Debug, Args)]
#[command(after_help = "\
Sends what has changed, and deletes what is gone at the source. Only files that an earlier sync has
written are deleted, and of these none that was changed at the target. Each file is replaced at once,
and the same command continues a sync that broke. The host needs no rsync.

To a host, it leaves out .git, what .ignore files and --exclude name, and what .gitignore files name and
git does not track. From a host, what --exclude names. Links are copied as links.

Exit codes: 0 both are equal now; 1 a file was not written; 2 invalid command line; 130 interrupted;
255 the host can't be reached. With many hosts, the number of hosts that failed.

Examples:
  sshjobs sync . gpubox:project
  sshjobs sync -n --exclude '*.bin' . gpubox:project      what would be done
  sshjobs sync site/ 'web*':/srv/site                     to many hosts
  sshjobs sync gpubox:project/runs runs                   back")]
#[command(mut_arg("port", |port| port.short('P')))]
pub struct SyncArgs {
    /// Directory whose state the other gets: of this machine, or HOST:PATH.
    #[arg(value_name = "DIR", add = ArgValueCompleter::new(candidates::local_or_host))]
    pub source: PathBuf,
    /// The other directory: HOST:PATH, or one of this machine. Several hosts as in run.
    #[arg(value_name = "HOST:PATH", add = ArgValueCompleter::new(candidates::local_or_host))]
    pub target: PathBuf,
    /// Leave out what this pattern names, as in a .gitignore; !PATTERN keeps it.
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub exclude: Vec<String>,
    /// Show what would be done, and do nothing.
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// On each host.
    #[command(flatten)]
    pub each: EachHostArgs,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// Arguments of `fetch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Copies the files that `run --fetch` or `spawn --fetch` named, from the job's directory on its host, with
their paths below it. Each file is replaced at once, and one that is equal is not copied. The files of a
fleet go to a directory for each host.

Exit codes: 0 copied; 1 a file was not copied; 2 invalid command line, or the job was not asked for files;
255 the job still runs, or the host can't be reached.

Examples:
  sshjobs spawn gpubox --sync . --fetch 'runs/**' -- python train.py
  sshjobs wait ID && sshjobs fetch ID")]
#[command(mut_arg("port", |port| port.short('P')))]
pub struct FetchArgs {
    /// The job's id.
    #[arg(value_name = "JOB", add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Directory of this machine.
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Write one line of JSON.
    #[arg(long)]
    pub json: bool,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// How files are copied.
#[derive(Clone, Debug, Default, Args)]
pub struct CopyArgs {
    /// Copy directories with all that is in them.
    #[arg(long, short)]
    pub recursive: bool,
    /// Keep permissions and times.
    #[arg(long, short = 'p')]
    pub preserve: bool,
    /// On each host.
    #[command(flatten)]
    pub each: EachHostArgs,
}

/// How a verb for files works on each of its hosts.
#[derive(Clone, Debug, Default, Args)]
pub struct EachHostArgs {
    /// Write a line of JSON for each file.
    #[arg(long)]
    pub json: bool,
    /// Maximum hosts at the same time.
    #[arg(
        long,
        short = 'j',
        value_name = "N",
        default_value_t = 16,
        help_heading = "Many hosts"
    )]
    pub max_parallel: usize,
    /// Write one line per host to this file, in the format of GNU parallel.
    #[arg(long, value_name = "FILE", help_heading = "Many hosts")]
    pub joblog: Option<PathBuf>,
    /// Write the results as JUnit XML for CI, with one test case per host.
    #[arg(long, value_name = "FILE", help_heading = "Many hosts")]
    pub junit: Option<PathBuf>,
    /// Another user.
    #[command(flatten)]
    pub becomes: BecomeArgs,
}

/// Arguments of `edit`.
#[derive(Debug, Args)]
#[command(after_help = "\
The editor is $VISUAL, else $EDITOR, else vi. Only a file that nobody changed meanwhile is replaced;
otherwise your copy is kept here. A file that does not exist is created.

Exit codes: 0 saved or unchanged; 1 not saved; 2 invalid command line; 255 the host can't be reached.

Example:
  sshjobs edit web1:/etc/nginx/nginx.conf")]
pub struct EditArgs {
    /// The file.
    #[arg(value_name = "HOST:PATH", add = ArgValueCompleter::new(candidates::local_or_host))]
    pub file: PathBuf,
    /// Keep the replaced file beside the new one.
    #[arg(long)]
    pub backup: bool,
    /// Write into the file, which keeps its owner, links and mounts, in place of replacing it.
    /// Readers may see half of the content.
    #[arg(long, conflicts_with = "backup")]
    pub in_place: bool,
    /// Another user.
    #[command(flatten)]
    pub becomes: BecomeArgs,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// Parses permissions in octal.
fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        Ok(_) | Err(_) => Err("write permissions in octal, as 0644".to_owned()),
    }
}

//! Resolves names as ssh does, including jump hosts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Output, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;

use super::destination::Destination;
use super::error::MOST_JUMPS;
use super::fallback::{self, SshDefaults, is_plain_hostname};
use super::lines::{SYSTEM_FILE, Unreadable};
use super::options::SshOptions;
use super::ssh_config::{LastSshConfig, SshConfig};
use super::{Aliases, ConfigError, HostConfig, HostSettings};
use crate::files::off_runtime;

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Slots for processes of ssh. More of them would only wait for a core.
static SSH_SLOTS: Semaphore = Semaphore::const_new(8);
/// What ssh says for a user id without a name, as in containers that run as any user. It then does nothing.
const NAMELESS: &[u8] = b"No user exists for uid";

/// Turns names into [`HostConfig`]s, so that they mean the same as to ssh.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    /// An ssh_config file that replaces the user's and the system's.
    pub ssh_config: Option<PathBuf>,
    /// Settings that override ssh_config, by host, including jump hosts.
    pub settings: BTreeMap<String, HostSettings>,
    /// Whether ProxyCommand may be used.
    pub proxy_commands: bool,
    /// More arguments for `ssh -G`, such as `-o` and an option. They apply to the host itself and
    /// not to its jump hosts.
    pub arguments: Vec<String>,
    /// Answers that hold for all names.
    pub cache: SshCache,
}

/// The text of ssh_config and the defaults of ssh, which a [`Resolver`] reads once for many names.
#[derive(Clone, Debug, Default)]
pub struct SshCache {
    config: Arc<LastSshConfig>,
    defaults: PrintedDefaults,
    /// Those with BatchMode.
    batch_defaults: PrintedDefaults,
}

/// The values that the installed ssh uses where no file sets one.
#[derive(Clone, Debug, Default)]
struct PrintedDefaults(Arc<OnceCell<Option<SshDefaults>>>);

impl PrintedDefaults {
    /// Asks ssh for them, once in the life of the resolver. `None` if that has failed.
    async fn printed(&self, arguments: &[&str]) -> Option<&SshDefaults> {
        let asked = self.0.get_or_init(async || {
            let words = [&["-F", "none"], arguments, &["-G", "any"]].concat();
            let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            let printed = run_ssh(&words).await.ok()?;
            printed
                .status
                .success()
                .then(|| SshDefaults::printed(options_in(&printed.stdout)))
        });
        asked.await.as_ref()
    }
}

impl Resolver {
    /// The options of `destination`, read without the help of ssh.
    async fn read_without_ssh(
        &self,
        destination: &Destination,
        defaults: SshDefaults,
    ) -> Result<Vec<(String, String)>, ConfigError> {
        let config = self.read_config().await?;
        fallback::resolve(config.items_for(&destination.host), destination, &defaults)
    }

    async fn read_config(&self) -> Result<Arc<SshConfig>, ConfigError> {
        let file = self.ssh_config.clone();
        let last = Arc::clone(&self.cache.config);
        let path = file.clone().unwrap_or_else(|| "ssh_config".into());
        let unreadable = |file: PathBuf, source| ConfigError::Unreadable { file, source };
        off_runtime(&path, move || last.read(file.as_deref()))
            .await
            .map_err(|source| unreadable("ssh_config".into(), source))?
            .map_err(|Unreadable { file, source }| unreadable(file, source))
    }

    /// The options of `destination` as `ssh -G` would print them. `None` if `ssh -G` must be asked.
    async fn read_if_understood(&self, destination: &Destination) -> Option<Vec<(String, String)>> {
        let defaults = self.cache.defaults.printed(&[]).await?;
        let is_complete = self.ssh_config.is_some()
            // Another build of ssh may have its system's file elsewhere.
            || (Path::new(SYSTEM_FILE).exists()
                && defaults.get("globalknownhostsfile")?.starts_with("/etc/ssh/"));
        let config = self.read_config().await.ok()?;
        if !is_complete || !config.is_understood {
            return None;
        }
        let resolve = |defaults| {
            let items = config.items_for(&destination.host);
            fallback::resolve(items, destination, defaults).ok().map(SshOptions)
        };
        let mut options = resolve(defaults)?;
        if options.is("batchmode") {
            // Debian's ssh has another default for ServerAliveInterval then.
            let of_batch = ["-o", "BatchMode=yes"];
            options = resolve(self.cache.batch_defaults.printed(&of_batch).await?)?;
        }
        let is_plain = destination.host.is_ascii() && is_plain_hostname(options.get("hostname")?);
        let mut jumps = options.jumps().into_iter().flat_map(|jumps| jumps.split(','));
        // ssh refuses, or leaves out, a host that is its own jump host.
        let is_another = |jump: &str| {
            Destination::parse(jump)
                .is_ok_and(|jump| !jump.host.eq_ignore_ascii_case(&destination.host))
        };
        let are_jumps = jumps.all(is_another);
        (is_plain && are_jumps).then_some(options.0)
    }

    /// Resolves `name`, by reading ssh_config. If the files are not plain, runs `ssh -G`, for at most 10 s. Without an ssh program, or for a user id without a name, that is an error.
    pub async fn resolve(&self, name: &str) -> Result<HostConfig, ConfigError> {
        let destination = Destination::parse(name)?;
        let settings = self.settings_of(name).without_overridden(&self.arguments);
        let options = SshOptions(self.ask_ssh(&destination, &self.arguments).await?);
        options.refuse(name, &["RemoteCommand", "RevokedHostKeys"])?;
        let jump = match options.jumps() {
            Some(jumps) => Some(Box::new(self.resolve_jumps(name, jumps, 1).await?)),
            None => None,
        };
        Ok(HostConfig {
            jump,
            name: name.to_owned(),
            ..self.expand(options, destination, &settings).await?
        })
    }

    /// Host names in ssh_config's `Host` lines without wildcards or negations. Follows `Include`.
    ///
    /// Lists names only; [`resolve`](Self::resolve) says what they mean. A missing file is empty, unless it was
    /// named explicitly.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn aliases(&self) -> io::Result<Arc<Aliases>> {
        let with_path = |file: &Path, error: &io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", file.display()))
        };
        if let Some(file) = self.ssh_config.clone() {
            let looked = off_runtime(&file, {
                let file = file.clone();
                move || file.metadata()
            });
            looked.await?.map_err(|error| with_path(&file, &error))?;
        }
        match self.read_config().await {
            Ok(config) => Ok(Arc::clone(&config.aliases)),
            Err(ConfigError::Unreadable { file, source }) => Err(with_path(&file, &source)),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    pub(super) fn settings_of(&self, name: &str) -> &HostSettings {
        static NONE: LazyLock<HostSettings> = LazyLock::new(HostSettings::default);
        self.settings.get(name).unwrap_or(&NONE)
    }

    /// Resolves the last jump host, which is reached through those before it. The first is reached
    /// as its own configuration says, as in ssh.
    fn resolve_jumps<'a>(
        &'a self,
        name: &'a str,
        jumps: &'a str,
        depth: usize,
    ) -> Pin<Box<dyn Future<Output = Result<HostConfig, ConfigError>> + Send + 'a>> {
        Box::pin(async move {
            if depth > MOST_JUMPS {
                return Err(ConfigError::TooManyJumps(name.to_owned()));
            }
            let (before, last) = jumps
                .rsplit_once(',')
                .map_or((None, jumps), |(before, last)| (Some(before), last));
            let destination = Destination::parse(last)?;
            let mut options = SshOptions(self.ask_ssh(&destination, &[]).await?);
            // No command runs on a jump host, so its RemoteCommand does not matter.
            options.refuse(&destination.host, &["RevokedHostKeys"])?;
            if before.is_some() {
                // The route to it is given explicitly.
                options.0.retain(|(key, _)| key != "proxycommand");
            }
            let jump = match before.or(options.jumps()) {
                Some(jumps) => Some(Box::new(self.resolve_jumps(name, jumps, depth + 1).await?)),
                None => None,
            };
            let settings = self.settings_of(&destination.host);
            Ok(HostConfig {
                jump,
                ..self.expand(options, destination, settings).await?
            })
        })
    }

    /// Expands tokens and examines which files exist.
    async fn expand(
        &self,
        options: SshOptions,
        destination: Destination,
        settings: &HostSettings,
    ) -> Result<HostConfig, ConfigError> {
        let proxy_commands = self.proxy_commands;
        let settings = settings.clone();
        let name = destination.host.clone();
        // Unexpanded: it only identifies the read for `off_runtime`.
        let first = options.get("identityfile").unwrap_or_default().to_owned();
        off_runtime(Path::new(&first), move || {
            options.to_config(proxy_commands, &destination, &settings)
        })
        .await
        .map_err(|source| ConfigError::Unreadable {
            file: format!("the files of {name}").into(),
            source,
        })?
    }

    pub(super) async fn ask_ssh(
        &self,
        destination: &Destination,
        arguments: &[String],
    ) -> Result<Vec<(String, String)>, ConfigError> {
        // Arguments are options of ssh, which only ssh parses.
        if arguments.is_empty()
            && let Some(options) = self.read_if_understood(destination).await
        {
            return Ok(options);
        }
        let mut words: Vec<OsString> = Vec::new();
        if let Some(file) = &self.ssh_config {
            words.extend(["-F".into(), file.into()]);
        }
        // If an option is given twice, the first applies.
        words.extend(arguments.iter().map(OsString::from));
        if let Some(user) = &destination.user {
            words.extend(["-l".into(), user.into()]);
        }
        if let Some(port) = destination.port {
            words.extend(["-p".into(), port.to_string().into()]);
        }
        words.extend(["-G".into(), (&destination.host).into()]);
        let output = run_ssh(&words).await;
        let is_missing = matches!(
            &output,
            Err(ConfigError::NoSsh(error)) if error.kind() == io::ErrorKind::NotFound
        );
        let is_nameless = output.as_ref().is_ok_and(|output| {
            !output.status.success() && output.stderr.trim_ascii().starts_with(NAMELESS)
        });
        if (is_missing || is_nameless) && arguments.is_empty() {
            return self.read_without_ssh(destination, SshDefaults::without_ssh()).await;
        }
        if is_nameless {
            return Err(ConfigError::Nameless(nix::unistd::getuid().as_raw()));
        }
        let output = output?;
        if !output.status.success() {
            // ssh's lines end with CR LF.
            let stderr = String::from_utf8_lossy(&output.stderr);
            let message = stderr
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .collect::<Vec<_>>()
                .join("; ");
            // ssh uses these words for its own arguments.
            if message.starts_with("command-line") || message.starts_with("Bad port") {
                return Err(ConfigError::Arguments(message));
            }
            return Err(ConfigError::Rejected {
                name: destination.host.clone(),
                message,
            });
        }
        Ok(options_in(&output.stdout))
    }
}

/// Runs ssh for its answer to `-G`.
async fn run_ssh(words: &[OsString]) -> Result<Output, ConfigError> {
    // The time limit is for ssh, not for waiting while others run.
    let _turn = SSH_SLOTS.acquire().await.expect("it is never closed");
    let mut ssh = Command::new("ssh");
    ssh.args(words).stdin(Stdio::null()).kill_on_drop(true);
    timeout(RESOLVE_TIMEOUT, ssh.output())
        .await
        .map_err(|_| ConfigError::TimedOut(RESOLVE_TIMEOUT))?
        .map_err(ConfigError::NoSsh)
}

/// The options that `ssh -G` has printed, a line each.
fn options_in(printed: &[u8]) -> Vec<(String, String)> {
    String::from_utf8_lossy(printed)
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lines that are read here.
    const PLAIN: [&str; 28] = [
        "Host web1",
        "Host web1 db1",
        "Host web*",
        "Host *.example.org !web2.example.org",
        "Host *",
        "Host web?",
        "Host !web1 *",
        "Match all",
        "HostName 10.0.0.1",
        "HostName %h.example.org",
        "HostName WEB.example.org",
        "Port 2222",
        "User deploy",
        "IdentityFile ~/.ssh/%h_key",
        "IdentityFile /keys/a",
        "IdentitiesOnly yes",
        "BatchMode true",
        "StrictHostKeyChecking accept-new",
        "StrictHostKeyChecking OFF",
        "ProxyJump bastion",
        "ProxyJump none",
        "ProxyJump a@b:22,c",
        "ConnectTimeout 7",
        "UserKnownHostsFile /k1 /k2",
        "HostKeyAlgorithms ssh-ed25519",
        "SendEnv LANG LC_*",
        "PubkeyAuthentication no",
        "NumberOfPasswordPrompts 1",
    ];

    /// Lines that ssh refuses, or understands in its own way.
    const ODD: [&str; 49] = [
        "HostName %%x",
        "Host \"web1\" \"db 1\"",
        "Match host web1",
        "Match exec \"true\"",
        "Port=23",
        "Port 0",
        "Port 70000",
        "Port ssh",
        "User = \"deploy\"",
        "User %r",
        "IdentityFile \"/keys/with space\"",
        "IdentityFile 'x y'",
        "Host 'web1'",
        "Host web\"1\"",
        "User \"deploy",
        "Port == 22",
        "ProxyCommand",
        "ProxyCommand echo don't",
        "Host web1\u{a0}db1",
        "Include ~nobody/x",
        "Host x=\"web1\"",
        "Host \"x\"\"web1\"",
        "Host x\rweb1",
        "Host x\u{b}web1",
        "\u{c}",
        "HostName 127.1",
        "HostName ::0001",
        "HostName 0x7f.1",
        "HostName %n.invalid",
        "HostName BAN\u{212a}.invalid",
        "UserKnownHostsFile ~nobody/kh",
        "UserKnownHostsFile none /p",
        "IdentityFile ~nobody/key",
        "ProxyJump NONE",
        "ProxyJump a:0",
        "ProxyCommand NONE",
        "HostKeyAlias none",
        "HostKeyAlias \"\"",
        "RefuseConnection no",
        "ConnectTimeout 2147483648",
        "Include",
        "Compression",
        "IdentitiesOnly maybe",
        "ProxyJump web1",
        "ProxyJump b:port",
        "ProxyCommand nc \"%h\" %p",
        "HostKeyAlias alias # why",
        "ConnectTimeout 1m",
        "NoSuchOption yes",
    ];

    async fn asked(file: &Path, host: &str) -> Option<Vec<(String, String)>> {
        let words = ["-F", file.to_str()?, "-G", host].map(OsString::from);
        let output = run_ssh(&words).await.unwrap();
        output.status.success().then(|| options_in(&output.stdout))
    }

    fn config(options: Vec<(String, String)>, destination: &Destination) -> String {
        let config = SshOptions(options).to_config(true, destination, &HostSettings::default());
        format!("{config:#?}")
    }

    /// Compares what a name means here with what it means to ssh. Returns whether it was read here.
    fn compare(lines: &[&str], host: &str) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        std::fs::write(&file, lines.join("\n")).unwrap();
        let resolver = Resolver {
            ssh_config: Some(file.clone()),
            ..Resolver::default()
        };
        let destination = Destination::parse(host).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (ours, theirs) = runtime.block_on(async {
            (
                resolver.read_if_understood(&destination).await,
                asked(&file, host).await,
            )
        });
        // What is not understood is left to ssh.
        let Some(ours) = ours else { return false };
        let Some(theirs) = theirs else { panic!("ssh refuses {lines:#?}") };
        assert_eq!(
            config(ours, &destination),
            config(theirs, &destination),
            "{lines:#?}"
        );
        true
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn a_name_means_what_it_means_to_ssh(
            mut lines in prop::collection::vec(prop::sample::select(&PLAIN[..]), 1..9),
            odd in prop::option::weighted(0.2, prop::sample::select(&ODD[..])),
            host in prop::sample::select(vec!["web1", "db1", "web2.example.org", "x.example.org", "WEB1"]),
        ) {
            lines.extend(odd);
            compare(&lines, host);
        }
    }

    #[test]
    fn each_line_alone_means_what_it_means_to_ssh() {
        for line in PLAIN {
            assert!(
                compare(&[line], "web1") || line.contains("Algorithms"),
                "{line}"
            );
        }
        for line in ODD {
            compare(&[line], "web1");
            compare(&["Host other", line], "web1");
        }
        for host in [
            "127.1",
            "::0001",
            "0x7f.1",
            "2130706433",
            "10.0.0.1",
            "BAN\u{212a}",
        ] {
            compare(&["Port 23"], host);
        }
    }

    #[tokio::test]
    async fn a_common_configuration_is_read_without_ssh() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let text = "Host web1\n  HostName 10.0.0.1\n  User deploy\n  IdentityFile ~/.ssh/web\n\
                    Host other\n  HostKeyAlgorithms ssh-ed25519\nHost *\n  SendEnv LANG\n  ServerAliveInterval 5\n";
        std::fs::write(&file, text).unwrap();
        let resolver = Resolver {
            ssh_config: Some(file),
            ..Resolver::default()
        };
        let is_read = async |host: &str| {
            let destination = Destination::parse(host).unwrap();
            resolver.read_if_understood(&destination).await.is_some()
        };
        assert!(is_read("web1").await && is_read("elsewhere").await);
        assert!(
            !is_read("other").await,
            "only ssh can say what applies there"
        );
        let missing = Resolver {
            ssh_config: Some(directory.path().join("missing")),
            ..Resolver::default()
        };
        let destination = Destination::parse("web1").unwrap();
        assert!(missing.read_if_understood(&destination).await.is_none());
    }
}

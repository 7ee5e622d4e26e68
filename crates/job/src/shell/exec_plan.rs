//! The exec string of a job for each kind of login shell. User input is inert in it.

use secrecy::SecretString;

use super::become_command::change_user_command;
use super::prelude::{Announce, Prelude, env_header};
use super::quoting::{LoginShell, for_shell, inert, quote};
use super::script::END_OF_SCRIPT;
use crate::announced::{Gate, TELL_MACHINE};
use crate::{CommandShell, JobSpec, Nonce};

/// Why a host can't run a job.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    /// The host accepts only bare commands.
    #[error("this host runs bare commands only: it can't take {0}")]
    BareHost(&'static str),
    /// The exec string is longer than Linux accepts.
    #[error(
        "the command and the text before it have {0} bytes; hosts accept at most {LONGEST_COMMAND}"
    )]
    TooLong(usize),
}

/// How a job is started: its exec string, and the first data on its stdin.
#[derive(Debug)]
pub struct ExecPlan {
    /// The exec string (RFC 4254 §6.5).
    pub command: String,
    /// Values for the prelude, which reads them from stdin so that they don't appear in the process
    /// list.
    pub stdin_header: Option<SecretString>,
    /// Number of process group announcements on stdout, each with the nonce: 0 for a bare command;
    /// 2 on a terminal with variables (the second confirms that they were read); otherwise 1.
    pub announcements: u32,
    /// Whether the login shell starts twice, for the prelude and for the command, so that its
    /// startup files print everything twice.
    pub repeats_noise: bool,
    /// Whether to wait for a [`Greeting`](crate::announced::Greeting) before the command
    /// counts as started.
    pub expects_greeting: bool,
    /// The steps to another user, which come before the announcements.
    pub gate: Option<Gate>,
}

/// Longest exec string: Linux's MAX_ARG_STRLEN without the final NUL.
const LONGEST_COMMAND: usize = (128 << 10) - 1;

impl ExecPlan {
    /// Checks, before a connection is made, whether any host could run `spec`.
    pub fn check(spec: &JobSpec) -> Result<(), PlanError> {
        Self::new(spec, LoginShell::Posix, Nonce::new()).map(drop)
    }

    /// Plans `spec` for a host with this login shell.
    ///
    /// The command is passed unchanged. Directory, variables and their values are inert. The
    /// prelude announces the process group and has a line of its own, so that a syntax error in the
    /// command does not prevent it.
    pub fn new(spec: &JobSpec, shell: LoginShell, nonce: Nonce) -> Result<Self, PlanError> {
        if shell == LoginShell::Bare {
            return Self::bare(spec);
        }
        let parts = Parts::new(spec, &nonce, Announce::ProcessGroup);
        let command = match shell {
            LoginShell::Posix => parts.as_script(),
            LoginShell::Foreign => parts.for_foreign_shell(),
            LoginShell::Bare => unreachable!("planned above"),
        };
        parts.plan(spec, command, shell)
    }

    /// Plans `spec` for a host whose login shell is not known yet. Assumes `likely`: POSIX by
    /// default, or the shell remembered for the host.
    ///
    /// The plan [expects a greeting](Self::expects_greeting). A shell of another kind runs no part
    /// of the command: csh and fish refuse `NAME=value && …` as a whole, a restricted shell can't
    /// redirect. The command is one word for `eval`, because csh would otherwise run its later
    /// lines.
    pub fn untried(spec: &JobSpec, likely: LoginShell, nonce: Nonce) -> Result<Self, PlanError> {
        let parts = Parts::new(spec, &nonce, Announce::Machine);
        let command = match likely {
            LoginShell::Foreign => parts.for_foreign_shell(),
            LoginShell::Posix | LoginShell::Bare => {
                let nonce = nonce.as_str();
                let prelude = eval(&parts.prelude);
                let command = eval_unless_plain(&parts.command);
                format!(
                    "SSHJOBS_JOB={nonce} && export SSHJOBS_JOB && echo >/dev/null && {prelude} && {command}"
                )
            }
        };
        let plan = parts.plan(spec, command, likely)?;
        Ok(Self {
            expects_greeting: true,
            ..plan
        })
    }

    fn bare(spec: &JobSpec) -> Result<Self, PlanError> {
        if spec.cwd.is_some() {
            return Err(PlanError::BareHost("a working directory"));
        }
        if !spec.env.is_empty() {
            return Err(PlanError::BareHost("environment variables"));
        }
        if spec.becomes.is_some() {
            return Err(PlanError::BareHost("another user"));
        }
        if spec.env_setup.is_some() {
            return Err(PlanError::BareHost("commands that set up the environment"));
        }
        Ok(Self {
            command: spec.command.clone(),
            stdin_header: None,
            announcements: 0,
            repeats_noise: false,
            expects_greeting: false,
            gate: None,
        })
    }
}

/// The parts of an exec string, before they are put together for a login shell.
struct Parts {
    /// The line before the command.
    prelude: String,
    command: String,
    /// Who interprets the command.
    shell: CommandShell,
    header: Option<SecretString>,
    gate: Option<Gate>,
}

impl Parts {
    fn new(spec: &JobSpec, nonce: &Nonce, announce: Announce) -> Self {
        let header = env_header(spec);
        let command = if spec.script().is_some() {
            // The shell must not exec the command, because it removes the script afterwards.
            format!("{}\n{END_OF_SCRIPT}", spec.command_line())
        } else {
            spec.command_line().into_owned()
        };
        let full = Prelude {
            mark: nonce,
            announce,
            cwd: spec.cwd.as_deref(),
            header: header.as_ref(),
            on_terminal: spec.terminal.is_some(),
        };
        let Some(becomes) = spec.becomes.clone() else {
            return Self {
                prelude: full.line(),
                command,
                shell: spec.shell,
                header,
                gate: None,
            };
        };

        // login shell: `at_login`, then sudo, doas or su
        //   └ the other user's /bin/sh: `as_user`, then the command
        let as_user = Prelude {
            announce: Announce::GroupOfAnother,
            ..full
        };
        let script = format!("{}\n{command}", as_user.line());
        // Marks the login shell, and greets, which proves that it understood the command.
        let at_login = Prelude {
            cwd: None,
            header: None,
            ..full
        };
        // A word of its own: the job's mark is in both preludes.
        let gate = Gate::new(becomes, &Nonce::new(), full.on_terminal);
        Self {
            prelude: at_login.line(),
            command: change_user_command(&gate, &script),
            shell: CommandShell::Posix,
            header,
            gate: Some(gate),
        }
    }

    /// For a POSIX shell.
    fn as_script(&self) -> String {
        format!("{}\n{}", self.prelude, self.command)
    }

    /// The prelude runs in `/bin/sh`, then the command in the login shell if it is written for that.
    fn for_foreign_shell(&self) -> String {
        let script = match self.shell {
            CommandShell::Posix => self.as_script(),
            CommandShell::Login => format!(
                "{}\nexec \"$SHELL\" -c {}",
                self.prelude,
                quote(&self.command)
            ),
        };
        for_shell(script, LoginShell::Foreign)
    }

    fn plan(
        self,
        spec: &JobSpec,
        command: String,
        shell: LoginShell,
    ) -> Result<ExecPlan, PlanError> {
        if command.len() > LONGEST_COMMAND {
            return Err(PlanError::TooLong(command.len()));
        }
        let announcements = if self.header.is_some() && spec.terminal.is_some() {
            2
        } else {
            1
        };
        Ok(ExecPlan {
            command,
            stdin_header: self.header,
            announcements,
            repeats_noise: shell == LoginShell::Foreign && self.shell == CommandShell::Login,
            expects_greeting: false,
            gate: self.gate,
        })
    }
}

/// `script` as a command of one line, quoted so that every shell finds the same closing quote.
fn eval(script: &str) -> String {
    // In csh `!` and line ends keep their meaning within quotes.
    if script.contains(['\'', '\\', '!', '\n']) {
        format!("eval \"$(printf %b '{}')\"", inert(script))
    } else {
        format!("eval '{script}'")
    }
}

/// A plain command unchanged, so that it is readable in a list of processes; any other as in
/// [`eval`].
fn eval_unless_plain(command: &str) -> String {
    if command
        .chars()
        .all(|c: char| c.is_ascii_alphanumeric() || " _./:=+,@%-".contains(c))
        && !command.trim().is_empty()
    {
        command.to_owned()
    } else {
        eval(command)
    }
}

/// Commands that detect the login shell, each with the shell that it detects. That shell prints
/// `nonce`. Try them in order; if none prints the nonce, the host is [`LoginShell::Bare`].
pub fn shell_probes(nonce: &Nonce) -> [(String, LoginShell); 2] {
    // The nonce is split, because a forced command may only echo its command line.
    let (first, rest) = nonce.as_str().split_at(1);
    let word = format!("{first}''{rest}");
    [
        // csh and fish reject `${0%x}`, and a restricted shell rejects the redirection.
        (
            format!("test \"${{0%x}}\" && echo >/dev/null && echo {word} $$ && {TELL_MACHINE}"),
            LoginShell::Posix,
        ),
        (
            for_shell(
                format!("test \"$SHELL\" && echo {word} $$ && {TELL_MACHINE}"),
                LoginShell::Foreign,
            ),
            LoginShell::Foreign,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use secrecy::ExposeSecret;

    use super::*;
    use crate::Draft;
    use crate::announced::{Greeted, Greeting};

    fn draft(command: &str) -> Draft {
        Draft::new("web1", command)
    }

    fn spec(command: &str) -> JobSpec {
        draft(command).try_into().unwrap()
    }

    fn spec_in(cwd: &str, command: &str) -> JobSpec {
        let mut draft = draft(command);
        draft.cwd = Some(cwd.to_owned());
        draft.try_into().unwrap()
    }

    fn run(shell: &str, plan: &ExecPlan, stdin: &str) -> (String, Option<i32>) {
        use std::io::Write as _;
        let mut child = Command::new(shell)
            .args(["-c", &plan.command])
            .env("SHELL", shell)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let header = plan.stdin_header.as_ref().map_or("", |header| header.expose_secret());
        pipe.write_all(format!("{header}{stdin}").as_bytes()).unwrap();
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        (
            String::from_utf8(output.stdout).unwrap(),
            output.status.code(),
        )
    }

    /// All ways to start a job in a shell.
    fn plans(spec: &JobSpec) -> Vec<ExecPlan> {
        let shells = [LoginShell::Posix, LoginShell::Foreign];
        let known = shells.map(|shell| ExecPlan::new(spec, shell, Nonce::new()).unwrap());
        let untried = shells.map(|shell| ExecPlan::untried(spec, shell, Nonce::new()).unwrap());
        known.into_iter().chain(untried).collect()
    }

    const HOSTILE: &str = "a'b\"c$(echo pwned)`echo pwned`\n\\d;e&f|g!h*~ \t ";

    #[test]
    fn values_are_inert_and_not_in_the_command_line() {
        let mut draft = draft("printf %s \"$V\"; cat");
        draft.env.insert("V".into(), HOSTILE.into());
        let spec = draft.try_into().unwrap();
        for plan in plans(&spec) {
            assert!(!plan.command.contains("pwned"));
            let (stdout, status) = run("/bin/sh", &plan, "the rest");
            let output = stdout.split_once('\n').unwrap().1;
            assert_eq!((output, status), (&*format!("{HOSTILE}the rest"), Some(0)));
        }
    }

    #[test]
    fn a_script_that_is_cut_off_does_not_run() {
        use std::io::Write as _;
        let mut draft = draft("sh \"$SSHJOBS_SCRIPT\"");
        draft.set_script("echo first\necho second\n".into());
        let spec: JobSpec = draft.try_into().unwrap();
        let home = tempfile::tempdir().unwrap();
        for shell in [LoginShell::Posix, LoginShell::Foreign] {
            let plan = ExecPlan::new(&spec, shell, Nonce::new()).unwrap();
            let header = plan.stdin_header.unwrap();
            let header = header.expose_secret();
            let whole = header.len();
            for (length, status) in [
                (whole, 0),
                (whole - 20, 125),
                (header.find("second").unwrap(), 125),
            ] {
                let mut child = Command::new("/bin/sh")
                    .args(["-c", &plan.command])
                    .envs([
                        ("SHELL", "/bin/sh"),
                        ("XDG_CACHE_HOME", home.path().to_str().unwrap()),
                    ])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let mut pipe = child.stdin.take().unwrap();
                pipe.write_all(header.get(..length).unwrap().as_bytes()).unwrap();
                drop(pipe);
                let output = child.wait_with_output().unwrap();
                let printed = String::from_utf8(output.stdout).unwrap();
                assert_eq!(output.status.code(), Some(status), "{length}: {printed}");
                assert_eq!(
                    printed.contains("first"),
                    status == 0,
                    "{length}: {printed}"
                );
            }
            let left = std::fs::read_dir(home.path().join("sshjobs/scripts")).unwrap().count();
            assert_eq!(left, 0, "no file is left");
        }
    }

    #[test]
    fn a_hostile_directory_is_inert() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join(HOSTILE.trim());
        std::fs::create_dir(&directory).unwrap();
        let spec = spec_in(directory.to_str().unwrap(), "pwd");
        let plan = ExecPlan::new(&spec, LoginShell::Posix, Nonce::new()).unwrap();
        let (stdout, _) = run("/bin/sh", &plan, "");
        assert_eq!(
            stdout.split_once('\n').unwrap().1,
            format!("{}\n", directory.display())
        );
    }

    #[test]
    fn a_missing_directory_ends_the_job_with_125() {
        let spec = spec_in("/does/not/exist", "echo never");
        let plan = ExecPlan::new(&spec, LoginShell::Posix, Nonce::new()).unwrap();
        assert_eq!(run("/bin/sh", &plan, "").1, Some(125));
    }

    #[test]
    fn the_command_is_what_the_user_asked_for() {
        for command in [
            "printf '%s\n' \"$(echo 'a b')\" # c",
            "for i in 1 2; do\necho $i\ndone",
            "echo 'it'\\''s'",
        ] {
            let bare = Command::new("/bin/sh").args(["-c", command]).output().unwrap();
            for plan in plans(&spec(command)) {
                let (stdout, status) = run("/bin/sh", &plan, "");
                assert_eq!(stdout.split_once('\n').unwrap().1.as_bytes(), bare.stdout);
                assert_eq!(status, bare.status.code());
            }
        }
    }

    #[test]
    fn a_first_command_greets_with_its_machine() {
        for likely in [LoginShell::Posix, LoginShell::Foreign] {
            let nonce = Nonce::new();
            let plan =
                ExecPlan::untried(&spec("echo it\necho works"), likely, nonce.clone()).unwrap();

            let (stdout, _) = run("/bin/sh", &plan, "");

            assert!(
                matches!(
                    Greeting::new(&nonce).read(stdout.as_bytes()),
                    Greeted::By(Some(_))
                ),
                "{stdout}"
            );
            assert!(stdout.ends_with("\nit\nworks\n"));
        }
    }

    #[test]
    fn a_shell_that_is_not_posix_runs_nothing_of_a_first_command() {
        let made = tempfile::tempdir().unwrap().path().join("made");
        for command in [
            "touch MADE",
            "touch MADE\n touch MADE",
            "true || true; touch MADE; 'it`s'",
            "!! \\\ntouch MADE",
        ] {
            let command = command.replace("MADE", &made.display().to_string());
            let plan = ExecPlan::untried(&spec(&command), LoginShell::Posix, Nonce::new()).unwrap();
            assert!(!plan.command.contains('\n'), "{}", plan.command);
            for shell in ["tcsh", "csh", "fish"] {
                // Not every machine has them.
                let started = Command::new(shell).args(["-c", &plan.command]).output();
                let greeted = started
                    .map(|output| String::from_utf8_lossy(&output.stdout).contains("machine"));
                assert!(
                    !greeted.unwrap_or(false) && !made.exists(),
                    "{shell}: {}",
                    plan.command
                );
            }
        }
    }

    #[test]
    fn a_syntax_error_does_not_swallow_the_process_group() {
        let nonce = Nonce::new();
        let spec = spec("if (((");
        let known = ExecPlan::new(&spec, LoginShell::Posix, nonce.clone()).unwrap();
        let untried = ExecPlan::untried(&spec, LoginShell::Posix, nonce.clone()).unwrap();
        for plan in [known, untried] {
            assert!(run("/bin/sh", &plan, "").0.starts_with(nonce.as_str()));
        }
    }

    #[test]
    fn a_command_that_no_host_would_take_is_refused() {
        let longest = |length: usize| ExecPlan::check(&spec(&"x".repeat(length)));
        assert_eq!(longest(128_000), Ok(()));
        assert!(matches!(
            longest(131_072),
            Err(PlanError::TooLong(131_072..))
        ));
        // Where it has to be written in characters that every shell reads alike, it gets longer.
        let escaped = ExecPlan::new(
            &spec(&"!".repeat(40_000)),
            LoginShell::Foreign,
            Nonce::new(),
        );
        assert!(matches!(escaped, Err(PlanError::TooLong(_))));
        let mut with_env = draft("true");
        with_env.env.insert("V".into(), "x".repeat(100_000).into());
        assert_eq!(
            ExecPlan::check(&with_env.try_into().unwrap()),
            Ok(()),
            "values go by stdin"
        );
    }

    #[test]
    fn a_bare_host_gets_the_bare_command() {
        let plan = ExecPlan::new(&spec("show version"), LoginShell::Bare, Nonce::new()).unwrap();
        assert_eq!(
            (plan.command.as_str(), plan.announcements),
            ("show version", 0)
        );
        assert!(ExecPlan::new(&spec_in("/", "x"), LoginShell::Bare, Nonce::new()).is_err());
    }
}

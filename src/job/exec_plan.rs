use secrecy::SecretString;

use super::machine_id::TELL_MACHINE;
use super::prelude::{env_header, prelude};
use super::shell::{for_shell, quote};
use super::{JobSpec, LoginShell, Nonce};

/// Why a job can't be run as asked on a host.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// The host takes only bare commands.
    #[error("this host runs bare commands only: it can't take {0}")]
    BareHost(&'static str),
    /// The command is too long: Linux limits an argument to 128 KiB, and sshd a packet to 256 KiB.
    #[error(
        "with what is sent before it the command has {0} bytes, and hosts take {LONGEST_COMMAND} at most"
    )]
    TooLong(usize),
}

/// How a job is started: what is sent as exec string, and what is sent first on stdin.
#[derive(Debug)]
pub struct ExecPlan {
    /// The exec string (RFC 4254 §6.5).
    pub command: String,
    /// What the prelude reads from stdin: the values that must not be seen in the process list.
    pub stdin_header: Option<SecretString>,
    /// Announcements of the process group on stdout, with the nonce: none by a bare command; a second one
    /// when a terminal has taken the header in, and stdin is the command's.
    pub announcements: u32,
    /// Whether the login shell runs twice, so that its startup files print everything again.
    pub repeats_noise: bool,
}

/// The longest exec string: Linux's MAX_ARG_STRLEN, without the NUL at its end.
const LONGEST_COMMAND: usize = (128 << 10) - 1;

impl ExecPlan {
    /// Checks whether any host could run `spec`, before a connection is made.
    pub fn check(spec: &JobSpec) -> Result<(), PlanError> {
        Self::new(spec, LoginShell::Posix, Nonce::new()).map(drop)
    }

    /// Plans `spec` for a host with this login shell.
    ///
    /// The command is passed on as it is; directory, variables and their values are inert. The prelude tells the
    /// process group and stands on a line of its own, so that a syntax error in the command can't swallow it.
    pub fn new(spec: &JobSpec, shell: LoginShell, nonce: Nonce) -> Result<Self, PlanError> {
        let command = &spec.command;
        if shell == LoginShell::Bare {
            return Self::bare(spec);
        }
        let header = env_header(spec);
        let prelude = prelude(spec, &nonce, header.as_ref());
        let command = match shell {
            LoginShell::Posix => format!("{prelude}\n{command}"),
            LoginShell::Foreign => {
                let script = format!("{prelude}\nexec \"$SHELL\" -c {}", quote(command));
                for_shell(script, shell)
            }
            LoginShell::Bare => unreachable!("planned above"),
        };
        if command.len() > LONGEST_COMMAND {
            return Err(PlanError::TooLong(command.len()));
        }
        let announcements = if header.is_some() && spec.terminal.is_some() { 2 } else { 1 };
        Ok(Self { command, stdin_header: header, announcements, repeats_noise: shell == LoginShell::Foreign })
    }

    fn bare(spec: &JobSpec) -> Result<Self, PlanError> {
        if spec.cwd.is_some() {
            return Err(PlanError::BareHost("a working directory"));
        }
        if !spec.env.is_empty() {
            return Err(PlanError::BareHost("environment variables"));
        }
        Ok(Self { command: spec.command.clone(), stdin_header: None, announcements: 0, repeats_noise: false })
    }
}

/// Commands that find out what runs exec strings, with the shell each one proves when it prints `nonce`. To be tried in
/// order; when none does, the host is [`LoginShell::Bare`].
pub fn shell_probes(nonce: &Nonce) -> [(String, LoginShell); 2] {
    // A host that only repeats what it is asked, as a forced command may, does not put the word together.
    let (first, rest) = nonce.as_str().split_at(1);
    let word = format!("{first}''{rest}");
    [
        // `${0%x}` is an error to csh and fish, and a restricted shell redirects nothing.
        (
            format!("test \"${{0%x}}\" && echo >/dev/null && echo {word} $$ && {TELL_MACHINE}"),
            LoginShell::Posix,
        ),
        (
            for_shell(format!("test \"$SHELL\" && echo {word} $$ && {TELL_MACHINE}"), LoginShell::Foreign),
            LoginShell::Foreign,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use secrecy::ExposeSecret;

    use super::*;
    use crate::job::Draft;

    fn draft(command: &str) -> Draft {
        Draft::new("web1", command)
    }

    fn spec(command: &str) -> JobSpec {
        draft(command).try_into().unwrap()
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
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    }

    const HOSTILE: &str = "a'b\"c$(echo pwned)`echo pwned`\n\\d;e&f|g!h*~ \t ";

    #[test]
    fn values_are_inert_and_not_in_the_command_line() {
        let mut draft = draft("printf %s \"$V\"; cat");
        draft.env.insert("V".into(), HOSTILE.into());
        let spec = draft.try_into().unwrap();
        for shell in [LoginShell::Posix, LoginShell::Foreign] {
            let plan = ExecPlan::new(&spec, shell, Nonce::new()).unwrap();
            assert!(!plan.command.contains("pwned"));
            let (stdout, status) = run("/bin/sh", &plan, "the rest");
            let output = stdout.split_once('\n').unwrap().1;
            assert_eq!((output, status), (&*format!("{HOSTILE}the rest"), Some(0)));
        }
    }

    #[test]
    fn a_hostile_directory_is_inert() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join(HOSTILE.trim());
        std::fs::create_dir(&directory).unwrap();
        let cwd = Some(directory.to_str().unwrap().into());
        let spec = Draft { cwd, ..draft("pwd") }.try_into().unwrap();
        let plan = ExecPlan::new(&spec, LoginShell::Posix, Nonce::new()).unwrap();
        let (stdout, _) = run("/bin/sh", &plan, "");
        assert_eq!(stdout.split_once('\n').unwrap().1, format!("{}\n", directory.display()));
    }

    #[test]
    fn a_missing_directory_ends_the_job_with_125() {
        let cwd = Some("/does/not/exist".into());
        let spec = Draft { cwd, ..draft("echo never") }.try_into().unwrap();
        let plan = ExecPlan::new(&spec, LoginShell::Posix, Nonce::new()).unwrap();
        assert_eq!(run("/bin/sh", &plan, "").1, Some(125));
    }

    #[test]
    fn the_command_is_what_the_user_asked_for() {
        for command in
            ["printf '%s\n' \"$(echo 'a b')\" # c", "for i in 1 2; do\necho $i\ndone", "echo 'it'\\''s'"]
        {
            let bare = Command::new("/bin/sh").args(["-c", command]).output().unwrap();
            for shell in [LoginShell::Posix, LoginShell::Foreign] {
                let plan = ExecPlan::new(&spec(command), shell, Nonce::new()).unwrap();
                let (stdout, status) = run("/bin/sh", &plan, "");
                assert_eq!(stdout.split_once('\n').unwrap().1.as_bytes(), bare.stdout);
                assert_eq!(status, bare.status.code());
            }
        }
    }

    #[test]
    fn a_syntax_error_does_not_swallow_the_process_group() {
        let nonce = Nonce::new();
        let plan = ExecPlan::new(&spec("if ((("), LoginShell::Posix, nonce.clone()).unwrap();
        assert!(run("/bin/sh", &plan, "").0.starts_with(nonce.as_str()));
    }

    #[test]
    fn a_command_that_no_host_would_take_is_refused() {
        let longest = |length: usize| ExecPlan::check(&spec(&"x".repeat(length)));
        assert_eq!(longest(128_000), Ok(()));
        assert!(matches!(longest(131_072), Err(PlanError::TooLong(131_072..))));
        // Where it has to be written in characters that every shell reads alike, it gets longer.
        let escaped = ExecPlan::new(&spec(&"!".repeat(40_000)), LoginShell::Foreign, Nonce::new());
        assert!(matches!(escaped, Err(PlanError::TooLong(_))));
        let mut with_env = draft("true");
        with_env.env.insert("V".into(), "x".repeat(1 << 20).into());
        assert_eq!(ExecPlan::check(&with_env.try_into().unwrap()), Ok(()), "values go by stdin");
    }

    #[test]
    fn a_bare_host_gets_the_bare_command() {
        let plan = ExecPlan::new(&spec("show version"), LoginShell::Bare, Nonce::new()).unwrap();
        assert_eq!((plan.command.as_str(), plan.announcements), ("show version", 0));
        let with_cwd = Draft { cwd: Some("/".into()), ..draft("x") }.try_into().unwrap();
        assert!(ExecPlan::new(&with_cwd, LoginShell::Bare, Nonce::new()).is_err());
    }
}

use std::fmt::Write;

use secrecy::{ExposeSecret, SecretString};

use super::shell::quote;
use super::{JobSpec, Nonce};

/// One line: announce the process group, mark the environment, go to the directory, read the variables.
pub(super) fn prelude(spec: &JobSpec, nonce: &Nonce, header: Option<&SecretString>) -> String {
    let word = nonce.as_str();
    let mut line = format!("SSHJOBS_JOB={word}; export SSHJOBS_JOB");
    // A terminal would show the values, and take some of their characters for keys.
    let quiet_terminal = header.is_some() && spec.terminal.is_some();
    if quiet_terminal {
        line.push_str("; sshjobs_tty=$(stty -g) && stty raw -echo || exit 125");
    }
    write!(line, "; echo {word} $$").expect("a string takes all");
    if let Some(directory) = spec.cwd.as_deref().map(from_home) {
        // `CDPATH=` keeps cd silent and literal.
        write!(line, "; CDPATH= cd -- {} || exit 125", quote(directory)).expect("a string takes all");
    }
    if let Some(header) = header {
        let count = header.expose_secret().len();
        write!(
            line,
            "; sshjobs_env=$(dd bs=1 count={count} 2>/dev/null) && eval \"$sshjobs_env\" || exit 125; unset sshjobs_env"
        )
        .expect("a string takes all");
    }
    if quiet_terminal {
        write!(line, "; stty \"$sshjobs_tty\"; unset sshjobs_tty; echo {word} $$")
            .expect("a string takes all");
    }
    line
}

/// A command starts in the home directory, so what `~` stands for is there already.
pub fn from_home(directory: &str) -> &str {
    match directory.strip_prefix("~/") {
        Some("") => ".",
        Some(rest) => rest,
        None if directory == "~" => ".",
        None => directory,
    }
}

/// What the prelude reads from stdin: the values, so that they stand in no command line.
pub(super) fn env_header(spec: &JobSpec) -> Option<SecretString> {
    if spec.env.is_empty() {
        return None;
    }
    let exports =
        spec.env.iter().map(|(name, value)| format!("export {name}={}\n", quote(value.expose_secret())));
    Some(exports.collect::<String>().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_is_where_a_command_starts() {
        assert_eq!(["~", "~/", "~/a b", "~user", "/x"].map(from_home), [".", ".", "a b", "~user", "/x"]);
    }
}

//! The line of shell before a command. It announces the process group, and sets the mark, the
//! directory and the variables.

use std::fmt::Write;

use secrecy::{ExposeSecret, SecretString};

use super::quoting::quote;
use super::script::{END_OF_SCRIPT, lay_down};
use crate::announced::TELL_MACHINE;
use crate::{JobSpec, Nonce};

/// How a job's shell announces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announce {
    /// With its process group.
    ProcessGroup,
    /// With its process group and its machine. This starts one more process.
    Machine,
    /// With the process group in which it is, which another process leads: sudo's, most often.
    GroupOfAnother,
}

/// The line before a command.
#[derive(Clone, Copy)]
pub(crate) struct Prelude<'a> {
    /// Marks the job's processes.
    pub(crate) mark: &'a Nonce,
    pub(crate) announce: Announce,
    /// The working directory.
    pub(crate) cwd: Option<&'a str>,
    /// The [values](env_header) of the variables.
    pub(crate) header: Option<&'a SecretString>,
    pub(crate) on_terminal: bool,
}

impl Prelude<'_> {
    /// One line: announce the process group, mark the environment, go to the directory, read the
    /// variables.
    pub(crate) fn line(&self) -> String {
        let word = self.mark.as_str();
        let mut line = format!("SSHJOBS_JOB={word}; export SSHJOBS_JOB");
        // A terminal would echo the values, and interpret some of their characters as keys.
        let quiet_terminal = self.header.is_some() && self.on_terminal;
        if quiet_terminal {
            // Before the announcement: the client sends the values when it sees that.
            line.push_str("; sshjobs_tty=$(stty -g) && stty raw -echo || exit 125");
        }
        // Before the next steps, which may fail: the process group is reported in any case.
        let group = if self.announce == Announce::GroupOfAnother {
            // The fifth field of stat(5): this shell's name has no space.
            line.push_str(
                "; { read -r _ _ _ _ sshjobs_group _ </proc/$$/stat; } 2>/dev/null || sshjobs_group=$$",
            );
            "$sshjobs_group"
        } else {
            "$$"
        };
        write!(line, "; echo {word} {group}").expect("a string takes all");
        if self.announce == Announce::Machine {
            // A shell whose channel was closed must not run the command.
            write!(line, " \"$({TELL_MACHINE})\" || exit 125").expect("a string takes all");
        }
        if let Some(directory) = self.cwd.map(from_home) {
            // `CDPATH=` keeps cd silent and literal.
            write!(line, "; CDPATH= cd -- {} || exit 125", quote(directory))
                .expect("a string takes all");
        }
        if let Some(header) = self.header {
            // `dd bs=1` stops after the header. A buffered read would take the command's own input.
            let count = header.expose_secret().len();
            write!(
                line,
                "; sshjobs_whole=; sshjobs_env=$(dd bs=1 count={count} 2>/dev/null) && eval \"$sshjobs_env\" && [ \"$sshjobs_whole\" ] || exit 125; unset sshjobs_env sshjobs_whole"
            )
            .expect("a string takes all");
        }
        if quiet_terminal {
            write!(
                line,
                "; stty \"$sshjobs_tty\"; unset sshjobs_tty; echo {word} {group}"
            )
            .expect("a string takes all");
        }
        line
    }
}

/// A script for `/bin/sh` that sets the directory and the variables of a job and then runs its
/// command. It has the values of the variables, and must not become a part of a command line.
pub fn whole_script(spec: &JobSpec) -> SecretString {
    let mut script = exports(spec);
    if let Some(directory) = spec.cwd.as_deref().map(from_home) {
        writeln!(script, "CDPATH= cd -- {} || exit 125", quote(directory))
            .expect("a string takes all");
    }
    let command = quote(&spec.command_line());
    if let Some(text) = spec.script() {
        script.push_str(&lay_down(text.expose_secret()));
        writeln!(script, "/bin/sh -c {command}\n{END_OF_SCRIPT}").expect("a string takes all");
    } else {
        writeln!(script, "exec /bin/sh -c {command}").expect("a string takes all");
    }
    script.into()
}

/// A directory as seen from the home directory, where commands start: without a leading `~`.
pub fn from_home(directory: &str) -> &str {
    match directory.strip_prefix("~/") {
        Some("") => ".",
        Some(rest) => rest,
        None if directory == "~" => ".",
        None => directory,
    }
}

/// The values that the prelude reads from stdin, so that they appear in no command line.
pub(crate) fn env_header(spec: &JobSpec) -> Option<SecretString> {
    if spec.env.is_empty() {
        return None;
    }
    let mut header = exports(spec);
    if let Some(script) = spec.script() {
        header.push_str(&lay_down(script.expose_secret()));
    }
    // A header that was cut off must not run: half a script may do something else.
    header.push_str("sshjobs_whole=y\n");
    Some(header.into())
}

/// Shell text that sets the variables of a job.
fn exports(spec: &JobSpec) -> String {
    let mut exports = String::new();
    for (name, value) in spec.variables() {
        writeln!(exports, "export {name}={}", quote(value.expose_secret()))
            .expect("a string takes all");
    }
    exports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_is_where_a_command_starts() {
        assert_eq!(
            ["~", "~/", "~/a b", "~user", "/x"].map(from_home),
            [".", ".", "a b", "~user", "/x"]
        );
    }
}

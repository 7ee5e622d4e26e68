//! The command line of a job with the commands that set up its environment.

use std::borrow::Cow;

use super::quoting::quote;
use crate::JobSpec;

impl JobSpec {
    /// The command line that its shell runs: the command, after the commands that set up its environment, for a POSIX shell.
    /// If they fail, the job ends with 125, and a line on stderr says so.
    pub fn command_line(&self) -> Cow<'_, str> {
        match &self.env_setup {
            None => Cow::Borrowed(&self.command),
            // In a trap, because they may end the shell, and in eval, because they may have a mistake.
            Some(setup) => Cow::Owned(format!(
                "trap 'echo \"sshjobs: env_setup has failed with exit status $?\" >&2; exit 125' EXIT\n\
                 eval {}\nsshjobs_setup=$?; [ $sshjobs_setup = 0 ] || exit $sshjobs_setup\ntrap - EXIT\n{}",
                quote(setup),
                self.command
            )),
        }
    }
}

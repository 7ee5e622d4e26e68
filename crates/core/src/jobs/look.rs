//! Commands that only look, before they are started.

use std::time::Duration;

use super::command::Command;
use sshjobs_job::TemplateCall;
use sshjobs_policy::look::{LOOK_VARIABLES, NotReadOnly, ReadOnlyCommand};

/// A command that only looks: its words were found in the table of programs and options, or a template of
/// the policy says that it does.
#[derive(Clone, Debug)]
pub struct Look(Command);

/// Time limit of a look. Its process tree is ended then.
const LIMIT: Duration = Duration::from_secs(30);
/// Programs that the variables of a look are for.
const WITH_VARIABLES: [&str; 3] = ["git", "journalctl", "systemctl"];

impl Look {
    /// A program and its arguments, in a directory of the host.
    ///
    /// # Errors
    /// A word that is not known to only look.
    pub fn new(argv: &[String], directory: Option<&str>) -> Result<Self, NotReadOnly> {
        let checked = ReadOnlyCommand::new(argv, directory)?;
        // The table has no command without words.
        let (program, arguments) = checked.words().split_first().expect("it has a program");
        let mut command = Command::new(program).args(arguments).timeout(LIMIT);
        if let Some(directory) = directory {
            command = command.current_dir(directory);
        }
        if WITH_VARIABLES.contains(&program.as_str()) {
            for (name, value) in LOOK_VARIABLES {
                command = command.env(name, value);
            }
        }
        Ok(Self(command))
    }

    /// A template of the policy with `read_only = true`.
    pub fn of_template(template: TemplateCall) -> Self {
        let mut command = Command::shell("").timeout(LIMIT);
        command.draft.template = Some(template);
        Self(command)
    }

    pub(super) fn into_command(self) -> Command {
        self.0
    }
}

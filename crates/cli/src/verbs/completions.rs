use std::io::Write;

use clap_complete::env::{CompleteEnv, EnvCompleter};

use crate::args::{CompletedShell, CompletionsArgs, command_line};
use crate::exit::write_out;
use crate::{ProgramExit, report};
use sshjobs_wire::{Code, Error};

/// The variable with which a shell requests completions.
const ASKED: &str = "COMPLETE";

/// If a shell requests completions, prints them and ends the program. Must be called first.
pub fn answer_shell() {
    if std::env::var_os(ASKED).is_none() {
        return;
    }
    CompleteEnv::with_factory(command_line).var(ASKED).complete();
}

/// Prints the script that makes a shell request completions.
pub fn completions(args: &CompletionsArgs) -> ProgramExit {
    let shell: &dyn EnvCompleter = match args.shell {
        CompletedShell::Bash => &clap_complete::env::Bash,
        CompletedShell::Zsh => &clap_complete::env::Zsh,
        CompletedShell::Fish => &clap_complete::env::Fish,
    };
    let mut script = Vec::new();
    let written = shell.write_registration(ASKED, "sshjobs", "sshjobs", &program(), &mut script);
    if let Err(error) = written.and_then(|()| script.flush()) {
        report(&Error::new(Code::Io, error.to_string(), "report this"));
        return ProgramExit::CONNECTION;
    }
    write_out(&script)
}

/// How a shell calls this program: by its name if the shell finds that, so that the script survives
/// an upgrade that moves the file.
fn program() -> String {
    let name = "sshjobs";
    let paths = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&paths).any(|directory| directory.join(name).is_file()) {
        return name.to_owned();
    }
    let own = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned));
    own.unwrap_or_else(|| name.to_owned())
}

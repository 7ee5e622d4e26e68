use clap::CommandFactory;

use crate::cli::args::{Cli, ManArgs};
use crate::cli::{Exit, note, report};
use crate::wire::Error;

/// Writes a man page for the program and for each verb.
pub fn man(args: &ManArgs) -> Exit {
    let directory = &args.directory;
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    match written {
        Ok(()) => {
            note(&format!("the man pages are in {}", directory.display()));
            Exit::SUCCESS
        }
        Err(error) => {
            let message = format!("can't write to {}: {error}", directory.display());
            report(&Error::invalid(
                message,
                "name a directory that you may write",
            ));
            Exit::OUTPUT
        }
    }
}

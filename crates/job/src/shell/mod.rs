//! Shell text that runs on hosts. User input is inert in all of it.

mod awaits_stdin;
mod become_command;
mod command_line;
mod control_script;
mod exec_plan;
mod inspect_script;
mod post_mortem_script;
mod prelude;
mod quoting;
mod script;
mod signal_script;

pub use awaits_stdin::{AwaitsStdin, awaits_stdin_script};
pub use become_command::become_command;
pub use control_script::{ControlLine, control_request, control_script};
pub use exec_plan::{ExecPlan, PlanError, shell_probes};
pub use inspect_script::inspect_script;
pub use post_mortem_script::post_mortem_script;
pub use prelude::{from_home, whole_script};
pub use quoting::{LoginShell, for_shell, inert_bytes, quote, quote_word, unquote_words};
pub use script::interpreter_of;
pub use signal_script::{KillReport, Left, ProcessGroup, Reach, kill_script};

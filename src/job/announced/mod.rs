//! Lines that a shell on a host prints for us before the command: its process group and its
//! machine.

mod announcements;
mod greeting;
mod machine_id;

pub use announcements::Announcements;
pub use greeting::{Greeted, Greeting, repeats_our_command};
pub use machine_id::MachineId;
pub(crate) use machine_id::TELL_MACHINE;

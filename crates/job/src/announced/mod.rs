//! Lines that a shell on a host prints for us before the command: its process group, its machine,
//! and the steps to another user.

mod announcements;
mod gate;
mod greeting;
mod machine_id;

pub use announcements::Announcements;
pub use gate::{BECOME_PASSWORD, BecomeRefusal, Gate, GateStep, ProgramEnd};
pub use greeting::{Greeted, Greeting, repeats_our_command};
pub use machine_id::MachineId;
pub(crate) use machine_id::TELL_MACHINE;

//! Identity of a machine, so that process ids from two connections can be compared.

use serde::{Deserialize, Serialize};

/// Identifies a machine or container from one start to the next. A process id that was seen over
/// one connection may be used over another only if both report the same machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MachineId {
    boot_id: String,
    /// Start time of process 1 in clock ticks since the boot: distinguishes starts of a container.
    init_started: u64,
    /// Namespace of process ids, as the kernel names it.
    pid_namespace: String,
}

/// A shell command that prints a [`MachineId`] on one line. Without `/proc` it prints less, which
/// does not parse.
pub(crate) const TELL_MACHINE: &str = r#"{ sshjobs_boot= sshjobs_init=; { read -r sshjobs_boot </proc/sys/kernel/random/boot_id; read -r sshjobs_init </proc/1/stat; } 2>/dev/null; echo "sshjobs-machine:$sshjobs_boot $(readlink /proc/self/ns/pid 2>/dev/null) ${sshjobs_init##*) }"; }"#;

/// Prefix of the line that [`TELL_MACHINE`] prints.
pub(crate) const MACHINE: &str = "sshjobs-machine:";

/// Index of a process's start time in `/proc/PID/stat` after its name. proc(5) counts from the
/// state (3) to starttime (22).
const STARTTIME: usize = 22 - 3;

impl MachineId {
    /// Finds the machine in the output of a login shell. `None` if the host does not report all of
    /// it.
    pub fn parse(stdout: &str) -> Option<Self> {
        let mut words = stdout
            .lines()
            .find_map(|line| line.strip_prefix(MACHINE))?
            .split_ascii_whitespace();
        let boot_id = words.next()?;
        let pid_namespace = words.next()?;
        // A word that the host could not print shifts the others. A boot id is a UUID.
        if boot_id.len() != 36 || !pid_namespace.starts_with("pid:[") {
            return None;
        }
        let init_started = words.nth(STARTTIME)?.parse().ok()?;
        Some(Self {
            boot_id: boot_id.to_owned(),
            init_started,
            pid_namespace: pid_namespace.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn told() -> String {
        let output = Command::new("/bin/sh").args(["-c", TELL_MACHINE]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_machine_is_itself_however_often_it_is_asked() {
        let machine = MachineId::parse(&told()).expect("this machine has /proc");
        assert_eq!(MachineId::parse(&told()), Some(machine));
    }

    #[test]
    fn one_that_tells_less_is_none() {
        let whole = told();
        for cut in 0..whole.trim_end().rsplit_once(' ').unwrap().0.len() / 2 {
            let less: String = whole.chars().take(cut).collect();
            assert_eq!(MachineId::parse(&less), None, "{less:?}");
        }
        assert_eq!(MachineId::parse("sshjobs-machine:   \n"), None);
    }
}

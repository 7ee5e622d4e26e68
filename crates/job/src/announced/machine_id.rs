//! Identity of a machine, so that process ids from two connections can be compared.

use serde::{Deserialize, Serialize};

/// Identifies a machine or container from one start to the next. A process id that was seen over
/// one connection may be used over another only if both report the same machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MachineId {
    boot_id: String,
    /// Start time of process 1 in clock ticks since the boot: distinguishes starts of a container. 0 if the
    /// account may not see it, on a machine that is not a container.
    init_started: u64,
    /// Namespace of process ids, as the kernel names it.
    pid_namespace: String,
}

/// A shell command that prints a [`MachineId`] on one line. Without `/proc` it prints less, which
/// does not parse. It has no expansion with a parenthesis, which ksh93 can't read within `"$( … )"`.
pub(crate) const TELL_MACHINE: &str = r#"{ sshjobs_boot= sshjobs_init=; { read -r sshjobs_boot </proc/sys/kernel/random/boot_id; read -r sshjobs_init </proc/1/stat; } 2>/dev/null; echo "sshjobs-machine:$sshjobs_boot $(readlink /proc/self/ns/pid 2>/dev/null) $sshjobs_init"; }"#;

/// Prefix of the line that [`TELL_MACHINE`] prints.
pub(crate) const MACHINE: &str = "sshjobs-machine:";

/// The kernel's number for the namespace of process ids that is in no container. Its process 1 starts once in a boot.
const HOSTS_OWN: &str = "pid:[4026531836]";

/// Index of a process's start time in `/proc/PID/stat` after its name. proc(5) counts from the
/// state (3) to starttime (22).
const STARTTIME: usize = 22 - 3;

impl MachineId {
    /// Finds the machine in the output of a login shell. `None` if the host does not report all of
    /// it.
    pub fn parse(stdout: &str) -> Option<Self> {
        let line = stdout.lines().find_map(|line| line.strip_prefix(MACHINE))?;
        let mut words = line.split_ascii_whitespace();
        let boot_id = words.next()?;
        let pid_namespace = words.next()?;
        // A word that the host could not print shifts the others. A boot id is a UUID.
        if boot_id.len() != 36 || !pid_namespace.starts_with("pid:[") {
            return None;
        }
        // After the name, which may have spaces and parentheses.
        let of_init = line.rsplit_once(") ").map(|(_, rest)| rest);
        let init_started = match of_init {
            Some(rest) => rest.split_ascii_whitespace().nth(STARTTIME)?.parse().ok()?,
            None if words.next().is_none() && pid_namespace == HOSTS_OWN => 0,
            None => return None,
        };
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
        let until_namespace = whole.find(']').unwrap();
        for cut in 0..until_namespace {
            let less: String = whole.chars().take(cut).collect();
            assert_eq!(MachineId::parse(&less), None, "{less:?}");
        }
        assert_eq!(MachineId::parse("sshjobs-machine:   \n"), None);
    }

    #[test]
    fn a_machine_whose_first_process_is_hidden_is_known_unless_it_is_a_container() {
        let boot = "0123abcd-0123-0123-0123-0123456789ab";
        let told = |namespace: &str, stat: &str| {
            MachineId::parse(&format!(
                "sshjobs-machine:{boot} pid:[{namespace}] {stat}\n"
            ))
        };
        let stat = format!("1 (a (b) c) S{} 42 0", " 0".repeat(STARTTIME - 1));

        assert_eq!(told("4026531836", "").unwrap().init_started, 0);
        assert_eq!(told("4026532198", ""), None);
        assert_eq!(told("4026532198", &stat).unwrap().init_started, 42);
        assert_eq!(told("4026531836", "1 (init"), None, "cut");
    }
}

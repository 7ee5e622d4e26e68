use std::fmt::Write;
use std::time::Duration;

use super::exec::quote;
use super::{LoginShell, Nonce, Signal};

/// Where a job lives on its host: the process group that sshd gave it, and the mark in its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessGroup {
    /// The id of the login shell, which leads the group.
    pub pgid: u32,
    /// What `SSHJOBS_JOB` is set to in the job's processes; finds those that left the group.
    pub mark: Nonce,
}

/// What a [`kill_script`] told about one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillReport {
    /// The signal reached at least one process.
    pub delivered: bool,
    /// No process of the job is left.
    pub dead: bool,
}

impl KillReport {
    /// Finds the report on `group` in the script's stdout.
    pub fn parse(stdout: &str, group: &ProcessGroup) -> Option<Self> {
        let line = stdout.lines().find_map(|line| line.strip_prefix(group.mark.as_str()))?;
        Some(Self { delivered: line.contains(" delivered"), dead: line.contains(" dead") })
    }
}

/// How long the script looks for the last process after its last signal, in tenths of a second.
const LAST_LOOK: u32 = 10;

/// The functions of the script. `$1` is the process group, `$2` the mark.
///
/// `/proc` tells zombies (who can't be killed and may never be reaped) from the living, and finds by their environment
/// the processes that left the group; without it the group alone is asked.
const FUNCTIONS: &str = r#"
strays() { grep -slzx "SSHJOBS_JOB=$2" /proc/[0-9]*/environ 2>/dev/null | sed "s/[^0-9]//g"; }
state() { sed -n "s/.*) \([^ ]\) [0-9]* \([0-9]*\) .*/\1\2/p" "$@" 2>/dev/null; }
living() { if [ -r /proc/self/stat ]; then cat /proc/[0-9]*/stat 2>/dev/null | state | grep -q "^[^ZX]$1\$"; else kill -0 -- "-$1" 2>/dev/null; fi; }
alive() { living "$1" || [ -n "$(strays "$1" "$2")" ]; }
send() {
  d=; kill -s "$3" -- "-$1" 2>/dev/null && d=" delivered"
  for q in $(strays "$1" "$2"); do case $(state "/proc/$q/stat") in ?"$1") ;; *) kill -s "$3" "$q" 2>/dev/null && d=" delivered" ;; esac; done
}
await() { i=0; while [ $i -lt "$3" ] && alive "$1" "$2"; do i=$((i + 1)); sleep 0.1 2>/dev/null || { sleep 1; i=$((i + 9)); }; done; }
end() {
  send "$1" "$2" "$3"; r=$d; await "$1" "$2" "$4"
  if [ "$5" = y ] && alive "$1" "$2"; then send "$1" "$2" KILL; r="$r$d"; await "$1" "$2" "$6"; fi
  alive "$1" "$2" || r="$r dead"
  echo "$2$r"
}
"#;

/// A shell command that sends `signal` to every process of the given jobs and reports, a line each, what happened.
///
/// With `grace`, what still lives after it gets KILL. It ends within the grace and a second or two.
pub fn kill_script(
    groups: &[ProcessGroup],
    signal: Signal,
    grace: Option<Duration>,
    shell: LoginShell,
) -> String {
    let look = grace.map_or(LAST_LOOK, |grace| u32::try_from(grace.as_millis() / 100).unwrap_or(u32::MAX));
    let escalate = if grace.is_some() { "y" } else { "n" };
    let mut script = FUNCTIONS.to_owned();
    for group in groups {
        let (pgid, mark, signal) = (group.pgid, group.mark.as_str(), signal.name());
        writeln!(script, "end {pgid} {mark} {signal} {look} {escalate} {LAST_LOOK} &")
            .expect("a string takes all");
    }
    script.push_str("wait\n");
    match shell {
        LoginShell::Posix | LoginShell::Bare => script,
        LoginShell::Foreign => format!("exec /bin/sh -c {}", quote(&script)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A job as sshd would start it: leader of a group of its own, marked.
    fn job(command: &str) -> (Child, ProcessGroup) {
        let mark = Nonce::new();
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("{command}\necho ready; wait")])
            .env("SSHJOBS_JOB", mark.as_str())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pgid = child.id();
        (child, ProcessGroup { pgid, mark })
    }

    fn end(group: &ProcessGroup, signal: Signal, grace: Option<Duration>) -> KillReport {
        let script = kill_script(std::slice::from_ref(group), signal, grace, LoginShell::Foreign);
        let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        KillReport::parse(&stdout, group).unwrap_or_else(|| panic!("no report in {stdout:?}"))
    }

    const DEAD: KillReport = KillReport { delivered: true, dead: true };

    #[test]
    fn the_whole_group_is_ended() {
        let (mut child, group) = job("sleep 100 & sleep 100 &");
        assert_eq!(end(&group, Signal::TERM, None), DEAD);
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_left_the_group_is_found_by_its_mark() {
        let (mut child, group) = job("setsid sleep 100 & sleep 0.2");
        assert_eq!(end(&group, Signal::TERM, None), DEAD);
        child.wait().unwrap();
    }

    #[test]
    fn what_ignores_the_signal_is_killed_after_the_grace() {
        let (mut child, group) = job("trap '' TERM; sleep 100 &");
        assert_eq!(end(&group, Signal::TERM, Some(Duration::from_millis(200))), DEAD);
        child.wait().unwrap();
    }

    #[test]
    fn what_survives_is_not_called_dead() {
        let (mut child, group) = job("trap '' TERM; sleep 100 &");
        assert_eq!(end(&group, Signal::TERM, None), KillReport { delivered: true, dead: false });
        assert_eq!(end(&group, Signal::KILL, None), DEAD);
        child.wait().unwrap();
    }

    #[test]
    fn a_group_that_is_gone_gets_nothing() {
        let (mut child, group) = job("true");
        child.wait().unwrap();
        assert_eq!(end(&group, Signal::TERM, None), KillReport { delivered: false, dead: true });
    }
}

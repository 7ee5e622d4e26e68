use std::time::Duration;

use super::exec::for_shell;
use super::{LoginShell, Nonce, Signal};

/// Where a job lives on its host: the process group that sshd gave it, and the mark in its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessGroup {
    /// The id of the login shell, which leads the group.
    pub pgid: u32,
    /// What `SSHJOBS_JOB` is set to in the job's processes; finds those that left the group.
    pub mark: Nonce,
}

/// What a [`kill_script`] told about the jobs it was for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillReport {
    /// The signal reached at least one process.
    pub delivered: bool,
    /// No process of the jobs is left.
    pub dead: bool,
}

impl KillReport {
    /// Finds the report in the script's stdout. None when the script has not run.
    pub fn parse(stdout: &str) -> Option<Self> {
        let words = stdout.lines().find_map(|line| line.strip_prefix("sshjobs-kill:"))?;
        Some(Self { delivered: words.contains(" delivered"), dead: words.contains(" dead") })
    }
}

/// How long the script looks for the last process after its last signal, in tenths of a second.
const LAST_LOOK: u32 = 10;

/// The functions of the script. `P` is the list of process groups, `G` the same as `/PGID/`, `M` the marks as they stand in
/// an environment; a line each.
///
/// `/proc` tells zombies (who can't be killed and may never be reaped) from the living, and finds by their environment
/// the processes that left the group; without it the groups alone are asked. It is read once a look, however many jobs
/// there are.
const FUNCTIONS: &str = r#"
living() { cat /proc/[0-9]*/stat 2>/dev/null | sed -n 's|^\([0-9]*\).*) [^ZX] [0-9]* \([0-9]*\) .*|/\2/\1|p'; }
strays() { grep -slzxF "$M" $(living | grep -vF "$G" | sed 's|.*/|/proc/|; s|$|/environ|') /dev/null | sed 's/[^0-9]//g'; }
alive() {
  if [ -r /proc/self/stat ]; then living | grep -qF "$G" || [ -n "$(strays)" ]
  else for p in $P; do kill -0 -- "-$p" 2>/dev/null && return; done; return 1; fi
}
send() {
  for p in $P; do kill -s "$1" -- "-$p" 2>/dev/null && r="$r delivered"; done
  for q in $(strays); do kill -s "$1" "$q" 2>/dev/null && r="$r delivered"; done
}
await() { i=0; while [ $i -lt "$1" ] && alive; do i=$((i + 1)); sleep 0.1 2>/dev/null || { sleep 1; i=$((i + 9)); }; done; }
end() {
  r=; send "$1"; await "$2"
  if [ "$3" = y ] && alive; then send KILL; await "$4"; fi
  alive || r="$r dead"
  case $r in *delivered*dead) r=" delivered dead" ;; *delivered*) r=" delivered" ;; esac
  echo "sshjobs-kill:$r"
}
"#;

/// Whom a [`kill_script`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The process groups, and what left them.
    Tree,
    /// Only processes that carry a job's mark: after a job's end the number of its group may be somebody else's.
    Marked,
}

/// A shell command that sends `signal` to every process of the given jobs and reports what came of it.
///
/// With `grace`, what still lives after it gets KILL. It ends within the grace and a second or two.
pub fn kill_script(
    groups: &[ProcessGroup],
    reach: Reach,
    (signal, grace): (Signal, Option<Duration>),
    shell: LoginShell,
) -> String {
    let look = grace.map_or(LAST_LOOK, |grace| u32::try_from(grace.as_millis() / 100).unwrap_or(u32::MAX));
    let escalate = if grace.is_some() { "y" } else { "n" };
    let list =
        |line: &dyn Fn(&ProcessGroup) -> String| groups.iter().map(line).collect::<Vec<_>>().join("\n");
    let script = format!(
        "P='{}'\nG='{}'\nM='{}'\n{FUNCTIONS}\nend {signal} {look} {escalate} {LAST_LOOK}\n",
        if reach == Reach::Tree { list(&|group| group.pgid.to_string()) } else { String::new() },
        // No group has the number -1.
        if reach == Reach::Tree { list(&|group| format!("/{}/", group.pgid)) } else { "/-1/".to_owned() },
        list(&|group| format!("SSHJOBS_JOB={}", group.mark.as_str())),
    );
    for_shell(script, shell)
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
        let script =
            kill_script(std::slice::from_ref(group), Reach::Tree, (signal, grace), LoginShell::Foreign);
        let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        KillReport::parse(&stdout).unwrap_or_else(|| panic!("no report in {stdout:?}"))
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
    fn many_jobs_are_ended_in_one_go() {
        let (mut children, groups): (Vec<_>, Vec<_>) =
            (0..20).map(|_| job("setsid sleep 100 & sleep 100 &")).unzip();
        let script = kill_script(
            &groups,
            Reach::Tree,
            (Signal::TERM, Some(Duration::from_secs(5))),
            LoginShell::Posix,
        );
        let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        assert_eq!(KillReport::parse(&String::from_utf8(output.stdout).unwrap()), Some(DEAD));
        children.iter_mut().for_each(|child| drop(child.wait()));
    }

    #[test]
    fn after_the_end_only_marked_processes_are_reached() {
        let (mut child, group) = job("sleep 100 &");
        let foreign = ProcessGroup { pgid: group.pgid, mark: Nonce::new() };
        let script = |group: &ProcessGroup| {
            kill_script(std::slice::from_ref(group), Reach::Marked, (Signal::TERM, None), LoginShell::Posix)
        };
        let run = |script: String| {
            let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
            KillReport::parse(&String::from_utf8(output.stdout).unwrap())
        };
        assert_eq!(run(script(&foreign)), Some(KillReport { delivered: false, dead: true }));
        assert!(child.try_wait().unwrap().is_none(), "somebody else's group was left alone");
        assert_eq!(run(script(&group)), Some(DEAD));
        child.wait().unwrap();
    }

    #[test]
    fn a_group_that_is_gone_gets_nothing() {
        let (mut child, group) = job("true");
        child.wait().unwrap();
        assert_eq!(end(&group, Signal::TERM, None), KillReport { delivered: false, dead: true });
    }
}

use std::time::Duration;

use super::shell::for_shell;
use super::{LoginShell, Nonce, Signal};

/// Where a job lives on its host: the process group that sshd gave it, and the mark in its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessGroup {
    /// The id of the login shell, which leads the group.
    pub pgid: u32,
    /// What `SSHJOBS_JOB` is set to in the job's processes; finds those that left the group.
    pub mark: Nonce,
    /// Age of the job.
    pub age: Duration,
}

/// What a [`kill_script`] reports about its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillReport {
    /// The signal reached at least one process.
    pub delivered: bool,
    /// Whether the last look found a process of the jobs.
    pub left: Left,
}

/// What the last look at a host's processes found of the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// No process of theirs.
    Nothing,
    /// Some that are theirs.
    Alive,
    /// None that is certainly theirs. Their groups have members without their mark, which were left alone.
    Unmarked,
    /// None, but this account does not see all processes there.
    Hidden,
    /// The host has no `/proc`, or no awk to read it with: nothing was looked at, and nothing signalled.
    Unseen,
}

impl KillReport {
    /// Finds the report in the script's stdout. None when the script has not run to its end.
    pub fn parse(stdout: &str) -> Option<Self> {
        let words = stdout.lines().find_map(|line| line.strip_prefix("sshjobs-kill:"))?;
        let left = match words.split(' ').next_back()? {
            "nothing" => Left::Nothing,
            "alive" => Left::Alive,
            "unmarked" => Left::Unmarked,
            "hidden" => Left::Hidden,
            _ => Left::Unseen,
        };
        Some(Self { delivered: words.contains(" delivered"), left })
    }
}

/// Time for which the script looks for survivors after its last signal, in tenths of a second.
const LAST_LOOK: u32 = 10;

/// The functions of the script. `G` is the list of process groups, `M` the marks as they stand in an environment, `C` the
/// command lines of the groups' leaders; a line each.
///
/// A process is a job's when its environment carries the mark (or, of a leader, its command line: a shell that sets a
/// variable does not change its own environment in `/proc`), or when one of its ancestors is. Nothing else is signalled: a
/// number that a host tells is no proof, and may have been used again. `/proc/PID/status` escapes line ends in names, which
/// `/proc/PID/stat` does not. A group is signalled as one where all of its members are the job's, so that none escapes by
/// forking; else each process by itself. Zombies are dead. Marks are looked for before and after the list is made, so that a
/// process that comes or goes meanwhile is noticed (but not each one that forks and ends faster than it can be looked at). A process of the account's own that hides its environment, as agents do, may
/// be the job's when it is not older than that (`A`, in seconds). A child of root's is not: sshd's own process is one.
const FUNCTIONS: &str = r#"
marks() {
  grep -slzxF "$M" /proc/[0-9]*/environ | sed 's/[^0-9]//g; s/^/mark /'
  [ -z "$C" ] || grep -slzF "$M" $C | sed 's/[^0-9]//g; s/^/mark /'
}
look() {
  { marks; cat /proc/[0-9]*/status; marks; } 2>/dev/null | awk -v groups="$G" '
    /^mark / { marked[$2] = 1 }
    /^State:/ { state = $2 }
    /^Pid:/ { pid = $2 }
    /^PPid:/ { parent[pid] = $2; if (state != "Z" && state != "X") living[pid] = 1 }
    /^NSpgid:/ { group[pid] = $2 }
    END {
      n = split(groups, list, "\n")
      for (i = 1; i <= n; i++) asked[list[i]] = 1
      for (pid in living) {
        up = pid
        for (steps = 0; up > 1 && !(up in marked) && steps < 10000; steps++) up = (up in parent) ? parent[up] : 0
        in_group = (pid in group) && (group[pid] in asked)
        if (up in marked) { ours[pid] = 1; if (in_group) whole[group[pid]] = 1 }
        else if (in_group) mixed[group[pid]] = 1
      }
      for (pid in marked) if (!(pid in living)) print "moving"
      for (g in mixed) print "unmarked"
      for (g in whole) if (!(g in mixed)) print "kill -" g
      for (pid in ours) if (!((pid in group) && (group[pid] in whole) && !(group[pid] in mixed))) print "kill " pid
      print "seen"
    }'
}
glance() { L=$(look); case $L in *seen) ;; *) return 1 ;; esac; }
alive() { glance || return 1; case $L in *kill*|*moving*) return 0 ;; *) return 1 ;; esac; }
send() { # Of all forms of kill this is the one that dash, bash and busybox take for groups.
  glance || return
  for k in $(printf '%s\n' "$L" | sed -n 's/^kill //p'); do kill "-$1" "$k" 2>/dev/null && r=" delivered"; done
}
pause() { sleep 0.1 2>/dev/null || { sleep 1; i=$((i + 9)); }; }
await() { i=0; while [ $i -lt "$1" ] && alive; do i=$((i + 1)); [ "$2" != KILL ] || send KILL; pause; done; }
left() {
  i=0
  while :; do
    glance || { echo unseen; return; }
    case $L in
      *kill*) echo alive; return ;;
      *moving*) i=$((i + 1)); [ $i -lt 10 ] || { echo alive; return; }; pause ;;
      *unmarked*) echo unmarked; return ;;
      *) break ;;
    esac
  done
  [ -r /proc/1/status ] && ! secretive && echo nothing || echo hidden
}
of() { sed -n "s/^$1:[^0-9]*\([0-9]*\).*/\1/p" "$2/status" 2>/dev/null; }
secretive() {
  me=$(id -u); [ "$me" != 0 ] || return 1
  read -r now _ </proc/uptime
  for p in /proc/[0-9]*; do
    [ ! -r "$p/environ" ] || continue
    [ "$(of Uid "$p")" = "$me" ] || continue
    up=$(of PPid "$p")
    [ "$up" = 1 ] || [ "$(of Uid "/proc/$up")" = "$me" ] || continue
    { read -r stat <"$p/stat"; } 2>/dev/null || continue
    set -- ${stat##*) }
    shift 19
    [ $((${now%.*} - $1 / ${HZ:-100})) -gt "$A" ] || return 0
  done
  return 1
}
end() {
  r=; send "$1"; await "$2" "$1"
  if [ "$3" = y ] && alive; then send KILL; await "$4" KILL; fi
  echo "sshjobs-kill:$r $(left)"
}
"#;

/// Whom a [`kill_script`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The jobs' processes; members of their groups that can't be shown to be theirs are told.
    Tree,
    /// The jobs' processes. After a job's end the number of its group may be somebody else's, so that tells nothing.
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
    let of_tree = |line: &dyn Fn(&ProcessGroup) -> String| match reach {
        Reach::Tree => list(line),
        Reach::Marked => String::new(),
    };
    let age = groups.iter().map(|group| group.age.as_secs() + 1).max().unwrap_or_default();
    let script = format!(
        "A={age}\nG='{}'\nC='{}'\nM='{}'\n{FUNCTIONS}\nend {signal} {look} {escalate} {LAST_LOOK}\n",
        of_tree(&|group| group.pgid.to_string()),
        of_tree(&|group| format!("/proc/{}/cmdline", group.pgid)),
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

    const AGE: Duration = Duration::from_secs(60);

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
        (child, ProcessGroup { pgid, mark, age: AGE })
    }

    fn end(group: &ProcessGroup, signal: Signal, grace: Option<Duration>) -> KillReport {
        let script =
            kill_script(std::slice::from_ref(group), Reach::Tree, (signal, grace), LoginShell::Foreign);
        let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        KillReport::parse(&stdout).unwrap_or_else(|| panic!("no report in {stdout:?}"))
    }

    const DEAD: KillReport = KillReport { delivered: true, left: Left::Nothing };

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
        assert_eq!(end(&group, Signal::TERM, None), KillReport { delivered: true, left: Left::Alive });
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
        let foreign = ProcessGroup { pgid: group.pgid, mark: Nonce::new(), age: AGE };
        let script = |group: &ProcessGroup| {
            kill_script(std::slice::from_ref(group), Reach::Marked, (Signal::TERM, None), LoginShell::Posix)
        };
        let run = |script: String| {
            let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
            KillReport::parse(&String::from_utf8(output.stdout).unwrap())
        };
        assert_eq!(run(script(&foreign)), Some(KillReport { delivered: false, left: Left::Nothing }));
        assert!(child.try_wait().unwrap().is_none(), "somebody else's group was left alone");
        assert_eq!(run(script(&group)), Some(DEAD));
        child.wait().unwrap();
    }

    #[test]
    fn a_group_that_is_gone_gets_nothing() {
        let (mut child, group) = job("true");
        child.wait().unwrap();
        assert_eq!(end(&group, Signal::TERM, None), KillReport { delivered: false, left: Left::Nothing });
    }

    /// A group whose leader runs `command`, without any mark.
    fn stranger(command: &str) -> Child {
        Command::new("/bin/sh").args(["-c", command]).env_clear().process_group(0).spawn().unwrap()
    }

    fn is_alive(child: &mut Child) -> bool {
        child.try_wait().unwrap().is_none()
    }

    #[test]
    fn a_group_without_the_mark_is_left_alone_and_not_called_dead() {
        let mut stranger = stranger("sleep 100; true");
        let forged = ProcessGroup { pgid: stranger.id(), mark: Nonce::new(), age: AGE };
        for signal in [Signal::TERM, Signal::KILL] {
            let report = end(&forged, signal, Some(Duration::from_millis(100)));
            assert_eq!(report, KillReport { delivered: false, left: Left::Unmarked });
        }
        assert!(is_alive(&mut stranger), "somebody else's process was killed");
        Command::new("kill").args(["-KILL", "--", &format!("-{}", stranger.id())]).status().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn a_member_without_mark_and_ancestry_is_spared_when_the_rest_of_its_group_is_ended() {
        // Reparented, in the group, and with an environment of its own: nothing shows whose it is.
        let (mut child, group) = job("(env -i sleep 100 &) ; sleep 100 &");
        let report = end(&group, Signal::KILL, None);
        assert_eq!(report, KillReport { delivered: true, left: Left::Unmarked });
        child.wait().unwrap();
        Command::new("kill").args(["-KILL", "--", &format!("-{}", group.pgid)]).status().unwrap();
    }

    #[test]
    fn a_child_without_the_mark_is_the_jobs_by_its_ancestry() {
        let (mut child, group) = job("env -i setsid sleep 100 &");
        assert_eq!(end(&group, Signal::TERM, None), DEAD);
        child.wait().unwrap();
    }

    #[test]
    fn a_login_shell_that_runs_nothing_else_is_known_by_its_command_line() {
        let mark = Nonce::new();
        let command = format!("SSHJOBS_JOB={}; export SSHJOBS_JOB; while :; do :; done", mark.as_str());
        let mut child = Command::new("/bin/sh").args(["-c", &command]).process_group(0).spawn().unwrap();
        let group = ProcessGroup { pgid: child.id(), mark, age: AGE };
        assert_eq!(end(&group, Signal::TERM, None), DEAD);
        child.wait().unwrap();
    }

    #[test]
    fn a_process_name_with_line_ends_forges_no_entry() {
        let mut stranger = stranger("sleep 100; true");
        let (mut child, group) = job("sleep 100 &");
        // As a line of its own it would say that the stranger's parent is the job's leader.
        let name = format!("\nPPid:\t{}\n", group.pgid);
        let forger = format!("printf '{name}' > /proc/self/comm; sleep 100; true");
        let mut forger = Command::new("/bin/sh").args(["-c", &forger]).process_group(0).spawn().unwrap();
        assert_eq!(end(&group, Signal::TERM, None), DEAD);
        assert!(is_alive(&mut stranger) && is_alive(&mut forger));
        for child in [&mut stranger, &mut forger] {
            Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status().unwrap();
            child.wait().unwrap();
        }
        child.wait().unwrap();
    }

    /// A shell that runs as an ordinary account, for root sees everything.
    fn as_nobody(script: &str) -> Command {
        let is_root = nix::unistd::getuid().is_root();
        let mut command = Command::new(if is_root { "setpriv" } else { "env" });
        if is_root {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        command.args(["/bin/sh", "-c", script]);
        command
    }

    #[test]
    fn a_process_that_hides_its_environment_is_not_called_dead() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        let (agent, mark) = (directory.path().join("agent"), Nonce::new());
        // It leaves the tree, and lets nobody look at it.
        let command = format!("ssh-agent -a {} > {}.out; sleep 100", agent.display(), agent.display());
        let mut child =
            as_nobody(&command).env("SSHJOBS_JOB", mark.as_str()).process_group(0).spawn().unwrap();
        let told = directory.path().join("agent.out");
        while !std::fs::read_to_string(&told).unwrap_or_default().contains("echo Agent pid") {
            std::thread::yield_now();
        }
        let group = ProcessGroup { pgid: child.id(), mark, age: AGE };
        let script = kill_script(&[group], Reach::Tree, (Signal::KILL, None), LoginShell::Posix);
        let output = as_nobody(&script).output().unwrap();
        let report = KillReport::parse(&String::from_utf8(output.stdout).unwrap()).unwrap();
        child.wait().unwrap();
        let told = std::fs::read_to_string(told).unwrap();
        let pid = told.split_once("SSH_AGENT_PID=").unwrap().1.split(';').next().unwrap();
        Command::new("kill").args(["-KILL", pid]).status().unwrap();
        assert_eq!(report, KillReport { delivered: true, left: Left::Hidden });
    }
}

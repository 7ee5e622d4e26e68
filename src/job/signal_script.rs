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
/// process that comes or goes meanwhile is noticed (but not each one that forks and ends faster than it can be looked at).
/// A process of the same account that hides its environment, as ssh-agent does, may be the job's if it is no older than the
/// oldest job (`A`, in seconds), unless its parent is root's: sshd's own process is such a child.
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
mod tests;

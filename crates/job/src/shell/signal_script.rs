//! The script that signals all processes of a job, and only these. It proves membership by the
//! job's mark or an ancestor that has it.

use std::time::Duration;

use crate::{Kill, Nonce};

/// Identifies a job on its host: by the process group that sshd gave it, and by the mark in its
/// environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessGroup {
    /// The id of the login shell, which leads the group.
    pub pgid: u32,
    /// Value of `SSHJOBS_JOB` in the job's processes. Finds processes that left the group.
    pub mark: Nonce,
    /// Age of the job.
    pub age: Duration,
}

/// Result of a [`kill_script`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillReport {
    /// The signal reached at least one process.
    pub delivered: bool,
    /// Whether the last search found a process of the jobs.
    pub left: Left,
}

/// Result of the last search for the jobs' processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// No process of the jobs.
    Nothing,
    /// Processes that belong to the jobs.
    Alive,
    /// No process that certainly belongs to the jobs. But their groups have members without the
    /// mark, which got no signal.
    Unmarked,
    /// None, but this account can't see all processes of the host.
    Hidden,
    /// The host has no `/proc`, or no awk to read it with: no process was examined or signalled.
    Unseen,
}

impl KillReport {
    /// Finds the report in the script's stdout. `None` if the script did not finish.
    pub fn parse(stdout: &str) -> Option<Self> {
        let words = stdout.lines().find_map(|line| line.strip_prefix("sshjobs-kill:"))?;
        let left = match words.split(' ').next_back()? {
            "nothing" => Left::Nothing,
            "alive" => Left::Alive,
            "unmarked" => Left::Unmarked,
            "hidden" => Left::Hidden,
            _ => Left::Unseen,
        };
        Some(Self {
            delivered: words.contains(" delivered"),
            left,
        })
    }
}

/// Time for which the script searches for survivors after its last signal, in tenths of a second.
const LAST_LOOK: u32 = 10;

/// Functions of the script. Each variable is a list with one line per entry: `G` has the process
/// groups, `M` the marks as they appear in an environment, `C` the command lines of the groups'
/// leaders.
///
/// A process belongs to a job if its environment has the mark, or if an ancestor belongs to it. For
/// the leader of a group the command line counts, too: a shell that sets a variable does not change
/// its own environment in `/proc`. Nothing else is signalled: a process id that a host reports is
/// not proof and may have been reused. Zombies count as dead.
///
/// If all members of a group belong to the job, the group is signalled as one, so that no process
/// escapes by forking; otherwise each process by itself. The marks are read before and after the
/// list of processes, so that a process that starts or ends meanwhile is noticed (but not one that
/// forks and ends faster than it can be examined). The list comes from `/proc/PID/status`, which
/// escapes newlines in names; `/proc/PID/stat` does not.
///
/// A process of the same account that hides its environment, as ssh-agent does, may belong to the
/// job if it is no older than the oldest job (`A`, in seconds). Three kinds do not: a zombie; a
/// child of another account's process (other than process 1), such as sshd's own process for the
/// account; and a process in the session of its parent, because then the parent shows whether it
/// belongs to the job. sshjobs itself hides its memory, so on the same machine it is of the third
/// kind.
///
/// `await N` waits at most N tenths of a second, with one look in each. Where looks are slow, because
/// the host has many processes or other work, it stops by the clock: at most two seconds and one look
/// later.
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
      for (pid in ours) print "member " pid
      for (pid in marked) if (!(pid in living)) print "moving"
      for (g in mixed) print "unmarked"
      for (g in whole) if (!(g in mixed)) print "kill -" g
      for (pid in ours) if (!((pid in group) && (group[pid] in whole) && !(group[pid] in mixed))) print "kill " pid
      print "seen"
    }'
}
decide() { L=$(look); case $L in *seen) ;; *) return 1 ;; esac; }
alive() { decide || return 1; case $L in *kill*|*moving*) return 0 ;; *) return 1 ;; esac; }
send() { # Of all forms of kill this is the one that dash, bash and busybox take for groups.
  decide || return
  for k in $(printf '%s\n' "$L" | sed -n 's/^kill //p'); do kill "-$1" "$k" 2>/dev/null && r=" delivered"; done
}
pause() { sleep 0.1 2>/dev/null || { sleep 1; i=$((i + 9)); }; }
read_uptime() { { read -r now _ </proc/uptime; } 2>/dev/null || now=0; now=${now%.*}; }
await() {
  i=0; read_uptime; deadline=$((now + $1 / 10 + 2))
  while [ $i -lt "$1" ] && [ "$now" -lt $deadline ] && alive; do
    i=$((i + 1)); [ "$2" != KILL ] || send KILL; pause; read_uptime
  done
}
left() {
  i=0
  while :; do
    decide || { echo unseen; return; }
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
session() { { read -r s <"/proc/$1/stat"; } 2>/dev/null || return; set -- ${s##*') '}; echo "$4"; }
secretive() {
  me=$(id -u); [ "$me" != 0 ] || return 1
  read_uptime
  for p in /proc/[0-9]*; do
    [ ! -r "$p/environ" ] || continue
    [ "$(of Uid "$p")" = "$me" ] || continue
    { read -r stat <"$p/stat"; } 2>/dev/null || continue
    set -- ${stat##*') '} # state, parent, process group, session …
    case $1 in Z|X) continue ;; esac
    [ "$2" = 1 ] || [ "$(of Uid "/proc/$2")" = "$me" ] || continue
    [ "$4" != "$(session "$2")" ] || continue
    shift 19
    [ $((now - $1 / ${HZ:-100})) -gt "$A" ] || return 0
  done
  return 1
}
end() {
  r=; send "$1"; await "$2" "$1"
  if [ "$3" = y ] && alive; then send KILL; await "$4" KILL; fi
  echo "sshjobs-kill:$r $(left)"
}
"#;

/// The processes that a [`kill_script`] searches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The jobs' processes. Members of their groups that can't be shown to belong to them are
    /// reported.
    Tree,
    /// The jobs' processes. After a job's end its group id may have been reused, so the group is
    /// ignored.
    Marked,
}

/// The [`FUNCTIONS`], preceded by the variables that they use. `decide` leaves a line `member PID` in `L`
/// for each living process of the jobs.
pub(super) fn functions_about(groups: &[ProcessGroup], reach: Reach) -> String {
    let groups_of_tree = match reach {
        Reach::Tree => groups,
        Reach::Marked => &[],
    };
    // Rounded up, so that a process as old as the job does not look older.
    let age = groups.iter().map(|group| group.age.as_secs() + 1).max().unwrap_or_default();
    format!(
        "A={age}\nG='{}'\nC='{}'\nM='{}'\n{FUNCTIONS}\n",
        lines(groups_of_tree, |group| group.pgid.to_string()),
        lines(groups_of_tree, |group| format!(
            "/proc/{}/cmdline",
            group.pgid
        )),
        lines(groups, |group| format!(
            "SSHJOBS_JOB={}",
            group.mark.as_str()
        )),
    )
}

fn lines(groups: &[ProcessGroup], line: impl Fn(&ProcessGroup) -> String) -> String {
    groups.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A POSIX shell script that sends `signal` to every process of the given jobs and reports the
/// result.
///
/// With `grace`, processes that are still alive after it get KILL. The script takes the grace and a
/// second or two, and some seconds more on a host that is slow to list its processes.
pub fn kill_script(groups: &[ProcessGroup], reach: Reach, kill: Kill) -> String {
    let Kill { signal, grace } = kill;
    let look = grace.map_or(LAST_LOOK, |grace| {
        u32::try_from(grace.as_millis() / 100).unwrap_or(u32::MAX)
    });
    let escalate = if grace.is_some() { "y" } else { "n" };
    let functions = functions_about(groups, reach);
    format!("{functions}end {signal} {look} {escalate} {LAST_LOOK}\n")
}

#[cfg(test)]
mod tests;

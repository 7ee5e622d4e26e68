//! A script that determines whether a job waits for input.

use super::signal_script::ProcessGroup;

/// Whether a job waits for input on its stdin, as far as its host can determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitsStdin {
    /// One of its processes is blocked in a read of stdin.
    Yes,
    /// A process waits for something that may be its stdin.
    Perhaps,
    /// All of its processes are busy with something else.
    No,
}

/// Examines the processes of session `S` that hold the job's stdin or its controlling terminal.
/// Programs that ask for passwords open that terminal themselves.
///
/// Each thread's current system call decides: a read from such a descriptor is a yes; poll, select
/// and epoll may wait for it. The numbers are those of x86-64 and arm64: read is 0 or 63, poll 7,
/// select 23, pselect6 270 or 72, ppoll 271 or 73, the calls of epoll 232, 281, 441 or 22. If the
/// kernel hides the call, the kernel function in which the thread sleeps decides. A process that
/// can't be examined, such as sudo, may be waiting.
const FIND_READERS: &str = r#"
stdin=$(readlink "/proc/$S/fd/0") || exit
case $stdin in /dev/*) tty=/dev/tty ;; *) tty=none ;; esac
holds() { for f in "$1"/fd/*; do case $(readlink "$f" 2>/dev/null) in "$stdin"|"$tty") return 0 ;; esac; done; return 1; }
reads=no
for p in /proc/[0-9]*; do
  { read -r stat < "$p/stat"; } 2>/dev/null || continue
  set -- ${stat##*') '}
  [ "$4" = "$S" ] && [ "$1" != Z ] || continue
  readlink "$p/fd/0" >/dev/null 2>&1 || reads=perhaps
  holds "$p" || continue
  for t in "$p"/task/[0-9]*; do
    set -- $(cat "$t/syscall" 2>/dev/null)
    case $1 in
      0|63) case $(readlink "$p/fd/$(($2))" 2>/dev/null) in "$stdin"|"$tty") echo sshjobs-reads:yes; exit ;; esac ;;
      7|23|232|270|271|281|441|22|72|73) reads=perhaps ;;
      ?*) ;;
      *) case $(cat "$t/wchan" 2>/dev/null) in
           n_tty_read|wait_woken|unix_stream_*) echo sshjobs-reads:yes; exit ;;
           ?*wait4*|?*nanosleep*) ;;
           *) reads=perhaps ;;
         esac ;;
    esac
  done
done
echo sshjobs-reads:$reads
"#;

/// A POSIX shell script that determines whether a job waits for its stdin. Works only on Linux.
pub fn awaits_stdin_script(group: &ProcessGroup) -> String {
    format!("S={}\n{FIND_READERS}", group.pgid)
}

impl AwaitsStdin {
    /// The answer in the script's stdout. `None` if the script did not finish.
    pub fn parse(stdout: &str) -> Option<Self> {
        stdout.lines().find_map(|line| match line.strip_prefix("sshjobs-reads:")? {
            "yes" => Some(Self::Yes),
            "no" => Some(Self::No),
            _ => Some(Self::Perhaps),
        })
    }
}

use super::shell::for_shell;
use super::{LoginShell, ProcessGroup};

/// Whether a job waits for its stdin, as far as its host can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitsStdin {
    /// One of its processes is blocked reading it.
    Yes,
    /// One of them waits for something that may be its stdin.
    Perhaps,
    /// They all do something else.
    No,
}

/// Looks at the processes of the session `S` that hold the job's stdin, or its controlling terminal, which programs that ask for
/// passwords open themselves; thread by thread: at the system call each is in, by its number on x86-64 or arm64 (a read, of
/// which descriptor; poll, select, epoll), or, where the kernel does not let us see that, at the place where it sleeps. A process
/// that we may not look at, such as sudo, may do anything.
const LOOK: &str = r#"
stdin=$(readlink "/proc/$S/fd/0") || exit
case $stdin in /dev/*) tty=/dev/tty ;; *) tty=none ;; esac
holds() { for f in "$1"/fd/*; do case $(readlink "$f" 2>/dev/null) in "$stdin"|"$tty") return 0 ;; esac; done; return 1; }
reads=no
for p in /proc/[0-9]*; do
  { read -r stat < "$p/stat"; } 2>/dev/null || continue
  set -- ${stat##*) }
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

/// A shell command that finds out whether a job waits for its stdin. Only Linux tells.
pub fn awaits_stdin_script(group: &ProcessGroup, shell: LoginShell) -> String {
    for_shell(format!("S={}\n{LOOK}", group.pgid), shell)
}

impl AwaitsStdin {
    /// The answer in the script's stdout; none when the script has not run to its end.
    pub fn parse(stdout: &str) -> Option<Self> {
        stdout.lines().find_map(|line| match line.strip_prefix("sshjobs-reads:")? {
            "yes" => Some(Self::Yes),
            "no" => Some(Self::No),
            _ => Some(Self::Perhaps),
        })
    }
}

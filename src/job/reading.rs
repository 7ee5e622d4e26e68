use super::exec::for_shell;
use super::{LoginShell, ProcessGroup};

/// Looks for a process of the session `S` whose stdin is the job's, and which is blocked reading it. Where the kernel
/// does not let us see system calls, the place where the process sleeps tells: a terminal or the socket that sshd gave
/// it. (It may be a pipe only where the kernel shows the call: a shell that reads what a command substitution prints
/// waits for a pipe, too.)
const LOOK: &str = r#"
stdin=$(readlink "/proc/$S/fd/0") || exit
for p in /proc/[0-9]*; do
  { read -r stat < "$p/stat"; } 2>/dev/null || continue
  set -- ${stat##*) }
  [ "$4" = "$S" ] && [ "$(readlink "$p/fd/0" 2>/dev/null)" = "$stdin" ] || continue
  case $(cat "$p/syscall" 2>/dev/null) in
    "0 0x0 "*|"63 0x0 "*) echo sshjobs-reading; exit ;;
    ?*) ;;
    *) case $(cat "$p/wchan" 2>/dev/null) in
         n_tty_read|wait_woken|unix_stream_*) echo sshjobs-reading; exit ;;
       esac ;;
  esac
done
"#;

/// A shell command that finds out whether a process of the job waits for its stdin. Linux tells; elsewhere the answer is no.
pub fn reading_script(group: &ProcessGroup, shell: LoginShell) -> String {
    for_shell(format!("S={}\n{LOOK}", group.pgid), shell)
}

/// What the script's stdout says.
pub fn is_reading(stdout: &str) -> bool {
    stdout.lines().any(|line| line == "sshjobs-reading")
}

//! The script that describes the processes of a job.

use super::signal_script::{ProcessGroup, Reach, functions_about};

/// Describes each process of the job, and samples its usage twice, half a second apart.
///
/// Between the lines `begin` and `end` each line is a word and values: `total` (number of processes, of
/// which at most 50 are described: the oldest ten and the newest), `ticks` (of processor time in a second),
/// `machine` (the architecture, which decides the numbers of system calls), `terminal` (modes of the first
/// terminal that is a stdin), and for each process `process` with its id, the seconds since the boot,
/// and the fields of `/proc/PID/stat` from the third on, followed by lines about it. The second samples
/// begin with `again`.
///
/// `command` is the beginning of `/proc/PID/cmdline`, with byte 1 in place of NUL and 2 in place of a line
/// feed. It is cut to 400 bytes, because the reply of a host may have 64 KiB.
///
/// Descriptors are listed by one `ls`, because a program for each of them would take long. Its lines
/// end like `… Nov 26 05:19 3 -> socket:[4711]`.
const INSPECT: &str = r#"
stat_fields() { # those behind the name, which may contain anything
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return
  echo "${stat##*') '}"
}
print_usage() {
  read -r up _ </proc/uptime
  fields=$(stat_fields "$1") || return
  echo "$2 $1 $up $fields"
  sed -n 's/^\([rw]char\): /\1 /p' "/proc/$1/io" 2>/dev/null || :
}
print_call() { # of the main thread
  fd=
  if { read -r n fd _ <"/proc/$1/syscall"; } 2>/dev/null; then
    # A longer number is a pointer, not a descriptor.
    case $fd in 0x?|0x??|0x???|0x????) fd=$(($fd)) ;; *) fd= ;; esac
    echo "call $n"
  fi
  ls -l "/proc/$1/fd" 2>/dev/null | awk -v fd="$fd" '
    match($0, / [0-9]+ -> /) {
      files++
      split(substr($0, RSTART + 1), parts, " -> ")
      if (parts[2] ~ /^socket:/) sockets++
      if (parts[1] == "0") print "stdin " parts[2]
      if (fd != "" && parts[1] == fd) print "target " parts[2]
    }
    END { print "files " files + 0, sockets + 0 }'
}
describe() {
  print_usage "$1" process || return
  awk '/^(Uid|VmRSS|VmHWM|Threads):/ { sub(":", "", $1); print $1, $2 }' "/proc/$1/status" 2>/dev/null
  echo "wchan $(cat "/proc/$1/wchan" 2>/dev/null)"
  print_call "$1"
  printf 'name %s\n' "$(tr '\n' ' ' <"/proc/$1/comm" 2>/dev/null)"
  # printf, because echo in dash interprets backslashes.
  printf 'command %s\n' "$(tr '\000\n' '\001\002' <"/proc/$1/cmdline" 2>/dev/null | head -c 400)"
}
inspect() {
  decide || { echo sshjobs-inspect:unseen; return; }
  members=$(printf '%s\n' "$L" | sed -n 's/^member //p' | sort -n)
  total=$(printf '%s' "$members" | grep -c .)
  if [ "$total" -gt 50 ]; then
    members="$(printf '%s\n' "$members" | head -n 10) $(printf '%s\n' "$members" | tail -n 40)"
  fi
  echo sshjobs-inspect:begin
  echo "total $total"
  echo "machine $(uname -m)"
  echo "ticks $(getconf CLK_TCK 2>/dev/null || echo 100)"
  for p in $members; do
    tty=$(readlink "/proc/$p/fd/0" 2>/dev/null)
    case $tty in
      /dev/pts/*|/dev/tty[0-9]*) echo "terminal $(stty -a <"$tty" 2>/dev/null | tr '\n' ' ')"; break ;;
    esac
  done
  for p in $members; do describe "$p"; done
  sleep 0.5 2>/dev/null || sleep 1
  for p in $members; do print_usage "$p" again; done
  echo sshjobs-inspect:end
}
# Without an answer, the host does not describe its processes.
[ ! -r /proc/self/stat ] || inspect
"#;

/// A POSIX shell script that describes the processes of a job. Works only on Linux.
pub fn inspect_script(group: &ProcessGroup) -> String {
    let functions = functions_about(std::slice::from_ref(group), Reach::Tree);
    format!("{functions}{INSPECT}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::{Awaited, AwaitedFile, Nonce, Process, Processes};

    /// A job as sshd would start it, which is killed when dropped.
    struct Job {
        child: Child,
        group: ProcessGroup,
    }

    impl Job {
        fn start(command: &str) -> Self {
            let mark = Nonce::new();
            let child = Command::new("/bin/sh")
                .args(["-c", command])
                .env("SSHJOBS_JOB", mark.as_str())
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .process_group(0)
                .spawn()
                .unwrap();
            let group = ProcessGroup {
                pgid: child.id(),
                mark,
                age: Duration::from_secs(60),
            };
            Self { child, group }
        }

        fn inspect(&self, shell: &[&str]) -> Processes {
            let (program, arguments) = shell.split_first().unwrap();
            let script = inspect_script(&self.group);
            let output =
                Command::new(program).args(arguments).args(["-c", &script]).output().unwrap();
            let stdout = String::from_utf8_lossy(&output.stdout);
            Processes::parse(&stdout).unwrap_or_else(|| panic!("{output:?}"))
        }

        /// Inspects until a process has this word in its command and satisfies the condition.
        fn process(&self, word: &str, is_wanted: impl Fn(&Process) -> bool) -> Process {
            for _ in 0..50 {
                let found = self.inspect(&["/bin/sh"]).processes.into_iter();
                let mut found = found.filter(|process| process.command.contains(word));
                if let Some(process) = found.find(&is_wanted) {
                    return process;
                }
            }
            panic!("no process {word}: {:?}", self.inspect(&["/bin/sh"]));
        }
    }

    impl Drop for Job {
        fn drop(&mut self) {
            let group = nix::unistd::Pid::from_raw(-i32::try_from(self.child.id()).unwrap());
            nix::sys::signal::kill(group, nix::sys::signal::Signal::SIGKILL).ok();
            self.child.wait().ok();
        }
    }

    #[test]
    fn each_process_says_what_it_waits_for() {
        let job = Job::start("sleep 100 & cat & while :; do :; done");
        let sleep = job.process("sleep 100", |process| {
            process.waits_for == Some(Awaited::Timer)
        });
        assert_eq!(sleep.parent, job.group.pgid);
        assert!(sleep.memory > Some(0) && sleep.open_files > Some(0));
        assert!(sleep.elapsed < Duration::from_secs(60), "{sleep:?}");

        let busy = job.process("while", |process| process.cpu_percent > 1.0);
        assert_eq!((busy.pid, busy.waits_for), (job.group.pgid, None));
    }

    #[test]
    fn a_pipe_and_a_child_are_waited_for() {
        let job = Job::start("cat <&0; true");
        let cat = job.process("cat", |process| {
            process.parent == job.group.pgid
                && process.waits_for == Some(Awaited::Input(AwaitedFile::Pipe))
        });
        assert!(!cat.reads_terminal);
        job.process("cat <&0", |process| {
            process.waits_for == Some(Awaited::Child)
        });
    }

    #[test]
    fn every_shell_of_hosts_runs_it() {
        let job = Job::start("sleep 100; true");
        job.process("sleep 100", |process| process.parent == job.group.pgid);
        for shell in [
            &["/bin/sh"][..],
            &["bash"],
            &["dash"],
            &["busybox", "sh"],
            &["ksh"],
        ] {
            let is_there = Command::new(shell[0]).args(["-c", "true"]).output().is_ok();
            if is_there {
                let found = job.inspect(shell);
                assert_eq!(found.processes.len(), 2, "{shell:?}: {found:?}");
            }
        }
    }

    #[test]
    fn a_command_cannot_forge_a_line() {
        let job = Job::start(
            "sh -c 'sleep 100; :' \"$(printf 'x\\nsshjobs-inspect:end\\nprocess 1')\"; true",
        );
        job.process("sleep 100", |process| process.command.starts_with("sleep"));
        let found = job.inspect(&["/bin/sh"]);
        assert_eq!(found.processes.len(), 3, "{found:?}");
        assert!(
            found
                .processes
                .iter()
                .any(|process| process.command.contains("x\nsshjobs-inspect:end"))
        );
    }

    #[test]
    fn a_job_that_has_ended_has_no_process() {
        let mut job = Job::start("true");
        job.child.wait().unwrap();
        assert_eq!(job.inspect(&["/bin/sh"]).processes, []);
    }
}

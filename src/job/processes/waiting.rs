//! Names the event that a sleeping process waits for.

/// A sleeping process, as its host describes it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sleep<'a> {
    /// State of its main thread, as in ps.
    pub(super) state: char,
    /// Name of the host's processor, as `uname -m` prints it.
    pub(super) machine: &'a str,
    /// Number of its system call, if it may be seen.
    pub(super) call: Option<u32>,
    /// The file of the call's descriptor, such as `pipe:[123]` or `/dev/pts/0`.
    pub(super) target: Option<&'a str>,
    /// The kernel function in which it sleeps.
    pub(super) wchan: Option<&'a str>,
    /// The file of its stdin.
    pub(super) stdin: Option<&'a str>,
    /// Whether its process group is in the foreground of its terminal.
    pub(super) is_in_foreground: bool,
}

/// Kinds of system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Receive,
    Send,
    Accept,
    Connect,
    Events,
    Timer,
    Child,
    Lock,
    FileLock,
    Signal,
    Sync,
}

/// Numbers of system calls on x86-64 (`syscall_64.tbl`), and on machines with the kernel's generic
/// table, such as arm64 and riscv64 (`asm-generic/unistd.h`). `None` if there is no such call.
const CALLS: [(Kind, &[u32], &[u32]); 13] = [
    (Kind::Read, &[0, 17, 19], &[63, 67, 65]),
    (Kind::Write, &[1, 18, 20, 40], &[64, 68, 66, 71]),
    (Kind::Send, &[44, 46, 307], &[206, 211, 269]),
    (Kind::Receive, &[45, 47, 299], &[207, 212, 243]),
    (Kind::Accept, &[43, 288], &[202, 242]),
    (Kind::Connect, &[42], &[203]),
    (
        Kind::Events,
        &[7, 23, 232, 270, 271, 281, 441],
        &[22, 72, 73, 441],
    ),
    (Kind::Timer, &[35, 230], &[101, 115]),
    (Kind::Child, &[61, 247], &[260, 95]),
    (Kind::Lock, &[202, 449], &[98, 449]),
    (Kind::FileLock, &[72, 73], &[25, 32]),
    (Kind::Signal, &[34, 128, 130], &[133, 137]),
    (Kind::Sync, &[74, 75, 162], &[82, 83, 81]),
];

/// Kernel functions, for hosts that hide system calls from other programs of the account (Yama).
const FUNCTIONS: [(&[&str], &str); 11] = [
    (
        &["wait_for_partner"],
        "a program at the other end of its pipe",
    ),
    (&["n_tty_read"], TERMINAL),
    (&["do_wait", "do_wait4", "kernel_wait4"], "a child"),
    (
        &["hrtimer_nanosleep", "do_nanosleep", "common_nsleep"],
        "a timer",
    ),
    (
        &[
            "futex_wait_queue",
            "futex_wait_queue_me",
            "futex_do_wait",
            "futex_wait",
        ],
        "a lock or another thread",
    ),
    (
        &[
            "ep_poll",
            "do_epoll_wait",
            "poll_schedule_timeout",
            "do_sys_poll",
            "do_select",
            "do_poll",
        ],
        "events on its files and sockets, or a timer",
    ),
    (
        &["pipe_read", "anon_pipe_read", "pipe_wait_readable"],
        "input from a pipe",
    ),
    (
        &["pipe_write", "anon_pipe_write", "pipe_wait_writable"],
        "a reader of its pipe",
    ),
    (
        &[
            "unix_stream_read_generic",
            "unix_stream_data_wait",
            "sk_wait_data",
            "skb_wait_for_more_packets",
            "__skb_wait_for_more_packets",
        ],
        "input from a socket",
    ),
    (
        &[
            "inet_csk_accept",
            "inet_csk_wait_for_connect",
            "unix_accept",
        ],
        "a connection",
    ),
    (&["sigsuspend", "do_sigtimedwait"], "a signal"),
];
/// A kernel function of reads from terminals, sockets and other devices.
const ANY_READ: &str = "wait_woken";

const TERMINAL: &str = "input from its terminal";

/// The event that a process waits for, in words. `None` if it runs, or if the host hides it.
pub(super) fn waits_for(sleep: Sleep<'_>) -> Option<String> {
    match sleep.state {
        'R' => return None,
        'T' | 't' => return Some("SIGCONT: it is stopped".to_owned()),
        'D' if sleep.wchan.is_some_and(|function| function.contains("vfork")) => {
            return Some("a child that has not begun its program".to_owned());
        }
        'D' => return Some("a disk or another device".to_owned()),
        _ => {}
    }
    let kind = sleep.call.and_then(|call| kind_of(sleep.machine, call));
    let of = |target: Option<&str>| target.map_or("something".to_owned(), described);
    let words = match kind {
        Some(Kind::Read) => format!("input from {}", of(sleep.target)),
        Some(Kind::Write) => match sleep.target.map(described) {
            Some(pipe) if pipe == "a pipe" => "a reader of its pipe".to_owned(),
            target => format!(
                "{} to take its output",
                target.unwrap_or("something".to_owned())
            ),
        },
        Some(Kind::Receive) => "input from a socket".to_owned(),
        Some(Kind::Send) => "a peer that takes its output".to_owned(),
        Some(Kind::Accept) => "a connection".to_owned(),
        Some(Kind::Connect) => "an answer to its connection attempt".to_owned(),
        Some(Kind::Events) => "events on its files and sockets, or a timer".to_owned(),
        Some(Kind::Timer) => "a timer".to_owned(),
        Some(Kind::Child) => "a child".to_owned(),
        Some(Kind::Lock) => "a lock or another thread".to_owned(),
        Some(Kind::FileLock) => format!("a lock on {}", of(sleep.target)),
        Some(Kind::Signal) => "a signal".to_owned(),
        Some(Kind::Sync) => "a disk".to_owned(),
        None => return by_function(sleep),
    };
    Some(words)
}

/// Whether these words say that it waits for the terminal.
pub(super) fn is_terminal(waits_for: &str) -> bool {
    waits_for == TERMINAL
}

fn kind_of(machine: &str, call: u32) -> Option<Kind> {
    let is_x86 = match machine {
        "x86_64" | "amd64" => true,
        "aarch64" | "arm64" | "riscv64" | "loongarch64" => false,
        _ => return None,
    };
    let has_call = |(_, x86, generic): &&(Kind, &[u32], &[u32])| {
        let numbers = if is_x86 { x86 } else { generic };
        numbers.contains(&call)
    };
    CALLS.iter().find(has_call).map(|(kind, ..)| *kind)
}

fn described(target: &str) -> String {
    match target {
        terminal if is_terminal_file(terminal) => "its terminal".to_owned(),
        stdin if stdin.contains("/sshjobs/spool/") && stdin.ends_with("/in") => {
            "the job's stdin".to_owned()
        }
        pipe if pipe.starts_with("pipe:") => "a pipe".to_owned(),
        socket if socket.starts_with("socket:") => "a socket".to_owned(),
        other => other.to_owned(),
    }
}

/// Whether a file is a terminal on which a person may type. A serial port, such as `/dev/ttyUSB0`, is not.
fn is_terminal_file(file: &str) -> bool {
    let console = file.strip_prefix("/dev/tty");
    file.starts_with("/dev/pts/")
        || console.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn by_function(sleep: Sleep<'_>) -> Option<String> {
    // A compiler may have added a suffix, as in `poll_schedule_timeout.constprop.0`.
    let function = sleep.wchan?.split('.').next()?;
    if function == ANY_READ {
        let may_read_terminal = sleep.is_in_foreground && sleep.stdin.is_some_and(is_terminal_file);
        let input = if may_read_terminal {
            TERMINAL
        } else {
            "input from a socket or a device"
        };
        return Some(input.to_owned());
    }
    let known = FUNCTIONS.iter().find(|(functions, _)| functions.contains(&function));
    known.map(|(_, words)| (*words).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(sleep: Sleep<'_>) -> String {
        waits_for(Sleep {
            state: 'S',
            machine: "x86_64",
            ..sleep
        })
        .unwrap_or_default()
    }

    #[test]
    fn a_call_with_its_descriptor_says_what_is_waited_for() {
        let read = |target| Sleep {
            call: Some(0),
            target: Some(target),
            ..Sleep::default()
        };
        assert_eq!(words(read("/dev/pts/3")), TERMINAL);
        assert_eq!(words(read("pipe:[71]")), "input from a pipe");
        assert_eq!(words(read("/srv/fifo")), "input from /srv/fifo");
        let arm = Sleep {
            state: 'S',
            machine: "aarch64",
            call: Some(260),
            ..Sleep::default()
        };
        assert_eq!(waits_for(arm).unwrap(), "a child");
    }

    #[test]
    fn the_kernel_function_is_used_where_calls_are_hidden() {
        let in_function = |wchan| Sleep {
            wchan: Some(wchan),
            ..Sleep::default()
        };
        assert_eq!(words(in_function("do_wait")), "a child");
        assert_eq!(words(in_function("hrtimer_nanosleep")), "a timer");
        assert_eq!(words(in_function("n_tty_read")), TERMINAL);
        assert_eq!(
            words(in_function("poll_schedule_timeout.constprop.0")),
            "events on its files and sockets, or a timer"
        );
        assert_eq!(words(in_function("do_wait_intr")), "", "not a child");
        assert_eq!(words(in_function("0")), "");
    }

    #[test]
    fn a_read_of_a_socket_is_not_taken_for_one_of_the_terminal() {
        let read = Sleep {
            wchan: Some("wait_woken"),
            stdin: Some("/dev/pts/3"),
            ..Sleep::default()
        };
        assert_eq!(words(read), "input from a socket or a device");
        let in_foreground = Sleep {
            is_in_foreground: true,
            ..read
        };
        assert_eq!(words(in_foreground), TERMINAL);
        let serial = Sleep {
            call: Some(0),
            target: Some("/dev/ttyUSB0"),
            ..Sleep::default()
        };
        assert_eq!(words(serial), "input from /dev/ttyUSB0");
    }

    #[test]
    fn the_state_comes_first() {
        let sleep = Sleep {
            machine: "x86_64",
            call: Some(0),
            ..Sleep::default()
        };
        assert_eq!(
            waits_for(Sleep {
                state: 'R',
                ..sleep
            }),
            None
        );
        assert!(
            waits_for(Sleep {
                state: 'T',
                ..sleep
            })
            .unwrap()
            .contains("stopped")
        );
        assert!(
            waits_for(Sleep {
                state: 'D',
                ..sleep
            })
            .unwrap()
            .contains("disk")
        );
    }
}

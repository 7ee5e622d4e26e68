//! Finds the event that a sleeping process waits for.

use super::awaited::{Awaited, AwaitedFile};

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

/// System calls that wait for the same kind of event.
struct SystemCalls {
    /// The event, for the file of the call's descriptor.
    awaited: fn(AwaitedFile) -> Awaited,
    /// Their numbers on x86-64 (`syscall_64.tbl`).
    x86_64: &'static [u32],
    /// Their numbers in the kernel's generic table, that of arm64 and riscv64
    /// (`asm-generic/unistd.h`).
    generic: &'static [u32],
}

/// System calls that wait, by name: read, pread64, readv; write, pwrite64, writev, sendfile; and so on.
const CALLS: [SystemCalls; 13] = [
    SystemCalls {
        awaited: Awaited::Input,
        x86_64: &[0, 17, 19],
        generic: &[63, 67, 65],
    },
    SystemCalls {
        awaited: Awaited::Room,
        x86_64: &[1, 18, 20, 40],
        generic: &[64, 68, 66, 71],
    },
    // recvfrom, recvmsg, recvmmsg
    SystemCalls {
        awaited: |_| Awaited::Input(AwaitedFile::Socket),
        x86_64: &[45, 47, 299],
        generic: &[207, 212, 243],
    },
    // sendto, sendmsg, sendmmsg
    SystemCalls {
        awaited: |_| Awaited::Room(AwaitedFile::Socket),
        x86_64: &[44, 46, 307],
        generic: &[206, 211, 269],
    },
    // accept, accept4
    SystemCalls {
        awaited: |_| Awaited::Connection,
        x86_64: &[43, 288],
        generic: &[202, 242],
    },
    // connect
    SystemCalls {
        awaited: |_| Awaited::ConnectionAnswer,
        x86_64: &[42],
        generic: &[203],
    },
    // poll, select, pselect6, ppoll, and the calls of epoll
    SystemCalls {
        awaited: |_| Awaited::Events,
        x86_64: &[7, 23, 232, 270, 271, 281, 441],
        generic: &[22, 72, 73, 441],
    },
    // nanosleep, clock_nanosleep
    SystemCalls {
        awaited: |_| Awaited::Timer,
        x86_64: &[35, 230],
        generic: &[101, 115],
    },
    // wait4, waitid
    SystemCalls {
        awaited: |_| Awaited::Child,
        x86_64: &[61, 247],
        generic: &[260, 95],
    },
    // futex, futex_waitv
    SystemCalls {
        awaited: |_| Awaited::Lock,
        x86_64: &[202, 449],
        generic: &[98, 449],
    },
    // fcntl, flock
    SystemCalls {
        awaited: Awaited::FileLock,
        x86_64: &[72, 73],
        generic: &[25, 32],
    },
    // pause, rt_sigtimedwait, rt_sigsuspend
    SystemCalls {
        awaited: |_| Awaited::Signal,
        x86_64: &[34, 128, 130],
        generic: &[133, 137],
    },
    // fsync, fdatasync, sync
    SystemCalls {
        awaited: |_| Awaited::Device,
        x86_64: &[74, 75, 162],
        generic: &[82, 83, 81],
    },
];

/// The event for a kernel function, for hosts that hide system calls from other programs of the account
/// (Yama). `None` if the function is not known.
fn by_function(sleep: Sleep<'_>) -> Option<Awaited> {
    // A compiler may have added a suffix, as in `poll_schedule_timeout.constprop.0`.
    let awaited = match sleep.wchan?.split('.').next()? {
        "n_tty_read" => Awaited::Input(AwaitedFile::Terminal),
        // Reads from terminals, sockets and other devices sleep here.
        "wait_woken" => {
            let stdin = sleep.stdin.map(AwaitedFile::of);
            let may_be_terminal = sleep.is_in_foreground && stdin == Some(AwaitedFile::Terminal);
            Awaited::Input(if may_be_terminal {
                AwaitedFile::Terminal
            } else {
                AwaitedFile::SocketOrDevice
            })
        }
        "do_wait" | "do_wait4" | "kernel_wait4" => Awaited::Child,
        "hrtimer_nanosleep" | "do_nanosleep" | "common_nsleep" => Awaited::Timer,
        "futex_wait_queue" | "futex_wait_queue_me" | "futex_do_wait" | "futex_wait" => {
            Awaited::Lock
        }
        "ep_poll"
        | "do_epoll_wait"
        | "poll_schedule_timeout"
        | "do_sys_poll"
        | "do_select"
        | "do_poll" => Awaited::Events,
        "pipe_read" | "anon_pipe_read" | "pipe_wait_readable" => Awaited::Input(AwaitedFile::Pipe),
        "pipe_write" | "anon_pipe_write" | "pipe_wait_writable" => Awaited::Room(AwaitedFile::Pipe),
        "wait_for_partner" => Awaited::PipePartner,
        "unix_stream_read_generic"
        | "unix_stream_data_wait"
        | "sk_wait_data"
        | "skb_wait_for_more_packets"
        | "__skb_wait_for_more_packets" => Awaited::Input(AwaitedFile::Socket),
        "sk_stream_wait_memory" => Awaited::Room(AwaitedFile::Socket),
        "inet_csk_accept" | "inet_csk_wait_for_connect" | "unix_accept" => Awaited::Connection,
        "sigsuspend" | "do_sigtimedwait" => Awaited::Signal,
        _ => return None,
    };
    Some(awaited)
}

/// The event that a process waits for. `None` if it runs, or if the host hides it.
pub(super) fn awaited(sleep: Sleep<'_>) -> Option<Awaited> {
    match sleep.state {
        'R' => return None,
        'T' | 't' => return Some(Awaited::Continuation),
        'D' if sleep.wchan.is_some_and(|function| function.contains("vfork")) => {
            return Some(Awaited::VforkChild);
        }
        'D' => return Some(Awaited::Device),
        _ => {}
    }
    let file = sleep.target.map_or(AwaitedFile::Hidden, AwaitedFile::of);
    match sleep.call.and_then(|call| calls_with(sleep.machine, call)) {
        Some(calls) => Some((calls.awaited)(file)),
        None => by_function(sleep),
    }
}

/// The entry with this number on this machine.
fn calls_with(machine: &str, number: u32) -> Option<&'static SystemCalls> {
    const TABLE: &[SystemCalls] = &CALLS;
    let is_x86_64 = match machine {
        "x86_64" | "amd64" => true,
        "aarch64" | "arm64" | "riscv64" | "loongarch64" => false,
        _ => return None,
    };
    TABLE.iter().find(|calls| {
        let numbers = if is_x86_64 {
            calls.x86_64
        } else {
            calls.generic
        };
        numbers.contains(&number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(sleep: Sleep<'_>) -> String {
        let sleep = Sleep {
            state: 'S',
            machine: "x86_64",
            ..sleep
        };
        awaited(sleep).map(|event| event.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_call_with_its_descriptor_names_the_event() {
        let read = |target| Sleep {
            call: Some(0),
            target: Some(target),
            ..Sleep::default()
        };
        assert_eq!(words(read("/dev/pts/3")), "input from its terminal");
        assert_eq!(words(read("pipe:[71]")), "input from a pipe");
        assert_eq!(words(read("/srv/fifo")), "input from /srv/fifo");
        assert_eq!(words(read("/dev/ttyUSB0")), "input from /dev/ttyUSB0");
        let arm = Sleep {
            state: 'S',
            machine: "aarch64",
            call: Some(260),
            ..Sleep::default()
        };
        assert_eq!(awaited(arm), Some(Awaited::Child));
    }

    #[test]
    fn the_kernel_function_is_used_where_calls_are_hidden() {
        let in_function = |wchan| Sleep {
            wchan: Some(wchan),
            ..Sleep::default()
        };
        assert_eq!(words(in_function("do_wait")), "a child");
        assert_eq!(words(in_function("hrtimer_nanosleep")), "a timer");
        assert_eq!(words(in_function("n_tty_read")), "input from its terminal");
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
        assert_eq!(words(in_foreground), "input from its terminal");
    }

    #[test]
    fn the_state_comes_first() {
        let sleep = Sleep {
            machine: "x86_64",
            call: Some(0),
            ..Sleep::default()
        };
        assert_eq!(
            awaited(Sleep {
                state: 'R',
                ..sleep
            }),
            None
        );
        assert_eq!(
            awaited(Sleep {
                state: 'T',
                ..sleep
            }),
            Some(Awaited::Continuation)
        );
        assert_eq!(
            awaited(Sleep {
                state: 'D',
                ..sleep
            }),
            Some(Awaited::Device)
        );
    }
}

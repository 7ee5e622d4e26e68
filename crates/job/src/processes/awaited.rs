//! Events that processes wait for.

use std::fmt;

/// An event that a process waits for. `Display` names it in words that follow "waits for".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Input from a file.
    Input(AwaitedFile),
    /// Room for its output in a file.
    Room(AwaitedFile),
    /// A lock on a file.
    FileLock(AwaitedFile),
    /// The end of a child.
    Child,
    /// A child that still uses its memory (vfork).
    VforkChild,
    /// A point in time.
    Timer,
    /// A mutex or condition that another thread or process holds.
    Lock,
    /// Any of several files, sockets and timers (poll, select, epoll).
    Events,
    /// A peer that connects.
    Connection,
    /// A peer that accepts its connection.
    ConnectionAnswer,
    /// A program that opens the other end of its named pipe.
    PipePartner,
    /// A signal.
    Signal,
    /// SIGCONT, because it was stopped.
    Continuation,
    /// A disk or another device.
    Device,
}

/// Kind of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwaitedFile {
    /// A terminal on which a person may type.
    Terminal,
    /// The file from which sshjobs passes stdin to a durable job.
    JobStdin,
    /// A pipe without a name: another process is at its other end.
    Pipe,
    /// A socket.
    Socket,
    /// A socket or a device: the host does not report which.
    SocketOrDevice,
    /// A file with this path.
    Path(String),
    /// A file that the host hides.
    Hidden,
}

impl Awaited {
    /// Whether another process of a pipeline must act first.
    pub(super) fn is_pipe(&self) -> bool {
        matches!(
            self,
            Self::Input(AwaitedFile::Pipe) | Self::Room(AwaitedFile::Pipe)
        )
    }

    /// The path of its file, if it is about one with a path.
    pub fn path_mut(&mut self) -> Option<&mut String> {
        if let Self::Input(AwaitedFile::Path(path))
        | Self::Room(AwaitedFile::Path(path))
        | Self::FileLock(AwaitedFile::Path(path)) = self
        {
            Some(path)
        } else {
            None
        }
    }
}

impl AwaitedFile {
    /// The kind of a file that a link in `/proc/PID/fd` names.
    pub(super) fn of(link: &str) -> Self {
        if is_terminal(link) {
            Self::Terminal
        } else if link.contains("/sshjobs/spool/") && link.ends_with("/in") {
            Self::JobStdin
        } else if link.starts_with("pipe:") {
            Self::Pipe
        } else if link.starts_with("socket:") {
            Self::Socket
        } else {
            Self::Path(link.to_owned())
        }
    }
}

/// Whether a file is a terminal on which a person may type. A serial port, such as `/dev/ttyUSB0`, is
/// not.
fn is_terminal(file: &str) -> bool {
    let console = file.strip_prefix("/dev/tty");
    file.starts_with("/dev/pts/")
        || console.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Input(file) => return write!(f, "input from {file}"),
            Self::Room(file) => return write!(f, "{file} to take its output"),
            Self::FileLock(file) => return write!(f, "a lock on {file}"),
            Self::Child => "a child",
            Self::VforkChild => "a child that has not begun its program",
            Self::Timer => "a timer",
            Self::Lock => "a lock or another thread",
            Self::Events => "events on its files and sockets, or a timer",
            Self::Connection => "a connection",
            Self::ConnectionAnswer => "an answer to its connection attempt",
            Self::PipePartner => "a program at the other end of its pipe",
            Self::Signal => "a signal",
            Self::Continuation => "SIGCONT: it is stopped",
            Self::Device => "a disk or another device",
        };
        f.write_str(words)
    }
}

impl fmt::Display for AwaitedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terminal => "its terminal",
            Self::JobStdin => "the job's stdin",
            Self::Pipe => "a pipe",
            Self::Socket => "a socket",
            Self::SocketOrDevice => "a socket or a device",
            Self::Path(path) => path,
            Self::Hidden => "a file",
        })
    }
}

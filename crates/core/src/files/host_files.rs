//! The files of one host: a connection of their own, with an SFTP session on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::timeout;

use super::error::FilesError;
use super::path::{RemotePath, is_safe_name, shown};
use super::sftp::{
    Attributes, DirectoryEntry, FileKind, SftpError, SftpRequest, SftpSession, SftpStatus,
};
use super::{Digest, FileSource, Hasher, digest};
use crate::admission::{Permit, UseFiles};
use crate::hosts::{Asking, GateLogin, HostRef, Hosts, Lease, Link, Script, SlotWait, is_refused};
use sshjobs_job::{Become, LoginShell, for_shell};
use sshjobs_ssh::{Channel, ChannelError, ChannelReader, ChannelWriter};

/// The files of one host, over a connection that no job shares: a slow disk must not delay a job.
/// Dropping it returns the connection.
pub struct HostFiles {
    pub(super) session: Arc<SftpSession>,
    lease: Lease<Arc<Link>>,
    pub(super) user: FilesUser,
    /// Maximum bytes of a file that may be copied.
    most_bytes: Option<u64>,
    /// The host has not run a script: it is not asked again, because some hosts take long to refuse.
    runs_no_script: AtomicBool,
}

/// The user of a host whose files are used.
pub(super) struct FilesUser {
    pub(super) hosts: Arc<Hosts>,
    pub(super) host: HostRef,
    /// Another user than the one that logs in.
    pub(super) becomes: Option<Become>,
}

/// Attempts to get a connection. A pooled one may have died unnoticed.
const MOST_ATTEMPTS: usize = 3;
/// Maximum entries of a directory that is listed at once.
pub(super) const MOST_ENTRIES: usize = 1_000_000;
/// Maximum bytes that are read back where the host has no tool for digests.
const MOST_READ_BACK: u64 = 64 << 20;

impl HostFiles {
    /// Opens a session with the host's SFTP server, as another user if one is given.
    pub async fn open(
        hosts: &Arc<Hosts>,
        permit: &Permit<UseFiles>,
        becomes: Option<&Become>,
    ) -> Result<Self, FilesError> {
        let host = permit.host();
        let user = FilesUser {
            hosts: Arc::clone(hosts),
            host: host.clone(),
            becomes: becomes.cloned(),
        };
        let mut last = ChannelError::ConnectionLost;
        for _ in 0..MOST_ATTEMPTS {
            let lease = hosts.pool().lease_alone(host).await?;
            if !lease.connection().answers().await {
                continue;
            }
            match user.start_server(lease.connection()).await {
                Ok(session) => {
                    return Ok(Self {
                        session: Arc::new(session),
                        lease,
                        user,
                        most_bytes: permit.most_bytes(),
                        runs_no_script: AtomicBool::new(false),
                    });
                }
                Err(FilesError::Channel(error)) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last.into())
    }

    /// Maximum bytes of a file that may be copied.
    pub(super) fn most_bytes(&self) -> Option<u64> {
        self.most_bytes
    }

    pub(super) fn note_no_script(&self) {
        self.runs_no_script.store(true, Relaxed);
    }

    /// Refuses a file of this size if it is over the limit.
    pub(super) fn check_size(
        &self,
        path: &RemotePath,
        size: Option<u64>,
    ) -> Result<(), FilesError> {
        match (self.most_bytes, size) {
            (Some(most), Some(size)) if size > most => Err(FilesError::OverLimit {
                path: path.clone(),
                most,
            }),
            (Some(_) | None, _) => Ok(()),
        }
    }

    /// Content that ends with an error where it goes over the limit.
    pub(super) fn limited(&self, source: FileSource) -> FileSource {
        match self.most_bytes {
            Some(most) => source.limited(most),
            None => source,
        }
    }

    pub(super) fn link(&self) -> &Link {
        self.lease.connection()
    }

    /// A path as the server takes it: `~` is the home directory, where relative paths begin.
    pub async fn expand(&self, path: &RemotePath) -> Result<RemotePath, FilesError> {
        let bytes = path.as_bytes();
        match bytes.strip_prefix(b"~") {
            None => Ok(path.clone()),
            Some(b"" | b"/") => Ok(RemotePath::new(".")?),
            Some(rest) if rest.starts_with(b"/") => {
                let below = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
                if below == rest.len() {
                    return Ok(RemotePath::new(".")?);
                }
                Ok(RemotePath::new(rest[below..].to_vec())?)
            }
            Some(_) => {
                let request = SftpRequest::ExpandPath(path.bytes());
                let expanded = self.session.path(request).await;
                Ok(RemotePath::new(
                    expanded.map_err(FilesError::on("expand", path))?,
                )?)
            }
        }
    }

    /// Attributes of a path, following symbolic links.
    pub async fn stat(&self, path: &RemotePath) -> Result<Attributes, FilesError> {
        let stat = self.session.attributes(SftpRequest::Stat(path.bytes())).await;
        stat.map_err(FilesError::on("look at", path))
    }

    /// Like [`stat`](Self::stat). `None` if there is no such file.
    pub async fn find(&self, path: &RemotePath) -> Result<Option<Attributes>, FilesError> {
        match self.stat(path).await {
            Err(error) if error.is_no_such_file() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Attributes of a path itself: a symbolic link at its end is not followed.
    pub async fn lstat(&self, path: &RemotePath) -> Result<Attributes, FilesError> {
        let stat = self.session.attributes(SftpRequest::Lstat(path.bytes())).await;
        stat.map_err(FilesError::on("look at", path))
    }

    /// The absolute path of an existing file, with symbolic links resolved.
    pub async fn real_path(&self, path: &RemotePath) -> Result<RemotePath, FilesError> {
        let real = self.session.path(SftpRequest::Realpath(path.bytes())).await;
        Ok(RemotePath::new(
            real.map_err(FilesError::on("resolve", path))?,
        )?)
    }

    /// The target of a symbolic link.
    pub async fn read_link(&self, path: &RemotePath) -> Result<Bytes, FilesError> {
        let target = self.session.path(SftpRequest::Readlink(path.bytes())).await;
        target.map_err(FilesError::on("read the link", path))
    }

    /// The entries of a directory by name, without `.` and `..`.
    ///
    /// # Errors
    /// [`FilesError::HostileName`] if a name leads out of the directory.
    pub async fn list(&self, directory: &RemotePath) -> Result<Vec<DirectoryEntry>, FilesError> {
        let failed = FilesError::on("list", directory);
        let handle = self.session.handle(SftpRequest::Opendir(directory.bytes())).await;
        let handle = OpenHandle {
            handle: handle.map_err(&failed)?,
            session: Arc::clone(&self.session),
        };
        let mut entries: Vec<DirectoryEntry> = Vec::new();
        loop {
            let request = SftpRequest::Readdir(handle.handle.clone());
            let Some(some) = self.session.names(request).await.map_err(&failed)? else {
                break;
            };
            if some.is_empty() {
                return Err(failed(SftpError::Protocol("a reply has no names")));
            }
            let some =
                some.into_iter().filter(|entry| *entry.name != *b"." && *entry.name != *b"..");
            for entry in some {
                // At once, so that no long name is kept.
                if !is_safe_name(&entry.name) {
                    return Err(FilesError::HostileName {
                        directory: directory.clone(),
                        name: shown(&entry.name),
                    });
                }
                entries.push(entry);
            }
            if entries.len() > MOST_ENTRIES {
                return Err(failed(SftpError::Protocol(
                    "a directory has more than a million entries",
                )));
            }
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// Makes a directory and its missing parents.
    pub async fn make_directories(&self, directory: &RemotePath) -> Result<(), FilesError> {
        let mut missing = Vec::new();
        let mut above = directory.clone();
        loop {
            match self.find(&above).await? {
                Some(found) if found.kind() == FileKind::Directory => break,
                Some(_) => {
                    let source = SftpError::Refused {
                        status: SftpStatus::Failure,
                        message: format!("{above} is not a directory"),
                    };
                    return Err(FilesError::on("make the directory", directory)(source));
                }
                None => {
                    let parent = above.parent();
                    if parent == above {
                        let source = SftpError::Protocol("the root directory is missing");
                        return Err(FilesError::on("make the directory", directory)(source));
                    }
                    missing.push(std::mem::replace(&mut above, parent));
                }
            }
        }
        while let Some(path) = missing.pop() {
            self.make_directory(&path).await?;
        }
        Ok(())
    }

    /// Makes a directory, unless there is one.
    pub async fn make_directory(&self, path: &RemotePath) -> Result<(), FilesError> {
        let request = SftpRequest::Mkdir(path.bytes(), Attributes::default());
        match self.session.status(request).await {
            Ok(()) => Ok(()),
            Err(error) => match self.find(path).await? {
                Some(found) if found.kind() == FileKind::Directory => Ok(()),
                _ => Err(FilesError::on("make the directory", path)(error)),
            },
        }
    }

    /// Makes a directory, unless there is one. A symbolic link in its place is replaced: it may be another user's, and
    /// lead anywhere.
    pub(super) async fn make_directory_without_link(
        &self,
        path: &RemotePath,
    ) -> Result<(), FilesError> {
        if self.is_link(path).await? {
            self.remove(path).await?;
        }
        self.make_directory(path).await?;
        if self.is_link(path).await? {
            let source = SftpError::Refused {
                status: SftpStatus::Failure,
                message: "a symbolic link is in its place".to_owned(),
            };
            return Err(FilesError::on("make the directory", path)(source));
        }
        Ok(())
    }

    /// Whether a path is a symbolic link.
    pub(super) async fn is_link(&self, path: &RemotePath) -> Result<bool, FilesError> {
        match self.lstat(path).await {
            Ok(found) => Ok(found.kind() == FileKind::Symlink),
            Err(error) if error.is_no_such_file() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a file.
    pub async fn remove(&self, path: &RemotePath) -> Result<(), FilesError> {
        let removed = self.session.status(SftpRequest::Remove(path.bytes())).await;
        removed.map_err(FilesError::on("remove", path))
    }

    /// Renames a file. Fails if the new name is taken.
    pub(super) async fn rename(&self, from: &RemotePath, to: &RemotePath) -> Result<(), SftpError> {
        let request = SftpRequest::Rename {
            from: from.bytes(),
            to: to.bytes(),
        };
        self.session.status(request).await
    }

    /// Puts a file in the place of another, at once if the server can.
    pub(super) async fn replace(
        &self,
        from: &RemotePath,
        to: &RemotePath,
    ) -> Result<(), FilesError> {
        let failed = FilesError::on("replace", to);
        if self.session.has("posix-rename@openssh.com") {
            let request = SftpRequest::PosixRename {
                from: from.bytes(),
                to: to.bytes(),
            };
            return self.session.status(request).await.map_err(&failed);
        }
        // The protocol's own rename refuses a target that exists.
        match self.rename(from, to).await {
            Err(SftpError::Refused { .. })
                if self.lstat(from).await.is_ok() && self.lstat(to).await.is_ok() =>
            {
                self.remove(to).await?;
                self.rename(from, to).await.map_err(&failed)
            }
            renamed => renamed.map_err(&failed),
        }
    }

    /// The digest of the first `length` bytes of a file, by a tool of the host. `None` if it has
    /// none.
    pub(super) async fn digest_on_host(&self, path: &RemotePath, length: u64) -> Option<Digest> {
        if self.runs_no_script.load(Relaxed) {
            return None;
        }
        let script = digest::script(path, length);
        let printed = if self.user.becomes.is_some() {
            let mut printed = Vec::new();
            let running = self.run_script(script, tokio::io::empty(), &mut printed);
            timeout(digest::time_for(length), running).await.ok()?.ok()?;
            String::from_utf8(printed).ok()?
        } else {
            // Cheaper than a channel of its own.
            let script = Script::without_input(script);
            let run = self.link().run_script(script, digest::time_for(length)).await;
            if matches!(run, Ok(None) | Err(ChannelError::NoGreeting(_))) {
                self.note_no_script();
            }
            run.ok()??
        };
        // No answer is like no tool: the caller verifies in another way, or reports that it did
        // not.
        printed.split_whitespace().find_map(|word| word.parse().ok())
    }

    /// The digest of the first `length` bytes of a file: by a tool of the host, or by reading them
    /// if they are at most 64 MiB. `None` if there is neither.
    pub async fn digest(
        &self,
        path: &RemotePath,
        length: u64,
    ) -> Result<Option<Digest>, FilesError> {
        if let Some(digest) = self.digest_on_host(path, length).await {
            return Ok(Some(digest));
        }
        if length > MOST_READ_BACK {
            return Ok(None);
        }
        let mut hasher = Hasher::default();
        let file = self.open_file(path).await?;
        let mut left = length;
        let mut pieces = file.read(0, Some(length));
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(FilesError::on("read", path))?;
            left -= u64::try_from(piece.len()).unwrap_or(left).min(left);
            hasher.update(&piece);
        }
        // A file that has become shorter has no such prefix.
        Ok((left == 0).then(|| hasher.digest()))
    }

    /// Whether the file system of a path has no room left.
    pub(super) async fn is_full(&self, path: &RemotePath) -> bool {
        use super::sftp::SftpReply;

        let request = SftpRequest::Statvfs(path.parent().bytes());
        // Fields of statvfs(3): block size, fragment size, blocks, free, and available blocks.
        match self.session.call(request).await {
            Ok(SftpReply::Extended(fields)) => {
                let available = fields.get(32..40).map(|field| field.iter().all(|byte| *byte == 0));
                available == Some(true)
            }
            Ok(_) | Err(_) => false,
        }
    }
}

/// Where OpenSSH's SFTP server is on the usual systems.
const SERVERS: &str = "/usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server \
                       /usr/libexec/sftp-server /usr/lib/ssh/sftp-server /usr/lib/sftp-server";

/// An SFTP server in shell, for hosts that have none: about 2 MB/s.
const OWN_SERVER: &str = include_str!("sftp_server.sh");

/// A channel. A server with room for few may free that of a program that has just ended a moment later.
async fn open_with_patience(link: &Link) -> Result<Channel, ChannelError> {
    let mut wait = SlotWait::new();
    loop {
        let opened = link.open().await;
        if !is_refused(&opened) || !wait.pause().await {
            return opened.map(|opened| opened.channel);
        }
    }
}

impl FilesUser {
    /// Starts an SFTP server: the subsystem of sshd, or a command where there is none, or where it
    /// has to run as another user. The command is OpenSSH's server or, without that, our own.
    async fn start_server(&self, link: &Link) -> Result<SftpSession, FilesError> {
        // Three times the limit of a connection, as for a login.
        let silence = link.connection.host().connect_timeout * 3;
        let root = RemotePath::new("/").expect("a slash is a path");
        let failed = FilesError::on("open the files below", &root);

        let mut channel = open_with_patience(link).await?;
        if self.becomes.is_none() {
            let (reader, writer) = channel.subsystem("sftp").await?;
            match SftpSession::start(reader, writer, silence).await {
                Err(SftpError::NoSubsystem) => channel = open_with_patience(link).await?,
                started => return started.map_err(&failed),
            }
        }
        let script = format!("for s in {SERVERS}; do [ -x $s ] && exec $s; done\n{OWN_SERVER}");
        let (reader, writer) = self.exec(link, channel, script).await?;
        match SftpSession::start(reader, writer, silence).await {
            Err(SftpError::Ended { .. }) => Err(failed(SftpError::NoSubsystem)),
            started => started.map_err(&failed),
        }
    }

    /// Runs a script of `/bin/sh` as the account's user.
    pub(super) async fn exec(
        &self,
        link: &Link,
        channel: Channel,
        script: String,
    ) -> Result<(ChannelReader, ChannelWriter), FilesError> {
        match &self.becomes {
            Some(becomes) => {
                let login = GateLogin {
                    host: &self.host,
                    link,
                    asking: Asking::Person,
                };
                Ok(self.hosts.exec_as(login, becomes, channel, &script).await?)
            }
            // Understood by every login shell.
            None => Ok(channel.exec(&for_shell(script, LoginShell::Foreign)).await?),
        }
    }
}

/// An open file or directory, closed when it is dropped.
pub(super) struct OpenHandle {
    pub(super) handle: Bytes,
    pub(super) session: Arc<SftpSession>,
}

impl Drop for OpenHandle {
    fn drop(&mut self) {
        self.session.send_only(&SftpRequest::Close(self.handle.clone()));
    }
}

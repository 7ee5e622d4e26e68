//! An open file of a host: reads and writes with many requests in flight.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::error::FilesError;
use super::host_files::{HostFiles, OpenHandle};
use super::path::RemotePath;
use super::sftp::{Attributes, Open, SftpError, SftpRequest, SftpSession};

/// Requests in flight for one file, as in `sftp`: with 255 KiB each they keep a long link busy.
pub(super) const IN_FLIGHT: usize = 64;

/// Bytes of a file, in order.
pub(super) type Pieces = BoxStream<'static, Result<Bytes, SftpError>>;

/// An open file of a host. Dropping it closes it.
pub(super) struct RemoteFile {
    open: OpenHandle,
}

impl HostFiles {
    /// Opens an existing file to read it.
    pub(super) async fn open_file(&self, path: &RemotePath) -> Result<Arc<RemoteFile>, FilesError> {
        let opened = self.open_as(path, Open::Read, Attributes::default()).await;
        opened.map(Arc::new).map_err(FilesError::on("open", path))
    }

    /// Opens a file. `attributes` are those of a file that is created.
    pub(super) async fn open_as(
        &self,
        path: &RemotePath,
        how: Open,
        attributes: Attributes,
    ) -> Result<RemoteFile, SftpError> {
        let request = SftpRequest::Open {
            path: path.bytes(),
            how,
            attributes,
        };
        let handle = self.session.handle(request).await?;
        Ok(RemoteFile {
            open: OpenHandle {
                handle,
                session: Arc::clone(&self.session),
            },
        })
    }
}

impl RemoteFile {
    fn session(&self) -> &SftpSession {
        &self.open.session
    }

    fn handle(&self) -> Bytes {
        self.open.handle.clone()
    }

    /// Its attributes.
    pub(super) async fn stat(&self) -> Result<Attributes, SftpError> {
        self.session().attributes(SftpRequest::Fstat(self.handle())).await
    }

    /// Changes its attributes.
    pub(super) async fn set(&self, attributes: Attributes) -> Result<(), SftpError> {
        self.session().status(SftpRequest::Fsetstat(self.handle(), attributes)).await
    }

    /// Its bytes from `offset` in order, at most `length` of them or up to its end, in pieces.
    ///
    /// The known size decides how many requests are sent at once; what a file has beyond it, as one
    /// that grows or one in `/proc`, is read after that.
    pub(super) fn read(self: &Arc<Self>, offset: u64, length: Option<u64>) -> Pieces {
        let file = Arc::clone(self);
        let end = length.map(|length| offset.saturating_add(length));
        let sized = async move {
            let size = file.stat().await?.size.unwrap_or(0);
            let known = end.map_or(size, |end| end.min(size));
            let within = file.read_known(offset, known);
            let beyond = file.read_beyond(known.max(offset), end);
            Ok::<_, SftpError>(within.chain(beyond))
        };
        let pieces = stream::once(sized).try_flatten();
        pieces.try_filter(|bytes| std::future::ready(!bytes.is_empty())).boxed()
    }

    /// The bytes from `offset` up to `known`, with many requests in flight. Ends earlier where the
    /// file does.
    fn read_known(self: &Arc<Self>, offset: u64, known: u64) -> Pieces {
        let step = u64::from(self.session().limits().read);
        let file = Arc::clone(self);
        let starts = (0..).map(move |index| offset + index * step);
        let spans = starts.take_while(move |start| *start < known).map(move |start| {
            let file = Arc::clone(&file);
            async move { file.read_span(start, known.min(start + step)).await }
        });
        let in_order = stream::iter(spans).buffered(IN_FLIGHT);
        // Up to the first span that is shorter than requested: the file has ended there.
        let whole = in_order.scan(
            false,
            move |has_ended, read: Result<FileSpan, SftpError>| {
                let ends_here = read.as_ref().map_or(true, |span| span.is_short);
                let is_over = std::mem::replace(has_ended, ends_here);
                std::future::ready((!is_over).then_some(read))
            },
        );
        whole.map_ok(|span| span.bytes).boxed()
    }

    /// The bytes from `start` on, one request at a time.
    fn read_beyond(self: &Arc<Self>, start: u64, end: Option<u64>) -> Pieces {
        let file = Arc::clone(self);
        let step = self.session().limits().read;
        stream::try_unfold(start, move |position| {
            let file = Arc::clone(&file);
            async move {
                let left = end.map_or(u64::MAX, |end| end.saturating_sub(position));
                let length = u32::try_from(left).unwrap_or(u32::MAX).min(step);
                if length == 0 {
                    return Ok(None);
                }
                let data = file.session().data(&file.open.handle, position, length).await?;
                Ok(data.map(|data| {
                    let next = position + u64::try_from(data.len()).unwrap_or(0);
                    (data, next)
                }))
            }
        })
        .boxed()
    }

    /// The bytes of one span. A server may return less than requested, so the gap is requested
    /// again.
    async fn read_span(&self, start: u64, end: u64) -> Result<FileSpan, SftpError> {
        let wanted = u32::try_from(end - start).unwrap_or(u32::MAX);
        let Some(first) = self.session().data(&self.open.handle, start, wanted).await? else {
            return Ok(FileSpan {
                bytes: Bytes::new(),
                is_short: true,
            });
        };
        // Without a copy in the usual case.
        if u32::try_from(first.len()) == Ok(wanted) {
            return Ok(FileSpan {
                bytes: first,
                is_short: false,
            });
        }
        let mut bytes = BytesMut::from(&first[..]);
        loop {
            let have = u32::try_from(bytes.len()).unwrap_or(wanted);
            if have >= wanted {
                return Ok(FileSpan {
                    bytes: bytes.freeze(),
                    is_short: false,
                });
            }
            let position = start + u64::from(have);
            match self.session().data(&self.open.handle, position, wanted - have).await? {
                Some(more) => bytes.extend_from_slice(&more),
                None => {
                    return Ok(FileSpan {
                        bytes: bytes.freeze(),
                        is_short: true,
                    });
                }
            }
        }
    }

    /// Maximum bytes of one write.
    pub(super) fn write_length(&self) -> usize {
        usize::try_from(self.session().limits().write).unwrap_or(usize::MAX)
    }

    /// Writes bytes at a position.
    pub(super) async fn write(&self, offset: u64, data: Bytes) -> Result<(), SftpError> {
        let request = SftpRequest::Write {
            handle: self.handle(),
            offset,
            data,
        };
        self.session().status(request).await
    }

    /// Waits until it is on the disk, if the server can tell.
    pub(super) async fn sync(&self) -> Result<(), SftpError> {
        if self.session().has("fsync@openssh.com") {
            self.session().status(SftpRequest::Fsync(self.handle())).await?;
        }
        Ok(())
    }
}

/// Bytes of a span of a file.
struct FileSpan {
    bytes: Bytes,
    /// The file ends within it.
    is_short: bool,
}

//! A large file that a host has in another version: only blocks that differ are sent.
//!
//! The host prints the digest of each block of its file, and copies the file. The blocks that differ here are written into
//! the copy, which then takes the file's place. Inserted bytes shift all blocks behind them, which are then sent, too, with
//! them.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sshjobs_tree::FileFacts;

use super::exclusive::sync_id;
use crate::files::host_files::HostFiles;
use crate::files::lock::Removal;
use crate::files::progress::TransferProgress;
use crate::files::remote_file::IN_FLIGHT;
use crate::files::sftp::{Attributes, Open, Times};
use crate::files::shell_command::directory_variable;
use crate::files::tree::local::open_below;
use crate::files::{Digest, FilesError, Hasher, RemotePath};

/// Size from which blocks are compared.
pub(super) const BLOCKS_FROM: u64 = 32 << 20;
/// Bytes of a block. Each costs the host two processes.
const BLOCK: u64 = 4 << 20;
/// Exit status of the script on a host that lacks a tool.
const NO_TOOL: u32 = 5;

/// A large file that was written by blocks.
pub(super) struct WrittenBlocks {
    pub(super) digest: Digest,
    pub(super) sent_bytes: u64,
}

/// The file at the source: its digest, and those of its blocks.
struct LocalBlocks {
    size: u64,
    whole: Digest,
    blocks: Vec<Digest>,
}

impl HostFiles {
    /// Brings a file of the host to the content of a file below `root`. `None` if the host lacks a tool for it, or the file
    /// changes meanwhile: then it has to be sent as a whole.
    pub(super) async fn put_blocks(
        &self,
        (root, below): (&Path, &Path),
        path: &RemotePath,
        facts: &FileFacts,
        progress: &Arc<TransferProgress>,
    ) -> Result<Option<WrittenBlocks>, FilesError> {
        let id = sync_id(self, root);
        let part = path.beside(".", &format!(".sshjobs-{id}.part"));
        let removal = Removal::new(self, &part);
        let (here, there) = tokio::join!(
            local_blocks(root, below),
            self.copy_with_digests(path, &part)
        );
        let here = here.map_err(FilesError::local(&root.join(below)))?;
        let Some(there) = there? else { return Ok(None) };
        if here.size != facts.size {
            // It has changed since it was listed.
            return Ok(None);
        }
        let differing: Vec<u64> = (0_u64..)
            .zip(&here.blocks)
            .filter(|(index, digest)| {
                let index = usize::try_from(*index).unwrap_or(usize::MAX);
                there.get(index) != Some(digest)
            })
            .map(|(index, _)| index)
            .collect();
        let file = self.open_as(&part, Open::Write, Attributes::default()).await;
        let file = file.map_err(FilesError::on("write", &part))?;
        let mut sent_bytes = 0;
        for &index in &differing {
            let block = read_block(root, below, index).await;
            let block = block.map_err(FilesError::local(&root.join(below)))?;
            sent_bytes += block.len() as u64;
            let step = file.write_length();
            let writes = (0..block.len()).step_by(step.max(1)).map(|start| {
                let piece = block.slice(start..block.len().min(start + step));
                let offset = index * BLOCK + start as u64;
                file.write(offset, piece)
            });
            let mut writes = stream::iter(writes).buffer_unordered(IN_FLIGHT);
            while let Some(written) = writes.next().await {
                written.map_err(FilesError::on("write", &part))?;
            }
        }
        let unchanged_bytes = facts.size.saturating_sub(sent_bytes);
        progress.add(facts.size);
        let attributes = Attributes {
            size: Some(facts.size),
            mode: Some(facts.mode),
            times: Some(Times::nearest(facts.modified, facts.modified)),
            ..Attributes::default()
        };
        file.set(attributes).await.map_err(FilesError::on("write", &part))?;
        drop(file);
        if !self.has_blocks(&part, &here.blocks, &differing).await? {
            // The file has changed here while it was read twice.
            return Ok(None);
        }
        tracing::debug!(%path, sent_bytes, unchanged_bytes, "only blocks were sent");
        self.replace(&part, path).await?;
        removal.cancel();
        progress.complete();
        Ok(Some(WrittenBlocks {
            digest: here.whole,
            sent_bytes,
        }))
    }

    /// Copies a file of the host to `part`, and returns the digests of its blocks.
    async fn copy_with_digests(
        &self,
        path: &RemotePath,
        part: &RemotePath,
    ) -> Result<Option<Vec<Digest>>, FilesError> {
        let script = format!(
            "{} p=$d; {} {FIND_TOOL} \
             umask 077; rm -f \"$p\"; {{ cp --reflink=auto \"$d\" \"$p\" 2>/dev/null || cp \"$d\" \"$p\"; }} || exit 1; \
             d=$p; {DIGEST_ALL}",
            directory_variable(part),
            directory_variable(path),
        );
        self.block_digests(path, script).await
    }

    /// Whether some blocks of a file have these digests.
    async fn has_blocks(
        &self,
        path: &RemotePath,
        all: &[Digest],
        indexes: &[u64],
    ) -> Result<bool, FilesError> {
        let list: Vec<String> = indexes.iter().map(ToString::to_string).collect();
        let script = format!(
            "{} {FIND_TOOL} for i in {}; do {DIGEST_BLOCK}; done",
            directory_variable(path),
            list.join(" ")
        );
        let found = self.block_digests(path, script).await?.unwrap_or_default();
        let wanted = indexes
            .iter()
            .filter_map(|index| all.get(usize::try_from(*index).ok()?).copied());
        Ok(found.into_iter().eq(wanted))
    }

    async fn block_digests(
        &self,
        path: &RemotePath,
        script: String,
    ) -> Result<Option<Vec<Digest>>, FilesError> {
        let mut printed = Vec::new();
        let ended = self.run_script(script, tokio::io::empty(), &mut printed).await?;
        if !ended.has_begun || ended.status == Some(NO_TOOL) {
            return Ok(None);
        }
        if ended.status != Some(0) {
            return Err(super::host_copy::refused(path, ended.stderr.trim()));
        }
        let printed = String::from_utf8_lossy(&printed);
        let digests = printed.split_whitespace().filter_map(|word| word.parse().ok());
        Ok(Some(digests.collect()))
    }
}

/// Sets `s` to a tool for SHA-256. openssl uses the processor's instructions for it, which coreutils may not.
const FIND_TOOL: &str = "for s in openssl sha256sum shasum none; do command -v $s >/dev/null 2>&1 && break; done; \
     case $s in shasum) s='shasum -a 256' ;; openssl) s='openssl dgst -sha256 -r' ;; none) exit 5 ;; esac;";
/// Prints the digest of block `i` of the file `d`.
const DIGEST_BLOCK: &str = "dd if=\"$d\" bs=4194304 skip=$i count=1 2>/dev/null | $s";
/// Prints the digests of all its blocks, in their order.
const DIGEST_ALL: &str = "n=$(($(wc -c <\"$d\") / 4194304)); i=0; \
     while [ $i -le $n ]; do dd if=\"$d\" bs=4194304 skip=$i count=1 2>/dev/null | $s; i=$((i + 1)); done";

async fn local_blocks(root: &Path, below: &Path) -> io::Result<LocalBlocks> {
    let (root, below) = (root.to_owned(), below.to_owned());
    let reading = tokio::task::spawn_blocking(move || {
        let mut file = open_below(&root, &below)?;
        let mut whole = Hasher::default();
        let mut blocks = Vec::new();
        let mut size = 0;
        loop {
            let mut block = Vec::new();
            (&mut file).take(BLOCK).read_to_end(&mut block)?;
            if block.is_empty() {
                break;
            }
            whole.update(&block);
            size += block.len() as u64;
            blocks.push(Digest::of(&block));
        }
        Ok(LocalBlocks {
            size,
            whole: whole.digest(),
            blocks,
        })
    });
    reading.await.map_err(io::Error::other)?
}

async fn read_block(root: &Path, below: &Path, index: u64) -> io::Result<Bytes> {
    let (root, below) = (root.to_owned(), below.to_owned());
    let reading = tokio::task::spawn_blocking(move || {
        let mut file = open_below(&root, &below)?;
        file.seek(SeekFrom::Start(index * BLOCK))?;
        let mut block = Vec::new();
        file.take(BLOCK).read_to_end(&mut block)?;
        Ok(block.into())
    });
    reading.await.map_err(io::Error::other)?
}

//! Digests of many files of a host, in one command.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::files::host_files::HostFiles;
use crate::files::shell_command::directory_variable;
use crate::files::{Digest, RemotePath};

impl HostFiles {
    /// The digests of files below a directory, in this order. `None` if the host has no tool for
    /// it, or can't read one of them.
    pub(super) async fn digests_below(
        &self,
        directory: &RemotePath,
        files: &[PathBuf],
    ) -> Option<Vec<Digest>> {
        // `./`, because a name may begin with a dash.
        let names = files
            .iter()
            .flat_map(|file| [b"./", file.as_os_str().as_bytes(), &b"\0"[..]].concat());
        let names: Vec<u8> = names.collect();
        let directory = directory_variable(directory);
        let script = format!(
            "{directory} cd -- \"$d\" || exit 1; \
             if command -v sha256sum >/dev/null 2>&1; then s=sha256sum; \
             elif command -v shasum >/dev/null 2>&1; then s='shasum -a 256'; \
             else exit 1; fi; \
             xargs -0 $s | cut -c1-65"
        );
        let mut printed = Vec::new();
        let ended = self.run_script(script, &*names, &mut printed).await.ok()?;
        if ended.status != Some(0) {
            return None;
        }
        let printed = String::from_utf8_lossy(&printed);
        // A name with a newline makes the tool mark its line with a backslash.
        let digests = printed.lines().map(|line| line.trim_start_matches('\\').trim().parse());
        let digests: Vec<Digest> = digests.collect::<Result<_, _>>().ok()?;
        // One for each file: after an error the lines could belong to other files.
        (digests.len() == files.len()).then_some(digests)
    }
}

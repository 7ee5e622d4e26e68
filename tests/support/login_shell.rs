//! Accounts whose login shell is slow to start, as with pyenv, nvm or conda.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::Sshd;

/// An sshd whose login shell is `shell`, which takes `startup` seconds to start. `sshd_config` has
/// further lines for it. Starts are counted; see [`starts`].
pub async fn sshd_with_login_shell(shell: &str, startup: f32, sshd_config: &str) -> Sshd {
    let prepare = |directory: &Path| {
        let login = directory.join("login");
        let text = format!(
            "#!/bin/sh\necho started >> {}\nsleep {startup}\n\
             SHELL={shell} exec {shell} -c \"$SSH_ORIGINAL_COMMAND\"\n",
            directory.join("starts").display(),
        );
        std::fs::write(&login, text).unwrap();
        std::fs::set_permissions(&login, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let sshd_config = format!("ForceCommand DIR/login\n{sshd_config}");
    Sshd::prepared(&sshd_config, prepare).await
}

/// Number of starts of the login shell since the last call.
pub fn starts(sshd: &Sshd) -> usize {
    let counted = std::fs::read_to_string(sshd.path("starts")).unwrap_or_default().lines().count();
    std::fs::remove_file(sshd.path("starts")).ok();
    counted
}

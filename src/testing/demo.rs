//! A server inside the process.

use std::fmt;

use sshjobs_core::jobs as core_jobs;

use crate::{Error, Host, Jobs};

/// Jobs on one host, `demo`: an SSH server inside this process. It needs no setup. It runs commands;
/// files and forwards fail.
pub struct Demo {
    core: core_jobs::Demo,
}

impl fmt::Debug for Demo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Demo").finish()
    }
}

impl Demo {
    /// The host's name.
    pub const HOST: &str = core_jobs::Demo::HOST;

    /// Starts the server, and jobs that know it.
    ///
    /// # Errors
    /// If it can't listen, or its keys can't be written.
    pub async fn start() -> Result<Self, Error> {
        Ok(Self {
            core: core_jobs::Demo::start().await?,
        })
    }

    /// The jobs.
    pub fn jobs(&self) -> Jobs {
        Jobs {
            core: self.core.jobs.clone(),
        }
    }

    /// The host.
    pub fn host(&self) -> Host {
        self.jobs().host(Self::HOST)
    }
}

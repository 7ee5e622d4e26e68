//! The server's certificate, read again when its files change.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};

use x509_cert::der::Decode;

use super::options::TlsFiles;
use sshjobs_base::lock::lock;

/// The server's certificate, read from its files.
#[derive(Debug)]
pub struct Certificate {
    files: TlsFiles,
    current: Mutex<Arc<CertifiedKey>>,
    /// Held while the files are read again.
    reloading: tokio::sync::Mutex<()>,
}

/// Why the certificate can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: std::path::PathBuf,
        /// The cause.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key don't fit together.
    #[error("the certificate can't be used")]
    Unusable(#[from] rustls::Error),
}

/// Interval at which the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Time limit for the files to be read.
const READ_TIME: Duration = Duration::from_secs(5);

impl Certificate {
    pub(super) async fn load(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        let current = Mutex::new(Arc::new(read_off_runtime(&files).await?));
        Ok(Arc::new(Self {
            files,
            current,
            reloading: tokio::sync::Mutex::default(),
        }))
    }

    /// TLS configuration: TLS 1.2 and 1.3, HTTP/2 if the client supports it.
    pub(super) fn config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        let versions = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?;
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(self) as _;
        let mut config = versions.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// End of the certificate's validity, in seconds since the Unix epoch. `None` if it can't be read.
    pub(super) fn ends_at(&self) -> Option<i64> {
        let current = Arc::clone(&lock(&self.current));
        let certificate = x509_cert::Certificate::from_der(current.cert.first()?).ok()?;
        let end = certificate.tbs_certificate().validity().not_after.to_unix_duration();
        i64::try_from(end.as_secs()).ok()
    }

    /// When the two files were changed last. Waits for a disk that does not answer.
    async fn changed_at(&self) -> [Option<SystemTime>; 2] {
        [
            changed_at(&self.files.certificate).await,
            changed_at(&self.files.key).await,
        ]
    }

    /// Reads the files again whenever they change. Files that can't be used change nothing. Never
    /// returns.
    pub(super) async fn follow(&self) {
        let mut seen = self.changed_at().await;
        loop {
            sleep(CHECK_INTERVAL).await;
            // Before the read, so that a change during it is seen at the next check.
            let now = self.changed_at().await;
            if now == seen {
                continue;
            }
            // If it fails `seen` stays old, so that the next check tries again: a file may be half written.
            if self.reload().await {
                seen = now;
            }
        }
    }

    /// Reads the files again, whether or not they seem changed. Files that can't be used change nothing. Returns
    /// whether they could be used.
    pub async fn reload(&self) -> bool {
        // One at a time: an older read must not replace a newer one.
        let _reloading = self.reloading.lock().await;
        match read_off_runtime(&self.files).await {
            Ok(key) => {
                *lock(&self.current) = Arc::new(key);
                tracing::info!("the certificate was read again");
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the new certificate is not taken");
                false
            }
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&lock(&self.current)))
    }
}

async fn changed_at(file: &Path) -> Option<SystemTime> {
    tokio::fs::metadata(file).await.and_then(|metadata| metadata.modified()).ok()
}

/// Reads the files on a blocking thread, with a time limit: a network disk that does not answer
/// must not stop other requests.
async fn read_off_runtime(files: &TlsFiles) -> Result<CertifiedKey, TlsError> {
    let wanted = files.clone();
    let reading = tokio::task::spawn_blocking(move || read(&wanted));
    // A read that exceeds the limit keeps its thread until the disk answers.
    timeout(READ_TIME, reading)
        .await
        .map_err(|_| unreadable(&files.certificate, io::ErrorKind::TimedOut.into()))?
        .map_err(|error| unreadable(&files.certificate, io::Error::other(error)))?
}

fn unreadable(file: &Path, source: io::Error) -> TlsError {
    invalid(file, rustls::pki_types::pem::Error::Io(source))
}

fn invalid(file: &Path, source: rustls::pki_types::pem::Error) -> TlsError {
    TlsError::Unreadable {
        file: file.to_owned(),
        source,
    }
}

fn read(files: &TlsFiles) -> Result<CertifiedKey, TlsError> {
    for file in [&files.certificate, &files.key] {
        // Opening a FIFO would wait for a writer.
        let is_file = std::fs::metadata(file).map(|metadata| metadata.is_file());
        if !is_file.map_err(|error| unreadable(file, error))? {
            return Err(unreadable(file, io::Error::other("it is not a file")));
        }
    }
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| invalid(&files.certificate, error))?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| invalid(&files.key, error))?;
    Ok(CertifiedKey::from_der(
        certificates,
        key,
        &ring::default_provider(),
    )?)
}

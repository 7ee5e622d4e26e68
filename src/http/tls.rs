use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::time::sleep;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};

use super::TlsFiles;
use crate::lock::lock;

/// The certificate that the server shows, as its files have it.
#[derive(Debug)]
pub(super) struct Certificate {
    files: TlsFiles,
    current: Mutex<Arc<CertifiedKey>>,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: std::path::PathBuf,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key can't be used.
    #[error("the certificate can't be used")]
    Unusable(#[from] rustls::Error),
}

/// Interval at which the files are looked at.
const LOOK: Duration = Duration::from_secs(2);

impl Certificate {
    pub(super) fn load(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        let current = Mutex::new(Arc::new(read(&files)?));
        Ok(Arc::new(Self { files, current }))
    }

    /// How connections are secured: TLS 1.2 and 1.3, HTTP/2 where the client has it.
    pub(super) fn config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        let versions = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?;
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(self) as _;
        let mut config = versions.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Reads the files again whenever they change; a pair that can't be used changes nothing. Never ends.
    pub(super) async fn follow(&self) {
        let stamp = || [&self.files.certificate, &self.files.key].map(|file| changed_at(file));
        let mut seen = stamp();
        loop {
            sleep(LOOK).await;
            let now = stamp();
            if now == seen {
                continue;
            }
            match read(&self.files) {
                Ok(key) => {
                    *lock(&self.current) = Arc::new(key);
                    seen = now;
                    tracing::info!("the certificate was read again");
                }
                // Perhaps one of them is still being written.
                Err(error) => tracing::warn!(%error, "the new certificate is not taken"),
            }
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&lock(&self.current)))
    }
}

fn changed_at(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}

fn read(files: &TlsFiles) -> Result<CertifiedKey, TlsError> {
    let unreadable = |file: &Path| {
        let file = file.to_owned();
        move |source| TlsError::Unreadable { file, source }
    };
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unreadable(&files.certificate))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unreadable(&files.key))?;
    Ok(CertifiedKey::from_der(certificates, key, &ring::default_provider())?)
}

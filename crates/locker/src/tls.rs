//! Connections with TLS.

use std::fmt;

use redislease_lock::nodes::{self, TlsFiles};

use crate::InvalidConfig;

/// The certificates for connections with TLS, in PEM.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc/server.rs"));
/// # fn main() -> Done {
/// # let authority = redislease_lab::Authority::new("ours")?;
/// # let (ca, client) = (authority.certificate(), authority.sign(&["client"])?);
/// # let tls = redislease_lab::RedisTls { identity: authority.sign(&["redis"])?, client_ca: Some(ca.clone()) };
/// # let server = RedisServer::start_with(&redislease_lab::RedisOptions { tls: Some(tls), ..Default::default() })?;
/// # let url = format!("rediss://{}", server.tls_address().expect("TLS"));
/// let tls = redislease_locker::Tls::new(ca).client(client.certificate, client.key).server_name("redis");
/// let locker = Locker::builder([url]).single_node().tls(tls).longest_lease(Duration::from_millis(500)).build()?;
/// # runtime().block_on(locker.ready(Duration::from_secs(20)))?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tls(TlsFiles);

impl fmt::Debug for Tls {
    /// Shows no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.0.server_name).finish_non_exhaustive()
    }
}

impl Tls {
    /// `ca` has the certificates of the authorities that signed the servers' certificates. See the example of [`Tls`].
    pub fn new(ca: impl Into<Vec<u8>>) -> Self {
        Self(TlsFiles { ca: ca.into(), client: None, server_name: None })
    }

    /// The certificate of this program and its private key, for servers that ask for one. See the example of [`Tls`].
    pub fn client(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.0.client = Some((certificate.into(), key.into()));
        self
    }

    /// The name in the certificate of every server. Default: the host of its URL. See the example of [`Tls`].
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.0.server_name = Some(name.into());
        self
    }

    /// The same for the connections.
    pub(crate) fn checked(&self) -> Result<nodes::Tls, InvalidConfig> {
        nodes::Tls::new(self.0.clone()).map_err(|error| InvalidConfig(format!("tls(): {}", certificates(&error))))
    }
}

/// What is wrong with certificates, in the words of [`Tls`].
fn certificates(problem: &str) -> String {
    let problem = problem.trim_start_matches("whose keys ").trim_start_matches("whose key ").trim_start_matches("but ");
    problem
        .replace("`ca.crt`", "the certificate authority")
        .replace("`tls.crt` and `tls.key`", "the client's certificate and key")
        .replace("`tls.crt`", "the client's certificate")
        .replace("`tls.key`", "the client's key")
}

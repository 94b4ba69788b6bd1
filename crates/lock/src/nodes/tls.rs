//! TLS to a node: certificates from PEM, the handshake, and what to do when it fails.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Reason;
use super::address::Address;
use super::failure::Failure;

/// The certificates for connections to nodes, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// `ca.crt`: the certificate authorities of the servers.
    pub ca: Vec<u8>,
    /// `tls.crt` and `tls.key`: the client's certificate and its private key, for mutual TLS.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the certificate of every node. By default the host of the node's address.
    pub server_name: Option<String>,
}

/// How to open TLS connections to the nodes of a quorum.
#[derive(Clone)]
pub struct Tls(Result<Arc<Ready>, String>);

struct Ready {
    files: TlsFiles,
    server_name: Option<ServerName<'static>>,
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(ready) => f
                .debug_struct("Tls")
                .field("server_name", &ready.files.server_name)
                .field("mutual", &ready.files.client.is_some())
                .finish_non_exhaustive(),
            Err(problem) => f.debug_tuple("Tls").field(problem).finish(),
        }
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Ok(one), Ok(other)) => one.files == other.files,
            (Err(one), Err(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Tls {}

impl Tls {
    /// Reads the certificates.
    ///
    /// # Errors
    /// A clause that names the key and says what is wrong with it.
    pub fn new(files: TlsFiles) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates("ca.crt", &files.ca)? {
            roots
                .add(certificate)
                .map_err(|error| format!("whose key `ca.crt` holds an unusable certificate: {error}"))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("which cannot be used: {error}"))?
            .with_root_certificates(roots);
        let mut config = match &files.client {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("tls.crt", certificate)?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
                    format!("whose key `tls.key` holds no private key in PEM: {}", pem_problem(&error))
                })?;
                config
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| format!("whose keys `tls.crt` and `tls.key` cannot be used together: {error}"))?
            }
        };
        // A resumed session would skip the check of the server's certificate.
        config.resumption = Resumption::disabled();
        let name = |name: &String| ServerName::try_from(name.clone()).map_err(|_| name.clone());
        let server_name = files.server_name.as_ref().map(name).transpose();
        let server_name =
            server_name.map_err(|name| format!("but the server name `{name}` is not a DNS name or an IP address"))?;
        Ok(Self(Ok(Arc::new(Ready { files, server_name, config: Arc::new(config) }))))
    }

    /// The same settings with the client's certificate of `previous`, if that is another one. The authorities and the server
    /// name stay: a user may have replaced them because they must not be trusted any more.
    pub(super) fn with_client_of(&self, previous: &Self) -> Option<Self> {
        let (Ok(ready), Ok(previous)) = (&self.0, &previous.0) else { return None };
        let client = previous.files.client.clone().filter(|client| Some(client) != ready.files.client.as_ref())?;
        Self::new(TlsFiles { client: Some(client), ..ready.files.clone() }).ok()
    }

    /// TLS that cannot be used yet: no connection is opened, and never one without TLS.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self(Err(why.into()))
    }

    /// The certificates of `ca.crt`, in DER.
    pub fn authorities(&self) -> Vec<CertificateDer<'static>> {
        self.0.as_ref().ok().and_then(|ready| certificates("ca.crt", &ready.files.ca).ok()).unwrap_or_default()
    }

    /// The certificates of `tls.crt`, in DER.
    pub fn client_chain(&self) -> Vec<CertificateDer<'static>> {
        let client = self.0.as_ref().ok().and_then(|ready| ready.files.client.as_ref());
        client.and_then(|(certificate, _)| certificates("tls.crt", certificate).ok()).unwrap_or_default()
    }

    /// Starts TLS on a new connection.
    pub(super) async fn start(&self, address: &Address, tcp: TcpStream) -> Result<TlsStream<TcpStream>, Failure> {
        let ready = self.0.as_ref().map_err(|problem| failure(format!("no TLS connection is possible: {problem}")))?;
        let name = match &ready.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(address.host().to_owned()).map_err(|_| {
                failure("the host of its address is not a name that a certificate can contain".to_owned())
            })?,
        };
        let expected = name.to_str().into_owned();
        let connector = TlsConnector::from(ready.config.clone());
        let explain = |error: &io::Error| failure(explain(error, &expected, ready.files.client.is_some()));
        let mut stream = connector.connect(name, tcp).await.map_err(|error| explain(&error))?;
        greet(&mut stream).await.map_err(|error| explain(&error))?;
        Ok(stream)
    }
}

fn certificates(key: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(format!("whose key `{key}` holds no certificate in PEM")),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("whose key `{key}` is not valid PEM: {}", pem_problem(&error))),
    }
}

/// What is wrong with a PEM file, in fixed words: the text of the library's error can contain the private key.
const fn pem_problem(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no end line",
        pem::Error::IllegalSectionStart { .. } => "a line with BEGIN does not end in five dashes",
        pem::Error::Base64Decode(_) => "a section contains other characters than base64",
        pem::Error::NoItemsFound => "it has no such section",
        _ => "it cannot be read",
    }
}

/// Waits for one answer of the server.
///
/// With TLS 1.3 the handshake ends for the client before the server has checked the client's certificate. Without this
/// answer, a refusal would look like a connection that breaks for an unknown reason. An error is an answer too: the
/// login has not happened yet.
async fn greet(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    stream.write_all(b"PING\r\n").await?;
    let mut last = 0;
    // The reply is one line, so the next byte belongs to the next reply.
    while last != b'\n' {
        last = stream.read_u8().await?;
    }
    Ok(())
}

const NOT_TLS: &str = "the server does not use TLS on this port: use the address of its `tls-port`, or remove `spec.tls` from the RedisQuorum";

/// The server answers without TLS.
pub(super) fn not_tls() -> Failure {
    failure(NOT_TLS.to_owned())
}

fn failure(text: String) -> Failure {
    Failure { reason: Reason::Tls, text }
}

/// What went wrong and what to do, as a sentence that follows the node's name.
fn explain(error: &io::Error, expected: &str, mutual: bool) -> String {
    let tls = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(problem)) => certificate_problem(problem, expected),
        Some(rustls::Error::InvalidMessage(_)) => NOT_TLS.to_owned(),
        Some(rustls::Error::AlertReceived(alert)) => alert_received(*alert, mutual),
        Some(rustls::Error::PeerIncompatible(_)) => {
            format!("the server offers no TLS version and cipher that RedisLease accepts ({error}): allow TLS 1.2 or 1.3 in `tls-protocols`")
        }
        Some(error) => format!("TLS failed: {error}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof || error.kind() == io::ErrorKind::ConnectionReset => {
            "the server closed the connection during the TLS handshake: check that the address is that of its `tls-port`, and that it has not reached `maxclients`"
                .to_owned()
        }
        None => format!("TLS failed: {error}"),
    }
}

fn certificate_problem(problem: &CertificateError, expected: &str) -> String {
    match problem {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the server's certificate is not signed by an authority in the key `ca.crt` of the TLS secret: \
             add the authority that signed it to `ca.crt`"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired: renew it on the server, and check the clock of this machine"
                .to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet: check the clocks of the server and of this machine".to_owned()
        }
        CertificateError::NotValidForName => wrong_name(expected, ""),
        CertificateError::NotValidForNameContext { presented, .. } => {
            // The library writes `DnsName("redis-0")`.
            let bare = |name: &String| name.trim_start_matches(|c| c != '"').trim_matches(['"', ')']).to_owned();
            let bare = |name: &String| Some(bare(name)).filter(|bare| !bare.is_empty()).unwrap_or_else(|| name.clone());
            let presented: Vec<String> = presented.iter().take(5).map(bare).collect();
            wrong_name(expected, &format!(" (it is for {})", presented.join(", ")))
        }
        other => format!("the server's certificate is not valid: {other}"),
    }
}

fn wrong_name(expected: &str, presented: &str) -> String {
    format!(
        "the server's certificate is not for the name `{expected}`{presented}: issue one that contains this name, or set \
         `spec.tls.serverName` to a name that it contains"
    )
}

fn alert_received(alert: AlertDescription, mutual: bool) -> String {
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure if !mutual => {
            "the server requires a certificate of the client: add the keys `tls.crt` and `tls.key` to the TLS secret".to_owned()
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError | AlertDescription::BadCertificate if mutual => {
            "the server does not trust the authority of the client's certificate: set `tls-ca-cert-file` on the server to \
             the authority that signed `tls.crt`, or replace `tls.crt` and `tls.key` in the TLS secret"
                .to_owned()
        }
        AlertDescription::CertificateExpired if mutual => {
            "the client's certificate has expired: replace `tls.crt` and `tls.key` in the TLS secret".to_owned()
        }
        other => format!("the server refuses the TLS handshake with the alert {other:?}: its log says why"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redislease_lab::Authority;

    fn files() -> TlsFiles {
        let authority = Authority::new("test").unwrap();
        let client = authority.sign(&["client"]).unwrap();
        TlsFiles {
            ca: authority.certificate().into_bytes(),
            client: Some((client.certificate.into_bytes(), client.key.into_bytes())),
            server_name: None,
        }
    }

    #[test]
    fn unusable_files_are_named() {
        let good = files();
        let (certificate, key) = good.client.clone().unwrap();
        let (_, other_key) = files().client.unwrap();
        assert!(Tls::new(good.clone()).is_ok());
        let with = |client| TlsFiles { client: Some(client), ..good.clone() };
        for (files, says) in [
            (TlsFiles { ca: b"none".to_vec(), ..good.clone() }, "`ca.crt` holds no certificate"),
            (TlsFiles { ca: key.clone(), ..good.clone() }, "`ca.crt` holds no certificate"),
            (
                TlsFiles { ca: b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----".to_vec(), ..good.clone() },
                "`ca.crt`",
            ),
            (with((b"none".to_vec(), key.clone())), "`tls.crt` holds no certificate"),
            (with((certificate.clone(), b"none".to_vec())), "`tls.key` holds no private key"),
            (with((certificate, other_key)), "`tls.crt` and `tls.key` cannot be used together"),
            (TlsFiles { server_name: Some("a b".into()), ..good.clone() }, "the server name `a b` is not"),
        ] {
            let error = Tls::new(files).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_private_key_that_is_not_valid_pem_is_not_shown() {
        let good = files();
        let (certificate, key) = good.client.clone().unwrap();
        let text = String::from_utf8(key).unwrap();
        let secret = text.lines().nth(1).unwrap();
        let end = text.rfind("-----END").unwrap();
        let broken = [text.replace('\n', ""), text.replace('\n', "\\n"), text[..end].into(), text.replace(secret, "!")];
        let numbers = format!("{:?}", secret.as_bytes());
        let numbers = numbers.trim_matches(['[', ']']);
        for key in broken {
            let client = Some((certificate.clone(), key.clone().into_bytes()));
            let error = Tls::new(TlsFiles { client, ..good.clone() }).unwrap_err();
            assert!(error.starts_with("whose key `tls.key` holds no private key in PEM: "), "{error}");
            assert!(error.len() < 200 && !error.contains(&secret[..8]) && !error.contains(numbers), "{error}");
        }
    }

    #[test]
    fn only_the_certificate_of_the_client_is_tried_again() {
        let (old, new) = (files(), files());
        let [old_tls, new_tls] = [&old, &new].map(|files| Tls::new(files.clone()).unwrap());
        let tried = new_tls.with_client_of(&old_tls).unwrap();
        assert_eq!(tried, Tls::new(TlsFiles { client: old.client, ..new }).unwrap());
        assert_eq!(new_tls.with_client_of(&new_tls), None);
        assert_eq!(new_tls.with_client_of(&Tls::unavailable("no")), None);
    }

    #[test]
    fn equal_files_are_equal_and_no_key_is_in_debug_output() {
        let files = files();
        let key = String::from_utf8(files.client.clone().unwrap().1).unwrap();
        let tls = Tls::new(files.clone()).unwrap();
        assert_eq!(tls, Tls::new(files.clone()).unwrap());
        assert_ne!(tls, Tls::new(TlsFiles { server_name: Some("redis".into()), ..files }).unwrap());
        assert_ne!(tls, Tls::unavailable("no"));
        let shown = format!("{tls:?}");
        let secret = key.lines().nth(1).unwrap();
        assert!(shown.contains("mutual: true") && !shown.contains(secret), "{shown}");
    }
}

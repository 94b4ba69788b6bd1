//! Creates the certificate authority of a control plane, the API server's certificate and the key of service account
//! tokens.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

use crate::{Error, Result};

pub(super) const CA: &str = "ca.crt";
pub(super) const SERVER_CERTIFICATE: &str = "server.crt";
pub(super) const SERVER_KEY: &str = "server.key";
pub(super) const ACCOUNTS_KEY: &str = "service-accounts.key";
pub(super) const ACCOUNTS_PUBLIC_KEY: &str = "service-accounts.pub";

/// Writes all of them into `folder`. The keys are ECDSA keys, because generating an RSA key takes up to a second.
pub(super) fn write(folder: &Path) -> Result<()> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority.distinguished_name.push(DnType::CommonName, "redislease-lab");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
    let mut server = CertificateParams::new(names)?;
    server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    let server_key = KeyPair::generate()?;
    let server = server.signed_by(&server_key, &authority)?;

    let accounts = KeyPair::generate()?;
    for (file, content) in [
        (CA, authority.pem()),
        (SERVER_CERTIFICATE, server.pem()),
        (SERVER_KEY, server_key.serialize_pem()),
        (ACCOUNTS_KEY, accounts.serialize_pem()),
        (ACCOUNTS_PUBLIC_KEY, accounts.public_key_pem()),
    ] {
        fs::write(folder.join(file), content).map_err(Error::io(format!("write {file}")))?;
    }
    Ok(())
}

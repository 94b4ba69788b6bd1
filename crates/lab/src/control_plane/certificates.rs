//! Creates the certificate authority of a control plane, the API server's certificate and the key of service account
//! tokens.

use std::{fs, path::Path};

use rcgen::KeyPair;

use crate::{Authority, Error, Result};

pub(super) const CA: &str = "ca.crt";
pub(super) const SERVER_CERTIFICATE: &str = "server.crt";
pub(super) const SERVER_KEY: &str = "server.key";
pub(super) const ACCOUNTS_KEY: &str = "service-accounts.key";
pub(super) const ACCOUNTS_PUBLIC_KEY: &str = "service-accounts.pub";

/// Writes all of them into `folder`. The keys are ECDSA keys, because generating an RSA key takes up to a second.
pub(super) fn write(folder: &Path) -> Result<()> {
    let authority = Authority::new("redislease-lab")?;
    // Pods on real nodes use the address of the Service `kubernetes`.
    let server = authority.sign(&["127.0.0.1", "10.96.0.1", "localhost", "kubernetes.default.svc"])?;
    let accounts = KeyPair::generate()?;
    for (file, content) in [
        (CA, authority.certificate()),
        (SERVER_CERTIFICATE, server.certificate),
        (SERVER_KEY, server.key),
        (ACCOUNTS_KEY, accounts.serialize_pem()),
        (ACCOUNTS_PUBLIC_KEY, accounts.public_key_pem()),
    ] {
        fs::write(folder.join(file), content).map_err(Error::io(format!("write {file}")))?;
    }
    Ok(())
}

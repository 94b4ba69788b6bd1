//! Certificate authorities for tests, and the certificates that they sign. All keys are ECDSA keys.

use std::{fmt, ops::Range, time::SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::Result;

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `tls.crt`.
    pub certificate: String,
    /// `tls.key`.
    pub key: String,
}

impl Authority {
    /// Creates an authority with this common name.
    ///
    /// # Errors
    /// [`Error::Certificate`](crate::Error::Certificate) when the system provides no random numbers.
    pub fn new(name: &str) -> Result<Self> {
        Self::create(name, |_| ())
    }

    /// Creates an authority whose certificate is valid in this time only.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn new_valid(name: &str, validity: Range<SystemTime>) -> Result<Self> {
        Self::create(name, |params| set_validity(params, validity))
    }

    fn create(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Its certificate in PEM: `ca.crt`.
    pub fn certificate(&self) -> String {
        self.0.pem()
    }

    /// A certificate for servers and clients, valid for these DNS names and IP addresses.
    ///
    /// # Errors
    /// [`Error::Certificate`](crate::Error::Certificate) for an invalid name.
    pub fn sign(&self, names: &[&str]) -> Result<Identity> {
        self.issue(names, |_| ())
    }

    /// A certificate that was valid until 2021.
    ///
    /// # Errors
    /// As [`sign`](Self::sign).
    pub fn sign_expired(&self, names: &[&str]) -> Result<Identity> {
        self.issue(names, |params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        })
    }

    /// A certificate that is valid in this time only.
    ///
    /// # Errors
    /// As [`sign`](Self::sign).
    pub fn sign_valid(&self, names: &[&str], validity: Range<SystemTime>) -> Result<Identity> {
        self.issue(names, |params| set_validity(params, validity))
    }

    fn issue(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Result<Identity> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let common = names.first().cloned().unwrap_or_default();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, common);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn set_validity(params: &mut CertificateParams, Range { start, end }: Range<SystemTime>) {
    params.not_before = start.into();
    params.not_after = end.into();
}

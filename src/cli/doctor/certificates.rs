//! How long certificates are still valid. Pure.

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::finding::Verdict;

/// The least time before the end at which a warning begins.
const WARN_WITHIN: SignedDuration = SignedDuration::from_hours(14 * 24);

/// What a certificate is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// In `ca.crt`: it signs the certificates of the servers.
    Authority,
    /// In `tls.crt`: the operator shows it to the servers.
    Client,
    /// The server shows it to the operator.
    Server,
}

impl Purpose {
    const fn name(self) -> &'static str {
        match self {
            Self::Authority => "The authority in `ca.crt`",
            Self::Client => "The client's certificate in `tls.crt`",
            Self::Server => "The server's certificate",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::Authority => {
                "add its successor to `ca.crt` in the TLS secret, renew the servers' certificates with the successor, and \
                 then remove it"
            }
            Self::Client => "replace `tls.crt` and `tls.key` in the TLS secret",
            Self::Server => "renew it on the server",
        }
    }
}

/// What the doctor needs from a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    /// Its subject, such as `CN=redis-a`.
    pub subject: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Certificate {
    /// Reads a certificate.
    ///
    /// # Errors
    /// A clause that says why it cannot be read.
    pub fn read(der: &CertificateDer<'_>) -> Result<Self, String> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        let validity = certificate.validity();
        // A certificate without an end has a date after the last one that a timestamp can have.
        let time = |seconds: i64| {
            let seconds = seconds.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
            Timestamp::from_second(seconds).map_err(|error| error.to_string())
        };
        Ok(Self {
            subject: certificate.subject().to_string(),
            not_before: time(validity.not_before.timestamp())?,
            not_after: time(validity.not_after.timestamp())?,
        })
    }

    /// The time before the end at which a warning begins: 14 days, or a tenth of the lifetime if that is longer. It is at most
    /// a quarter of the lifetime, because tools that renew certificates often do so after two thirds of it.
    fn warn_within(&self) -> SignedDuration {
        let lifetime = self.not_after.duration_since(self.not_before);
        WARN_WITHIN.max(lifetime / 10).min(lifetime / 4)
    }

    fn state(&self, now: Timestamp) -> Validity {
        if now >= self.not_after {
            Validity::Expired
        } else if now < self.not_before {
            Validity::NotYetValid
        } else if now >= self.not_after.saturating_sub(self.warn_within()).unwrap_or(Timestamp::MIN) {
            Validity::ExpiresSoon
        } else {
            Validity::Valid
        }
    }
}

/// In the order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Validity {
    Valid,
    ExpiresSoon,
    NotYetValid,
    Expired,
}

/// Judges the certificates of one file or of one server by the most urgent one. `None` if there is none.
pub(super) fn judge(
    purpose: Purpose,
    certificates: &Result<Vec<Certificate>, String>,
    now: Timestamp,
) -> Option<(Verdict, String)> {
    let name = purpose.name();
    let certificates = match certificates {
        Ok(certificates) => certificates,
        Err(why) => return Some((Verdict::Unchecked, format!("{name} cannot be read: {why}."))),
    };
    let urgency = |one: &&Certificate| (one.state(now), -one.not_after.as_second());
    let worst = certificates.iter().max_by_key(urgency)?;
    let Certificate { subject, not_before, not_after } = worst;
    let (name, advice) = (format!("{name} ({subject})"), purpose.advice());
    let left = not_after.duration_since(now);
    // A replaced authority may stay in the file for a while.
    let has_successor = purpose == Purpose::Authority
        && certificates.iter().any(|one| matches!(one.state(now), Validity::Valid | Validity::ExpiresSoon));
    Some(match worst.state(now) {
        Validity::Valid => (Verdict::Ok, format!("{name} is valid until {not_after}, for {}.", span(left))),
        Validity::ExpiresSoon => {
            (Verdict::Warning, format!("{name} expires at {not_after}, in {}: {advice}.", span(left)))
        }
        Validity::Expired if has_successor => {
            let message = format!(
                "{name} expired at {not_after}, {} ago: remove it when no server has a certificate of it any more.",
                span(left.abs())
            );
            (Verdict::Warning, message)
        }
        Validity::Expired => {
            // rustls does not check how long an authority is valid.
            let still_used = match purpose {
                Purpose::Authority => {
                    " RedisLease still accepts the certificates that it signed; other programs do not."
                }
                Purpose::Client | Purpose::Server => "",
            };
            let ago = span(left.abs());
            (Verdict::Problem, format!("{name} expired at {not_after}, {ago} ago: {advice}.{still_used}"))
        }
        Validity::NotYetValid if has_successor => {
            (Verdict::Warning, format!("{name} is valid from {not_before} only: use it after that time."))
        }
        Validity::NotYetValid => {
            (Verdict::Problem, format!("{name} is valid from {not_before} only: synchronize the clocks, or {advice}."))
        }
    })
}

/// Such as `3 days` or `5 hours`, rounded down.
fn span(span: SignedDuration) -> String {
    match (span.as_hours(), span.as_mins()) {
        (hours @ 48.., _) => format!("{} days", hours / 24),
        (hours @ 2.., _) => format!("{hours} hours"),
        (_, 1) => "1 minute".to_owned(),
        (_, minutes) => format!("{minutes} minutes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redislease_lab::Authority;
    use rustls::pki_types::pem::PemObject;

    const DAY: i64 = 24 * 3600;

    fn now() -> Timestamp {
        "2026-11-22T12:00:00Z".parse().unwrap()
    }

    /// A certificate that became valid `age` seconds ago and expires in `left` seconds.
    fn certificate(age: i64, left: i64) -> Certificate {
        let at = |offset| now() + SignedDuration::from_secs(offset);
        Certificate { subject: "CN=a".into(), not_before: at(-age), not_after: at(left) }
    }

    fn of(purpose: Purpose, certificates: &[Certificate]) -> (Verdict, String) {
        judge(purpose, &Ok(certificates.to_vec()), now()).unwrap()
    }

    #[test]
    fn the_warning_begins_early_enough_to_act_and_not_before_automatic_renewal() {
        for (lifetime, warn_within) in [
            (365 * DAY, 36 * DAY + DAY / 2),
            (90 * DAY, 14 * DAY),
            (56 * DAY, 14 * DAY),
            (28 * DAY, 7 * DAY),
            (DAY, DAY / 4),
        ] {
            let verdict = |left| of(Purpose::Server, &[certificate(lifetime - left, left)]).0;
            assert_eq!(verdict(warn_within + 1), Verdict::Ok, "{lifetime}");
            assert_eq!(verdict(warn_within), Verdict::Warning, "{lifetime}");
            assert_eq!(verdict(1), Verdict::Warning, "{lifetime}");
            assert_eq!(verdict(0), Verdict::Problem, "{lifetime}");
            // cert-manager renews when a third of the lifetime is left.
            assert!(warn_within < lifetime / 3);
        }
    }

    #[test]
    fn each_state_has_its_sentence() {
        let server = |age, left| of(Purpose::Server, &[certificate(age, left)]);
        for (found, verdict, says) in [
            (
                server(10 * DAY, 80 * DAY),
                Verdict::Ok,
                "The server's certificate (CN=a) is valid until 2027-02-10T12:00:00Z, for 80 days.",
            ),
            (
                server(85 * DAY, 5 * DAY),
                Verdict::Warning,
                "The server's certificate (CN=a) expires at 2026-11-27T12:00:00Z, in 5 days: renew it on the server.",
            ),
            (
                server(90 * DAY, -3 * 3600),
                Verdict::Problem,
                "The server's certificate (CN=a) expired at 2026-11-22T09:00:00Z, 3 hours ago: renew it on the server.",
            ),
            (
                server(-600, 90 * DAY),
                Verdict::Problem,
                "The server's certificate (CN=a) is valid from 2026-11-22T12:10:00Z only: synchronize the clocks, or renew",
            ),
            (
                of(Purpose::Client, &[certificate(90 * DAY, -60)]),
                Verdict::Problem,
                "The client's certificate in `tls.crt` (CN=a) expired at 2026-11-22T11:59:00Z, 1 minute ago: replace",
            ),
        ] {
            assert_eq!(found.0, verdict, "{}", found.1);
            assert!(found.1.starts_with(says), "{}", found.1);
        }
        let unreadable = judge(Purpose::Server, &Err("no answer".into()), now()).unwrap();
        assert_eq!(unreadable, (Verdict::Unchecked, "The server's certificate cannot be read: no answer.".into()));
        assert_eq!(judge(Purpose::Client, &Ok(Vec::new()), now()), None);
    }

    #[test]
    fn the_most_urgent_certificate_decides_and_a_replaced_authority_may_expire() {
        let (fresh, soon) = (certificate(10 * DAY, 80 * DAY), certificate(88 * DAY, 2 * DAY));
        let expired = Certificate { subject: "CN=old".into(), ..certificate(100 * DAY, -10 * DAY) };
        let both = [fresh.clone(), soon.clone()];
        assert_eq!(of(Purpose::Server, &both).0, Verdict::Warning, "an intermediate certificate counts");
        assert_eq!(of(Purpose::Client, &[expired.clone(), fresh.clone()]).0, Verdict::Problem);
        assert_eq!(of(Purpose::Authority, &both).0, Verdict::Warning);
        let replaced = of(Purpose::Authority, &[expired.clone(), fresh]);
        assert_eq!(replaced.0, Verdict::Warning);
        assert!(replaced.1.contains("(CN=old) expired at") && replaced.1.contains("remove it when"), "{}", replaced.1);
        let alone = of(Purpose::Authority, &[expired]);
        assert!(alone.0 == Verdict::Problem && alone.1.contains("RedisLease still accepts"), "{}", alone.1);
        let future = of(Purpose::Authority, &[soon, certificate(-DAY, DAY)]);
        assert!(future.0 == Verdict::Warning && future.1.contains("use it after that time"), "{}", future.1);
    }

    #[test]
    fn a_certificate_without_an_end_can_be_read() {
        use std::time::{Duration, UNIX_EPOCH};
        let pem = Authority::new("ours")
            .unwrap()
            .sign_valid(&["redis-a"], UNIX_EPOCH..UNIX_EPOCH + Duration::from_secs(253_402_300_799))
            .unwrap();
        let read = Certificate::read(&CertificateDer::from_pem_slice(pem.certificate.as_bytes()).unwrap()).unwrap();
        assert_eq!(read.not_after.to_string(), "9999-12-30T22:00:00Z");
        assert_eq!(of(Purpose::Server, &[read]).0, Verdict::Ok);
    }

    #[test]
    fn a_certificate_is_read_from_der() {
        let pem = Authority::new("ours").unwrap().sign_expired(&["redis-a"]).unwrap().certificate;
        let read = Certificate::read(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        assert_eq!(read.subject, "CN=redis-a");
        assert_eq!(read.not_before.to_string(), "2020-01-01T00:00:00Z");
        assert_eq!(read.not_after.to_string(), "2021-01-01T00:00:00Z");
        assert!(Certificate::read(&CertificateDer::from(vec![0x30, 0])).is_err());
    }
}

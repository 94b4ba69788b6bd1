//! Writes to the API server, counted twice: by the operator, and by the API server itself.

use std::ops::Sub;

use crate::Metrics;

/// Numbers of writes, by object.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Writes {
    /// The status of leases.
    pub(super) status: f64,
    /// The role label and token annotation on pods.
    pub(super) roles: f64,
    /// Events.
    pub(super) events: f64,
    /// The status of quorums.
    pub(super) quorums: f64,
}

impl Writes {
    /// The operator's count: every call that it sent, with any result.
    pub(super) fn by_operator(page: &Metrics) -> Self {
        let of = |kind| page.value("redislease_api_writes_total", &[("kind", kind)]).unwrap_or_default();
        Self { status: of("lease_status"), roles: of("pod_role"), events: of("event"), quorums: of("quorum_status") }
    }

    /// The API server's count: every call that it received, with any result. Only the operator makes these writes after
    /// the objects are created: the statuses of pods that the simulated kubelets write are not counted here.
    pub(super) fn by_api_server(page: &Metrics) -> Self {
        let of = |verb, resource, subresource| {
            let labels = [("verb", verb), ("resource", resource), ("subresource", subresource)];
            page.value("apiserver_request_total", &labels).unwrap_or_default()
        };
        let both = |resource, subresource| of("PUT", resource, subresource) + of("PATCH", resource, subresource);
        Self {
            status: both("redisleases", "status"),
            roles: both("pods", ""),
            events: of("POST", "events", "") + both("events", ""),
            quorums: both("redisquorums", "status"),
        }
    }

    /// The sum of all writes.
    pub(super) fn all(&self) -> f64 {
        self.status + self.roles + self.events + self.quorums
    }
}

impl Sub for Writes {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            status: self.status - before.status,
            roles: self.roles - before.roles,
            events: self.events - before.events,
            quorums: self.quorums - before.quorums,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_pages_are_counted_by_what_was_written() {
        let operator = Metrics::read_now(
            "redislease_api_writes_total{kind=\"lease_status\",result=\"ok\"} 5\n\
             redislease_api_writes_total{kind=\"lease_status\",result=\"timeout\"} 2\n\
             redislease_api_writes_total{kind=\"event\",result=\"ok\"} 1\n"
                .to_owned(),
        );
        let counted = Writes::by_operator(&operator);
        assert_eq!(counted, Writes { status: 7.0, events: 1.0, ..Writes::default() });

        let line = |verb, resource, subresource, count| {
            format!(
                "apiserver_request_total{{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",\
                 resource=\"{resource}\",scope=\"resource\",subresource=\"{subresource}\",verb=\"{verb}\",version=\"v1\"}} {count}\n"
            )
        };
        let page = line("PUT", "redisleases", "status", 5)
            + &line("PATCH", "pods", "", 3)
            + &line("PATCH", "pods", "status", 100)
            + &line("POST", "events", "", 2)
            + &line("GET", "redisleases", "", 100);
        let seen = Writes::by_api_server(&Metrics::read_now(page));
        assert_eq!(seen, Writes { status: 5.0, roles: 3.0, events: 2.0, quorums: 0.0 });
        assert!((seen.all() - 10.0).abs() < f64::EPSILON);
        assert!(((seen - counted).status + 2.0).abs() < f64::EPSILON);
    }
}

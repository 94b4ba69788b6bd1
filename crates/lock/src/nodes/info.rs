//! The fields of `INFO` that the operator uses, and whether the server may be a node.

use redis::InfoDict;
use redislease_core::marker::{Marker, RunId};

use super::Misconfiguration;
use super::brief::brief;

/// The relevant fields of `INFO` from one server process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Info {
    /// Differs after a restart, and after a promotion from a replica.
    pub process: Process,
    /// `redis_version`, or the version of Valkey.
    pub version: String,
    /// What prevents the server from voting, with a sentence that says what to do and follows the node's name.
    pub misconfiguration: Option<(Misconfiguration, String)>,
}

/// One server process, and whether it copied another server's data since it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    run_id: String,
    /// `master_replid2`: the replication history that the process followed as a replica before it was promoted. Redis
    /// deletes it when the promoted server has had no replica for an hour (`repl-backlog-ttl`).
    followed: Option<String>,
}

impl Process {
    /// The identity that the server took at its start.
    pub fn server(&self) -> RunId {
        self.run_id.as_str().into()
    }

    /// The name of this process in markers.
    ///
    /// A process that was a replica and is a master again gets a new name: it lost its earlier writes when it copied the
    /// other server, but its earlier marker may have survived, copied there and back. The new name makes that marker
    /// invalid, also for an operator that started after the promotion.
    pub fn name(&self, marker: Option<&Marker>) -> RunId {
        let promoted =
            |marker: &&Marker| marker.run_id().strip_prefix(&self.run_id).is_some_and(|rest| rest.starts_with('+'));
        match &self.followed {
            Some(history) => format!("{}+{}", self.run_id, history.get(..8).unwrap_or(history)).into(),
            // Redis has deleted the replication ID since the marker was written. This is not another promotion.
            None => {
                marker.filter(promoted).map_or_else(|| self.run_id.as_str().into(), |marker| marker.run_id().clone())
            }
        }
    }
}

impl Info {
    /// Reads the text of `INFO`.
    ///
    /// # Errors
    /// Names the field that is missing.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fields = InfoDict::new(text);
        let field = |name: &str| fields.get::<String>(name).ok_or_else(|| format!("INFO has no field {name}"));
        let followed = field("master_replid2").ok().filter(|history| history.chars().any(|digit| digit != '0'));
        Ok(Self {
            process: Process { run_id: field("run_id")?, followed },
            misconfiguration: misconfigurations(text)?.into_iter().next(),
            version: version(text)?,
        })
    }
}

/// `redis_version`, or the version of Valkey.
pub(super) fn version(text: &str) -> Result<String, String> {
    let fields = InfoDict::new(text);
    let redis = fields.get("redis_version").ok_or("INFO has no field redis_version")?;
    Ok(brief(fields.get::<String>("valkey_version").map_or(redis, |version| format!("valkey {version}"))))
}

/// Everything that prevents the server from voting, the most important first.
pub(super) fn misconfigurations(text: &str) -> Result<Vec<(Misconfiguration, String)>, String> {
    let fields = InfoDict::new(text);
    let field = |name: &str| fields.get::<String>(name).ok_or_else(|| format!("INFO has no field {name}"));
    // It has none of the fields below.
    if fields.get::<String>("redis_mode").is_some_and(|mode| mode == "sentinel") {
        let sentence =
            "redis_mode is `sentinel`: a Sentinel keeps no leases, and a node is an independent master that nothing \
                        fails over; use the address of such a server"
                .to_owned();
        return Ok(vec![(Misconfiguration::Replica, sentence)]);
    }
    let redis = field("redis_version")?;
    let mut found = Vec::new();
    // A Valkey server names 7.2.4 as its `redis_version`, whatever its own version is.
    let (product, version, least) = match field("valkey_version") {
        Ok(valkey) => ("Valkey", valkey, 8),
        Err(_) => ("Redis", redis, 7),
    };
    let major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0_u32);
    if major < least {
        let version = brief(version.clone());
        let sentence = format!("{product} {version} is too old: use Redis 7.0 or newer, or Valkey 8 or newer");
        found.push((Misconfiguration::Version, sentence));
    }
    let role = field("role")?;
    if role != "master" {
        let role = brief(role);
        let sentence = format!(
            "role is `{role}`: each node must be an independent master; use the address of a server that is not a replica"
        );
        found.push((Misconfiguration::Replica, sentence));
    }
    if field("cluster_enabled")? != "0" {
        let sentence = "cluster-enabled is `yes`: a node is an independent master; \
                        use servers with `cluster-enabled no`"
            .to_owned();
        found.push((Misconfiguration::Cluster, sentence));
    }
    let policy = field("maxmemory_policy")?;
    if policy != "noeviction" {
        let policy = brief(policy);
        let sentence = format!(
            "maxmemory-policy is `{policy}`: the server may drop a lease that is held; \
             set `maxmemory-policy noeviction`"
        );
        found.push((Misconfiguration::Eviction, sentence));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:3f\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n\
                        # Replication\r\nrole:master\r\nmaster_replid2:0000000000\r\n# Cluster\r\ncluster_enabled:0\r\n";

    fn process(info: &str) -> Process {
        Info::parse(info).unwrap().process
    }

    #[test]
    fn a_master_with_default_settings_is_accepted() {
        let info = Info::parse(GOOD).unwrap();
        assert_eq!((&*info.process.name(None), info.version.as_str(), info.misconfiguration), ("3f", "7.0.15", None));
    }

    #[test]
    fn the_version_of_valkey_is_reported() {
        let info = Info::parse(&format!("{GOOD}valkey_version:8.1.1\r\n")).unwrap();
        assert_eq!(info.version, "valkey 8.1.1");
    }

    #[test]
    fn a_promotion_changes_the_name_in_markers_until_the_next() {
        let promoted = |history: &str| process(&GOOD.replace("0000000000", history));
        let marker = |text: &str| Some(text.parse::<Marker>().unwrap());
        let old = marker("3f:1:f00d");
        assert_eq!(&*promoted("aaaaaaaaaa").name(old.as_ref()), "3f+aaaaaaaa");
        let first = marker("3f+aaaaaaaa:1:f00d");
        assert_eq!(&*promoted("aaaaaaaaaa").name(first.as_ref()), "3f+aaaaaaaa");
        assert_eq!(&*promoted("bbbbbbbbbb").name(first.as_ref()), "3f+bbbbbbbb");
        assert_eq!(&*process(GOOD).name(first.as_ref()), "3f+aaaaaaaa", "the server has deleted the replication ID");
        for other in ["3f:1:f00d", "4e+aaaaaaaa:1:f00d", "3fa+aaaaaaaa:1:f00d"] {
            assert_eq!(&*process(GOOD).name(marker(other).as_ref()), "3f", "{other}");
        }
    }

    #[test]
    fn each_misconfiguration_has_an_instruction() {
        for (good, bad, why, sentence) in [
            ("7.0.15", "6.2.14", Misconfiguration::Version, "Redis 6.2.14 is too old"),
            ("7.0.15", "what", Misconfiguration::Version, "Redis what is too old"),
            ("7.0.15", "7.2.4\r\nvalkey_version:7.2.9", Misconfiguration::Version, "Valkey 7.2.9 is too old"),
            ("role:master", "role:slave", Misconfiguration::Replica, "role is `slave`"),
            ("cluster_enabled:0", "cluster_enabled:1", Misconfiguration::Cluster, "cluster-enabled is `yes`"),
            ("noeviction", "allkeys-lru", Misconfiguration::Eviction, "set `maxmemory-policy noeviction`"),
        ] {
            let (found, said) = Info::parse(&GOOD.replace(good, bad)).unwrap().misconfiguration.unwrap();
            assert_eq!(found, why);
            assert!(said.contains(sentence), "{said}");
        }
    }

    /// A status with them for each node could be too large for the API server.
    #[test]
    fn long_texts_of_a_server_are_cut() {
        let long = "x".repeat(100_000);
        for (field, of) in [("role", "master"), ("maxmemory_policy", "noeviction"), ("redis_version", "7.0.15")] {
            let info = GOOD.replace(&format!("{field}:{of}"), &format!("{field}:{long}"));
            let info = Info::parse(&info).unwrap();
            assert!(info.version.len() < 1000 && info.misconfiguration.unwrap().1.len() < 1000, "{field}");
        }
    }

    #[test]
    fn a_missing_field_is_named() {
        for field in ["redis_version", "run_id", "role", "cluster_enabled", "maxmemory_policy"] {
            let error = Info::parse(&GOOD.replace(field, "other")).unwrap_err();
            assert_eq!(error, format!("INFO has no field {field}"));
        }
    }
}

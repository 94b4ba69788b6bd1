//! What a server says about itself, and whether a node may be like that.

use redislease_core::marker::RunId;

use super::Misconfiguration;

/// What `INFO` told about one server process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Info {
    pub run_id: RunId,
    /// `redis_version`, or of a Valkey its own.
    pub version: String,
    /// What is in the way of ever voting, and a sentence that says what to do, to follow the node's name.
    pub misconfiguration: Option<(Misconfiguration, String)>,
}

impl Info {
    /// Reads the text of `INFO`.
    ///
    /// # Errors
    /// Names the field that is missing.
    pub fn parse(text: &str) -> Result<Self, String> {
        let field = |name: &str| {
            let value = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(|value| value.trim().to_owned());
            text.lines().find_map(value).ok_or_else(|| format!("INFO has no field {name}"))
        };
        let redis_version = field("redis_version")?;
        Ok(Self {
            run_id: field("run_id")?.into(),
            misconfiguration: misconfiguration(&redis_version, &field)?,
            version: field("valkey_version").map_or(redis_version, |version| format!("valkey {version}")),
        })
    }
}

fn misconfiguration(
    version: &str,
    field: &impl Fn(&str) -> Result<String, String>,
) -> Result<Option<(Misconfiguration, String)>, String> {
    let major = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0_u32);
    if major < 7 {
        let sentence = format!("Redis {version} is too old: use Redis 7.0 or newer, or Valkey");
        return Ok(Some((Misconfiguration::Version, sentence)));
    }
    let role = field("role")?;
    if role != "master" {
        let sentence = format!(
            "role is `{role}`: a node is an independent master; name the address of a server that replicates nobody"
        );
        return Ok(Some((Misconfiguration::Replica, sentence)));
    }
    if field("cluster_enabled")? != "0" {
        let sentence = "cluster-enabled is `yes`: a node is an independent master; \
                        use servers with `cluster-enabled no`"
            .to_owned();
        return Ok(Some((Misconfiguration::Cluster, sentence)));
    }
    let policy = field("maxmemory_policy")?;
    if policy != "noeviction" {
        let sentence = format!(
            "maxmemory-policy is `{policy}`: the server may drop a lease that is held; \
             set `maxmemory-policy noeviction`"
        );
        return Ok(Some((Misconfiguration::Eviction, sentence)));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:3f\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n\
                        # Replication\r\nrole:master\r\n# Cluster\r\ncluster_enabled:0\r\n";

    #[test]
    fn a_plain_master_is_fine() {
        let info = Info::parse(GOOD).unwrap();
        assert_eq!((&*info.run_id, info.version.as_str(), info.misconfiguration), ("3f", "7.0.15", None));
    }

    #[test]
    fn a_valkey_is_named_as_one() {
        let info = Info::parse(&format!("{GOOD}valkey_version:8.1.1\r\n")).unwrap();
        assert_eq!(info.version, "valkey 8.1.1");
    }

    #[test]
    fn what_may_not_vote_is_told_what_to_do() {
        for (good, bad, why, sentence) in [
            ("7.0.15", "6.2.14", Misconfiguration::Version, "Redis 6.2.14 is too old"),
            ("7.0.15", "what", Misconfiguration::Version, "Redis what is too old"),
            ("role:master", "role:slave", Misconfiguration::Replica, "role is `slave`"),
            ("cluster_enabled:0", "cluster_enabled:1", Misconfiguration::Cluster, "cluster-enabled is `yes`"),
            ("noeviction", "allkeys-lru", Misconfiguration::Eviction, "set `maxmemory-policy noeviction`"),
        ] {
            let (found, said) = Info::parse(&GOOD.replace(good, bad)).unwrap().misconfiguration.unwrap();
            assert_eq!(found, why);
            assert!(said.contains(sentence), "{said}");
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

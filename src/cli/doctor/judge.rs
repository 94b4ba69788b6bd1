//! Judges the facts. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use redislease_core::quorum::majority;
use redislease_core::seed::CLOCKS_AGREE_WITHIN;
use redislease_lock::nodes::{Failure, Misconfiguration, Reason, Server};
use redislease_plan::api::conditions::QuorumReady;
use redislease_plan::api::{ConditionReason as _, ConditionStatus};

use super::certificates::{self, Purpose};
use super::facts::{Facts, Identity, LeaseFacts, NodeFacts, Obstacle, QuorumFacts, Report, RightFacts, SHOWN_WITHIN};
use super::finding::{Finding, Verdict};
use crate::operator::published::{APPLY, KindFacts};

/// How many leases are named for one reason.
const NAMED: usize = 10;
/// An offset of this size is worth a warning.
const CLOCK_WARNING_MS: i64 = 1000;

/// All findings, in the order of the facts.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &facts.api_server {
        None => {}
        Some(Ok(address)) => {
            let message = format!("The API server at {address} answers.");
            findings.push(Finding::new(Verdict::Ok, "api-server", "cluster", message));
        }
        Some(Err(error)) => findings.push(Finding::new(Verdict::Unchecked, "api-server", "cluster", error)),
    }
    findings.extend(facts.kinds.iter().map(kind));
    findings.extend(rights(&facts.identity, &facts.rights));
    match &facts.quorums {
        None => {}
        Some(Err(Obstacle { message, unchecked })) => {
            let verdict = if *unchecked { Verdict::Unchecked } else { Verdict::Problem };
            findings.push(Finding::new(verdict, "quorums", &facts.namespace, message));
        }
        Some(Ok(quorums)) if quorums.is_empty() => {
            let message = "There is no RedisQuorum, so no lease can be held: create one in this namespace.";
            findings.push(Finding::new(Verdict::Problem, "quorums", &facts.namespace, message));
        }
        Some(Ok(quorums)) => {
            findings.extend(quorums.iter().flat_map(|one| quorum(one, facts.now)));
            findings.extend(alike(quorums));
        }
    }
    findings.extend(facts.leases.iter().flat_map(leases));
    findings
}

fn kind(KindFacts { kind, missing_fields }: &KindFacts) -> Finding {
    let (verdict, message) = match missing_fields {
        Err(error) => (Verdict::Unchecked, format!("The definition cannot be read: {error}.")),
        Ok(None) => (Verdict::Problem, format!("The API server does not know the kind {kind}: {APPLY}.")),
        Ok(Some(missing)) if missing.is_empty() => {
            (Verdict::Ok, "The API server knows every field of this version.".to_owned())
        }
        Ok(Some(missing)) => {
            let missing = missing.join(", ");
            (Verdict::Problem, format!("The definition is older than this program, it lacks {missing}: {APPLY}."))
        }
    };
    Finding::new(verdict, "crd", format!("kind {kind}"), message)
}

/// Whether the operator has its rights. The rights of the caller do not show it: if one is missing, nothing was checked.
fn rights(identity: &Identity, rights: &[RightFacts]) -> Vec<Finding> {
    let finding = |verdict, message: String| Finding::new(verdict, "rbac", "cluster", message);
    let (who, advice) = match identity {
        Identity::Caller => ("Your identity".to_owned(), " Use --service-account to check those of the operator."),
        Identity::Pod => ("The service account of this pod".to_owned(), ""),
        Identity::ServiceAccount(account) => (format!("Service account {account}"), ""),
    };
    let missing: Vec<&RightFacts> = rights.iter().filter(|right| right.allowed == Ok(false)).collect();
    let unknown = rights.iter().filter_map(|RightFacts { right, allowed, .. }| {
        let error = allowed.as_ref().err()?;
        Some(finding(Verdict::Unchecked, format!("{right}: {error}.")))
    });
    let found: Vec<Finding> = match (identity, missing.as_slice()) {
        (Identity::Caller, [first, ..]) => {
            let (count, all, right) = (missing.len(), rights.len(), &first.right);
            let message =
                format!("{who} lacks {count} of the {all} rights that the operator needs, such as: {right}.{advice}");
            vec![finding(Verdict::Unchecked, message)]
        }
        (_, missing) => missing
            .iter()
            .map(|RightFacts { right, needed_for, .. }| {
                let message =
                    format!("{who} may not {right}, which is needed {needed_for}: use the roles of the chart.");
                finding(Verdict::Problem, message)
            })
            .collect(),
    };
    let found: Vec<Finding> = found.into_iter().chain(unknown).collect();
    if !found.is_empty() || rights.is_empty() {
        return found;
    }
    let message = format!("{who} has all {} rights that the operator needs.{advice}", rights.len());
    vec![finding(Verdict::Ok, message)]
}

/// Whether every lease can be read, and whether leases can move when a replica of the operator fails.
fn leases(found: &Result<LeaseFacts, String>) -> Vec<Finding> {
    let all = |verdict, check, message: String| vec![Finding::new(verdict, check, "leases", message)];
    let LeaseFacts { at_risk, unreadable, invalid } = match found {
        Ok(found) => found,
        Err(error) => return all(Verdict::Unchecked, "leases", format!("The leases cannot be read: {error}.")),
    };
    let mut findings = named(Verdict::Problem, "leases", unreadable, "cannot be read by this version", |problem| {
        format!(
            "This version cannot read the lease, and its operator ignores it: {problem}. Correct the field, or update the operator."
        )
    });
    findings.extend(named(Verdict::Warning, "leases", invalid, "have an invalid spec or reference", str::to_owned));
    if at_risk.is_empty() {
        let which = if unreadable.is_empty() { "No lease" } else { "No lease that can be read" };
        let message = format!("{which} moves when one of two replicas of the operator fails.");
        findings.extend(all(Verdict::Ok, "durations", message));
    }
    findings.extend(named(Verdict::Warning, "durations", at_risk, "have such durations", |risk| {
        format!("{risk} See docs/guarantees.md.")
    }));
    findings
}

/// One finding for each of the first leases, and one with the number of the others.
fn named(
    verdict: Verdict,
    check: &'static str,
    leases: &[(String, String)],
    others: &str,
    message: impl Fn(&str) -> String,
) -> Vec<Finding> {
    let named = leases.iter().take(NAMED);
    let named = named.map(|(lease, why)| Finding::new(verdict, check, format!("lease {lease}"), message(why)));
    let more = leases.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| Finding::new(verdict, check, "leases", format!("{more} more leases {others}.")));
    named.chain(more).collect()
}

/// Quorums on separate servers that nothing distinguishes for the alert RedisLeaseSplitBrain.
fn alike(quorums: &[QuorumFacts]) -> Vec<Finding> {
    let mut known: BTreeMap<&str, &QuorumFacts> = BTreeMap::new();
    let mut findings = Vec::new();
    for quorum in quorums {
        let Some(fingerprint) = quorum.fingerprint.as_deref() else { continue };
        let servers =
            |quorum: &QuorumFacts| servers(&quorum.nodes).into_keys().map(str::to_owned).collect::<BTreeSet<_>>();
        match known.get(fingerprint) {
            Some(first) if servers(first).is_disjoint(&servers(quorum)) => {
                let message = format!(
                    "It has other servers than the quorum {} and the same fingerprint {fingerprint}, so the alert \
                     RedisLeaseSplitBrain takes both for one quorum: give a new quorum other node names or another keyPrefix.",
                    first.name
                );
                findings.push(Finding::new(
                    Verdict::Warning,
                    "fingerprint",
                    format!("quorum {}", quorum.name),
                    message,
                ));
            }
            Some(_) => {}
            None => _ = known.insert(fingerprint, quorum),
        }
    }
    findings
}

fn quorum(quorum: &QuorumFacts, now: Timestamp) -> Vec<Finding> {
    let subject = format!("quorum {}", quorum.name);
    let mut findings = Vec::new();
    let mut add = |verdict, check, message: String| findings.push(Finding::new(verdict, check, &subject, message));
    if let Some(invalid) = &quorum.invalid {
        add(Verdict::Problem, "spec", format!("{invalid}."));
        return findings;
    }
    if let Some(Obstacle { message, unchecked }) = &quorum.secret {
        add(if *unchecked { Verdict::Unchecked } else { Verdict::Problem }, "secret", format!("{message}."));
    }
    match quorum.nodes.len() {
        count @ (1 | 2) => {
            add(
                Verdict::Warning,
                "size",
                format!("{count} of {count} nodes must vote, so no node may fail: use three nodes."),
            );
        }
        count if count.is_multiple_of(2) => {
            let message = format!("{count} nodes tolerate no more failures than {}: use an odd number.", count - 1);
            add(Verdict::Warning, "size", message);
        }
        count => add(Verdict::Ok, "size", format!("{} of {count} nodes may fail.", (count - 1) / 2)),
    }
    if !quorum.has_tls {
        let message = "Connections are not encrypted: set spec.tls, or use a network that nobody else can read.";
        add(Verdict::Warning, "tls", message.to_owned());
    }
    for (purpose, found) in [(Purpose::Authority, &quorum.authorities), (Purpose::Client, &quorum.client_chain)] {
        if let Some((verdict, message)) = certificates::judge(purpose, found, now) {
            add(verdict, "certificate", message);
        }
    }
    if !quorum.has_password {
        let message =
            "The nodes need no password: every client that can connect to them can take every lease. Set spec.auth.";
        add(Verdict::Warning, "login", message.to_owned());
    }
    for (check, found) in
        [("status", report(&quorum.report, now)), ("operator", leader(quorum)), ("zones", zones(&quorum.nodes))]
    {
        if let Some((verdict, message)) = found {
            add(verdict, check, message);
        }
    }
    for (run_id, nodes) in servers(&quorum.nodes).into_iter().filter(|(_, nodes)| nodes.len() > 1) {
        let process = run_id.get(..8).unwrap_or(run_id);
        let message = format!(
            "The addresses of {} lead to one server (run_id {process}): use a separate server for each node.",
            nodes.join(" and ")
        );
        add(Verdict::Problem, "shared-server", message);
    }
    findings.extend(quorum.nodes.iter().flat_map(|node| node_findings(quorum, node, now)));
    findings
}

/// What the operator reports, unless all is well.
fn report(Report { ready, health, votes_soon, created }: &Report, now: Timestamp) -> Option<(Verdict, String)> {
    let says = |Condition { type_, status, reason, message, .. }: &Condition| {
        format!("The operator reports {type_}={status} ({reason}): {message}")
    };
    let Some(ready) = ready else {
        let message =
            "The operator has not written a status for this RedisQuorum: check that it runs in this namespace.";
        let is_new = created.is_none_or(|created| created + SHOWN_WITHIN > now);
        return Some((if is_new { Verdict::Warning } else { Verdict::Problem }, message.to_owned()));
    };
    match ready.status.as_str() {
        "True" => {
            let health = health.as_ref().filter(|health| health.status == ConditionStatus::False.as_str())?;
            Some((Verdict::Warning, says(health)))
        }
        // The first quarantine, just after an installation, is no fault.
        "False" if ready.reason == QuorumReady::QuorumUnavailable.as_str() && *votes_soon => {
            Some((Verdict::Warning, says(ready)))
        }
        "False" => Some((Verdict::Problem, says(ready))),
        _ => Some((Verdict::Warning, says(ready))),
    }
}

/// Whether a replica of the operator decides about the leases of the quorum. None needs to if the quorum is not Ready.
fn leader(quorum: &QuorumFacts) -> Option<(Verdict, String)> {
    let is_ready = || quorum.report.ready.as_ref().is_some_and(|ready| ready.status == ConditionStatus::True.as_str());
    let (verdict, message) = match quorum.is_led {
        Some(true) => (Verdict::Ok, "A replica of the operator leads on this quorum."),
        Some(false) => (
            Verdict::Problem,
            "No replica of the operator leads on this quorum, so no lease moves to another pod. If no replica runs, no lease is \
             renewed either: check that the operator runs and reaches the API server.",
        ),
        None if is_ready() => (
            Verdict::Unchecked,
            "Whether a replica of the operator leads on this quorum is not known: it needs the right to get the namespace \
             kube-system, and answers of a majority of the nodes.",
        ),
        None => return None,
    };
    Some((verdict, message.to_owned()))
}

/// Whether the loss of one zone loses the quorum. `None` if no node names a zone.
fn zones(nodes: &[NodeFacts]) -> Option<(Verdict, String)> {
    let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
    for zone in nodes.iter().filter_map(|node| node.zone.as_deref()) {
        *zones.entry(zone).or_default() += 1;
    }
    if nodes.len() < 3 {
        // No node may fail anyway.
        return None;
    }
    let (zone, count) = zones.iter().max_by_key(|(_, count)| **count)?;
    let unnamed = nodes.iter().filter(|node| node.zone.is_none()).count();
    // The others must still be a majority.
    Some(if nodes.len() - count < majority(nodes.len()) {
        let message = format!(
            "{count} of {} nodes are in zone {zone}, so the quorum is lost with this zone: spread the nodes over more zones.",
            nodes.len()
        );
        (Verdict::Warning, message)
    } else if unnamed > 0 {
        let message = format!(
            "{unnamed} of {} nodes name no zone, so it is not known whether the quorum survives the loss of a zone: set \
             `zone` on every node.",
            nodes.len()
        );
        (Verdict::Warning, message)
    } else {
        (Verdict::Ok, "The quorum survives the loss of any zone.".to_owned())
    })
}

/// The nodes of each server process.
fn servers(nodes: &[NodeFacts]) -> BTreeMap<&str, Vec<String>> {
    let mut servers: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for node in nodes {
        if let Some(Ok(server)) = &node.server {
            servers.entry(&server.run_id).or_default().push(format!("{} ({})", node.name, node.address));
        }
    }
    servers
}

fn node_findings(quorum: &QuorumFacts, node: &NodeFacts, now: Timestamp) -> Vec<Finding> {
    let subject = format!("node {}/{}", quorum.name, node.name);
    let found = |verdict, check, message: String| Finding::new(verdict, check, &subject, message);
    match &node.server {
        None => vec![found(Verdict::Unchecked, "connection", "Not looked at: see the check of the secret.".to_owned())],
        Some(Err(Failure { reason, text })) => {
            let check = match reason {
                Reason::Tls => "tls",
                Reason::Auth => "login",
                _ => "connection",
            };
            vec![found(Verdict::Problem, check, format!("{}: {text}.", node.address))]
        }
        Some(Ok(server)) => {
            let with = if quorum.has_tls { " with TLS" } else { "" };
            let product = match server.version.strip_prefix("valkey ") {
                Some(version) => format!("Valkey {version}"),
                None => format!("Redis {}", server.version),
            };
            let connected = format!("Connected to {}{with}: {product}.", node.address);
            let mut findings = vec![found(Verdict::Ok, "connection", connected)];
            if let Some((verdict, message)) = certificates::judge(Purpose::Server, &node.chain, now) {
                findings.push(found(verdict, "certificate", message));
            }
            findings.extend(
                judge_server(server).into_iter().map(|(verdict, check, message)| found(verdict, check, message)),
            );
            findings
        }
    }
}

fn judge_server(server: &Server) -> Vec<(Verdict, &'static str, String)> {
    let mut found = Vec::new();
    for (why, sentence) in &server.misconfigurations {
        let check = match why {
            Misconfiguration::Version => "version",
            Misconfiguration::Replica => "role",
            Misconfiguration::Cluster => "cluster-mode",
            _ => "eviction",
        };
        found.push((Verdict::Problem, check, format!("{sentence}.")));
    }
    if server.misconfigurations.is_empty() {
        let message = "An independent master that evicts no keys.".to_owned();
        found.push((Verdict::Ok, "configuration", message));
    }
    found.extend(judge_commands(server));
    if server.replicas > 0 {
        let message = format!(
            "{} replicas are connected. A promoted replica has lost the latest writes: do not let Sentinel or an operator promote one.",
            server.replicas
        );
        found.push((Verdict::Warning, "replicas", message));
    }
    let (used, limit) = server.memory;
    if limit > 0 && used.saturating_mul(10) > limit.saturating_mul(8) {
        let message =
            format!("{used} of {limit} bytes of maxmemory are used. A full server refuses leases: increase it.");
        found.push((Verdict::Warning, "memory", message));
    }
    if !server.saves {
        // A server without `save` and `appendonly` accepts writes although an earlier save failed.
        let refuses = server.refused.iter().any(|(_, error)| error.contains("MISCONF"));
        let (verdict, effect) = if refuses {
            (Verdict::Problem, "refuses writes (MISCONF)")
        } else {
            (Verdict::Warning, "may refuse writes (MISCONF)")
        };
        let message = format!(
            "The server cannot save its data and {effect}: fix its disk, or switch saving off with `save \"\"` and \
             `appendonly no`. Leases need no persistence."
        );
        found.push((verdict, "persistence", message));
    }
    found.push(judge_clock(server.clock_offset_ms));
    found
}

/// Whether the server allows every command, unless another finding says that it cannot.
fn judge_commands(server: &Server) -> Option<(Verdict, &'static str, String)> {
    let only_eviction = server.misconfigurations.iter().all(|(why, _)| *why == Misconfiguration::Eviction);
    let Some((_, error)) = server.refused.first() else {
        let message = "Every command that leases need is allowed.".to_owned();
        return only_eviction.then_some((Verdict::Ok, "commands", message));
    };
    let names: Vec<&str> = server.refused.iter().map(|(name, _)| name.as_str()).collect();
    let advice = if error.contains("OOM") {
        "free memory or increase `maxmemory`"
    } else if error.contains("MISCONF") {
        "fix saving to disk"
    } else {
        "grant the user the commands and keys that docs/redis-checklist.md lists"
    };
    let message = format!("The server refuses {} ({error}): {advice}.", names.join(", "));
    Some((Verdict::Problem, "commands", message))
}

fn judge_clock(offset: Option<i64>) -> (Verdict, &'static str, String) {
    let Some(offset) = offset else {
        let message = "The server does not answer TIME, so its clock cannot be compared with that of this machine.";
        return (Verdict::Unchecked, "clock", message.to_owned());
    };
    let limit = CLOCKS_AGREE_WITHIN.0.cast_signed();
    let (verdict, advice) = match offset.abs() {
        by if by > limit => (Verdict::Problem, " A new quorum needs clocks within 10 s: synchronize the clocks."),
        CLOCK_WARNING_MS.. => (Verdict::Warning, " Synchronize the clocks."),
        _ => (Verdict::Ok, ""),
    };
    let ahead = if offset < 0 { "behind" } else { "ahead of" };
    let message = format!("The clock is {} ms {ahead} that of this machine.{advice}", offset.abs());
    (verdict, "clock", message)
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;

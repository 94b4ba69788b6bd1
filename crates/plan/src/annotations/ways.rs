//! The annotations `granularity`, `activation` and `active-replicas`: what holds the lease, and how it becomes active.

use crate::api::lease::{ActivationSpec, Granularity, ScaleSpec};
use crate::api::validated::WorkloadKind;

use super::parser::{Parser, UNCHANGED};
use super::problem::Problem;
use super::suggest;

/// The pod gets the label `active`. This is always so.
const LABEL: &str = "label";
/// The operator removes the scheduling gate of the pod.
const GATE: &str = "gate";
/// The operator scales the workload.
const SCALE: &str = "scale";
/// The operator suspends the workload.
const SUSPEND: &str = "suspend";
/// The ways in which the holder becomes active.
const WAYS: [&str; 4] = [LABEL, GATE, SCALE, SUSPEND];

/// The annotation with the number of replicas.
const REPLICAS: &str = "active-replicas";
/// The greatest number of replicas in the spec of a lease.
const MOST: i32 = 10_000;

/// Parses the annotations of a workload of this kind.
pub fn parse(parser: &mut Parser<'_>, kind: WorkloadKind) -> (Granularity, Option<ActivationSpec>) {
    if let Some(value) = parser.value(REPLICAS).filter(|_| switch_of(kind) != Some(SCALE)) {
        let advice = "has no effect on this kind of workload: remove it";
        parser.problems.push(Problem::without_effect(REPLICAS, value, advice, UNCHANGED));
    }
    let granularity = match parser.value("granularity") {
        None => None,
        Some("pod") => Some(Granularity::Pod),
        Some("cluster") => Some(Granularity::Cluster),
        Some(other) => {
            let instead = suggest::nearest(&other.to_ascii_lowercase(), &["pod", "cluster"]).unwrap_or("pod");
            parser.invalid("granularity", other, "be \"pod\" or \"cluster\"", instead);
            return Default::default();
        }
    };
    let value = parser.value("activation");
    let items: Vec<&str> = value.into_iter().flat_map(|value| value.split(',')).map(str::trim).collect();
    let has = |way| items.contains(&way);
    let switches = has(SCALE) || has(SUSPEND);
    match granularity {
        Some(Granularity::Pod) if switches && switch_of(kind).is_some() => {
            let must = "be \"cluster\", because redislease.io/activation contains scale or suspend";
            parser.invalid("granularity", "pod", must, "cluster");
            Default::default()
        }
        Some(Granularity::Pod) if switches => of_cluster(parser, value, &items, kind),
        Some(Granularity::Cluster) => of_cluster(parser, value, &items, kind),
        None if switches && items.iter().all(|item| WAYS.contains(item)) => of_cluster(parser, value, &items, kind),
        Some(Granularity::Pod) | None => (Granularity::Pod, of_pod(parser, value, &items, kind)),
    }
}

/// The way to start and stop workloads of this kind.
const fn switch_of(kind: WorkloadKind) -> Option<&'static str> {
    match kind {
        WorkloadKind::Deployment | WorkloadKind::StatefulSet => Some(SCALE),
        WorkloadKind::CronJob => Some(SUSPEND),
        WorkloadKind::DaemonSet | WorkloadKind::ReplicaSet | WorkloadKind::Job => None,
    }
}

fn of_cluster(
    parser: &mut Parser<'_>,
    value: Option<&str>,
    items: &[&str],
    kind: WorkloadKind,
) -> (Granularity, Option<ActivationSpec>) {
    let has = |way| items.contains(&way);
    let Some(way) = switch_of(kind) else {
        if has(SCALE) || has(SUSPEND) {
            let must = "not contain scale or suspend, which need a Deployment, a StatefulSet or a CronJob";
            let instead = nearest(items, kind);
            parser.invalid("activation", value, must, instead.as_str());
        } else {
            let must = "be \"pod\": only a Deployment, a StatefulSet or a CronJob can run in one cluster only";
            parser.invalid("granularity", parser.value("granularity"), must, "pod");
        }
        return Default::default();
    };
    let must = if items.iter().any(|item| ![LABEL, SCALE, SUSPEND].contains(item)) {
        "contain only label, scale and suspend with redislease.io/granularity cluster"
    } else if has(SCALE) == has(SUSPEND) {
        "contain exactly one of scale and suspend with redislease.io/granularity cluster"
    } else if has(SCALE) && way != SCALE {
        "not contain scale, which needs a Deployment or StatefulSet"
    } else if has(SUSPEND) && way != SUSPEND {
        "not contain suspend, which needs a CronJob"
    } else {
        let scale = if has(SCALE) { replicas(parser) } else { None };
        return (Granularity::Cluster, Some(ActivationSpec { scheduling_gate: false, scale, suspend: has(SUSPEND) }));
    };
    parser.invalid("activation", value, must, way);
    Default::default()
}

fn replicas(parser: &mut Parser<'_>) -> Option<ScaleSpec> {
    let value = parser.value(REPLICAS);
    let replicas = value.and_then(|value| value.trim().parse().ok()).filter(|replicas| (1..=MOST).contains(replicas));
    if replicas.is_none() {
        let must = "be the number of replicas where the workload is active, a whole number from 1 to 10000";
        let instead = value.and_then(nearest_replicas);
        parser.invalid(REPLICAS, value, must, instead.as_deref());
    }
    replicas.map(|replicas| ScaleSpec { replicas })
}

/// The valid number that is nearest to a decimal one. Another text has none: whoever follows a guess scales the workload to it.
fn nearest_replicas(value: &str) -> Option<String> {
    let is_decimal = value.trim().chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    let number: f64 = value.trim().parse().ok().filter(|_| is_decimal)?;
    Some(number.floor().clamp(1.0, MOST.into()).to_string())
}

fn of_pod(parser: &mut Parser<'_>, value: Option<&str>, items: &[&str], kind: WorkloadKind) -> Option<ActivationSpec> {
    if parser.value(REPLICAS).is_some() && switch_of(kind) == Some(SCALE) {
        let must = "contain scale, because redislease.io/active-replicas is set";
        parser.invalid("activation", value, must, SCALE);
        return None;
    }
    value?;
    if items.iter().any(|item| !WAYS.contains(item)) {
        let must = "be a list of the words label, gate, scale and suspend, separated by commas";
        parser.invalid("activation", value, must, nearest(items, kind).as_str());
        return None;
    }
    items.contains(&GATE).then_some(ActivationSpec { scheduling_gate: true, scale: None, suspend: false })
}

/// The valid list of ways that is most similar to these items.
fn nearest(items: &[&str], kind: WorkloadKind) -> String {
    let words = items.iter().filter_map(|item| suggest::nearest(&item.to_ascii_lowercase(), &WAYS));
    let mut ways: Vec<&str> = Vec::new();
    for way in words {
        let way = if way == SCALE || way == SUSPEND {
            match switch_of(kind) {
                Some(way) => return way.to_owned(),
                // This also lets only the elected pod run.
                None => GATE,
            }
        } else {
            way
        };
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    if ways.is_empty() { LABEL.to_owned() } else { ways.join(",") }
}

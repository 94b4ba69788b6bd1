//! Label selectors.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::Selector;

use super::InvalidSpec;
use super::error::Reader;

/// Parses the selector in `field`.
pub(super) fn parse(read: &Reader, field: &str, labels: &LabelSelector) -> Result<Selector, InvalidSpec> {
    let incomplete = |value: String| {
        let must = "use the operators In and NotIn with values, or Exists and DoesNotExist without values";
        read.invalid(format!("{field}.matchExpressions"), value, must)
    };
    // `NotIn` with an empty list would select everything.
    if let Some(one) = labels.match_expressions.iter().flatten().find(|one| !is_complete(one)) {
        return Err(incomplete(format!("{} {}", one.key, one.operator)));
    }
    Selector::try_from(labels.clone()).map_err(|error| incomplete(error.0))
}

/// The label keys that the selector uses.
pub fn keys(labels: &LabelSelector) -> impl Iterator<Item = &str> {
    let compared = labels.match_labels.iter().flat_map(|labels| labels.keys());
    let expressed = labels.match_expressions.iter().flatten().map(|one| &one.key);
    compared.chain(expressed).map(String::as_str)
}

fn is_complete(one: &LabelSelectorRequirement) -> bool {
    let has_values = one.values.as_ref().is_some_and(|values| !values.is_empty());
    match one.operator.as_str() {
        "In" | "NotIn" => has_values,
        "Exists" | "DoesNotExist" => !has_values,
        _ => false,
    }
}

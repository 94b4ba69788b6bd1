//! The two CustomResourceDefinitions in the form in which they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use super::{RedisLease, RedisQuorum};

/// Both CRDs, in the order in which they are applied.
pub fn all() -> [CustomResourceDefinition; 2] {
    [redis_quorum(), redis_lease()]
}

/// The CRD of `RedisLease`.
pub fn redis_lease() -> CustomResourceDefinition {
    normalized(RedisLease::crd())
}

/// The CRD of `RedisQuorum`.
pub fn redis_quorum() -> CustomResourceDefinition {
    normalized(RedisQuorum::crd())
}

/// Changes three things in the schema of the derived CRD:
///
/// - It removes `nullable` from optional fields. The API server then drops null values, so that CEL rules and readers
///   meet only one form of "absent".
/// - It makes the status one atomic value, because the operator always writes the whole status. The API server then tracks the
///   manager of the status, not of each of its fields: a write of a status takes less time, and each object less memory.
/// - It removes the line breaks of the source from descriptions, because `kubectl explain` wraps lines itself.
fn normalized(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            normalize_schema(schema);
            if let Some(status) = schema.properties.as_mut().and_then(|properties| properties.get_mut("status")) {
                status.x_kubernetes_map_type = Some("atomic".to_owned());
            }
        }
    }
    crd
}

fn normalize_schema(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(description) = &mut schema.description {
        *description = description.replace('\n', " ");
    }
    for property in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        normalize_schema(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => normalize_schema(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(normalize_schema),
        None => {}
    }
}

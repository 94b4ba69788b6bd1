//! The two CustomResourceDefinitions as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use super::{RedisLease, RedisQuorum};

/// Both definitions, in the order in which they are applied.
pub fn all() -> [CustomResourceDefinition; 2] {
    [redis_quorum(), redis_lease()]
}

/// The definition of `RedisLease`.
pub fn redis_lease() -> CustomResourceDefinition {
    without_null(RedisLease::crd())
}

/// The definition of `RedisQuorum`.
pub fn redis_quorum() -> CustomResourceDefinition {
    without_null(RedisQuorum::crd())
}

/// The derived schema lets every optional field be null. The API server keeps such a null and hands it to the rules as a value that is
/// there, so `status: null` would pass a rule that asks whether status is there. Without it, a null is dropped like an absent field.
fn without_null(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut())
        {
            forbid_null(schema);
        }
    }
    crd
}

fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        forbid_null(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => forbid_null(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(forbid_null),
        None => {}
    }
}

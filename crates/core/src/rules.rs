//! The place where a checker breaks one rule on purpose.
//!
//! A release has no planted bug: without the feature `check`, [`Rules`] has no size and `breaks!` is the literal
//! `false`, so that neither the name nor the code of a broken rule is compiled. `hack/check-purity.sh` shows it.

/// Which rule a machine breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    #[cfg(feature = "check")]
    pub broken: Option<crate::check::Mutant>,
}

#[cfg(not(feature = "check"))]
const _: () = assert!(size_of::<Rules>() == 0, "a release carries no planted bug");

impl Rules {
    /// A machine that breaks no rule.
    pub const NONE: Self = Self {
        #[cfg(feature = "check")]
        broken: None,
    };
}

/// `breaks!(rules, OneRound | Other)` is whether `rules` has one of the planted bugs `Mutant::OneRound` and `Mutant::Other`.
#[cfg(feature = "check")]
macro_rules! breaks {
    ($rules:expr, $($mutant:ident)|+) => {
        matches!($rules.broken, Some($($crate::check::Mutant::$mutant)|+))
    };
}

#[cfg(not(feature = "check"))]
macro_rules! breaks {
    ($rules:expr, $($mutant:ident)|+) => {{
        let _: &$crate::rules::Rules = &$rules;
        false
    }};
}

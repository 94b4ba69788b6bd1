//! Enums whose variants have the names of words in resources, conditions and events.

/// Implements `ALL` and `as_str` for an enum, from the list of all its variants.
macro_rules! words {
    ($name:ident: $($word:ident),+) => {
        impl $name {
            /// All of them, in their order.
            pub const ALL: [Self; [$(stringify!($word)),+].len()] = [$(Self::$word),+];

            /// As resources, conditions and events spell it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => stringify!($word),)+
                }
            }
        }
    };
}

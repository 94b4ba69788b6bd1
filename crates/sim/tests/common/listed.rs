//! Enums that know their variants.

/// Defines an enum with the list `ALL` of its variants. Those behind a semicolon are not in the list.
macro_rules! listed {
    (
        $(#[$outer:meta])*
        pub enum $name:ident {
            $($(#[$doc:meta])* $variant:ident,)+
            $(; $($rest:tt)+)?
        }
    ) => {
        $(#[$outer])*
        pub enum $name {
            $($(#[$doc])* $variant,)+
            $($($rest)+)?
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];
        }
    };
}

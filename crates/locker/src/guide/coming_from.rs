#![doc = include_str!("coming_from/introduction.md")]

#[doc = include_str!("coming_from/redlock_go.md")]
pub mod redlock_go {}

#[doc = include_str!("coming_from/set_nx.md")]
pub mod set_nx {}

#[doc = include_str!("coming_from/by_hand.md")]
pub mod by_hand {}

#[doc = include_str!("coming_from/redisson.md")]
pub mod redisson {}

#[doc = include_str!("coming_from/redislock.md")]
pub mod redislock {}

#[doc = include_str!("coming_from/rslock.md")]
pub mod rslock {}

#[doc = include_str!("coming_from/redsync.md")]
pub mod redsync {}

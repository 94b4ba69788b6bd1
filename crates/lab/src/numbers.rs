//! Numbers that look random.

/// They are the same for each start (SplitMix64).
#[derive(Debug, Clone)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next one.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// The next one, from zero to less than `limit`.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }
}

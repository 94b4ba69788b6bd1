//! Interning: parts that many states share are stored once, and transitions of a part are computed once.
//!
//! A state is a handful of references to machines and nodes. Two references are equal if and only if their parts are
//! equal, and a part is hashed once, as a whole: no field of the core's machines is left out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Mutex;
use std::thread::LocalKey;

use redislease_core::check::{Mix, Mixer};

/// A reference to a value that exists once, and lives as long as the test.
pub struct Interned<T: 'static>(&'static Entry<T>);

struct Entry<T> {
    hash: u64,
    by_node: [u64; 3],
    value: T,
}

/// All values of one type.
pub struct Pool<T: 'static>(Mutex<Option<Buckets<T>>>);

type Buckets<T> = HashMap<u64, Vec<&'static Entry<T>>, Mix>;

impl<T> Pool<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }
}

/// A type whose values are interned.
pub trait Part: Eq + Hash + Sized + Sync {
    fn pool() -> &'static Pool<Self>;

    /// A hash of everything that concerns one node.
    fn hash_node(&self, _node: usize) -> u64 {
        hash_of(self)
    }
}

impl<T: Part> Interned<T> {
    pub fn new(value: T) -> Self {
        let hash = hash_of(&value);
        let mut pool = T::pool().0.lock().unwrap();
        let bucket = pool.get_or_insert_default().entry(hash).or_default();
        if let Some(entry) = bucket.iter().find(|entry| entry.value == value) {
            return Self(entry);
        }
        let by_node = std::array::from_fn(|node| value.hash_node(node));
        let entry: &'static Entry<T> = Box::leak(Box::new(Entry { hash, by_node, value }));
        bucket.push(entry);
        Self(entry)
    }

    pub const fn by_node(self, node: usize) -> u64 {
        self.0.by_node[node]
    }
}

impl<T> Clone for Interned<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Interned<T> {}

impl<T> Deref for Interned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> Hash for Interned<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl<T> PartialEq for Interned<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl<T> Eq for Interned<T> {}

impl<T: Debug> Debug for Interned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.value.fmt(f)
    }
}

/// The results of a pure function so far, for each thread.
pub type Memo<K, V> = RefCell<HashMap<K, V, Mix>>;

/// The remembered result of `compute`, or a new one.
pub fn remembered<K: Eq + Hash, V: Copy>(
    memo: &'static LocalKey<Memo<K, V>>,
    key: K,
    compute: impl FnOnce(&K) -> V,
) -> V {
    memo.with(|memo| {
        if let Some(value) = memo.borrow().get(&key) {
            return *value;
        }
        let value = compute(&key);
        memo.borrow_mut().insert(key, value);
        value
    })
}

pub fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = Mixer::default();
    value.hash(&mut hasher);
    hasher.finish()
}

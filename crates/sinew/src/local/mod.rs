//! Values that belong to a fiber, and values that are bound for a while.

mod fiber_local;
mod scoped_value;

pub use fiber_local::{AccessError, FiberKey};
pub use scoped_value::ScopedValue;

//! Any descriptor that can be polled, for fibers.

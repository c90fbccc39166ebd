//! Signals, as something to wait for.

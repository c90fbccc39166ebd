//! UDP.

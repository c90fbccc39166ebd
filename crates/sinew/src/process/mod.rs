//! Child processes: std's API, on which only the fiber waits.
